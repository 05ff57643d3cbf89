"""Models of the repository, and numbers at random by a printed seed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tilewright import Engine

MODELS = Path(__file__).resolve().parents[2] / "models"


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with Engine(MODELS / "tiny-llama", device="cpu", rows=8) as made:
        yield made


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> np.random.Generator:
    seed = int(os.environ.get("TILEWRIGHT_SEED", "1"))
    print(f"TILEWRIGHT_SEED={seed}")
    return np.random.default_rng([seed, *request.node.name.encode()])
