//! Accumulators: registers, and where each of them stands in the product.

use super::MmaError;
use super::fragment::{across_lanes, columns, places, rows};
use super::input::{InputType, warp_fragment};
use crate::tile::{Index, LayoutTensor, TensorLayout, place};
use tilewright_codegen::build::{Builder, Lane, Number, RegArray, Scalar, Shared, Val};
use tilewright_codegen::ir::attr::Trans;
use tilewright_layout::Layout;
use tilewright_layout::fragment::{FragmentLayout, MmaOperand, StaticFragment};

/// The sums of a tile of `down`×`across` atoms, spread over the threads of a warp or of a
/// warpgroup.
///
/// Rows and columns are computed from the atom's fragment layout.
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

/// Two adjacent elements of a row that one thread holds: registers `first` and `first + 1`.
#[derive(Clone, Copy)]
pub struct RegisterPair<'k> {
    /// The row of both.
    pub row: Index<'k>,
    /// The column of the first.
    pub column: Index<'k>,
    /// The register of the first.
    pub first: u32,
}

impl<'k, A: Scalar> Accumulator<'k, A> {
    /// Registers for `down`×`across` atoms of that fragment, which must be written before they are
    /// read.
    pub fn unset(k: &'k Builder, fragment: FragmentLayout, down: u32, across: u32) -> Accumulator<'k, A> {
        let regs = k.regs_unset(down * across * fragment.values() as u32);
        Accumulator { regs, fragment, down, across }
    }

    /// Zeros of a warp for `down`×`across` atoms of the `mma.sync` of `F`.
    #[track_caller]
    pub fn warp<F: InputType<Sum = A>>(k: &'k Builder, down: u32, across: u32) -> Accumulator<'k, A> {
        let sums = Accumulator::unset(k, warp_fragment::<F>(MmaOperand::C), down, across);
        sums.clear(k);
        sums
    }

    /// The sums of `count` rows of atoms, from row `first` on; rows that there are not are refused,
    /// [`MmaError::Atoms`].
    #[track_caller]
    pub fn rows_of_atoms(self, first: u32, count: u32) -> Accumulator<'k, A> {
        let down = self.down;
        let last = first + count;
        if last > down {
            self.regs.builder().refuse(&MmaError::Atoms { first, last, down });
        }
        let row = self.across * self.fragment.values() as u32;
        Accumulator { regs: self.regs.run(first * row, count * row), down: count, ..self }
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

    /// The fragment of an atom.
    pub fn fragment(self) -> FragmentLayout {
        self.fragment
    }

    /// Whether an atom's values stand as the fragment `C` says; another is refused.
    #[track_caller]
    pub(super) fn is_of<C: StaticFragment>(self) -> bool {
        let found = self.fragment.layout;
        let wanted = C::FRAGMENT.layout;
        let same = found == wanted && C::PACKED == 1;
        if !same {
            let wanted = wanted.to_string();
            let found = found.to_string();
            self.regs.builder().refuse(&MmaError::Fragment { wanted, found });
        }
        same
    }

    /// Whether there is a fragment of an operand for each atom along it; more or fewer are refused.
    #[track_caller]
    pub(super) fn are_for(self, operand: &'static str, given: usize, atoms: u32) -> bool {
        let enough = given == atoms as usize;
        if !enough {
            self.regs.builder().refuse(&MmaError::Fragments { given, operand, atoms });
        }
        enough
    }

    /// The registers of each row of the tile that a thread holds a part of, the rows from the top.
    pub fn rows(self) -> Vec<Vec<u32>> {
        let count = self.fragment.values() as u32;
        let of_atom = rows(&self.fragment);
        let row = |down: u32, values: &Vec<u32>| {
            let atoms = (0..self.across).map(|across| (down * self.across + across) * count);
            atoms.flat_map(|first| values.iter().map(move |value| first + value)).collect()
        };
        (0..self.down).flat_map(|down| of_atom.iter().map(move |values| row(down, values))).collect()
    }

    /// The column of each register, in order. `thread` counts within the warp or the warpgroup; a
    /// lane will do.
    #[track_caller]
    pub fn columns(self, thread: Index<'k>) -> Vec<Index<'k>> {
        let of_atom = columns(&self.fragment, thread);
        let width = self.fragment.cols as u32;
        let atoms = (0..self.down * self.across).map(|atom| atom % self.across * width);
        atoms.flat_map(|first| of_atom.iter().map(move |&column| column + first)).collect()
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

    /// The places of `thread`'s values in the tile, in pairs, in the order of the registers. The
    /// thread counts within the warp or the warpgroup.
    #[track_caller]
    pub fn pairs(self, thread: Index<'k>) -> Vec<RegisterPair<'k>> {
        let ([row, column], registers) = places(&self.fragment, 1, thread);
        let [rows, columns] = [self.fragment.rows as u32, self.fragment.cols as u32];
        let mut pairs = Vec::new();
        for atom in 0..self.down * self.across {
            let down = atom / self.across;
            let across = atom % self.across;
            for (value, &[r, c]) in registers.iter().enumerate().step_by(2) {
                pairs.push(RegisterPair {
                    row: row + r + down * rows,
                    column: column + c + across * columns,
                    first: (atom as usize * registers.len() + value) as u32,
                });
            }
        }
        pairs
    }
}

impl<'k, A: Lane> Accumulator<'k, A> {
    /// Reduces each row that this thread holds a part of: this thread's columns first, then those
    /// of the lanes that hold the rest. All of these lanes have the result. Rows are in order from
    /// the top.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// # use half::bf16;
    /// use tilewright_kernels::mma::{MmaSync, TiledMma};
    /// # use tilewright_layout::typed::{KMajor, OperandTile};
    /// # type Tile = OperandTile<KMajor, 16, 32, 64>;
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let scores = TiledMma::<MmaSync<bf16>, Tile, Tile>::new(k).sums();
    /// let most = scores.reduce_rows(|a, b| a.max(b));
    /// assert_eq!(most.len(), 4, "of 32 rows");
    /// # });
    /// ```
    #[track_caller]
    pub fn reduce_rows(self, f: impl Fn(Val<'k, A>, Val<'k, A>) -> Val<'k, A>) -> Vec<Val<'k, A>> {
        let mine = |row: Vec<u32>| row.into_iter().map(|register| self.get(register)).reduce(&f);
        self.rows().into_iter().filter_map(mine).map(|row| across_lanes(&self.fragment, row, &f)).collect()
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
    /// Writes columns `columns` of the tile, a multiple of 16 of them, to shared memory as pairs of
    /// 16 bits, 16 columns by each `stmatrix`. `value` makes the pair that stands at the place of
    /// two sums; `tile` is (row, column), with the first of `columns` as column 0.
    #[track_caller]
    pub fn stage<T: Scalar, L: TensorLayout<'k>>(
        self,
        thread: Index<'k>,
        columns: core::ops::Range<u32>,
        tile: LayoutTensor<'k, T, L, Shared>,
        value: impl Fn(RegisterPair<'k>) -> Val<'k, u32>,
    ) {
        self.stage_at(thread, columns, tile, [0.into(), 0.into()], value);
    }

    /// Stages sums as [`stage`](Accumulator::stage) does, with the columns at a corner of the tile.
    #[track_caller]
    pub(super) fn stage_at<T: Scalar, L: TensorLayout<'k>>(
        self,
        thread: Index<'k>,
        columns: core::ops::Range<u32>,
        tile: LayoutTensor<'k, T, L, Shared>,
        [top, left]: [Index<'k>; 2],
        value: impl Fn(RegisterPair<'k>) -> Val<'k, u32>,
    ) {
        let rows = self.fragment.rows as u32;
        // Rows of the four matrices of 16 columns: of eight columns they are one below the other,
        // of one atom or of two.
        let four = [(8, 1), (2, 8), (2, 8 * self.fragment.rows)].map(|(extent, stride)| Layout::leaf(extent, stride));
        let matrix = place(&Layout::constant(Layout::tuple(&four.map(Layout::constant))), thread % 32);
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
                let column = matrix / rows + (first - columns.start);
                tile.at([top + row, left + column]).stmatrix(registers, Trans::No);
            }
        }
    }
}
