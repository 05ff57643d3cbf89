//! The layout: a function from coordinates to offsets.

use core::fmt;

use crate::profile::TreePosition;
use crate::{IntTuple, LayoutError, MAX_LEAVES, Message, Profile};

/// Sizes and spans stay below this, so that indexing inside the domain cannot overflow.
pub(crate) const LIMIT: i64 = 1 << 60;

/// A shape and a stride, nested alike: the function that sends a coordinate to the sum of its parts
/// times their strides.
///
/// Coordinates are *colexicographic*: an integer index counts the first mode fastest, at every
/// level of nesting.
///
/// ```
/// use tilewright_layout::Layout;
/// let rows = Layout::parse("(2,3):(3,1)").unwrap();
/// // Index 1 is row 1, column 0: one step along the first mode.
/// assert_eq!(rows.at(1), 3);
/// assert_eq!(rows.to_string(), "(2,3):(3,1)");
/// ```
///
/// A layout holds at most [`MAX_LEAVES`] integers per side. Extents are at least 1; strides may be
/// 0 or negative.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    pub(crate) profile: Profile,
    pub(crate) shape: [i64; MAX_LEAVES],
    pub(crate) stride: [i64; MAX_LEAVES],
}

impl Layout {
    pub(crate) const NOTHING: Layout =
        Layout { profile: Profile::EMPTY, shape: [0; MAX_LEAVES], stride: [0; MAX_LEAVES] };

    /// `1:0`, the layout of one element.
    pub const ONE: Layout = Layout::raw_leaf(1, 0);

    /// A layout from a shape and a stride that nest alike.
    ///
    /// # Errors
    /// [`LayoutError::Congruence`], [`LayoutError::Extent`] (an extent below 1),
    /// [`LayoutError::Overflow`].
    pub const fn new(shape: &IntTuple, stride: &IntTuple) -> Result<Layout, LayoutError> {
        if !shape.profile.congruent(&stride.profile) {
            return Err(LayoutError::Congruence {
                shape_leaves: shape.profile.leaves(),
                stride_leaves: stride.profile.leaves(),
            });
        }
        Layout { profile: shape.profile, shape: shape.values, stride: stride.values }.checked()
    }

    /// A layout of one integer mode: `extent:stride`.
    ///
    /// # Errors
    /// [`LayoutError::Extent`], [`LayoutError::Overflow`].
    pub const fn leaf(extent: i64, stride: i64) -> Result<Layout, LayoutError> {
        Layout::raw_leaf(extent, stride).checked()
    }

    pub(crate) const fn raw_leaf(extent: i64, stride: i64) -> Layout {
        let mut layout = Layout { profile: Profile::INT, ..Layout::NOTHING };
        layout.shape[0] = extent;
        layout.stride[0] = stride;
        layout
    }

    /// A layout whose modes are the given layouts.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let a = Layout::parse("(2,3):(3,1)").unwrap();
    /// let b = Layout::parse("4:6").unwrap();
    /// assert_eq!(Layout::tuple(&[a, b]).unwrap().to_string(), "((2,3),4):((3,1),6)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Capacity`], [`LayoutError::Overflow`].
    pub const fn tuple(modes: &[Layout]) -> Result<Layout, LayoutError> {
        let mut out = Layout::NOTHING;
        tri!(out.profile.push_tuple(modes.len()));
        let mut i = 0;
        while i < modes.len() {
            tri!(out.push_mode(&modes[i], TreePosition::ROOT));
            i += 1;
        }
        out.checked()
    }

    /// The layout of a result, or a panic with the error's text: a compile error where it stands in
    /// a `const`.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// const TILE: Layout = Layout::constant(Layout::parse("(16,16):(16,1)"));
    /// const FOUR_ROWS: Layout = Layout::constant(Layout::parse("(4,16):(1,16)"));
    /// const TOP: Layout = Layout::constant(TILE.composition(&FOUR_ROWS));
    /// assert_eq!(TOP.to_string(), "(4,16):(16,1)");
    /// ```
    ///
    /// # Panics
    /// If the result is an error.
    pub const fn constant(result: Result<Layout, LayoutError>) -> Layout {
        match result {
            Ok(layout) => layout,
            Err(error) => panic!("{}", error.message().as_str()),
        }
    }

    /// The extents.
    pub const fn shape(&self) -> IntTuple {
        IntTuple { profile: self.profile, values: self.shape }
    }

    /// The strides.
    pub const fn stride(&self) -> IntTuple {
        IntTuple { profile: self.profile, values: self.stride }
    }

