//! Coordinates to offsets, and back.

use crate::int_tuple::{product, sum};
use crate::profile::TreePosition;
use crate::{IntTuple, Layout, LayoutError, Profile, laws};

impl Layout {
    /// The offset of flat coordinate `index`.
    ///
    /// The index counts the first mode fastest. The last mode is not bounded: an index of
    /// [`Layout::size`] or more walks on along it, and a negative one walks back (division
    /// truncates towards zero). Far beyond the size the arithmetic wraps;
    /// [`offset`](Layout::offset) refuses what 64 bits do not hold.
    ///
    /// Law: `at(i)` is the offset of [`coordinate(i)`](Layout::coordinate): the first mode counts
    /// fastest.
    ///
    /// Edge cases: `():()` has offset 0 at every index; beyond the size and below 0 the last mode
    /// goes on.
    ///
    /// ```console
    /// $ tilewright layout show "(2,3):(3,1)"
    /// 0 1 2
    /// 3 4 5
    /// $ tilewright layout eval "index((2,3):(3,1))"
    /// (0,3,1,4,2,5)
    /// $ tilewright layout eval "crd2idx(7, (2,3):(3,1))"
    /// 6
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let columns = Layout::parse("(4,2):(1,4)").unwrap();
    /// assert_eq!((columns.at(5), columns.at(9)), (5, 9));
    /// assert_eq!(Layout::parse("((2,2),3):((4,1),2)").unwrap().at(3), 5);
    /// ```
    pub const fn at(&self, index: i64) -> i64 {
        let end = self.profile.leaves();
        let mut rest = index;
        let mut offset = 0i64;
        let mut leaf = 0;
        while leaf + 1 < end {
            offset = offset.wrapping_add((rest % self.shape[leaf]).wrapping_mul(self.stride[leaf]));
            rest /= self.shape[leaf];
            leaf += 1;
        }
        if leaf < end { offset.wrapping_add(rest.wrapping_mul(self.stride[leaf])) } else { offset }
    }

    /// The offset of the subtree at `at`, as [`Layout::at`] computes it; refused if 64 bits do not
    /// hold it.
    pub(crate) const fn exact_at(&self, at: TreePosition, index: i64) -> Result<i64, LayoutError> {
        let end = self.profile.end(at).leaf;
        let mut rest = index;
        let mut offset = 0i64;
        let mut leaf = at.leaf;
        while leaf < end {
            // The last integer is not bounded.
            let here = if leaf + 1 < end { rest % self.shape[leaf] } else { rest };
            offset = tri!(sum(offset, tri!(product(here, self.stride[leaf], "the offset")), "the offset"));
            rest /= self.shape[leaf];
            leaf += 1;
        }
        Ok(offset)
    }

