"""Attention of PyTorch's back ends, as the peers of `tilewright bench --suite attention`.

Usage: python3 attention.py [decode] [prefill]

One JSON object a line: suite, peer, shape, microseconds (median and best of many timings by CUDA events) and the rate:
TB/s of keys and values for decode, TFLOP/s for prefill (causal counted as half). Decode rotates over so many caches that
level two does not serve them, all of them in one CUDA graph. Inputs are random.
"""

import json
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

PEERS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash2": SDPBackend.FLASH_ATTENTION}
DECODE = [(1, 1024), (1, 8192), (1, 65536), (8, 8192), (32, 4096)]
PREFILL = [(depth, tokens, causal) for depth in (128, 64) for tokens in (2048, 8192, 16384) for causal in (False, True)]


def random(*shape):
    return torch.rand(*shape, device="cuda", dtype=torch.bfloat16) * 2 - 1


def microseconds(run, repeat, warm=4):
    """Median and best of `repeat` timings."""
    times = []
    for i in range(warm + repeat):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        if i >= warm:
            times.append(start.elapsed_time(end) * 1e3)
    times.sort()
    return times[len(times) // 2], times[0]


def report(peer, times, rate, **shape):
    median, best = times
    print(json.dumps(dict(suite="attention", peer=peer, **shape, us=median, best_us=best, **rate(median))), flush=True)


def decode(heads=32, kv_heads=8, depth=128):
    for batch, tokens in DECODE:
        size = 2 * batch * kv_heads * tokens * depth * 2
        count = max(2, min(16, int(1e9 // size)))
        query = random(batch, heads, 1, depth)
        caches = [[random(batch, kv_heads, tokens, depth) for _ in "kv"] for _ in range(count)]
        for peer, backend in PEERS.items():
            with sdpa_kernel(backend):
                def each():
                    for keys, values in caches:
                        attention(query, keys, values, enable_gqa=True)

                each()
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    each()
            times = [t / count for t in microseconds(graph.replay, 20)]
            report(peer, times, lambda us: dict(tbps=size / us / 1e6), kind="decode", batch=batch, tokens=tokens)


def prefill(heads=32):
    for depth, tokens, causal in PREFILL:
        query, keys, values = (random(1, heads, tokens, depth) for _ in range(3))
        work = 4 * heads * tokens * tokens * depth * (0.5 if causal else 1)
        for peer, backend in PEERS.items():
            with sdpa_kernel(backend):
                times = microseconds(lambda: attention(query, keys, values, is_causal=causal), 10)
            shape = dict(kind="prefill", depth=depth, tokens=tokens, causal=causal)
            report(peer, times, lambda us: dict(tflops=work / us / 1e6), **shape)


if __name__ == "__main__":
    for section in sys.argv[1:] or ["decode", "prefill"]:
        {"decode": decode, "prefill": prefill}[section]()
