"""Operators of torch, on the simulated GPU: their registration, and graphs that keep them whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tilewright import OpError, ops

torch = pytest.importorskip("torch")
import tilewright.torch as registered  # noqa: E402

from .layers import normed_gate  # noqa: E402

b16 = torch.bfloat16


@pytest.fixture(autouse=True)
def simulated() -> Iterator[None]:
    torch.manual_seed(1)
    with ops.simulator(), torch.no_grad():
        yield


def attention() -> dict[str, Any]:
    q, keys = torch.randn(2, 4, 64, dtype=b16), torch.randn(2, 2, 16, 64, dtype=b16)
    return {
        "q": q,
        "keys": keys,
        "values": torch.randn_like(keys),
        "tokens": torch.tensor([5, 16], dtype=torch.int32),
        "out": torch.empty_like(q),
        "workspace": torch.zeros(ops.attention_workspace(q, keys)),
        "lse": torch.empty(2, 4),
    }


def experts() -> dict[str, Any]:
    x, gate_up = torch.randn(3, 16, dtype=b16), torch.randn(4, 16, 16, dtype=b16)
    return {
        "x": x,
        "logits": torch.randn(3, 4),
        "gate_up": gate_up,
        "down": torch.randn(4, 16, 8, dtype=b16),
        "out": torch.empty(3, 16),
        "workspace": torch.zeros(ops.moe_workspace(x, gate_up, 2)),
        "top_k": 2,
    }


def prefill() -> dict[str, Any]:
    q, keys = torch.randn(7, 4, 64, dtype=b16), torch.randn(12, 2, 64, dtype=b16)
    return {
        "q": q,
        "keys": keys,
        "values": torch.randn_like(keys),
        "query_starts": torch.tensor([0, 5, 7], dtype=torch.int32),
        "token_starts": torch.tensor([0, 5, 12], dtype=torch.int32),
        "out": torch.empty_like(q),
        "lse": torch.empty(7, 4),
    }


def merge() -> dict[str, Any]:
    a, lse = torch.randn(3, 2, 64, dtype=b16), torch.randn(3, 2)
    return {"a": a, "lse_a": lse, "b": a + 1, "lse_b": lse * 2, "out": torch.empty_like(a), "lse": torch.empty(3, 2)}


def calls() -> list[tuple[Any, dict[str, Any]]]:
    x, request = torch.randn(3, 64), ops.sampling_request(top_k=1)
    return [
        (registered.rms_norm, {"x": x, "weight": torch.randn(64), "out": torch.empty(3, 64)}),
        (registered.add_rms_norm, {"x": x, "added": x + 1, "weight": torch.randn(64), "out": torch.empty(3, 64)}),
        (registered.gated, {"gate": x, "up": x + 1, "out": torch.empty(3, 64), "activation": "gelu_tanh"}),
        (
            registered.embedding,
            {
                "table": torch.randn(9, 8, dtype=b16),
                "ids": torch.arange(4, dtype=torch.int32),
                "out": torch.empty(4, 8),
            },
        ),
        (
            registered.rope,
            {
                "x": torch.randn(3, 2, 8),
                "turns": registered.turns(5, 8),
                "positions": torch.arange(3, dtype=torch.int32),
                "out": torch.empty(3, 2, 8),
            },
        ),
        (
            registered.gemm,
            {
                "a": torch.randn(3, 16, dtype=b16),
                "b": torch.randn(8, 16, dtype=b16),
                "out": torch.empty(3, 8, dtype=b16),
                "bias": torch.randn(8, dtype=b16),
                "activation": "silu",
                "residual": torch.randn(3, 8, dtype=b16),
                "workspace": torch.empty(ops.gemm_workspace(3, 8)),
            },
        ),
        (
            registered.linear,
            {
                "x": torch.randn(3, 64, dtype=b16),
                "packed": ops.pack(torch.randn(24, 64, dtype=b16)),
                "out": torch.empty(3, 24, dtype=b16),
            },
        ),
        (
            registered.grouped_gemm,
            {
                "a": torch.randn(5, 16, dtype=b16),
                "b": torch.randn(2, 8, 16, dtype=b16),
                "offsets": torch.tensor([0, 2, 5], dtype=torch.int32),
                "out": torch.empty(5, 8, dtype=b16),
            },
        ),
        (registered.moe, experts()),
        (registered.attention_decode, attention()),
        (registered.attention_prefill, prefill()),
        (registered.merge_attention, merge()),
        (registered.argmax, {"logits": x, "out": torch.empty(3, dtype=torch.int32)}),
        (
            registered.sample,
            {
                "logits": x,
                "requests": torch.frombuffer(bytearray(request * 3), dtype=torch.uint8).reshape(3, 32),
                "out": torch.empty(3, dtype=torch.int32),
            },
        ),
    ]


#: The operators of :func:`calls`.
OPERATORS = 14


@pytest.mark.parametrize("at", range(OPERATORS))
def test_every_operator_passes_opcheck(at: int) -> None:
    assert len(calls()) == OPERATORS == len(registered.__all__) - 1, "every operator, and the table of turns"
    op, operands = calls()[at]
    torch.library.opcheck(op, (), operands)


def test_autograd_knows_what_was_written() -> None:
    x = torch.randn(3, 64, requires_grad=True)
    with torch.enable_grad():
        kept = x.exp()
        total = kept.sum()
        registered.rms_norm(torch.randn(3, 64), torch.ones(64), kept.detach())
        with pytest.raises(RuntimeError, match="inplace operation"):
            total.backward()


def test_a_compiled_function_keeps_the_operators() -> None:
    x, weight = torch.randn(3, 64), torch.randn(64)
    compiled = torch.compile(normed_gate, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, weight), normed_gate(x, weight), rtol=0, atol=0)


def test_operators_agree_with_torch() -> None:
    operands = attention()
    registered.attention_decode(**operands)
    q, keys, values = (operands[name].float() for name in ("q", "keys", "values"))
    mask = torch.arange(16)[None] < operands["tokens"][:, None]
    exact = torch.nn.functional.scaled_dot_product_attention(
        q[:, :, None], keys, values, attn_mask=mask[:, None, None], enable_gqa=True
    )[:, :, 0]
    torch.testing.assert_close(operands["out"].float(), exact, rtol=2e-2, atol=2e-2)
    operands = prefill()
    registered.attention_prefill(**operands)
    for queries, tokens in [(slice(0, 5), slice(0, 5)), (slice(5, 7), slice(5, 12))]:
        q = operands["q"][queries].float().transpose(0, 1)
        keys, values = (operands[name][tokens].float().transpose(0, 1) for name in ("keys", "values"))
        mask = torch.ones(q.shape[1], keys.shape[1]).tril(keys.shape[1] - q.shape[1]).bool()
        exact = torch.nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
        torch.testing.assert_close(operands["out"][queries].float(), exact.transpose(0, 1), rtol=2e-2, atol=2e-2)


def test_products_of_fp8_agree_with_torch() -> None:
    a, b = (torch.randn(rows, 64).to(torch.float8_e4m3fn) for rows in (5, 16))
    scales, out = [torch.rand(5, 1) + 0.5, torch.rand(1, 16) + 0.5], torch.empty(5, 16)
    registered.gemm(a, b, out, a_scale=scales[0], b_scale=scales[1])
    torch.testing.assert_close(out, a.float() @ b.float().T * scales[0] * scales[1], rtol=1e-2, atol=1e-1)


def test_codes_of_torch_are_packed() -> None:
    x, out = torch.randn(3, 128, dtype=b16), torch.empty(3, 8)
    scale = torch.full((8, 1), 0.5, dtype=b16)
    words = torch.full((8, 16), 0x55555555, dtype=torch.int32)
    ops.linear(x, ops.pack_codes(words, scale, "w4a16"), out=out, form="w4a16")
    torch.testing.assert_close(out, x.float().sum(1, keepdim=True).expand(3, 8) * -1.5, rtol=1e-3, atol=1e-2)
    codes = torch.randn(8, 128).to(torch.float8_e4m3fn)
    ops.linear(x, ops.pack_codes(codes, scale, "fp8"), out=out, form="fp8")
    torch.testing.assert_close(out, x.float() @ codes.float().T / 2, rtol=1e-3, atol=1e-2)


def test_what_has_no_gradient_is_refused() -> None:
    x = torch.randn(3, 64, requires_grad=True)
    with torch.enable_grad(), pytest.raises(OpError, match="gradient"):
        ops.rms_norm(x, torch.ones(64), out=torch.empty(3, 64))


def test_dlpack_is_read_in_place() -> None:
    class Speaks:
        """An array that has DLPack's protocol alone."""

        def __init__(self, tensor: Any) -> None:
            self._tensor = tensor
            self.shape = tensor.shape

        def __dlpack__(self) -> Any:
            return self._tensor.__dlpack__()

    gate, up, out = torch.randn(4, 8, dtype=b16), torch.randn(4, 8), torch.empty(4, 8)
    ops.silu_mul(Speaks(gate), Speaks(up), out=Speaks(out))
    torch.testing.assert_close(out, torch.nn.functional.silu(gate.float()) * up, rtol=1e-5, atol=1e-5)


def test_a_transformers_model_runs_here(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    from tilewright import Engine

    from .conftest import MODELS

    model = transformers.AutoModelForCausalLM.from_pretrained(MODELS / "tiny-llama", dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODELS / "tiny-llama")
    ids = tokenizer("In the beginning", return_tensors="pt").input_ids
    expected = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :].tolist()
    with Engine.from_transformers(model, tokenizer, device="cpu", rows=1) as engine:
        assert engine.generate(ids[0].tolist(), max_new_tokens=12).token_ids == expected
