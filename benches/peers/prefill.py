#!/usr/bin/env python3
"""Prefill of a Llama in PyTorch: a peer of `tilewright bench --suite prefill`. Prints one JSON row per line.

Usage: prefill.py --config FILE [--prompts N ..] [--replays N] [--compile]

Random bf16 weights, fused projections, causal scaled_dot_product_attention over the whole prompt, once by cuDNN and once by Flash
attention, logits of the last token only. Tokens and logits stay on the device, while our suite includes the copies from and to the
host. With --compile further rows are of a forward pass through torch.compile.
"""
import argparse
import json

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BF16 = torch.bfloat16
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


class Model:
    """Random weights and the forward pass over a prompt."""

    def __init__(self, config):
        self.hidden, self.layers = config["hidden_size"], config["num_hidden_layers"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.dim = config.get("head_dim") or self.hidden // self.heads
        self.eps, self.vocab, inner = config["rms_norm_eps"], config["vocab_size"], config["intermediate_size"]
        self.theta = config.get("rope_theta") or config.get("rope_parameters", {}).get("rope_theta", 10000.0)
        self.widths = [self.heads * self.dim, self.kv_heads * self.dim, self.kv_heads * self.dim]
        draw = lambda *shape: torch.randn(*shape, device="cuda", dtype=BF16) * 0.02
        each = lambda *shape: [draw(*shape) for _ in range(self.layers)]
        self.embedding = draw(self.vocab, self.hidden)
        self.output = self.embedding if config.get("tie_word_embeddings") else draw(self.vocab, self.hidden)
        self.qkv, self.o = each(sum(self.widths), self.hidden), each(self.hidden, self.widths[0])
        self.gate_up, self.down = each(2 * inner, self.hidden), each(self.hidden, inner)
        self.norms = [1 + draw(self.hidden) for _ in range(2 * self.layers + 1)]
        self.matrices = sum(m.numel() for m in self.qkv + self.o + self.gate_up + self.down)

    def rotations(self, tokens):
        exponents = torch.arange(0, self.dim, 2, device="cuda").float() / self.dim
        angles = torch.outer(torch.arange(tokens, device="cuda").float(), self.theta ** -exponents)
        return tuple(f(torch.cat((angles, angles), 1)).to(BF16) for f in (torch.cos, torch.sin))

    def norm(self, x, number):
        return F.rms_norm(x, (self.hidden,), self.norms[number], self.eps)

    def last_logits(self, ids, cos, sin):
        def rotated(x):
            first, second = x.chunk(2, -1)
            return x * cos + torch.cat((-second, first), -1) * sin

        x = self.embedding[ids]
        for i in range(self.layers):
            parts = F.linear(self.norm(x, 2 * i), self.qkv[i]).split(self.widths, -1)
            q, k, v = (part.view(1, len(ids), -1, self.dim).transpose(1, 2) for part in parts)
            a = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
            x = x + F.linear(a.transpose(1, 2).reshape(len(ids), -1), self.o[i])
            gate, up = F.linear(self.norm(x, 2 * i + 1), self.gate_up[i]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, self.down[i])
        return F.linear(self.norm(x[-1:], -1), self.output)

    def operations(self, tokens):
        attention = 2 * self.layers * self.widths[0] * tokens * tokens
        return 2 * self.matrices * tokens + 2 * self.vocab * self.hidden + attention


def milliseconds(run, replays):
    for _ in range(3):
        run()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])]


def row(model, tokens, backend, compiled, replays):
    ids = torch.randint(model.vocab, (tokens,), device="cuda")
    cos, sin = model.rotations(tokens)
    step = torch.compile(model.last_logits) if compiled else model.last_logits
    with torch.no_grad(), sdpa_kernel(BACKENDS[backend]):
        times = sorted(milliseconds(lambda: step(ids, cos, sin), replays))
    us = times[len(times) // 2] * 1e3
    return {"suite": "prefill", "who": "pytorch-compile" if compiled else "pytorch",
            "shape": {"tokens": tokens, "hidden": model.hidden, "layers": model.layers},
            "note": f"torch {torch.__version__}, {backend}, {tokens / us * 1e6:.0f} tokens/s", "us": us, "best_us": times[0] * 1e3,
            "samples_us": [time * 1e3 for time in times], "bytes": 2 * model.matrices, "flops": model.operations(tokens)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--prompts", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--replays", type=int, default=10)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    with open(args.config) as file:
        config = json.load(file)
    torch.manual_seed(0)
    model = Model(config)
    for tokens in args.prompts:
        for compiled in [False, True][:1 + args.compile]:
            for backend in BACKENDS:
                try:
                    print(json.dumps(row(model, tokens, backend, compiled, args.replays)), flush=True)
                except RuntimeError as error:
                    print(json.dumps({"suite": "prefill", "who": backend, "note": str(error)[:120]}), flush=True)


if __name__ == "__main__":
    main()
