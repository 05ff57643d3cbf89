//! Composition: one layout after another.
//!
//! Law: `composition(A, B)(c) == A(B(c))` for every coordinate `c` of `B`, and the result nests
//! like `B` or deeper.
//!
//! It is the first of the two primitives: `B` picks elements of `A` and gives them its own
//! coordinates.
//!
//! Not every pair composes to a layout. Each mode of `B` walks the modes of the coalesced `A`: its
//! stride must step over whole modes (`stride % extent == 0`) or stay inside one, and what it takes
//! of a mode must divide what is left of it. The modes of `B` together must not carry from one mode
//! of `A` into the next. A pair that breaks one of these rules is refused with the numbers; the
//! result is never a layout that is not the function.
//!
//! Edge cases: the last mode of `A` has no end, so `B` may reach beyond `A`'s domain; what is
//! beyond is held to the rules of single modes only, so the law is claimed where `B` stays inside.
//! A mode of `B` with stride 0 stays as it is. Where `B` has a negative stride it leaves `A`'s
//! domain at the low end; there each mode of `B` is carried over on its own with division that
//! truncates, which is the field's convention, and the law is not claimed.

use crate::flat::Flat;
use crate::profile::TreePosition;
use crate::{Layout, LayoutError, MAX_LEAVES, laws::MAX_ENUMERATION, layout::times};

impl Layout {
    /// `self` after `rhs`: the layout that sends `c` to `self(rhs(c))`.
    ///
    /// Law: `composition(A, B)(c) == A(B(c))` for every coordinate `c` of `B` with `B(c)` inside
    /// `A`, where `B` has no negative stride; the result nests like `B`, or deeper.
    ///
    /// Edge cases: a mode of `B` with stride 0 stays as it is. The last mode of `A` has no end, so
    /// `64:1` composes with an `A` of 32 elements. A mode of `B` of one element is held to no rule:
    /// where its stride steps over no whole mode of `A` it gets stride 0, and CuTe refuses it.
    /// `():()` on the right gives `():()`; as the left one it counts as `1:0`.
    ///
    /// ```console
    /// $ tilewright layout show "(4,8):(8,1)"
    ///  0  1  2  3  4  5  6  7
    ///  8  9 10 11 12 13 14 15
    /// 16 17 18 19 20 21 22 23
    /// 24 25 26 27 28 29 30 31
    /// $ tilewright layout eval "(4,8):(8,1) o (2,4):(2,4)"
    /// (2,4):(16,1)
    /// $ tilewright layout show "(4,8):(8,1) o (2,4):(2,4)"
    ///  0  1  2  3
    /// 16 17 18 19
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let a = Layout::parse("(6,2):(8,2)").unwrap();
    /// let b = Layout::parse("(4,3):(3,1)").unwrap();
    /// assert_eq!(a.composition(&b).unwrap().to_string(), "((2,2),3):((24,2),8)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::ShapeDivisibility`], [`LayoutError::StrideDivisibility`],
    /// [`LayoutError::Leaves`], [`LayoutError::Carry`]: no layout is this function.
    /// [`LayoutError::Capacity`], [`LayoutError::Overflow`].
    pub const fn composition(&self, rhs: &Layout) -> Result<Layout, LayoutError> {
        let mut out = Layout::NOTHING;
        match tri!(self.compose_into(rhs, &mut out)) {
            Some(doubt) if !agrees_inside(self, rhs, &out) => Err(doubt),
            _ => Ok(out),
        }
    }

    /// Composition by the divisibility rules of single modes alone. Gives the reason, if there is
    /// one, for which the result may differ from the function; the caller then has another law to
    /// judge it by.
    pub(crate) const fn compose_into(
        &self,
        rhs: &Layout,
        out: &mut Layout,
    ) -> Result<Option<LayoutError>, LayoutError> {
        let mut walk = CompositionWalk::new(self);
        let mut at = TreePosition::ROOT;
        while at.node < rhs.profile.nodes() {
            match rhs.profile.arity(at.node) {
                Some(arity) => {
                    tri!(out.profile.push_tuple(arity));
                }
                None => {
                    tri!(walk.leaf(rhs.shape[at.leaf], rhs.stride[at.leaf], out));
                    at.leaf += 1;
                }
            }
            at.node += 1;
        }
        tri!(out.check());
        Ok(walk.finish())
    }
}

