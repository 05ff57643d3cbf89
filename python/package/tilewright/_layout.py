"""Layouts: functions from the coordinates of a tensor to offsets in memory.

Notation and conventions are those of NVIDIA's CuTe: a layout is ``shape:stride``, a single integer
is a coordinate that counts the first mode fastest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union

from . import _native
from ._native import LayoutError

#: A shape, a stride or a coordinate: an integer or a tuple of these.
IntTuple = Union[int, tuple["IntTuple", ...]]
#: A coordinate in which ``None`` keeps a mode.
Coord = Union[int, None, tuple["Coord", ...]]
#: Tiles: an extent, a layout, ``None`` (a mode stays whole), or a tuple of these, one for each mode.
Tiler = Union[int, str, "Layout", None, tuple["Tiler", ...]]


def evaluate(expression: str) -> Any:
    """The value of an expression, such as ``"blocked_product((2,2):(2,1), (2,2):(2,1))"``.

    The language is that of ``tilewright layout eval``. A value is an integer, a truth value, a
    tuple, a :class:`Layout` or a :class:`Swizzle`.
    """
    return _wrapped(_native.evaluate(expression))


def layout(expression: str) -> Layout:
    """The layout of an expression: ``layout("(4,8):(8,1)")``."""
    value = evaluate(expression)
    if not isinstance(value, Layout):
        raise LayoutError(f"`{expression}` is not a layout; evaluate() gives other values")
    return value


@dataclass(frozen=True)
class BankConflicts:
    """Reads of shared memory that an access of a warp costs."""

    #: The number of reads.
    wavefronts: int
    #: The number of reads without conflicts.
    ideal: int

    @property
    def excess(self) -> int:
        """Reads that conflicts cost."""
        return self.wavefronts - self.ideal


class Swizzle:
    """A permutation of offsets that avoids bank conflicts: ``S<bits,base,shift>``."""

    __slots__ = ("_value",)

    def __init__(self, bits: int, base: int, shift: int) -> None:
        self._value: _native.Value = _native.evaluate(f"S<{bits},{base},{shift}>")

    def __call__(self, offset: int) -> int:
        """The offset that it sends ``offset`` to."""
        return int(_native.apply("swizzle_apply", self._value, offset, 0, 1)[0])

    def __matmul__(self, inner: Layout) -> Layout:
        """The swizzled layout: ``inner``, then the permutation."""
        return layout(f"{self} o 0 o {inner}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Swizzle) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return str(self._value)


class Layout:
    """A layout, swizzled or not. Layouts are values: every operation returns a new one.

    ``Layout((4, 8), (8, 1))`` has a shape and a stride, ``Layout((4, 8))`` the compact stride whose
    first mode is fastest, ``layout("(4,8):(8,1)")`` reads text.

    ``a @ b`` is the composition, ``a / tiler`` the logical division, ``a * tiler`` the logical
    product, and ``a(coordinate)`` an offset.
    """

    __slots__ = ("_value",)

    def __init__(self, shape: IntTuple, stride: IntTuple | None = None) -> None:
        if stride is None:
            self._value: _native.Value = _native.apply("make_layout", shape)
        else:
            self._value = layout(f"{_text(shape)}:{_text(stride)}")._value

    @classmethod
    def _of(cls, value: _native.Value) -> Layout:
        made = cls.__new__(cls)
        made._value = value
        return made

    @staticmethod
    def row_major(shape: IntTuple) -> Layout:
        """The compact layout whose last mode is fastest."""
        return _layout(_native.apply("make_layout", shape, "LayoutRight"))

    def _apply(self, name: str, *arguments: Any) -> Layout:
        return _layout(_native.apply(name, self._value, *map(_unwrapped, arguments)))

    # What it is.

    @property
    def shape(self) -> IntTuple:
        """Its shape."""
        return self._value.shape  # type: ignore[no-any-return]

    @property
    def stride(self) -> IntTuple:
        """Its stride; where it is swizzled, that of the layout inside."""
        return self._value.stride  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        """The number of its coordinates."""
        return int(_native.apply("size", self._plain()))

    @property
    def cosize(self) -> int:
        """One more than its largest offset."""
        return int(_native.apply("cosize", self._plain()))

    @property
    def rank(self) -> int:
        """The number of its modes."""
        return int(_native.apply("rank", self._plain()))

    @property
    def depth(self) -> int:
        """The nesting of its shape: 0 for an integer."""
        return int(_native.apply("depth", self._plain()))

    @property
    def is_injective(self) -> bool:
        """Whether no two coordinates share an offset."""
        return self._value.is_injective

    @property
    def is_swizzled(self) -> bool:
        """Whether a swizzle permutes its offsets."""
        return self._value.kind == "swizzled"

    def _plain(self) -> _native.Value:
        """The layout without its swizzle."""
        return layout(f"{_text(self.shape)}:{_text(self.stride)}")._value if self.is_swizzled else self._value

    def __call__(self, coordinate: IntTuple) -> int:
        """The offset of a coordinate."""
        if self.is_swizzled:
            inner = _native.apply("crd2idx", coordinate, self._plain())
            swizzle, start = str(self._value).split(" o ")[:2]
            return int(_native.apply("swizzle_apply", _native.evaluate(swizzle), int(start) + inner, 0, 1)[0])
        return int(_native.apply("crd2idx", coordinate, self._value))

    def __getitem__(self, mode: int) -> Layout:
        """A mode as a layout of its own."""
        return self._apply("get", mode)

    def offsets(self) -> list[int]:
        """All offsets, the first mode fastest."""
        return [self(at) for at in range(self.size)] if self.is_swizzled else list(_native.apply("index", self._value))

    # The algebra.

    def coalesce(self) -> Layout:
        """The same function of one integer, with as few modes as it needs."""
        return self._apply("coalesce")

    def filter(self) -> Layout:
        """Without modes of stride 0 or extent 1."""
        return self._apply("filter")

    def flatten(self) -> Layout:
        """Without nesting."""
        return self._apply("flatten")

    def composition(self, inner: Tiler) -> Layout:
        """The function that applies ``inner``, then this layout: ``self @ inner``."""
        return self._apply("composition", inner)

    def complement(self, size: IntTuple | None = None) -> Layout:
        """A layout of the offsets below ``size`` that this one leaves out."""
        return self._apply("complement", *(() if size is None else (size,)))

    def right_inverse(self) -> Layout:
        """A layout ``r`` with ``self(r(i)) == i``."""
        return self._apply("right_inverse")

    def left_inverse(self) -> Layout:
        """A layout ``l`` with ``l(self(i)) == i``."""
        return self._apply("left_inverse")

    def logical_divide(self, tiler: Tiler) -> Layout:
        """Each mode split into a tile and the rest: ``self / tiler``."""
        return self._apply("logical_divide", tiler)

    def zipped_divide(self, tiler: Tiler) -> Layout:
        """Mode 0 is inside a tile, mode 1 says which."""
        return self._apply("zipped_divide", tiler)

    def tiled_divide(self, tiler: Tiler) -> Layout:
        """Mode 0 is inside a tile, the other modes say which."""
        return self._apply("tiled_divide", tiler)

    def flat_divide(self, tiler: Tiler) -> Layout:
        """The modes of a tile, then those that say which."""
        return self._apply("flat_divide", tiler)

    def logical_product(self, tiler: Tiler) -> Layout:
        """This layout, repeated as ``tiler`` says: ``self * tiler``."""
        return self._apply("logical_product", tiler)

    def blocked_product(self, other: Layout) -> Layout:
        """Copies of this layout as blocks, arranged by ``other``."""
        return self._apply("blocked_product", other)

    def raked_product(self, other: Layout) -> Layout:
        """Copies of this layout, interleaved as ``other`` says."""
        return self._apply("raked_product", other)

    def tile_to_shape(self, shape: IntTuple) -> Layout:
        """Copies of this layout until they cover a shape."""
        return self._apply("tile_to_shape", shape)

    def slice(self, coordinate: Coord) -> Layout:
        """The modes at which the coordinate has ``None``."""
        return _layout(_native.apply("slice", coordinate, self._value))

    def upcast(self, elements: int) -> Layout:
        """In elements that are ``elements`` times as wide."""
        return self._apply("upcast", elements)

    def downcast(self, elements: int) -> Layout:
        """In elements of which ``elements`` fit in one."""
        return self._apply("downcast", elements)

    def apply(self, operation: str, *arguments: Any) -> Any:
        """Any operation of the algebra by its name, this layout first."""
        return _wrapped(_native.apply(operation, self._value, *map(_unwrapped, arguments)))

    def __matmul__(self, inner: Tiler) -> Layout:
        return self.composition(inner)

    def __truediv__(self, tiler: Tiler) -> Layout:
        return self.logical_divide(tiler)

    def __mul__(self, tiler: Tiler) -> Layout:
        return self.logical_product(tiler)

    # What it costs.

    def vector_width(self, element_bits: int) -> int:
        """Elements of the widest vector that can be moved everywhere."""
        return self._value.vector_width(element_bits)

    def bank_conflicts(self, element_bytes: int, access_bytes: int | None = None) -> BankConflicts:
        """The conflicts of a warp whose thread ``t`` moves ``access_bytes`` bytes at offset ``self(t)``.

        An access has the bytes of an element where nothing is said.
        """
        bytes_ = element_bytes if access_bytes is None else access_bytes
        return BankConflicts(*_native.wavefronts(self._value, element_bytes, bytes_))

    # Pictures.

    def text(self, tile: tuple[int, int] = (0, 0)) -> str:
        """A picture in characters: rows are mode 0, columns the others, with lines between tiles."""
        return _native.text(self._value, *tile)

    def svg(
        self,
        *,
        tile: tuple[int, int] | None = None,
        bank: int | None = None,
        thread: Layout | None = None,
    ) -> str:
        """A picture as SVG, coloured by one of three things.

        ``tile`` has rows and columns of a tile, ``bank`` the bytes of an element in shared memory,
        ``thread`` a layout from (thread, value) to the flat coordinate of a cell.
        """
        held = None if thread is None else thread._value
        return _native.svg(self._value, tile=tile, bank=bank, thread=held)

    def _repr_svg_(self) -> str | None:
        """The picture in a notebook, of a layout with at most 4,096 elements."""
        return self.svg() if self.size <= 4096 else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return str(self._value)


@dataclass(frozen=True)
class Fragment:
    """What each thread of a matrix instruction holds of an operand."""

    #: From (thread, value) to ``row + rows * column``.
    layout: Layout
    #: Rows of the operand.
    rows: int
    #: Columns of the operand.
    columns: int

    def element(self, thread: int, value: int) -> tuple[int, int]:
        """Row and column of a thread's value."""
        at = self.layout((thread, value))
        return at % self.rows, at // self.rows

    def _repr_svg_(self) -> str:
        """The operand in a notebook: the thread and value of each element."""
        return Layout((self.rows, self.columns)).svg(thread=self.layout)


