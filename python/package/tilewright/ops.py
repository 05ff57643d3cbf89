"""Kernels on arrays: torch, numpy, CuPy, JAX and whatever else speaks DLPack.

Outputs belong to the caller: ``rms_norm(x, weight, out=out)``. An op checks types, shapes, strides and
alignment, and raises :class:`OpError` where it has no kernel: there is no slower way taken in silence.

On a GPU an op works on the arrays in place, on torch's current stream, or on the ``stream`` that is
given (the value of a ``cudaStream_t``). It allocates nothing and waits for nothing; its kernel is made
at the first call of each shape, so call it once before capturing a CUDA graph.

Arrays in the host's memory are refused, but inside :func:`simulator`, where ops run on a simulated GPU
that checks every access: exact and slow, for tests.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
from collections.abc import Iterator
from typing import Any, Optional

from . import _native
from ._native import OpError

#: An array of a library.
Array = Any

__all__ = [
    "Array",
    "OpError",
    "add_rms_norm",
    "argmax",
    "attention_decode",
    "attention_prefill",
    "attention_workspace",
    "embedding",
    "gated",
    "gemm",
    "gemm_workspace",
    "linear",
    "merge_attention",
    "pack",
    "rms_norm",
    "rope",
    "sample",
    "sampling_request",
    "silu_mul",
    "simulator",
]

_HOST = -1
#: DLPack's numbers of kinds of devices: the host, and CUDA.
_DL_CPU, _DL_CUDA = 1, 2

_state = threading.local()


@functools.cache
def _on(device: str) -> _native.Ops:
    return _native.Ops(device)


@contextlib.contextmanager
def simulator(seed: int = 0) -> Iterator[None]:
    """Runs ops on arrays in the host's memory on a simulated GPU, on this thread."""
    before: Optional[_native.Ops] = getattr(_state, "simulated", None)
    _state.simulated = _native.Ops(f"sim:{seed}")
    try:
        yield
    finally:
        _state.simulated = before


class _Call:
    """The device and the stream of a call, from its first array."""

    __slots__ = ("native", "stream", "_device", "_given")

    def __init__(self, stream: int | None) -> None:
        self.native: Any = None
        self.stream = 0
        self._device = _HOST
        self._given = stream

    def array(self, name: str, array: Array, *, writes: bool = False) -> Any:
        """An array as the extension module takes it."""
        device, described = _described(name, array, writes)
        if self.native is None:
            self._device = device
            if device == _HOST:
                self.native = getattr(_state, "simulated", None)
                if self.native is None:
                    raise OpError(
                        f"{name} lies in the host's memory; ops run on NVIDIA GPUs, and on a simulated one "
                        "inside `with tilewright.ops.simulator():`"
                    )
            else:
                self.native = _on(f"cuda:{device}")
                self.stream = _current_stream(device) if self._given is None else self._given
        elif device != self._device:
            raise OpError(f"{name} lies on another device than the first operand")
        return described

    def __call__(self, op: str, *operands: Any) -> None:
        """Runs an op. Its operands say where, so that they come first."""
        getattr(self.native, op)(self.stream, *operands)

    def optional(self, name: str, array: Array | None, *, writes: bool = False) -> Any:
        return None if array is None else self.array(name, array, writes=writes)


def rms_norm(x: Array, weight: Array, *, out: Array, eps: float = 1e-6, stream: int | None = None) -> None:
    """``out = x * weight / sqrt(mean(x²) + eps)`` over the last axis, sums in float32.

    ``x`` is ``[.., width]`` of float32, float16 or bfloat16, and ``out`` as ``x``, which it may be;
    ``weight`` is ``[width]``.
    """
    call = _Call(stream)
    arrays = call.array("x", x), call.array("weight", weight), call.array("out", out, writes=True)
    call("rms_norm", *arrays, eps)


def add_rms_norm(
    x: Array, added: Array, weight: Array, *, out: Array, eps: float = 1e-6, stream: int | None = None
) -> None:
    """``x += added``, then ``out`` is the norm of ``x``: a residual stream and its next norm.

    The mean square is that of the sums before they are rounded to the type of ``x``.
    """
    call = _Call(stream)
    arrays = call.array("x", x, writes=True), call.array("weight", weight), call.array("out", out, writes=True)
    call("rms_norm", *arrays, eps, call.array("added", added))


