//! Sources of a stage's tiles.

use super::{Operands, StageTile, StageView};
use tilewright_codegen::build::{Builder, Bulk, Global, Index, Mbarrier, Param, Ptr, Scalar, Shared, TensorMap, Val};
use tilewright_layout::view::OffsetMap;

/// A way to fill a tile: copies that complete on an mbarrier.
pub trait Source<'k, T, L> {
    /// Bytes that arrive, of a tile that has `whole`.
    fn bytes(&self, k: &'k Builder, whole: u32) -> Val<'k, u32> {
        k.lit(whole)
    }

    /// Starts the copies. `whole` is the number of bytes of the tile.
    fn load(self, to: StageView<'k, T, L>, whole: u32, bar: Mbarrier<'k, Shared>);
}

/// A single bulk copy of contiguous elements whose order in memory is that of the tile.
#[derive(Clone, Copy)]
pub struct BulkSource<'k, T> {
    from: Ptr<'k, Global, T>,
    how: Bulk<'k>,
}

impl<'k, T> From<Ptr<'k, Global, T>> for BulkSource<'k, T> {
    fn from(from: Ptr<'k, Global, T>) -> Self {
        BulkSource { from, how: Bulk::default() }
    }
}

impl<'k, T> BulkSource<'k, T> {
    /// Multicast or an access policy.
    #[must_use]
    pub fn how(self, how: Bulk<'k>) -> Self {
        BulkSource { how, ..self }
    }
}

impl<'k, T: Scalar, L: OffsetMap> Source<'k, T, L> for BulkSource<'k, T> {
    #[track_caller]
    fn load(self, to: StageView<'k, T, L>, whole: u32, bar: Mbarrier<'k, Shared>) {
        to.base().bulk_load(self.from, whole, bar, self.how);
    }
}

/// Copies of the author's own, which bring the whole tile.
pub struct By<F>(F);

/// Copies of the author's own: they complete on the mbarrier and bring all bytes of the tile, be it
/// from other blocks of the cluster too.
pub fn by<'k, T, L, F: FnOnce(StageView<'k, T, L>, Mbarrier<'k, Shared>)>(copies: F) -> By<F> {
    By(copies)
}

impl<'k, T, L, F: FnOnce(StageView<'k, T, L>, Mbarrier<'k, Shared>)> Source<'k, T, L> for By<F> {
    fn load(self, to: StageView<'k, T, L>, _: u32, bar: Mbarrier<'k, Shared>) {
        (self.0)(to, bar);
    }
}

/// Copies of pieces of a tile.
pub struct InPieces<'k, F> {
    bytes: Val<'k, u32>,
    how: Bulk<'k>,
    copies: F,
}

/// Bulk copies of pieces of a tile, `bytes` bytes in all, which `copies` starts; the rest of the
/// tile stays as it is.
pub fn in_pieces<'k, F: FnOnce(Pieces<'k>)>(bytes: Val<'k, u32>, how: Bulk<'k>, copies: F) -> InPieces<'k, F> {
    InPieces { bytes, how, copies }
}

/// A tile that is filled in pieces.
#[derive(Clone, Copy)]
pub struct Pieces<'k> {
    to: Ptr<'k, Shared, u8>,
    /// The barrier that bytes of the copy engine complete; without one the lanes of a warp copy.
    engine: Option<(Mbarrier<'k, Shared>, Bulk<'k>)>,
}

/// Bytes that a lane copies at once.
const RUN: u32 = 16;

const NO_ENGINE: &str =
    "box of a tensor map in a ring that a warp fills: lanes copy bytes; bring its rows, or record for sm_90 or later";

impl<'k> Pieces<'k> {
    /// The tile `bytes` bytes further on, a multiple of 16.
    #[must_use]
    #[track_caller]
    pub fn at(self, bytes: impl Index<'k>) -> Pieces<'k> {
        Pieces { to: self.to.at(bytes), ..self }
    }

    /// A tile that the lanes of a warp fill.
    pub(super) fn by_lanes(to: Ptr<'k, Shared, u8>) -> Pieces<'k> {
        Pieces { to, engine: None }
    }

    /// Copies `bytes` bytes, a multiple of 16, into the tile.
    #[track_caller]
    pub fn bring(self, from: Ptr<'k, Global, u8>, bytes: Val<'k, u32>) {
        let k = bytes.builder();
        match self.engine {
            Some((bar, how)) => self.to.bulk_load(from, bytes, bar, how),
            None => k.for_step(k.lane() * RUN, bytes, 32 * RUN, |at| self.to.at(at).cp_async(from.at(at))),
        }
    }

    /// Copies the box of a tensor map at the coordinates; refused if lanes copy, since they cannot
    /// use tensor maps.
    #[track_caller]
    pub fn bring_box(self, map: Ptr<'k, Param, TensorMap>, at: &[Val<'k, i32>]) {
        match self.engine {
            Some((bar, how)) => self.to.tensor_load(map, at, bar, how),
            None => self.to.builder().refuse(&NO_ENGINE),
        }
    }
}

impl<'k, T: Scalar, L: OffsetMap, F: FnOnce(Pieces<'k>)> Source<'k, T, L> for InPieces<'k, F> {
    fn bytes(&self, _: &'k Builder, _: u32) -> Val<'k, u32> {
        self.bytes
    }

    #[track_caller]
    fn load(self, to: StageView<'k, T, L>, _: u32, bar: Mbarrier<'k, Shared>) {
        (self.copies)(Pieces { to: to.base().cast(), engine: Some((bar, self.how)) });
    }
}

/// A source for each operand of a stage: a tuple as long as theirs.
pub trait Sources<'k, O: Operands> {
    /// Bytes that arrive.
    fn bytes(&self, k: &'k Builder, operands: O) -> Val<'k, u32>;

    /// Starts the copies.
    fn load(self, operands: O, to: O::Views<'k>, bar: Mbarrier<'k, Shared>);
}

macro_rules! sources {
    ($(($($S:ident $T:ident $L:ident $i:tt),+))+) => {$(
        impl<'k, $($T: Scalar, $L: OffsetMap, $S: Source<'k, $T, $L>),+> Sources<'k, ($(StageTile<$T, $L>,)+)> for ($($S,)+) {
            #[track_caller]
            fn bytes(&self, k: &'k Builder, operands: ($(StageTile<$T, $L>,)+)) -> Val<'k, u32> {
                let all = [$(self.$i.bytes(k, operands.$i.bytes())),+];
                all.into_iter().reduce(|a, b| a + b).unwrap_or_else(|| k.lit(0u32))
            }

            #[track_caller]
            fn load(self, operands: ($(StageTile<$T, $L>,)+), to: ($(StageView<'k, $T, $L>,)+), bar: Mbarrier<'k, Shared>) {
                $(self.$i.load(to.$i, operands.$i.bytes(), bar);)+
            }
        }
    )+};
}

sources! {
    (S0 T0 L0 0)
    (S0 T0 L0 0, S1 T1 L1 1)
}
