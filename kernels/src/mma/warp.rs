//! Products by `mma.sync`: fragments by `ldmatrix`.

use super::input::{InputType, warp_fragment};
use super::tiled::{AtomGrid, MmaSync, TiledMma};
use crate::tile::{Index, LayoutTensor, place};
use tilewright_codegen::build::{Builder, Shared, Val};
use tilewright_codegen::ir::attr::Trans;
use tilewright_layout::fragment::Operand;
use tilewright_layout::typed::StaticLayout;
use tilewright_layout::view::OffsetMap;

/// The registers of an operand for one step of K: atom after atom along M or N.
pub type Fragments<'k> = Vec<Vec<Val<'k, u32>>>;

impl<'k, F: InputType, A: StaticLayout, B: StaticLayout, G: AtomGrid> TiledMma<'k, MmaSync<F>, A, B, G> {
    /// Adds A·Bᵀ over all of K that the tiles hold.
    #[track_caller]
    pub fn multiply(self, a: LayoutTensor<'k, F::Stored, A, Shared>, b: LayoutTensor<'k, F::Stored, B, Shared>) {
        let [row, column] = self.corner();
        let (a, b) = (a.begun_at([row, 0.into()]), b.begun_at([column, 0.into()]));
        for step in (0..Self::EXTENTS[2]).step_by(F::K as usize) {
            self.accumulate(&self.load_a(a, step), &self.load_b(b, step));
        }
    }

    /// Adds the product of fragments, for one step of K.
    #[track_caller]
    pub fn accumulate(self, a: &Fragments<'k>, b: &Fragments<'k>) {
        for (i, a) in (0..).zip(a) {
            for (j, b) in (0..).zip(b) {
                self.sums.atom(i, j).mma(F::WARP, a, b);
            }
        }
    }

    /// Operand A's fragments, from column `step` of (m, k) on, where the warp's part begins.
    #[track_caller]
    fn load_a(self, a: LayoutTensor<'k, F::Stored, A, Shared>, step: u32) -> Fragments<'k> {
        let (trans, row, column) = lane_address::<F, A>(self.k, a, Operand::A);
        let atoms = 0..self.sums.atoms()[0];
        atoms.map(|i| a.at([row + 16 * i, column + step]).ldmatrix::<4>(trans).to_vec()).collect()
    }

    /// Operand B's fragments, from column `step` of (n, k) on: two atoms by each instruction.
    #[track_caller]
    fn load_b(self, b: LayoutTensor<'k, F::Stored, B, Shared>, step: u32) -> Fragments<'k> {
        let (trans, row, column) = lane_address::<F, B>(self.k, b, Operand::B);
        let count = self.sums.atoms()[1];
        let mut fragments = Vec::new();
        for j in (0..count).step_by(2) {
            if j + 1 < count {
                let second = Index::lane(self.k) / 16 * 8;
                let four = b.at([row + second + 8 * j, column + step]).ldmatrix::<4>(trans);
                fragments.extend(four.chunks(2).map(<[_]>::to_vec));
            } else {
                fragments.push(b.at([row + 8 * j, column + step]).ldmatrix::<2>(trans).to_vec());
            }
        }
        fragments
    }
}

/// The row and column that this lane addresses for `ldmatrix`, and whether matrices lie transposed.
#[track_caller]
fn lane_address<'k, F: InputType, L: OffsetMap>(
    k: &'k Builder,
    tile: LayoutTensor<'k, F::Stored, L, Shared>,
    operand: Operand,
) -> (Trans, Index<'k>, Index<'k>) {
    let transposed = tile.layout().vector_along(1, F::BITS) * F::BITS < 128;
    let fragment = warp_fragment::<F>(operand);
    let rows = fragment.matrix_rows(32 / F::BITS, transposed);
    let index = place(&rows, Index::lane(k) % rows.size() as u32);
    let extent = fragment.rows as u32;
    (if transposed { Trans::Yes } else { Trans::No }, index % extent, index / extent)
}