    /// The offset of a coordinate nested like the shape, or less deeply: an integer for a whole
    /// tuple is split colexicographically inside it.
    ///
    /// Law: the sum of the coordinate's integers times their strides; of an integer alone,
    /// [`at`](Layout::at).
    ///
    /// Edge cases: parts are not checked against their extents; beyond an extent they walk on along
    /// the stride. `(3)` is not a coordinate of an integer mode.
    ///
    /// ```console
    /// $ tilewright layout show "((2,3),4):((1,2),6)"
    ///  0  6 12 18
    ///  1  7 13 19
    ///  2  8 14 20
    ///  3  9 15 21
    ///  4 10 16 22
    ///  5 11 17 23
    /// $ tilewright layout eval "crd2idx(((1,2),3), ((2,3),4):((1,2),6))"
    /// 23
    /// $ tilewright layout eval "crd2idx((5,3), ((2,3),4):((1,2),6))"
    /// 23
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{IntTuple, Layout};
    /// let layout = Layout::parse("((2,3),4):((1,2),6)").unwrap();
    /// assert_eq!(layout.offset(&IntTuple::parse("((1,2),3)").unwrap()), Ok(23));
    /// assert_eq!(layout.offset(&IntTuple::parse("(5,3)").unwrap()), Ok(23));
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] or [`LayoutError::NotAnInteger`] where the coordinate is not nested
    /// like the shape; [`LayoutError::Overflow`] where 64 bits do not hold the offset.
    pub const fn offset(&self, coordinate: &IntTuple) -> Result<i64, LayoutError> {
        self.offset_of(TreePosition::ROOT, coordinate, TreePosition::ROOT)
    }

    pub(crate) const fn offset_of(
        &self,
        at: TreePosition,
        coordinate: &IntTuple,
        from: TreePosition,
    ) -> Result<i64, LayoutError> {
        let Some(arity) = coordinate.profile.arity(from.node) else {
            return self.exact_at(at, coordinate.values[from.leaf]);
        };
        tri!(matching_tuple("offset", arity, &self.profile, at.node));
        let mut at = self.profile.child(at, 0);
        let mut from = coordinate.profile.child(from, 0);
        let mut offset = 0i64;
        let mut i = 0;
        while i < arity {
            offset = tri!(sum(offset, tri!(self.offset_of(at, coordinate, from)), "the offset"));
            at = self.profile.end(at);
            from = coordinate.profile.end(from);
            i += 1;
        }
        Ok(offset)
    }

    /// The coordinate, nested like the shape, of flat coordinate `index`. The last integer is not
    /// bounded.
    ///
    /// Law: the inverse of counting: `shape.index_of(coordinate(i)) == i`, whatever the strides.
    ///
    /// Edge cases: an index of the size or more makes the last integer larger than its extent; a
    /// negative index gives integers of at most 0.
    ///
    /// ```console
    /// $ tilewright layout eval "idx2crd(5, (2,3))"
    /// (1,2)
    /// $ tilewright layout eval "idx2crd(23, ((2,3),4))"
    /// ((1,2),3)
    /// $ tilewright layout eval "idx2crd(30, ((2,3),4))"
    /// ((0,0),5)
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let layout = Layout::parse("((2,3),4):((1,2),6)").unwrap();
    /// assert_eq!(layout.coordinate(23).to_string(), "((1,2),3)");
    /// ```
    pub const fn coordinate(&self, index: i64) -> IntTuple {
        let mut out = self.shape();
        split(&mut out, &self.shape(), TreePosition::ROOT, index);
        out
    }

    /// A coordinate whose offset is `offset`, nested like the shape, and 0 along modes of extent 1.
    ///
    /// [`right_inverse`](Layout::right_inverse) and [`left_inverse`](Layout::left_inverse) are this
    /// function as layouts, for the layouts that have one.
    ///
    /// Law: `L(coordinate_of_offset(o)) == o`; an offset that no coordinate has is refused.
    ///
    /// Edge cases: padding is crossed, where CuTe's division of the offset by each stride gives the
    /// coordinate of another offset. Of several coordinates with the offset, the one by division is
    /// given, or else any. A stride of 0 is refused. A search of a million steps, which only
    /// strides without common divisors need, ends in a refusal.
    ///
    /// ```console
    /// $ tilewright layout show "(2,3):(3,1)"
    /// 0 1 2
    /// 3 4 5
    /// $ tilewright layout eval "get_hier_coord((2,3):(3,1), 5)"
    /// (1,2)
    /// $ tilewright layout eval "get_hier_coord((3,4):(5,1), 5)"
    /// (1,0)
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// // Four columns in use of five: the fifth element of a row is padding.
    /// let padded = Layout::parse("(3,4):(5,1)").unwrap();
    /// assert_eq!(padded.coordinate_of_offset(5).unwrap().to_string(), "(1,0)");
    /// assert!(padded.coordinate_of_offset(4).is_err());
    /// assert!(Layout::parse("(2,3):(0,1)").unwrap().coordinate_of_offset(1).is_err());
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::NotAnOffset`] where no coordinate has the offset; [`LayoutError::Argument`]
    /// where a mode of more than one element has stride 0.
    pub const fn coordinate_of_offset(&self, offset: i64) -> Result<IntTuple, LayoutError> {
        let operation = "coordinate_of_offset";
        let mut out = self.shape();
        let mut leaf = 0;
        let mut reached = 0;
        while leaf < self.profile.leaves() {
            let extent = self.shape[leaf];
            let stride = self.stride[leaf];
            if extent > 1 && stride == 0 {
                return Err(LayoutError::Argument {
                    operation,
                    argument: "a stride",
                    value: 0,
                    bound: "other than 0, or no offset tells the coordinate",
                });
            }
            out.values[leaf] = if extent == 1 { 0 } else { offset.wrapping_div(stride) % extent };
            reached += out.values[leaf] * stride;
            leaf += 1;
        }
        if reached != offset || !self.shape().contains(&out) {
            match laws::coordinate_of(self, offset) {
                Some(values) => out.values = values,
                None => return Err(LayoutError::NotAnOffset { operation, offset }),
            }
        }
        Ok(out)
    }
}

impl IntTuple {
    /// The coordinate, in this shape, of flat index `index`, nested like the shape. the coordinate
    /// of flat index `index`, nested like the shape. The last integer is not bounded.
    ///
    /// Law: `index_of(coordinate(i)) == i`.
    ///
    /// Edge cases: as [`Layout::coordinate`].
    ///
    /// ```console
    /// $ tilewright layout eval "idx2crd(5, (2,3))"
    /// (1,2)
    /// $ tilewright layout eval "idx2crd(5, (0,3))"
    /// error: layout: extent 0 of integer 0 of the shape is below 1; every extent counts at least one element
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Extent`] where an extent is below 1.
    pub const fn coordinate(&self, index: i64) -> Result<IntTuple, LayoutError> {
        tri!(self.as_shape());
        let mut out = *self;
        split(&mut out, self, TreePosition::ROOT, index);
        Ok(out)
    }

    /// The coordinate, in this shape, for `index`, which may itself stop at any level of nesting.
    /// the coordinate for `index`, which may itself stop at any level of nesting.
    ///
    /// Law: the result nests like the shape and has the same [`index_of`](IntTuple::index_of).
    ///
    /// Edge cases: an integer is split like [`coordinate`](IntTuple::coordinate); a coordinate
    /// nested like the shape comes back.
    ///
    /// ```console
    /// $ tilewright layout eval "idx2crd((5,3), ((2,3),4))"
    /// ((1,2),3)
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] or [`LayoutError::NotAnInteger`] where `index` is not nested like the
    /// shape.
    pub const fn refine_coordinate(&self, index: &IntTuple) -> Result<IntTuple, LayoutError> {
        tri!(self.as_shape());
        let mut out = *self;
        tri!(refine(&mut out, self, TreePosition::ROOT, index, TreePosition::ROOT));
        Ok(out)
    }

    /// The flat index, in this shape, of a coordinate, which may stop at any level of nesting. the
    /// flat index of a coordinate, which may stop at any level of nesting.
    ///
    /// Law: `index_of(coordinate(i)) == i`; of an integer, the integer.
    ///
    /// Edge cases: parts beyond their extents carry into the next.
    ///
    /// ```console
    /// $ tilewright layout eval "crd2idx(((1,2),3), ((2,3),4))"
    /// 23
    /// $ tilewright layout eval "crd2idx((7,0), ((2,3),4))"
    /// 7
    /// ```
    ///
    /// # Errors
    /// As [`Layout::offset`].
    pub const fn index_of(&self, coordinate: &IntTuple) -> Result<i64, LayoutError> {
        if coordinate.is_int() {
            return Ok(coordinate.values[0]);
        }
        let mut layout = tri!(self.as_shape());
        let mut product = 1;
        let mut leaf = 0;
        while leaf < layout.profile.leaves() {
            layout.stride[leaf] = product;
            product *= layout.shape[leaf];
            leaf += 1;
        }
        layout.offset(coordinate)
    }

    /// Whether every integer of a coordinate that nests like this shape is at least 0 and below its
    /// extent.
    const fn contains(&self, coordinate: &IntTuple) -> bool {
        let mut leaf = 0;
        while leaf < self.profile.leaves() {
            if coordinate.values[leaf] < 0 || coordinate.values[leaf] >= self.values[leaf] {
                return false;
            }
            leaf += 1;
        }
        true
    }

    /// The tuple as a shape with strides 0, if every extent is at least 1 and the size fits.
    pub(crate) const fn as_shape(&self) -> Result<Layout, LayoutError> {
        Layout { profile: self.profile, shape: self.values, ..Layout::NOTHING }.checked()
    }
}

