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
import math
import sys
from collections.abc import Iterator
from typing import Any

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
    "grouped_gemm",
    "linear",
    "merge_attention",
    "moe",
    "moe_workspace",
    "pack",
    "pack_codes",
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

@contextlib.contextmanager
def simulator(seed: int = 0) -> Iterator[None]:
    """Runs ops on arrays in the host's memory on a simulated GPU, on this thread."""
    before = _native.simulate(_native.Simulator(seed))
    try:
        yield
    finally:
        _native.simulate(before)


def rms_norm(x: Array, weight: Array, *, out: Array, eps: float = 1e-6, stream: int | None = None) -> None:
    """``out = x * weight / sqrt(mean(x²) + eps)`` over the last axis, sums in float32.

    ``x`` is ``[.., width]`` of float32, float16 or bfloat16, and ``out`` as ``x``, which it may be;
    ``weight`` is ``[width]``.
    """
    _native.rms_norm(stream, x, weight, out, eps)


def add_rms_norm(
    x: Array, added: Array, weight: Array, *, out: Array, eps: float = 1e-6, stream: int | None = None
) -> None:
    """``x += added``, then ``out`` is the norm of ``x``: a residual stream and its next norm.

    The mean square is that of the sums before they are rounded to the type of ``x``.
    """
    _native.rms_norm(stream, x, weight, out, eps, added)


def gated(gate: Array, up: Array, *, out: Array, activation: str = "silu", stream: int | None = None) -> None:
    """``out = activation(gate) * up``; the activation is ``silu`` or ``gelu_tanh``."""
    _native.gated(stream, activation, gate, up, out)


def silu_mul(gate: Array, up: Array, *, out: Array, stream: int | None = None) -> None:
    """``out = silu(gate) * up``."""
    gated(gate, up, out=out, stream=stream)


def embedding(table: Array, ids: Array, *, out: Array, stream: int | None = None) -> None:
    """``out[i] = table[ids[i]]``, zeros where an id is not one of the table.

    ``table`` is ``[vocabulary, width]`` of bfloat16, ``ids`` int32 of any shape.
    """
    _native.embedding(stream, table, ids, out)


def rope(x: Array, turns: Array, positions: Array, *, out: Array, stream: int | None = None) -> None:
    """Rotates heads ``[rows, heads, dim]`` for their positions; dimensions i and i + dim/2 are a pair.

    ``turns`` has the cosine and sine of each position and pair, float32 ``[positions, dim / 2, 2]``;
    ``positions`` is int32 ``[rows]``, and rows of a negative one become zeros. ``out`` may be ``x``.
    """
    _native.rope(stream, x, turns, positions, out)


def argmax(logits: Array, *, out: Array, stream: int | None = None) -> None:
    """The likeliest token of each row of float32 logits, to int32 ``out``; the first of equals."""
    _native.choose(stream, logits, out)


