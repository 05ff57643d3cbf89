//! Arithmetic of shapes: division, compatibility, distribution.

use crate::ops::composition::ceil_div;
use crate::ops::recast::gcd;
use crate::profile::TreePosition;
use crate::{IntTuple, Layout, LayoutError, Tiler, layout::times};

/// The rounding of a shape's division.
#[derive(Clone, Copy)]
enum Rounding {
    /// The divisor must divide the extent, or the extent the divisor.
    Exact,
    /// Round up.
    Up,
}

/// The required relation between the product of a tuple and the integer that it replaces.
#[derive(Clone, Copy)]
enum SizeRule {
    Any,
    Equal,
    Multiple,
}

impl IntTuple {
    /// Each extent divided by the divisor's extent in the same place. An integer divisor of a tuple
    /// is used up mode by mode, first mode first.
    ///
    /// Law: where the divisor divides, the product of the result times the divisor is the product
    /// of the shape.
    ///
    /// Edge cases: a larger divisor that the extent divides gives 1. A tuple over an integer
    /// divides by its product. `()` divided is `()`.
    ///
    /// ```console
    /// $ tilewright layout eval "shape_div((4,6), 8)"
    /// (1,3)
    /// $ tilewright layout eval "shape_div((4,6), (2,3))"
    /// (2,2)
    /// $ tilewright layout eval "shape_div((3,8), 4)"
    /// error: shape_div: 4 does not divide 3; use a divisor of 3
    /// ```
    ///
    /// ```
    /// use tilewright_layout::IntTuple;
    /// let shape = IntTuple::parse("(3,2,8)").unwrap();
    /// assert_eq!(shape.shape_div(&IntTuple::int(6)).unwrap().to_string(), "(1,1,8)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Indivisible`] where neither divides the other, [`LayoutError::Rank`],
    /// [`LayoutError::Extent`].
    pub const fn shape_div(&self, divisor: &IntTuple) -> Result<IntTuple, LayoutError> {
        self.divided(divisor, Rounding::Exact)
    }

    /// Divides like [`IntTuple::shape_div`], rounding up.
    ///
    /// Law: of integers, the smallest count of tiles that hold the extent; it agrees with
    /// [`shape_div`](IntTuple::shape_div) wherever that is not refused.
    ///
    /// Edge cases: modes beyond a shorter divisor stay as they are. An integer divisor is rounded
    /// up after each mode, so of a tuple it may cover more than one rounding would.
    ///
    /// ```console
    /// $ tilewright layout eval "ceil_div(10, 4)"
    /// 3
    /// $ tilewright layout eval "ceil_div((3,8), 4)"
    /// (1,4)
    /// $ tilewright layout eval "ceil_div((10,6), (4))"
    /// (3,6)
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`], [`LayoutError::Extent`].
    pub const fn ceil_div(&self, divisor: &IntTuple) -> Result<IntTuple, LayoutError> {
        self.divided(divisor, Rounding::Up)
    }

    const fn divided(&self, divisor: &IntTuple, rounding: Rounding) -> Result<IntTuple, LayoutError> {
        tri!(self.as_shape());
        tri!(divisor.as_shape());
        let mut out = *self;
        tri!(divide_at(&mut out, TreePosition::ROOT, divisor, TreePosition::ROOT, rounding));
        Ok(out)
    }

    /// Each mode times the product of the factor's mode.
    ///
    /// Law: the product of the result is the product of the shape times that of the factors.
    ///
    /// Edge cases: a tuple of factors over an integer counts by its product; an integer over a
    /// tuple is refused.
    ///
    /// ```console
    /// $ tilewright layout eval "elem_scale((2,3), (4,(5,2)))"
    /// (8,30)
    /// $ tilewright layout eval "elem_scale((2,(3,4)), (2,2))"
    /// error: elem_scale: a tuple of 2 modes stands where the other side has an integer; nest both alike
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`], [`LayoutError::NotAnInteger`], [`LayoutError::Overflow`].
    pub const fn elem_scale(&self, factors: &IntTuple) -> Result<IntTuple, LayoutError> {
        tri!(factors.as_shape());
        let mut out = *self;
        tri!(scale_at(&mut out, TreePosition::ROOT, factors, TreePosition::ROOT));
        Ok(out)
    }

    /// Returns whether both nest alike.
    ///
    /// Law: an equivalence: only parentheses count, not numbers.
    ///
    /// Edge cases: `8` and `(8)` are not congruent.
    ///
    /// ```console
    /// $ tilewright layout eval "congruent((2,(3,4)), (9,(9,9)))"
    /// true
    /// $ tilewright layout eval "congruent(8, (8))"
    /// false
    /// ```
    pub const fn congruent(&self, other: &IntTuple) -> bool {
        self.profile.congruent(&other.profile)
    }

