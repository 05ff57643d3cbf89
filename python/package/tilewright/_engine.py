"""The engine: a model on a device, prompts in, tokens out."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, Union, cast, overload

from . import _native
from ._native import EngineError
from ._plan import Plan

if TYPE_CHECKING:
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Self

#: A prompt: a text, or token ids.
Prompt = Union[str, Sequence[int]]
#: Why a text ended: a stop condition, the number of tokens, the model's positions, the caller, or
#: the time.
Finish = Literal["stop", "length", "positions", "cancelled", "timeout"]


@dataclass(frozen=True)
class Logprobs:
    """Natural log probabilities of a position, at temperature 1 and without penalties."""

    #: That of the chosen token.
    chosen: float
    #: The likeliest tokens with theirs, the likeliest first.
    top: list[tuple[int, float]]


@dataclass(frozen=True)
class Token:
    """A new token."""

    #: Its id.
    id: int
    #: The text that it makes certain, perhaps none.
    text: str
    #: Log probabilities, where the request asks for them.
    logprobs: Logprobs | None = None


@dataclass(frozen=True)
class Completion:
    """The text after a prompt."""

    #: The text, up to where it stops.
    text: str
    #: The new tokens.
    token_ids: list[int]
    #: Why it ended.
    finish: Finish
    #: Log probabilities of each token, where the request asks for them.
    logprobs: list[Logprobs] = field(default_factory=list)


@dataclass(frozen=True)
class Request:
    """What is asked for a prompt. The defaults are greedy decoding of 128 tokens.

    Numbers are checked when a request is submitted: :class:`EngineError` says what is wrong.
    """

    #: Most new tokens.
    max_new_tokens: int = 128
    #: Divides the logits; 0 chooses the likeliest token.
    temperature: float = 0.0
    #: Keeps this number of the likeliest tokens.
    top_k: int | None = None
    #: Keeps the fewest of the likeliest tokens whose probabilities reach this.
    top_p: float = 1.0
    #: Drops tokens less likely than this times the likeliest.
    min_p: float = 0.0
    #: Seed of the random numbers: it, the model, the device and the prompt determine the tokens.
    seed: int = 0
    #: Row of the random numbers: requests of one seed and prompt differ by it.
    row: int = 0
    #: Texts before which it ends.
    stop: Sequence[str] = ()
    #: Tokens that end it, besides the model's.
    stop_token_ids: Sequence[int] = ()
    #: Whether the model's end tokens do not end it.
    ignore_eos: bool = False
    #: New tokens before which nothing ends it.
    min_new_tokens: int = 0
    #: Divides the logits of tokens that occurred, above 0; 1 changes nothing.
    repetition_penalty: float = 1.0
    #: Subtracted from the logits of new tokens that occurred.
    presence_penalty: float = 0.0
    #: Subtracted from them for each occurrence.
    frequency_penalty: float = 0.0
    #: Length of n-grams that may not repeat; 0: all may.
    no_repeat_ngram: int = 0
    #: Numbers added to the logits of tokens.
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    #: Likeliest tokens whose log probabilities come with each token.
    logprobs: int | None = None
    #: Requests of a higher priority are first.
    priority: int = 0
    #: Seconds after which it ends.
    timeout: float | None = None
    #: Whether repeated text proposes tokens; the text is the same.
    speculate: bool = False
    #: A JSON schema that the text follows, or ``True`` for any JSON object.
    json_schema: Mapping[str, Any] | bool | None = None
    #: A regular expression that the whole text matches.
    regex: str | None = None
    #: The texts of which it is one.
    choice: Sequence[str] | None = None
    #: A grammar in Lark's syntax.
    lark: str | None = None

    @property
    def grammar(self) -> tuple[str, str] | None:
        """The kind of the grammar and its text."""
        given: list[tuple[str, str]] = []
        if self.json_schema is True:
            given.append(("json", ""))
        elif isinstance(self.json_schema, Mapping):
            given.append(("json_schema", json.dumps(self.json_schema)))
        if self.regex is not None:
            given.append(("regex", self.regex))
        if self.choice is not None:
            given.append(("choice", json.dumps(list(self.choice))))
        if self.lark is not None:
            given.append(("lark", self.lark))
        if len(given) > 1:
            raise EngineError("a text follows one of json_schema, regex, choice and lark; give one")
        return given[0] if given else None


class _Submitted:
    """A request as the extension module reads it."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.logit_bias = [(token, bias) for token, bias in request.logit_bias.items()]
        self.stop = [request.stop] if isinstance(request.stop, str) else list(request.stop)
        self.stop_token_ids = list(request.stop_token_ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


@dataclass(frozen=True)
class _Options:
    device: str | None
    rows: int
    context: int | None
    kv_tokens: int | None
    prompt_chunk: int | None
    kv: str | None
    weights: str | None
    deterministic: bool


class TextStream:
    """The tokens of a request as they arrive, for ``for`` and for ``async for``.

    Leaving a loop early does not end the request: :meth:`cancel` does, and so does dropping the
    stream.
    """

    def __init__(self, native: _native.Stream) -> None:
        self._native = native
        self._text: list[str] = []
        self._logprobs: list[Logprobs] = []
        self._completion: Completion | None = None

    def __iter__(self) -> Iterator[Token]:
        while (event := self._native.next()) is not None:
            token = self._taken(event)
            if token is not None:
                yield token

    async def __aiter__(self) -> AsyncIterator[Token]:
        loop = asyncio.get_running_loop()
        while True:
            more, event = self._native.poll()
            if not more:
                return
            if event is None:
                await _readable(loop, self._native.fileno())
                continue
            token = self._taken(event)
            if token is not None:
                yield token

    def completion(self) -> Completion:
        """The whole text, once the request has ended: waits for it."""
        for _ in self:
            pass
        return self._ended()

    async def acompletion(self) -> Completion:
        """The whole text, once the request has ended: other tasks run meanwhile."""
        async for _ in self:
            pass
        return self._ended()

    def cancel(self) -> None:
        """Ends the request; the tokens so far are its completion."""
        self._native.cancel()

    def _ended(self) -> Completion:
        if self._completion is None:
            raise EngineError("the request ended without a completion")
        return self._completion

    def _taken(self, event: _native.Token) -> Token | None:
        self._text.append(event.text)
        if event.id is not None:
            logprobs = None if event.logprobs is None else Logprobs(*event.logprobs)
            if logprobs is not None:
                self._logprobs.append(logprobs)
            return Token(event.id, event.text, logprobs)
        finish: Any = event.finish
        self._completion = Completion("".join(self._text), list(event.token_ids), finish, self._logprobs)
        # The text that was held back comes as a last piece of the last token.
        return Token(event.token_ids[-1], event.text) if event.text and event.token_ids else None


#: Keys of the configuration of a mixture of experts.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


def _held(name: str, tensor: Any) -> tuple[str, Any, Any]:
    """A tensor in the host's memory, contiguous, as the extension module takes it."""
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu().contiguous()
        return name, tensor, tensor
    import numpy

    array = numpy.ascontiguousarray(tensor)
    return name, (array.ctypes.data, array.dtype.name, array.shape, (1,) * array.ndim), array


async def _readable(loop: asyncio.AbstractEventLoop, fileno: int) -> None:
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fileno, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fileno)


