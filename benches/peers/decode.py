#!/usr/bin/env python3
"""Decode step of a Llama or a Qwen3-MoE in PyTorch: a peer of `tilewright bench --suite decode`. Prints one JSON row per line.

Usage: decode.py --config FILE [--shapes BATCH:CONTEXT ..] [--tokens N] [--compile]

Random bf16 weights, fused projections, a static KV cache with random keys and values, greedy choice on the device. The step is
captured into one CUDA graph; with --compile a second row is of a step that torch.compile (Inductor with coordinate descent)
compiled first. Of a mixture of experts each row multiplies with its own chosen experts, whose weights are gathered: compiled, they are
read where they lie. Each timed replay includes the host: it reads the chosen token, while the device advances the positions.
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F

BF16 = torch.bfloat16


class Step:
    """Weights, cache and inputs of one step."""

    def __init__(self, config, batch, context):
        self.batch, self.layers, self.hidden = batch, config["num_hidden_layers"], config["hidden_size"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.dim = config.get("head_dim") or self.hidden // self.heads
        self.eps = config["rms_norm_eps"]
        inner, vocab = config["intermediate_size"], config["vocab_size"]
        self.widths = (self.heads * self.dim, self.kv_heads * self.dim, self.kv_heads * self.dim)
        draw = lambda *shape: torch.randn(*shape, device="cuda", dtype=BF16) * 0.02
        each = lambda *shape: [draw(*shape) for _ in range(self.layers)]
        # Rows choose experts independently where what they have of their own outweighs what attention averages.
        self.embedding = draw(vocab, self.hidden) * (50 if config.get("num_experts") else 1)
        self.output = self.embedding if config.get("tie_word_embeddings") else draw(vocab, self.hidden)
        self.qkv, self.o = each(sum(self.widths), self.hidden), each(self.hidden, self.heads * self.dim)
        self.experts, self.chosen = config.get("num_experts"), config.get("num_experts_per_tok")
        if self.experts:
            inner = config["moe_intermediate_size"]
            self.router = each(self.experts, self.hidden)
            self.gate_up, self.down = each(self.experts, 2 * inner, self.hidden), each(self.experts, self.hidden, inner)
        else:
            self.gate_up, self.down = each(2 * inner, self.hidden), each(self.hidden, inner)
        self.head_norms = [1 + draw(self.dim) for _ in range(2 * self.layers)] if "qwen3" in config["model_type"] else None
        self.norms = [1 + draw(self.hidden) for _ in range(2 * self.layers + 1)]
        cache = lambda: each(batch, self.kv_heads, context, self.dim)
        self.keys, self.values = cache(), cache()
        theta = config.get("rope_theta") or config.get("rope_parameters", {}).get("rope_theta", 10000.0)
        exponents = torch.arange(0, self.dim, 2, device="cuda").float() / self.dim
        angles = torch.outer(torch.arange(context, device="cuda").float(), theta ** -exponents)
        self.cos, self.sin = (f(torch.cat((angles, angles), 1)).to(BF16) for f in (torch.cos, torch.sin))
        self.columns = torch.arange(context, device="cuda")
        self.token = torch.randint(vocab, (batch,), device="cuda")
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")
        matrices = self.qkv + self.o + [self.output] + (self.router if self.experts else [])
        # Of a mixture of experts those that rows choose uniformly.
        used = self.experts and 1 - (1 - self.chosen / self.experts) ** batch
        self.weight_bytes = sum(2 * m.numel() for m in matrices) + 2 * (used or 1) * sum(m.numel() for m in self.gate_up + self.down)
        self.token_bytes = 4 * self.layers * self.kv_heads * self.dim * batch

    def rotate(self, x):
        first, second = x.chunk(2, -1)
        return x * self.cos[self.position] + torch.cat((-second, first), -1) * self.sin[self.position]

    def logits(self, token):
        x = self.embedding[token]
        seen = (self.columns <= self.position)[None, None, None, :]
        for i in range(self.layers):
            y = F.rms_norm(x, (self.hidden,), self.norms[2 * i], self.eps)
            q, k, v = F.linear(y, self.qkv[i]).split(self.widths, -1)
            split = lambda t, heads: t.view(self.batch, heads, 1, self.dim)
            q, k, v = split(q, self.heads), split(k, self.kv_heads), split(v, self.kv_heads)
            if self.head_norms:
                q, k = (F.rms_norm(t, (self.dim,), self.head_norms[2 * i + at], self.eps) for at, t in enumerate((q, k)))
            q, k = self.rotate(q), self.rotate(k)
            self.keys[i].index_copy_(2, self.position, k)
            self.values[i].index_copy_(2, self.position, v)
            a = F.scaled_dot_product_attention(q, self.keys[i], self.values[i], attn_mask=seen, enable_gqa=True)
            x = x + self.whole(F.linear(a.reshape(self.batch, -1), self.o[i]))
            y = F.rms_norm(x, (self.hidden,), self.norms[2 * i + 1], self.eps)
            x = x + self.whole(self.mixture(y, i) if self.experts else self.mlp(y, i))
        return self.gather(F.linear(F.rms_norm(x, (self.hidden,), self.norms[-1], self.eps), self.output))

    def mlp(self, y, i):
        gate, up = F.linear(y, self.gate_up[i]).chunk(2, -1)
        return F.linear(F.silu(gate) * up, self.down[i])

    def mixture(self, y, i):
        """The weighted sum of each row's chosen experts, whose products are sums that Inductor fuses with the gathers."""
        weights, ids = F.softmax(F.linear(y, self.router[i]).float(), -1).topk(self.chosen)
        weights = (weights / weights.sum(-1, keepdim=True)).to(BF16)
        gate, up = (y[:, None, None, :] * self.gate_up[i][ids]).sum(-1).chunk(2, -1)
        inner = F.silu(gate) * up * weights[..., None]
        return (inner[:, :, None, :] * self.down[i][ids]).sum((1, 3))

    def whole(self, part):
        """The sum of what each device has of a product: here one has it all."""
        return part

    def gather(self, part):
        """The logits of all devices: here one has them all."""
        return part

    def step(self):
        self.token.copy_(self.logits(self.token).argmax(-1))
        self.position.add_(1)


