#!/usr/bin/env python3
"""Grouped products of bf16: peers of the rows `gemm grouped` of `tilewright bench gemm`. Prints one JSON row per line.

| peer | what runs |
|---|---|
| cublas | cublasGemmGroupedBatchedEx, a group for each matrix |
| cublas bmm | torch.bmm: possible because these groups are equally long |
| torch | torch._grouped_mm with offsets on the device |
| triton | a persistent kernel over tensor descriptors, below, the fastest of its tiles |

Factors rotate over as many buffers as in our suite. Usage: grouped.py [repeats]
"""
import ctypes
import sys

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from timing import report, timed

SHAPES = ((4, 8192, 4096, 7168), (8, 4096, 4096, 7168))
# Rows, columns and depth of a tile, stages, warps.
TILES = ((128, 256, 64, 3, 8), (128, 256, 64, 4, 8), (128, 128, 64, 4, 8), (128, 128, 64, 4, 4))
BF16, F32_COMPUTE = 14, 68  # CUDA_R_16BF, CUBLAS_COMPUTE_32F


@triton.jit
def grouped_kernel(a, b, c, offsets, groups, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BAND: tl.constexpr):
    """Tiles of all groups are numbered on; a program takes every n-th. Groups begin at multiples of M."""
    number = tl.program_id(0)
    columns = tl.cdiv(n, N)
    before = 0
    for group in range(groups):
        first, end = tl.load(offsets + group), tl.load(offsets + group + 1)
        rows = tl.cdiv(end - first, M)
        tiles = rows * columns
        while number < before + tiles:
            tile = number - before
            band = tile // (BAND * columns)
            height = tl.minimum(rows - band * BAND, BAND)
            row = first + (band * BAND + tile % (BAND * columns) % height) * M
            column = tile % (BAND * columns) // height * N
            sums = tl.zeros((M, N), tl.float32)
            for step in range(tl.cdiv(k, K)):
                x = a.load([row, step * K])
                w = b.load([group * n + column, step * K])
                sums = tl.dot(x, w.T, sums)
            c.store([row, column], sums.to(tl.bfloat16))
            number += tl.num_programs(0)
        before += tiles


def by_triton(a, b, c, offsets, groups, n, k, tile):
    m, width, depth, stages, warps = tile
    descriptors = [TensorDescriptor.from_tensor(a, [m, depth]), TensorDescriptor.from_tensor(b.view(-1, k), [width, depth]),
                   TensorDescriptor.from_tensor(c, [m, width])]
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    grouped_kernel[(programs,)](*descriptors, offsets, groups, n, k, m, width, depth, 8, num_stages=stages, num_warps=warps)
    return c


def cublas():
    """A call of cuBLAS's grouped product for row-major C = A·Bᵀ of equal groups."""
    library = ctypes.CDLL("libcublas.so.13")

    def multiply(a, b, c, groups, m, n, k):
        ints = lambda value: (ctypes.c_int * groups)(*[value] * groups)
        floats = lambda value: (ctypes.c_float * groups)(*[value] * groups)
        # On the device; the caller keeps them.
        pointers = [torch.tensor([of[i].data_ptr() for i in range(groups)], device="cuda", dtype=torch.int64) for of in (b, a, c)]
        turn, stay = ints(1), ints(0)
        sizes = [ints(value) for value in (n, m, k, k, k, n, 1)]
        scales = floats(1.0), floats(0.0)

        def call():
            handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
            at = [ctypes.c_void_p(pointer.data_ptr()) for pointer in pointers]
            status = library.cublasGemmGroupedBatchedEx(
                handle, turn, stay, sizes[0], sizes[1], sizes[2], scales[0], at[0], BF16, sizes[3], at[1], BF16, sizes[4],
                scales[1], at[2], BF16, sizes[5], groups, sizes[6], F32_COMPUTE)
            assert status == 0, f"cublasGemmGroupedBatchedEx: {status}"
            return c
        return call
    return multiply


def measure(groups, m, n, k, repeats):
    size = 2 * k * groups * (m + n)
    sets = [[torch.randn(groups, rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n)]
            for _ in range(max(3, min(16, 2_500_000_000 // size)))]
    c = torch.empty(groups, m, n, device="cuda", dtype=torch.bfloat16)
    offsets = torch.arange(groups + 1, device="cuda", dtype=torch.int32) * m
    expected = torch.bmm(sets[-1][0], sets[-1][1].transpose(1, 2)).float()
    multiply = cublas()
    flat, ends = c.view(-1, n), offsets[1:]
    # Each launch returns its result.
    calls = {"cublas": lambda: [multiply(a, b, c, groups, m, n, k) for a, b in sets],
             "cublas bmm": lambda: [lambda a=a, b=b: torch.bmm(a, b.transpose(1, 2), out=c) for a, b in sets],
             "torch": lambda: [lambda a=a, b=b: torch._grouped_mm(a.view(-1, k), b.transpose(1, 2), offs=ends) for a, b in sets]}
    for tile in TILES:
        calls["triton " + "x".join(map(str, tile))] = lambda tile=tile: [
            lambda a=a, b=b: by_triton(a.view(-1, k), b, flat, offsets, groups, n, k, tile) for a, b in sets]
    best = {}
    for name, prepare in calls.items():
        try:
            launches = prepare()
            c.fill_(float("nan"))
            found = launches[-1]().float().view_as(expected)
            error = ((found - expected).norm() / expected.norm()).item()
            assert error < 5e-3, f"relative error {error}"
            times = timed(lambda: [launch() for launch in launches], repeats)
        except Exception as failure:
            print(f"{name}: {type(failure).__name__}: {str(failure)[:300]}", file=sys.stderr, flush=True)
            continue
        who = "triton" if name.startswith("triton") else name
        if who not in best or times[len(times) // 2] < best[who][len(times) // 2]:
            best[who] = times
    for who, times in best.items():
        report("gemm grouped", who, {"groups": groups, "m": m, "n": n, "k": k}, times, len(sets),
               size + 2 * groups * m * n, 2 * groups * m * n * k)


def main():
    torch.manual_seed(0)
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for shape in SHAPES:
        measure(*shape, repeats)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
