#!/usr/bin/env python3
"""cuBLAS, called by PyTorch within a CUDA graph: a peer of `tilewright bench --suite gemm`. Prints one JSON row per line.

Factors rotate over as many buffers as in our suite, so that L2 does not hold them. Usage: gemm.py [replays]
"""
import json
import sys

import torch

from timing import replayed

SHAPES = ((8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (4096, 14336, 4096), (4096, 4096, 14336),
          (8192, 128256, 4096), (512, 14336, 4096), (128, 14336, 4096))


SHAPES_OF_8_BITS = ((8192, 8192, 8192), (4096, 4096, 4096))


def bf16(m, n, k):
    """Factors of a set, and what multiplies them into c."""
    a, b = (torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n))
    return (a, b), lambda factors, c: torch.mm(factors[0], factors[1].t(), out=c)


def e4m3(fast):
    def make(m, n, k):
        a, b = ((torch.randn(rows, k, device="cuda") * 28).to(torch.float8_e4m3fn) for rows in (m, n))
        scales = [torch.tensor(value, device="cuda") for value in (0.25, 0.125)]

        def multiply(factors, c):
            return torch._scaled_mm(factors[0], factors[1].t(), scale_a=scales[0], scale_b=scales[1],
                                    out_dtype=torch.bfloat16, use_fast_accum=fast, out=c)
        return (a, b), multiply
    return make


def s8(m, n, k):
    """Sums as they are, in s32: PyTorch has no product of s8 that multiplies them by a scale."""
    a, b = ((torch.randn(rows, k, device="cuda") * 8).round().to(torch.int8) for rows in (m, n))
    return (a, b), lambda factors, c: torch._int_mm(factors[0], factors[1].t(), out=c)


SUITES = (("gemm", bf16, 2, torch.bfloat16, SHAPES), ("gemm e4m3", e4m3(False), 1, torch.bfloat16, SHAPES_OF_8_BITS),
          ("gemm e4m3 fast", e4m3(True), 1, torch.bfloat16, SHAPES_OF_8_BITS),
          ("gemm s8", s8, 1, torch.int32, SHAPES_OF_8_BITS))


def measure(suite, make, size, result, m, n, k, replays):
    count = max(3, min(16, 2_500_000_000 // (size * k * (m + n))))
    sets = [make(m, n, k) for _ in range(count)]
    c = torch.empty(m, n, device="cuda", dtype=result)
    for factors, multiply in sets:
        multiply(factors, c)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for factors, multiply in sets:
            multiply(factors, c)
    times = replayed(graph, replays)
    return {
        "suite": suite, "who": "cublas", "shape": {"m": m, "n": n, "k": k},
        "us": times[len(times) // 2] * 1e3 / count, "best_us": times[0] * 1e3 / count,
        "samples_us": [time * 1e3 / count for time in times],
        "bytes": size * k * (m + n) + c.element_size() * m * n, "flops": 2 * m * n * k,
    }


def main():
    torch.manual_seed(0)
    replays = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for suite, make, size, result, shapes in SUITES:
        for m, n, k in shapes:
            print(json.dumps(measure(suite, make, size, result, m, n, k, replays)), flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
