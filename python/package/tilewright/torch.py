"""Ops as operators of torch: ``torch.ops.tilewright.rms_norm`` and its kin.

Importing this module registers them, so that ``torch.compile(fullgraph=True)`` and ``torch.export`` keep
them as they are. They write their last operands, as the functions of :mod:`tilewright.ops` do, and have
no gradient. A call through torch's dispatcher costs two microseconds more than one of those functions.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from . import ops

__all__ = [
    "add_rms_norm",
    "argmax",
    "attention_decode",
    "attention_prefill",
    "embedding",
    "gated",
    "gemm",
    "grouped_gemm",
    "linear",
    "merge_attention",
    "moe",
    "rms_norm",
    "rope",
    "sample",
    "turns",
]

_library = torch.library.Library("tilewright", "DEF")


def _operator(*mutated: str) -> Callable[[Callable[..., None]], Any]:
    """Registers a function that writes these operands, for CUDA tensors and for the simulator's.

    ``torch.library.custom_op`` makes the same operator, whose calls take five times as long: it wraps
    the function once more for gradients, which there are none of.
    """

    def registered(function: Callable[..., None]) -> Any:
        name = function.__name__
        places = [at for at, name in enumerate(inspect.signature(function).parameters) if name in mutated]

        @functools.wraps(function)
        def run(*operands: Any, **settings: Any) -> None:
            function(*operands, **settings)
            if torch.is_grad_enabled():
                # What autograd kept of a tensor before it was written is an error of backward, as ever.
                written = [operands[at] for at in places if at < len(operands)]
                written += [settings[name] for name in mutated if name in settings]
                for tensor in written:
                    if tensor is not None and not tensor.is_inference():
                        torch.autograd.graph.increment_version(tensor)

        _library.define(name + torch.library.infer_schema(function, mutates_args=mutated))
        for key in ("CUDA", "CPU"):
            _library.impl(name, run, key)
        # An op writes what it is given: there is no result whose shape would be made up.
        torch.library.register_fake(f"tilewright::{name}", lambda *operands, **settings: None, lib=_library)
        return getattr(torch.ops.tilewright, name).default

    return registered


@_operator("out")
def rms_norm(x: Tensor, weight: Tensor, out: Tensor, eps: float = 1e-6) -> None:
    """:func:`tilewright.ops.rms_norm`."""
    ops.rms_norm(x, weight, out=out, eps=eps)


@_operator("x", "out")
def add_rms_norm(x: Tensor, added: Tensor, weight: Tensor, out: Tensor, eps: float = 1e-6) -> None:
    """:func:`tilewright.ops.add_rms_norm`."""
    ops.add_rms_norm(x, added, weight, out=out, eps=eps)


@_operator("out")
def gated(gate: Tensor, up: Tensor, out: Tensor, activation: str = "silu") -> None:
    """:func:`tilewright.ops.gated`."""
    ops.gated(gate, up, out=out, activation=activation)


@_operator("out")
def embedding(table: Tensor, ids: Tensor, out: Tensor) -> None:
    """:func:`tilewright.ops.embedding`."""
    ops.embedding(table, ids, out=out)


@_operator("out")
def rope(x: Tensor, turns: Tensor, positions: Tensor, out: Tensor) -> None:
    """:func:`tilewright.ops.rope`."""
    ops.rope(x, turns, positions, out=out)


@_operator("out")
def linear(
    x: Tensor,
    packed: Tensor,
    out: Tensor,
    bias: Optional[Tensor] = None,
    residual: Optional[Tensor] = None,
    form: str = "bf16",
) -> None:
    """:func:`tilewright.ops.linear`."""
    ops.linear(x, packed, out=out, form=form, bias=bias, residual=residual)


@_operator("out", "workspace")
def gemm(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    bias: Optional[Tensor] = None,
    activation: Optional[str] = None,
    residual: Optional[Tensor] = None,
    workspace: Optional[Tensor] = None,
    a_scale: Optional[Tensor] = None,
    b_scale: Optional[Tensor] = None,
    gated: bool = False,
) -> None:
    """:func:`tilewright.ops.gemm`."""
    ops.gemm(
        a,
        b,
        out=out,
        a_scale=a_scale,
        b_scale=b_scale,
        bias=bias,
        activation=activation,
        gated=gated,
        residual=residual,
        workspace=workspace,
    )


@_operator("out")
def grouped_gemm(
    a: Tensor,
    b: Tensor,
    offsets: Tensor,
    out: Tensor,
    bias: Optional[Tensor] = None,
    activation: Optional[str] = None,
    gated: bool = False,
    residual: Optional[Tensor] = None,
    a_scale: Optional[Tensor] = None,
    b_scale: Optional[Tensor] = None,
) -> None:
    """:func:`tilewright.ops.grouped_gemm`."""
    ops.grouped_gemm(
        a,
        b,
        offsets,
        out=out,
        a_scale=a_scale,
        b_scale=b_scale,
        bias=bias,
        activation=activation,
        gated=gated,
        residual=residual,
    )


@_operator("out", "workspace")
def moe(
    x: Tensor,
    logits: Tensor,
    gate_up: Tensor,
    down: Tensor,
    out: Tensor,
    workspace: Tensor,
    top_k: int,
    scoring: str = "softmax",
    renormalize: bool = True,
    expert_groups: int = 1,
    kept_groups: int = 1,
    scale: float = 1.0,
    correction: Optional[Tensor] = None,
    activation: str = "silu",
    gate_up_bias: Optional[Tensor] = None,
    down_bias: Optional[Tensor] = None,
    residual: Optional[Tensor] = None,
) -> None:
    """:func:`tilewright.ops.moe`."""
    ops.moe(
        x,
        logits,
        gate_up,
        down,
        top_k=top_k,
        out=out,
        workspace=workspace,
        scoring=scoring,
        renormalize=renormalize,
        expert_groups=expert_groups,
        kept_groups=kept_groups,
        scale=scale,
        correction=correction,
        activation=activation,
        gate_up_bias=gate_up_bias,
        down_bias=down_bias,
        residual=residual,
    )


@_operator("out", "workspace", "lse")
def attention_decode(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    tokens: Tensor,
    out: Tensor,
    workspace: Tensor,
    scale: Optional[float] = None,
    table: Optional[Tensor] = None,
    soft_cap: Optional[float] = None,
    window: Optional[int] = None,
    sinks: Optional[Tensor] = None,
    lse: Optional[Tensor] = None,
) -> None:
    """:func:`tilewright.ops.attention_decode`."""
    ops.attention_decode(
        q,
        keys,
        values,
        tokens,
        out=out,
        workspace=workspace,
        scale=scale,
        table=table,
        soft_cap=soft_cap,
        window=window,
        sinks=sinks,
        lse=lse,
    )


@_operator("out", "lse")
def attention_prefill(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    query_starts: Tensor,
    token_starts: Tensor,
    out: Tensor,
    scale: Optional[float] = None,
    causal: bool = True,
    longest: Optional[int] = None,
    table: Optional[Tensor] = None,
    soft_cap: Optional[float] = None,
    window: Optional[int] = None,
    sinks: Optional[Tensor] = None,
    lse: Optional[Tensor] = None,
) -> None:
    """:func:`tilewright.ops.attention_prefill`."""
    ops.attention_prefill(
        q,
        keys,
        values,
        query_starts,
        token_starts,
        out=out,
        scale=scale,
        causal=causal,
        longest=longest,
        table=table,
        soft_cap=soft_cap,
        window=window,
        sinks=sinks,
        lse=lse,
    )


@_operator("out", "lse")
def merge_attention(
    a: Tensor, lse_a: Tensor, b: Tensor, lse_b: Tensor, out: Tensor, lse: Optional[Tensor] = None
) -> None:
    """:func:`tilewright.ops.merge_attention`."""
    ops.merge_attention(a, lse_a, b, lse_b, out=out, lse=lse)


@_operator("out")
def argmax(logits: Tensor, out: Tensor) -> None:
    """:func:`tilewright.ops.argmax`."""
    ops.argmax(logits, out=out)


@_operator("out")
def sample(logits: Tensor, requests: Tensor, out: Tensor) -> None:
    """:func:`tilewright.ops.sample`."""
    ops.sample(logits, requests, out=out)


def turns(positions: int, dim: int, theta: float = 10_000.0, device: Optional[torch.device] = None) -> Tensor:
    """The table of :func:`rope`: cosine and sine of each position and pair, ``[positions, dim / 2, 2]``."""
    rates = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64, device=device) / dim)
    angles = torch.outer(torch.arange(positions, dtype=torch.float64, device=device), rates)
    return torch.stack([angles.cos(), angles.sin()], -1).float()
