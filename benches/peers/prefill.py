#!/usr/bin/env python3
"""Prefill of a Llama or a Qwen3-MoE in PyTorch: a peer of `tilewright bench --suite prefill`. Prints one JSON row per line.

Usage: prefill.py --config FILE [--prompts N ..] [--backends NAME ..] [--replays N] [--compile]

Random bf16 weights, fused projections, causal scaled_dot_product_attention over the whole prompt, once by cuDNN and once by Flash
attention, logits of the last token only. Tokens and logits stay on the device, while our suite includes the copies from and to the
host. With --compile further rows are of a forward pass through torch.compile. Of a mixture of experts the tokens are sorted by expert,
and torch._grouped_mm multiplies each expert's with its weights.
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
        # Rows choose experts independently where what they have of their own outweighs what attention averages.
        self.embedding = draw(self.vocab, self.hidden) * (50 if config.get("num_experts") else 1)
        self.output = self.embedding if config.get("tie_word_embeddings") else draw(self.vocab, self.hidden)
        self.qkv, self.o = each(sum(self.widths), self.hidden), each(self.hidden, self.widths[0])
        self.experts, self.chosen = config.get("num_experts"), config.get("num_experts_per_tok")
        if self.experts:
            inner = config["moe_intermediate_size"]
            self.router = each(self.experts, self.hidden)
            self.gate_up, self.down = each(self.experts, 2 * inner, self.hidden), each(self.experts, self.hidden, inner)
        else:
            self.gate_up, self.down = each(2 * inner, self.hidden), each(self.hidden, inner)
        self.head_norms = [1 + draw(self.dim) for _ in range(2 * self.layers)] if "qwen3" in config["model_type"] else None
        self.norms = [1 + draw(self.hidden) for _ in range(2 * self.layers + 1)]
        self.matrices = sum(m.numel() for m in self.qkv + self.o + self.gate_up + self.down)
        # The elements that a token is multiplied by.
        share = self.chosen / self.experts if self.experts else 1
        self.products = sum(m.numel() for m in self.qkv + self.o) + share * sum(m.numel() for m in self.gate_up + self.down)

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
            if self.head_norms:
                q, k = (F.rms_norm(x, (self.dim,), weight, self.eps) for x, weight in zip((q, k), self.head_norms[2 * i:]))
            a = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
            x = x + F.linear(a.transpose(1, 2).reshape(len(ids), -1), self.o[i])
            y = self.norm(x, 2 * i + 1)
            x = x + (self.mixture(y, i) if self.experts else self.mlp(y, i))
        return F.linear(self.norm(x[-1:], -1), self.output)

    def mlp(self, y, i):
        gate, up = F.linear(y, self.gate_up[i]).chunk(2, -1)
        return F.linear(F.silu(gate) * up, self.down[i])

    def mixture(self, y, i):
        """Tokens sorted by expert, two grouped products, and the weighted sum of each token's results."""
        weights, ids = F.softmax(F.linear(y, self.router[i]).float(), -1).topk(self.chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        order = ids.flatten().argsort(stable=True)
        sizes = torch.zeros(self.experts, dtype=torch.int32, device="cuda")
        ends = sizes.scatter_add_(0, ids.flatten(), torch.ones_like(order, dtype=torch.int32)).cumsum(0).to(torch.int32)
        gate, up = torch._grouped_mm(y[order // self.chosen], self.gate_up[i].transpose(1, 2), offs=ends).chunk(2, -1)
        results = torch._grouped_mm(F.silu(gate) * up, self.down[i].transpose(1, 2), offs=ends)
        by_token = torch.empty_like(results).index_copy(0, order, results).view(*ids.shape, -1)
        return (by_token * weights[..., None].to(BF16)).sum(1)

    def operations(self, tokens):
        attention = 2 * self.layers * self.widths[0] * tokens * tokens
        return 2 * int(self.products) * tokens + 2 * self.vocab * self.hidden + attention


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
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=BACKENDS)
    parser.add_argument("--replays", type=int, default=10)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    with open(args.config) as file:
        config = json.load(file)
    torch.manual_seed(0)
    model = Model(config)
    for tokens in args.prompts:
        for compiled in [False, True][:1 + args.compile]:
            for backend in args.backends:
                try:
                    print(json.dumps(row(model, tokens, backend, compiled, args.replays)), flush=True)
                except RuntimeError as error:
                    print(json.dumps({"suite": "prefill", "who": backend, "note": str(error)[:120]}), flush=True)


if __name__ == "__main__":
    main()
