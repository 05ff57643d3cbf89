//! Stores of sums: to shared memory by `stmatrix`, to any memory in pairs, clipped where extents
//! are known at run time.

use core::panic::Location;

use tilewright_codegen::build::{Global, Number, Numeric, Ptr, Shared, SpaceOf, Val, Writable};
use tilewright_codegen::ir::Needs;
use tilewright_layout::typed::StaticLayout;

use super::error::by;
use super::{Accumulator, Atom, AtomGrid, MmaError, RegisterPair, TiledMma};
use crate::mma::OutputType;
use crate::tile::{CopyFrom, Index, LayoutTensor, TensorLayout};

/// A space that sums are stored to.
pub trait OutputSpace: SpaceOf + Writable + Sized {
    /// The tensor, where `stmatrix` may write it.
    fn shared<'k, T, L>(tensor: LayoutTensor<'k, T, L, Self>) -> Option<LayoutTensor<'k, T, L, Shared>>;
}

impl OutputSpace for Shared {
    fn shared<'k, T, L>(tensor: LayoutTensor<'k, T, L, Shared>) -> Option<LayoutTensor<'k, T, L, Shared>> {
        Some(tensor)
    }
}

impl OutputSpace for Global {
    fn shared<'k, T, L>(_: LayoutTensor<'k, T, L, Global>) -> Option<LayoutTensor<'k, T, L, Shared>> {
        None
    }
}

impl<'k, S: Number + Numeric> Accumulator<'k, S> {
    /// Writes the sums, converted to `T`, to a tile of their extents: by `stmatrix` where the tile
    /// is in shared memory, has 16-bit elements and rows of 16 bytes, and the architecture has it;
    /// in pairs where columns are neighbours; one by one elsewhere. Elements outside the tile's
    /// masks are not written. `thread` counts within the warp or the warpgroup.
    ///
    /// A tile of other extents is refused, [`MmaError::Tile`].
    #[track_caller]
    pub fn store_d<T: OutputType, L: TensorLayout<'k>, M: OutputSpace>(
        self,
        thread: Index<'k>,
        tile: LayoutTensor<'k, T, L, M>,
    ) {
        tile.builder().on_behalf(Location::caller(), || {
            if fits(&tile, "the accumulator", self.extents()) {
                self.store_d_at(thread, tile.clone(), [0.into(), 0.into()]);
            }
        });
    }

    /// Stores sums as [`store_d`](Accumulator::store_d) does, with the sums at a corner of the
    /// tile.
    #[track_caller]
    fn store_d_at<T: OutputType, L: TensorLayout<'k>, M: OutputSpace>(
        self,
        thread: Index<'k>,
        tile: LayoutTensor<'k, T, L, M>,
        [down, across]: [Index<'k>; 2],
    ) {
        let columns = self.extents()[1];
        let rows = tile.widest(1) >= 8 && columns.is_multiple_of(16) && Needs::Sm90.met_by(tile.builder().arch());
        match (OutputSpace::shared(tile.clone()), T::pack()) {
            (Some(tile), Some(pack)) if rows && !tile.may_end() => {
                self.stage_at(thread, 0..columns, tile, [down, across], |pair| {
                    let [a, b] = [0, 1].map(|i| self.get(pair.first + i).cast::<f32>());
                    pack(a, b)
                });
            }
            _ => {
                let moved = |pair: RegisterPair<'k>| RegisterPair {
                    row: down + pair.row,
                    column: across + pair.column,
                    ..pair
                };
                let pairs: Vec<RegisterPair<'k>> = self.pairs(thread).into_iter().map(moved).collect();
                store_pairs(&tile, &pairs, |pair, i| self.get(pair.first + i));
            }
        }
    }
}

/// Whether a tile has the extents of what is written to it; another is refused.
#[track_caller]
pub(super) fn fits<'k>(tile: &impl CopyFrom<'k>, what: &'static str, extents: [u32; 2]) -> bool {
    let found = tile.shape();
    let wanted = extents.map(Some);
    if found != wanted {
        tile.recorder().refuse(&MmaError::Tile { found: by(&found), what, wanted: by(&wanted) });
    }
    found == wanted
}