/// Whether `result` is `lhs` after `rhs` wherever `rhs` stays inside the domain of `lhs`, by
/// walking it.
const fn agrees_inside(lhs: &Layout, rhs: &Layout, result: &Layout) -> bool {
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
struct CompositionWalk {
    lhs: Flat,
    reach: [i64; MAX_LEAVES],
    upward: bool,
    downward: bool,
    doubt: Option<LayoutError>,
}

impl CompositionWalk {
    const fn new(lhs: &Layout) -> CompositionWalk {
        let lhs = Flat::coalesce_beyond(lhs);
        CompositionWalk { lhs, reach: [0; MAX_LEAVES], upward: false, downward: false, doubt: None }
    }

    /// Appends the left layout after one integer mode of the right one: an integer, or a tuple of
    /// several.
    const fn leaf(&mut self, extent: i64, stride: i64, out: &mut Layout) -> Result<(), LayoutError> {
        if extent == 1 {
            return out.push_leaf(1, self.step_of_one(stride));
        }
        if stride == 0 {
            return out.push_leaf(extent, 0);
        }
        let last = self.lhs.len - 1;
        self.upward |= stride > 0;
        self.downward |= stride < 0;
        let mut rest = extent;
        let mut step = stride;
        let node = out.profile.nodes();
        let first = out.profile.leaves();
        let mut mode = 0;
        while mode < last {
            let here = self.lhs.shape[mode];
            let magnitude = step.abs();
            if magnitude >= here {
                let over = magnitude / here;
                let exact = over * here == magnitude;
                if !exact && step > 0 {
                    return Err(LayoutError::StrideDivisibility { mode, stride: step, extent: here });
                }
                step = (over + !exact as i64) * step.signum();
            } else {
                let available = if magnitude == 1 { here } else { ceil_div(here, magnitude) };
                let taken = if available < rest { available } else { rest };
                if taken < rest && rest % taken != 0 {
                    return Err(LayoutError::ShapeDivisibility { mode, extent: rest, divisor: taken });
                }
                if taken < rest && available * magnitude != here && step > 0 {
                    self.doubt = Some(LayoutError::Leaves { mode, extent: here, stride: step, count: rest });
                }
                tri!(out.push_leaf(taken, tri!(times(step, self.lhs.stride[mode], "the composed stride"))));
                self.reach[mode] = self.reach[mode].saturating_add((taken - 1).saturating_mul(magnitude));
                rest = if taken == rest { 1 } else { rest / taken };
                if rest == 1 {
                    break;
                }
                step = step.signum();
            }
            mode += 1;
        }
        if out.profile.leaves() == first || rest != 1 {
            tri!(out.push_leaf(rest, tri!(times(step, self.lhs.stride[last], "the composed stride"))));
        }
        out.profile.wrap_leaves(node)
    }

    /// The stride of a mode of one element, as the rules give it; 0 where they give none, since no
    /// step is taken.
    const fn step_of_one(&self, stride: i64) -> i64 {
        let last = self.lhs.len - 1;
        let mut step = stride;
        let mut mode = 0;
        while mode < last {
            let here = self.lhs.shape[mode];
            let over = step.abs() / here;
            let exact = step.abs() % here == 0;
            if over > 0 && !exact && step > 0 {
                return 0;
            }
            step = if over > 0 { (over + !exact as i64) * step.signum() } else { step.signum() };
            mode += 1;
        }
        match times(step, self.lhs.stride[last], "the composed stride") {
            Ok(step) => step,
            Err(_) => 0,
        }
    }

    /// Why the result is not the function everywhere: a mode left, or a sum that carries out of
    /// one.
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
