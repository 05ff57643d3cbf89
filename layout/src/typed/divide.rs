//! Tiles of a layout.
//!
//! Every type here but [`LogicalDivideCeil`] demands that the tiles fill the layout without a
//! remainder: the result has the layout's elements, once each.

use super::numbers::pair;
use super::{StaticLayout, StaticOrder, StaticTiler, StaticTuple, checked, sentence, static_layout};
use crate::ops::Order;
use crate::{IntTuple, Layout, LayoutError, Message, Tiler};

static_layout! {
    /// `L` as `M`×`N` tiles: `((M,N),(tiles down, tiles across))`. `L` is a matrix of a whole
    /// number of tiles.
    ///
    /// ```
    /// use tilewright_layout::typed::{RowMajor, StaticLayout, TiledBy};
    /// assert_eq!(TiledBy::<RowMajor<4, 6>, 2, 3>::LAYOUT.to_string(), "((2,3),(2,2)):((6,1),(12,3))");
    /// ```
    TiledBy [L: StaticLayout, const M: usize, const N: usize] [L, M, N] (L) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = tiled(&L::LAYOUT, M, N);
    }

    /// A single `M`×`N` tile of `L`: mode 0 of [`TiledBy`].
    ///
    /// ```
    /// use tilewright_layout::typed::{RowMajor, StaticLayout, Within};
    /// assert_eq!(Within::<RowMajor<4, 6>, 2, 3>::LAYOUT.to_string(), "(2,3):(6,1)");
    /// ```
    Within [L: StaticLayout, const M: usize, const N: usize] [L, M, N] (L) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = side(&tiled(&L::LAYOUT, M, N), 0);
    }

    /// The starts of the `M`×`N` tiles of `L`: mode 1 of [`TiledBy`].
    ///
    /// ```
    /// use tilewright_layout::typed::{RowMajor, StaticLayout, TilesOf};
    /// assert_eq!(TilesOf::<RowMajor<4, 6>, 2, 3>::LAYOUT.to_string(), "(2,2):(12,3)");
    /// ```
    TilesOf [L: StaticLayout, const M: usize, const N: usize] [L, M, N] (L) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = side(&tiled(&L::LAYOUT, M, N), 1);
    }

    /// Each mode of `L` as (tile, rest); see [`Layout::logical_divide`].
    ///
    /// ```
    /// use tilewright_layout::typed::{Int, LogicalDivide, RowMajor, StaticLayout};
    /// type Tiles = LogicalDivide<RowMajor<4, 6>, (Int<2>, Int<3>)>;
    /// assert_eq!(Tiles::LAYOUT.to_string(), "((2,2),(3,2)):((6,12),(1,3))");
    /// ```
    LogicalDivide [L: StaticLayout, T: StaticTiler] [L, T] (L, T) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = exact("logical_divide", &L::LAYOUT, &T::TILER, L::LAYOUT.logical_divide(&T::TILER));
    }

    /// Divides as [`LogicalDivide`] does, but the last tile may run over the end: the result is
    /// then larger than `L`.
    ///
    /// ```
    /// use tilewright_layout::typed::{Contiguous, Int, LogicalDivideCeil, StaticLayout};
    /// assert_eq!(LogicalDivideCeil::<Contiguous<10>, Int<4>>::LAYOUT.to_string(), "(4,3):(1,4)");
    /// ```
    LogicalDivideCeil [L: StaticLayout, T: StaticTiler] [L, T] (L, T) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = by_tiler("logical_divide", &L::LAYOUT, &T::TILER, L::LAYOUT.logical_divide(&T::TILER));
    }

    /// `((tiles),(rests))`; see [`Layout::zipped_divide`].
    ///
    /// ```
    /// use tilewright_layout::typed::{Int, RowMajor, StaticLayout, ZippedDivide};
    /// type Tiles = ZippedDivide<RowMajor<4, 6>, (Int<2>, Int<3>)>;
    /// assert_eq!(Tiles::LAYOUT.to_string(), "((2,3),(2,2)):((6,1),(12,3))");
    /// ```
    ZippedDivide [L: StaticLayout, T: StaticTiler] [L, T] (L, T) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = exact("zipped_divide", &L::LAYOUT, &T::TILER, L::LAYOUT.zipped_divide(&T::TILER));
    }

    /// `((tiles),rest,rest,..)`; see [`Layout::tiled_divide`].
    ///
    /// ```
    /// use tilewright_layout::typed::{Int, RowMajor, StaticLayout, TiledDivide};
    /// type Tiles = TiledDivide<RowMajor<4, 6>, (Int<2>, Int<3>)>;
    /// assert_eq!(Tiles::LAYOUT.to_string(), "((2,3),2,2):((6,1),12,3)");
    /// ```
    TiledDivide [L: StaticLayout, T: StaticTiler] [L, T] (L, T) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = exact("tiled_divide", &L::LAYOUT, &T::TILER, L::LAYOUT.tiled_divide(&T::TILER));
    }

    /// `(tile,tile,..,rest,rest,..)`; see [`Layout::flat_divide`].
    ///
    /// ```
    /// use tilewright_layout::typed::{FlatDivide, Int, RowMajor, StaticLayout};
    /// type Tiles = FlatDivide<RowMajor<4, 6>, (Int<2>, Int<3>)>;
    /// assert_eq!(Tiles::LAYOUT.to_string(), "(2,3,2,2):(6,1,12,3)");
    /// ```
    FlatDivide [L: StaticLayout, T: StaticTiler] [L, T] (L, T) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = exact("flat_divide", &L::LAYOUT, &T::TILER, L::LAYOUT.flat_divide(&T::TILER));
    }

    /// Copies of the block `L` that fill the shape `S`, first mode first; see
    /// [`Layout::tile_to_shape`].
    ///
    /// ```
    /// use tilewright_layout::typed::{Int, RowMajor, StaticLayout, TileToShape};
    /// type Operand = TileToShape<RowMajor<8, 8>, (Int<16>, Int<24>)>;
    /// assert_eq!(Operand::LAYOUT.to_string(), "((8,2),(8,3)):((8,64),(1,128))");
    /// ```
    TileToShape [L: StaticLayout, S: StaticTuple] [L, S] (L, S) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = to_shape(&L::LAYOUT, &S::TUPLE, Order::Left);
    }

    /// Tiles as [`TileToShape`] does, with the copies in the order `O`.
    ///
    /// ```
    /// use tilewright_layout::typed::{Int, LastFastest, RowMajor, StaticLayout, TileToShapeIn};
    /// type Operand = TileToShapeIn<RowMajor<8, 8>, (Int<16>, Int<24>), LastFastest>;
    /// assert_eq!(Operand::LAYOUT.to_string(), "((8,2),(8,3)):((8,192),(1,64))");
    /// ```
    TileToShapeIn [L: StaticLayout, S: StaticTuple, O: StaticOrder] [L, S, O] (L, S, O) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = to_shape(&L::LAYOUT, &S::TUPLE, O::ORDER);
    }
}

