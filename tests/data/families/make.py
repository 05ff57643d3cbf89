"""Makes the small checkpoints beside this file and their reference logits.

Each is a random model of one family with the features named in `CASES`, saved as transformers saves it, and the float32
logits of transformers (eager attention, from the saved weights) for one random sequence.

    pip install torch transformers safetensors
    python make.py
"""

import json
import shutil
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

VOCAB, TOKENS = 61, 40
BASE = dict(
    vocab_size=VOCAB, hidden_size=36, intermediate_size=52, num_hidden_layers=2, num_attention_heads=6,
    num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=1,
)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)

# name: model type, dtype, what differs from BASE
CASES = {
    "mistral-gqa3-f16": ("mistral", torch.float16, dict(head_dim=10, sliding_window=None)),
    "mistral-inert-window": ("mistral", torch.bfloat16, dict(sliding_window=64)),
    "qwen2-gqa7-tied": ("qwen2", torch.bfloat16, dict(hidden_size=56, num_attention_heads=7, num_key_value_heads=1,
                                                      tie_word_embeddings=True)),
    "qwen2-yarn": ("qwen2", torch.float32, dict(rope_parameters=YARN)),
    "qwen3-odd-heads-f32": ("qwen3", torch.float32, dict(head_dim=20, num_attention_heads=5, num_key_value_heads=5)),
    "qwen3-bias-yarn": ("qwen3", torch.bfloat16, dict(head_dim=12, attention_bias=True,
                                                      rope_parameters=dict(YARN, attention_factor=0.8))),
    "llama-biases-linear": ("llama", torch.bfloat16, dict(
        num_key_value_heads=6, attention_bias=True, mlp_bias=True,
        rope_parameters=dict(rope_type="linear", rope_theta=5000.0, factor=4.0))),
    "llama3-scaling-tied": ("llama", torch.float16, dict(head_dim=16, rope_parameters=LLAMA3, tie_word_embeddings=True)),
    "llama-old-spelling-sharded": ("llama", torch.bfloat16, dict(rope_parameters=LLAMA3)),
}


def old_spelling(folder):
    """`rope_theta` and `rope_scaling` as releases before 5.0 wrote them, weights in shards."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=1))
    with safe_open(folder / "model.safetensors", "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    names = sorted(tensors)
    index = {}
    for at in range(3):
        shard = f"model-{at + 1:05}-of-00003.safetensors"
        part = {name: tensors[name] for name in names[at::3]}
        save_file(part, folder / shard, {"format": "pt"})
        index.update({name: shard for name in part})
    (folder / "model.safetensors").unlink()
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    text = json.dumps({"metadata": {"total_size": size}, "weight_map": dict(sorted(index.items()))}, indent=1)
    (folder / "model.safetensors.index.json").write_text(text)


def make(name, model_type, dtype, changes):
    folder = Path(__file__).parent / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(sum(name.encode()))
    config = AutoConfig.for_model(model_type, **{**BASE, **changes})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "norm" in key:
                value.uniform_(0.5, 1.5)
            elif key.endswith("bias"):
                value.normal_(0, 0.3)
            else:
                value.normal_(0, 0.25)
    model.to(dtype).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.randint(2, VOCAB, (1, TOKENS))
    with torch.no_grad():
        logits = model(ids).logits[0].float().contiguous()
    save_file({"ids": ids[0].to(torch.int32), "logits": logits}, folder / "reference.safetensors",
              {"transformers": transformers.__version__})
    vocab = {f"w{i}": i for i in range(VOCAB)}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
                 "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w2"}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    if "old-spelling" in name:
        old_spelling(folder)
    print(name, float(logits.abs().mean()), model.num_parameters())


for name, case in CASES.items():
    make(name, *case)
