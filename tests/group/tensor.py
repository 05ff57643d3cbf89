#!/usr/bin/env python3
"""Compares a model in shards on several GPUs, one process each, with one process on one GPU.

Usage: tensor.py TILEWRIGHT MODEL [--ranks N] [--timeout S] [--bound X] [--margin X] [--kills N]

Greedy texts of prompts, alone and batched, must have the tokens of one process, or differ where one process finds two tokens nearly
as likely: within --margin of log probability. Logits of a prompt that is one step must have the bits of one process with
as many GPUs that adds up by NCCL, and be within --bound of the CPU's, relative to their norm, or 1.5 times as far as those of one
GPU. Then kills.py with --tensor-parallel kills ranks. Prints a line of JSON for each comparison; exits with 1 if one fails.
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


def in_one(args, command, device="cuda:0"):
    """The output of one process, on the first GPU if nothing else is said."""
    command = [args.tilewright, command[0], "--model", args.model, "--device", device, *command[1:]]
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


def distance(found, expected, vocab):
    """The worst row's distance, relative to the norm of the row that is expected."""
    def of_row(row):
        pairs = list(zip(found[row:row + vocab], expected[row:row + vocab]))
        return (sum((a - b) ** 2 for a, b in pairs) / sum(b * b for _, b in pairs)) ** 0.5
    return max(of_row(row) for row in range(0, len(expected), vocab))


def same_logits(args, tokens):
    """A step of a whole prompt has the same kernels and sums in a process a GPU and in one process with all: the same bits, which are
    about as far from the CPU's as those of one GPU. Steps of up to 64 rows read weights in another form."""
    ids = ["logits", "--prompt-ids", ",".join(str(3 + token * 37 % 900) for token in range(tokens)), "--out"]
    wide = ["--prompt-chunk", str(tokens)]
    with tempfile.TemporaryDirectory() as folder:
        def of(run, name, options, *where):
            path = os.path.join(folder, name)
            run(args, [*ids, path, *options], *where)
            return logits(path)
        (shape, expected), (_, one) = of(in_one, "cpu", [], "cpu"), of(in_one, "one", wide)
        _, together = of(in_one, "together", [*wide, "--exchange", "nccl"], f"cuda:0-{args.ranks - 1}")
        found, shared = of(in_shards, "shared", wide)
    same = found == shape and shared == together
    worst, of_one = [distance(values, expected, shape[1]) for values in (shared, one)]
    right = same and worst <= max(args.bound, 1.5 * of_one)
    print(json.dumps({"what": f"logits of {tokens} tokens", "same_bits": same, "worst": worst, "of_one_gpu": of_one, "right": right}))
    return right


def main():
    parser = options()
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--bound", type=float, default=0.02)
    parser.add_argument("--margin", type=float, default=0.1)
    parser.add_argument("--kills", type=int, default=100)
    args = parser.parse_args()
    args.tensor_parallel = True
    greedy = ["--max-new-tokens", "64", "--logprobs", "2", "--json"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as prompts:
        prompts.write("\n".join(PROMPTS))
        prompts.flush()
        batch = ["generate", "--prompt-file", prompts.name, "--each-line", *greedy]
        right = [same_texts(args, "a prompt", ["generate", "--prompt", PROMPTS[0], *greedy]), same_texts(args, "a batch", batch)]
    right.append(same_logits(args, 96))
    killed = subprocess.run([sys.executable, str(pathlib.Path(__file__).with_name("kills.py")), args.tilewright, args.model,
                             "--ranks", str(args.ranks), "--kills", str(args.kills), "--tensor-parallel"], check=False)
    sys.exit(0 if all(right) and killed.returncode == 0 else 1)


if __name__ == "__main__":
    main()
