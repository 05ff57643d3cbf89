#!/usr/bin/env python3
"""Kills ranks of process groups on two GPUs, at random moments from their start on.

Usage: kills.py TILEWRIGHT MODEL [--kills N] [--groups N] [--timeout S] [--longest S] [--seed N]

Every group has two ranks, started by torchrun's variables; --groups of them run side by side. One rank gets SIGKILL at a moment up
to --longest seconds after the start. The other must end within the group's timeout, with exit code 2 and one line that names the
rank that is gone. Prints what went wrong, and a line of JSON; exits with 1 if anything did.
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


def start(args, rank, port):
    variables = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                 "TILEWRIGHT_GROUP_SECRET": "0123456789abcdef", "TILEWRIGHT_GROUP_TIMEOUT": args.timeout, "NCCL_NVLS_ENABLE": 0}
    command = [args.tilewright, "generate", "--model", args.model, "--prompt", "In the beginning", "--max-new-tokens", "20000",
               "--temperature", "1"]
    return subprocess.Popen(command, env=os.environ | {name: str(value) for name, value in variables.items()},
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def kill(args, number):
    """What was seen, and what was wrong with it."""
    draw = random.Random(f"{args.seed} {number}")
    lost, moment = draw.randrange(2), draw.uniform(0, args.longest)
    port = free_port()
    ranks = [start(args, rank, port) for rank in range(2)]
    time.sleep(moment)
    if any(rank.poll() is not None for rank in ranks):
        texts = [rank.communicate()[1][-300:] for rank in ranks if rank.poll() is not None]
        [rank.kill() for rank in ranks]
        return {"early": True}, f"a rank ended by itself before {moment:.1f} s: {texts}"
    ranks[lost].send_signal(signal.SIGKILL)
    begin = time.monotonic()
    other = ranks[1 - lost]
    try:
        _, text = other.communicate(timeout=args.timeout + GRACE)
    except subprocess.TimeoutExpired:
        other.kill()
        return {"hung": True}, f"rank {1 - lost} still runs {args.timeout + GRACE} s after rank {lost} was killed at {moment:.2f} s"
    finally:
        ranks[lost].wait()
    took = time.monotonic() - begin
    errors = [line for line in text.splitlines() if "error" in line]
    seen = {"moment": moment, "took": took, "lost": lost, "code": other.returncode, "error": errors[-1] if errors else ""}
    names = re.search(rf"\brank {lost}\b", seen["error"])
    if other.returncode != 2 or len(errors) != 1 or not names:
        return seen, f"rank {lost} killed at {moment:.2f} s: exit code {other.returncode} after {took:.1f} s, {text[-400:]!r}"
    return seen, None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tilewright")
    parser.add_argument("model")
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