/// Writes values to pairs of neighbours in a row, converted to `T`: each two by one store where the
/// tile has its columns whole and aligned in pairs. `value` gives one of a pair; what the tile's
/// masks leave out is not written.
#[track_caller]
pub(crate) fn store_pairs<'k, T: OutputType, L: TensorLayout<'k>, M: Writable, V: Numeric>(
    tile: &LayoutTensor<'k, T, L, M>,
    pairs: &[RegisterPair<'k>],
    value: impl Fn(RegisterPair<'k>, u32) -> Val<'k, V>,
) {
    let count = if tile.widest(1) >= 2 { 2 } else { 1 };
    let elements: Vec<(RegisterPair<'k>, u32)> =
        pairs.iter().flat_map(|&pair| (0..2).step_by(count as usize).map(move |i| (pair, i))).collect();
    let at: Vec<[Index<'k>; 2]> = elements.iter().map(|&(pair, i)| [pair.row, pair.column + i]).collect();
    let places = tile.places(&at);
    let pointers = places.pointers();
    let values = |number: usize| -> Vec<Val<'k, V>> {
        let (pair, i) = elements[number];
        (i..i + count).map(|i| value(pair, i)).collect()
    };
    if !tile.may_end() {
        return (0..elements.len()).for_each(|number| store_some(pointers[number], &values(number)));
    }
    // In the order of the pairs, so that few conditions live at a time. Some values before their
    // stores, so that what they load is under way together.
    let numbers: Vec<usize> = (0..elements.len()).collect();
    for some in numbers.chunks(TOGETHER) {
        let values: Vec<_> = some.iter().map(|&number| values(number)).collect();
        for (&number, values) in some.iter().zip(&values) {
            let inside = places.mask(number, 0).and(places.mask(number, 1));
            inside.when(|| store_some(pointers[number], values));
        }
    }
}

/// Values that are made before the first is stored.
const TOGETHER: usize = 4;

/// Stores one value, or two neighbours by one store.
#[track_caller]
fn store_some<'k, T: OutputType, M: Writable, V: Numeric>(to: Ptr<'k, M, T>, values: &[Val<'k, V>]) {
    match (values, T::pack()) {
        (&[a, b], Some(pack)) => to.cast::<u32>().store(pack(a.cast(), b.cast())),
        (&[a, b], None) => to.store_vec([a.cast::<T>(), b.cast::<T>()]),
        _ => values.iter().for_each(|value| to.store(value.cast::<T>())),
    }
}

impl<'k, X: Atom, A: StaticLayout, B: StaticLayout, G: AtomGrid> TiledMma<'k, X, A, B, G> {
    /// Writes D, converted to `T`, to a tile of M×N: this thread's warp or warpgroup its part, as
    /// [`Accumulator::store_d`] does. The tile may be of any layout; one of
    /// [`Modes`](crate::tile::Modes) may run over the edge of its tensor, and nothing is written
    /// there.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use half::bf16;
    /// use tilewright_kernels::mma::{AtomLayout, MmaSync, TiledMma};
    /// use tilewright_kernels::tile::{LayoutTensor, Modes};
    /// use tilewright_layout::typed::{KMajor, OperandTile, RowMajor};
    /// type Tile = OperandTile<KMajor, 16, 32, 64>;
    /// # record("sample", Arch::Sm80, block(64), |k| {
    /// let [a, b] = ["a", "b"].map(|name| LayoutTensor::new(k.shared_aligned::<bf16>(name, 32 * 64, 1024), Tile::default()));
    /// let product = TiledMma::<MmaSync<bf16>, Tile, Tile, AtomLayout<2, 1>>::new(k);
    /// // The fragments of step k + 1 are loaded while those of step k are multiplied.
    /// let mut next = (product.load_a(a, 0), product.load_b(b, 0));
    /// for step in 1..=4 {
    ///     let (left, right) = next.clone();
    ///     if step < 4 {
    ///         next = (product.load_a(a, step), product.load_b(b, step));
    ///     }
    ///     product.mma(&left, &right);
    /// }
    /// product.store_d(LayoutTensor::new(k.global::<bf16>("d"), RowMajor::<32, 32>::default()));
    /// // Rows and columns as many as the caller says; in pairs, since they come in twos.
    /// let [m, n] = ["m", "n"].map(|name| k.param::<u32>(name));
    /// let c = LayoutTensor::new(k.global::<f32>("c"), Modes::row_major([m.into(), n.into()], n).vectors(2));
    /// product.store_d(c.clipped_tile([32, 32], [k.block_id().into(), 0.into()]));
    /// # });
    /// ```
    ///
    /// A tile of other extents is refused, [`MmaError::Tile`].
    #[track_caller]
    pub fn store_d<T: OutputType, L: TensorLayout<'k>, M: OutputSpace>(self, tile: LayoutTensor<'k, T, L, M>) {
        let [m, n, _] = Self::EXTENTS;
        tile.builder().on_behalf(Location::caller(), || {
            if fits(&tile, "D", [m, n]) {
                self.sums.store_d_at(self.thread(), tile.clone(), self.corner());
            }
        });
    }
}
