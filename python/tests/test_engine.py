"""The engine: texts of the repository's model, streams, batches, threads, an event loop."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright import Engine, EngineError, Request

from .conftest import MODELS

PROMPT = "In the beginning"


def test_a_stream_is_its_completion(engine: Engine) -> None:
    whole = engine.generate(PROMPT, max_new_tokens=24)
    stream = engine.stream(PROMPT, max_new_tokens=24)
    assert "".join(token.text for token in stream) == whole.text
    assert stream.completion() == whole
    assert (len(whole.token_ids), whole.finish) == (24, "length")
    assert engine.generate(engine.encode(PROMPT), max_new_tokens=24) == whole


def test_greedy_tokens_have_the_largest_logits(engine: Engine) -> None:
    prompt = engine.encode(PROMPT)
    tokens = engine.generate(prompt, max_new_tokens=12).token_ids
    logits = engine.logits(prompt + tokens)
    assert logits.shape == (len(prompt) + 12, engine.vocabulary) and logits.dtype == np.float32
    assert list(logits[len(prompt) - 1 : -1].argmax(1)) == tokens
    scored = engine.generate(prompt, max_new_tokens=12, logprobs=2)
    exact = logits[len(prompt) - 1 : -1].astype(np.float64)
    exact -= np.log(np.exp(exact - exact.max(1, keepdims=True)).sum(1, keepdims=True)) + exact.max(1, keepdims=True)
    for row, token, found in zip(exact, tokens, scored.logprobs):
        assert abs(found.chosen - row[token]) < 1e-4
        assert [top for top, _ in found.top] == list(np.argsort(-row)[:2])


def test_batches_have_the_texts_of_each_alone(engine: Engine) -> None:
    prompts = [PROMPT, "And God said", "Let there be", "The earth was without form"]
    request = Request(max_new_tokens=10, temperature=0.8, seed=3)
    alone = [engine.generate(prompt, request, row=row).text for row, prompt in enumerate(prompts)]
    assert [made.text for made in engine.generate(prompts, request)] == alone
    assert engine.generate([], request) == []


def test_threads_share_an_engine_and_let_others_run(engine: Engine) -> None:
    alone = engine.generate(PROMPT, max_new_tokens=16)
    counted = 0
    done = threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.wait(0.001):
            counted += 1

    watcher = threading.Thread(target=count)
    watcher.start()
    with ThreadPoolExecutor(6) as pool:
        texts = list(pool.map(lambda _: engine.generate(PROMPT, max_new_tokens=16), range(12)))
    done.set()
    watcher.join()
    assert texts == [alone] * 12
    assert counted > 0, "another thread runs while the model computes"


def test_an_event_loop_serves_many_streams(engine: Engine) -> None:
    alone = engine.generate(PROMPT, max_new_tokens=16)

    async def ask() -> str:
        return "".join([token.text async for token in engine.stream(PROMPT, max_new_tokens=16)])

    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        assert await asyncio.gather(*(ask() for _ in range(20))) == [alone.text] * 20
        assert await engine.stream(PROMPT, max_new_tokens=16).acompletion() == alone
        ticking.cancel()
        assert ticks > 0

    asyncio.run(main())


def test_what_is_dropped_or_cancelled_ends(engine: Engine) -> None:
    stream = engine.stream(PROMPT, max_new_tokens=800, ignore_eos=True)
    next(iter(stream))
    stream.cancel()
    assert stream.completion().finish == "cancelled"
    dropped = engine.stream(PROMPT, max_new_tokens=800, ignore_eos=True)
    next(iter(dropped))
    del dropped
    until = time.monotonic() + 20
    while engine.load()["running"] + engine.load()["waiting"] > 0:
        assert time.monotonic() < until, engine.load()
        time.sleep(0.01)
    assert engine.generate(PROMPT, max_new_tokens=800, ignore_eos=True, timeout=0.05).finish == "timeout"


def test_texts_stop_where_they_are_told(engine: Engine) -> None:
    whole = engine.generate(PROMPT, max_new_tokens=24)
    word = whole.text.split()[2]
    stopped = engine.generate(PROMPT, max_new_tokens=24, stop=[word])
    assert stopped.finish == "stop" and stopped.text == whole.text[: whole.text.index(word)]
    assert engine.generate(PROMPT, max_new_tokens=24, stop=word) == stopped
    token = whole.token_ids[5]
    ended = engine.generate(PROMPT, max_new_tokens=24, stop_token_ids=[token])
    assert ended.finish == "stop" and token not in ended.token_ids[:-1]
    assert engine.generate(PROMPT, max_new_tokens=4, logit_bias={7: 100.0}).token_ids == [7] * 4


def test_texts_follow_grammars(engine: Engine) -> None:
    schema = {"type": "object", "properties": {"day": {"type": "integer"}}, "required": ["day"]}
    made = engine.generate(PROMPT, max_new_tokens=200, json_schema=schema, temperature=0.5, seed=2)
    if made.finish == "stop":
        assert isinstance(json.loads(made.text)["day"], int)
    assert engine.generate(PROMPT, choice=["light", "darkness"]).text in ("light", "darkness")
    assert re.fullmatch("[ab]{3}", engine.generate(PROMPT, regex="[ab]{3}").text)


def test_the_simulated_gpu_has_the_tokens_of_the_cpu() -> None:
    with Engine(MODELS / "tiny-llama", device="cpu", rows=1) as cpu:
        expected = cpu.generate("In the", max_new_tokens=2).token_ids
    with Engine(MODELS / "tiny-llama", device="sim:3", rows=1, context=16) as simulated:
        assert simulated.device == "sim:3"
        assert simulated.generate("In the", max_new_tokens=2).token_ids == expected


def tensors_of(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    header.pop("__metadata__", None)
    types = {"BF16": ml_dtypes.bfloat16, "F32": np.float32}
    found = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        found[name] = np.frombuffer(data[first:end], types[entry["dtype"]]).reshape(entry["shape"])
    return found


def test_weights_in_memory_are_those_of_files(engine: Engine) -> None:
    folder = MODELS / "tiny-llama"
    tensors = tensors_of(folder / "model.safetensors")
    with Engine(folder, device="cpu", tensors=tensors) as made:
        found = made.generate(PROMPT, max_new_tokens=12)
    assert found == engine.generate(PROMPT, max_new_tokens=12)
    name = next(iter(tensors))
    for wrong, message in [
        ({}, "tensor"),
        (tensors | {"model.more": np.ones(3, np.float32)}, "model.more"),
        (tensors | {name: tensors[name][1:]}, name),
        (tensors | {name: np.ones(3, np.int32)}, f"{name} is i32"),
    ]:
        with pytest.raises(EngineError, match=message):
            Engine(folder, device="cpu", tensors=wrong)


def test_mistakes_are_one_exception(engine: Engine) -> None:
    wrong = [
        (lambda: Engine("no/such-model"), "no"),
        (lambda: Engine(MODELS / "tiny-llama", device="tpu"), "tpu"),
        (lambda: Engine(MODELS / "tiny-llama", device="cpu", rows=0), "rows is 0"),
        (lambda: Engine(MODELS / "tiny-llama", device="cpu", weights="int3"), "int3"),
        (lambda: engine.generate([engine.vocabulary]), "vocabulary"),
        (lambda: engine.generate(PROMPT, temperature=-1.0), "temperature"),
        (lambda: engine.generate(PROMPT, top_p=2.0), "top-p"),
        (lambda: engine.generate(PROMPT, stop=[""]), "stop"),
        (lambda: engine.generate(PROMPT, regex="["), "invalid regex"),
        (lambda: engine.generate(PROMPT, regex="a", choice=["b"]), "give one"),
        (lambda: engine.generate([1] * (engine.positions + 1)), "positions"),
    ]
    for call, says in wrong:
        with pytest.raises(EngineError, match=says) as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(TypeError, match="temprature"):
        engine.generate(PROMPT, temprature=1.0)
    with pytest.raises(ValueError, match="seconds"):
        engine.generate(PROMPT, timeout=-1.0)


def test_a_closed_engine_says_so() -> None:
    engine = Engine(MODELS / "tiny-llama", device="cpu", rows=1)
    assert engine.close() and engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.generate(PROMPT)
