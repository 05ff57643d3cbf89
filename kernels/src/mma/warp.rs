//! Products by `mma.sync`: fragments by `ldmatrix`, or from wherever registers come.

use super::Accumulator;
use super::input::{InputType, warp_fragment};
use super::ldmatrix::LdmatrixSource;
use super::tiled::{AtomGrid, MmaSync, TiledMma};
use crate::tile::{Index, LayoutTensor, RegisterTensor};
use core::panic::Location;
use tilewright_codegen::build::{Scalar, Shared};
use tilewright_layout::fragment::MmaOperand;
use tilewright_layout::typed::StaticLayout;

/// The A operand of a warp for one step of K: a fragment for every 16 rows.
pub type FragmentsA<'k, F> = Vec<RegisterTensor<'k, u32, <F as InputType>::WarpA>>;

/// The B operand of a warp for one step of K: a fragment for every 8 columns of the result.
pub type FragmentsB<'k, F> = Vec<RegisterTensor<'k, u32, <F as InputType>::WarpB>>;

impl<'k, S: Scalar> Accumulator<'k, S> {
    /// Adds the product of fragments, for one step of K, by `mma.sync`: of A for every row of
    /// atoms, of B for every column.
    ///
    /// Refused: more or fewer of them, [`MmaError::Fragments`](super::MmaError::Fragments), and
    /// sums of another instruction, [`MmaError::Fragment`](super::MmaError::Fragment).
    #[track_caller]
    pub fn mma<F: InputType<Sum = S>>(
        self,
        a: &[RegisterTensor<'k, u32, F::WarpA>],
        b: &[RegisterTensor<'k, u32, F::WarpB>],
    ) {
        let [down, across] = self.atoms();
        let enough = self.are_for("A", a.len(), down) && self.are_for("B", b.len(), across);
        if !enough || !self.is_of::<F::WarpC>() {
            return;
        }
        for (i, a) in (0..).zip(a) {
            for (j, b) in (0..).zip(b) {
                self.atom(i, j).mma(F::WARP, a.registers(), b.registers());
            }
        }
    }
}

impl<'k, F: InputType, A: StaticLayout, B: StaticLayout, G: AtomGrid> TiledMma<'k, MmaSync<F>, A, B, G> {
    /// Adds A·Bᵀ over all of K that the tiles hold.
    #[track_caller]
    pub fn multiply(self, a: LayoutTensor<'k, F::Stored, A, Shared>, b: LayoutTensor<'k, F::Stored, B, Shared>) {
        self.k.on_behalf(Location::caller(), || {
            let [row, column] = self.corner();
            let a = a.sub_tile_at([row, 0.into()]);
            let b = b.sub_tile_at([column, 0.into()]);
            for step in 0..Self::STEPS {
                self.mma(&self.fragments_a(a, step), &self.fragments_b(b, step));
            }
        });
    }

    /// Adds the product of fragments, for one step of K: as many as the warp's part has atoms, or
    /// it is refused, [`MmaError::Fragments`](super::MmaError::Fragments).
    #[track_caller]
    pub fn mma(self, a: &[RegisterTensor<'k, u32, F::WarpA>], b: &[RegisterTensor<'k, u32, F::WarpB>]) {
        self.sums.mma::<F>(a, b);
    }

    /// The A operand of this thread's warp for step `step` of K, from a tile in shared memory by
    /// `ldmatrix`. A tile that it cannot read does not compile, such as one of 8-bit elements that
    /// is contiguous across K:
    ///
    /// ```compile_fail
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// # use tilewright_kernels::{mma::{MmaSync, TiledMma}, tile::LayoutTensor};
    /// # use tilewright_layout::typed::{ColMajor, RowMajor};
    /// type A = ColMajor<16, 32>;
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let a = LayoutTensor::new(k.shared::<i8>("a", 16 * 32), A::default());
    /// TiledMma::<MmaSync<i8>, A, RowMajor<8, 32>>::new(k).load_a(a, 0);
    /// # });
    /// ```
    ///
    /// A step that the tiles have not got is refused, [`MmaError::Step`](super::MmaError::Step).
    #[track_caller]
    pub fn load_a(self, a: LayoutTensor<'k, F::Stored, A, Shared>, step: u32) -> FragmentsA<'k, F> {
        self.k.on_behalf(Location::caller(), || {
            let step = self.step_of(step);
            self.fragments_a(a.sub_tile_at([self.corner()[0], 0.into()]), step)
        })
    }

    /// The B operand of this thread's warp for step `step` of K, from a tile in shared memory by
    /// `ldmatrix`, two atoms at a time. A tile that it cannot read does not compile; a step that
    /// the tiles have not got is refused, [`MmaError::Step`](super::MmaError::Step).
    #[track_caller]
    pub fn load_b(self, b: LayoutTensor<'k, F::Stored, B, Shared>, step: u32) -> FragmentsB<'k, F> {
        self.k.on_behalf(Location::caller(), || {
            let step = self.step_of(step);
            self.fragments_b(b.sub_tile_at([self.corner()[1], 0.into()]), step)
        })
    }

    /// Loads the fragments of A from the start of the warp's part.
    #[track_caller]
    fn fragments_a(self, a: LayoutTensor<'k, F::Stored, A, Shared>, step: u32) -> FragmentsA<'k, F> {
        let source = LdmatrixSource::new::<F>(self.k, a, const { warp_fragment::<F>(MmaOperand::A) }, 0.into());
        (0..self.sums.atoms()[0]).map(|i| source.four((16 * i).into(), F::K * step)).collect()
    }

    /// Loads the fragments of B from the start of the warp's part.
    #[track_caller]
    fn fragments_b(self, b: LayoutTensor<'k, F::Stored, B, Shared>, step: u32) -> FragmentsB<'k, F> {
        let source = LdmatrixSource::new::<F>(self.k, b, const { warp_fragment::<F>(MmaOperand::B) }, 0.into());
        let count = self.sums.atoms()[1];
        let column = F::K * step;
        let mut fragments = Vec::new();
        for j in (0..count).step_by(2) {
            let row = Index::from(8 * j);
            if j + 1 < count {
                fragments.extend(source.pair(self.k, row, column, 8));
            } else {
                fragments.push(source.two(row, column));
            }
        }
        fragments
    }
}
