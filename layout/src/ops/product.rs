//! Product: copies of a layout, arranged by another.
//!
//! Law, for `P = logical_product(B, T)`: mode 0 of `P` is `B`, mode 1 is laid out like `T` over the
//! places that `B` leaves free, and `P` is injective where both are. It is one line over the two
//! primitives.
//!
//! The forms place modes as those of [division](super::divide) do; `blocked_product` and
//! `raked_product` pair them up.

use crate::laws::{Counterexample, injective};
use crate::ops::divide::gather_or_keep;
use crate::ops::tiled::{Each, apply, spread};
use crate::profile::TreePosition;
use crate::{Layout, LayoutError, Tiler, layout::times};

impl Layout {
    /// Each mode as (block, copies).
    ///
    /// Law: for a mode `B` and its copies `T`, mode 0 of the result is `B`, mode 1 has the size of
    /// `T` and the order of its offsets, and no offset is repeated where `B` and `T` repeat none.
    ///
    /// Edge cases: copies of stride 0 stand on top of each other; copies of a negative stride go
    /// before the block. A block with stride 0 is copied as if it had one element there. A block of
    /// negative stride, or one that overlaps itself, is refused. A block whose strides do not nest
    /// may leave too little space for the copies; copies that would then repeat an offset are
    /// refused, where CuTe returns them.
    ///
    /// ```console
    /// $ tilewright layout show "(2,2):(2,1)"
    /// 0 1
    /// 2 3
    /// $ tilewright layout eval "logical_product((2,2):(2,1), (2,3):(3,1))"
    /// ((2,2),(2,3)):((2,1),(12,4))
    /// $ tilewright layout show "logical_product((2,2):(2,1), (2,3):(3,1))"
    ///  0 12  4 16  8 20
    ///  2 14  6 18 10 22
    ///  1 13  5 17  9 21
    ///  3 15  7 19 11 23
    /// $ tilewright layout eval "logical_product((2,2):(2,1), (2,3))"
    /// ((2,2),(2,3)):((2,1),(1,2))
    /// $ tilewright layout eval "logical_product((2,2):(3,9), 3:1)"
    /// ((2,2),3):((3,9),1)
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{Layout, Tiler};
    /// let copies = Tiler::layout(&Layout::parse("6:1").unwrap());
    /// let product = Layout::parse("(2,2):(4,1)").unwrap().logical_product(&copies).unwrap();
    /// assert_eq!(product.to_string(), "((2,2),(2,3)):((4,1),(2,8))");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Room`] where the copies would repeat an offset; [`LayoutError::Rank`] where
    /// the tiler has too many modes; as [`Layout::composition`] and [`Layout::complement`].
    pub const fn logical_product(&self, tiler: &Tiler) -> Result<Layout, LayoutError> {
        apply(Each::Multiply, self, tiler)
    }

    pub(crate) const fn multiply_by_layout(&self, copies: &Layout) -> Result<Layout, LayoutError> {
        let free = tri!(self.complement(tri!(times(self.size(), copies.cosize(), "the product's span"))));
        let mut product = Layout::NOTHING;
        tri!(product.profile.push_tuple(2));
        tri!(product.push_mode(self, TreePosition::ROOT));
        let doubt = tri!(free.compose_into(copies, &mut product));
        // Inside its domain `free` is injective and disjoint from the block, so the product repeats
        // nothing.
        if doubt.is_none() && copies.ascends() && copies.cosize() <= free.size() {
            return Ok(product);
        }
        match tri!(self.first_repeat(copies, &free)) {
            None => Ok(product),
            Some(_) => Err(match doubt {
                Some(doubt) => doubt,
                None => LayoutError::Room { operation: "product", room: free.size(), reach: copies.cosize() },
            }),
        }
    }

    /// A pair of coordinates of block and copies that share an offset, although neither repeats one
    /// by itself; modes of stride 0 do not count.
    const fn first_repeat(&self, copies: &Layout, free: &Layout) -> Result<Option<Counterexample>, LayoutError> {
        let block = self.filter_zeros();
        let copies = copies.filter_zeros();
        if injective(&block).is_err() || injective(&copies).is_err() {
            return Ok(None);
        }
        let mut product = Layout::NOTHING;
        tri!(product.profile.push_tuple(2));
        tri!(product.push_mode(&block, TreePosition::ROOT));
        tri!(free.compose_into(&copies, &mut product));
        match injective(&product) {
            Ok(()) => Ok(None),
            Err(pair) => Ok(Some(pair)),
        }
    }