    /// Returns whether `other` nests like this one, or deeper where this one has integers.
    ///
    /// Law: a partial order of nestings; both ways it is [`congruent`](IntTuple::congruent).
    ///
    /// Edge cases: an integer goes with everything; `(8)` does not go with `8`.
    ///
    /// ```console
    /// $ tilewright layout eval "weakly_congruent((8,6), ((2,4),6))"
    /// true
    /// $ tilewright layout eval "weakly_congruent((8), 8)"
    /// false
    /// ```
    pub const fn weakly_congruent(&self, other: &IntTuple) -> bool {
        refines(self, TreePosition::ROOT, other, TreePosition::ROOT, SizeRule::Any)
    }

    /// Returns whether `other` splits multiples of this one's integers:
    /// [`compatible`](IntTuple::compatible) with this one times something.
    ///
    /// Law: [`compatible`](IntTuple::compatible) implies it, and it implies
    /// [`weakly_congruent`](IntTuple::weakly_congruent).
    ///
    /// Edge cases: `4` is weakly compatible with `8` and with `(2,4)`, `8` not with `4`.
    ///
    /// ```console
    /// $ tilewright layout eval "weakly_compatible((4,3), ((2,4),6))"
    /// true
    /// $ tilewright layout eval "weakly_compatible(8, 4)"
    /// false
    /// ```
    ///
    /// ```
    /// use tilewright_layout::IntTuple;
    /// let tile = IntTuple::parse("(4,3)").unwrap();
    /// let shape = IntTuple::parse("((2,4),6)").unwrap();
    /// assert!(tile.weakly_compatible(&shape) && !tile.compatible(&shape));
    /// ```
    pub const fn weakly_compatible(&self, other: &IntTuple) -> bool {
        refines(self, TreePosition::ROOT, other, TreePosition::ROOT, SizeRule::Multiple)
    }

    /// Returns whether every coordinate of this shape is one of `other`: `other` splits this one's
    /// integers into tuples of the same product.
    ///
    /// Law: implies [`weakly_congruent`](IntTuple::weakly_congruent) and equal sizes.
    ///
    /// Edge cases: `8` is compatible with `(8)`, not the other way; `1` is compatible with `()`.
    ///
    /// ```console
    /// $ tilewright layout eval "compatible((8,6), ((2,4),6))"
    /// true
    /// $ tilewright layout eval "compatible((8,6), ((2,2),6))"
    /// false
    /// ```
    ///
    /// ```
    /// use tilewright_layout::IntTuple;
    /// let flat = IntTuple::parse("(8,6)").unwrap();
    /// let split = IntTuple::parse("((2,4),6)").unwrap();
    /// assert!(flat.compatible(&split) && !split.compatible(&flat));
    /// ```
    pub const fn compatible(&self, other: &IntTuple) -> bool {
        refines(self, TreePosition::ROOT, other, TreePosition::ROOT, SizeRule::Equal)
    }

