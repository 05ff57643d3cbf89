"""Ops as operators of torch: ``torch.ops.tilewright.rms_norm`` and its kin.

Importing this module registers them, so that ``torch.compile(fullgraph=True)`` and ``torch.export`` keep
them as they are. They write their last operands, as the functions of :mod:`tilewright.ops` do, and have
no gradient. A call through torch's dispatcher costs some microseconds more than one of those functions.
"""

from typing import Optional

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
    "linear",
    "merge_attention",
    "rms_norm",
    "rope",
    "sample",
    "turns",
]


@torch.library.custom_op("tilewright::rms_norm", mutates_args=("out",))
def rms_norm(x: Tensor, weight: Tensor, out: Tensor, eps: float = 1e-6) -> None:
    """:func:`tilewright.ops.rms_norm`."""
    ops.rms_norm(x, weight, out=out, eps=eps)


@torch.library.custom_op("tilewright::add_rms_norm", mutates_args=("x", "out"))
def add_rms_norm(x: Tensor, added: Tensor, weight: Tensor, out: Tensor, eps: float = 1e-6) -> None:
    """:func:`tilewright.ops.add_rms_norm`."""
    ops.add_rms_norm(x, added, weight, out=out, eps=eps)


@torch.library.custom_op("tilewright::gated", mutates_args=("out",))
def gated(gate: Tensor, up: Tensor, out: Tensor, activation: str = "silu") -> None:
    """:func:`tilewright.ops.gated`."""
    ops.gated(gate, up, out=out, activation=activation)


@torch.library.custom_op("tilewright::embedding", mutates_args=("out",))
def embedding(table: Tensor, ids: Tensor, out: Tensor) -> None:
    """:func:`tilewright.ops.embedding`."""
    ops.embedding(table, ids, out=out)


@torch.library.custom_op("tilewright::rope", mutates_args=("out",))
def rope(x: Tensor, turns: Tensor, positions: Tensor, out: Tensor) -> None:
    """:func:`tilewright.ops.rope`."""
    ops.rope(x, turns, positions, out=out)


@torch.library.custom_op("tilewright::linear", mutates_args=("out",))
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


@torch.library.custom_op("tilewright::gemm", mutates_args=("out", "workspace"))
def gemm(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    bias: Optional[Tensor] = None,
    activation: Optional[str] = None,
    residual: Optional[Tensor] = None,
    workspace: Optional[Tensor] = None,
) -> None:
    """:func:`tilewright.ops.gemm`."""
    ops.gemm(a, b, out=out, bias=bias, activation=activation, residual=residual, workspace=workspace)


@torch.library.custom_op("tilewright::attention_decode", mutates_args=("out", "workspace", "lse"))
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


@torch.library.custom_op("tilewright::attention_prefill", mutates_args=("out", "lse"))
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


@torch.library.custom_op("tilewright::merge_attention", mutates_args=("out", "lse"))
def merge_attention(
    a: Tensor, lse_a: Tensor, b: Tensor, lse_b: Tensor, out: Tensor, lse: Optional[Tensor] = None
) -> None:
    """:func:`tilewright.ops.merge_attention`."""
    ops.merge_attention(a, lse_a, b, lse_b, out=out, lse=lse)


@torch.library.custom_op("tilewright::argmax", mutates_args=("out",))
def argmax(logits: Tensor, out: Tensor) -> None:
    """:func:`tilewright.ops.argmax`."""
    ops.argmax(logits, out=out)


@torch.library.custom_op("tilewright::sample", mutates_args=("out",))
def sample(logits: Tensor, requests: Tensor, out: Tensor) -> None:
    """:func:`tilewright.ops.sample`."""
    ops.sample(logits, requests, out=out)


for _op in (
    rms_norm,
    add_rms_norm,
    gated,
    embedding,
    rope,
    linear,
    gemm,
    attention_decode,
    attention_prefill,
    merge_attention,
    argmax,
    sample,
):
    # An op writes what it is given: there is no result whose shape would be made up.
    _op.register_fake(lambda *operands, **settings: None)


def turns(positions: int, dim: int, theta: float = 10_000.0, device: Optional[torch.device] = None) -> Tensor:
    """The table of :func:`rope`: cosine and sine of each position and pair, ``[positions, dim / 2, 2]``."""
    rates = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64, device=device) / dim)
    angles = torch.outer(torch.arange(positions, dtype=torch.float64, device=device), rates)
    return torch.stack([angles.cos(), angles.sin()], -1).float()
