//! Accumulators: registers, and where each of them stands in the product.

use crate::tile::{Index, LayoutTensor, place};
use tilewright_codegen::build::{Builder, Number, RegArray, Scalar, Shared, Val};
use tilewright_codegen::ir::attr::Trans;
use tilewright_layout::Layout;
use tilewright_layout::fragment::{Axes, FragmentLayout};
use tilewright_layout::view::OffsetMap;

/// The sums of a tile of `down`×`across` atoms, spread over the threads of a warp or of a warpgroup.
///
/// Rows and columns follow from the atom's fragment layout; nobody computes them by hand.
pub struct Accumulator<'k, A> {
    regs: RegArray<'k, A>,
    fragment: FragmentLayout,
    down: u32,
    across: u32,
}

impl<A> Clone for Accumulator<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Accumulator<'_, A> {}

/// Two neighbours in a row that one thread holds: registers `first` and `first + 1`.
#[derive(Clone, Copy)]
pub struct Pair<'k> {
    /// The row of both.
    pub row: Index<'k>,
    /// The column of the first.
    pub column: Index<'k>,
    /// The register of the first.
    pub first: u32,
}

impl<'k, A: Scalar> Accumulator<'k, A> {
    /// Registers for `down`×`across` atoms of that fragment, which must be written before they are read.
    pub fn unset(k: &'k Builder, fragment: FragmentLayout, down: u32, across: u32) -> Accumulator<'k, A> {
        let regs = k.regs_unset(down * across * fragment.values() as u32);
        Accumulator { regs, fragment, down, across }
    }

    /// Rows and columns of the tile.
    pub fn extents(self) -> [u32; 2] {
        [self.down * self.fragment.rows as u32, self.across * self.fragment.cols as u32]
    }

    /// Atoms down and across.
    pub fn atoms(self) -> [u32; 2] {
        [self.down, self.across]
    }

    /// The registers of an atom.
    pub fn atom(self, down: u32, across: u32) -> RegArray<'k, A> {
        let count = self.fragment.values() as u32;
        self.regs.run((down * self.across + across) * count, count)
    }

    /// All registers, atom after atom, row by row.
    pub fn registers(self) -> RegArray<'k, A> {
        self.regs
    }

    /// The value of a register now.
    #[track_caller]
    pub fn get(self, register: u32) -> Val<'k, A> {
        self.regs.get(register)
    }

    /// Sets every sum to zero.
    #[track_caller]
    pub fn clear(self, k: &'k Builder) {
        for i in 0..self.regs.len() {
            self.regs.set(i, k.lit(0u32).bits::<A>());
        }
    }

    /// Registers for as many sums, at the same places.
    pub fn like(self, k: &'k Builder) -> Accumulator<'k, A> {
        Accumulator { regs: k.regs_unset(self.regs.len()), ..self }
    }

    /// Where `thread`'s values stand in the tile, in pairs, in the order of the registers. The thread counts within the
    /// warp or the warpgroup.
    #[track_caller]
    pub fn pairs(self, thread: Index<'k>) -> Vec<Pair<'k>> {
        let Axes { row, col } = self.fragment.axes();
        let [row, column] = [row, col].map(|axis| [0, 1].map(|mode| Layout::constant(axis.mode(mode))));
        let [row_of_thread, column_of_thread] = [&row, &column].map(|axis| place(&axis[0], thread));
        let values = self.fragment.values() as u32;
        let mut pairs = Vec::new();
        for atom in 0..self.down * self.across {
            let (down, across) = (atom / self.across, atom % self.across);
            for value in (0..values).step_by(2) {
                let [r, c] = [&row, &column].map(|axis| axis[1].at(value.into()) as u32);
                pairs.push(Pair {
                    row: row_of_thread + r + down * self.fragment.rows as u32,
                    column: column_of_thread + c + across * self.fragment.cols as u32,
                    first: atom * values + value,
                });
            }
        }
        pairs
    }
}

impl<'k, A: Number> Accumulator<'k, A> {
    /// Adds sums at the same places.
    #[track_caller]
    pub fn add(self, more: Accumulator<'k, A>) {
        for i in 0..self.regs.len() {
            self.regs.set(i, self.regs.get(i) + more.regs.get(i));
        }
    }
}

impl<'k, A: Scalar> Accumulator<'k, A> {
    /// Writes columns `columns` of the tile, a multiple of 16 of them, to shared memory as pairs of 16 bits, 16 columns by
    /// each `stmatrix`. `value` makes the pair that stands at the place of two sums; `tile` is (row, column), with the
    /// first of `columns` as column 0.
    #[track_caller]
    pub fn stage<T: Scalar, L: OffsetMap>(
        self,
        thread: Index<'k>,
        columns: core::ops::Range<u32>,
        tile: LayoutTensor<'k, T, L, Shared>,
        value: impl Fn(Pair<'k>) -> Val<'k, u32>,
    ) {
        let rows = self.fragment.rows as u32;
        let matrix = place(&self.fragment.matrix_rows(2, false), thread % 32);
        let warp = place(&Layout::constant(self.fragment.axes().row.mode(0)), thread / 32 * 32);
        let pairs = self.pairs(thread);
        let per_atom = self.fragment.values() as usize / 2;
        for (down, atom) in pairs.chunks(per_atom * self.across as usize).enumerate() {
            for (number, four) in (0..).zip(atom.chunks(4)) {
                let first = 16 * number;
                if !columns.contains(&first) {
                    continue;
                }
                let registers = [0, 1, 2, 3].map(|i| value(four[i]));
                let row = warp + matrix % rows + down as u32 * rows;
                tile.at([row, matrix / rows + (first - columns.start)]).stmatrix(registers, Trans::No);
            }
        }
    }
}
