#!/usr/bin/env python3
"""Runs a frontend and two CPU workers of Dynamo on this machine, asks them by the official `openai` package, kills one, and
checks that no request is lost.

Usage: two_workers.py PROGRAM [--tilewright TILEWRIGHT] [--frontend PYTHON]

PROGRAM is tilewright-dynamo. With TILEWRIGHT, the program of the same repository, texts are compared with those of
`tilewright serve`. With PYTHON the frontend is that interpreter's `python -m dynamo.frontend` instead of PROGRAM's own.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import openai

MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"
MODEL = "tiny-llama"
TOKENS = 900
CASES = json.loads((MODELS / MODEL / "reference.json").read_text())["cases"]
# Prompts of tokens: the frontend adds no beginning-of-sequence token to a text.
PROMPTS = [case["prompt_ids"] + case["greedy_ids"][:more] for more in (0, 7) for case in CASES]
TEMPLATE = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}[assistant]"
WORKER_ID = {"nvext": {"extra_fields": ["worker_id"]}}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    sys.exit(f"{what}: not within {seconds} s")


class Cluster:
    """A frontend and workers that find each other through a folder."""

    def __init__(self, program, python, folder):
        self.program, self.folder, self.port = program, folder, free_port()
        self.environment = os.environ | {
            "DYN_DISCOVERY_BACKEND": "file",
            "DYN_FILE_KV": str(folder / "discovery"),
            "DYN_REQUEST_PLANE": "tcp",
            "DYN_EVENT_PLANE": "zmq",
            "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.5",
            "DYN_LOG": os.environ.get("DYN_LOG", "warn"),
        }
        self.processes = {}
        options = ["--http-port", str(self.port), "--router-mode", "kv", "--migration-limit", "3"]
        own = [program, "frontend", *options]
        self.start("frontend", own if python is None else [python, "-m", "dynamo.frontend", "--http-host", "127.0.0.1", *options])
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=120)

    def start(self, name, command):
        log = open(self.folder / f"{name}.log", "w")
        self.processes[name] = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def get(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def instances(self):
        found = json.loads(self.get("/health") or "{}").get("instances", [])
        return {instance["instance_id"] for instance in found if instance["endpoint"] == "generate"}

    def worker(self, name):
        """Starts a worker; returns its number in Dynamo."""
        before = self.instances()
        template = self.folder / "template.jinja"
        template.write_text(TEMPLATE)
        self.start(name, [
            self.program, "worker", "--model", str(MODELS / MODEL), "--device", "cpu:1", "--custom-jinja-template", str(template),
        ])
        [number] = wait_for(f"{name} registers", lambda: self.instances() - before)
        wait_for("the model is served", lambda: MODEL in self.get("/v1/models"))
        return number

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for name, process in self.processes.items():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                print(f"{name} did not end by SIGTERM")


@contextlib.contextmanager
def cluster(program, python):
    with tempfile.TemporaryDirectory() as folder:
        running = Cluster(program, python, pathlib.Path(folder))
        try:
            yield running
        except BaseException:
            for log in sorted(pathlib.Path(folder).glob("*.log")):
                print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
            raise
        finally:
            running.end()


@contextlib.contextmanager
def serving(tilewright):
    """A client of `tilewright serve`."""
    command = [tilewright, "serve", "--model", str(MODELS / MODEL), "--device", "cpu:1", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        address = None
        while address is None:
            line = process.stderr.readline()
            assert line, "the server ended"
            found = re.search(r"listening at (http://\S+)", line)
            address = found and found[1]
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield openai.OpenAI(base_url=address + "/v1", api_key="none", max_retries=0)
    finally:
        process.terminate()
        process.wait()


def greedy(client, prompt, tokens, **more):
    return client.completions.create(model=MODEL, prompt=prompt, max_tokens=tokens, temperature=0, **more)


def worker_of(answer):
    """The number of the worker that a chunk or an answer came from, if it says so."""
    extra = (answer.model_extra or {}).get("nvext") or {}
    return (extra.get("worker_id") or {}).get("decode_worker_id")


class Streamed(threading.Thread):
    """A request whose stream is read by a thread."""

    def __init__(self, client, prompt):
        super().__init__()
        self.client, self.prompt = client, prompt
        self.text, self.chunks, self.worker, self.finish, self.error = "", 0, None, None, None
        self.longest, self.tokens = 0.0, None
        self.start()

    def run(self):
        try:
            # Without end tokens every text has its full length.
            more = {"extra_body": {"ignore_eos": True, **WORKER_ID}, "stream_options": {"include_usage": True}}
            last = time.monotonic()
            for chunk in greedy(self.client, self.prompt, TOKENS, stream=True, **more):
                now = time.monotonic()
                self.longest, last = max(self.longest, now - last), now
                self.worker = self.worker or worker_of(chunk)
                self.tokens = chunk.usage.completion_tokens if chunk.usage else self.tokens
                for choice in chunk.choices:
                    self.text += choice.text
                    self.chunks += 1
                    self.finish = choice.finish_reason or self.finish
        except Exception as error:  # noqa: BLE001 - any error is a lost request
            self.error = error


def check_texts(running):
    """Texts and streams are those of transformers."""
    for case in CASES:
        prompt, count = case["prompt_ids"], len(case["greedy_ids"])
        whole = greedy(running.client, prompt, count)
        assert whole.choices[0].text == case["text"], (case["text"], whole.choices[0].text)
        streamed = list(greedy(running.client, prompt, count, stream=True))
        assert "".join(choice.text for chunk in streamed for choice in chunk.choices) == case["text"]
    print(f"{len(CASES)} prompts: texts and joined streams are the greedy texts of transformers")


def check_parameters(running):
    client = running.client
    chat = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "In the beginning"}], max_tokens=8, temperature=0
    )
    assert chat.choices[0].message.content and chat.usage.completion_tokens == 8, chat
    listed = greedy(client, "In the beginning", 4, logprobs=2).choices[0].logprobs
    assert len(listed.token_logprobs) == 4 and all(value <= 0 for value in listed.token_logprobs), listed
    text = greedy(client, "In the beginning", 16).choices[0].text
    stopped = greedy(client, "In the beginning", 16, stop=[text[10:14]]).choices[0]
    assert (stopped.text, stopped.finish_reason) == (text[:10], "stop"), stopped
    draws = [
        client.completions.create(model=MODEL, prompt="And God said", max_tokens=16, temperature=1, seed=seed).choices[0].text
        for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2], draws
    choice = greedy(client, "The answer is", 16, extra_body={"guided_choice": ["yes", "no"]}).choices[0].text
    assert choice in ("yes", "no"), choice
    try:
        client.completions.create(model=MODEL, prompt="In", max_tokens=4, n=2)
        raise AssertionError("n = 2 was accepted")
    except openai.APIStatusError as error:
        refused = f"{error.status_code} {error.message}"
    print("chat, log probabilities, stop texts, seeds and a guided choice are honoured")
    print(f"n = 2 is refused: {refused}")


def check_routing(running, workers):
    """A request goes to the worker that holds its prefix: the first of each prefix is sent to a worker by its number, and
    those that follow find it."""
    words = "In the beginning God created the heaven and the earth. And the earth was without form, and void; ".split()
    followed = {number: 0 for number in workers}
    for family in range(8):
        prefix = " ".join(words[(at * (family + 2)) % len(words)] for at in range(120))
        holder = workers[family % len(workers)]
        pinned = {"nvext": {"backend_instance_id": holder, "extra_fields": ["worker_id"]}}
        assert worker_of(greedy(running.client, prefix, 4, extra_body=pinned)) == holder
        # KV events reach the router a moment after the answer.
        time.sleep(0.5)
        later = [worker_of(greedy(running.client, f"{prefix} {at}", 4, extra_body=WORKER_ID)) for at in range(4)]
        assert later == [holder] * 4, (family, holder, later)
        followed[holder] += len(later)
    print(f"8 prefixes were sent to workers in turn; 4 requests that follow each went where it is: {sorted(followed.values())}")


def lose_a_worker(running, name, number, send, expected):
    """Ends a worker while requests run; all of them must end as if it had not."""
    before = migrations(running)
    requests = [Streamed(running.client, prompt) for prompt in PROMPTS]
    wait_for("every request streams", lambda: all(r.chunks > 20 or r.error for r in requests))
    hit = [request for request in requests if request.worker == number]
    least = min(request.chunks for request in requests)
    running.processes[name].send_signal(send)
    [request.join() for request in requests]
    running.processes[name].wait(90)
    lost = [request for request in requests if request.error or request.tokens != TOKENS or request.finish != "length"]
    assert not lost, [(r.prompt, r.tokens, r.finish, r.error) for r in lost]
    compared = [(request.prompt, request.text) for request in requests if expected]
    differ = [prompt for (prompt, text), wanted in zip(compared, expected) if text != wanted]
    assert not differ, differ
    migrated = migrations(running) - before
    assert hit and migrated == len(hit), (len(hit), migrated)
    pause = max(request.longest for request in hit)
    print(
        f"{name} gets {send.name} while {len(requests)} requests of {TOKENS} tokens stream (each had {least} chunks or more): "
        f"{len(hit)} of them ran on it; {migrated} migrated, 0 lost, {len(compared)} texts compared and equal; longest pause {pause:.1f} s"
    )


def migrations(running):
    """Requests that were continued on another worker while they streamed."""
    lines = [line for line in running.get("/metrics").splitlines() if "model_migration_total{" in line]
    return sum(int(float(line.split()[-1])) for line in lines if 'migration_type="ongoing_request"' in line)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--tilewright")
    parser.add_argument("--frontend", metavar="PYTHON")
    options = parser.parse_args()
    expected = []
    if options.tilewright:
        with serving(options.tilewright) as client:
            for prompt in PROMPTS:
                answer = greedy(client, prompt, TOKENS, extra_body={"ignore_eos": True})
                expected.append(answer.choices[0].text)
        print(f"tilewright serve gave {len(expected)} texts of {TOKENS} tokens")
    with cluster(options.program, options.frontend) as running:
        wait_for("the frontend listens", lambda: running.get("/health"))
        workers = {name: running.worker(name) for name in ("worker-1", "worker-2")}
        print(f"frontend and {len(workers)} workers run")
        check_texts(running)
        check_parameters(running)
        check_routing(running, list(workers.values()))
        lose_a_worker(running, "worker-1", workers["worker-1"], signal.SIGKILL, expected)
        check_texts(running)
        workers["worker-3"] = running.worker("worker-3")
        lose_a_worker(running, "worker-2", workers["worker-2"], signal.SIGTERM, expected)
        check_texts(running)


main()
