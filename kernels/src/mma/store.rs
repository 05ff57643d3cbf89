//! Where sums go: to shared memory by `stmatrix`, to any memory in pairs, clipped where extents are known at run time.

use super::{Accumulator, Atom, AtomGrid, Pair, TiledMma};
use crate::tile::{CopyFrom, Index, LayoutTensor, TensorLayout};
use half::{bf16, f16};
use tilewright_codegen::build::{
    Bf16x2, Builder, F16x2, Global, Number, Numeric, Ptr, Scalar, Shared, SpaceOf, Val, Writable,
};
use tilewright_codegen::ir::Needs;
use tilewright_layout::Layout;
use tilewright_layout::typed::StaticLayout;
use tilewright_layout::view::OffsetMap;

/// How two results become one register, the first lowest.
pub type Pack<'k> = fn(Val<'k, f32>, Val<'k, f32>) -> Val<'k, u32>;

/// A type that sums are stored as.
pub trait OutputType: Scalar + Numeric {
    /// How pairs of them share a register; nothing for types of 32 bits.
    fn pack<'k>() -> Option<Pack<'k>>;
}

macro_rules! outputs {
    ($($D:ty: $pack:expr;)+) => { $(
        impl OutputType for $D {
            fn pack<'k>() -> Option<Pack<'k>> {
                $pack
            }
        }
    )+ };
}

outputs! {
    bf16: Some(|a, b| a.pair::<Bf16x2>(b).bits());
    f16: Some(|a, b| a.pair::<F16x2>(b).bits());
    f32: None;
    i32: None;
}

/// A space that sums are stored to.
pub trait OutputSpace: SpaceOf + Writable + Sized {
    /// The tensor, where `stmatrix` may write it.
    fn shared<'k, T, L: Copy>(tensor: LayoutTensor<'k, T, L, Self>) -> Option<LayoutTensor<'k, T, L, Shared>>;
}

impl OutputSpace for Shared {
    fn shared<'k, T, L: Copy>(tensor: LayoutTensor<'k, T, L, Shared>) -> Option<LayoutTensor<'k, T, L, Shared>> {
        Some(tensor)
    }
}

impl OutputSpace for Global {
    fn shared<'k, T, L: Copy>(_: LayoutTensor<'k, T, L, Global>) -> Option<LayoutTensor<'k, T, L, Shared>> {
        None
    }
}

