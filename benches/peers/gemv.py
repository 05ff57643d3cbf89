#!/usr/bin/env python3
"""cuBLAS, called by PyTorch within a CUDA graph: a peer of `tilewright bench --suite gemv`. Prints one JSON row per line.

Weights rotate over as many buffers as in our suite, so that L2 does not hold them.
"""
import json
import sys

import torch

from timing import replayed

SHAPES = ((4096, 4096), (14336, 4096), (4096, 14336), (128256, 4096), (8192, 2048), (2048, 8192), (128256, 2048))
BATCHES = (1, 8, 16, 64)


def main():
    torch.manual_seed(0)
    replays = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for n, k in SHAPES:
        count = max(3, min(64, int(2_500_000_000 // (n * k * 2))))
        weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
        for batch in BATCHES:
            x = torch.randn(batch, k, device="cuda", dtype=torch.bfloat16)
            y = torch.empty(batch, n, device="cuda", dtype=torch.bfloat16)
            # For one vector PyTorch has two ways to cuBLAS; the faster one counts.
            ways = [lambda w: torch.mm(x, w.t(), out=y)]
            if batch == 1:
                ways.append(lambda w: torch.mv(w, x[0], out=y[0]))
            best = None
            for way in ways:
                for w in weights:
                    way(w)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    for w in weights:
                        way(w)
                times = replayed(graph, replays)
                if best is None or times[len(times) // 2] < best[len(best) // 2]:
                    best = times
            row = {
                "suite": "gemv", "who": "cublas", "shape": {"batch": batch, "k": k, "n": n},
                "us": best[len(best) // 2] * 1e3 / count, "best_us": best[0] * 1e3 / count,
                "samples_us": [time * 1e3 / count for time in best],
                "bytes": 2 * (n * k + batch * (n + k)), "flops": 2 * batch * n * k,
            }
            print(json.dumps(row), flush=True)
        del weights
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
