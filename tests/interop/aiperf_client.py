#!/usr/bin/env python3
"""Runs NVIDIA AIPerf, a load generator, against `tilewright serve` and checks what it measured.

Usage: aiperf_client.py TILEWRIGHT MODELS, the program and the folder of the shipped models.
"""

import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from serving import serving

MODEL = "tiny-llama"
REQUESTS, CONCURRENCY, PROMPT, OUTPUT = 20, 4, 40, 24
# Special tokens split the text around them, so that the template adds two tokens to every prompt.
TEMPLATE = "{% for message in messages %}<|begin|>{{ message.content }}{% endfor %}<|end|>"
# Tokens that the server adds to the text of a prompt: the template's, or the beginning-of-sequence token.
ADDED = {"chat": 2, "completions": 1}


def cached(source, hub):
    """Copies a checkpoint, with a chat template, into a Hugging Face cache; returns its folder and name.

    Offline, AIPerf 0.13 finds tokenizers in the cache only: it takes a path for the name of a repository.
    """
    repository = hub / f"models--tilewright--{MODEL}"
    folder = repository / "snapshots/local"
    shutil.copytree(source, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("local")
    return folder, f"tilewright/{MODEL}"


def profile(endpoint, address, tokenizer, folder):
    """Runs AIPerf and returns three exports: the summary, the records of requests, and the server's metrics."""
    options = {
        "--model": MODEL, "--url": address, "--endpoint-type": endpoint, "--tokenizer": tokenizer,
        "--request-count": REQUESTS, "--concurrency": CONCURRENCY, "--isl": PROMPT, "--osl": OUTPUT,
        "--random-seed": 1, "--workers-max": 1, "--record-processors": 1, "--ui": "none",
        "--artifact-dir": folder / endpoint,
    }
    command = [sys.executable, "-m", "aiperf", "profile", "--streaming", "--no-gpu-telemetry"]
    command += [str(word) for option in options.items() for word in option]
    command += ["--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0"]
    places = {"HF_HUB_CACHE": str(folder / "hub"), "HF_HOME": str(folder / "home"), "TMPDIR": str(folder)}
    flush = {"AIPERF_SERVER_METRICS_COLLECTION_FLUSH_PERIOD": "0.5"}
    environment = os.environ | places | flush | {"HF_HUB_OFFLINE": "1"}
    with open(folder / "output", "w+") as output:
        ended = subprocess.run(
            command, env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT, timeout=120
        )
        output.seek(0)
        log = output.read()
    records = folder / endpoint / "profile_export.jsonl"
    records = [json.loads(line) for line in records.read_text().splitlines()] if records.exists() else []
    if ended.returncode != 0:
        # If all requests fail, AIPerf writes no summary; the reasons are in the records.
        errors = sorted({record["error"]["message"] for record in records if record.get("error")})
        print(log, file=sys.stderr)
        sys.exit("\n".join([f"{endpoint}: aiperf ended with exit code {ended.returncode}", *errors]))
    summary = json.loads((folder / endpoint / "profile_export_aiperf.json").read_text())
    metrics = json.loads((folder / endpoint / "server_metrics_export.json").read_text())["metrics"]
    return summary, records, metrics


def total(metrics, name, field="total", **labels):
    """Adds a statistic over the series of a metric that have these labels."""
    series = metrics.get(name, {}).get("series", [])
    return sum(one["stats"][field] for one in series if labels.items() <= one["labels"].items())


def faults(endpoint, summary, records, metrics):
    """Yields what is wrong with a run, one line each."""

    def average(name):
        return summary.get(name, {}).get("avg")

    def compare(what, found, expected):
        if found != expected:
            yield f"{what}: {found}, expected {expected}"

    yield from compare("error_summary", summary.get("error_summary"), [])
    yield from compare("requests that succeeded", average("request_count"), REQUESTS)
    yield from compare("records", len(records), REQUESTS)
    for number, record in enumerate(records):
        values = {name: metric["value"] for name, metric in record.get("metrics", {}).items()}
        first, latency, gap = (
            values.get(name, 0) for name in ("time_to_first_token", "request_latency", "inter_token_latency")
        )
        if not (0 < first < latency and gap > 0):
            yield f"request {number}: first token {first} ms, next tokens {gap} ms each, whole request {latency} ms"
        yield from compare(f"request {number}: usage.completion_tokens", values.get("usage_completion_tokens"), OUTPUT)
        prompt = values.get("input_sequence_length", 0) + ADDED[endpoint]
        yield from compare(f"request {number}: usage.prompt_tokens", values.get("usage_prompt_tokens"), prompt)
    # AIPerf encodes the text of an answer, in which other tokens may spell the same letters.
    counted, used = average("total_osl") or 0, average("total_usage_completion_tokens") or 0
    if counted <= 0 or abs(counted - used) > 0.05 * used:
        yield f"output tokens: AIPerf counts {counted}, the server {used}"
    for name, found in [
        ("vllm:generation_tokens", used),
        ("vllm:prompt_tokens", average("total_usage_prompt_tokens")),
    ]:
        yield from compare(f"{name} of /metrics", total(metrics, name), found)
    ends = total(metrics, "vllm:request_success", finished_reason="length")
    yield from compare("vllm:request_success of /metrics", ends, REQUESTS)
    for name, count in [
        ("vllm:time_to_first_token_seconds", REQUESTS),
        ("vllm:time_per_output_token_seconds", REQUESTS * (OUTPUT - 1)),
        ("vllm:e2e_request_latency_seconds", REQUESTS),
    ]:
        yield from compare(f"{name} of /metrics", total(metrics, name, "count"), count)
    inside = 1e3 * total(metrics, "vllm:time_to_first_token_seconds", "sum") / REQUESTS
    outside = average("time_to_first_token") or 0
    if not 0 < inside <= outside:
        yield f"time to first token: {inside} ms in the server, {outside} ms for the client"


def main():
    program, models = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    print("aiperf", importlib.metadata.version("aiperf"))
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        model, tokenizer = cached(models / MODEL, folder / "hub")
        with serving(program, model, "--name", MODEL) as address:
            for endpoint in ADDED:
                start = time.monotonic()
                summary, records, metrics = profile(endpoint, address, tokenizer, folder)
                found = list(faults(endpoint, summary, records, metrics))
                if found:
                    sys.exit("\n".join(f"{endpoint}: {line}" for line in found))
                first, gap = (summary[name]["avg"] for name in ("time_to_first_token", "inter_token_latency"))
                print(
                    f"{endpoint}: {len(records)} requests, first token {first:.1f} ms, next tokens {gap:.2f} ms each,"
                    f" {summary['total_osl']['avg']:.0f} output tokens ({time.monotonic() - start:.0f} s)"
                )


main()
