//! Moving whole modes: append, select, group, flatten, zip.
//!
//! Law: the integers of the result are integers of the arguments; only their place and nesting
//! change. `flatten` and `unflatten` keep the function of the flat index, and `group` too.

use crate::profile::TreePosition;
use crate::{Layout, LayoutError, Profile};

impl Layout {
    /// Flattens to one tuple of all integers; a single integer stays one.
    ///
    /// Law: `flatten(L)(i) == L(i)` for every flat index `i`.
    ///
    /// Edge cases: empty tuples vanish; nothing is merged, and extents of 1 stay
    /// ([`coalesce`](Layout::coalesce) drops them).
    ///
    /// ```console
    /// $ tilewright layout show "((2,2),3):((1,6),2)"
    ///  0  2  4
    ///  1  3  5
    ///  6  8 10
    ///  7  9 11
    /// $ tilewright layout eval "flatten(((2,2),3):((1,6),2))"
    /// (2,2,3):(1,6,2)
    /// $ tilewright layout show "flatten(((2,2),3):((1,6),2))"
    ///  0  6  2  8  4 10
    ///  1  7  3  9  5 11
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let nested = Layout::parse("((2,3),4):((1,2),6)").unwrap();
    /// assert_eq!(nested.flatten().to_string(), "(2,3,4):(1,2,6)");
    /// ```
    pub const fn flatten(&self) -> Layout {
        if self.is_leaf() {
            return *self;
        }
        let mut out = Layout::NOTHING;
        // As many integers as before, and one tuple.
        let _ = out.profile.push_tuple(self.profile.leaves());
        let mut leaf = 0;
        while leaf < self.profile.leaves() {
            let _ = out.push_leaf(self.shape[leaf], self.stride[leaf]);
            leaf += 1;
        }
        out
    }

    /// The integers of a flat layout, nested like `profile`: the inverse of [`Layout::flatten`].
    ///
    /// Law: `unflatten(flatten(L), profile of L) == L`; the function of the flat index stays.
    ///
    /// Edge cases: an integer and a tuple of one may become each other.
    ///
    /// ```console
    /// $ tilewright layout show "(2,2,3):(1,6,2)"
    ///  0  6  2  8  4 10
    ///  1  7  3  9  5 11
    /// $ tilewright layout eval "unflatten((2,2,3):(1,6,2), ((1,1),1))"
    /// ((2,2),3):((1,6),2)
    /// $ tilewright layout show "unflatten((2,2,3):(1,6,2), ((1,1),1))"
    ///  0  2  4
    ///  1  3  5
    ///  6  8 10
    ///  7  9 11
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the number of integers differs; [`LayoutError::NotAnInteger`]
    /// where the layout nests.
    pub const fn unflatten(&self, profile: &Profile) -> Result<Layout, LayoutError> {
        if self.depth() > 1 {
            return Err(LayoutError::NotAnInteger { operation: "unflatten", modes: self.rank() });
        }
        if profile.leaves() != self.profile.leaves() {
            return Err(LayoutError::Rank {
                operation: "unflatten",
                given: profile.leaves(),
                expected: self.profile.leaves(),
            });
        }
        Ok(Layout { profile: *profile, ..*self })
    }

    /// Appends `mode` after the layout's modes.
    ///
    /// Law: coordinate `(c, x)` has offset `L(c) + M(x)`, for `M` the new mode.
    ///
    /// Edge cases: an integer layout counts as one mode; a tuple is appended as one mode, not
    /// unpacked; nothing checks that the offsets differ.
    ///
    /// ```console
    /// $ tilewright layout show "append(4:1, 3:10)"
    ///  0 10 20
    ///  1 11 21
    ///  2 12 22
    ///  3 13 23
    /// $ tilewright layout eval "append(4:1, (2,2):(4,8))"
    /// (4,(2,2)):(1,(4,8))
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let a = Layout::parse("4:1").unwrap();
    /// let b = Layout::parse("(2,2):(4,8)").unwrap();
    /// assert_eq!(a.append(&b).unwrap().to_string(), "(4,(2,2)):(1,(4,8))");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Capacity`], [`LayoutError::Overflow`].
    pub const fn append(&self, mode: &Layout) -> Result<Layout, LayoutError> {
        self.append_to(mode, self.rank() + 1)
    }