    /// The nesting of shape and stride.
    pub const fn profile(&self) -> Profile {
        self.profile
    }

    /// The extents, in reading order.
    pub const fn extents(&self) -> &[i64] {
        self.profile.used(&self.shape)
    }

    /// The strides, in reading order.
    pub const fn strides(&self) -> &[i64] {
        self.profile.used(&self.stride)
    }

    /// Returns whether the layout is one integer mode, not a tuple.
    pub const fn is_leaf(&self) -> bool {
        self.profile.arity(0).is_none()
    }

    /// Number of top-level modes; 1 for an integer.
    pub const fn rank(&self) -> usize {
        self.profile.rank()
    }

    /// 0 for an integer, else one more than the deepest mode.
    pub const fn depth(&self) -> usize {
        self.profile.depth()
    }

    /// Number of coordinates: the product of all extents.
    pub const fn size(&self) -> i64 {
        self.size_at(TreePosition::ROOT)
    }

    pub(crate) const fn size_at(&self, at: TreePosition) -> i64 {
        self.profile.product(at, &self.shape)
    }

    /// The largest offset plus one: `1 + Σ (extent - 1)·|stride|`. With negative strides, the width
    /// of the span.
    pub const fn cosize(&self) -> i64 {
        let mut cosize = 1;
        let mut leaf = 0;
        while leaf < self.profile.leaves() {
            cosize += (self.shape[leaf] - 1) * self.stride[leaf].abs();
            leaf += 1;
        }
        cosize
    }

    /// Mode `index` as a layout; an integer layout is its own mode 0.
    ///
    /// # Errors
    /// [`LayoutError::NoSuchMode`].
    pub const fn mode(&self, index: usize) -> Result<Layout, LayoutError> {
        Ok(self.subtree(tri!(self.profile.mode(index))))
    }

    /// Number of coordinates of mode `index`, or 1 where there is no such mode.
    pub const fn extent(&self, index: usize) -> i64 {
        if index >= self.rank() { 1 } else { self.size_at(self.profile.child(TreePosition::ROOT, index)) }
    }

    pub(crate) const fn subtree(&self, at: TreePosition) -> Layout {
        let mut layout = Layout::NOTHING;
        // A part of a layout fits where the whole did.
        let _ = layout.push_mode(self, at);
        layout
    }

    /// Checks extents and spans. Every operation ends here.
    pub(crate) const fn checked(self) -> Result<Layout, LayoutError> {
        match self.check() {
            Ok(()) => Ok(self),
            Err(error) => Err(error),
        }
    }

    pub(crate) const fn check(&self) -> Result<(), LayoutError> {
        let mut size = 1i64;
        let mut span = 0i64;
        let mut leaf = 0;
        while leaf < self.profile.leaves() {
            let extent = self.shape[leaf];
            let stride = self.stride[leaf];
            if extent < 1 {
                return Err(LayoutError::Extent { leaf, extent });
            }
            size = tri!(times(size, extent, "the size"));
            let reach = tri!(times(extent - 1, stride, "the span")).abs();
            if stride.unsigned_abs() > LIMIT as u64 || reach > LIMIT - span {
                return Err(LayoutError::Overflow { what: "the span", left: extent, right: stride });
            }
            span += reach;
            leaf += 1;
        }
        Ok(())
    }

    pub(crate) const fn push_leaf(&mut self, extent: i64, stride: i64) -> Result<(), LayoutError> {
        tri!(self.profile.push_leaf());
        let leaf = self.profile.leaves() - 1;
        self.shape[leaf] = extent;
        self.stride[leaf] = stride;
        Ok(())
    }

    pub(crate) const fn push_mode(&mut self, from: &Layout, at: TreePosition) -> Result<(), LayoutError> {
        let moved = tri!(self.profile.push_subtree(&from.profile, at));
        moved.copy(&from.shape, &mut self.shape);
        moved.copy(&from.stride, &mut self.stride);
        Ok(())
    }
}

/// The product, or an error where it leaves 60 bits.
pub(crate) const fn times(left: i64, right: i64, what: &'static str) -> Result<i64, LayoutError> {
    match left.checked_mul(right) {
        Some(product) if product.unsigned_abs() <= LIMIT as u64 => Ok(product),
        _ => Err(LayoutError::Overflow { what, left, right }),
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Message::new().layout(self).as_str())
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Message {
    /// The message followed by a layout in the notation `shape:stride`.
    pub const fn layout(self, layout: &Layout) -> Message {
        self.tree(&layout.profile, &layout.shape).text(":").tree(&layout.profile, &layout.stride)
    }
}
