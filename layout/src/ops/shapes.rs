//! Arithmetic of shapes: division, compatibility, distribution.

use crate::ops::composition::ceil_div;
use crate::ops::recast::gcd;
use crate::profile::At;
use crate::{IntTuple, Layout, LayoutError, Tiler, layout::times};

/// How a shape is divided.
#[derive(Clone, Copy)]
enum Rounding {
    /// The divisor must divide the extent, or the extent the divisor.
    Exact,
    /// Round up.
    Up,
}

/// What the product of a tuple is to the integer in whose place it stands.
#[derive(Clone, Copy)]
enum Sizes {
    Any,
    Equal,
    Multiple,
}

impl IntTuple {
    /// Each extent divided by the divisor's extent in the same place. An integer divisor of a tuple is used up mode by
    /// mode, first mode first.
    ///
    /// ```
    /// use tilewright_layout::IntTuple;
    /// let shape = IntTuple::parse("(3,2,8)").unwrap();
    /// assert_eq!(shape.shape_div(&IntTuple::int(6)).unwrap().to_string(), "(1,1,8)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Indivisible`] where neither divides the other, [`LayoutError::Rank`], [`LayoutError::Extent`].
    pub const fn shape_div(&self, divisor: &IntTuple) -> Result<IntTuple, LayoutError> {
        self.divided(divisor, Rounding::Exact)
    }

    /// As [`IntTuple::shape_div`], rounding up.
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
        tri!(divide_at(&mut out, At::ROOT, divisor, At::ROOT, rounding));
        Ok(out)
    }

    /// Each mode times the product of the factor's mode.
    ///
    /// # Errors
    /// [`LayoutError::Rank`], [`LayoutError::NotAnInteger`], [`LayoutError::Overflow`].
    pub const fn elem_scale(&self, factors: &IntTuple) -> Result<IntTuple, LayoutError> {
        tri!(factors.as_shape());
        let mut out = *self;
        tri!(scale_at(&mut out, At::ROOT, factors, At::ROOT));
        Ok(out)
    }

    /// Whether both nest alike.
    pub const fn congruent(&self, other: &IntTuple) -> bool {
        self.profile.congruent(&other.profile)
    }

    /// Whether `other` nests like this one, or deeper where this one has integers.
    pub const fn weakly_congruent(&self, other: &IntTuple) -> bool {
        refines(self, At::ROOT, other, At::ROOT, Sizes::Any)
    }

    /// Whether `other` splits multiples of this one's integers: [`compatible`](IntTuple::compatible) with this one times
    /// something.
    ///
    /// ```
    /// use tilewright_layout::IntTuple;
    /// let (tile, shape) = (IntTuple::parse("(4,3)").unwrap(), IntTuple::parse("((2,4),6)").unwrap());
    /// assert!(tile.weakly_compatible(&shape) && !tile.compatible(&shape));
    /// ```
    pub const fn weakly_compatible(&self, other: &IntTuple) -> bool {
        refines(self, At::ROOT, other, At::ROOT, Sizes::Multiple)
    }

    /// Whether every coordinate of this shape is one of `other`: `other` splits this one's integers into tuples of the
    /// same product.
    ///
    /// ```
    /// use tilewright_layout::IntTuple;
    /// let (flat, split) = (IntTuple::parse("(8,6)").unwrap(), IntTuple::parse("((2,4),6)").unwrap());
    /// assert!(flat.compatible(&split) && !split.compatible(&flat));
    /// ```
    pub const fn compatible(&self, other: &IntTuple) -> bool {
        refines(self, At::ROOT, other, At::ROOT, Sizes::Equal)
    }

    /// The coordinate of `source` with the same flat index as this one has in `target`'s place: between two shapes of
    /// the same size. Where all three are tuples, mode by mode.
    ///
    /// # Errors
    /// [`LayoutError::Rank`], [`LayoutError::NotAnInteger`] where coordinate and shape do not match.
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
            let mode = self.subtree(self.profile.child(At::ROOT, i));
            let source = source.subtree(source.profile.child(At::ROOT, i));
            let target = target.subtree(target.profile.child(At::ROOT, i));
            tri!(out.push_mode(&tri!(mode.between(&source, &target)), At::ROOT));
            i += 1;
        }
        Ok(out)
    }

    /// A layout of up to `count` elements spread over this shape's flat coordinates, as evenly as their factors allow.
    ///
    /// # Errors
    /// [`LayoutError::Extent`], [`LayoutError::Argument`] for a count below 1.
    pub const fn domain_distribute(&self, count: i64) -> Result<Layout, LayoutError> {
        let mut out = tri!(self.as_shape()).flatten();
        if count < 1 {
            let (argument, bound) = ("the count", "at least 1");
            return Err(LayoutError::Argument { operation: "domain_distribute", argument, value: count, bound });
        }
        let (mut rest, mut stride) = (count, 1);
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
    /// Whether a tiler's tiles fill this layout's modes without a remainder.
    ///
    /// ```
    /// use tilewright_layout::{Layout, Tiler};
    /// let rows = Layout::parse("(8,6):(6,1)").unwrap();
    /// let tile = |m, n| Tiler::by_mode(&[Tiler::extent(m), Tiler::extent(n)]).unwrap();
    /// assert!(rows.divides_evenly(&tile(4, 3)) && !rows.divides_evenly(&tile(4, 4)));
    /// ```
    pub const fn divides_evenly(&self, tiler: &Tiler) -> bool {
        even_at(self, At::ROOT, tiler, At::ROOT)
    }
}

