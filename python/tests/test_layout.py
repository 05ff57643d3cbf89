"""Layouts: laws against plain Python, and the values of the documentation."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from tilewright import Layout, LayoutError, Swizzle, atoms, evaluate, fragment, layout


def random_layout(draw: np.random.Generator) -> Layout:
    """A permutation of memory, as a compact layout of axes in some order."""
    extents = draw.integers(1, 6, draw.integers(1, 4))
    strides = np.ones(len(extents), dtype=int)
    step = 1
    for axis in draw.permutation(len(extents)):
        strides[axis] = step
        step *= extents[axis]
    return Layout(tuple(map(int, extents)), tuple(map(int, strides)))


def test_a_layout_is_its_function() -> None:
    rows = layout("(4,6):(6,1)")
    assert (rows.shape, rows.stride, rows.size, rows.rank) == ((4, 6), (6, 1), 24, 2)
    assert rows == Layout((4, 6), (6, 1)) == Layout.row_major((4, 6))
    assert rows((2, 3)) == 15
    assert str(rows.zipped_divide((2, 3))) == "((2,3),(2,2)):((6,1),(12,3))"
    assert repr(rows[1]) == "6:1"
    assert hash(rows) == hash(Layout.row_major((4, 6)))


def test_operators_are_their_laws(draw: np.random.Generator) -> None:
    for _ in range(200):
        one = random_layout(draw)
        offsets = one.offsets()
        assert sorted(offsets) == list(range(one.size)), one
        assert one.is_injective
        assert [one.coalesce()(i) for i in range(one.size)] == offsets
        assert [one.flatten()(i) for i in range(one.size)] == offsets
        inverse = one.right_inverse()
        assert [one(inverse(i)) for i in range(inverse.size)] == list(range(inverse.size))
        # A composition with a layout of as many numbers applies one after the other.
        other = Layout(one.size)
        assert [(one @ other)(i) for i in range(one.size)] == [one(other(i)) for i in range(one.size)]
        # Tiles cover what they are tiles of.
        extent = int(one.shape[0] if isinstance(one.shape, tuple) else one.shape)
        assert sorted((one / (extent,)).offsets()) == sorted(offsets)


def test_swizzles_permute_and_avoid_conflicts() -> None:
    swizzle = Swizzle(3, 3, 3)
    assert sorted(map(swizzle, range(512))) == list(range(512))
    column = layout("8:64")
    assert (column.bank_conflicts(2, 16).wavefronts, column.bank_conflicts(2, 16).excess) == (8, 7)
    swizzled = swizzle @ column
    assert swizzled.is_swizzled and swizzled.bank_conflicts(2, 16).wavefronts == 1
    assert swizzled.offsets() == [swizzle(column(i)) for i in range(8)]
    assert layout("(16,64):(64,1)").vector_width(16) == 8


def test_fragments_hold_every_element_once() -> None:
    assert "SM80_16x8x16_F32BF16BF16F32_TN" in atoms()
    held = fragment("SM80_16x8x16_F32BF16BF16F32_TN", "C")
    assert [held.element(5, value) for value in range(4)] == [(1, 2), (1, 3), (9, 2), (9, 3)]
    places = {held.element(thread, value) for thread in range(32) for value in range(4)}
    assert len(places) == held.rows * held.columns == 128


def test_pictures_are_pictures() -> None:
    rows = layout("(2,3):(3,1)")
    assert rows.text() == "0 1 2\n3 4 5\n"
    pictures = [
        rows.svg(),
        rows.svg(tile=(1, 3)),
        rows.svg(bank=4),
        fragment("SM80_16x8x8_F16F16F16F16_TN", "A")._repr_svg_(),
        rows._repr_svg_(),
    ]
    for picture in pictures:
        assert picture is not None
        assert ET.fromstring(picture).tag.endswith("svg")
    assert Layout((4096, 4096))._repr_svg_() is None, "a notebook is spared a picture of millions of cells"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: layout("(4,8"), "column"),
        (lambda: layout("frobnicate((4,8):(8,1))"), "no operation is called"),
        (lambda: layout("8"), "is not a layout"),
        (lambda: layout("(2,3):(3,1)").zipped_divide((2, 2, 2)), "3"),
        (lambda: layout("(2,3):(3,1)").svg(tile=(1, 1), bank=4), "one of tile"),
        (lambda: layout("(2,3):(3,1)").svg(bank=99), "1 to 16"),
        (lambda: Layout((4096, 4096)).svg(), "at most"),
        (lambda: fragment("SM80", "C"), "no matrix instruction"),
        (lambda: fragment("SM80_16x8x16_F32BF16BF16F32_TN", "D"), "operand"),
        (lambda: evaluate("(" * 1000), "nesting"),
        (lambda: Layout((2, 3), (1,)), "shape"),
        (lambda: layout("8:64").bank_conflicts(2, 3), "1, 2, 4, 8 or 16"),
    ],
)
def test_mistakes_are_one_exception(wrong, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LayoutError, match=says):
        wrong()


def test_values_of_a_wrong_type_are_named() -> None:
    with pytest.raises(TypeError, match="found float"):
        layout("(2,3):(3,1)").logical_divide(2.5)  # type: ignore[arg-type]