def gated(gate: Array, up: Array, *, out: Array, activation: str = "silu", stream: int | None = None) -> None:
    """``out = activation(gate) * up``; the activation is ``silu`` or ``gelu_tanh``."""
    call = _Call(stream)
    arrays = call.array("gate", gate), call.array("up", up), call.array("out", out, writes=True)
    call("gated", activation, *arrays)


def silu_mul(gate: Array, up: Array, *, out: Array, stream: int | None = None) -> None:
    """``out = silu(gate) * up``."""
    gated(gate, up, out=out, stream=stream)


def embedding(table: Array, ids: Array, *, out: Array, stream: int | None = None) -> None:
    """``out[i] = table[ids[i]]``, zeros where an id is not one of the table.

    ``table`` is ``[vocabulary, width]`` of bfloat16, ``ids`` int32 of any shape.
    """
    call = _Call(stream)
    arrays = call.array("table", table), call.array("ids", ids), call.array("out", out, writes=True)
    call("embedding", *arrays)


def rope(x: Array, turns: Array, positions: Array, *, out: Array, stream: int | None = None) -> None:
    """Rotates heads ``[rows, heads, dim]`` for their positions; dimensions i and i + dim/2 are a pair.

    ``turns`` has the cosine and sine of each position and pair, float32 ``[positions, dim / 2, 2]``;
    ``positions`` is int32 ``[rows]``, and rows of a negative one become zeros. ``out`` may be ``x``.
    """
    call = _Call(stream)
    arrays = (
        call.array("x", x),
        call.array("turns", turns),
        call.array("positions", positions),
        call.array("out", out, writes=True),
    )
    call("rope", *arrays)


def argmax(logits: Array, *, out: Array, stream: int | None = None) -> None:
    """The likeliest token of each row of float32 logits, to int32 ``out``; the first of equals."""
    call = _Call(stream)
    call("choose", call.array("logits", logits), call.array("out", out, writes=True))


def sample(logits: Array, requests: Array, *, out: Array, stream: int | None = None) -> None:
    """A random token of each row of float32 logits, to int32 ``out``.

    ``requests`` is uint8 ``[rows, 32]``, a :func:`sampling_request` for each row.
    """
    call = _Call(stream)
    arrays = call.array("logits", logits), call.array("out", out, writes=True)
    call("choose", *arrays, call.array("requests", requests))


def sampling_request(
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 0,
    step: int = 0,
    row: int = 0,
) -> bytes:
    """How :func:`sample` chooses a row's token: 32 bytes. Random numbers follow from seed, step and row."""
    return bytes(_native.sampling_request(temperature, top_k, top_p, seed, step, row))


def pack(weight: Array, form: str = "bf16") -> Array:
    """A weight ``[N, K]`` of bfloat16 in the order, and the form, that :func:`linear` reads.

    The forms are ``bf16``; ``w4a16``, integers of 4 bits with a scale for each 128 columns; ``w8a16``,
    integers of 8 bits with a scale for each row; and ``fp8``, e4m3 with a scale for each row. Codes are
    the nearest ones.

    The weight is a tensor of torch, of any device, or an array of numpy in the host's memory; the
    result is one axis of uint8, of the same library and device. K is a multiple of 64, of ``w4a16`` of
    128.
    """
    torch = sys.modules.get("torch")
    if len(weight.shape) != 2 or "bfloat16" not in str(weight.dtype):
        raise OpError(f"pack: the weight is {weight.dtype} {tuple(weight.shape)}; it must be bfloat16 [N, K]")
    columns = int(weight.shape[1])
    if torch is not None and isinstance(weight, torch.Tensor):
        raw = weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
        packed = _native.pack_linear(raw, columns, form)
        return torch.frombuffer(bytearray(packed), dtype=torch.uint8).to(weight.device)
    import numpy

    return numpy.frombuffer(_native.pack_linear(weight.tobytes(), columns, form), dtype=numpy.uint8)


def linear(
    x: Array,
    packed: Array,
    *,
    out: Array,
    form: str = "bf16",
    bias: Array | None = None,
    residual: Array | None = None,
    stream: int | None = None,
) -> None:
    """``out = x @ w.T + bias + residual`` for 1 to 16 rows, where ``packed`` is ``pack(w, form)``.

    ``x`` is ``[.., K]`` of bfloat16, ``out`` ``[.., N]`` of bfloat16 or float32, with ``residual`` of its
    type; ``bias`` is bfloat16. Weights are fetched before earlier work of the stream has ended: the
    launch just before must not write them. Forms other than ``bf16`` need compute capability 9.0.
    """
    call = _Call(stream)
    call(
        "linear",
        form,
        call.array("x", x),
        call.array("packed", packed),
        call.array("out", out, writes=True),
        call.optional("bias", bias),
        call.optional("residual", residual),
    )


