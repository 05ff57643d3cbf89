#!/usr/bin/env python3
"""NCCL's all-reduce between two processes with one GPU each. Prints one JSON row per line.

Usage: all_reduce.py [--mib N ..]

bf16; 20 all-reduces in a CUDA graph; the median of five replays on the first rank. NVLink multicast stays off:
NCCL_NVLS_ENABLE=0 must be in the environment.
"""
import argparse
import json
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SUMS, REPLAYS = 20, 5


def run(rank, sizes):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    for mib in sizes:
        x = torch.zeros(mib * 2**19, device="cuda", dtype=torch.bfloat16)
        dist.all_reduce(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(SUMS):
                dist.all_reduce(x)
        x.normal_()
        graph.replay()
        times = []
        for _ in range(REPLAYS):
            # Sums of sums would leave the range of bf16.
            x.normal_()
            torch.cuda.synchronize()
            dist.barrier()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / SUMS)
        if rank == 0:
            times.sort()
            shape = {"bytes": mib * 2**20, "devices": 2}
            variant = f"{'.'.join(map(str, torch.cuda.nccl.version()))} by PyTorch {torch.__version__}, two processes, bf16, {SUMS} in a graph"
            row = {"suite": "all-reduce", "who": "nccl", "shape": shape, "variant": variant}
            print(json.dumps({**row, "median_us": times[REPLAYS // 2], "best_us": times[0]}), flush=True)
    # A communicator that graphs hold is not destroyed in order.
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, nargs="+", default=[1, 4, 8, 16, 32])
    args = parser.parse_args()
    assert os.environ.get("NCCL_NVLS_ENABLE") == "0", "set NCCL_NVLS_ENABLE=0"
    mp.spawn(run, (args.mib,), nprocs=2)
