"""Attention of PyTorch's back ends: peers of `tilewright bench --suite attention`. Prints one JSON row per line.

Usage: python3 attention.py [decode] [prefill]

Decode rotates over as many caches as our suite, so that L2 does not hold them, all in one CUDA graph. A window is the slice of
the cache that the query sees: the least that a kernel can read.
Times are medians by CUDA events. Inputs are random from -1 to 1. Causal rows count half of the operations.
"""

import itertools
import json
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

PEERS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash2": SDPBackend.FLASH_ATTENTION}
# Batch, tokens, depth of keys, depth of values, window.
DECODE = [(1, 1024, 128, 128, None), (1, 8192, 128, 128, None), (1, 65536, 128, 128, None), (8, 8192, 128, 128, None),
          (32, 4096, 128, 128, None), (1, 65536, 80, 80, None), (8, 8192, 80, 80, None), (1, 65536, 256, 256, None),
          (8, 8192, 256, 256, None), (1, 65536, 192, 128, None), (8, 8192, 192, 128, None), (1, 128, 128, 128, None),
          (1, 131072, 128, 128, 128)]
# Depth of keys, depth of values, tokens; each full and causal.
PREFILL = [(depth, depth, tokens) for depth in (128, 64) for tokens in (2048, 8192, 16384)] + [(192, 128, 8192)]


def random(*shape):
    return torch.rand(*shape, device="cuda", dtype=torch.bfloat16) * 2 - 1


def microseconds(run, repeat, warm=4):
    """`repeat` timings, sorted."""
    times = []
    for i in range(warm + repeat):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        if i >= warm:
            times.append(start.elapsed_time(end) * 1e3)
    return sorted(times)


def report(peer, times, bytes, flops, **shape):
    row = dict(suite="attention", who=peer, shape=shape, us=times[len(times) // 2], best_us=times[0], samples_us=times, bytes=bytes,
               flops=flops)
    print(json.dumps(row), flush=True)


def decode(heads=32, kv_heads=8):
    for batch, tokens, depth, value_depth, window in DECODE:
        seen = min(tokens, window or tokens)
        size = 2 * batch * kv_heads * seen * (depth + value_depth)
        count = max(3, min(16, int(2.5e9 // (size * tokens // seen))))
        query = random(batch, heads, 1, depth)
        caches = [[random(batch, kv_heads, tokens, of)[:, :, tokens - seen:] for of in (depth, value_depth)] for _ in range(count)]
        for peer, backend in PEERS.items():
            try:
                with sdpa_kernel(backend):
                    def each():
                        for keys, values in caches:
                            attention(query, keys, values, enable_gqa=True)

                    each()
                    torch.cuda.synchronize()
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        each()
            except RuntimeError as failure:
                print(f"{peer}, depths {depth} and {value_depth}: {str(failure)[:200]}", file=sys.stderr, flush=True)
                continue
            times = [t / count for t in microseconds(graph.replay, 20)]
            flops = 2 * batch * heads * seen * (depth + value_depth)
            shape = dict(batch=batch, tokens=tokens, depth=depth)
            if value_depth != depth:
                shape["value_depth"] = value_depth
            if window:
                shape["window"] = window
            report(peer, times, size, flops, **shape)


def prefill(heads=32):
    for (depth, value_depth, tokens), causal in itertools.product(PREFILL, (False, True)):
        query, keys, values = (random(1, heads, tokens, of) for of in (depth, depth, value_depth))
        flops = 2 * heads * tokens * tokens * (depth + value_depth) // (2 if causal else 1)
        shape = dict(queries=tokens, tokens=tokens, depth=depth, causal=int(causal))
        if value_depth != depth:
            shape["value_depth"] = value_depth
        for peer, backend in PEERS.items():
            try:
                with sdpa_kernel(backend):
                    times = microseconds(lambda: attention(query, keys, values, is_causal=causal), 10)
            except RuntimeError as failure:
                print(f"{peer}, depths {depth} and {value_depth}: {str(failure)[:200]}", file=sys.stderr, flush=True)
                continue
            report(peer, times, 4 * heads * tokens * (depth + value_depth), flops, **shape)


if __name__ == "__main__":
    for section in sys.argv[1:] or ["decode", "prefill"]:
        {"decode": decode, "prefill": prefill}[section]()