class Engine:
    """A model on a device. Requests may come from any thread and are batched continuously.

    ``model`` is a folder of a Hugging Face checkpoint, or ``ORG/MODEL`` in the local cache.
    ``device`` is ``"cpu"``, ``"cuda:0"``, ``"cuda:0-3"`` (GPUs that share the model) or ``"sim"``
    (a simulated GPU); the default is ``cuda:0`` if there is one, else ``cpu``.

    ``rows`` requests run at a time, 1 to 64, with sequences of ``context`` tokens at most;
    ``kv_tokens`` are the tokens that the cache holds for all of them. ``weights`` quantises linear
    layers while loading (``"w4a16"``, ``"w8a16"``, ``"fp8"``), ``kv`` is the type of keys and values
    (``"bf16"``, ``"fp8"``), ``prompt_chunk`` is the number of tokens of a prefill chunk on a GPU.
    ``deterministic`` gives every step the same width, so that a text does not depend on others.

    ``tensors`` are weights in memory in place of the folder's files, by the names that these would have:
    arrays of numpy or tensors of torch of float32, float16 or bfloat16. Those that are contiguous in the
    host's memory are not copied, and must stay as they are while the engine lives.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        device: str | None = None,
        rows: int = 16,
        context: int | None = None,
        kv_tokens: int | None = None,
        prompt_chunk: int | None = None,
        kv: str | None = None,
        weights: str | None = None,
        deterministic: bool = False,
        tensors: Mapping[str, Any] | None = None,
    ) -> None:
        options = _Options(device, rows, context, kv_tokens, prompt_chunk, kv, weights, deterministic)
        held = None if tensors is None else [_held(name, tensor) for name, tensor in tensors.items()]
        self._native = _native.Engine(os.fspath(model), options, held)

    @classmethod
    def from_transformers(cls, model: Any, tokenizer: Any, **options: Any) -> Engine:
        """An engine for a model of the package ``transformers``, with its tokenizer.

        The engine reads the model's weights where they are, if that is the host's memory, so that they
        must stay as they are; those of a GPU are copied to the host. Of a mixture of experts, whose files
        have other tensors than the model, files are written to a temporary folder, read and removed.
        ``options`` are those of the constructor.
        """
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save_pretrained(folder)
            if any(hasattr(model.config, key) for key in _EXPERTS):
                model.save_pretrained(folder, safe_serialization=True)
                return cls(folder, **options)
            model.config.save_pretrained(folder)
            if model.generation_config is not None:
                model.generation_config.save_pretrained(folder)
            return cls(folder, tensors=model.state_dict(), **options)

    def plan(
        self,
        *,
        layers: range | None = None,
        attention: int | None = None,
        mlp: int | None = None,
        rows: int = 1,
        context: int | None = None,
        pages: int | None = None,
        sampling: bool = False,
    ) -> Plan:
        """A decode step of the model as one launch, for a stream and buffers of one's own.

        ``layers`` takes decoder layers alone, from the residual stream before them to that after them;
        ``attention`` and ``mlp`` half of a layer. ``rows`` are 1 to 16 tokens; ``context`` is the longest
        sequence, ``pages`` are those of each pool: as many as the rows need where nothing is said. The
        engine runs on one GPU, or on a simulated one. Weights that plans of other parts read are not
        shared, and stay as long as the engine.
        """
        halves = {"attention": attention, "mlp": mlp}
        named = [(name, layer, 1) for name, layer in halves.items() if layer is not None]
        if layers is not None:
            if layers.step != 1:
                raise EngineError(f"{layers} skips layers; a plan has consecutive ones")
            named.append(("layers", layers.start, len(layers)))
        if len(named) > 1:
            raise EngineError("a plan is of layers, or of the attention or the MLP of one; name one of them")
        part, first, count = named[0] if named else ("model", 0, 0)
        if first < 0:
            raise EngineError(f"layer {first} is none of the model; the first is 0")
        asked = (part, first, count, rows, context or self.positions, pages, sampling)
        return Plan(self._native.plan(asked), self.device.startswith("sim"))

    @overload
    def generate(self, prompts: Prompt, request: Request = ..., **settings: Any) -> Completion: ...
    @overload
    def generate(self, prompts: Sequence[Prompt], request: Request = ..., **settings: Any) -> list[Completion]: ...
    def generate(
        self, prompts: Prompt | Sequence[Prompt], request: Request = Request(), **settings: Any
    ) -> Completion | list[Completion]:
        """Continues a prompt, or each of a list of prompts, which are batched.

        ``settings`` are fields of :class:`Request`: ``generate("Hello", max_new_tokens=20)``.
        """
        request = replace(request, **settings)
        if _is_prompt(prompts):
            return self.stream(prompts, request).completion()
        rows = [replace(request, row=request.row + at) for at in range(len(prompts))]
        streams = [self.stream(prompt, row) for prompt, row in zip(cast(Sequence[Prompt], prompts), rows)]
        return [stream.completion() for stream in streams]

    def stream(self, prompt: Prompt, request: Request = Request(), **settings: Any) -> TextStream:
        """Continues a prompt, and gives its tokens as they arrive."""
        ids = self.encode(prompt) if isinstance(prompt, str) else list(prompt)
        submitted = _Submitted(replace(request, **settings))
        return TextStream(self._native.submit(ids, submitted))

    def chat(
        self, messages: Sequence[Mapping[str, Any]], request: Request = Request(), **settings: Any
    ) -> Completion:
        """The answer to a conversation, by the model's chat template."""
        return self.stream(self.chat_ids(messages), request, **settings).completion()

    def chat_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> list[int]:
        """Token ids of a conversation, up to the start of the model's answer.

        ``variables`` are the template's own, such as ``enable_thinking``.
        """
        conversation: dict[str, Any] = {"messages": list(messages)}
        if tools is not None:
            conversation["tools"] = list(tools)
        given = [(name, json.dumps(value)) for name, value in variables.items()]
        return self._native.chat_ids(json.dumps(conversation), given)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with the special tokens that the tokenizer adds."""
        return self._native.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of token ids."""
        return self._native.decode(list(token_ids))

    def logits(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits after every token: an array of f32, ``[len(token_ids), vocabulary]``."""
        import numpy

        logits = self._native.logits(list(token_ids))
        return numpy.frombuffer(logits, dtype="<f4").reshape(-1, self.vocabulary)

    @property
    def vocabulary(self) -> int:
        """Tokens of the model's vocabulary."""
        return self._native.vocabulary

    @property
    def positions(self) -> int:
        """Most tokens of a sequence."""
        return self._native.positions

    @property
    def device(self) -> str:
        """The device that the model runs on."""
        return self._native.device

    @property
    def end_tokens(self) -> list[int]:
        """The tokens that end a text."""
        return self._native.end_tokens

    @property
    def notes(self) -> list[str]:
        """Settings of the checkpoint that are not applied, and weights that the device rounds."""
        return self._native.notes

    def load(self) -> dict[str, int]:
        """How many requests run and wait, and pages of the cache that are held and that there are."""
        return dict(zip(("running", "waiting", "held_pages", "pages"), self._native.load_now()))

    def close(self, timeout: float = 30.0) -> bool:
        """Ends the engine once its requests are gone; whether that was within ``timeout`` seconds."""
        return self._native.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _is_prompt(prompts: Prompt | Sequence[Prompt]) -> TypeGuard[Prompt]:
    return isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int))