    /// The coordinate of `source` with the same flat index as this one has in `target`'s place:
    /// between two shapes of the same size. Where all three are tuples, mode by mode.
    ///
    /// Law: there and back is the identity, inside the shapes.
    ///
    /// Edge cases: an index beyond the shape walks on along its last integer.
    ///
    /// ```console
    /// $ tilewright layout eval "crd2crd((1,2), (2,3), (3,2))"
    /// (1,2)
    /// $ tilewright layout eval "crd2crd((1,2), (2,3), 6)"
    /// 5
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`], [`LayoutError::NotAnInteger`] where coordinate and shape do not
    /// match.
    pub const fn between(&self, source: &IntTuple, target: &IntTuple) -> Result<IntTuple, LayoutError> {
        if self.is_int() || source.is_int() || target.is_int() {
            return target.coordinate(tri!(source.index_of(self)));
        }
        if self.rank() != source.rank() || self.rank() != target.rank() {
            let expected = if self.rank() == source.rank() { target.rank() } else { source.rank() };
            return Err(LayoutError::Rank { operation: "crd2crd", given: self.rank(), expected });
        }
        let mut out = IntTuple::NOTHING;
        tri!(out.profile.push_tuple(self.rank()));
        let mut i = 0;
        while i < self.rank() {
            let mode = self.subtree(self.profile.child(TreePosition::ROOT, i));
            let source = source.subtree(source.profile.child(TreePosition::ROOT, i));
            let target = target.subtree(target.profile.child(TreePosition::ROOT, i));
            tri!(out.push_mode(&tri!(mode.between(&source, &target)), TreePosition::ROOT));
            i += 1;
        }
        Ok(out)
    }

    /// A layout of up to `count` elements spread over this shape's flat coordinates, as evenly as
    /// their factors allow.
    ///
    /// Law: the result is injective, stays inside the shape's flat coordinates, and its size
    /// divides `count`.
    ///
    /// Edge cases: a count without a common factor with any mode gives `1:0`; a count beyond the
    /// size gives the size.
    ///
    /// ```console
    /// $ tilewright layout eval "domain_distribute((3,4), 2)"
    /// 2:3
    /// $ tilewright layout show "domain_distribute((4,6), 12)"
    ///  0  1  2  3  4  5  6  7  8  9 10 11
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Extent`], [`LayoutError::Argument`] for a count below 1.
    pub const fn domain_distribute(&self, count: i64) -> Result<Layout, LayoutError> {
        let mut out = tri!(self.as_shape()).flatten();
        if count < 1 {
            let argument = "the count";
            let bound = "at least 1";
            return Err(LayoutError::Argument { operation: "domain_distribute", argument, value: count, bound });
        }
        let mut rest = count;
        let mut stride = 1;
        let mut leaf = 0;
        while leaf < out.profile.leaves() {
            let extent = out.shape[leaf];
            let part = gcd(extent, rest);
            out.shape[leaf] = part;
            out.stride[leaf] = stride;
            rest /= part;
            stride *= extent;
            leaf += 1;
        }
        Ok(tri!(out.checked()).coalesce())
    }
}

impl Layout {
    /// Returns whether a tiler's tiles fill this layout's modes without a remainder.
    ///
    /// Law: where it says yes, a division by the tiler has the size of the layout.
    ///
    /// Edge cases: `_` always divides; a tiler with too many modes, and a tile that has no
    /// complement, never do. One extent for several modes must fill them first mode first: 3 does
    /// not divide `(8,6)`.
    ///
    /// ```console
    /// $ tilewright layout eval "evenly_divides((8,6), (4,3))"
    /// true
    /// $ tilewright layout eval "evenly_divides((8,6), (4,4))"
    /// false
    /// $ tilewright layout eval "evenly_divides((8,6), 3)"
    /// false
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{Layout, Tiler};
    /// let rows = Layout::parse("(8,6):(6,1)").unwrap();
    /// let tile = |m, n| Tiler::by_mode(&[Tiler::extent(m), Tiler::extent(n)]).unwrap();
    /// assert!(rows.divides_evenly(&tile(4, 3)) && !rows.divides_evenly(&tile(4, 4)));
    /// ```
    pub const fn divides_evenly(&self, tiler: &Tiler) -> bool {
        even_at(self, TreePosition::ROOT, tiler, TreePosition::ROOT)
    }
}

const fn even_at(layout: &Layout, at: TreePosition, tiler: &Tiler, from: TreePosition) -> bool {
    let Some(arity) = tiler.outer.arity(from.node) else {
        if tiler.is_open(from.leaf) {
            return true;
        }
        let tile = tiler.part(from.leaf);
        let shape = layout.subtree(at).shape();
        if tile.check().is_err() {
            return false;
        }
        // A tile that has no complement divides nothing.
        return match tile.complement_in(&shape) {
            Ok(rest) => match times(tile.size(), rest.size(), "the cover") {
                // No two sums are alike, so as many as there are elements fill them, or reach
                // beyond them.
                Ok(cover) => cover == layout.size_at(at) && tile.cosize() - 1 + rest.cosize() == cover,
                Err(_) => false,
            },
            Err(_) => false,
        };
    };
    if arity > layout.profile.rank_at(at.node) {
        return false;
    }
    let mut from = tiler.outer.child(from, 0);
    let mut i = 0;
    while i < arity {
        if !even_at(layout, layout.profile.child(at, i), tiler, from) {
            return false;
        }
        from = tiler.outer.end(from);
        i += 1;
    }
    true
}