const fn to_shape(block: &Layout, shape: &IntTuple, order: Order<'_>) -> Layout {
    match block.tile_to_shape(shape, order) {
        Ok(layout) => layout,
        Err(error) => {
            let message = Message::new().text("tile_to_shape of ").layout(block).text(" to ").tuple(shape);
            panic!("{}", message.text(": ").text(error.message().as_str()).as_str())
        }
    }
}

/// A rank-2 layout as whole tiles.
pub(super) const fn tiled(layout: &Layout, m: usize, n: usize) -> Layout {
    let rows = layout.extent(0);
    let columns = layout.extent(1);
    let whole = layout.rank() == 2 && m > 0 && n > 0 && rows % m as i64 == 0 && columns % n as i64 == 0;
    if !whole {
        let message = Message::new().text("tiling of ").layout(layout).text(": ");
        let message = if layout.rank() == 2 {
            message.text("a ").number(rows).text("x").number(columns).text(" layout is not a whole number of ")
        } else {
            message.text("a layout of ").number(layout.rank() as i64).text(" modes is not a matrix of ")
        };
        let message = message.number(m as i64).text("x").number(n as i64).text(" tiles");
        panic!("{}", message.as_str())
    }
    let shape = pair(m, n);
    let tile = [Tiler::extent(shape.values()[0]), Tiler::extent(shape.values()[1])];
    match Tiler::by_mode(&tile) {
        Ok(tiler) => exact("tiling", layout, &tiler, layout.zipped_divide(&tiler)),
        Err(error) => panic!("{}", error.message().as_str()),
    }
}

/// Mode `index` of a pair.
pub(super) const fn side(layout: &Layout, index: usize) -> Layout {
    checked("mode", &[*layout], layout.mode(index))
}

const fn exact(name: &str, layout: &Layout, tiler: &Tiler, result: Result<Layout, LayoutError>) -> Layout {
    let divided = by_tiler(name, layout, tiler, result);
    if !layout.divides_evenly(tiler) {
        let message = sentence(name, &[*layout]).text(" by ").tiler(tiler).text(": the tiles cover ");
        let message = message.number(divided.size()).text(" elements of a layout of ").number(layout.size());
        panic!("{}", message.text("; use tiles that divide each mode, or LogicalDivideCeil").as_str())
    }
    divided
}

/// The result, or a compile error that names the operation, the layout and the tiler.
pub(super) const fn by_tiler(
    name: &str,
    layout: &Layout,
    tiler: &Tiler,
    result: Result<Layout, LayoutError>,
) -> Layout {
    match result {
        Ok(layout) => layout,
        Err(error) => {
            let message = sentence(name, &[*layout]).text(" by ").tiler(tiler).text(": ");
            panic!("{}", message.text(error.message().as_str()).as_str())
        }
    }
}

impl Message {
    /// The message followed by a tiler: its terminals in order, `_` where one keeps its mode.
    pub(super) const fn tiler(self, tiler: &Tiler) -> Message {
        if tiler.is_terminal() {
            return self.terminal(tiler, 0);
        }
        let mut message = self.text("[");
        let mut i = 0;
        while i < tiler.terminals() {
            message = if i == 0 { message } else { message.text(", ") }.terminal(tiler, i);
            i += 1;
        }
        message.text("]")
    }

    const fn terminal(self, tiler: &Tiler, index: usize) -> Message {
        let part = tiler.part(index);
        if tiler.is_open(index) {
            self.text("_")
        } else if tiler.is_extent(index) {
            self.number(part.size())
        } else {
            self.layout(&part)
        }
    }
}
