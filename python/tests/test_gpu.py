"""Ops on a GPU, against torch in float64: shapes at random, streams, graphs. Skipped where there is no GPU.

``TILEWRIGHT_LONG=1`` draws 300 shapes of each op.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tilewright import OpError, ops

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
import tilewright.torch as registered  # noqa: E402

from .layers import normed_gate  # noqa: E402

DRAWS = 300 if os.environ.get("TILEWRIGHT_LONG") == "1" else 20
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
b16 = torch.bfloat16


@pytest.fixture(autouse=True)
def without_gradients() -> Any:
    torch.manual_seed(int(os.environ.get("TILEWRIGHT_SEED", "1")))
    torch.set_default_device("cuda")
    with torch.no_grad():
        yield
    torch.set_default_device("cpu")


def number(least: int, most: int) -> int:
    return int(torch.randint(least, most + 1, (), device="cpu"))


def one_of(values: list[Any]) -> Any:
    return values[number(0, len(values) - 1)]


def near(found: Any, exact: Any, bound: float) -> None:
    """Within the rounding of the result's type, and an error of the op relative to its largest number."""
    rounding = torch.finfo(found.dtype).eps / 2
    largest = exact.abs().max().clamp_min(1e-3) if exact.numel() else 1.0
    worst = (found.double() - exact).abs() - rounding * exact.abs() - bound * largest
    assert bool((worst <= 0).all()), f"off by {(found.double() - exact).abs().max()} of {largest}"


def norm(x: Any, weight: Any) -> Any:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()