    /// Whether no mode of more than one element has a negative stride.
    const fn ascends(&self) -> bool {
        let mut leaf = 0;
        while leaf < self.profile.leaves() {
            if self.shape[leaf] > 1 && self.stride[leaf] < 0 {
                return false;
            }
            leaf += 1;
        }
        true
    }

    /// All blocks in mode 0, all copies in mode 1.
    ///
    /// Law: the modes of [`logical_product`](Layout::logical_product), as `((blocks),(copies))`.
    ///
    /// Edge cases: modes beyond the tiler are copies, as in
    /// [`zipped_divide`](Layout::zipped_divide). One layout for the copies gives the pair of
    /// `logical_product`.
    ///
    /// ```console
    /// $ tilewright layout eval "zipped_product((2,2):(2,1), (2:1,3:1))"
    /// ((2,2),(2,3)):((2,1),(1,2))
    /// $ tilewright layout eval "zipped_product(4:1, (2,3):(3,1))"
    /// (4,(2,3)):(1,(12,4))
    /// $ tilewright layout show "zipped_product(4:1, (2,3):(3,1))"
    ///  0 12  4 16  8 20
    ///  1 13  5 17  9 21
    ///  2 14  6 18 10 22
    ///  3 15  7 19 11 23
    /// ```
    ///
    /// # Errors
    /// As [`Layout::logical_product`]; [`LayoutError::NotAnInteger`] where `_` meets a mode that is
    /// not a pair.
    pub const fn zipped_product(&self, tiler: &Tiler) -> Result<Layout, LayoutError> {
        gather_or_keep(&tri!(self.logical_product(tiler)), tiler)
    }

    /// All blocks in mode 0, the copies one mode each. Copies of one mode are not unpacked.
    ///
    /// Law: [`zipped_product`](Layout::zipped_product) with mode 1 unpacked: the same function of
    /// the flat index.
    ///
    /// Edge cases: as [`tiled_divide`](Layout::tiled_divide).
    ///
    /// ```console
    /// $ tilewright layout eval "tiled_product(4:1, (2,3):(3,1))"
    /// (4,2,3):(1,12,4)
    /// $ tilewright layout show "tiled_product(4:1, (2,3):(3,1))" --tile 4,2
    ///  0 12 |  4 16 |  8 20
    ///  1 13 |  5 17 |  9 21
    ///  2 14 |  6 18 | 10 22
    ///  3 15 |  7 19 | 11 23
    /// ```
    ///
    /// # Errors
    /// As [`Layout::zipped_product`].
    pub const fn tiled_product(&self, tiler: &Tiler) -> Result<Layout, LayoutError> {
        spread(&tri!(self.zipped_product(tiler)), false)
    }

    /// Blocks and copies, one mode each.
    ///
    /// Law: [`zipped_product`](Layout::zipped_product) with both modes unpacked: the same function
    /// of the flat index.
    ///
    /// Edge cases: as [`tiled_divide`](Layout::tiled_divide).
    ///
    /// ```console
    /// $ tilewright layout eval "flat_product((2,2):(2,1), (2,3):(3,1))"
    /// (2,2,2,3):(2,1,12,4)
    /// $ tilewright layout show "flat_product((2,2):(2,1), (2,3):(3,1))" --tile 2,2
    ///  0  1 | 12 13 |  4  5 | 16 17 |  8  9 | 20 21
    ///  2  3 | 14 15 |  6  7 | 18 19 | 10 11 | 22 23
    /// ```
    ///
    /// # Errors
    /// As [`Layout::zipped_product`].
    pub const fn flat_product(&self, tiler: &Tiler) -> Result<Layout, LayoutError> {
        spread(&tri!(self.zipped_product(tiler)), true)
    }

