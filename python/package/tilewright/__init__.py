"""Typed layouts, tile kernels and a fast inference engine for language models on NVIDIA GPUs."""

from . import ops
from ._engine import Completion, Engine, Logprobs, Request, TextStream, Token
from ._layout import (
    BankConflicts,
    Fragment,
    Layout,
    Swizzle,
    atoms,
    evaluate,
    fragment,
    layout,
)
from ._native import EngineError, LayoutError, OpError
from ._plan import Plan

__all__ = [
    "BankConflicts",
    "Completion",
    "Engine",
    "EngineError",
    "Fragment",
    "Layout",
    "LayoutError",
    "Logprobs",
    "OpError",
    "Plan",
    "Request",
    "Swizzle",
    "TextStream",
    "Token",
    "atoms",
    "evaluate",
    "fragment",
    "layout",
    "ops",
]