def microseconds(step, first, tokens):
    """Times each token as a replay of the graph and the host's read of the token."""
    step.position.fill_(first)
    for _ in range(3):
        step.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.step()
    step.position.fill_(first)
    times = []
    for _ in range(tokens):
        start = time.perf_counter()
        graph.replay()
        step.token.tolist()
        times.append((time.perf_counter() - start) * 1e6)
    return sorted(times)


def row(config, batch, context, tokens, compiled):
    # Room for the tokens that warm up and capture.
    step, who = Step(config, batch, context + 8), "pytorch-cuda-graph"
    start = time.perf_counter()
    if compiled:
        import torch._inductor.config as inductor
        inductor.coordinate_descent_tuning = True
        torch._dynamo.reset()
        step.logits, who = torch.compile(step.logits, fullgraph=True), "pytorch-compile-cuda-graph"
    with torch.no_grad():
        times = microseconds(step, max(context - tokens, 0), tokens)
    seconds = time.perf_counter() - start
    shape = {"batch": batch, "context": context, "hidden": step.hidden, "layers": step.layers}
    read = step.weight_bytes + step.token_bytes * (context - tokens // 2)
    note = f"torch {torch.__version__}, {seconds:.0f} s in all"
    return {"suite": "decode", "who": who, "shape": shape, "note": note, "us": times[len(times) // 2],
            "best_us": times[0], "samples_us": list(times), "bytes": read, "flops": 0}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--shapes", nargs="+", default=["1:1024"], metavar="BATCH:CONTEXT")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    with open(args.config) as file:
        config = json.load(file)
    torch.manual_seed(0)
    for shape in args.shapes:
        batch, context = map(int, shape.split(":"))
        for compiled in [False, True][:1 + args.compile]:
            print(json.dumps(row(config, batch, context, args.tokens, compiled)), flush=True)


if __name__ == "__main__":
    main()