def gemm(
    a: Array,
    b: Array,
    *,
    out: Array,
    bias: Array | None = None,
    activation: str | None = None,
    residual: Array | None = None,
    workspace: Array | None = None,
    stream: int | None = None,
) -> None:
    """``out = activation(a @ b.T + bias) + residual``, sums in float32.

    ``a`` is ``[.., K]`` and ``b`` ``[N, K]``, both bfloat16 or float16; ``out`` is of their type or
    float32, as are ``bias`` and ``residual``. With a float32 ``workspace`` of
    :func:`gemm_workspace` elements, a long contraction of a small result is shared by more blocks.
    """
    call = _Call(stream)
    call("gemm", call.array("a", a),
        call.array("b", b),
        call.array("out", out, writes=True),
        call.optional("bias", bias),
        activation,
        call.optional("residual", residual),
        call.optional("workspace", workspace, writes=True),
    )


def gemm_workspace(m: int, n: int) -> int:
    """Elements of the workspace of products with results of ``[m, n]``."""
    return _native.Ops.gemm_workspace(m, n)


def _scale(q: Array) -> float:
    dim = int(q.shape[-1]) if len(q.shape) else 0
    return 1.0 / math.sqrt(max(dim, 1))


def attention_decode(
    q: Array,
    keys: Array,
    values: Array,
    tokens: Array,
    *,
    out: Array,
    workspace: Array,
    scale: float | None = None,
    table: Array | None = None,
    soft_cap: float | None = None,
    window: int | None = None,
    sinks: Array | None = None,
    lse: Array | None = None,
    stream: int | None = None,
) -> None:
    """One query per sequence, with its cached keys and values: ``softmax(scale * q @ K.T) @ V``.

    ``q`` is ``[sequences, heads, dim]`` of bfloat16. ``keys`` and ``values`` are ``[sequences, kv_heads,
    capacity, dim]``, or with a ``table`` (int32 ``[sequences, pages of a sequence]``) pools of pages,
    ``[kv_heads, pages, page_tokens, dim]``. ``tokens`` is int32 ``[sequences]``: how many each has.
    ``scale`` is ``dim ** -0.5`` where nothing is said.

    ``workspace`` is float32 of :func:`attention_workspace` elements, zeros before its first use; calls
    that run at the same time need one each. ``window`` is the number of newest tokens that a query
    sees, ``sinks`` a logit of each head in the softmax, float32 ``[heads]``.

    ``lse``, float32 ``[sequences, heads]``, gets the natural logarithm of the sum of ``exp(score)``,
    sinks included: :func:`merge_attention` takes it.
    """
    call = _Call(stream)
    call("attention_decode", call.array("q", q),
        call.array("keys", keys),
        call.array("values", values),
        call.array("tokens", tokens),
        call.array("workspace", workspace, writes=True),
        call.array("out", out, writes=True),
        _scale(q) if scale is None else scale,
        call.optional("table", table),
        soft_cap,
        window,
        call.optional("sinks", sinks),
        call.optional("lse", lse, writes=True),
    )


