"""Plans of a decode step on the simulated GPU; on a GPU they are in ``test_gpu``."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import Engine, EngineError

from .conftest import MODELS

PROMPT = [5, 17, 40]


@pytest.fixture(scope="module")
def simulated() -> Engine:
    return Engine(MODELS / "tiny-llama", device="sim:3")


def test_a_plan_of_the_model_chooses_the_engines_tokens(simulated: Engine) -> None:
    expected = simulated.generate(PROMPT, max_new_tokens=2, ignore_eos=True).token_ids
    plan = simulated.plan(context=64)
    for position, token in enumerate([*PROMPT, expected[0]]):
        plan.write("token", [token])
        plan.write("position", [position])
        plan.queue()
    plan.check()
    assert plan.read("next_token").tolist() == expected[1:]
    assert np.argmax(plan.read("logits")) == expected[1]
    assert plan.run([PROMPT[-1]], [len(PROMPT) - 1], 2) == [[token] for token in expected]


def test_halves_of_a_layer_are_the_layer(simulated: Engine) -> None:
    layer, attention, mlp = (
        simulated.plan(**part, rows=2, context=64) for part in ({"layers": range(1, 2)}, {"attention": 1}, {"mlp": 1})
    )
    assert layer.buffers["hidden.in"] == ("float32", (2, layer.buffers["hidden.in"][1][1]))
    hidden = np.random.default_rng(1).standard_normal(layer.buffers["hidden.in"][1], np.float32)
    for plan in (layer, attention, mlp):
        plan.write("position", [0, 1])
    layer.write("hidden.in", hidden)
    layer.queue()
    attention.write("hidden.in", hidden)
    attention.queue()
    mlp.write("hidden.in", attention.read("hidden.out"))
    mlp.queue()
    assert np.allclose(mlp.read("hidden.out"), layer.read("hidden.out"), rtol=1e-4, atol=1e-4)


def test_mistakes_are_one_exception(simulated: Engine) -> None:
    plan = simulated.plan(mlp=0, context=64)
    for message, wrong in [
        ("name one of them", lambda: simulated.plan(mlp=0, attention=0)),
        ("skips layers", lambda: simulated.plan(layers=range(0, 4, 2))),
        ("is none of the model", lambda: simulated.plan(mlp=-1)),
        ("the model has", lambda: simulated.plan(layers=range(3, 99))),
        ("name at least one", lambda: simulated.plan(layers=range(0))),
        ("option `rows` is 0", lambda: simulated.plan(rows=0)),
        ("17 were asked for", lambda: simulated.plan(rows=17)),
        ("has no buffer token", lambda: plan.write("token", [1])),
        ("an array of", lambda: plan.write("hidden.in", [1.0])),
        ("no memory for torch", lambda: plan["hidden.in"]),
    ]:
        with pytest.raises(EngineError, match=message):
            wrong()


def test_a_plan_is_of_a_gpu(engine: Engine) -> None:
    with pytest.raises(EngineError, match="a plan is of one GPU"):
        engine.plan()
