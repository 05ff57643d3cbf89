"""A decode step, or a part of one, as one launch on a caller's stream."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from . import _native
from ._native import EngineError
from .ops import _current_stream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Types of elements as the protocol of CUDA arrays names them. It has none for the last two.
_TYPE_STRINGS = {"float32": "<f4", "float16": "<f2", "int32": "<i4", "bfloat16": "<u2", "float8_e4m3fn": "|u1"}


class _Memory:
    """A buffer of a plan, which it keeps alive, by the protocol of CUDA arrays."""

    def __init__(self, plan: Plan, dtype: str, shape: tuple[int, ...], address: int) -> None:
        self._plan = plan
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "strides": None,
            "typestr": _TYPE_STRINGS[dtype],
            "version": 3,
        }


class Plan:
    """A decode step of a model or of a part of it: one kernel launch, which a CUDA graph may capture.

    Made by :meth:`tilewright.Engine.plan`. Its inputs and results lie in buffers:

    ==========================  ==============================================  =============================
    buffer                      type, shape                                     of
    ==========================  ==============================================  =============================
    ``token``                   int32 ``[rows]``                                the model
    ``hidden.in``               float32 ``[rows, hidden]``                      parts: the stream before them
    ``hidden.out``              float32 ``[rows, hidden]``                      parts: the stream after them
    ``position``                int32 ``[rows]``; negative: the row is idle     all but an MLP
    ``page_table``              int32 ``[rows, pages of a sequence]``           all but an MLP
    ``layers.N.k``, ``.v``      ``[kv_heads, pages, page_tokens, head_dim]``    each layer that attends
    ``logits``, ``next_token``  float32 ``[rows, vocab]``, int32 ``[rows]``     the model
    ==========================  ==============================================  =============================

    Rows are different sequences or consecutive tokens of one. The page table begins as one run of pages
    for each row. Elements of a pool lie in an order of their own within a page.
    """

    def __init__(self, native: _native.Plan, is_simulated: bool) -> None:
        self._native = native
        self._is_simulated = is_simulated
        self._buffers = {name: (dtype, tuple(shape), address) for name, dtype, shape, address in native.buffers()}

    @property
    def buffers(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The type and the shape of each buffer."""
        return {name: (dtype, shape) for name, (dtype, shape, _) in self._buffers.items()}

    def __getitem__(self, name: str) -> Any:
        """A buffer as a tensor of torch, in place, on the GPU."""
        dtype, shape, address = self._buffer(name)
        if self._is_simulated:
            raise EngineError("a simulated GPU has no memory for torch: use read and write")
        torch = sys.modules.get("torch")
        if torch is None:
            raise EngineError(f"import torch for a tensor of {name}, or use read and write")
        return torch.as_tensor(_Memory(self, dtype, shape, address), device="cuda").view(getattr(torch, dtype))

    def queue(self, stream: int | None = None) -> None:
        """Queues a step on torch's current stream, or on ``stream``: the value of a ``cudaStream_t``.

        It waits for nothing. What fails is raised by :meth:`check`.
        """
        torch = sys.modules.get("torch")
        if stream is None and torch is not None and not self._is_simulated:
            stream = _current_stream(torch.cuda.current_device())
        self._native.queue(stream)

    def check(self) -> None:
        """Raises the first failure of queued steps, once they have ended."""
        self._native.check()

    def run(self, tokens: list[int], positions: list[int], steps: int) -> list[list[int]]:
        """Runs steps of a whole model in one launch, each with the tokens that the one before chose.

        The result has the tokens of each row for each step. It waits for the launch.
        """
        chosen = self._native.run(tokens, positions, steps)
        rows = len(tokens)
        return [list(chosen[first : first + rows]) for first in range(0, len(chosen), rows)]

    def write(self, name: str, array: npt.ArrayLike) -> None:
        """Writes an array of the host to a buffer; waits for it."""
        import numpy

        dtype, shape, _ = self._buffer(name)
        values = numpy.ascontiguousarray(array, dtype=_TYPE_STRINGS[dtype])
        if values.size != math.prod(shape):
            raise EngineError(f"{name} is {list(shape)}, an array of {list(values.shape)} was given")
        self._native.write(name, values.tobytes())

    def read(self, name: str) -> npt.NDArray[np.generic]:
        """A copy of a buffer in the host's memory, after the work of the plan's own stream.

        Numbers of types that numpy does not have come as integers of their bits.
        """
        import numpy

        dtype, shape, _ = self._buffer(name)
        return numpy.frombuffer(self._native.read(name), dtype=_TYPE_STRINGS[dtype]).reshape(shape)

    def _buffer(self, name: str) -> tuple[str, tuple[int, ...], int]:
        if name not in self._buffers:
            raise EngineError(f"the plan has no buffer {name}; it has {', '.join(self._buffers)}")
        return self._buffers[name]