def draw_norm() -> None:
    rows, width = number(1, 300), number(1, 9000)
    x, weight = torch.randn(rows, width).to(one_of(FLOATS)), torch.randn(width).to(one_of(FLOATS))
    out = torch.empty(rows, width, dtype=one_of(FLOATS))
    ops.rms_norm(x, weight, out=out, eps=1e-5)
    near(out, norm(x, weight), 2.0**-17)
    added = torch.randn_like(x)
    sums = x.double() + added.double()
    ops.add_rms_norm(x, added, weight, out=out, eps=1e-5)
    near(x, sums, 2.0**-20)
    near(out, x.double() / (sums.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double(), 2.0**-17)


def draw_gated() -> None:
    shape = (number(1, 300), number(1, 9000))
    gate, up = (torch.randn(shape).to(one_of(FLOATS)) for _ in range(2))
    out = torch.empty(shape, dtype=one_of(FLOATS))
    ops.silu_mul(gate, up, out=out)
    near(out, torch.nn.functional.silu(gate.double()) * up.double(), 2.0**-17)


def draw_embedding() -> None:
    table = torch.randn(number(1, 2000), 4 * number(1, 1000), dtype=b16)
    ids = torch.randint(0, len(table), (number(1, 300),), dtype=torch.int32)
    out = torch.empty(len(ids), table.shape[1], dtype=one_of(FLOATS))
    ops.embedding(table, ids, out=out)
    near(out, table[ids].double(), 0.0)


def draw_rope() -> None:
    rows, heads, dim = number(1, 300), number(1, 32), 2 * number(1, 64)
    x, turns = torch.randn(rows, heads, dim).to(one_of(FLOATS)), registered.turns(500, dim)
    positions, out = torch.randint(0, 500, (rows,), dtype=torch.int32), torch.empty_like(x)
    ops.rope(x, turns, positions, out=out)
    cos, sin = (turns[positions][:, None, :, part].double() for part in (0, 1))
    first, second = x.double().chunk(2, -1)
    near(out, torch.cat([first * cos - second * sin, second * cos + first * sin], -1), 2.0**-18)


def draw_gemm() -> None:
    m, n, k = number(1, 1500), number(1, 1500), number(1, 3000)
    if number(0, 1):
        n, k = 8 * -(-n // 8), 8 * -(-k // 8)
    dtype = one_of([b16, torch.float16])
    a, b, out = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype), torch.empty(m, n, dtype=dtype)
    bias, workspace = torch.randn(n).to(dtype), torch.empty(ops.gemm_workspace(m, n))
    ops.gemm(a, b, out=out, bias=bias, workspace=one_of([None, workspace]))
    near(out, a.double() @ b.double().T + bias.double(), 2.0**-16)


def draw_linear() -> None:
    m, n, k = number(1, 16), number(1, 9000), 64 * number(1, 100)
    x, weight = torch.randn(m, k, dtype=b16), torch.randn(n, k, dtype=b16)
    residual = torch.randn(m, n, dtype=one_of([b16, torch.float32]))
    out = torch.empty_like(residual)
    ops.linear(x, ops.pack(weight), out=out, residual=residual)
    near(out, x.double() @ weight.double().T + residual.double(), 2.0**-16)
    # Integers of 8 bits with a scale of 1 are exactly these weights.
    weight = torch.randint(-128, 128, (n, k), dtype=b16)
    weight[:, 0], weight[:, 1] = -128, 127
    ops.linear(x, ops.pack(weight, "w8a16"), out=out, form="w8a16", residual=residual)
    near(out, x.double() @ weight.double().T + residual.double(), 2.0**-14)


def draw_attention() -> None:
    sequences, kv_heads, group, capacity = number(1, 8), number(1, 8), number(1, 8), number(1, 3000)
    dim, window = one_of([64, 80, 96, 128, 256]), one_of([None, number(1, 500)])
    q = torch.randn(sequences, kv_heads * group, dim, dtype=b16)
    keys, values = (torch.randn(sequences, kv_heads, capacity, dim, dtype=b16) for _ in range(2))
    tokens, out = torch.randint(1, capacity + 1, (sequences,), dtype=torch.int32), torch.empty_like(q)
    workspace = torch.zeros(ops.attention_workspace(q, keys))
    lse = torch.empty(q.shape[:2])
    ops.attention_decode(q, keys, values, tokens, out=out, workspace=workspace, window=window, lse=lse)
    for at, seen in enumerate(tokens.tolist()):
        of = slice(at, at + 1)
        is_near_attention(out[of], lse[of], q[of], *(cache[at, :, :seen] for cache in (keys, values)), window=window)


def is_near_attention(
    out: Any, lse: Any, q: Any, keys: Any, values: Any, *, causal: bool = True, window: Any = None
) -> None:
    """Results of the newest queries ``[n, heads, dim]`` of one sequence of tokens ``[kv_heads, t, dim]``."""
    (queries, heads, dim), (kv_heads, tokens, _) = q.shape, keys.shape
    if queries == 0:
        return
    keys, values = (cache.double().repeat_interleave(heads // kv_heads, 0) for cache in (keys, values))
    position, token = torch.arange(queries)[:, None] + tokens - queries, torch.arange(tokens)[None]
    hidden = (token <= position - (window or 2**31)) | (token > position if causal else token < 0)
    scores = torch.einsum("qhd,htd->hqt", q.double(), keys) * dim**-0.5
    scores = scores.masked_fill(hidden, -torch.inf)
    # The softmax of a query that sees no token is not a number; the result is zeros.
    exact = torch.einsum("hqt,htd->qhd", scores.softmax(-1).nan_to_num(), values)
    # Probabilities are rounded to bfloat16.
    largest = float(values.abs().max()) if tokens else 0.0
    near(out, exact, 2.0**-8 * largest / max(float(exact.abs().max()), 1e-3))
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1).T, rtol=0, atol=1e-4)


def draw_prefill() -> None:
    sequences, kv_heads, group = number(1, 6), number(1, 4), number(1, 8)
    dim, causal, form = one_of([32, 64, 80, 96, 128, 192, 256]), one_of([True, True, False]), number(0, 2)
    window = one_of([None, number(1, 300)]) if causal else None
    queries = torch.randint(0, one_of([5, 700]), (sequences,))
    # Of some draws, sequences have fewer tokens than queries.
    tokens = torch.randint(0, 900, (sequences,)) + queries * one_of([0, 1, 1, 1])
    query_starts, token_starts = (
        torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32) for counts in (queries, tokens)
    )
    rows, longest, table = int(queries.sum()), one_of([None, max(int(queries.max()), 1)]), None
    q = torch.randn(rows, kv_heads * group, dim, dtype=b16)
    of_sequences = [torch.randn(2, kv_heads, count, dim, dtype=b16) for count in tokens.tolist()]
    if form == 0:
        kv = torch.full((2, sequences, kv_heads, int(tokens.max()) + 1, dim), torch.nan, dtype=b16)
        for at, own in enumerate(of_sequences):
            kv[:, at, :, : own.shape[2]] = own
    elif form == 1:
        page = one_of([8, 16, 64])
        width = int(tokens.max()) // page + 1
        table = torch.randperm(sequences * width).view(sequences, width).to(torch.int32)
        kv = torch.full((2, kv_heads, sequences * width, page, dim), torch.nan, dtype=b16)
        for at, own in enumerate(of_sequences):
            padded = torch.full((2, kv_heads, width * page, dim), torch.nan, dtype=b16)
            padded[:, :, : own.shape[2]] = own
            kv[:, :, table[at].long()] = padded.view(2, kv_heads, width, page, dim)
    else:
        kv = torch.cat([*of_sequences, torch.full((2, kv_heads, 1, dim), torch.nan, dtype=b16)], 2).transpose(1, 2)
    keys, values = (cache.contiguous() for cache in kv)
    out, lse = torch.empty_like(q), torch.empty(q.shape[:2])
    ops.attention_prefill(
        q,
        keys,
        values,
        query_starts,
        token_starts,
        out=out,
        lse=lse,
        causal=causal,
        longest=longest,
        table=table,
        window=window,
    )
    starts = query_starts.tolist()
    for at, own in enumerate(of_sequences):
        of = slice(starts[at], starts[at + 1])
        is_near_attention(out[of], lse[of], q[of], *own, causal=causal, window=window)


