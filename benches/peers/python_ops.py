#!/usr/bin/env python3
"""What a call of tilewright's ops costs from Python. Prints one JSON row per line.

Usage: python_ops.py [--calls N]

For each op: the host's time per call while the GPU is never waited for; the kernel's own time, as the profiler has it; the time per
call of a CUDA graph of many calls, and that of the kernels in it. The same by torch's dispatcher (`torch.ops.tilewright`), and torch's own op beside it.
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F

import tilewright
import tilewright.torch  # registers the operators
from timing import replayed
from tilewright import ops

B16 = torch.bfloat16
IN_GRAPH = 50


def host_us(call, calls, rounds=20):
    """The host's microseconds per call: the least of rounds, each after the GPU is idle."""
    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - start) / calls * 1e6)
        torch.cuda.synchronize()
    return min(found)


def kernel_us(call, calls=200):
    """The microseconds of a call's kernels on the device, by the profiler."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in profile.key_averages()) / calls


def graph_us(call):
    """The microseconds per call of a graph of many, and those of its kernels while the graph is replayed."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(IN_GRAPH):
            call()
    times = replayed(graph, 100)
    return times[len(times) // 2] / IN_GRAPH * 1e3, kernel_us(graph.replay, calls=100) / IN_GRAPH


def cases():
    """Name, shape, the call by function, the call by operator, torch's own."""
    draw = lambda *shape: torch.randn(*shape, device="cuda", dtype=B16)
    registered = torch.ops.tilewright
    x, weight, out = draw(1, 2048), draw(2048), draw(1, 2048)
    yield "rms_norm", {"rows": 1, "n": 2048}, \
        lambda: ops.rms_norm(x, weight, out=out), lambda: registered.rms_norm(x, weight, out), \
        lambda: F.rms_norm(x, (2048,), weight, 1e-6)
    big, big_weight, big_out = draw(4096, 8192), draw(8192), draw(4096, 8192)
    yield "rms_norm", {"rows": 4096, "n": 8192}, \
        lambda: ops.rms_norm(big, big_weight, out=big_out), lambda: registered.rms_norm(big, big_weight, big_out), \
        lambda: F.rms_norm(big, (8192,), big_weight, 1e-6)
    gate, up, gated = draw(1, 8192), draw(1, 8192), draw(1, 8192)
    yield "silu_mul", {"rows": 1, "n": 8192}, \
        lambda: ops.silu_mul(gate, up, out=gated), lambda: registered.gated(gate, up, gated), lambda: F.silu(gate) * up

    def linear(n, k):
        w, row, product = draw(n, k), draw(1, k), draw(1, n)
        packed = ops.pack(w)
        return "linear", {"rows": 1, "n": n, "k": k}, \
            lambda: ops.linear(row, packed, out=product), lambda: registered.linear(row, packed, product), \
            lambda: F.linear(row, w)

    yield from (linear(*shape) for shape in [(2048, 2048), (16384, 2048), (2048, 8192)])
    a, b, c = draw(512, 2048), draw(8192, 2048), draw(512, 8192)
    workspace = torch.empty(ops.gemm_workspace(512, 8192), device="cuda")
    yield "gemm", {"m": 512, "n": 8192, "k": 2048}, \
        lambda: ops.gemm(a, b, out=c, workspace=workspace), lambda: registered.gemm(a, b, c, workspace=workspace), \
        lambda: F.linear(a, b)
    q, keys, values = draw(1, 32, 64), draw(1, 8, 4096, 64), draw(1, 8, 4096, 64)
    tokens, attended = torch.tensor([1024], dtype=torch.int32, device="cuda"), torch.empty_like(q)
    room = torch.zeros(ops.attention_workspace(q, keys), device="cuda")
    seen_keys, seen_values = keys[:, :, :1024], values[:, :, :1024]
    yield "attention_decode", {"batch": 1, "context": 1024, "heads": 32, "kv_heads": 8, "dim": 64}, \
        lambda: ops.attention_decode(q, keys, values, tokens, out=attended, workspace=room), \
        lambda: registered.attention_decode(q, keys, values, tokens, attended, room), \
        lambda: F.scaled_dot_product_attention(q[:, :, None], seen_keys, seen_values, enable_gqa=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    with torch.no_grad():
        calls = [(name, shape, who, call) for name, shape, *each in cases()
                 for who, call in zip(["tilewright", "tilewright by torch.ops", "torch"], each)]
        for _, _, _, call in calls:
            for _ in range(10):
                call()
        # A profiler makes every launch after it slower.
        host = [host_us(call, args.calls) for _, _, _, call in calls]
        for (name, shape, who, call), host in zip(calls, host):
            kernel = kernel_us(call)
            graph, graph_kernel = graph_us(call)
            values = {"host_us": host, "kernel_us": kernel, "graph_us": graph, "graph_kernel_us": graph_kernel}
            values = {name: round(value, 3) for name, value in values.items()}
            row = {"suite": "python ops", "who": who, "shape": shape, "note": name, "us": values["graph_us"], "values": values}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
