#!/usr/bin/env python3
"""Decode step of a Llama in PyTorch with bf16, int8 or int4 weights: a peer of `tilewright bench --suite decode --weights`.
Prints one JSON row per line.

Usage: weight_only.py --config FILE [--shapes BATCH:CONTEXT ..] [--tokens N] [--kinds bf16,int8,int4] [--group N] [--no-compile | --tune]

The step is that of decode.py, captured into one CUDA graph, with torch.compile unless --no-compile is given. In int8 products
Inductor widens the codes as it reads them and applies one scale per row to the result; int4 products use `_weight_int4pack_mm`
(tinygemm), whose codes have a scale and a zero point per group of k. Embedding and head stay bf16. Weights are random.
A kind that this PyTorch cannot run gives a row without times, with the reason in `note`.
"""
import argparse
import json

import torch
import torch.nn.functional as F

from decode import BF16, Step, microseconds


def int8_product(weight):
    """Codes and a scale a row: `(x · codesᵀ) · scale`."""
    scale = (weight.abs().amax(1).float() / 127).to(BF16)
    codes = (weight / scale[:, None]).round().clamp(-128, 127).to(torch.int8)
    return lambda x: F.linear(x, codes.to(x.dtype)) * scale, codes.numel() + 2 * scale.numel()


def int4_product(weight, group):
    """tinygemm's packed codes, with a scale and a zero for each group."""
    n, k = weight.shape
    groups = weight.float().view(n, k // group, group)
    scale = (groups.abs().amax(2) / 7).clamp(min=1e-9)
    codes = ((groups / scale[..., None]).round().clamp(-8, 7) + 8).to(torch.uint8).view(n, k)
    # Two codes a byte, the even column in the upper half.
    packed = torch.ops.aten._convert_weight_to_int4pack((codes[:, ::2] << 4 | codes[:, 1::2]).contiguous(), 8)
    scales_and_zeros = torch.stack((scale, torch.zeros_like(scale)), -1).transpose(0, 1).contiguous().to(BF16)
    bytes_ = n * k // 2 + 2 * scales_and_zeros.numel()
    return lambda x: torch.ops.aten._weight_int4pack_mm(x, packed, group, scales_and_zeros), bytes_


class Product:
    """What stands in place of a matrix in `F.linear`."""

    def __init__(self, weight, kind, group):
        if kind == "int8":
            self.run, self.bytes = int8_product(weight)
        else:
            self.run, self.bytes = int4_product(weight, group)


class WeightOnly(Step):
    """A step whose linear layers are products of codes."""

    def __init__(self, config, batch, context, kind, group):
        super().__init__(config, batch, context)
        if kind == "bf16":
            return
        for name in ("qkv", "o", "gate_up", "down"):
            products = []
            matrices = getattr(self, name)
            for at in range(len(matrices)):
                weight, matrices[at] = matrices[at], None
                product = Product(weight, kind, group)
                self.weight_bytes += product.bytes - 2 * weight.numel()
                products.append(product)
            setattr(self, name, products)

    def logits(self, token):
        x = self.embedding[token]
        seen = (self.columns <= self.position)[None, None, None, :]
        linear = lambda x, w: w.run(x) if isinstance(w, Product) else F.linear(x, w)
        for i in range(self.layers):
            y = F.rms_norm(x, (self.hidden,), self.norms[2 * i], self.eps)
            q, k, v = linear(y, self.qkv[i]).split(self.widths, -1)
            split = lambda t, heads: t.view(self.batch, heads, 1, self.dim)
            q, k, v = self.rotate(split(q, self.heads)), self.rotate(split(k, self.kv_heads)), split(v, self.kv_heads)
            self.keys[i].index_copy_(2, self.position, k)
            self.values[i].index_copy_(2, self.position, v)
            a = F.scaled_dot_product_attention(q, self.keys[i], self.values[i], attn_mask=seen, enable_gqa=True)
            x = x + linear(a.reshape(self.batch, -1), self.o[i])
            y = F.rms_norm(x, (self.hidden,), self.norms[2 * i + 1], self.eps)
            gate, up = linear(y, self.gate_up[i]).chunk(2, -1)
            x = x + linear(F.silu(gate) * up, self.down[i])
        return F.linear(F.rms_norm(x, (self.hidden,), self.norms[-1], self.eps), self.output)


def row(config, batch, context, tokens, kind, group, compiled, tuned):
    bits = {"bf16": 16, "int8": 8, "int4": 4}[kind]
    shape = {"batch": batch, "context": context, "hidden": config["hidden_size"], "layers": config["num_hidden_layers"]}
    if bits < 16:
        shape["weight_bits"] = bits
    who = ("pytorch-compile-" if compiled else "pytorch-") + ("cuda-graph" if kind == "bf16" else kind)
    base = {"suite": "decode", "who": who, "shape": shape}
    try:
        with torch.no_grad():
            step = WeightOnly(config, batch, context + 8, kind, group)
            if compiled:
                import torch._inductor.config as inductor
                inductor.coordinate_descent_tuning = tuned
                torch._dynamo.reset()
                step.logits = torch.compile(step.logits, fullgraph=True)
            times = microseconds(step, max(context - tokens, 0), tokens)
    except Exception as error:  # noqa: BLE001: what a PyTorch lacks is a finding
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return {**base, "note": f"torch {torch.__version__}: {lines[0][:160]}"}
    read = step.weight_bytes + step.token_bytes * (context - tokens // 2)
    return {**base, "note": f"torch {torch.__version__}", "us": times[len(times) // 2], "best_us": times[0],
            "samples_us": list(times), "bytes": read, "flops": 0}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--shapes", nargs="+", default=["1:1024"], metavar="BATCH:CONTEXT")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--kinds", default="bf16,int8,int4")
    parser.add_argument("--group", type=int, default=128)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--tune", action="store_true", help="Inductor's coordinate descent: minutes")
    args = parser.parse_args()
    with open(args.config) as file:
        config = json.load(file)
    torch.manual_seed(0)
    for shape in args.shapes:
        batch, context = map(int, shape.split(":"))
        for kind in args.kinds.split(","):
            compiled = not args.no_compile
            print(json.dumps(row(config, batch, context, args.tokens, kind, args.group, compiled, args.tune)), flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
