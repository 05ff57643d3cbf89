//! Tiles of one warp: `ldmatrix` and `mma.sync`.

use super::Accumulator;
use super::factor::{Factor, warp_fragment};
use crate::tile::{Coord, LayoutTensor, place};
use core::marker::PhantomData;
use tilewright_codegen::build::{Builder, Shared, Val};
use tilewright_codegen::ir::attr::Trans;
use tilewright_layout::fragment::Operand;
use tilewright_layout::view::OffsetMap;

/// A product of M×N that one warp sums up, M a multiple of 16 and N of 8.
///
/// Factors come from shared memory through tensors (m, k) and (n, k); which index is contiguous there, their layouts say.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use half::bf16;
/// use tilewright_kernels::{mma::WarpTile, tile::LayoutTensor};
/// use tilewright_layout::typed::{RowMajor, Swizzle, Swizzled};
/// type Tile<const ROWS: usize> = Swizzled<Swizzle<2, 3, 3>, RowMajor<ROWS, 32>>;
/// # record("sample", Arch::Sm80, block(32), |k| {
/// let a = LayoutTensor::new(k.shared_aligned::<bf16>("a", 32 * 32, 1024), Tile::<32>::default());
/// let b = LayoutTensor::new(k.shared_aligned::<bf16>("b", 16 * 32, 1024), Tile::<16>::default());
/// let tile = WarpTile::<bf16>::new(k, 32, 16);
/// for step in 0..2 {
///     tile.multiply(&tile.load_a(k, a, 16 * step), &tile.load_b(k, b, 16 * step));
/// }
/// # });
/// ```
pub struct WarpTile<'k, F: Factor> {
    sums: Accumulator<'k, F::Sum>,
    factor: PhantomData<F>,
}

impl<F: Factor> Clone for WarpTile<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Factor> Copy for WarpTile<'_, F> {}

/// The registers of a factor: atom after atom along M or N.
pub type Fragments<'k> = Vec<Vec<Val<'k, u32>>>;

impl<'k, F: Factor> WarpTile<'k, F> {
    /// Sums of zero. Extents are multiples of the atom's 16 and 8.
    #[track_caller]
    pub fn new(k: &'k Builder, m: u32, n: u32) -> WarpTile<'k, F> {
        let sums = Accumulator::unset(k, warp_fragment::<F>(Operand::C), m / 16, n / 8);
        for i in 0..sums.registers().len() {
            sums.registers().set(i, k.lit(0u32).bits::<F::Sum>());
        }
        WarpTile { sums, factor: PhantomData }
    }

    /// The sums.
    pub fn sums(self) -> Accumulator<'k, F::Sum> {
        self.sums
    }

    /// The left factor's fragments, from column `step` of (m, k) on.
    #[track_caller]
    pub fn load_a<L: OffsetMap>(
        self,
        k: &'k Builder,
        a: LayoutTensor<'k, F::Stored, L, Shared>,
        step: u32,
    ) -> Fragments<'k> {
        let (trans, row, column) = self.lane_address(k, a, Operand::A);
        let atoms = 0..self.sums.atoms()[0];
        atoms.map(|i| a.at([row + 16 * i, column + step]).ldmatrix::<4>(trans).to_vec()).collect()
    }

    /// The right factor's fragments, from column `step` of (n, k) on: two atoms by each instruction.
    #[track_caller]
    pub fn load_b<L: OffsetMap>(
        self,
        k: &'k Builder,
        b: LayoutTensor<'k, F::Stored, L, Shared>,
        step: u32,
    ) -> Fragments<'k> {
        let (trans, row, column) = self.lane_address(k, b, Operand::B);
        let count = self.sums.atoms()[1];
        let mut fragments = Vec::new();
        for j in (0..count).step_by(2) {
            if j + 1 < count {
                let second = Coord::lane(k) / 16 * 8;
                let four = b.at([row + second + 8 * j, column + step]).ldmatrix::<4>(trans);
                fragments.extend(four.chunks(2).map(<[_]>::to_vec));
            } else {
                fragments.push(b.at([row + 8 * j, column + step]).ldmatrix::<2>(trans).to_vec());
            }
        }
        fragments
    }

    /// Adds the product of the fragments, for one step of K.
    #[track_caller]
    pub fn multiply(self, a: &Fragments<'k>, b: &Fragments<'k>) {
        for (i, a) in (0..).zip(a) {
            for (j, b) in (0..).zip(b) {
                self.sums.atom(i, j).mma(F::WARP, a, b);
            }
        }
    }

    /// The row and column that this lane addresses for `ldmatrix`, and whether matrices lie transposed.
    #[track_caller]
    fn lane_address<L: OffsetMap>(
        self,
        k: &'k Builder,
        factor: LayoutTensor<'k, F::Stored, L, Shared>,
        operand: Operand,
    ) -> (Trans, Coord<'k>, Coord<'k>) {
        let transposed = factor.layout().vector_along(1, F::BITS) * F::BITS < 128;
        let fragment = warp_fragment::<F>(operand);
        let rows = fragment.matrix_rows(32 / F::BITS, transposed);
        let index = place(&rows, Coord::lane(k) % rows.size() as u32);
        let extent = fragment.rows as u32;
        (if transposed { Trans::Yes } else { Trans::No }, index % extent, index / extent)
    }
}