def draw_merge() -> None:
    rows, heads, dim = number(1, 500), number(1, 32), 8 * number(1, 64)
    a, b = (torch.randn(rows, heads, dim, dtype=b16) for _ in range(2))
    lse_a, lse_b = (torch.randn(rows, heads) * 10 for _ in range(2))
    out, lse = torch.empty_like(a), torch.empty_like(lse_a)
    ops.merge_attention(a, lse_a, b, lse_b, out=out, lse=lse)
    exact = torch.logaddexp(lse_a.double(), lse_b.double())
    weights = ((of.double() - exact).exp()[..., None] for of in (lse_a, lse_b))
    near(out, sum(weight * of.double() for weight, of in zip(weights, (a, b))), 2.0**-16)
    torch.testing.assert_close(lse.double(), exact, rtol=0, atol=1e-4)


def draw_argmax() -> None:
    logits = torch.randn(number(1, 64), number(1, 150_000))
    out = torch.empty(len(logits), dtype=torch.int32)
    ops.argmax(logits, out=out)
    assert torch.equal(out.long(), logits.argmax(1))


@pytest.mark.parametrize(
    "draw",
    [
        draw_norm,
        draw_gated,
        draw_embedding,
        draw_rope,
        draw_gemm,
        draw_linear,
        draw_attention,
        draw_prefill,
        draw_merge,
        draw_argmax,
    ],
)
def test_shapes_at_random(draw: Any) -> None:
    for _ in range(DRAWS):
        draw()


def test_a_captured_op_is_replayed() -> None:
    x, weight, out = torch.randn(4, 2048), torch.randn(2048), torch.empty(4, 2048)
    ops.rms_norm(x, weight, out=out, eps=1e-5)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ops.rms_norm(x, weight, out=out, eps=1e-5)
        ops.rms_norm(out, weight, out=out, eps=1e-5)
    for _ in range(5):
        x.copy_(torch.randn_like(x))
        graph.replay()
        near(out, norm(norm(x, weight), weight), 2.0**-16)


def test_a_captured_prefill_is_replayed() -> None:
    q = torch.randn(150, 4, 128, dtype=b16)
    keys, values = (torch.randn(200, 2, 128, dtype=b16) for _ in range(2))
    query_starts, token_starts = (torch.tensor([0, end], dtype=torch.int32) for end in (150, 200))
    out, lse = torch.empty_like(q), torch.empty(150, 4)
    call = lambda: ops.attention_prefill(q, keys, values, query_starts, token_starts, out=out, lse=lse)
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for _ in range(5):
        for operand in (q, keys, values):
            operand.copy_(torch.randn_like(operand))
        graph.replay()
        is_near_attention(out, lse, q, keys.transpose(0, 1), values.transpose(0, 1))


def test_ops_follow_the_current_stream() -> None:
    x, weight = torch.randn(64, 8192), torch.randn(8192)
    out = torch.empty_like(x)
    side = torch.cuda.Stream()
    for _ in range(50):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)
            x.copy_(torch.randn_like(x))
            ops.rms_norm(x, weight, out=out, eps=1e-5)
            exact = norm(x, weight)
        torch.cuda.current_stream().wait_stream(side)
        near(out, exact, 2.0**-17)


def test_a_compiled_function_keeps_the_operators() -> None:
    x, weight = torch.randn(3, 64), torch.randn(64)
    compiled = torch.compile(normed_gate, fullgraph=True)
    torch.testing.assert_close(compiled(x, weight), normed_gate(x, weight))


def test_operands_of_two_places_are_refused() -> None:
    x = torch.randn(3, 64)
    with pytest.raises(OpError, match="another device"):
        ops.rms_norm(x, torch.ones(64, device="cpu"), out=x)
