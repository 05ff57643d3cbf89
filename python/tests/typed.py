"""A program that a strict type checker accepts; it is not run."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np

from tilewright import BankConflicts, Completion, Engine, Fragment, Layout, Request, TextStream, fragment, layout, ops


def text(engine: Engine) -> str:
    one: Completion = engine.generate("In the beginning", max_new_tokens=24)
    several: list[Completion] = engine.generate(["a", "b"], Request(temperature=0.5))
    stream: TextStream = engine.stream([1, 2, 3])
    return one.text + "".join(made.text for made in several) + "".join(token.text for token in stream)


async def pieces(engine: Engine) -> AsyncIterator[str]:
    async for token in engine.stream("In the beginning"):
        yield token.text


def layouts() -> tuple[Layout, int, BankConflicts, Fragment]:
    rows = layout("(4,8):(8,1)")
    return rows.zipped_divide((2, 4)) @ 8, rows((1, 2)), rows.bank_conflicts(4), fragment("SM80_16x8x8_F16F16F16F16_TN", "A")


def norm(x: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> None:
    ops.rms_norm(x, x[0], out=x, eps=1e-6)
