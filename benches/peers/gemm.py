#!/usr/bin/env python3
"""cuBLAS (through PyTorch) on matrix products, bf16 in and out: JSON lines on the standard output.

Usage: python3 gemm.py [M,N,K ...]. Medians of CUDA-event timings; three sets of random factors take turns, so that the
second level of cache does not serve them.
"""
import json
import sys

import torch

SHAPES = ["8192,8192,8192", "4096,4096,4096", "4096,14336,4096", "512,14336,4096", "128,14336,4096"]
SETS, ROUNDS, WARMUP = 3, 30, 5


def measure(m, n, k):
    a = [torch.randn(m, k, device="cuda", dtype=torch.bfloat16) for _ in range(SETS)]
    b = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(SETS)]
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    events = []
    for i in range(ROUNDS + WARMUP):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        torch.mm(a[i % SETS], b[i % SETS].t(), out=out)
        end.record()
        events.append((start, end))
    torch.cuda.synchronize()
    times = sorted(start.elapsed_time(end) * 1e3 for start, end in events[WARMUP:])
    median, best = times[len(times) // 2], times[0]
    rate = lambda us: 2 * m * n * k / us / 1e6
    print(json.dumps({"peer": "cublas", "m": m, "n": n, "k": k, "us": round(median, 2),
                      "tflops": round(rate(median), 1), "best_tflops": round(rate(best), 1)}), flush=True)


if __name__ == "__main__":
    for shape in sys.argv[1:] or SHAPES:
        measure(*map(int, shape.split(",")))