/// Checks that a tuple of `arity` modes can stand where `profile` has `node`.
pub(crate) const fn matching_tuple(
    operation: &'static str,
    arity: usize,
    profile: &Profile,
    node: usize,
) -> Result<(), LayoutError> {
    match profile.arity(node) {
        None => Err(LayoutError::NotAnInteger { operation, modes: arity }),
        Some(expected) if expected != arity => Err(LayoutError::Rank { operation, given: arity, expected }),
        Some(_) => Ok(()),
    }
}

const fn split(out: &mut IntTuple, shape: &IntTuple, at: TreePosition, index: i64) {
    let end = shape.profile.end(at).leaf;
    let mut rest = index;
    let mut leaf = at.leaf;
    while leaf + 1 < end {
        out.values[leaf] = rest % shape.values[leaf];
        rest /= shape.values[leaf];
        leaf += 1;
    }
    if leaf < end {
        out.values[leaf] = rest;
    }
}

const fn refine(
    out: &mut IntTuple,
    shape: &IntTuple,
    at: TreePosition,
    index: &IntTuple,
    from: TreePosition,
) -> Result<(), LayoutError> {
    let Some(arity) = index.profile.arity(from.node) else {
        split(out, shape, at, index.values[from.leaf]);
        return Ok(());
    };
    tri!(matching_tuple("coordinate", arity, &shape.profile, at.node));
    let mut at = shape.profile.child(at, 0);
    let mut from = index.profile.child(from, 0);
    let mut i = 0;
    while i < arity {
        tri!(refine(out, shape, at, index, from));
        at = shape.profile.end(at);
        from = index.profile.end(from);
        i += 1;
    }
    Ok(())
}
