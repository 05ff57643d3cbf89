//! The layouts of fragments: which element each value of each thread is.

use super::{Atom, Instruction, MmaOperand};
use crate::Layout;

/// The elements of an operand that each thread of an instruction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentLayout {
    /// The instruction's M, N and K.
    pub mnk: [i64; 3],
    /// Rows of the operand: M, or N for B.
    pub rows: i64,
    /// Columns of the operand: K, or N for C.
    pub cols: i64,
    /// Thread number to lane: `32:1`, or `128:1`.
    pub thr_id: Layout,
    /// (thread, value) to `row + rows * column`.
    ///
    /// An operand read from shared memory has thread stride 0: every thread sees the whole of it.
    pub layout: Layout,
}

impl FragmentLayout {
    /// Number of threads that take part.
    pub const fn threads(&self) -> i64 {
        self.layout.extent(0)
    }

    /// Number of elements that each thread holds.
    pub const fn values(&self) -> i64 {
        self.layout.extent(1)
    }

    /// The (row, column) of value `value` of thread `thread`. Both must be within
    /// [`FragmentLayout::threads`] and [`FragmentLayout::values`].
    pub const fn element(&self, thread: i64, value: i64) -> (i64, i64) {
        let index = self.layout.at(thread + self.threads() * value);
        (index % self.rows, index / self.rows)
    }
}

/// The layout of an operand of an atom.
///
/// ```
/// use tilewright_layout::fragment::{Atom, MmaOperand, fragment};
/// let atom = Atom::named("SM90_64x256x16_F32BF16BF16_SS").unwrap();
/// assert_eq!(fragment(&atom, MmaOperand::C).layout.to_string(), "((4,8,4),(2,2,32)):((128,1,16),(64,8,512))");
/// assert_eq!(fragment(&atom, MmaOperand::B).layout.to_string(), "(128,(256,16)):(0,(1,256))");
/// ```
pub const fn fragment(atom: &Atom, operand: MmaOperand) -> FragmentLayout {
    let [m, n, k] = atom.mnk;
    let (rows, cols) = match operand {
        MmaOperand::A => (m, k),
        MmaOperand::B => (n, k),
        MmaOperand::C => (m, n),
    };
    let layout = match (atom.instruction, operand) {
        (Instruction::MmaSync, MmaOperand::C) => registers(&[(2, rows), (rows / 8, 8)], 2 * rows),
        (Instruction::MmaSync, _) => {
            let packed = atom.packed(operand);
            let steps = [(packed, rows), (rows / 8, 8), (cols / (4 * packed), 4 * packed * rows)];
            registers(&steps, packed * rows)
        }
        (Instruction::Wgmma { .. }, MmaOperand::C) => {
            warpgroup(&[leaf(2, rows), leaf(2, 8), leaf(cols / 8, 8 * rows)], 2 * rows)
        }
        (Instruction::Wgmma { a_in_registers: true }, MmaOperand::A) => {
            let packed = atom.packed(operand);
            let halves = [leaf(packed, rows), leaf(2, 8), leaf(cols / (4 * packed), 4 * packed * rows)];
            let first = if packed == 1 { 1 } else { 0 };
            warpgroup(halves.split_at(first).1, packed * rows)
        }
        (Instruction::Wgmma { .. }, _) => pair(&leaf(128, 0), &tuple(&[leaf(rows, 1), leaf(cols, rows)])),
    };
    FragmentLayout { mnk: atom.mnk, rows, cols, thr_id: leaf(atom.threads(), 1), layout }
}

/// A warp's fragment: eight groups of four threads, and the value modes that have more than one
/// element.
pub(super) const fn registers(steps: &[(i64, i64)], across: i64) -> Layout {
    let threads = tuple(&[leaf(4, across), leaf(8, 1)]);
    let mut modes = [Layout::ONE; 3];
    let mut count = 0;
    let mut i = 0;
    while i < steps.len() {
        if steps[i].0 > 1 {
            modes[count] = leaf(steps[i].0, steps[i].1);
            count += 1;
        }
        i += 1;
    }
    let values = match count {
        0 => Layout::ONE,
        1 => modes[0],
        _ => tuple(modes.split_at(count).0),
    };
    pair(&threads, &values)
}

/// A warpgroup's fragment: as a warp's, the warps 16 rows apart.
pub(super) const fn warpgroup(values: &[Layout], across: i64) -> Layout {
    pair(&tuple(&[leaf(4, across), leaf(8, 1), leaf(4, 16)]), &tuple(values))
}

pub(super) const fn pair(threads: &Layout, values: &Layout) -> Layout {
    tuple(&[*threads, *values])
}

pub(super) const fn leaf(extent: i64, stride: i64) -> Layout {
    Layout::constant(Layout::leaf(extent, stride))
}

pub(super) const fn tuple(modes: &[Layout]) -> Layout {
    Layout::constant(Layout::tuple(modes))
}