def attention_prefill(
    q: Array,
    keys: Array,
    values: Array,
    query_starts: Array,
    token_starts: Array,
    *,
    out: Array,
    scale: float | None = None,
    causal: bool = True,
    longest: int | None = None,
    table: Array | None = None,
    soft_cap: float | None = None,
    window: int | None = None,
    sinks: Array | None = None,
    lse: Array | None = None,
    stream: int | None = None,
) -> None:
    """The newest tokens of sequences as queries: ``softmax(scale * q @ K.T) @ V``.

    ``q`` is ``[rows, heads, dim]`` of bfloat16, one sequence after the other: those of sequence ``i``
    are rows ``query_starts[i]`` to ``query_starts[i + 1]``. Its tokens, the queries among them, are
    ``token_starts[i + 1] - token_starts[i]``. Both are int32 ``[sequences + 1]``.

    ``keys`` and ``values`` are a cache as :func:`attention_decode` takes it, dense or with a ``table``,
    or of three axes, ``[tokens, kv_heads, dim]``: those of sequence ``i`` are tokens
    ``token_starts[i]`` to ``token_starts[i + 1]``. On compute capability 9.0, pages have a multiple of
    8 tokens.

    A causal query sees the tokens up to its own; ``window`` is the number of the newest of these that
    it sees. ``longest`` is the number of queries of the longest sequence, or more: later ones are not
    computed. Without it, more blocks are started than several sequences need.

    ``sinks`` and ``lse``, float32 ``[rows, heads]``, are as in :func:`attention_decode`.
    """
    call = _Call(stream)
    call("attention_prefill", call.array("q", q),
        call.array("keys", keys),
        call.array("values", values),
        call.array("query_starts", query_starts),
        call.array("token_starts", token_starts),
        call.array("out", out, writes=True),
        _scale(q) if scale is None else scale,
        causal,
        longest,
        call.optional("table", table),
        soft_cap,
        window,
        call.optional("sinks", sinks),
        call.optional("lse", lse, writes=True),
    )


def merge_attention(
    a: Array,
    lse_a: Array,
    b: Array,
    lse_b: Array,
    *,
    out: Array,
    lse: Array | None = None,
    stream: int | None = None,
) -> None:
    """The attention over two sets of tokens, of the results ``a`` and ``b`` of the same queries.

    ``a``, ``b`` and ``out`` are ``[.., dim]`` of bfloat16, and ``out`` may be ``a`` or ``b``. ``lse_a``,
    ``lse_b`` and ``lse`` are float32 of the shape without ``dim``; ``lse``, in memory of its own, gets
    the log-sum-exp over both sets. At most one of the results may have sinks.
    """
    call = _Call(stream)
    call("merge_attention", call.array("a", a),
        call.array("lse_a", lse_a),
        call.array("b", b),
        call.array("lse_b", lse_b),
        call.array("out", out, writes=True),
        call.optional("lse", lse, writes=True),
    )


def attention_workspace(q: Array, keys: Array, table: Array | None = None) -> int:
    """Elements of the workspace of :func:`attention_decode` for these arrays."""
    call = _Call(None)
    call.array("q", q)
    sequences, heads, dim = (int(extent) for extent in q.shape)
    if table is None:
        kv_heads, capacity = int(keys.shape[1]), int(keys.shape[2])
    else:
        kv_heads, capacity = int(keys.shape[0]), int(keys.shape[2]) * int(table.shape[1])
    return int(call.native.attention_workspace(sequences, heads, kv_heads, dim, capacity))


def _described(name: str, array: Array, writes: bool) -> tuple[int, Any]:
    """The device of an array, and its address, type, shape and strides in elements."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        device = array.device
        if device.type not in ("cpu", "cuda"):
            raise OpError(f"{name} lies on {device}; ops run on cuda")
        # What autograd would record is not computed here.
        if array.requires_grad and torch.is_grad_enabled():
            raise OpError(f"{name} requires a gradient, which ops do not have; call them inside torch.no_grad()")
        described = (array.data_ptr(), str(array.dtype)[6:], tuple(array.shape), array.stride())
        return (device.index if device.type == "cuda" else _HOST), described
    host = getattr(array, "__array_interface__", None)
    if host is not None:
        if writes and host["data"][1]:
            raise OpError(f"{name} is read-only, and the op writes it")
        itemsize = array.dtype.itemsize
        strides = tuple(stride // itemsize for stride in array.strides)
        if any(stride < 0 for stride in strides):
            raise OpError(f"{name} has a negative stride")
        if not array.dtype.isnative:
            raise OpError(f"{name} is of another byte order than this machine")
        return _HOST, (host["data"][0], array.dtype.name, tuple(array.shape), strides)
    if not hasattr(array, "__dlpack__"):
        raise OpError(f"{name} is {type(array).__name__}, which is no array: it has no __dlpack__")
    kind, index, address, dtype, extents, steps = _native.dlpack(array.__dlpack__())
    if kind not in (_DL_CPU, _DL_CUDA):
        raise OpError(f"{name} lies on a device of DLPack's kind {kind}; ops run on CUDA")
    return (index if kind == _DL_CUDA else _HOST), (address, dtype, tuple(extents), tuple(steps))


def _current_stream(device: int) -> int:
    torch = sys.modules.get("torch")
    return int(torch._C._cuda_getCurrentRawStream(device)) if torch is not None else 0
