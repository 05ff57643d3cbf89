#!/usr/bin/env python3
"""Tensor-parallel decode step of a Llama in PyTorch, with NCCL's all-reduces in a CUDA graph: a peer of
`tilewright bench --suite decode --device cuda:0-1`. Prints one JSON row per line.

Usage: decode_tp.py --config FILE [--devices N] [--shapes BATCH:CONTEXT ..] [--tokens N]

The step of decode.py with one process per GPU: q, k, v, gate and up are split by rows, o and down by columns with an all-reduce
after each, the output projection by vocabulary with gathered logits. NVLink multicast is off (NCCL_NVLS_ENABLE=0).
"""
import argparse
import json
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from decode import Step, microseconds


class Shared(Step):
    """The part of one GPU."""

    def __init__(self, config, batch, context, devices):
        part = dict(config, head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
        for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
            part[name] = max(1, config[name] // devices)
        super().__init__(part, batch, context)
        vocab = config["vocab_size"] // devices
        self.output = torch.randn(vocab, self.hidden, device="cuda", dtype=torch.bfloat16) * 0.02
        self.gathered = torch.empty(devices, batch, vocab, device="cuda", dtype=torch.bfloat16)
        matrices = self.qkv + self.o + self.gate_up + self.down + [self.output]
        self.weight_bytes = sum(2 * m.numel() for m in matrices)
        dist.broadcast(self.token, 0)

    def whole(self, part):
        dist.all_reduce(part)
        return part

    def gather(self, part):
        dist.all_gather_into_tensor(self.gathered, part)
        return self.gathered.transpose(0, 1).reshape(self.batch, -1)


def work(rank, devices, config, shapes, tokens):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=devices)
    torch.manual_seed(rank)
    for batch, context in shapes:
        step = Shared(config, batch, context + 8, devices)
        with torch.no_grad():
            times = microseconds(step, max(context - tokens, 0), tokens)
        shape = {"batch": batch, "context": context, "hidden": step.hidden, "layers": step.layers, "devices": devices}
        read = step.weight_bytes + step.token_bytes * (context - tokens // 2)
        row = {"suite": "decode", "who": "pytorch-nccl-cuda-graph", "shape": shape, "note": f"torch {torch.__version__}",
               "us": times[len(times) // 2], "best_us": times[0], "samples_us": list(times), "bytes": read * devices, "flops": 0}
        if rank == 0:
            print(json.dumps(row), flush=True)
    dist.barrier()
    # A communicator with captured work takes long to come down, and the process ends here.
    os._exit(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--shapes", nargs="+", default=["1:1024"], metavar="BATCH:CONTEXT")
    parser.add_argument("--tokens", type=int, default=200)
    args = parser.parse_args()
    with open(args.config) as file:
        config = json.load(file)
    shapes = [tuple(map(int, shape.split(":"))) for shape in args.shapes]
    mp.spawn(work, (args.devices, config, shapes, args.tokens), args.devices)


if __name__ == "__main__":
    main()
