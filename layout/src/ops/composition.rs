//! Composition: one layout after another.
//!
//! Law: `composition(A, B)(c) == A(B(c))` for every coordinate `c` of `B`, and the result nests like `B` or deeper.
//!
//! It is the first of the two primitives. `B` picks elements of `A` and gives them its own coordinates:
//!
//! ```text
//! A = (4,8):(8,1), a row-major 4x8      B = (2,4):(1,4), two rows of every column, four columns
//!      0  1  2  3  4  5  6  7                A o B = (2,4):(8,1)
//!      8  9 10 11 12 13 14 15                 0  1  2  3
//!     16 17 18 19 20 21 22 23                 8  9 10 11
//!     24 25 26 27 28 29 30 31
//! ```
//!
//! Not every pair composes to a layout. Each mode of `B` walks the modes of the coalesced `A`: its stride must step over
//! whole modes (`stride % extent == 0`) or stay inside one, and what it takes of a mode must divide what is left of it.
//! The modes of `B` together must not carry from one mode of `A` into the next. What breaks one of these rules is refused
//! with the numbers; nothing is composed to a layout that is not the function.
//!
//! Edge cases: the last mode of `A` has no end, so `B` may reach beyond `A`'s domain; what is beyond is held to the rules
//! of single modes only, so the law is claimed where `B` stays inside. A mode of `B` with stride 0 stays
//! as it is. Where `B` has a negative stride it leaves `A`'s domain at the low end; there each mode of `B` is carried over
//! on its own with division that truncates, which is the field's convention, and the law is not claimed.

use crate::flat::Flat;
use crate::profile::At;
use crate::{Layout, LayoutError, MAX_LEAVES, laws::MAX_ENUMERATION, layout::times};

impl Layout {
    /// `self` after `rhs`: the layout that sends `c` to `self(rhs(c))`.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let a = Layout::parse("(6,2):(8,2)").unwrap();
    /// let b = Layout::parse("(4,3):(3,1)").unwrap();
    /// assert_eq!(a.composition(&b).unwrap().to_string(), "((2,2),3):((24,2),8)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::ShapeDivisibility`], [`LayoutError::StrideDivisibility`], [`LayoutError::Leaves`],
    /// [`LayoutError::Carry`]: no layout is this function. [`LayoutError::Capacity`], [`LayoutError::Overflow`].
    pub const fn composition(&self, rhs: &Layout) -> Result<Layout, LayoutError> {
        match tri!(self.try_composition(rhs)) {
            Composition::Exact(layout) => Ok(layout),
            Composition::Doubtful(layout, doubt) => {
                if agrees_inside(self, rhs, &layout) {
                    Ok(layout)
                } else {
                    Err(doubt)
                }
            }
        }
    }

    /// Composition by the divisibility rules alone; the caller has another law to check a doubtful result by.
    pub(crate) const fn try_composition(&self, rhs: &Layout) -> Result<Composition, LayoutError> {
        let mut walk = Walk::new(self);
        let mut out = Layout::NOTHING;
        let mut at = At::ROOT;
        while at.node < rhs.profile.nodes() {
            match rhs.profile.arity(at.node) {
                Some(arity) => {
                    tri!(out.profile.push_tuple(arity));
                }
                None => {
                    tri!(tri!(walk.leaf(rhs.shape[at.leaf], rhs.stride[at.leaf])).push_to(&mut out));
                    at.leaf += 1;
                }
            }
            at.node += 1;
        }
        let out = tri!(out.checked());
        Ok(match walk.finish() {
            None => Composition::Exact(out),
            Some(doubt) => Composition::Doubtful(out, doubt),
        })
    }
}

/// What the divisibility rules give.
pub(crate) enum Composition {
    /// The function `A o B`.
    Exact(Layout),
    /// A layout that differs from `A o B` somewhere, perhaps only outside the domain of `A`; and why.
    Doubtful(Layout, LayoutError),
}

/// Whether `result` is `lhs` after `rhs` wherever `rhs` stays inside the domain of `lhs`, by walking it.
pub(crate) const fn agrees_inside(lhs: &Layout, rhs: &Layout, result: &Layout) -> bool {
    let size = lhs.size();
    if rhs.size() > MAX_ENUMERATION {
        return false;
    }
    let mut i = 0;
    while i < rhs.size() {
        let element = rhs.at(i);
        if element >= 0 && element < size && result.at(i) != lhs.at(element) {
            return false;
        }
        i += 1;
    }
    true
}

/// The left layout, and how far into each of its modes the right one has reached.
struct Walk {
    lhs: Flat,
    reach: [i64; MAX_LEAVES],
    upward: bool,
    downward: bool,
    doubt: Option<LayoutError>,
}

impl Walk {
    const fn new(lhs: &Layout) -> Walk {
        let lhs = Flat::of(lhs).coalesce_beyond();
        Walk { lhs, reach: [0; MAX_LEAVES], upward: false, downward: false, doubt: None }
    }

    /// The left layout after one integer mode of the right one.
    const fn leaf(&mut self, extent: i64, stride: i64) -> Result<Flat, LayoutError> {
        let mut out = Flat::EMPTY;
        if stride == 0 {
            tri!(out.push(extent, 0));
            return Ok(out);
        }
        let last = self.lhs.len - 1;
        if extent > 1 {
            self.upward |= stride > 0;
            self.downward |= stride < 0;
        }
        let (mut rest, mut step) = (extent, stride);
        let mut mode = 0;
        while mode < last {
            let (here, magnitude) = (self.lhs.shape[mode], step.abs());
            if step % here != 0 && step >= here {
                return Err(LayoutError::StrideDivisibility { mode, stride: step, extent: here });
            }
            let available = ceil_div(here, magnitude);
            if available != 1 && rest != 1 {
                let taken = if available < rest { available } else { rest };
                if rest % taken != 0 {
                    return Err(LayoutError::ShapeDivisibility { mode, extent: rest, divisor: taken });
                }
                if taken < rest && here % magnitude != 0 && step > 0 {
                    self.doubt = Some(LayoutError::Leaves { mode, extent: here, stride: step, count: rest });
                }
                tri!(out.push(taken, tri!(times(step, self.lhs.stride[mode], "the composed stride"))));
                self.reach[mode] = self.reach[mode].saturating_add((taken - 1).saturating_mul(magnitude));
                rest /= taken;
            }
            step = ceil_div(magnitude, here) * step.signum();
            mode += 1;
        }
        if out.len == 0 || rest != 1 {
            tri!(out.push(rest, tri!(times(step, self.lhs.stride[last], "the composed stride"))));
        }
        Ok(out)
    }

    /// Why the result is not the function everywhere: a mode left, or a sum that carries out of one.
    const fn finish(&self) -> Option<LayoutError> {
        let mut mode = 0;
        while self.doubt.is_none() && mode + 1 < self.lhs.len && !(self.upward && self.downward) {
            if self.reach[mode] >= self.lhs.shape[mode] {
                return Some(LayoutError::Carry { mode, reach: self.reach[mode], extent: self.lhs.shape[mode] });
            }
            mode += 1;
        }
        self.doubt
    }
}

/// `ceil(value / divisor)` of positive numbers.
pub(crate) const fn ceil_div(value: i64, divisor: i64) -> i64 {
    value / divisor + (value % divisor != 0) as i64
}