def sample(logits: Array, requests: Array, *, out: Array, stream: int | None = None) -> None:
    """A random token of each row of float32 logits, to int32 ``out``.

    ``requests`` is uint8 ``[rows, 32]``, a :func:`sampling_request` for each row.
    """
    _native.choose(stream, logits, out, requests)


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

    Codes are the nearest ones:

    * ``bf16``: the weight as it is.
    * ``w4a16``: integers of 4 bits with a scale for each 128 columns.
    * ``awq``: as ``w4a16``, with a zero point and a float16 scale for each 128 columns.
    * ``w8a16``, ``fp8``: integers of 8 bits, and e4m3, with a scale for each row.
    * ``mxfp4``: e2m1 with a power of two for each 32 columns.

    The weight is a tensor of torch, of any device, or an array of numpy in the host's memory; the
    result is one axis of uint8, of the same library and device. K is a multiple of 64, of ``w4a16`` and
    ``awq`` of 128.
    """
    if len(weight.shape) != 2 or "bfloat16" not in str(weight.dtype):
        raise OpError(f"pack: the weight is {weight.dtype} {tuple(weight.shape)}; it must be bfloat16 [N, K]")
    return _bytes_like(weight, _native.pack_linear(_stored(weight)[0], int(weight.shape[1]), form))


def pack_codes(codes: Array, scales: Array, form: str, *, zeros: Array | None = None) -> Array:
    """A checkpoint's own codes in the order that :func:`linear` reads: no number changes.

    The tensors of a weight ``[N, K]`` are those that the checkpoint stores:

    * ``mxfp4``: gpt-oss's ``blocks``, uint8 ``[N, K / 32, 16]``, and ``scales``, uint8 ``[N, K / 32]``.
    * ``w4a16``: ``weight_packed`` of compressed-tensors, int32 ``[N, K / 8]``, and ``weight_scale``,
      bfloat16 ``[N, K / 128]``.
    * ``w8a16``: the same with int32 ``[N, K / 4]`` and ``[N, 1]``.
    * ``fp8``: ``weight``, float8_e4m3fn ``[N, K]``, and ``weight_scale`` of one element or ``[N, 1]``.
    * ``awq``: ``qweight``, int32 ``[K, N / 8]``, ``scales``, ``[K / 128, N]``, and ``qzeros``, int32
      ``[K / 128, N / 8]``, as ``zeros``; without these zero points are 8.

    Arrays and the result are as those of :func:`pack`.
    """
    return _bytes_like(
        codes,
        _native.pack_codes(form, _stored(codes), _stored(scales), None if zeros is None else _stored(zeros)),
    )


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
    """``out = x @ w.T + bias + residual`` for 1 to 16 rows, where ``packed`` is ``pack(w, form)``,
    or what :func:`pack_codes` made of a checkpoint's codes.

    ``x`` is ``[.., K]`` of bfloat16, ``out`` ``[.., N]`` of bfloat16 or float32, with ``residual`` of its
    type; ``bias`` is bfloat16. Weights are fetched before earlier work of the stream has ended: the
    launch just before must not write them. Forms other than ``bf16`` need compute capability 9.0.
    """
    _native.linear(stream, form, x, packed, out, bias, residual)


def gemm(
    a: Array,
    b: Array,
    *,
    out: Array,
    a_scale: Array | None = None,
    b_scale: Array | None = None,
    bias: Array | None = None,
    activation: str | None = None,
    gated: bool = False,
    residual: Array | None = None,
    workspace: Array | None = None,
    stream: int | None = None,
) -> None:
    """``out = activation(a_scale * b_scale * (a @ b.T) + bias) + residual``, sums in float32.

    ``a`` is ``[.., K]`` and ``b`` ``[N, K]``, both bfloat16, float16 or float8_e4m3fn. ``out`` is of
    their type or float32, of float8_e4m3fn bfloat16 or float32; ``bias`` and ``residual`` are of its
    type. The scales go together, float32 of one element each, or of one for each row of ``a`` and of
    ``b``. With a float32 ``workspace`` of :func:`gemm_workspace` elements, a long contraction of a
    small result is shared by more blocks.

    With ``gated``, ``b`` is ``[2 N, K]``, gates first, and the result ``activation(gate) * up``.
    Activations are ``silu`` and ``gelu_tanh``, and of gates gpt-oss's ``clamped_swiglu``. Without tensor
    maps (compute capability 9.0, rows of whole 16 bytes) a gated product needs the workspace.
    """
    _native.gemm(stream, a, b, out, a_scale, b_scale, bias, activation, gated, residual, workspace)


def gemm_workspace(a_rows: int, b_rows: int) -> int:
    """Elements of the workspace of products of ``a_rows`` rows with a ``b`` of ``b_rows``."""
    return _native.gemm_workspace(a_rows, b_rows)


def grouped_gemm(
    a: Array,
    b: Array,
    offsets: Array,
    *,
    out: Array,
    a_scale: Array | None = None,
    b_scale: Array | None = None,
    bias: Array | None = None,
    activation: str | None = None,
    gated: bool = False,
    residual: Array | None = None,
    stream: int | None = None,
) -> None:
    """``out = activation(a @ b[g].T + bias[g]) + residual`` for the rows of each group g.

    ``a`` is ``[rows, K]``, sorted by group, and ``b`` ``[groups, N, K]``, both bfloat16, float16 or
    float8_e4m3fn. ``offsets`` is int32 ``[groups + 1]``: the first row of each group and the end of the
    last. The device does not check that they never fall and end within the rows; rows past the end stay
    as they are. ``out`` is as that of :func:`gemm`, with ``residual``; ``bias`` is ``[groups, N]``.

    With ``gated``, ``b`` is ``[groups, 2 N, K]``, gates first, the bias ``[groups, 2 N]``, and the result
    ``activation(gate) * up``. Activations are those of :func:`gemm`.

    Operands of float8_e4m3fn have scales of blocks, float32: ``a_scale`` ``[rows, ceil(K / 128)]``,
    ``b_scale`` ``[groups, ceil(N / 128), ceil(K / 128)]``, of a gated product ``[groups, 2, ..]``. They
    need compute capability 9.0.
    """
    _native.grouped_gemm(stream, a, b, offsets, out, a_scale, b_scale, bias, activation, gated, residual)


def moe(
    x: Array,
    logits: Array,
    gate_up: Array,
    down: Array,
    *,
    top_k: int,
    out: Array,
    workspace: Array,
    scoring: str = "softmax",
    renormalize: bool = True,
    expert_groups: int = 1,
    kept_groups: int = 1,
    scale: float = 1.0,
    correction: Array | None = None,
    activation: str = "silu",
    gate_up_bias: Array | None = None,
    down_bias: Array | None = None,
    residual: Array | None = None,
    stream: int | None = None,
) -> None:
    """A mixture of experts, from a router's logits to the weighted sum of the chosen ones' results.

    ``x`` is ``[.., hidden]`` of bfloat16, ``logits`` float32 with a number for each expert, ``gate_up``
    bfloat16 ``[experts, 2 inner, hidden]``, gates first, and ``down`` ``[experts, hidden, inner]``. ``out``
    is as ``x``, or float32; ``residual`` is of its type. Biases are bfloat16 ``[experts, 2 inner]`` and
    ``[experts, hidden]``.

    Each row takes the ``top_k`` experts with the largest scores: the ``softmax`` of the logits, or their
    ``sigmoid``. Scores of the chosen are their weights, divided by their sum with ``renormalize``. With
    ``sigmoid``, ``correction``, float32 ``[experts]``, is added for the choice alone, only the best
    ``kept_groups`` of ``expert_groups`` are chosen from, and weights are multiplied by ``scale``.

    Choices are sorted on the device: nothing waits for it. ``workspace`` is float32 of
    :func:`moe_workspace` elements; calls that run at the same time need one each.
    """
    _native.moe(
        stream,
        x,
        logits,
        gate_up,
        down,
        out,
        workspace,
        top_k,
        (scoring, renormalize, expert_groups, kept_groups, scale),
        activation,
        correction,
        gate_up_bias,
        down_bias,
        residual,
    )


def moe_workspace(x: Array, gate_up: Array, top_k: int) -> int:
    """Elements of the workspace of :func:`moe` for these arrays."""
    experts, two_inner, hidden = (int(extent) for extent in gate_up.shape)
    rows = math.prod(int(extent) for extent in x.shape[:-1])
    return _native.moe_workspace(rows, top_k, experts, hidden, two_inner // 2)


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
    _native.attention_decode(
        stream,
        q,
        keys,
        values,
        tokens,
        workspace,
        out,
        scale,
        table,
        soft_cap,
        window,
        sinks,
        lse,
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
    _native.attention_prefill(
        stream,
        q,
        keys,
        values,
        query_starts,
        token_starts,
        out,
        scale,
        causal,
        longest,
        table,
        soft_cap,
        window,
        sinks,
        lse,
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
    _native.merge_attention(stream, a, lse_a, b, lse_b, out, lse)


def attention_workspace(q: Array, keys: Array, table: Array | None = None) -> int:
    """Elements of the workspace of :func:`attention_decode` for these arrays."""
    sequences, heads, dim = (int(extent) for extent in q.shape)
    if table is None:
        kv_heads, capacity = int(keys.shape[1]), int(keys.shape[2])
    else:
        kv_heads, capacity = int(keys.shape[0]), int(keys.shape[2]) * int(table.shape[1])
    return int(_native.attention_workspace(q, sequences, heads, kv_heads, dim, capacity))


def _stored(array: Array) -> tuple[bytes, str, tuple[int, ...]]:
    """The bytes, type and shape of an array, wherever it lies."""
    torch = sys.modules.get("torch")
    shape = tuple(int(extent) for extent in array.shape)
    if torch is not None and isinstance(array, torch.Tensor):
        flat = array.detach().cpu().contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy().tobytes(), str(array.dtype)[6:], shape
    return array.tobytes(), array.dtype.name, shape


def _bytes_like(array: Array, packed: bytes) -> Array:
    """Bytes as an array of the same library and device as another."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch.frombuffer(bytearray(packed), dtype=torch.uint8).to(array.device)
    import numpy

    return numpy.frombuffer(packed, dtype=numpy.uint8)


def _described(name: str, array: Array, writes: bool) -> tuple[int, Any]:
    """The device of an array, and its address, type, shape and strides in elements: of torch itself.

    The extension module asks for arrays whose type has no table of DLPack's functions, and for tensors
    that require a gradient.
    """
    if _is_tensor(array):
        device = array.device
        if device.type not in ("cpu", "cuda"):
            raise OpError(f"{name} lies on {device}; ops run on cuda")
        if array.requires_grad:
            _without_gradient(name, array)
        return (device.index if device.type == "cuda" else _HOST), array
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


def _is_tensor(array: Array) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _without_gradient(name: str, array: Array) -> None:
    """Refuses a tensor for which autograd would record what is not computed here."""
    if sys.modules["torch"].is_grad_enabled():
        raise OpError(f"{name} requires a gradient, which ops do not have; call them inside torch.no_grad()")


def _current_stream(device: int) -> int:
    torch = sys.modules.get("torch")
    return int(torch._C._cuda_getCurrentRawStream(device)) if torch is not None else 0
