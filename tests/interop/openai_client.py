#!/usr/bin/env python3
"""Runs the official `openai` package against `tilewright serve`.

Usage: openai_client.py TILEWRIGHT MODELS, the program and the folder of the shipped models.
"""

import contextlib
import json
import pathlib
import sys
import tempfile

import openai

import scripted
from serving import serving

TEMPLATE = (
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}"
    "{% if false %}<tool_call></think>{% endif %}<|reply|>"
)
PIECES = [
    "<think>", "Let me", " see.", "</think>", "It is ", "noon.", "<tool_call>", '{"name": "time",',
    ' "arguments": {"zone": "UTC"}}', "</tool_call>",
]
TOOLS = [{"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}}]
MESSAGES = [{"role": "user", "content": "What time is it?"}]


@contextlib.contextmanager
def client_of(program, model):
    with serving(program, model, "--name", "tiny") as address:
        yield openai.OpenAI(base_url=address + "/v1", api_key="none", max_retries=0)


def completions(client):
    ask = dict(model="tiny", prompt="In the beginning", max_tokens=16, temperature=0)
    whole = client.completions.create(**ask)
    text = whole.choices[0].text
    assert whole.usage.completion_tokens == 16 and whole.choices[0].finish_reason == "length", whole
    chunks = list(client.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == text
    assert chunks[-1].usage == whole.usage
    several = client.completions.create(**{**ask, "temperature": 1.0}, n=3, seed=1)
    assert len({choice.text for choice in several.choices}) == 3
    stopped = client.completions.create(**ask, stop=[text[10:14]])
    assert stopped.choices[0].text == text[: text.find(text[10:14])] and stopped.choices[0].finish_reason == "stop"
    logprobs = client.completions.create(**ask, logprobs=2).choices[0].logprobs
    assert "".join(logprobs.tokens) == text and all(value < 0 for value in logprobs.token_logprobs)
    extra = client.completions.create(**ask, extra_body={"top_k": 1, "min_tokens": 16, "ignore_eos": True})
    assert extra.choices[0].text == text
    print("completions: whole, streamed, n, stop, logprobs, extra_body")


def refusals(client):
    for more, param in [({"temperature": 9e9}, "temperature"), ({"suffix": "x"}, "suffix")]:
        try:
            client.completions.create(model="tiny", prompt="a", **more)
        except openai.BadRequestError as error:
            assert error.param == param, error
        else:
            raise AssertionError(more)
    try:
        client.completions.create(model="gpt-4", prompt="a")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found", error
    print("errors: BadRequestError with param, NotFoundError")


def cancellation(client):
    stream = client.completions.create(model="tiny", prompt="In the", max_tokens=900, stream=True)
    next(iter(stream))
    stream.close()
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    print("a stream that is closed, models")


def chats(client):
    ask = dict(model="tiny", messages=MESSAGES, tools=TOOLS, temperature=0)
    choice = client.chat.completions.create(**ask, logprobs=True, top_logprobs=2).choices[0]
    message = choice.message
    assert (message.content, message.reasoning_content) == ("It is noon.", "Let me see."), message
    assert choice.finish_reason == "tool_calls" and len(choice.logprobs.content[0].top_logprobs) == 2
    call = message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("time", {"zone": "UTC"})
    history = [*MESSAGES, message, {"role": "tool", "tool_call_id": call.id, "content": "noon"}]
    dumped = [*MESSAGES, message.model_dump(), history[-1]]
    for messages in (history, dumped):
        client.chat.completions.create(**{**ask, "messages": messages})
    content = reasoning = arguments = ""
    for chunk in client.chat.completions.create(**ask, stream=True):
        delta = chunk.choices[0].delta
        content += delta.content or ""
        reasoning += getattr(delta, "reasoning_content", None) or ""
        arguments += "".join(call.function.arguments for call in delta.tool_calls or [])
    assert (content, reasoning, json.loads(arguments)) == ("It is noon.", "Let me see.", {"zone": "UTC"})
    with client.chat.completions.stream(**ask) as stream:
        final = stream.get_final_completion().choices[0].message
    assert final.tool_calls[0].function.name == "time", final
    print("chats: reasoning, tools, history, streamed, the package's own accumulation")


def schemas(client):
    schema = {
        "type": "object",
        "properties": {"hour": {"type": "integer", "minimum": 0, "maximum": 23}, "half": {"enum": ["am", "pm"]}},
        "required": ["hour", "half"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "time", "schema": schema, "strict": True}}
    ask = dict(model="tiny", messages=MESSAGES, response_format=form, max_tokens=100)
    choice = client.chat.completions.create(**ask, temperature=0).choices[0]
    found = json.loads(choice.message.content)
    assert choice.finish_reason == "stop" and sorted(found) == ["half", "hour"] and 0 <= found["hour"] <= 23, choice
    chunks = client.chat.completions.create(**ask, temperature=0, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == choice.message.content
    one = {"structured_outputs": {"choice": ["noon", "night"]}}
    chosen = client.completions.create(model="tiny", prompt="It is", max_tokens=20, extra_body=one).choices[0]
    assert chosen.text in ("noon", "night") and chosen.finish_reason == "stop", chosen
    try:
        client.completions.create(model="tiny", prompt="It is", extra_body={"structured_outputs": {"regex": "("}})
    except openai.BadRequestError as error:
        assert error.param == "structured_outputs", error
    else:
        raise AssertionError("a pattern that is none")
    print("structured output: a schema, streamed, a choice, a pattern that is none")


def main():
    program, models = sys.argv[1], pathlib.Path(sys.argv[2])
    print("openai", openai.__version__)
    with client_of(program, models / "tiny-llama") as client:
        completions(client)
        refusals(client)
        cancellation(client)
    with tempfile.TemporaryDirectory() as folder:
        scripted.write(folder, models / "tiny-llama/tokenizer.json", TEMPLATE, PIECES)
        with client_of(program, folder) as client:
            chats(client)
            schemas(client)


main()