/// Where a tile of sums goes.
struct Destination<'k, T, L, M> {
    tile: LayoutTensor<'k, T, L, M>,
    /// Where the sums' first element stands in the tile.
    corner: [Index<'k>; 2],
    /// Rows and columns of the tile that exist.
    inside: Option<[Val<'k, u32>; 2]>,
    /// Whether a pair of neighbours in a row is one aligned word or two.
    whole: bool,
}

impl<'k, S: Number + Numeric> Accumulator<'k, S> {
    /// Writes the sums, converted to `T`, to a tile of their extents: by `stmatrix` where the tile is in shared memory, has
    /// 16-bit elements and rows of 16 bytes, and the architecture has it; in pairs where columns are neighbours; one by one
    /// elsewhere. `inside` gives rows and columns of the tile that exist, counted from its first: nothing is written behind
    /// them. `thread` counts within the warp or the warpgroup.
    ///
    /// # Panics
    /// Where the tile has other extents.
    #[track_caller]
    pub fn store_d<T: OutputType, L: OffsetMap, M: OutputSpace>(
        self,
        k: &'k Builder,
        thread: Index<'k>,
        tile: LayoutTensor<'k, T, L, M>,
        inside: Option<[Val<'k, u32>; 2]>,
    ) {
        let (found, extents) = ([tile.extent(0), tile.extent(1)], self.extents());
        assert!(
            found == extents,
            "store_d: the tile is {found:?}, the sums are {extents:?}; take a tile of their extents"
        );
        self.store_d_at(k, thread, (tile, [0.into(), 0.into()]), inside);
    }

    /// As [`store_d`](Accumulator::store_d), where the sums begin at a corner of the tile.
    #[track_caller]
    fn store_d_at<T: OutputType, L: OffsetMap, M: OutputSpace>(
        self,
        k: &'k Builder,
        thread: Index<'k>,
        (tile, corner): (LayoutTensor<'k, T, L, M>, [Index<'k>; 2]),
        inside: Option<[Val<'k, u32>; 2]>,
    ) {
        let columns = self.extents()[1];
        let width = tile.layout().vector_along(1, T::TY.bits().into());
        let origin = tile.origin();
        let aligned = |width: u32| (origin.bits() | origin.constant()) & (width - 1) == 0;
        let rows = width >= 8 && aligned(8) && columns.is_multiple_of(16) && Needs::Sm90.met_by(k.arch());
        match (OutputSpace::shared(tile), T::pack()) {
            (Some(tile), Some(pack)) if rows && inside.is_none() => {
                self.stage_at(thread, 0..columns, (tile, corner), |pair| {
                    let [a, b] = [0, 1].map(|i| self.get(pair.first + i).cast::<f32>());
                    pack(a, b)
                })
            }
            _ => self.store_pairs(k, thread, &Destination { tile, corner, inside, whole: width >= 2 && aligned(2) }),
        }
    }

    #[track_caller]
    fn store_pairs<T: OutputType, L: OffsetMap, M: OutputSpace>(
        self,
        k: &'k Builder,
        thread: Index<'k>,
        to: &Destination<'k, T, L, M>,
    ) {
        let &Destination { tile, corner: [down, across], inside, whole } = to;
        let moved = |pair: Pair<'k>| Pair { row: down + pair.row, column: across + pair.column, ..pair };
        let pairs: Vec<Pair<'k>> = self.pairs(thread).into_iter().map(moved).collect();
        let address = addresses(tile, &pairs);
        let one = |pair: Pair<'k>, i: u32| address(pair, i).store(self.get(pair.first + i).cast::<T>());
        let two = |pair: Pair<'k>| {
            if whole {
                self.store_pair(address(pair, 0), pair.first);
            } else {
                one(pair, 0);
                one(pair, 1);
            }
        };
        let Some([rows, columns]) = inside else { return pairs.into_iter().for_each(two) };
        // The pairs of a row have one predicate for the row.
        let mut by_row: Vec<Vec<Pair<'k>>> = Vec::new();
        for pair in pairs {
            match by_row.iter_mut().find(|row| row[0].row.constant() == pair.row.constant()) {
                Some(row) => row.push(pair),
                None => by_row.push(vec![pair]),
            }
        }
        for row in by_row {
            k.when(row[0].row.get(k).lt(rows), || {
                for &pair in &row {
                    let [first, second] = [0, 1].map(|i| (pair.column + i).get(k).lt(columns));
                    if whole {
                        k.if_else(second, || two(pair), || k.when(first, || one(pair, 0)));
                    } else {
                        k.when(first, || one(pair, 0));
                        k.when(second, || one(pair, 1));
                    }
                }
            });
        }
    }

    /// Two neighbours by one store.
    #[track_caller]
    fn store_pair<T: OutputType, M: Writable>(self, to: Ptr<'k, M, T>, first: u32) {
        let [a, b] = [self.get(first), self.get(first + 1)];
        match T::pack() {
            Some(pack) => to.cast::<u32>().store(pack(a.cast(), b.cast())),
            None => to.store_vec([a.cast::<T>(), b.cast::<T>()]),
        }
    }
}

/// The address of element `i` of a pair. What the thread contributes is computed once, where the constants provably add to
/// it mode by mode.
#[track_caller]
fn addresses<'k, T: Scalar, L: OffsetMap, M: SpaceOf>(
    tile: LayoutTensor<'k, T, L, M>,
    pairs: &[Pair<'k>],
) -> impl Fn(Pair<'k>, u32) -> Ptr<'k, M, T> + use<'k, T, L, M> {
    let layout = tile.layout().layout();
    let digits = |mode: usize| {
        let leaves = Layout::constant(layout.mode(mode)).coalesce();
        leaves.extents().iter().rev().skip(1).all(|extent| extent.count_ones() == 1)
    };
    let apart = |at: Index<'k>| at.bits() & at.constant() == 0;
    let adds = digits(0)
        && digits(1)
        && pairs.iter().all(|pair| apart(pair.row) && apart(pair.column) && apart(pair.column + 1));
    let begun = match pairs.first() {
        Some(pair) if adds => tile.begun_at([pair.row.variable(), pair.column.variable()]),
        _ => tile,
    };
    move |pair, i| {
        let (row, column) = (pair.row, pair.column + i);
        if adds { begun.at([row.constant().into(), column.constant().into()]) } else { begun.at([row, column]) }
    }
}

impl<'k, X: Atom, A: StaticLayout, B: StaticLayout, G: AtomGrid> TiledMma<'k, X, A, B, G> {
    /// Writes D, converted to `T`, to a tile of M×N: this thread's warp or warpgroup its part, as
    /// [`Accumulator::store_d`] does. Of `inside` rows and columns, where it is given, nothing is written behind them.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use half::bf16;
    /// use tilewright_kernels::mma::{AtomLayout, MmaSync, TiledMma};
    /// use tilewright_kernels::tile::LayoutTensor;
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
    /// let d = LayoutTensor::new(k.global::<bf16>("d"), RowMajor::<32, 32>::default());
    /// product.store_d(d, None);
    /// # });
    /// ```
    ///
    /// # Panics
    /// Where the tile has other extents.
    #[track_caller]
    pub fn store_d<T: OutputType, L: OffsetMap, M: OutputSpace>(
        self,
        tile: LayoutTensor<'k, T, L, M>,
        inside: Option<[Val<'k, u32>; 2]>,
    ) {
        let ([m, n, _], found) = (Self::EXTENTS, [tile.extent(0), tile.extent(1)]);
        assert!(found == [m, n], "store_d: the tile is {found:?}, D is {:?}; take a tile of its extents", [m, n]);
        self.sums.store_d_at(self.k, self.thread(), (tile, self.corner()), inside);
    }

    /// Writes D, converted to `T`, to a tile that may run over the edge of its tensor: extents and strides known at run time.
    /// In pairs where the tensor promises whole vectors of two columns; what the tile's mask leaves out is not written.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use half::bf16;
    /// use tilewright_kernels::mma::{MmaSync, TiledMma};
    /// use tilewright_kernels::tile::{LayoutTensor, Modes};
    /// use tilewright_layout::typed::{KMajor, OperandTile};
    /// type Tile = OperandTile<KMajor, 16, 32, 64>;
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let [a, b] = ["a", "b"].map(|name| LayoutTensor::<bf16, Tile, _>::shared(k, name));
    /// let product = TiledMma::<MmaSync<bf16>, Tile, Tile>::new(k);
    /// product.multiply(a, b);
    /// let [m, n] = ["m", "n"].map(|name| k.param::<u32>(name));
    /// let d = LayoutTensor::new(k.global::<f32>("d"), Modes::row_major([m.into(), n.into()], n));
    /// product.store_d_masked(d.clipped_tile([32, 32], [k.block_id().into(), 0.into()]));
    /// # });
    /// ```
    ///
    /// # Panics
    /// Where the tile has other extents.
    #[track_caller]
    pub fn store_d_masked<T: OutputType, L: TensorLayout<'k>, M: Writable>(self, tile: LayoutTensor<'k, T, L, M>) {
        let ([m, n, _], found) = (Self::EXTENTS, tile.shape());
        let wanted = [Some(m), Some(n)];
        assert!(found == wanted, "store_d_masked: the tile is {found:?}, D is {wanted:?}; take a tile of its extents");
        let ([down, across], whole) = (self.corner(), tile.widest(1).is_multiple_of(2));
        for pair in self.sums.pairs(self.thread()) {
            let at = |i: u32| [down + pair.row, across + pair.column + i];
            if whole {
                tile.mask(at(0)).when(|| self.sums.store_pair(tile.at(at(0)), pair.first));
            } else {
                [0, 1].into_iter().for_each(|i| tile.store(at(i), self.sums.get(pair.first + i).cast::<T>()));
            }
        }
    }
}
