//! The laws of the operators.

use super::{Counterexample, expect, injective};
use crate::{Layout, Swizzle};

/// Checks that both layouts have the same size and the same offset at every flat index.
///
/// # Errors
/// The first index at which they differ.
pub const fn same_function(law: &'static str, found: &Layout, expected: &Layout) -> Result<(), Counterexample> {
    tri!(expect(law, -1, found.size(), expected.size()));
    let mut i = 0;
    while i < expected.size() {
        tri!(expect(law, i, found.at(i), expected.at(i)));
        i += 1;
    }
    Ok(())
}

/// `result(i) == a(b(i))`, and the result has `b`'s size.
///
/// # Errors
/// The first index at which they differ.
pub const fn composition(a: &Layout, b: &Layout, result: &Layout) -> Result<(), Counterexample> {
    let law = "composition(A, B)(i) == A(B(i))";
    tri!(expect(law, -1, result.size(), b.size()));
    let mut i = 0;
    while i < b.size() {
        tri!(expect(law, i, result.at(i), a.at(b.at(i))));
        i += 1;
    }
    Ok(())
}

/// The result is the same function as the layout, and no two neighbouring modes of it can be
/// merged.
///
/// # Errors
/// The first index at which they differ, or the mode that could be merged.
pub const fn coalesce(layout: &Layout, result: &Layout) -> Result<(), Counterexample> {
    tri!(same_function("coalesce(L)(i) == L(i)", result, layout));
    let extents = result.extents();
    let strides = result.strides();
    let mut i = 1;
    while i < extents.len() {
        if extents[i] == 1 || extents[i - 1] == 1 || extents[i - 1] * strides[i - 1] == strides[i] {
            let law = "coalesce(L) has no modes that merge";
            return Err(Counterexample { law, at: i as i64, found: strides[i], expected: 0 });
        }
        i += 1;
    }
    Ok(())
}

/// Layout and filtered layout have the same offsets, and the filtered one repeats none if strides
/// do not coincide.
///
/// # Errors
/// The first offset that only one of them has.
pub const fn filter(layout: &Layout, result: &Layout) -> Result<(), Counterexample> {
    let law = "filter(L) has the offsets of L";
    tri!(subset(law, layout, result));
    subset(law, result, layout)
}

/// Checks that every offset of `inner` is one of `outer`.
///
/// # Errors
/// The first index of `inner` whose offset is not.
pub const fn offsets_within(inner: &Layout, outer: &Layout) -> Result<(), Counterexample> {
    subset("every offset is one of the other layout", inner, outer)
}

const fn subset(law: &'static str, inner: &Layout, outer: &Layout) -> Result<(), Counterexample> {
    let mut i = 0;
    while i < inner.size() {
        if !has_offset(outer, inner.at(i)) {
            return Err(Counterexample { law, at: i, found: inner.at(i), expected: inner.at(i) });
        }
        i += 1;
    }
    Ok(())
}

const fn has_offset(layout: &Layout, offset: i64) -> bool {
    let mut i = 0;
    while i < layout.size() {
        if layout.at(i) == offset {
            return true;
        }
        i += 1;
    }
    false
}

/// The offsets of layout and complement meet in 0 only, their sums are distinct, and the complement
/// ascends. With `covers`, the sums are every offset below `bound`: true of strides that nest and a
/// bound that they divide.
///
/// # Errors
/// The first offset at which one of these fails.
pub const fn complement(layout: &Layout, bound: i64, result: &Layout, covers: bool) -> Result<(), Counterexample> {
    let ascends = "complement ascends";
    let mut i = 1;
    while i < result.size() {
        if result.at(i) <= result.at(i - 1) {
            return Err(Counterexample { law: ascends, at: i, found: result.at(i), expected: result.at(i - 1) + 1 });
        }
        i += 1;
    }
    let Ok(pair) = Layout::tuple(&[layout.filter(), *result]) else {
        return Err(Counterexample { law: "complement fits", at: -1, found: 0, expected: bound });
    };
    tri!(injective(&pair));
    if covers {
        tri!(expect("complement covers its bound", -1, pair.size(), bound));
        tri!(expect("complement stays below its bound", -1, pair.cosize(), bound));
    }
    Ok(())
}

/// `layout(result(o)) == o` for every `o` below the result's size.
///
/// # Errors
/// The first offset that does not come back.
pub const fn right_inverse(layout: &Layout, result: &Layout) -> Result<(), Counterexample> {
    let mut offset = 0;
    while offset < result.size() {
        tri!(expect("L(right_inverse(L)(o)) == o", offset, layout.at(result.at(offset)), offset));
        offset += 1;
    }
    Ok(())
}

/// `layout(result(layout(i))) == layout(i)` for every `i`.
///
/// # Errors
/// The first index whose offset does not come back.
pub const fn left_inverse(layout: &Layout, result: &Layout) -> Result<(), Counterexample> {
    let mut i = 0;
    while i < layout.size() {
        tri!(expect("L(left_inverse(L)(L(i))) == L(i)", i, layout.at(result.at(layout.at(i))), layout.at(i)));
        i += 1;
    }
    Ok(())
}

/// Mode 0 of the result is `layout` after `tile`, and the result has the offsets of the layout.
///
/// # Errors
/// The first index at which one of these fails.
pub const fn logical_divide(layout: &Layout, tile: &Layout, result: &Layout) -> Result<(), Counterexample> {
    let Ok(inside) = result.mode(0) else {
        return Err(Counterexample { law: "a quotient has modes", at: -1, found: 0, expected: 2 });
    };
    tri!(composition(layout, tile, &inside));
    tri!(subset("logical_divide(L, T) has the offsets of L", layout, result));
    if result.size() == layout.size() {
        tri!(subset("logical_divide(L, T) has only the offsets of L", result, layout));
    }
    Ok(())
}

/// Mode 0 of the result is the block, and the result repeats no offset where block and copies
/// repeat none.
///
/// # Errors
/// The first index at which one of these fails.
pub const fn logical_product(block: &Layout, copies: &Layout, result: &Layout) -> Result<(), Counterexample> {
    let (Ok(inside), Ok(outside)) = (result.mode(0), result.mode(1)) else {
        return Err(Counterexample { law: "a product has modes", at: -1, found: result.rank() as i64, expected: 2 });
    };
    tri!(same_function("mode 0 of a product is the block", &inside, block));
    tri!(expect("mode 1 of a product has the size of the copies", -1, outside.size(), copies.size()));
    if injective(block).is_ok() && injective(copies).is_ok() {
        tri!(injective(result));
    }
    Ok(())
}

/// A swizzle is its own inverse and permutes its period.
///
/// # Errors
/// The first offset below `bound` that does not come back.
pub const fn swizzle_involution(swizzle: &Swizzle, bound: i64) -> Result<(), Counterexample> {
    let mut offset = 0;
    while offset < bound {
        tri!(expect("s(s(o)) == o", offset, swizzle.apply(swizzle.apply(offset)), offset));
        offset += 1;
    }
    Ok(())
}
