#!/usr/bin/env python3
"""Kills ranks of process groups on several GPUs, at random moments from their start on.

Usage: kills.py TILEWRIGHT MODEL [--ranks N] [--tensor-parallel] [--kills N] [--groups N] [--timeout S] [--longest S] [--seed N]

Every group has --ranks processes, one a GPU, started by torchrun's variables; --groups of them run side by side. They are a pipeline,
or with --tensor-parallel each has a shard of every layer. One rank gets SIGKILL at a moment up to --longest seconds after the start.
Every other must end within the group's timeout, with exit code 2 and one line that names the rank that is gone. Prints what went
wrong, and a line of JSON; exits with 1 if anything did.
"""
import argparse
import concurrent.futures
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time

# The CUDA context and the weights, which a rank that waits in them does not leave.
GRACE = 15.0


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(args, rank, port, command, **pipes):
    """A rank of a group that runs this command on the model."""
    variables = {"RANK": rank, "WORLD_SIZE": args.ranks, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                 "TILEWRIGHT_GROUP_SECRET": "0123456789abcdef", "TILEWRIGHT_GROUP_TIMEOUT": args.timeout, "NCCL_NVLS_ENABLE": 0}
    command = [args.tilewright, command[0], "--model", args.model, *command[1:]]
    if args.tensor_parallel:
        command += ["--tensor-parallel", str(args.ranks)]
    return subprocess.Popen(command, env=os.environ | {name: str(value) for name, value in variables.items()},
                            stderr=subprocess.PIPE, text=True, **pipes)


def kill(args, number):
    """What was seen, and what was wrong with it."""
    draw = random.Random(f"{args.seed} {number}")
    lost, moment = draw.randrange(args.ranks), draw.uniform(0, args.longest)
    port = free_port()
    command = ["generate", "--prompt", "In the beginning", "--max-new-tokens", "20000", "--temperature", "1"]
    ranks = [start(args, rank, port, command, stdout=subprocess.DEVNULL) for rank in range(args.ranks)]
    time.sleep(moment)
    if any(rank.poll() is not None for rank in ranks):
        texts = [rank.communicate()[1][-300:] for rank in ranks if rank.poll() is not None]
        [rank.kill() for rank in ranks]
        return {"early": True}, f"a rank ended by itself before {moment:.1f} s: {texts}"
    ranks[lost].send_signal(signal.SIGKILL)
    begin = time.monotonic()
    seen = {"moment": moment, "lost": lost, "took": 0.0, "error": ""}
    wrong = []
    for rank, other in enumerate(ranks):
        if rank == lost:
            continue
        try:
            _, text = other.communicate(timeout=max(1.0, begin + args.timeout + GRACE - time.monotonic()))
        except subprocess.TimeoutExpired:
            other.kill()
            wrong.append(f"rank {rank} still runs {args.timeout + GRACE} s after rank {lost} was killed at {moment:.2f} s")
            continue
        seen["took"] = max(seen["took"], time.monotonic() - begin)
        errors = [line for line in text.splitlines() if "error" in line]
        seen["error"] = errors[-1] if errors else ""
        names = re.search(rf"\brank {lost}\b", seen["error"])
        if other.returncode != 2 or len(errors) != 1 or not names:
            wrong.append(f"rank {lost} killed at {moment:.2f} s: exit code {other.returncode} of rank {rank}, {text[-400:]!r}")
    ranks[lost].wait()
    return seen, "; ".join(wrong) or None


def options():
    """The options that scripts of groups share."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tilewright")
    parser.add_argument("model")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tensor-parallel", action="store_true")
    return parser


def main():
    parser = options()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--timeout", type=float, default=10.0)
    parser.add_argument("--longest", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with concurrent.futures.ThreadPoolExecutor(args.groups) as pool:
        found = list(pool.map(lambda number: kill(args, number), range(args.kills)))
    wrong = [text for _, text in found if text]
    for text in wrong:
        print(text)
    right = [seen for seen, text in found if not text]
    messages = {}
    for seen in right:
        message = re.sub(r"\d+(\.\d+)?( m?s)?", "N", seen["error"])
        messages[message] = messages.get(message, 0) + 1
    print(json.dumps({"kills": len(found), "right": len(right), "longest_s": max((seen["took"] for seen in right), default=None),
                      "messages": messages}))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