    /// Appends `mode` until the layout has `rank` modes.
    ///
    /// Law: as [`append`](Layout::append), `rank - rank(L)` times.
    ///
    /// Edge cases: a layout that has `rank` modes already stays as it is, and an integer stays an
    /// integer for rank 1.
    ///
    /// ```console
    /// $ tilewright layout eval "append((2,3):(3,1), 1:0, 4)"
    /// (2,3,1,1):(3,1,0,0)
    /// $ tilewright layout show "append((2,3):(3,1), 2:6, 3)" --tile 2,3
    ///  0  1  2 |  6  7  8
    ///  3  4  5 |  9 10 11
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where there are more already; as [`Layout::append`].
    pub const fn append_to(&self, mode: &Layout, rank: usize) -> Result<Layout, LayoutError> {
        self.padded(mode, rank, false)
    }

    /// The layout with `mode` before its modes.
    ///
    /// Law: coordinate `(x, c)` has offset `M(x) + L(c)`.
    ///
    /// Edge cases: as [`append`](Layout::append).
    ///
    /// ```console
    /// $ tilewright layout show "prepend(4:1, 3:10)"
    ///  0  1  2  3
    /// 10 11 12 13
    /// 20 21 22 23
    /// $ tilewright layout eval "prepend(4:1, (2,2):(4,8))"
    /// ((2,2),4):((4,8),1)
    /// ```
    ///
    /// # Errors
    /// As [`Layout::append`].
    pub const fn prepend(&self, mode: &Layout) -> Result<Layout, LayoutError> {
        self.prepend_to(mode, self.rank() + 1)
    }

    /// The layout with `mode` added before its modes until it has `rank` of them.
    ///
    /// Law: as [`prepend`](Layout::prepend), `rank - rank(L)` times.
    ///
    /// Edge cases: as [`append_to`](Layout::append_to).
    ///
    /// ```console
    /// $ tilewright layout eval "prepend((2,3):(3,1), 1:0, 4)"
    /// (1,1,2,3):(0,0,3,1)
    /// $ tilewright layout show "prepend((2,3):(3,1), 2:6, 3)"
    ///  0  3  1  4  2  5
    ///  6  9  7 10  8 11
    /// ```
    ///
    /// # Errors
    /// As [`Layout::append_to`].
    pub const fn prepend_to(&self, mode: &Layout, rank: usize) -> Result<Layout, LayoutError> {
        self.padded(mode, rank, true)
    }

    const fn padded(&self, mode: &Layout, rank: usize, front: bool) -> Result<Layout, LayoutError> {
        if rank < self.rank() {
            return Err(LayoutError::Rank { operation: "append", given: self.rank(), expected: rank });
        }
        if rank == self.rank() {
            return Ok(*self);
        }
        let mut out = Layout::NOTHING;
        tri!(out.profile.push_tuple(rank));
        let mut i = self.rank();
        while front && i < rank {
            tri!(out.push_mode(mode, TreePosition::ROOT));
            i += 1;
        }
        tri!(out.push_modes(self, 0, self.rank()));
        while i < rank {
            tri!(out.push_mode(mode, TreePosition::ROOT));
            i += 1;
        }
        out.checked()
    }

