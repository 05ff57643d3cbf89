"""Ops on numpy's arrays, on the simulated GPU: against float64, over shapes at random."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tilewright import OpError, ops

ml_dtypes = pytest.importorskip("ml_dtypes")
bf16, fp8 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)
FLOATS = [np.dtype(np.float32), np.dtype(np.float16), bf16]
#: Half of the distance of numbers next to 1.
ROUNDING = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float16): 2.0**-11, bf16: 2.0**-8}


@pytest.fixture(autouse=True)
def simulated() -> Iterator[None]:
    with ops.simulator(seed=5):
        yield


def numbers(draw: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    return draw.standard_normal(shape).astype(np.float32).astype(dtype)


def near(found: Any, exact: Any, bound: float) -> None:
    """Within the rounding of the result's type, and an error of the op relative to its largest number."""
    found, rounding = found.astype(np.float64), ROUNDING[found.dtype]
    allowed = rounding * np.abs(exact) + (bound + 2.0**-20) * np.maximum(np.abs(exact).max(initial=0.0), 1e-3)
    worst = np.abs(found - exact) - allowed
    assert np.all(worst <= 0), f"off by {np.abs(found - exact).max()} at {np.unravel_index(worst.argmax(), worst.shape)}"


def wide(x: Any) -> Any:
    return x.astype(np.float64)


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("turn", range(12))
def test_norms_of_rows(draw: np.random.Generator, turn: int) -> None:
    leading, width = tuple(draw.integers(1, 4, turn % 3)), int(draw.integers(1, 700))
    types = [FLOATS[draw.integers(3)] for _ in range(4)]
    x, weight = numbers(draw, (*leading, width), types[0]), numbers(draw, (width,), types[1])
    added, out = numbers(draw, x.shape, types[3]), np.empty(x.shape, types[2])
    exact = lambda x: wide(x) / np.sqrt((wide(x) ** 2).mean(-1, keepdims=True) + 1e-5) * wide(weight)
    ops.rms_norm(x, weight, out=out, eps=1e-5)
    near(out, exact(x), 2.0**-18)
    sums = wide(x) + wide(added)
    ops.add_rms_norm(x, added, weight, out=out, eps=1e-5)
    near(x, sums, 0.0)
    # The mean square is that of the sums before they are rounded.
    near(out, wide(x) / np.sqrt((sums**2).mean(-1, keepdims=True) + 1e-5) * wide(weight), 2.0**-18)


def test_norms_in_place_and_of_rows_with_gaps(draw: np.random.Generator) -> None:
    room = numbers(draw, (6, 80), np.float32)
    x, rest = room[:, :64], room[:, 64:].copy()
    weight = numbers(draw, (64,), np.float32)
    exact = wide(x) / np.sqrt((wide(x) ** 2).mean(-1, keepdims=True) + 1e-6) * wide(weight)
    ops.rms_norm(x, weight, out=x)
    near(x, exact, 2.0**-18)
    assert np.array_equal(room[:, 64:], rest), "what lies between rows stays"


@pytest.mark.parametrize("turn", range(8))
def test_gates(draw: np.random.Generator, turn: int) -> None:
    shape = tuple(draw.integers(1, 60, 1 + turn % 2))
    gate, up, out = (numbers(draw, shape, FLOATS[draw.integers(3)]) for _ in range(3))
    ops.silu_mul(gate, up, out=out)
    near(out, silu(wide(gate)) * wide(up), 2.0**-18)
    ops.gated(gate, up, out=out, activation="gelu_tanh")
    tanh = np.tanh(np.sqrt(2 / np.pi) * (wide(gate) + 0.044715 * wide(gate) ** 3))
    near(out, wide(gate) / 2 * (1 + tanh) * wide(up), 2.0**-18)


@pytest.mark.parametrize("turn", range(6))
def test_embeddings(draw: np.random.Generator, turn: int) -> None:
    vocabulary, width = int(draw.integers(1, 40)), 4 * int(draw.integers(1, 20))
    table = numbers(draw, (vocabulary, width), bf16)
    ids = draw.integers(-2, vocabulary + 3, tuple(draw.integers(1, 6, 1 + turn % 2))).astype(np.int32)
    out = np.empty((*ids.shape, width), FLOATS[turn % 3])
    ops.embedding(table, ids, out=out)
    known = (ids >= 0) & (ids < vocabulary)
    exact = np.where(known[..., None], wide(table)[np.clip(ids, 0, vocabulary - 1)], 0.0)
    near(out, exact, 0.0)


