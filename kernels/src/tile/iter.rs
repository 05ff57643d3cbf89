//! Tiles along an axis, once or in a circle, counted while the kernel runs.

use super::{Index, LayoutTensor};
use tilewright_codegen::build::{Builder, Scalar, SpaceOf, Val, Var};
use tilewright_layout::typed::{Lowered, StaticLayout, TilesOf, Within};
use tilewright_layout::view::Along;

/// The `M`×`N` tiles of a view along one axis.
///
/// Bounded, [`valid`](TileIter::valid) says whether there is a tile here; [`circular`](LayoutTensor::tiles_around), it
/// starts over behind the last one, as a ring of stages does.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::tile::{Index, LayoutTensor};
/// use tilewright_layout::{typed::RowMajor, view::Along};
/// # record("sample", Arch::Sm80, block(32), |k| {
/// let stages = LayoutTensor::new(k.shared::<f32>("ring", 3 * 64), RowMajor::<24, 8>::default());
/// let ring = stages.tiles_around::<8, 8>(k, Along::Rows, Index::from(0));
/// k.for_(0, 10, |_| {
///     ring.here().at([Index::lane(k) / 8, Index::lane(k) % 8]).store(1.0);
///     ring.advance();
/// });
/// # });
/// ```
pub struct TileIter<'k, T, L, S, const M: usize, const N: usize> {
    tensor: LayoutTensor<'k, T, L, S>,
    along: Along,
    across: Index<'k>,
    next: Var<'k, u32>,
    circular: bool,
}

impl<'k, T: Scalar, L: StaticLayout, S: SpaceOf> LayoutTensor<'k, T, L, S> {
    /// The tiles along an axis, at place `across` of the other one, from the first to the last.
    #[track_caller]
    pub fn tiles_along<const M: usize, const N: usize>(
        self,
        k: &'k Builder,
        along: Along,
        across: Index<'k>,
    ) -> TileIter<'k, T, L, S, M, N> {
        TileIter { tensor: self, along, across, next: k.var(0u32), circular: false }
    }

    /// The same tiles, over and over.
    #[track_caller]
    pub fn tiles_around<const M: usize, const N: usize>(
        self,
        k: &'k Builder,
        along: Along,
        across: Index<'k>,
    ) -> TileIter<'k, T, L, S, M, N> {
        TileIter { circular: true, ..self.tiles_along(k, along, across) }
    }
}

impl<'k, T: Scalar, L: StaticLayout, S: SpaceOf, const M: usize, const N: usize> TileIter<'k, T, L, S, M, N> {
    /// How many tiles one round has.
    pub fn round(&self) -> u32 {
        let axis = match self.along {
            Along::Rows => 0,
            Along::Columns => 1,
        };
        Lowered::<TilesOf<L, M, N>>::EXTENTS[axis] as u32
    }

    /// The number of the tile here.
    #[track_caller]
    pub fn number(&self) -> Val<'k, u32> {
        self.next.get()
    }

    /// Whether there is a tile here: always, in a circle.
    #[track_caller]
    pub fn valid(&self, k: &'k Builder) -> Val<'k, bool> {
        if self.circular { k.lit(true) } else { self.next.get().lt(self.round()) }
    }

    /// The tile here.
    #[track_caller]
    pub fn here(&self) -> LayoutTensor<'k, T, Within<L, M, N>, S> {
        let number = Index::below(self.next.get(), self.round());
        self.tensor.tile(match self.along {
            Along::Rows => [number, self.across],
            Along::Columns => [self.across, number],
        })
    }

    /// Goes on to the next tile.
    #[track_caller]
    pub fn advance(&self) {
        let next = self.next.get() + 1;
        self.next.set(if self.circular { next.eq(self.round()).select(0u32, next) } else { next });
    }
}
