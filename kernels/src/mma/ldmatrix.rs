//! Operands from shared memory by `ldmatrix`: which row a lane addresses, and what a layout must be
//! for it.

use super::MmaError;
use super::input::InputType;
use crate::tile::{Index, LayoutTensor, RegisterTensor, place};
use tilewright_codegen::build::{Builder, Scalar, Shared};
use tilewright_codegen::ir::attr::Trans;
use tilewright_layout::fragment::{FragmentLayout, StaticFragment};
use tilewright_layout::typed::StaticLayout;
use tilewright_layout::view::OffsetMap;
use tilewright_layout::{Layout, Swizzled};

/// Whether matrices of elements of `bits` lie transposed, whose rows are `across` elements long
/// across K and `along` elements along it; none where neither is 16 bytes.
const fn lies_transposed(bits: i64, [across, along]: [i64; 2]) -> Option<bool> {
    let wanted = 128 / bits;
    if along >= wanted {
        return Some(false);
    }
    if bits == 16 && across >= wanted { Some(true) } else { None }
}

/// Whether the matrices of an operand's tile lie transposed: rows of 16 bytes run along M or N, not
/// along K. A tile with neither does not compile.
pub(super) const fn transposed<F: InputType, L: StaticLayout>() -> bool {
    let map = Swizzled::new(L::SWIZZLE, 0, L::LAYOUT);
    let transposed = lies_transposed(F::BITS, [map.vector_along(0, F::BITS), map.vector_along(1, F::BITS)]);
    assert!(
        transposed.is_some() || F::BITS == 16,
        "ldmatrix: K of the tile is not contiguous in rows of 16 bytes, and only elements of 16 bits are transposed; store the tile along K"
    );
    assert!(
        transposed.is_some(),
        "ldmatrix: the tile has no rows of 16 bytes, along K or across it; make one of its strides 1 and the others multiples of 8"
    );
    matches!(transposed, Some(true))
}

/// A tile in shared memory as a lane reads it.
#[derive(Clone, Copy)]
pub(super) struct LdmatrixSource<'k, T, L> {
    tile: LayoutTensor<'k, T, L, Shared>,
    trans: Trans,
    row: Index<'k>,
    column: Index<'k>,
}

impl<'k, T: Scalar, L: StaticLayout> LdmatrixSource<'k, T, L> {
    /// The tile for an operand whose fragment is `fragment`; the warp is the one of `warp_thread`,
    /// a multiple of 32, among those of the instruction.
    #[track_caller]
    pub(super) fn new<F: InputType>(
        k: &'k Builder,
        tile: LayoutTensor<'k, T, L, Shared>,
        fragment: FragmentLayout,
        warp_thread: Index<'k>,
    ) -> Self {
        Self::lying::<F>(k, tile, fragment, warp_thread, const { transposed::<F, L>() })
    }
}

impl<'k, T: Scalar, L: OffsetMap> LdmatrixSource<'k, T, L> {
    /// Creates a source as [`new`](Source::new) does, from a layout value; a layout without rows of
    /// 16 bytes is refused.
    #[track_caller]
    pub(super) fn by_value<F: InputType>(
        k: &'k Builder,
        tile: LayoutTensor<'k, T, L, Shared>,
        fragment: FragmentLayout,
        warp_thread: Index<'k>,
    ) -> Option<Self> {
        let runs @ [_, width] = [0, 1].map(|mode| tile.layout().vector_along(mode, F::BITS));
        let Some(transposed) = lies_transposed(F::BITS, runs) else {
            k.refuse(&MmaError::Matrices { width, wanted: 128 / F::BITS });
            return None;
        };
        Some(Self::lying::<F>(k, tile, fragment, warp_thread, transposed))
    }

    #[track_caller]
    fn lying<F: InputType>(
        k: &'k Builder,
        tile: LayoutTensor<'k, T, L, Shared>,
        fragment: FragmentLayout,
        warp_thread: Index<'k>,
        transposed: bool,
    ) -> Self {
        let rows = fragment.matrix_rows(32 / F::BITS, transposed);
        let index = place(&rows, Index::lane(k) % rows.size() as u32);
        let extent = fragment.rows as u32;
        let warp = place(&Layout::constant(fragment.axes().row.mode(0)), warp_thread);
        let trans = if transposed { Trans::Yes } else { Trans::No };
        LdmatrixSource { tile, trans, row: warp + index % extent, column: index / extent }
    }

    /// The operand of the atom that begins at a row and a column.
    #[track_caller]
    pub(super) fn four<A: StaticFragment>(self, row: Index<'k>, column: u32) -> RegisterTensor<'k, u32, A> {
        let four = self.tile.at([self.row + row, self.column + column]).ldmatrix::<4>(self.trans);
        RegisterTensor::from_registers(|register| four[register])
    }

    /// Loads an operand of two registers, as [`four`](Source::four) does.
    #[track_caller]
    pub(super) fn two<B: StaticFragment>(self, row: Index<'k>, column: u32) -> RegisterTensor<'k, u32, B> {
        let two = self.tile.at([self.row + row, self.column + column]).ldmatrix::<2>(self.trans);
        RegisterTensor::from_registers(|register| two[register])
    }

    /// Loads two operands of two registers, the second `rows` below the first, by one instruction.
    #[track_caller]
    pub(super) fn pair<B: StaticFragment>(
        self,
        k: &'k Builder,
        row: Index<'k>,
        column: u32,
        rows: u32,
    ) -> [RegisterTensor<'k, u32, B>; 2] {
        let second = Index::lane(k) / 16 * rows;
        let four = self.tile.at([self.row + second + row, self.column + column]).ldmatrix::<4>(self.trans);
        [0, 2].map(|first| RegisterTensor::from_registers(|register| four[first + register]))
    }
}