const fn even_at(layout: &Layout, at: At, tiler: &Tiler, from: At) -> bool {
    let Some(arity) = tiler.outer.arity(from.node) else {
        if tiler.is_open(from.leaf) {
            return true;
        }
        let (tile, shape) = (tiler.part(from.leaf), layout.subtree(at).shape());
        if tile.check().is_err() {
            return false;
        }
        // A tile that has no complement divides nothing.
        return match tile.complement_in(&shape) {
            Ok(rest) => match times(tile.size(), rest.size(), "the cover") {
                Ok(cover) => cover == shape.product(),
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
    at: At,
    divisor: &IntTuple,
    from: At,
    rounding: Rounding,
) -> Result<(), LayoutError> {
    let profile = out.profile;
    let (rank, arity) = (profile.arity(at.node), divisor.profile.arity(from.node));
    let (Some(rank), Some(arity)) = (rank, arity) else {
        // An integer divisor of a tuple is used up by the integers in turn.
        let mut rest = divisor.product_at(from);
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
    let (mut at, mut from) = (profile.child(at, 0), divisor.profile.child(from, 0));
    let mut i = 0;
    while i < arity {
        tri!(divide_at(out, at, divisor, from, rounding));
        at = profile.end(at);
        from = divisor.profile.end(from);
        i += 1;
    }
    Ok(())
}

const fn scale_at(out: &mut IntTuple, at: At, factors: &IntTuple, from: At) -> Result<(), LayoutError> {
    let profile = out.profile;
    let Some(rank) = profile.arity(at.node) else {
        out.values[at.leaf] = tri!(times(out.values[at.leaf], factors.product_at(from), "the extent"));
        return Ok(());
    };
    tri!(crate::index::matching_tuple("elem_scale", rank, &factors.profile, from.node));
    let (mut at, mut from) = (profile.child(at, 0), factors.profile.child(from, 0));
    let mut i = 0;
    while i < rank {
        tri!(scale_at(out, at, factors, from));
        at = profile.end(at);
        from = factors.profile.end(from);
        i += 1;
    }
    Ok(())
}

const fn refines(coarse: &IntTuple, at: At, fine: &IntTuple, from: At, sizes: Sizes) -> bool {
    let Some(rank) = coarse.profile.arity(at.node) else {
        let (integer, split) = (coarse.values[at.leaf], fine.product_at(from));
        return match sizes {
            Sizes::Any => true,
            Sizes::Equal => integer == split,
            Sizes::Multiple => integer != 0 && split.wrapping_rem(integer) == 0,
        };
    };
    match fine.profile.arity(from.node) {
        Some(arity) if arity == rank => {}
        _ => return false,
    }
    let (mut at, mut from) = (coarse.profile.child(at, 0), fine.profile.child(from, 0));
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