    /// Blocks side by side: mode `i` of the result is (mode `i` of the block, mode `i` of the
    /// copies).
    ///
    /// Law: the offsets of [`logical_product`](Layout::logical_product); rows and columns begin
    /// inside the block.
    ///
    /// Edge cases: the shorter of the two is filled up with modes `1:0`. Modes of copies that are
    /// all one element keep stride 0.
    ///
    /// ```console
    /// $ tilewright layout show "blocked_product((2,2):(2,1), (2,3):(3,1))" --tile 2,2
    ///  0  1 |  4  5 |  8  9
    ///  2  3 |  6  7 | 10 11
    /// ------+-------+------
    /// 12 13 | 16 17 | 20 21
    /// 14 15 | 18 19 | 22 23
    /// $ tilewright layout eval "blocked_product((2,2):(2,1), 3:1)"
    /// ((2,3),(2,1)):((2,4),(1,0))
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let block = Layout::parse("(2,5):(5,1)").unwrap();
    /// let copies = Layout::parse("(3,4):(4,1)").unwrap();
    /// assert_eq!(block.blocked_product(&copies).unwrap().to_string(), "((2,3),(5,4)):((5,40),(1,10))");
    /// ```
    ///
    /// # Errors
    /// As [`Layout::logical_product`]; [`LayoutError::NotAnInteger`] or [`LayoutError::Rank`] where
    /// the block is a tuple of one mode and the copies an integer.
    pub const fn blocked_product(&self, copies: &Layout) -> Result<Layout, LayoutError> {
        self.interleaved(copies, false)
    }

    /// Blocks interleaved: mode `i` of the result is (mode `i` of the copies, mode `i` of the
    /// block).
    ///
    /// Law: the offsets of [`logical_product`](Layout::logical_product); rows and columns begin
    /// with the copies, so neighbours come from different blocks.
    ///
    /// Edge cases: as [`blocked_product`](Layout::blocked_product).
    ///
    /// ```console
    /// $ tilewright layout eval "raked_product((2,2):(2,1), (2,3):(3,1))"
    /// ((2,2),(3,2)):((12,2),(4,1))
    /// $ tilewright layout show "raked_product((2,2):(2,1), (2,3):(3,1))" --tile 2,3
    ///  0  4  8 |  1  5  9
    /// 12 16 20 | 13 17 21
    /// ---------+---------
    ///  2  6 10 |  3  7 11
    /// 14 18 22 | 15 19 23
    /// ```
    ///
    /// # Errors
    /// As [`Layout::blocked_product`], with the two exchanged.
    pub const fn raked_product(&self, copies: &Layout) -> Result<Layout, LayoutError> {
        self.interleaved(copies, true)
    }

    const fn interleaved(&self, copies: &Layout, copies_first: bool) -> Result<Layout, LayoutError> {
        let rank = if self.rank() > copies.rank() { self.rank() } else { copies.rank() };
        let block = tri!(self.append_to(&Layout::ONE, rank));
        let copies = tri!(copies.append_to(&Layout::ONE, rank));
        let product = tri!(block.multiply_by_layout(&copies));
        let (first, second) =
            (product.profile.child(TreePosition::ROOT, 0), product.profile.child(TreePosition::ROOT, 1));
        let (first, second) = if copies_first { (second, first) } else { (first, second) };
        if let Some(arity) = product.profile.arity(first.node) {
            let operation = if copies_first { "raked_product" } else { "blocked_product" };
            if arity != rank {
                return Err(LayoutError::Rank { operation, given: arity, expected: rank });
            }
            tri!(crate::index::matching_tuple(operation, rank, &product.profile, second.node));
        }
        let mut out = Layout::NOTHING;
        tri!(out.profile.push_tuple(rank));
        let mut i = 0;
        while i < rank {
            tri!(out.profile.push_tuple(2));
            if product.profile.arity(first.node).is_none() {
                tri!(out.push_mode(&product, first));
                tri!(out.push_mode(&product, second));
            } else {
                tri!(out.push_mode(&product, product.profile.child(first, i)));
                tri!(out.push_mode(&product, product.profile.child(second, i)));
            }
            i += 1;
        }
        out.checked()
    }
}
