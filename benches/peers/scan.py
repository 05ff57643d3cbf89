#!/usr/bin/env python3
"""PyTorch's sum and cumsum of 2^28 f32: peers of kernels/examples/device_wide.rs beside CUB (scan.cu). Prints one JSON row per line.

Usage: scan.py [repeats]
"""
import sys

import torch

from timing import report, timed

N = 1 << 28


def main():
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    x = torch.randint(-1, 2, (N,), device="cuda").float()
    total, sums = torch.empty((), device="cuda"), torch.empty_like(x)
    report("reduce", "torch", {"n": N}, timed(lambda: torch.sum(x, dim=0, out=total), repeats), 1, 4 * N, N)
    report("scan", "torch", {"n": N}, timed(lambda: torch.cumsum(x, 0, out=sums), repeats), 1, 8 * N, N)


if __name__ == "__main__":
    main()
