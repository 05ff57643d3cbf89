#!/usr/bin/env python3
"""DeepGEMM: a peer of the rows `gemm e4m3 blocks` of `tilewright bench gemm`. Prints one JSON row per line.

Factors of e4m3 with an f32 scale for 1 × 128 activations and for 128 × 128 weights, result bf16. Scales of activations are in
DeepGEMM's layout before the clock runs, as ours are in ours. Needs `sgl-deep-gemm` and `apache-tvm-ffi`.
Usage: fp8_blocks.py [repeats]
"""
import sys

import deep_gemm
import torch
from deep_gemm.utils.layout import get_mn_major_tma_aligned_tensor

from timing import replayed, report

SHAPES = ((4096, 7168, 16384), (64, 7168, 16384))


def factors(m, n, k):
    draw = lambda rows: (torch.randn(rows, k, device="cuda") * 28).to(torch.float8_e4m3fn)
    scale = lambda rows: torch.rand(rows, k // 128, device="cuda") * 0.2 + 0.1
    return (draw(m), get_mn_major_tma_aligned_tensor(scale(m))), (draw(n), scale(n // 128))


def error(a, b, c):
    wide = lambda x, scales: x.float() * scales.float().repeat_interleave(128, 1)
    weights = wide(b[0], b[1].repeat_interleave(128, 0))
    expected = wide(a[0], a[1]) @ weights.t()
    return ((c.float() - expected).norm() / expected.norm()).item()


def main():
    torch.manual_seed(0)
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for m, n, k in SHAPES:
        size = k * (m + n)
        sets = [factors(m, n, k) for _ in range(max(3, min(16, 2_500_000_000 // size)))]
        c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        each = lambda: [deep_gemm.fp8_gemm_nt(a, b, c) for a, b in sets]
        each()
        found = error(*sets[-1], c)
        assert found < 1e-2, f"relative error {found}"
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            each()
        report("gemm e4m3 blocks", "deepgemm", {"groups": 1, "m": m, "n": n, "k": k}, replayed(graph, repeats), len(sets),
               size + 2 * m * n, 2 * m * n * k)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
