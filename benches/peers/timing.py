"""Timing of peers: CUDA graphs, and calls that a graph would not shorten."""
import json

import torch


def replayed(graph, replays):
    """Returns the milliseconds of each replay."""
    return timed(graph.replay, replays)


def timed(call, repeats):
    """Returns the milliseconds of each call, sorted; calls follow one another without a pause."""
    for _ in range(3):
        call()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in zip(events, events[1:]))


def report(suite, who, shape, milliseconds, launches, size, flops):
    """Prints a row of calls of that many launches each."""
    us = [time * 1e3 / launches for time in milliseconds]
    print(json.dumps({"suite": suite, "who": who, "shape": shape, "us": us[len(us) // 2], "best_us": us[0],
                      "samples_us": us, "bytes": size, "flops": flops}), flush=True)
