#!/usr/bin/env python3
"""Logits of steps of a Llama or Qwen3 in PyTorch, in bf16 and in f32, for `tilewright accuracy --peer FILE`.

Usage: accuracy.py --config FILE | --model DIR --out FILE [--positions 1,200,..] [--batches 2,4,..] [--prompts 40,..] [--device cuda]

Weights, history and tokens equal those of the command: SplitMix64 seeded by the tensor's name, or with --model the checkpoint's
weights. A prompt's rows are the first tokens of one sequence. Weights are bf16 in both passes; the bf16 pass also computes in bf16,
as the Hugging Face implementation does (norms and softmax in f32).
Writes safetensors: `positions.N` of step N and its logits as `bf16.N` and `f32.N`, all f32.
"""
import argparse
import functools
import json
import math
import pathlib
import struct

import torch
import torch.nn.functional as F

BF16, SEED = torch.bfloat16, 7
LEVELS, PER_WORD = 4096, 5
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def signed(word):
    return word - (1 << 64) if word >> 63 else word


def mix(z):
    """SplitMix64's output function, of an integer below 2^64 or of a tensor of int64, which wraps."""
    if isinstance(z, int):
        z = (z + GOLDEN) & MASK
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
        return z ^ (z >> 31)
    right = lambda z, n: (z >> n) & ((1 << (64 - n)) - 1)
    z = z + signed(GOLDEN)
    z = (z ^ right(z, 30)) * signed(0xBF58476D1CE4E5B9)
    z = (z ^ right(z, 27)) * signed(0x94D049BB133111EB)
    return z ^ right(z, 31)


