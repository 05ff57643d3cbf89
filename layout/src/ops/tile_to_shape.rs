//! Tile to shape: repeat a block until it fills a shape.
//!
//! Law: the result has the shape's size per mode, begins with the block, and is injective where the
//! block is and the order's numbers differ.

use crate::ops::composition::ceil_div;
use crate::profile::TreePosition;
use crate::{IntTuple, Layout, LayoutError};

/// The order of a block's copies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order<'o> {
    /// First mode first.
    Left,
    /// Last mode first.
    Right,
    /// By number, smallest first; one number per mode of the shape.
    By(&'o IntTuple),
}

impl Layout {
    /// Copies of the block, in the given order, that fill `shape`. Nested modes of the shape count
    /// by their products.
    ///
    /// Law: mode `i` of the result has the size of the shape's mode `i` and begins with the
    /// block's; no offset is repeated where the block repeats none and the order's numbers differ.
    ///
    /// Edge cases: a block of fewer modes is filled up with modes `1:0`. A mode that holds one copy
    /// gets stride 0 for it. Equal numbers of the order put copies on top of each other.
    ///
    /// ```console
    /// $ tilewright layout show "tile_to_shape((2,2):(2,1), (4,6))" --tile 2,2
    ///  0  1 |  8  9 | 16 17
    ///  2  3 | 10 11 | 18 19
    /// ------+-------+------
    ///  4  5 | 12 13 | 20 21
    ///  6  7 | 14 15 | 22 23
    /// $ tilewright layout show "tile_to_shape((2,2):(2,1), (4,6), LayoutRight)" --tile 2,2
    ///  0  1 |  4  5 |  8  9
    ///  2  3 |  6  7 | 10 11
    /// ------+-------+------
    /// 12 13 | 16 17 | 20 21
    /// 14 15 | 18 19 | 22 23
    /// $ tilewright layout eval "tile_to_shape((2,2):(2,1), (4,6), (1,0))"
    /// ((2,2),(2,3)):((2,12),(1,4))
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{IntTuple, Layout, ops::Order};
    /// let atom = Layout::parse("(8,8):(8,1)").unwrap();
    /// let shape = IntTuple::parse("(16,24)").unwrap();
    /// let tiled = atom.tile_to_shape(&shape, Order::Left).unwrap();
    /// assert_eq!(tiled.to_string(), "((8,2),(8,3)):((8,64),(1,128))");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the block has more modes than the shape;
    /// [`LayoutError::Indivisible`] where it does not divide the shape; as
    /// [`Layout::blocked_product`].
    pub const fn tile_to_shape(&self, shape: &IntTuple, order: Order<'_>) -> Result<Layout, LayoutError> {
        let target = tri!(shape.as_shape());
        let rank = target.rank();
        if self.rank() > rank {
            return Err(LayoutError::Rank { operation: "tile_to_shape", given: self.rank(), expected: rank });
        }
        let block = tri!(self.append_to(&Layout::ONE, rank));
        let mut counts = IntTuple::NOTHING;
        tri!(counts.profile.push_tuple(rank));
        let mut i = 0;
        while i < rank {
            let whole = target.extent(i);
            let part = block.extent(i);
            if whole % part != 0 {
                return Err(LayoutError::Indivisible { operation: "tile_to_shape", value: whole, divisor: part });
            }
            tri!(counts.push(ceil_div(whole, part)));
            i += 1;
        }
        let copies = tri!(match order {
            Order::Left => Layout::col_major(&counts),
            Order::Right => Layout::row_major(&counts),
            Order::By(order) => Layout::ordered(&counts, order),
        });
        block.blocked_product(&copies)
    }
}

impl IntTuple {
    /// The product of each mode, always as a tuple.
    ///
    /// Law: integer `i` of the result is the product of mode `i`.
    ///
    /// Edge cases: an integer becomes a tuple of one; the empty tuple stays empty, and a mode `()`
    /// counts 1.
    ///
    /// ```console
    /// $ tilewright layout eval "product_each((2,(3,4)))"
    /// (2,12)
    /// $ tilewright layout eval "product_each(8)"
    /// (8)
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Capacity`] above the capacity for modes; [`LayoutError::Overflow`] where 64
    /// bits do not hold a product.
    pub const fn product_each(&self) -> Result<IntTuple, LayoutError> {
        let mut out = IntTuple::NOTHING;
        tri!(out.profile.push_tuple(self.rank()));
        let mut i = 0;
        while i < self.rank() {
            tri!(out.push(tri!(self.product_at(self.profile.child(TreePosition::ROOT, i)))));
            i += 1;
        }
        Ok(out)
    }
}
