"""A transformers Llama by the ops of the simulated GPU."""

from __future__ import annotations

import pytest

from tilewright import Engine, OpError, ops

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from tilewright.transformers import Decoder  # noqa: E402

from .conftest import MODELS  # noqa: E402


def model(**settings: object) -> object:
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=96, hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, max_position_embeddings=64, **settings,
    )
    return transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()


def test_decode_steps_are_the_models() -> None:
    llama, sequences = model(attention_bias=True), 2
    prompt = torch.randint(96, (sequences, 5))
    cache = transformers.StaticCache(config=llama.config, max_cache_len=32)
    exact_cache = transformers.DynamicCache()
    with torch.no_grad(), ops.simulator(5):
        for kept in (cache, exact_cache):
            llama(prompt, past_key_values=kept, use_cache=True)
        decoder = Decoder(llama, context=32, sequences=sequences)
        decoder.load(cache, tokens=5)
        for position in range(5, 8):
            token = torch.randint(96, (sequences, 1))
            found = decoder(token, torch.full((sequences,), position))
            exact = llama(token, past_key_values=exact_cache).logits[:, -1].float()
            assert (found - exact).abs().max() < 0.03 * exact.abs().max()


def test_an_engine_reads_a_model_where_it_is() -> None:
    folder = MODELS / "tiny-llama"
    llama = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with Engine(folder, device="cpu") as exact, Engine.from_transformers(llama, tokenizer, device="cpu") as engine:
        assert engine.generate("In the beginning", max_new_tokens=12) == exact.generate(
            "In the beginning", max_new_tokens=12
        )


def test_models_that_are_not_understood_are_refused() -> None:
    with pytest.raises(OpError, match="runs silu in bfloat16"):
        Decoder(model(hidden_act="gelu"), context=32)
    llama = model()
    llama.config.model_type = "gpt2"
    with pytest.raises(OpError, match="this model is a gpt2"):
        Decoder(llama, context=32)
