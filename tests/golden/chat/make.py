"""Renders every template of `templates` for every conversation of `conversations` with Jinja2, as transformers does.

The templates are written for this test in the style of those that published models bring. A conversation is a file of
`--messages`; `variables.json` has template variables of some. `expected.json` holds for each template and conversation the text, the reason that `raise_exception` gave, or nothing where Jinja2 fails otherwise.

    pip install jinja2
    python make.py
"""

import json
from datetime import datetime
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = Path(__file__).parent
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


class Generation(Extension):
    """The blocks that mark what an assistant said; they change no text."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


class Refused(Exception):
    pass


def raise_exception(reason):
    raise Refused(reason)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def render(source, conversation, variables):
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    if isinstance(conversation, list):
        conversation = {"messages": conversation}
    given = {"tools": None, "documents": None, "add_generation_prompt": True, **TOKENS, **variables, **conversation}
    try:
        return {"text": environment.from_string(source).render(**given)}
    except Refused as refused:
        return {"refused": str(refused)}
    except (jinja2.TemplateError, TypeError, KeyError, IndexError, AttributeError, ValueError):
        return {}


variables = json.loads((HERE / "variables.json").read_text())
conversations = {path.stem: json.loads(path.read_text()) for path in sorted((HERE / "conversations").glob("*.json"))}
expected = {
    path.stem: {
        name: render(path.read_text(), conversation, variables.get(name, {}))
        for name, conversation in conversations.items()
    }
    for path in sorted((HERE / "templates").glob("*.jinja"))
}
(HERE / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")