    /// The layout with mode `index` replaced; of a tuple, `index == rank` appends.
    ///
    /// Law: every other mode stays as it is.
    ///
    /// Edge cases: mode 0 of an integer layout is the layout, so the result is the new mode alone;
    /// it has no mode 1.
    ///
    /// ```console
    /// $ tilewright layout show "(2,3):(3,1)"
    /// 0 1 2
    /// 3 4 5
    /// $ tilewright layout show "replace((2,3):(3,1), 1, 4:10)"
    ///  0 10 20 30
    ///  3 13 23 33
    /// $ tilewright layout eval "replace((2,3):(3,1), 2, 4:10)"
    /// (2,3,4):(3,1,10)
    /// $ tilewright layout eval "replace(8:1, 1, 2:8)"
    /// error: replace: there is no mode 1; the layout has 1, counted from 0
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::NoSuchMode`]; as [`Layout::append`].
    pub const fn replace(&self, index: usize, mode: &Layout) -> Result<Layout, LayoutError> {
        if index > self.rank() || (self.is_leaf() && index > 0) {
            return Err(LayoutError::NoSuchMode { operation: "replace", index: index as i64, rank: self.rank() });
        }
        let mut out = Layout::NOTHING;
        // A replaced integer is a layout of its own, not a mode.
        if !self.is_leaf() {
            tri!(out.profile.push_tuple(if index == self.rank() { index + 1 } else { self.rank() }));
        }
        tri!(out.push_modes(self, 0, index));
        tri!(out.push_mode(mode, TreePosition::ROOT));
        tri!(out.push_modes(self, index + 1, self.rank()));
        out.checked()
    }

    /// The modes with these numbers, in this order, as a tuple.
    ///
    /// Law: mode `k` of the result is mode `indices[k]`; with each mode once, it is a
    /// transposition.
    ///
    /// Edge cases: a mode may be named twice, and then repeats offsets; no mode gives `():()`; one
    /// mode stays a tuple of one.
    ///
    /// ```console
    /// $ tilewright layout show "(2,3):(3,1)"
    /// 0 1 2
    /// 3 4 5
    /// $ tilewright layout show "select((2,3):(3,1), (1,0))"
    /// 0 3
    /// 1 4
    /// 2 5
    /// $ tilewright layout eval "select((2,3,4):(1,2,6), (2))"
    /// (4):(6)
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::NoSuchMode`]; as [`Layout::append`].
    pub const fn select(&self, indices: &[usize]) -> Result<Layout, LayoutError> {
        let mut out = Layout::NOTHING;
        tri!(out.profile.push_tuple(indices.len()));
        let mut i = 0;
        while i < indices.len() {
            if indices[i] >= self.rank() {
                let index = indices[i] as i64;
                return Err(LayoutError::NoSuchMode { operation: "select", index, rank: self.rank() });
            }
            tri!(out.push_modes(self, indices[i], indices[i] + 1));
            i += 1;
        }
        out.checked()
    }

    /// Modes `begin..end` as a tuple.
    ///
    /// Law: mode `k` of the result is mode `begin + k`.
    ///
    /// Edge cases: an empty range is refused; one mode stays a tuple of one.
    ///
    /// ```console
    /// $ tilewright layout eval "take((2,3,4):(1,2,6), 1, 3)"
    /// (3,4):(2,6)
    /// $ tilewright layout show "take((2,3,4):(1,2,6), 1, 3)"
    ///  0  6 12 18
    ///  2  8 14 20
    ///  4 10 16 22
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Range`] where the range is empty or not within the layout.
    pub const fn take(&self, begin: usize, end: usize) -> Result<Layout, LayoutError> {
        if begin >= end || end > self.rank() {
            return Err(self.range("take", begin, end));
        }
        let mut out = Layout::NOTHING;
        tri!(out.profile.push_tuple(end - begin));
        tri!(out.push_modes(self, begin, end));
        Ok(out)
    }

    /// The layout with modes `begin..end` made one tuple mode; an empty range changes nothing, but
    /// an integer becomes a tuple of one.
    ///
    /// Law: `group(L)(i) == L(i)` for every flat index `i`.
    ///
    /// Edge cases: one mode becomes a tuple of one.
    ///
    /// ```console
    /// $ tilewright layout show "(2,2,3):(1,6,2)"
    ///  0  6  2  8  4 10
    ///  1  7  3  9  5 11
    /// $ tilewright layout show "group_modes((2,2,3):(1,6,2), 0, 2)"
    ///  0  2  4
    ///  1  3  5
    ///  6  8 10
    ///  7  9 11
    /// $ tilewright layout eval "group_modes((2,2,3):(1,6,2), 0, 2)"
    /// ((2,2),3):((1,6),2)
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let layout = Layout::parse("(2,3,4):(1,2,6)").unwrap();
    /// assert_eq!(layout.group(1, 3).unwrap().to_string(), "(2,(3,4)):(1,(2,6))");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Range`], [`LayoutError::Capacity`].
    pub const fn group(&self, begin: usize, end: usize) -> Result<Layout, LayoutError> {
        if begin > end || end > self.rank() {
            return Err(self.range("group", begin, end));
        }
        if begin == end {
            return if self.is_leaf() { Layout::tuple(&[*self]) } else { Ok(*self) };
        }
        let mut out = Layout::NOTHING;
        tri!(out.profile.push_tuple(self.rank() - (end - begin) + 1));
        tri!(out.push_modes(self, 0, begin));
        tri!(out.profile.push_tuple(end - begin));
        tri!(out.push_modes(self, begin, end));
        tri!(out.push_modes(self, end, self.rank()));
        Ok(out)
    }