const fn quotient(value: i64, divisor: i64, rounding: Rounding) -> Result<i64, LayoutError> {
    if matches!(rounding, Rounding::Exact) && value % divisor != 0 && divisor % value != 0 {
        return Err(LayoutError::Indivisible { operation: "shape_div", value, divisor });
    }
    Ok(ceil_div(value, divisor))
}

const fn divide_at(
    out: &mut IntTuple,
    at: TreePosition,
    divisor: &IntTuple,
    from: TreePosition,
    rounding: Rounding,
) -> Result<(), LayoutError> {
    let profile = out.profile;
    let rank = profile.arity(at.node);
    let arity = divisor.profile.arity(from.node);
    let (Some(rank), Some(arity)) = (rank, arity) else {
        // An integer divisor of a tuple is used up by the integers in turn.
        let mut rest = tri!(divisor.product_at(from));
        let mut leaf = at.leaf;
        while leaf < profile.end(at).leaf {
            let value = out.values[leaf];
            out.values[leaf] = tri!(quotient(value, rest, rounding));
            rest = tri!(quotient(rest, value, rounding));
            leaf += 1;
        }
        return Ok(());
    };
    if arity > rank || (matches!(rounding, Rounding::Exact) && arity != rank) {
        return Err(LayoutError::Rank { operation: "shape_div", given: arity, expected: rank });
    }
    let mut at = profile.child(at, 0);
    let mut from = divisor.profile.child(from, 0);
    let mut i = 0;
    while i < arity {
        tri!(divide_at(out, at, divisor, from, rounding));
        at = profile.end(at);
        from = divisor.profile.end(from);
        i += 1;
    }
    Ok(())
}

const fn scale_at(
    out: &mut IntTuple,
    at: TreePosition,
    factors: &IntTuple,
    from: TreePosition,
) -> Result<(), LayoutError> {
    let profile = out.profile;
    let Some(rank) = profile.arity(at.node) else {
        out.values[at.leaf] = tri!(times(out.values[at.leaf], tri!(factors.product_at(from)), "the extent"));
        return Ok(());
    };
    tri!(crate::index::matching_tuple("elem_scale", rank, &factors.profile, from.node));
    let mut at = profile.child(at, 0);
    let mut from = factors.profile.child(from, 0);
    let mut i = 0;
    while i < rank {
        tri!(scale_at(out, at, factors, from));
        at = profile.end(at);
        from = factors.profile.end(from);
        i += 1;
    }
    Ok(())
}

/// The remainder of the product of a subtree's integers, divided by `divisor`.
const fn remainder(tuple: &IntTuple, at: TreePosition, divisor: i64) -> i128 {
    let end = tuple.profile.end(at).leaf;
    let divisor = divisor as i128;
    let mut rest = 1 % divisor;
    let mut leaf = at.leaf;
    while leaf < end {
        rest = rest * tuple.values[leaf] as i128 % divisor;
        leaf += 1;
    }
    rest
}

const fn refines(coarse: &IntTuple, at: TreePosition, fine: &IntTuple, from: TreePosition, sizes: SizeRule) -> bool {
    let Some(rank) = coarse.profile.arity(at.node) else {
        let integer = coarse.values[at.leaf];
        return match sizes {
            SizeRule::Any => true,
            SizeRule::Equal => matches!(fine.product_at(from), Ok(split) if split == integer),
            SizeRule::Multiple => integer != 0 && remainder(fine, from, integer) == 0,
        };
    };
    match fine.profile.arity(from.node) {
        Some(arity) if arity == rank => {}
        _ => return false,
    }
    let mut at = coarse.profile.child(at, 0);
    let mut from = fine.profile.child(from, 0);
    let mut i = 0;
    while i < rank {
        if !refines(coarse, at, fine, from, sizes) {
            return false;
        }
        at = coarse.profile.end(at);
        from = fine.profile.end(from);
        i += 1;
    }
    true
}