def fragment(atom: str, operand: str) -> Fragment:
    """The fragment of operand ``"A"``, ``"B"`` or ``"C"`` of a matrix instruction, by CuTe's name:
    ``fragment("SM80_16x8x16_F32BF16BF16F32_TN", "C")``.
    """
    value, rows, columns = _native.fragment(atom, operand)
    return Fragment(Layout._of(value), rows, columns)


def atoms() -> list[str]:
    """The names of the matrix instructions of a warp."""
    return _native.atoms()


def _wrapped(value: Any) -> Any:
    if isinstance(value, _native.Value):
        if value.kind != "swizzle":
            return Layout._of(value)
        made = Swizzle.__new__(Swizzle)
        made._value = value
        return made
    if isinstance(value, tuple):
        return tuple(map(_wrapped, value))
    return value


def _layout(value: Any) -> Layout:
    if not isinstance(value, _native.Value) or value.kind == "swizzle":
        raise LayoutError(f"expected a layout, found {value}")
    return Layout._of(value)


def _unwrapped(value: Any) -> Any:
    if isinstance(value, (Layout, Swizzle)):
        return value._value
    if isinstance(value, tuple):
        return tuple(map(_unwrapped, value))
    if isinstance(value, str) and any(sign in value for sign in ":(<"):
        return _native.evaluate(value)
    return value


def _text(value: IntTuple) -> str:
    return str(value).replace(",)", ")").replace(" ", "") if isinstance(value, tuple) else str(value)