@pytest.mark.parametrize("turn", range(6))
def test_rotations(draw: np.random.Generator, turn: int) -> None:
    rows, heads, dim, most = (int(draw.integers(1, 5)), int(draw.integers(1, 4)), 2 * int(draw.integers(1, 40)), 30)
    x, out = numbers(draw, (rows, heads, dim), FLOATS[turn % 3]), np.empty((rows, heads, dim), FLOATS[turn % 3])
    angles = np.outer(np.arange(most), 10000.0 ** (-np.arange(dim // 2) * 2 / dim))
    turns = np.stack([np.cos(angles), np.sin(angles)], -1).astype(np.float32)
    positions = draw.integers(-1, most, rows).astype(np.int32)
    ops.rope(x, turns, positions, out=out)
    cos, sin = (wide(turns)[positions, :, part][:, None] for part in (0, 1))
    first, second = np.split(wide(x), 2, -1)
    exact = np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)
    near(out, np.where((positions >= 0)[:, None, None], exact, 0.0), 2.0**-20)


@pytest.mark.parametrize("turn", range(6))
def test_products(draw: np.random.Generator, turn: int) -> None:
    m, n, k = (int(extent) for extent in draw.integers(1, 150, 3))
    if turn % 2:
        n, k = 8 * -(-n // 8), 8 * -(-k // 8)
    input_type = [bf16, np.dtype(np.float16)][turn % 2]
    result = [input_type, np.dtype(np.float32)][turn // 2 % 2]
    a, b = numbers(draw, (m, k), input_type), numbers(draw, (n, k), input_type)
    bias, residual, out = numbers(draw, (n,), result), numbers(draw, (m, n), result), np.empty((m, n), result)
    exact = wide(a) @ wide(b).T
    ops.gemm(a, b, out=out)
    near(out, exact, 2.0**-18)
    workspace = np.zeros(ops.gemm_workspace(m, n), np.float32)
    ops.gemm(a, b, out=out, bias=bias, activation="silu", residual=residual, workspace=workspace)
    near(out, silu(exact + wide(bias)) + wide(residual), 2.0**-16)
    b, bias = numbers(draw, (2 * n, k), input_type), numbers(draw, (2 * n,), result)
    workspace = np.zeros(ops.gemm_workspace(m, 2 * n), np.float32)
    ops.gemm(a, b, out=out, bias=bias, activation="silu", gated=True, residual=residual, workspace=workspace)
    gate, up = np.split(wide(a) @ wide(b).T + wide(bias), 2, -1)
    near(out, silu(gate) * up + wide(residual), 2.0**-15)


@pytest.mark.parametrize("turn", range(6))
def test_products_of_fp8(draw: np.random.Generator, turn: int) -> None:
    m, n, k = (int(extent) for extent in draw.integers(1, 150, 3))
    if turn % 2:
        n, k = 8 * -(-n // 8), 16 * -(-k // 16)
    result = [bf16, np.dtype(np.float32)][turn // 2 % 2]
    a, b = numbers(draw, (m, k), fp8), numbers(draw, (n, k), fp8)
    bias, residual, out = numbers(draw, (n,), result), numbers(draw, (m, n), result), np.empty((m, n), result)
    products = wide(a) @ wide(b).T
    # Tensor cores keep 14 bits of a sum of 8-bit floats.
    bound = 2.0**-9 * (np.abs(wide(a)) @ np.abs(wide(b)).T).max() / np.abs(products).max()
    ops.gemm(a, b, out=out)
    near(out, products, bound)
    scales = [draw.uniform(0.5, 2.0, rows).astype(np.float32) for rows in ((m, 1), (1, n))]
    ops.gemm(a, b, out=out, a_scale=scales[0], b_scale=scales[1], bias=bias, residual=residual)
    near(out, products * wide(scales[0]) * wide(scales[1]) + wide(bias) + wide(residual), 4 * bound)
    one, half = np.full((), 1.0, np.float32), np.full((1,), 0.5, np.float32)
    ops.gemm(a, b, out=out, a_scale=one, b_scale=half)
    near(out, products / 2, bound)


@pytest.mark.parametrize("turn", range(4))
def test_packed_products_of_a_few_rows(draw: np.random.Generator, turn: int) -> None:
    m, n, k = int(draw.integers(1, 17)), int(draw.integers(1, 100)), 64 * int(draw.integers(1, 6))
    result = [bf16, np.dtype(np.float32)][turn % 2]
    x, weight, bias = numbers(draw, (m, k), bf16), numbers(draw, (n, k), bf16), numbers(draw, (n,), bf16)
    residual, out = numbers(draw, (m, n), result), np.empty((m, n), result)
    packed = ops.pack(weight)
    ops.linear(x, packed, out=out)
    near(out, wide(x) @ wide(weight).T, 2.0**-18)
    ops.linear(x, packed, out=out, bias=bias, residual=residual)
    near(out, wide(x) @ wide(weight).T + wide(bias) + wide(residual), 2.0**-18)


@pytest.mark.parametrize("form", ["w4a16", "awq", "w8a16", "fp8"])
def test_packed_codes_of_a_few_rows(draw: np.random.Generator, form: str) -> None:
    m, n, k = int(draw.integers(1, 17)), int(draw.integers(1, 60)), 128 * int(draw.integers(1, 4))
    # Weights that the codes of a scale of 1 are exactly, the largest among them.
    least, most = {"w4a16": (-8, 7), "awq": (-8, 7), "w8a16": (-128, 127), "fp8": (-16, 16)}[form]
    weight = draw.integers(least, most, (n, k), endpoint=True).astype(np.float32)
    weight[:, ::128], weight[:, 1::128] = (-448 if form == "fp8" else least), (448 if form == "fp8" else most)
    x, out = numbers(draw, (m, k), bf16), np.empty((m, n), np.float32)
    packed = ops.pack(weight.astype(bf16), form)
    assert packed.size <= n * k * 2 + 8 * 1024 * 2
    ops.linear(x, packed, out=out, form=form)
    near(out, wide(x) @ wide(weight).T, 2.0**-14)


def products(x: Any, packed: Any, form: str, n: int) -> Any:
    out = np.empty((len(x), n), np.float32)
    ops.linear(x, packed, out=out, form=form)
    return out


#: The numbers of e2m1, and which column the fields of AWQ's words are of.
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
AWQ = [0, 2, 4, 6, 1, 3, 5, 7]


@pytest.mark.parametrize("turn", range(3))
def test_mxfp4(draw: np.random.Generator, turn: int) -> None:
    m, n, groups = int(draw.integers(1, 17)), int(draw.integers(1, 60)), 2 * int(draw.integers(1, 8))
    x = numbers(draw, (m, 32 * groups), bf16)
    # As gpt-oss stores it: two columns a byte, the first one in the low bits, and exponents.
    codes, exponents = draw.integers(0, 16, (n, groups, 32)), draw.integers(120, 132, (n, groups)).astype(np.uint8)
    blocks = (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8)
    weight = (E2M1[codes] * 2.0 ** (exponents[..., None] - 127.0)).reshape(n, -1)
    exact = wide(x) @ weight.T
    near(products(x, ops.pack_codes(blocks, exponents, "mxfp4"), "mxfp4", n), exact, 2.0**-14)
    # Codes are the nearest ones: of numbers that are codes, these.
    codes[..., 0], codes[..., 1] = 7, 15
    weight = (E2M1[codes] * 2.0 ** (exponents[..., None] - 127.0)).reshape(n, -1)
    near(products(x, ops.pack(weight.astype(bf16), "mxfp4"), "mxfp4", n), wide(x) @ weight.T, 2.0**-14)


@pytest.mark.parametrize("turn", range(2))
def test_codes_of_checkpoints(draw: np.random.Generator, turn: int) -> None:
    m, n, groups = int(draw.integers(1, 17)), 8 * int(draw.integers(1, 8)), int(draw.integers(1, 4))
    k = 128 * groups
    x = numbers(draw, (m, k), bf16)

    def near_bf16(form: str, packed: Any, weight: Any) -> None:
        # What codes stand for is rounded to bfloat16.
        near(products(x, packed, form, n), wide(x) @ wide(weight.astype(np.float32).astype(bf16)).T, 2.0**-12)

    def words(fields: Any, bits: int) -> Any:
        shifts = np.arange(32 // bits, dtype=np.uint32) * bits
        fields = fields.astype(np.uint32).reshape(*fields.shape[:-1], -1, 32 // bits)
        return (fields << shifts).sum(-1, dtype=np.uint32).view(np.int32)

    # compressed-tensors: codes along K, offset by half their number.
    scales = draw.uniform(0.01, 0.1, (n, groups)).astype(np.float32).astype(bf16)
    codes = draw.integers(0, 16, (n, k))
    near_bf16("w4a16", ops.pack_codes(words(codes, 4), scales, "w4a16"), (codes - 8.0) * wide(scales).repeat(128, 1))
    codes, of_rows = draw.integers(0, 256, (n, k)), scales[:, :1]
    near_bf16("w8a16", ops.pack_codes(words(codes, 8), of_rows, "w8a16"), (codes - 128.0) * wide(of_rows))
    fp8_weight, of_rows = numbers(draw, (n, k), fp8), draw.uniform(0.01, 0.1, (n, 1)).astype(np.float32)
    near_bf16("fp8", ops.pack_codes(fp8_weight, of_rows, "fp8"), wide(fp8_weight) * wide(of_rows))
    near_bf16("fp8", ops.pack_codes(fp8_weight, of_rows[0], "fp8"), wide(fp8_weight) * wide(of_rows[0]))
    # AWQ: codes along N, in an order of its own, and zero points.
    codes, zeros = draw.integers(0, 16, (k, n)), draw.integers(0, 16, (groups, n))
    half_scales = draw.uniform(0.01, 0.1, (groups, n)).astype(np.float16)
    awq = lambda fields: words(fields.reshape(len(fields), -1, 8)[..., AWQ].reshape(len(fields), -1), 4)
    packed = ops.pack_codes(awq(codes), half_scales, "awq", zeros=awq(zeros))
    near_bf16("awq", packed, ((codes - zeros.repeat(128, 0)) * wide(half_scales).repeat(128, 0)).T)


@pytest.mark.parametrize("turn", range(6))
def test_products_of_groups(draw: np.random.Generator, turn: int) -> None:
    groups, rows, n = int(draw.integers(1, 6)), int(draw.integers(1, 150)), int(draw.integers(1, 70))
    gated, is_fp8 = bool(turn % 2), turn >= 4
    k = 16 * int(draw.integers(1, 20))
    input_type = fp8 if is_fp8 else [bf16, np.dtype(np.float16)][turn % 2]
    result = np.dtype(np.float32) if turn in (2, 5) else bf16 if is_fp8 else input_type
    offsets = np.concatenate([[0], np.sort(draw.integers(0, rows + 1, groups))]).astype(np.int32)
    b_rows = 2 * n if gated else n
    a, b = numbers(draw, (rows, k), input_type), numbers(draw, (groups, b_rows, k), input_type)
    bias, residual = numbers(draw, (groups, b_rows), result), numbers(draw, (rows, n), result)
    out = np.full((rows, n), 7, result)
    settings: Any = {"bias": bias, "residual": residual, "gated": gated, "activation": "silu" if gated else None}
    of_a, of_b = wide(a), wide(b)
    if is_fp8:
        blocks = [-(-extent // 128) for extent in (n, k)]
        a_scale = draw.uniform(0.5, 1.5, (rows, blocks[1])).astype(np.float32)
        b_scale = draw.uniform(0.5, 1.5, (groups, 2 if gated else 1, *blocks)).astype(np.float32)
        of_a = of_a * wide(a_scale).repeat(128, 1)[:, :k]
        each = wide(b_scale).repeat(128, 2).repeat(128, 3)[:, :, :n, :k]
        of_b = of_b * each.reshape(groups, b_rows, k)
        settings |= {"a_scale": a_scale, "b_scale": b_scale if gated else b_scale[:, 0]}
    ops.grouped_gemm(a, b, offsets, out=out, **settings)
    exact = np.empty((rows, n))
    for group, (first, end) in enumerate(zip(offsets, offsets[1:])):
        y = of_a[first:end] @ of_b[group].T + wide(bias)[group]
        y = silu(y[:, :n]) * y[:, n:] if gated else y
        exact[first:end] = y + wide(residual)[first:end]
    used = offsets[-1]
    # Tensor cores keep 14 bits of a sum of 8-bit floats.
    near(out[:used], exact[:used], 2.0**-6 if is_fp8 else 2.0**-15)
    assert np.all(wide(out[used:]) == 7), "rows past the last group stay"


@pytest.mark.parametrize("turn", range(4))
def test_mixtures_of_experts(draw: np.random.Generator, turn: int) -> None:
    rows, experts = int(draw.integers(1, 30)), 4 * int(draw.integers(1, 4))
    hidden, inner = 8 * int(draw.integers(1, 12)), 8 * int(draw.integers(1, 12))
    sigmoid, renormalize, top_k = bool(turn % 2), turn < 2, int(draw.integers(1, 3))
    x, logits = numbers(draw, (rows, hidden), bf16), numbers(draw, (rows, experts), np.float32)
    gate_up = numbers(draw, (experts, 2 * inner, hidden), bf16)
    down = numbers(draw, (experts, hidden, inner), bf16)
    correction = numbers(draw, (experts,), np.float32)
    residual, out = numbers(draw, (rows, hidden), np.float32), np.empty((rows, hidden), np.float32)
    scores = 1 / (1 + np.exp(-wide(logits))) if sigmoid else np.exp(wide(logits))
    scores = scores if sigmoid else scores / scores.sum(-1, keepdims=True)
    choice = scores + wide(correction) if sigmoid else scores
    settings: Any = {"top_k": top_k, "renormalize": renormalize, "residual": residual}
    if sigmoid:
        # The better of two groups, by the sum of the two best of each.
        groups = 2
        best = np.sort(choice.reshape(rows, groups, -1))[..., -2:].sum(-1)
        choice = np.where((best == best.max(-1, keepdims=True)).repeat(experts // groups, 1), choice, -np.inf)
        settings |= {"scoring": "sigmoid", "correction": correction, "scale": 2.5}
        settings |= {"expert_groups": groups, "kept_groups": 1}
    exact = wide(residual)
    for row in range(rows):
        ids = np.argsort(-choice[row], kind="stable")[:top_k]
        weights = scores[row, ids] / (scores[row, ids].sum() if renormalize else 1) * (2.5 if sigmoid else 1)
        for expert, weight in zip(ids, weights):
            y = wide(gate_up)[expert] @ wide(x)[row]
            exact[row] += weight * (wide(down)[expert] @ (silu(y[:inner]) * y[inner:]))
    workspace = np.empty(ops.moe_workspace(x, gate_up, top_k), np.float32)
    ops.moe(x, logits, gate_up, down, out=out, workspace=workspace, **settings)
    # Gated rows and experts' results are rounded to bfloat16.
    near(out, exact, 2.0**-7)


def attended(
    q: Any, keys: Any, values: Any, *, causal: bool = True, window: Any = None, soft_cap: Any = None, sinks: Any = None
) -> tuple[Any, Any]:
    """The attention of a sequence's queries ``[n, heads, dim]`` to tokens ``[kv_heads, t, dim]``, and log-sum-exps."""
    (queries, heads, dim), (kv_heads, tokens, _) = q.shape, keys.shape
    keys, values = (wide(cache).repeat(heads // kv_heads, 0) for cache in (keys, values))
    scores = np.einsum("qhd,htd->hqt", wide(q), keys) * dim**-0.5
    scores = scores if soft_cap is None else soft_cap * np.tanh(scores / soft_cap)
    position, token = np.arange(queries)[:, None] + tokens - queries, np.arange(tokens)[None]
    hidden = (causal & (token > position)) | (token <= position - (window or 2**31))
    weights = np.where(hidden, 0.0, np.exp(scores))
    total = weights.sum(-1) + (0.0 if sinks is None else np.exp(wide(sinks))[:, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = np.log(total)
    out = np.einsum("hqt,htd->qhd", weights / np.where(total > 0, total, 1.0)[..., None], values)
    return out, lse.T


def in_pages(draw: np.random.Generator, page: int, *caches: Any) -> list[Any]:
    """The table and the pools of dense caches ``[sequences, kv_heads, capacity, dim]``, in a random order."""
    sequences, kv_heads, capacity, dim = caches[0].shape
    pages = -(-capacity // page)
    order = draw.permutation(sequences * pages)
    found: list[Any] = [order.reshape(sequences, pages).astype(np.int32)]
    for cache in caches:
        padded = np.zeros((sequences, kv_heads, pages * page, dim), bf16)
        padded[:, :, :capacity] = cache
        pool = np.zeros((kv_heads, sequences * pages, page, dim), bf16)
        by_head = padded.reshape(sequences, kv_heads, pages, page, dim).transpose(1, 0, 2, 3, 4)
        pool[:, order] = by_head.reshape(kv_heads, sequences * pages, page, dim)
        found.append(pool)
    return found


@pytest.mark.parametrize("turn", range(4))
def test_attention_of_one_query(draw: np.random.Generator, turn: int) -> None:
    sequences, kv_heads, group, capacity = (int(n) for n in draw.integers(1, [4, 3, 5, 90]))
    dim, heads = [64, 128, 96, 80][turn], kv_heads * group
    q = numbers(draw, (sequences, heads, dim), bf16)
    tokens = draw.integers(1, capacity + 1, sequences).astype(np.int32)
    window = [None, 7][turn % 2]
    soft_cap, sinks = [None, 3.0][turn // 2], [numbers(draw, (heads,), np.float32), None][turn % 2]
    keys, values = (numbers(draw, (sequences, kv_heads, capacity, dim), bf16) for _ in range(2))
    settings: Any = {"window": window, "soft_cap": soft_cap, "sinks": sinks}
    exact, exact_lse = np.empty(q.shape), np.empty((sequences, heads))
    for at in range(sequences):
        tokens_of = (cache[at, :, : tokens[at]] for cache in (keys, values))
        exact[at : at + 1], exact_lse[at : at + 1] = attended(q[at : at + 1], *tokens_of, **settings)
    # Probabilities are rounded to bfloat16.
    bound = 2.0**-8 * np.abs(wide(values)).max() / np.abs(exact).max()
    out, lse = np.empty_like(q), f32(sequences, heads)
    workspace = np.zeros(ops.attention_workspace(q, keys), np.float32)
    # The second call finds the workspace as the first one left it.
    for _ in range(2):
        out[...] = 0
        ops.attention_decode(q, keys, values, tokens, out=out, workspace=workspace, lse=lse, **settings)
        near(out, exact, bound)
        assert np.allclose(lse, exact_lse, rtol=0, atol=1e-4)
    # The same tokens in pages, in another order.
    table, *pools = in_pages(draw, 16, keys, values)
    workspace = np.zeros(ops.attention_workspace(q, pools[0], table), np.float32)
    out[...] = 0
    ops.attention_decode(q, *pools, tokens, out=out, workspace=workspace, table=table, **settings)
    near(out, exact, bound)


@pytest.mark.parametrize("turn", range(6))
def test_attention_of_newest_queries(draw: np.random.Generator, turn: int) -> None:
    sequences, kv_heads, group = (int(n) for n in draw.integers(1, [4, 3, 4]))
    dim, heads, causal = [32, 64, 128, 96][turn % 4], kv_heads * group, turn % 3 > 0
    queries = draw.integers(0, 40, sequences)
    tokens = queries + draw.integers(0, 50, sequences)
    query_starts, token_starts = (np.append(0, counts.cumsum()).astype(np.int32) for counts in (queries, tokens))
    rows, capacity = int(query_starts[-1]), int(tokens.max()) + 1
    q = numbers(draw, (rows, heads, dim), bf16)
    keys, values = (numbers(draw, (sequences, kv_heads, capacity, dim), bf16) for _ in range(2))
    settings: Any = {
        "window": [None, 9][turn % 2] if causal else None,
        "soft_cap": [None, 3.0][turn // 3],
        "sinks": [None, numbers(draw, (heads,), np.float32)][turn // 2 % 2],
    }
    exact, exact_lse = np.empty(q.shape), np.empty((rows, heads))
    for at in range(sequences):
        of = slice(query_starts[at], query_starts[at + 1])
        tokens_of = (cache[at, :, : tokens[at]] for cache in (keys, values))
        exact[of], exact_lse[of] = attended(q[of], *tokens_of, causal=causal, **settings)
    bound = 2.0**-8 * np.abs(wide(values)).max() / np.abs(exact).max(initial=1e-3)
    table, *pools = in_pages(draw, 8, keys, values)
    ragged = (
        np.concatenate([cache[at, :, : tokens[at]] for at in range(sequences)] + [b16(kv_heads, 1, dim)], 1)
        .transpose(1, 0, 2)
        .copy()
        for cache in (keys, values)
    )
    forms: list[tuple[list[Any], Any]] = [([keys, values], None), (pools, table), (list(ragged), None)]
    for number, (kv, pages) in enumerate(forms):
        out, lse = np.zeros_like(q), f32(rows, heads)
        longest = None if number == 0 else max(int(queries.max()), 1)
        ops.attention_prefill(
            q, *kv, query_starts, token_starts, out=out, lse=lse, causal=causal, longest=longest, table=pages, **settings
        )
        near(out, exact, bound)
        assert np.allclose(lse, exact_lse, rtol=0, atol=1e-4)


def test_results_over_two_sets_of_tokens_merge(draw: np.random.Generator) -> None:
    q = numbers(draw, (20, 4, 64), bf16)
    keys, values = (numbers(draw, (50, 2, 64), bf16) for _ in range(2))
    query_starts, results = np.array([0, 20], np.int32), []
    for part in (slice(0, 30), slice(30, 50), slice(0, 50)):
        out, lse = np.empty_like(q), f32(20, 4)
        token_starts = np.array([0, part.stop - part.start], np.int32)
        ops.attention_prefill(
            q, keys[part], values[part], query_starts, token_starts, out=out, lse=lse, causal=False
        )
        results.append((out, lse))
    (a, lse_a), (b, lse_b), (whole, lse_whole) = results
    lse = f32(20, 4)
    ops.merge_attention(a, lse_a, b, lse_b, out=a, lse=lse)
    assert np.allclose(lse, lse_whole, rtol=0, atol=1e-4)
    near(a, wide(whole), 2.0**-6)
    with pytest.raises(OpError, match="lse shares memory with lse_b"):
        ops.merge_attention(a, lse_a, b, lse_b, out=a, lse=lse_b)
    # Nothing is added by tokens that are not there.
    ops.merge_attention(b, lse_b, a, f32(20, 4) - np.inf, out=a, lse=lse)
    assert np.array_equal(a, b) and np.allclose(lse, lse_b, rtol=0, atol=1e-5)


def test_choices(draw: np.random.Generator) -> None:
    logits = numbers(draw, (5, 777), np.float32)
    tokens = np.empty(5, np.int32)
    ops.argmax(logits, out=tokens)
    assert list(tokens) == list(logits.argmax(1))
    requests = [ops.sampling_request(temperature=0.7, top_k=1, seed=seed) for seed in range(5)]
    ops.sample(logits, np.frombuffer(b"".join(requests), np.uint8).reshape(5, 32), out=tokens)
    assert list(tokens) == list(logits.argmax(1)), "one of one"
    requests = [ops.sampling_request(temperature=2.0, top_k=9, seed=4, step=step) for step in range(5)]
    packed = np.frombuffer(b"".join(requests), np.uint8).reshape(5, 32)
    ops.sample(logits[:1].repeat(5, 0), packed, out=tokens)
    likeliest = set(np.argsort(-logits[0])[:9])
    assert set(tokens) <= likeliest and len(set(tokens)) > 1


def f32(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def b16(*shape: int) -> Any:
    return np.zeros(shape, bf16)


def i32(*shape: int) -> Any:
    return np.zeros(shape, np.int32)


def f8(*shape: int) -> Any:
    return np.zeros(shape, fp8)


def experts(**settings: Any) -> None:
    operands = {
        "x": b16(3, 8),
        "logits": f32(3, 4),
        "gate_up": b16(4, 16, 8),
        "down": b16(4, 8, 8),
        "out": b16(3, 8),
        "workspace": f32(9999),
        "top_k": 2,
    }
    ops.moe(**(operands | settings))


def groups(**settings: Any) -> None:
    operands = {"a": b16(3, 8), "b": b16(2, 5, 8), "offsets": i32(3), "out": b16(3, 5)}
    ops.grouped_gemm(**(operands | settings))


#: Wrong calls, and what their error says.
WRONG: list[tuple[Any, str]] = [
    (lambda: ops.rms_norm(f32(2, 8), f32(7), out=f32(2, 8)), "weight is .7."),
    (lambda: ops.rms_norm(f32(2, 8), f32(8), out=f32(2, 9)), "out is"),
    (lambda: ops.rms_norm(i32(2, 8), f32(8), out=f32(2, 8)), "x is i32"),
    (lambda: ops.rms_norm(f32(2, 8), f32(8), out=i32(2, 8)), "out is i32"),
    (lambda: ops.rms_norm(f32(2, 8), f32(8), out=f32(2, 8), eps=0.0), "eps is 0"),
    (lambda: ops.rms_norm(f32(2, 8), f32(8), out=f32(2, 8), eps=float("nan")), "eps is NaN"),
    (lambda: ops.rms_norm(f32(8, 2).T, f32(8), out=f32(2, 8)), "side by side"),
    (lambda: ops.rms_norm(f32(2, 16)[:, ::2], f32(8), out=f32(2, 8)), "side by side"),
    (lambda: ops.rms_norm(f32(3, 4, 8)[:, :2], f32(8), out=f32(3, 2, 8)), "one axis of one stride"),
    (lambda: ops.rms_norm(f32(4, 16)[:, :8], f32(8), out=f32(4, 8)), "strides"),
    (lambda: ops.rms_norm(f32(2, 8)[::-1], f32(8), out=f32(2, 8)), "negative stride"),
    (lambda: ops.rms_norm(f32(), f32(1), out=f32()), "axis"),
    (lambda: ops.rms_norm(np.zeros((2, 8)), f32(8), out=f32(2, 8)), "x is f64"),
    (lambda: ops.rms_norm([1.0], f32(1), out=f32(1)), "no array"),
    (lambda: ops.rms_norm(f32(2, 8).astype(">f4"), f32(8), out=f32(2, 8)), "byte order"),
    (lambda: ops.add_rms_norm(f32(2, 8), f32(2, 7), f32(8), out=f32(2, 8)), "added is"),
    (lambda: ops.silu_mul(f32(4), f32(5), out=f32(4)), "up is"),
    (lambda: ops.silu_mul(f32(4), f32(4), out=f32(3)), "out is"),
    (lambda: ops.silu_mul(f32(4, 8)[:, :4], f32(4, 4), out=f32(4, 4)), "contiguous"),
    (lambda: ops.gated(f32(4), f32(4), out=f32(4), activation="relu"), "relu"),
    (lambda: ops.embedding(f32(9, 8), i32(3), out=f32(3, 8)), "table is f32"),
    (lambda: ops.embedding(b16(9, 8), np.zeros(3, np.int64), out=f32(3, 8)), "ids is i64"),
    (lambda: ops.embedding(b16(9, 6), i32(3), out=f32(3, 6)), "multiple of 4"),
    (lambda: ops.embedding(b16(9, 8), i32(3), out=f32(4, 8)), "out is"),
    (lambda: ops.rope(f32(2, 8), f32(9, 4, 2), i32(2), out=f32(2, 8)), "rows, heads, dim"),
    (lambda: ops.rope(f32(2, 1, 7), f32(9, 3, 2), i32(2), out=f32(2, 1, 7)), "even"),
    (lambda: ops.rope(f32(2, 1, 8), f32(9, 3, 2), i32(2), out=f32(2, 1, 8)), "turns is"),
    (lambda: ops.rope(f32(2, 1, 8), f32(9, 4, 2), i32(3), out=f32(2, 1, 8)), "positions is"),
    (lambda: ops.gemm(b16(4, 8), b16(5, 9), out=b16(4, 5)), "K must be"),
    (lambda: ops.gemm(f32(4, 8), f32(5, 8), out=f32(4, 5)), "a is f32"),
    (lambda: ops.gemm(b16(4, 8), np.zeros((5, 8), np.float16), out=b16(4, 5)), "b is f16"),
    (lambda: ops.gemm(b16(4, 8), b16(5, 8), out=b16(5, 4)), "out is"),
    (lambda: ops.gemm(b16(4, 8), b16(5, 8), out=b16(4, 5), bias=b16(4)), "bias is"),
    (lambda: ops.gemm(b16(4, 8), b16(5, 8), out=b16(4, 5), bias=f32(5)), "bias is f32"),
    (lambda: ops.gemm(b16(4, 8), b16(5, 8), out=b16(4, 5), residual=b16(4, 4)), "residual is"),
    (lambda: ops.gemm(b16(4, 8), b16(5, 8), out=b16(4, 5), workspace=f32(3)), "workspace is"),
    (lambda: ops.gemm(b16(4, 8), b16(5, 8, 1), out=b16(4, 5)), "N, K"),
    (lambda: ops.gemm(b16(4, 8), b16(5, 8), out=b16(4, 5), bias=b16(10)[::2]), "side by side"),
    (lambda: ops.gemm(b16(4, 8), b16(5, 8), out=b16(4, 5), gated=True), "2N"),
    (lambda: ops.gemm(b16(4, 9), b16(10, 9), out=b16(4, 5), gated=True), "partial sums"),
    (lambda: ops.gemm(b16(4, 8), b16(5, 8), out=b16(4, 5), activation="clamped_swiglu"), "clamped_swiglu"),
    (lambda: ops.gemm(f8(4, 8), b16(5, 8), out=b16(4, 5)), "b is bf16"),
    (lambda: ops.gemm(f8(4, 8), f8(5, 8), out=f8(4, 5)), "out is"),
    (lambda: ops.gemm(f8(4, 8), f8(5, 8), out=b16(4, 5), a_scale=f32(1)), "a_scale and b_scale"),
    (lambda: ops.gemm(f8(4, 8), f8(5, 8), out=b16(4, 5), a_scale=f32(1), b_scale=f32(5)), "a_scale is .1."),
    (lambda: ops.gemm(f8(4, 8), f8(5, 8), out=b16(4, 5), a_scale=f32(4), b_scale=f32(4)), "b_scale is .4."),
    (lambda: ops.gemm(f8(4, 8), f8(5, 8), out=b16(4, 5), a_scale=b16(1), b_scale=f32(1)), "a_scale is bf16"),
    (lambda: ops.pack(f32(8, 64)), "bfloat16"),
    (lambda: ops.pack(b16(8, 60)), "multiple of 64"),
    (lambda: ops.pack(b16(8, 64), "w4a16"), "of 128"),
    (lambda: ops.pack(b16(8, 64), "int3"), "int3"),
    (lambda: ops.pack_codes(np.zeros((8, 2, 16), np.uint8), np.zeros((8, 3), np.uint8), "mxfp4"), "scales is .8, 3."),
    (lambda: ops.pack_codes(np.zeros((8, 2, 16), np.int8), np.zeros((8, 2), np.uint8), "mxfp4"), "codes is int8"),
    (lambda: ops.pack_codes(np.zeros((8, 2, 16), np.uint8), np.full((8, 2), 255, np.uint8), "mxfp4"), "NaN"),
    (lambda: ops.pack_codes(i32(8, 16), f32(8, 1) + 0.1, "w4a16"), "w4a16 does not hold"),
    (lambda: ops.pack_codes(i32(8, 16), b16(8, 2), "w4a16"), "groups of 64"),
    (lambda: ops.pack_codes(i32(8, 16), i32(8, 1), "w4a16"), "scales is int32"),
    (lambda: ops.pack_codes(i32(128, 1), f32(1, 8), "awq", zeros=i32(1, 2)), "zeros is int32"),
    (lambda: ops.pack_codes(i32(8, 16), b16(8, 1), "w4a16", zeros=i32(1, 1)), "no zeros"),
    (lambda: ops.pack_codes(b16(8, 64), b16(8, 1), "bf16"), "bf16 has no codes"),
    (lambda: groups(a=b16(3, 9)), "a is .3, 9.; K must be a multiple of 8"),
    (lambda: groups(a=f32(3, 8)), "a is f32"),
    (lambda: groups(b=b16(2, 5, 16)), "b is"),
    (lambda: groups(b=b16(5, 8)), "groups, N, K"),
    (lambda: groups(gated=True), "2N"),
    (lambda: groups(offsets=i32(2)), "offsets is"),
    (lambda: groups(offsets=f32(3)), "offsets is f32"),
    (lambda: groups(out=b16(3, 6)), "out is"),
    (lambda: groups(bias=b16(5)), "bias is"),
    (lambda: groups(residual=b16(5, 3)), "residual is"),
    (lambda: groups(activation="relu"), "relu"),
    (lambda: groups(a=b16(3, 16)[:, :8]), "contiguous"),
    (lambda: groups(a_scale=f32(3, 1)), "a_scale and b_scale"),
    (lambda: groups(a_scale=f32(3, 1), b_scale=f32(2, 1, 1)), "float8_e4m3fn"),
    (lambda: groups(a=f8(3, 16), b=f8(2, 5, 16)), "a_scale is absent"),
    (lambda: groups(a=f8(3, 16), b=f8(2, 5, 16), a_scale=f32(3, 1), b_scale=f32(2, 1)), "b_scale is"),
    (lambda: experts(x=f32(3, 8)), "x is f32"),
    (lambda: experts(logits=f32(4, 4)), "logits is"),
    (lambda: experts(logits=b16(3, 4)), "logits is bf16"),
    (lambda: experts(gate_up=b16(3, 16, 8)), "gate_up is"),
    (lambda: experts(gate_up=b16(4, 12, 8)), "multiple of 8"),
    (lambda: experts(down=b16(4, 8, 16)), "down is"),
    (lambda: experts(out=b16(3, 9)), "out is"),
    (lambda: experts(residual=f32(3, 8)), "residual is f32"),
    (lambda: experts(top_k=5), "top_k is 5"),
    (lambda: experts(top_k=0), "top_k is 0"),
    (lambda: experts(workspace=f32(9)), "workspace is"),
    (lambda: experts(scoring="tanh"), "tanh"),
    (lambda: experts(scale=2.0), "softmax has no"),
    (lambda: experts(correction=f32(4)), "correction is"),
    (lambda: experts(scoring="sigmoid", correction=f32(5)), "correction is"),
    (lambda: experts(scoring="sigmoid", expert_groups=3), "expert_groups is 3"),
    (lambda: experts(scoring="sigmoid", expert_groups=2, kept_groups=3), "kept_groups is 3"),
    (lambda: experts(scoring="sigmoid", scale=float("nan")), "scale is NaN"),
    (lambda: experts(gate_up_bias=b16(4, 15)), "gate_up_bias is"),
    (lambda: experts(activation="relu"), "relu"),
    (lambda: ops.pack((f32(8, 128) + np.inf).astype(bf16), "fp8"), "pack"),
    (lambda: ops.linear(b16(17, 64), ops.pack(b16(8, 64)), out=b16(17, 8)), "1 to 16 rows"),
    (lambda: ops.linear(b16(2, 64), ops.pack(b16(8, 128)), out=b16(2, 8)), "packed is"),
    (lambda: ops.linear(b16(2, 64), ops.pack(b16(8, 64)), out=b16(2, 8), bias=f32(8)), "bias is f32"),
    (lambda: ops.merge_attention(b16(2, 8), f32(2), b16(2, 9), f32(2), out=b16(2, 8)), "b is"),
    (lambda: ops.merge_attention(b16(2, 9), f32(2), b16(2, 9), f32(2), out=b16(2, 9)), "a is .* multiple of 8"),
    (lambda: ops.merge_attention(b16(2, 8), f32(3), b16(2, 8), f32(2), out=b16(2, 8)), "lse_a is"),
    (lambda: ops.merge_attention(b16(2, 8), f32(2), b16(2, 8), b16(2), out=b16(2, 8)), "lse_b is bf16"),
    (lambda: ops.merge_attention(b16(2, 8), f32(2), b16(2, 8), f32(2), out=f32(2, 8)), "out is f32"),
    (lambda: ops.merge_attention(b16(2, 8), f32(2), b16(2, 8), f32(2), out=b16(2, 8), lse=f32(1)), "lse is"),
    (lambda: ops.argmax(f32(8), out=i32(1)), "rows, vocabulary"),
    (lambda: ops.argmax(f32(2, 8), out=i32(3)), "tokens is"),
    (lambda: ops.argmax(b16(2, 8), out=i32(2)), "logits is bf16"),
    (lambda: ops.sample(f32(2, 8), np.zeros((2, 31), np.uint8), out=i32(2)), "32 bytes"),
    (lambda: ops.sampling_request(temperature=-1.0), "temperature"),
]


@pytest.mark.parametrize(("wrong", "says"), WRONG)
def test_wrong_calls_are_refused(wrong: Any, says: str) -> None:
    with pytest.raises(OpError, match=says):
        wrong()


def test_attention_refuses_what_does_not_fit() -> None:
    def call(**changed: Any) -> None:
        given = {
            "q": b16(2, 4, 64),
            "keys": b16(2, 2, 16, 64),
            "values": b16(2, 2, 16, 64),
            "tokens": i32(2) + 1,
            "out": b16(2, 4, 64),
            "workspace": f32(100_000),
        } | changed
        ops.attention_decode(**given)

    call()
    for changed, says in [
        ({"q": b16(2, 4, 72), "keys": b16(2, 2, 16, 72), "values": b16(2, 2, 16, 72), "out": b16(2, 4, 72)}, "one of"),
        ({"keys": b16(2, 3, 16, 64), "values": b16(2, 3, 16, 64)}, "heads of q"),
        ({"keys": b16(1, 2, 16, 64)}, "2 sequences"),
        ({"values": b16(2, 2, 15, 64)}, "values is"),
        ({"tokens": i32(3)}, "tokens is"),
        ({"out": b16(2, 4, 32)}, "out is"),
        ({"workspace": f32(3)}, "elements"),
        ({"window": 0}, "window is 0"),
        ({"soft_cap": -1.0}, "soft_cap"),
        ({"sinks": f32(3)}, "sinks is"),
        ({"scale": float("inf")}, "scale"),
        ({"q": f32(2, 4, 64)}, "q is f32"),
        ({"table": i32(3, 1)}, "2 sequences"),
        ({"keys": b16(2, 2, 0, 64), "values": b16(2, 2, 0, 64), "table": i32(2, 1)}, "keys is .* a token"),
        ({"lse": f32(2, 3)}, "lse is"),
        ({"lse": b16(2, 4)}, "lse is bf16"),
        ({"window": -1}, "window is 0"),
        ({"q": b16()}, "q is"),
    ]:
        with pytest.raises(OpError, match=says):
            call(**changed)


def test_prefill_refuses_what_does_not_fit() -> None:
    def call(**changed: Any) -> None:
        given = {
            "q": b16(3, 4, 64),
            "keys": b16(2, 2, 16, 64),
            "values": b16(2, 2, 16, 64),
            "query_starts": np.array([0, 1, 3], np.int32),
            "token_starts": np.array([0, 5, 8], np.int32),
            "out": b16(3, 4, 64),
        } | changed
        ops.attention_prefill(**given)

    def pair(*shape: int) -> dict[str, Any]:
        return {"keys": b16(*shape), "values": b16(*shape)}

    call()
    call(**pair(8, 2, 64))
    call(q=b16(0, 4, 64), out=b16(0, 4, 64))
    call(**pair(2, 2, 8, 64), table=i32(2, 2) + 1)
    for changed, says in [
        ({"q": b16(3, 4, 72), "out": b16(3, 4, 72)} | pair(2, 2, 16, 72), "q is .* one of"),
        ({"q": b16(12, 64)}, "q is .*rows, heads, dim"),
        ({"q": f32(3, 4, 64)}, "q is f32"),
        ({"q": b16(3, 4, 128)[..., :64]}, "q has strides"),
        (pair(2, 3, 16, 64), "keys is .* heads of q"),
        (pair(8, 3, 64), "keys is .* heads of q"),
        (pair(8, 2, 32), "keys is .* 64 dimensions"),
        (pair(1, 2, 16, 64), "keys is .* 2 sequences"),
        (pair(2, 64), "keys is .*capacity"),
        (pair(0, 2, 64), "keys is .* a token"),
        (pair(2, 2, 0, 64), "keys is .* a token"),
        (pair(2, 0, 8, 64) | {"table": i32(2, 2)}, "keys is .* a token"),
        (pair(2, 2, 7, 64) | {"table": i32(2, 2)}, "keys is .* multiple of 8"),
        (pair(8, 2, 64) | {"table": i32(2, 2)}, "keys is .*page_tokens"),
        (pair(2, 2, 8, 64) | {"table": i32(3, 2)}, "table is .* 2 sequences"),
        ({"values": b16(2, 2, 15, 64)}, "values is"),
        ({"query_starts": i32()}, "query_starts is"),
        ({"query_starts": i32(0)}, "query_starts is"),
        ({"query_starts": f32(3)}, "query_starts is f32"),
        ({"token_starts": i32(2)}, "token_starts is"),
        ({"token_starts": np.zeros(3, np.int64)}, "token_starts is i64"),
        ({"out": b16(3, 4, 32)}, "out is"),
        ({"out": f32(3, 4, 64)}, "out is f32"),
        ({"lse": f32(3)}, "lse is"),
        (dict.fromkeys(("q", "out"), b16(3, 4, 64)), "out shares memory with q"),
        ({"window": 0}, "window is 0"),
        ({"window": 5, "causal": False}, "window is 5.*causal"),
        ({"longest": 0}, "longest is 0"),
        ({"longest": -1}, "longest is 0"),
        ({"soft_cap": 0.0}, "soft_cap is 0"),
        ({"sinks": f32(3)}, "sinks is"),
        ({"scale": float("nan")}, "scale is NaN"),
    ]:
        with pytest.raises(OpError, match=f"attention_prefill: {says}"):
            call(**changed)


def test_a_read_only_result_is_refused() -> None:
    out = f32(4)
    out.flags.writeable = False
    with pytest.raises(OpError, match="read-only"):
        ops.silu_mul(f32(4), f32(4), out=out)


def test_the_hosts_memory_needs_the_simulator_of_this_thread() -> None:
    def call() -> None:
        with pytest.raises(OpError, match="simulator"):
            ops.silu_mul(f32(4), f32(4), out=f32(4))

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(call).result()


def test_an_access_outside_is_found() -> None:
    # A position that the table of turns does not have: a GPU would read what lies there.
    with pytest.raises(OpError):
        ops.rope(f32(1, 1, 8), f32(4, 4, 2), i32(1) + 4, out=f32(1, 1, 8))
