"""Writes a checkpoint of random weights in the size of a published model, to time everything around the decode step.

    python3 random_checkpoint.py CONFIG.json TOKENIZER.json FOLDER

CONFIG is a Llama configuration (models/shapes has some); weights are bf16, normal, scaled by 1 / sqrt(width). TOKENIZER is a
byte-level BPE (such as that of models/tiny-llama); random merges enlarge it to the size of the vocabulary, because reading a large
tokenizer takes time too.
"""

import json
import random
import shutil
import sys
from pathlib import Path

import torch


def tensors(config):
    """Names and shapes."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    dim = config["head_dim"]
    query, key = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, rows, columns in [
            ("self_attn.q_proj", query, hidden),
            ("self_attn.k_proj", key, hidden),
            ("self_attn.v_proj", key, hidden),
            ("self_attn.o_proj", hidden, query),
            ("mlp.gate_proj", inner, hidden),
            ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
        ]:
            yield f"{at}{name}.weight", (rows, columns)
        for name in ["input_layernorm", "post_attention_layernorm"]:
            yield f"{at}{name}.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], hidden)


def write_weights(config, path):
    shapes = list(tensors(config))
    header, offset = {}, 0
    for name, shape in shapes:
        size = 2 * torch.Size(shape).numel()
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device).manual_seed(1)
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for _, shape in shapes:
            if len(shape) == 1:
                values = torch.ones(shape, device=device)
            else:
                values = torch.randn(shape, generator=generator, device=device) * shape[1] ** -0.5
            out.write(values.bfloat16().view(torch.int16).cpu().numpy().tobytes())


def write_tokenizer(source, vocab_size, path):
    tokenizer = json.loads(Path(source).read_text())
    model = tokenizer["model"]
    vocab, merges = model["vocab"], model["merges"]
    added = {token["content"] for token in tokenizer["added_tokens"]}
    pieces = [piece for piece in vocab if piece not in added]
    draw = random.Random(1)
    while len(vocab) < vocab_size:
        left, right = draw.choice(pieces), draw.choice(pieces)
        if left + right not in vocab and len(left + right) < 16:
            vocab[left + right] = len(vocab)
            merges.append([left, right])
            pieces.append(left + right)
    Path(path).write_text(json.dumps(tokenizer, ensure_ascii=False))


def main():
    config_path, tokenizer, folder = sys.argv[1:]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads(Path(config_path).read_text())
    shutil.copy(config_path, folder / "config.json")
    write_tokenizer(tokenizer, config["vocab_size"], folder / "tokenizer.json")
    write_weights(config, folder / "model.safetensors")


main()
