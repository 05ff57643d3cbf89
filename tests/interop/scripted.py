"""A checkpoint that says a given text: each token has one successor (as tests/serve/script.rs makes one)."""

import json
import pathlib
import struct

SIZE = 320
END = 1


def write(folder, tokenizer_file, template, pieces, special=()):
    """Writes the folder; the template must end with `<|reply|>`, and pieces must differ."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = json.loads(pathlib.Path(tokenizer_file).read_text())
    alphabet = sorted(token for token in tokenizer["model"]["vocab"] if len(token) == 1)
    names = ["<|begin|>", "<|end|>", *alphabet]
    tokenizer["model"]["vocab"] = {name: at for at, name in enumerate(names)}
    tokenizer["model"]["merges"] = []
    first, last = len(names), len(names) + len(pieces)
    plain = tokenizer["added_tokens"][0]
    for at, piece in enumerate(["<|reply|>", *pieces]):
        is_special = piece == "<|reply|>" or piece in special
        tokenizer["added_tokens"].append({**plain, "id": first + at, "content": piece, "special": is_special})
    assert last < SIZE
    successors = [token + 1 if first <= token < last else END for token in range(SIZE)]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text(template)
    (folder / "config.json").write_text(json.dumps(config()))
    (folder / "model.safetensors").write_bytes(weights(successors))


def config():
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "mlp_bias": False,
        "bos_token_id": 0, "eos_token_id": END, "dtype": "float32", "head_dim": 16, "hidden_act": "silu",
        "hidden_size": SIZE, "intermediate_size": 32, "max_position_embeddings": 1024, "num_attention_heads": 2,
        "num_hidden_layers": 1, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "vocab_size": SIZE,
    }


def weights(successors):
    """A token's column leads to its successor's row; layers add nothing."""

    def square(rows):
        matrix = [0.0] * (SIZE * SIZE)
        for token, row in enumerate(rows):
            matrix[row * SIZE + token] = 1.0
        return (SIZE, SIZE), matrix

    def zeros(rows, columns):
        return (rows, columns), [0.0] * (rows * columns)

    ones, layer = ((SIZE,), [1.0] * SIZE), "model.layers.0."
    tensors = {
        "model.embed_tokens.weight": square(range(SIZE)),
        "lm_head.weight": square(successors),
        "model.norm.weight": ones,
        layer + "input_layernorm.weight": ones,
        layer + "post_attention_layernorm.weight": ones,
        layer + "self_attn.q_proj.weight": zeros(32, SIZE),
        layer + "self_attn.k_proj.weight": zeros(16, SIZE),
        layer + "self_attn.v_proj.weight": zeros(16, SIZE),
        layer + "self_attn.o_proj.weight": zeros(SIZE, 32),
        layer + "mlp.gate_proj.weight": zeros(32, SIZE),
        layer + "mlp.up_proj.weight": zeros(32, SIZE),
        layer + "mlp.down_proj.weight": zeros(SIZE, 32),
    }
    head, data = {}, b""
    for name, (shape, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}f", *values)
        head[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data
