//! Moving whole modes: append, select, group, flatten, zip.
//!
//! Law: the integers of the result are integers of the arguments; only their place and nesting change. `flatten` and
//! `unflatten` keep the function of the flat index, and `group` too.

use crate::profile::At;
use crate::{Layout, LayoutError, Profile};

impl Layout {
    /// One tuple of all integers; a single integer stays one.
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
    /// # Errors
    /// [`LayoutError::Rank`] where the number of integers differs; [`LayoutError::NotAnInteger`] where the layout nests.
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

    /// The layout with `mode` behind its modes.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let (a, b) = (Layout::parse("4:1").unwrap(), Layout::parse("(2,2):(4,8)").unwrap());
    /// assert_eq!(a.append(&b).unwrap().to_string(), "(4,(2,2)):(1,(4,8))");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Capacity`], [`LayoutError::Overflow`].
    pub const fn append(&self, mode: &Layout) -> Result<Layout, LayoutError> {
        self.append_to(mode, self.rank() + 1)
    }

    /// The layout with `mode` behind its modes as often as it takes to have `rank` of them.
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where there are more already; as [`Layout::append`].
    pub const fn append_to(&self, mode: &Layout, rank: usize) -> Result<Layout, LayoutError> {
        self.padded(mode, rank, false)
    }

    /// The layout with `mode` before its modes.
    ///
    /// # Errors
    /// As [`Layout::append`].
    pub const fn prepend(&self, mode: &Layout) -> Result<Layout, LayoutError> {
        self.prepend_to(mode, self.rank() + 1)
    }

    /// The layout with `mode` before its modes as often as it takes to have `rank` of them.
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
            tri!(out.push_mode(mode, At::ROOT));
            i += 1;
        }
        tri!(out.push_modes(self, 0, self.rank()));
        while i < rank {
            tri!(out.push_mode(mode, At::ROOT));
            i += 1;
        }
        out.checked()
    }

    /// The layout with mode `index` replaced; `index == rank` appends.
    ///
    /// # Errors
    /// [`LayoutError::NoSuchMode`]; as [`Layout::append`].
    pub const fn replace(&self, index: usize, mode: &Layout) -> Result<Layout, LayoutError> {
        if index > self.rank() {
            return Err(LayoutError::NoSuchMode { operation: "replace", index: index as i64, rank: self.rank() });
        }
        let mut out = Layout::NOTHING;
        let rank = if index == self.rank() { self.rank() + 1 } else { self.rank() };
        // A replaced integer is a layout of its own, not a mode.
        if !self.is_leaf() || rank > 1 {
            tri!(out.profile.push_tuple(rank));
        }
        tri!(out.push_modes(self, 0, index));
        tri!(out.push_mode(mode, At::ROOT));
        tri!(out.push_modes(self, index + 1, self.rank()));
        out.checked()
    }

    /// The modes with these numbers, in this order, as a tuple.
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

    /// The layout with modes `begin..end` made one tuple mode; an empty range changes nothing, but an integer
    /// becomes a tuple of one.
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

    /// `((a,b),(c,d))` to `((a,c),(b,d))`: the transpose of the two upper levels. A tuple that begins with an integer becomes
    /// the only mode of a tuple; an integer stays one.
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the modes have different numbers of modes; [`LayoutError::NotAnInteger`] where mode 0 is
    /// a tuple and another an integer.
    pub const fn zip(&self) -> Result<Layout, LayoutError> {
        let rank = self.rank();
        if self.depth() == 0 {
            return Ok(*self);
        }
        if self.rank() > 0 && self.profile.arity(self.profile.child(At::ROOT, 0).node).is_none() {
            return Layout::tuple(&[*self]);
        }
        if self.rank() == 0 {
            return Ok(*self);
        }
        let inner = self.profile.rank_at(self.profile.child(At::ROOT, 0).node);
        let mut i = 0;
        while i < rank {
            let node = self.profile.child(At::ROOT, i).node;
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
                let mode = self.profile.child(At::ROOT, i);
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
        self.push_modes_at(from, At::ROOT, begin, end)
    }

    pub(crate) const fn push_modes_at(
        &mut self,
        from: &Layout,
        at: At,
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
