"""Ops on a GPU, against torch in float64: shapes at random, streams, graphs. Skipped where there is no GPU.

``TILEWRIGHT_LONG=1`` draws 300 shapes of each op, in parts that several processes can share: most of the time goes to kernels that
are made.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tilewright import Engine, OpError, ops

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
import tilewright.torch as registered  # noqa: E402

from . import test_ops, test_torch  # noqa: E402
from .layers import normed_gate  # noqa: E402

DRAWS = 20
PARTS = 15 if os.environ.get("TILEWRIGHT_LONG") == "1" else 1
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
b16 = torch.bfloat16
MODEL = Path(__file__).parents[2] / "models" / "tiny-llama"


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
    info = torch.finfo(found.dtype)
    rounding = info.eps / 2
    largest = exact.abs().max().clamp_min(1e-3) if exact.numel() else 1.0
    # Numbers below the least normal one are as far apart as those above it.
    worst = (found.double() - exact).abs() - rounding * exact.abs().clamp_min(info.tiny) - bound * largest
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
    if n % 2 == 0:
        half = torch.empty(m, n // 2, dtype=dtype)
        ops.gemm(a, b, out=half, bias=bias, activation="silu", gated=True, workspace=workspace)
        gate, up = (a.double() @ b.double().T + bias.double()).chunk(2, -1)
        near(half, torch.nn.functional.silu(gate) * up, 2.0**-15)


def draw_gemm_fp8() -> None:
    m, n, k = number(1, 1500), number(1, 1500), number(1, 3000)
    if number(0, 1):
        n, k = 8 * -(-n // 8), 16 * -(-k // 16)
    a, b = (torch.randn(rows, k).to(torch.float8_e4m3fn) for rows in (m, n))
    out, workspace = torch.empty(m, n, dtype=one_of([b16, torch.float32])), torch.empty(ops.gemm_workspace(m, n))
    shapes = one_of([((m, 1), (1, n)), ((1,), (1,))])
    scales = [torch.rand(shape) + 0.5 for shape in shapes]
    ops.gemm(a, b, out=out, a_scale=scales[0], b_scale=scales[1], workspace=one_of([None, workspace]))
    exact = a.double() @ b.double().T * scales[0].double() * scales[1].double()
    # Tensor cores keep 14 bits of a sum of 8-bit floats; scales are at most 1.5 each.
    sizes = a.double().abs() @ b.double().abs().T
    near(out, exact, float(2.25 * 2.0**-9 * sizes.max() / exact.abs().max()))


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
    # MXFP4 as gpt-oss stores it: two columns a byte, the first one in the low bits, and exponents.
    codes = torch.randint(0, 16, (n, k // 32, 32))
    scales = torch.randint(120, 132, (n, k // 32, 1))
    blocks = (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)
    packed = ops.pack_codes(blocks, scales[..., 0].to(torch.uint8), "mxfp4")
    ops.linear(x, packed, out=out, form="mxfp4", residual=residual)
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    values = torch.cat([values, -values])[codes] * torch.exp2(scales.double() - 127)
    near(out, x.double() @ values.reshape(n, k).T + residual.double(), 2.0**-14)


def draw_grouped() -> None:
    groups, rows, n, k = number(1, 60), number(1, 2000), number(1, 1500), 16 * number(1, 100)
    gated, is_fp8 = bool(number(0, 1)), bool(number(0, 1))
    dtype = torch.float8_e4m3fn if is_fp8 else one_of([b16, torch.float16])
    b_rows = 2 * n if gated else n
    a, b = torch.randn(rows, k).to(dtype), torch.randn(groups, b_rows, k).to(dtype)
    ends = torch.randint(0, rows + 1, (groups,), device="cpu").sort().values.tolist()
    offsets = torch.tensor([0, *ends], dtype=torch.int32)
    out = torch.full((rows, n), 7.0, dtype=torch.float32)
    settings: dict[str, Any] = {"gated": gated, "activation": "silu" if gated else None}
    of_a, of_b = a.double(), b.double()
    if is_fp8:
        across, down = -(-n // 128), -(-k // 128)
        a_scale = torch.rand(rows, down) + 0.5
        b_scale = torch.rand(groups, 2 if gated else 1, across, down) + 0.5
        of_a = of_a * a_scale.double().repeat_interleave(128, 1)[:, :k]
        each = b_scale.double().repeat_interleave(128, 2).repeat_interleave(128, 3)[:, :, :n, :k]
        of_b = of_b * each.reshape(groups, b_rows, k)
        settings |= {"a_scale": a_scale, "b_scale": b_scale if gated else b_scale[:, 0].contiguous()}
    ops.grouped_gemm(a, b, offsets, out=out, **settings)
    exact = torch.full((rows, n), 7.0, dtype=torch.float64)
    for group, (first, end) in enumerate(zip([0, *ends], ends)):
        y = of_a[first:end] @ of_b[group].T
        exact[first:end] = torch.nn.functional.silu(y[:, :n]) * y[:, n:] if gated else y
    # Tensor cores keep 14 bits of a sum of 8-bit floats.
    near(out, exact, 2.0**-6 if is_fp8 else 2.0**-15)


def draw_moe() -> None:
    rows, experts, top_k = number(1, 600), 8 * number(1, 16), number(1, 8)
    hidden, inner = 8 * number(1, 200), 8 * number(1, 100)
    x, logits = torch.randn(rows, hidden, dtype=b16), torch.randn(rows, experts)
    gate_up = torch.randn(experts, 2 * inner, hidden, dtype=b16) / 32
    down = torch.randn(experts, hidden, inner, dtype=b16) / 32
    residual = torch.randn(rows, hidden)
    out, renormalize = torch.empty_like(residual), bool(number(0, 1))
    workspace = torch.empty(ops.moe_workspace(x, gate_up, top_k))
    ops.moe(
        x, logits, gate_up, down, top_k=top_k, out=out, workspace=workspace, renormalize=renormalize, residual=residual
    )
    weights, ids = logits.double().softmax(-1).topk(top_k)
    weights = weights / weights.sum(-1, keepdim=True) if renormalize else weights
    exact = residual.double()
    for expert in range(experts):
        row, place = (ids == expert).nonzero(as_tuple=True)
        gate, up = (x[row].double() @ gate_up[expert].double().T).chunk(2, -1)
        y = (torch.nn.functional.silu(gate) * up) @ down[expert].double().T
        exact.index_add_(0, row, y * weights[row, place, None])
    # Gated rows and experts' results are rounded to bfloat16.
    near(out, exact, 2.0**-7)


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
        draw_gemm_fp8,
        draw_linear,
        draw_grouped,
        draw_moe,
        draw_attention,
        draw_prefill,
        draw_merge,
        draw_argmax,
    ],
)
@pytest.mark.parametrize("part", range(PARTS))
def test_shapes_at_random(draw: Any, part: int) -> None:
    seed = 1000 * int(os.environ.get("TILEWRIGHT_SEED", "1")) + part
    torch.manual_seed(seed)
    print(f"seed {seed}")  # shown with a failure
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


@pytest.mark.parametrize("at", range(test_torch.OPERATORS))
def test_every_operator_passes_opcheck(at: int) -> None:
    torch.set_default_device("cpu")
    with ops.simulator():
        op, operands = test_torch.calls()[at]
    operands = {name: value.cuda() if torch.is_tensor(value) else value for name, value in operands.items()}
    if "workspace" in operands:
        # A GPU has more multiprocessors to share work than the simulated one.
        operands["workspace"] = torch.zeros(1 << 20, device="cuda")
    torch.library.opcheck(op, (), operands)


def test_wrong_calls_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"f32": torch.float32, "b16": b16, "i32": torch.int32, "f8": torch.float8_e4m3fn}
    for name, dtype in kinds.items():
        monkeypatch.setattr(test_ops, name, lambda *shape, dtype=dtype: torch.zeros(shape, dtype=dtype))
    refused = 0
    for wrong, says in test_ops.WRONG:
        try:
            wrong()
        except OpError as error:
            if "lies in the host's memory" in str(error) or "another device" in str(error):
                continue  # operands that are numpy's
            assert re.search(says, str(error)), f"{error}, not {says}"
            refused += 1
        except (AttributeError, TypeError, ValueError):
            pass  # operands that numpy alone makes so
        else:
            raise AssertionError(f"no error says {says}")
    assert refused >= 40


def test_operands_of_two_places_are_refused() -> None:
    x = torch.randn(3, 64)
    with pytest.raises(OpError, match="another device"):
        ops.rms_norm(x, torch.ones(64, device="cpu"), out=x)


def step(plan: Any, hidden: Any, position: int) -> Any:
    plan["hidden.in"].copy_(hidden)
    plan["position"].fill_(position)
    plan.queue()
    return plan["hidden.out"].clone()


def test_plans_run_on_tensors_and_in_graphs() -> None:
    with Engine(MODEL, device="cuda:0") as engine:
        layers = next(at for at in range(99) if f"layers.{at}.k" not in engine.plan(context=64).buffers)
        whole = engine.plan(layers=range(layers), context=64)
        parts = [engine.plan(attention=0, context=64), engine.plan(mlp=0, context=64)]
        parts.append(engine.plan(layers=range(1, layers), context=64))
        for position in range(4):
            hidden = torch.randn_like(whole["hidden.in"])
            exact = step(whole, hidden, position)
            for part in parts:
                hidden = step(part, hidden, position)
            near(hidden, exact.double(), 2.0**-18)
        # A captured step, repeated: each call writes the same place, from what it is given.
        graph, whole_out = torch.cuda.CUDAGraph(), torch.empty_like(exact)
        with torch.cuda.graph(graph):
            whole.queue()
            whole_out.copy_(whole["hidden.out"])
        for position in range(4, 12):
            hidden = torch.randn_like(exact)
            exact = step(whole, hidden, position)
            whole["hidden.out"].zero_()
            graph.replay()
            assert torch.equal(whole_out, exact)
        for plan in [whole, *parts]:
            plan.check()


def test_a_plan_of_the_model_chooses_the_engines_tokens() -> None:
    with Engine(MODEL, device="cuda:0") as engine:
        prompt = engine.encode("In the beginning")
        expected = engine.generate(prompt, max_new_tokens=24, ignore_eos=True).token_ids
        plan = engine.plan(context=128)
        token, position, chosen = plan["token"], plan["position"], plan["next_token"]
        for at, fed in enumerate(prompt):
            token.fill_(fed)
            position.fill_(at)
            plan.queue()
        found = [int(chosen)]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            token.copy_(chosen)
            position.add_(1)
            plan.queue()
        while len(found) < len(expected):
            graph.replay()
            found.append(int(chosen))
        plan.check()
        assert found == expected
        again = plan.run([prompt[-1]], [len(prompt) - 1], 24)
        assert [row[0] for row in again] == expected