    /// `((a,b),(c,d))` to `((a,c),(b,d))`: the transpose of the two upper levels. A tuple that
    /// begins with an integer becomes the only mode of a tuple; an integer stays one.
    ///
    /// Law: coordinate `((x,y),(u,v))` of the result has the offset of `((x,u),(y,v))`; zipping
    /// twice gives back tuples of tuples.
    ///
    /// Edge cases: `():()` stays, and a tuple of empty tuples becomes `():()`.
    ///
    /// ```console
    /// $ tilewright layout eval "zip(((2,3),(2,2)):((3,1),(12,6)))"
    /// ((2,2),(3,2)):((3,12),(1,6))
    /// $ tilewright layout show "zip(((2,3),(2,2)):((3,1),(12,6)))" --tile 2,3
    ///  0  1  2 |  6  7  8
    ///  3  4  5 |  9 10 11
    /// ---------+---------
    /// 12 13 14 | 18 19 20
    /// 15 16 17 | 21 22 23
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the modes have different numbers of modes;
    /// [`LayoutError::NotAnInteger`] where mode 0 is a tuple and another an integer.
    pub const fn zip(&self) -> Result<Layout, LayoutError> {
        let rank = self.rank();
        if self.depth() == 0 {
            return Ok(*self);
        }
        if self.rank() > 0 && self.profile.arity(self.profile.child(TreePosition::ROOT, 0).node).is_none() {
            return Layout::tuple(&[*self]);
        }
        if self.rank() == 0 {
            return Ok(*self);
        }
        let inner = self.profile.rank_at(self.profile.child(TreePosition::ROOT, 0).node);
        let mut i = 0;
        while i < rank {
            let node = self.profile.child(TreePosition::ROOT, i).node;
            tri!(crate::index::matching_tuple("zip", inner, &self.profile, node));
            i += 1;
        }
        let mut out = Layout::NOTHING;
        tri!(out.profile.push_tuple(inner));
        let mut j = 0;
        while j < inner {
            tri!(out.profile.push_tuple(rank));
            let mut i = 0;
            while i < rank {
                let mode = self.profile.child(TreePosition::ROOT, i);
                tri!(out.push_mode(self, self.profile.child(mode, j)));
                i += 1;
            }
            j += 1;
        }
        Ok(out)
    }

    const fn range(&self, operation: &'static str, begin: usize, end: usize) -> LayoutError {
        LayoutError::Range { operation, begin: begin as i64, end: end as i64, rank: self.rank() }
    }

    /// Appends the modes `begin..end` of `from`, each as it is.
    pub(crate) const fn push_modes(&mut self, from: &Layout, begin: usize, end: usize) -> Result<(), LayoutError> {
        self.push_modes_at(from, TreePosition::ROOT, begin, end)
    }

    pub(crate) const fn push_modes_at(
        &mut self,
        from: &Layout,
        at: TreePosition,
        begin: usize,
        end: usize,
    ) -> Result<(), LayoutError> {
        let mut i = begin;
        while i < end {
            tri!(self.push_mode(from, from.profile.child(at, i)));
            i += 1;
        }
        Ok(())
    }
}
