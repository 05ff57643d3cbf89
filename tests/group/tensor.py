#!/usr/bin/env python3
"""Compares a model in shards on several GPUs, one process each, with one process on one GPU.

Usage: tensor.py TILEWRIGHT MODEL [--ranks N] [--timeout S] [--bound X] [--margin X]

Greedy texts of prompts, alone and batched, must have the tokens of one process, or differ where one process finds two tokens nearly
as likely: within --margin of log probability. Logits of a text of tokens must be within --bound of one process's, relative to their
norm. Then kills.py with --tensor-parallel kills ranks. Prints a line of JSON for each comparison; exits with 1 if one fails.
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

from kills import free_port, options, start

PROMPTS = ["In the beginning", "The capital of France is", "def fibonacci(n):", "Once upon a time there was a king who"]


def in_one(args, command):
    """The output of one process on the first GPU."""
    command = [args.tilewright, command[0], "--model", args.model, "--device", "cuda:0", *command[1:]]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def in_shards(args, command):
    """The output of rank 0 of a group."""
    port = free_port()
    ranks = [start(args, rank, port, command, stdout=subprocess.PIPE) for rank in range(args.ranks)]
    ended = [rank.communicate(timeout=10 * args.timeout) for rank in ranks]
    for rank, (process, (_, text)) in enumerate(zip(ranks, ended)):
        if process.returncode != 0:
            raise SystemExit(f"rank {rank} ended with {process.returncode}: {text[-600:]}")
    return ended[0][0]


def texts(output):
    """The answers of `generate --json` or of a batch, by prompt."""
    answers = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {answer["prompt"]: answer for answer in answers if "token_ids" in answer}


def same_texts(args, what, command):
    alone, shared = [texts(run(args, command)) for run in (in_one, in_shards)]
    right = bool(alone) and alone.keys() == shared.keys()
    equal = 0
    for prompt, answer in alone.items():
        found = shared.get(prompt, {}).get("token_ids", [])
        expected = answer["token_ids"]
        at = next((at for at, (a, b) in enumerate(zip(expected, found)) if a != b), min(len(expected), len(found)))
        if expected == found:
            equal += 1
            continue
        # The likeliest tokens of one process at the first place that differs.
        likely = sorted((top["logprob"] for top in answer["logprobs"][at]["top"]), reverse=True) if at < len(expected) else []
        right &= len(likely) > 1 and likely[0] - likely[1] <= args.margin
    print(json.dumps({"what": what, "texts": len(alone), "equal": equal, "right": right}))
    return right


def logits(path):
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    [(_, tensor)] = [item for item in json.loads(data[8:8 + length]).items() if item[0] != "__metadata__"]
    first, end = tensor["data_offsets"]
    values = memoryview(data)[8 + length + first:8 + length + end].cast("f")
    return tensor["shape"], values


def same_logits(args, tokens):
    ids = ",".join(str(3 + token * 37 % 900) for token in range(tokens))
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("alone", "shared")]
        for run, path in zip((in_one, in_shards), paths):
            run(args, ["logits", "--prompt-ids", ids, "--out", path])
        (shape, alone), (found, shared) = [logits(path) for path in paths]
    vocab = shape[1]
    worst = 0.0
    for row in range(tokens):
        pairs = list(zip(alone[row * vocab:(row + 1) * vocab], shared[row * vocab:(row + 1) * vocab]))
        worst = max(worst, (sum((a - b) ** 2 for a, b in pairs) / sum(a * a for a, _ in pairs)) ** 0.5)
    right = shape == found and worst <= args.bound
    print(json.dumps({"what": f"logits of {tokens} tokens", "worst": worst, "right": right}))
    return right


def main():
    parser = options()
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--bound", type=float, default=0.02)
    parser.add_argument("--margin", type=float, default=0.1)
    args = parser.parse_args()
    args.tensor_parallel = True
    greedy = ["--max-new-tokens", "64", "--logprobs", "2", "--json"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as prompts:
        prompts.write("\n".join(PROMPTS))
        prompts.flush()
        batch = ["generate", "--prompt-file", prompts.name, "--each-line", *greedy]
        right = [same_texts(args, "a prompt", ["generate", "--prompt", PROMPTS[0], *greedy]), same_texts(args, "a batch", batch)]
    right.append(same_logits(args, 100))
    killed = subprocess.run([sys.executable, str(pathlib.Path(__file__).with_name("kills.py")), args.tilewright, args.model,
                             "--ranks", str(args.ranks), "--tensor-parallel"], check=False)
    sys.exit(0 if all(right) and killed.returncode == 0 else 1)


if __name__ == "__main__":
    main()