def drawn(name, centre, half_width, *shape, device):
    """Values of a name: the generator of the crate's `RandomWeights`, in bf16."""
    hash = 0xCBF29CE484222325
    for byte in name.encode():
        hash = (hash ^ byte) * 0x100000001B3 & MASK
    key, count = mix(hash ^ mix(SEED)), math.prod(shape)
    words = torch.arange(-(-count // PER_WORD), device=device, dtype=torch.int64)
    bits = mix(words * signed(GOLDEN) + signed(key))
    levels = torch.stack([(bits >> (12 * i)) & (LEVELS - 1) for i in range(PER_WORD)], 1).flatten()[:count]
    unit = torch.arange(1, 2 * LEVELS, 2).float() / LEVELS - 1
    return (centre + half_width * unit).to(BF16).to(device)[levels].view(*shape)


def stored(path, device):
    """The tensors of a safetensors file of bf16."""
    data = bytearray(path.read_bytes())
    first = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:first])
    header.pop("__metadata__", None)
    assert all(entry["dtype"] == "BF16" for entry in header.values()), "this script reads checkpoints of bf16"
    tensor = lambda begin, end: torch.frombuffer(data, dtype=BF16, offset=first + begin, count=(end - begin) // 2)
    return {name: tensor(*entry["data_offsets"]).view(entry["shape"]).to(device) for name, entry in header.items()}


class Model:
    """Weights and rotations; a step of rows at positions of their own, or of the first tokens of one sequence."""

    def __init__(self, config, weights, device):
        assert config["model_type"] in ("llama", "qwen3"), "this script computes Llamas and Qwen3s"
        self.device, self.config, self.weights = device, config, weights
        self.normed = config["model_type"] == "qwen3"
        self.layers, self.hidden, self.vocab = (config[k] for k in ("num_hidden_layers", "hidden_size", "vocab_size"))
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.dim, self.inner = config.get("head_dim") or self.hidden // self.heads, config["intermediate_size"]
        self.eps, self.frequencies = config["rms_norm_eps"], self.rotation()

    def rotation(self):
        """Radians per position of each pair, with the scaling of Llama 3.1 where the configuration has it."""
        parameters = self.config.get("rope_parameters") or {}
        base = self.config.get("rope_theta") or parameters.get("rope_theta", 10000.0)
        frequencies = base ** -(torch.arange(0, self.dim, 2, dtype=torch.float64) / self.dim)
        scaling = self.config.get("rope_scaling")
        if scaling:
            assert scaling["rope_type"] == "llama3"
            low, high, factor = (scaling[k] for k in ("low_freq_factor", "high_freq_factor", "factor"))
            turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
            smooth = ((turns - low) / (high - low)).clamp(0, 1)
            frequencies = frequencies * (smooth + (1 - smooth) / factor)
        return frequencies.float().to(self.device)

    @functools.cache
    def matrix(self, name, rows, columns):
        if self.weights:
            return self.weights[f"{name}.weight"]
        half_width = torch.sqrt(torch.tensor(3.0) / columns)
        return drawn(f"{name}.weight", 0.0, half_width, rows, columns, device=self.device)

    @functools.cache
    def norm(self, name, width):
        if self.weights:
            return self.weights[f"{name}.weight"]
        return drawn(f"{name}.weight", 1.0, torch.tensor(0.1), width, device=self.device)

    def history(self, layer, which, positions, dtype):
        """Keys or values of the tokens before, `[rows, heads, tokens and one more, dim]`."""
        cache = torch.zeros(len(positions), max(positions) + 1, self.kv_heads, self.dim, device=self.device, dtype=dtype)
        half_width = torch.sqrt(torch.tensor(3.0))
        for row, tokens in enumerate(positions):
            name = f"history.{row}.layers.{layer}.{which}"
            cache[row, :tokens] = drawn(name, 0.0, half_width, tokens, self.kv_heads, self.dim, device=self.device)
        return cache.transpose(1, 2)

    def logits(self, positions, prompt, dtype):
        rows, at = len(positions), torch.tensor(positions, device=self.device)
        linear = lambda x, name, n, k: F.linear(x, self.matrix(name, n, k).to(dtype))
        norm = lambda x, name: F.rms_norm(x, x.shape[-1:], self.norm(name, x.shape[-1]).to(dtype), self.eps)
        head_norm = lambda x, name: norm(x, name) if self.normed else x
        angles = (at.float()[:, None] * self.frequencies)[:, None, :].repeat(1, 1, 2)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        split = lambda t, heads: t.view(rows, heads, self.dim)
        turned = lambda t: torch.cat((-t[..., self.dim // 2:], t[..., : self.dim // 2]), -1)
        rotated = lambda t: t * cos + turned(t) * sin
        seen = (torch.arange(max(positions) + 1, device=self.device) <= at[:, None])[:, None, None, :]
        each = torch.arange(rows, device=self.device)
        q_rows, kv_rows = self.heads * self.dim, self.kv_heads * self.dim
        tokens = [(row * 7 + position * 13 + 11) % self.vocab for row, position in enumerate(positions)]
        x = self.matrix("model.embed_tokens", self.vocab, self.hidden)[tokens].to(dtype)
        for layer in range(self.layers):
            name = f"model.layers.{layer}."
            y = norm(x, name + "input_layernorm")
            heads = lambda w, rows, heads: split(linear(y, f"{name}self_attn.{w}_proj", rows, self.hidden), heads)
            q, k, v = heads("q", q_rows, self.heads), heads("k", kv_rows, self.kv_heads), heads("v", kv_rows, self.kv_heads)
            q, k = (rotated(head_norm(t, f"{name}self_attn.{w}_norm")) for t, w in ((q, "q"), (k, "k")))
            if prompt:
                a = F.scaled_dot_product_attention(
                    *(t.transpose(0, 1)[None] for t in (q, k, v)), is_causal=True, enable_gqa=True
                )[0].transpose(0, 1)
            else:
                keys, values = (self.history(layer, which, positions, dtype) for which in ("k", "v"))
                keys[each, :, at], values[each, :, at] = k, v
                a = F.scaled_dot_product_attention(q[:, :, None], keys, values, attn_mask=seen, enable_gqa=True)
            x = x + linear(a.reshape(rows, -1), name + "self_attn.o_proj", self.hidden, q_rows)
            y = norm(x, name + "post_attention_layernorm")
            gate, up = (linear(y, f"{name}mlp.{w}_proj", self.inner, self.hidden) for w in ("gate", "up"))
            x = x + linear(F.silu(gate) * up, name + "mlp.down_proj", self.hidden, self.inner)
        head = "model.embed_tokens" if self.config.get("tie_word_embeddings") else "lm_head"
        return linear(norm(x, "model.norm"), head, self.vocab, self.hidden).float().cpu()


def write(path, tensors):
    """Tensors of f32 as safetensors: the header's length, the header, the bytes."""
    header, start = {}, 0
    for name, tensor in tensors.items():
        end = start + 4 * tensor.numel()
        header[name], start = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [start, end]}, end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.contiguous().numpy().tobytes())


def main():
    numbers = lambda text: [int(number) for number in text.split(",") if number]
    parser = argparse.ArgumentParser()
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=pathlib.Path)
    source.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--out", required=True)
    parser.add_argument("--positions", type=numbers, default=[1, 200, 1024, 4096])
    parser.add_argument("--batches", type=numbers, default=[2, 4, 8, 16])
    parser.add_argument("--prompts", type=numbers, default=[])
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    config = json.loads((args.config or args.model / "config.json").read_text())
    weights = stored(args.model / "model.safetensors", args.device) if args.model else None
    model = Model(config, weights, args.device)
    torch.backends.cuda.matmul.allow_tf32 = False
    turn = len(args.positions)
    cases = [([position], False) for position in args.positions]
    cases += [([args.positions[row % turn] + row // turn for row in range(rows)], False) for rows in args.batches]
    cases += [(list(range(tokens)), True) for tokens in args.prompts]
    tensors = {}
    with torch.no_grad():
        for at, (positions, prompt) in enumerate(cases):
            tensors[f"positions.{at}"] = torch.tensor(positions).float()
            tensors[f"bf16.{at}"] = model.logits(positions, prompt, BF16)
            tensors[f"f32.{at}"] = model.logits(positions, prompt, torch.float32)
    write(args.out, tensors)


if __name__ == "__main__":
    main()
