#!/usr/bin/env python3
"""cuBLAS, through PyTorch and a CUDA graph, on the shapes of `tilewright bench --suite gemm`; one JSON row a line.

Factors rotate over as many sets as ours do, so that the level-two cache does not serve them. Usage: gemm.py [replays]
"""
import json
import sys

import torch

from timing import replayed

SHAPES = ((8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (4096, 14336, 4096), (4096, 4096, 14336),
          (8192, 128256, 4096), (512, 14336, 4096), (128, 14336, 4096))


def main():
    torch.manual_seed(0)
    replays = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for m, n, k in SHAPES:
        count = max(3, min(16, 2_500_000_000 // (2 * k * (m + n))))
        a = [torch.randn(m, k, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
        b = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
        c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        for i in range(count):
            torch.mm(a[i], b[i].t(), out=c)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(count):
                torch.mm(a[i], b[i].t(), out=c)
        times = replayed(graph, replays)
        row = {
            "suite": "gemm", "who": "cublas", "shape": {"m": m, "n": n, "k": k},
            "us": times[len(times) // 2] * 1e3 / count, "best_us": times[0] * 1e3 / count,
            "bytes": 2 * (k * (m + n) + m * n), "flops": 2 * m * n * k,
        }
        print(json.dumps(row), flush=True)
        del a, b, c, graph
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
