//! A fragment as coordinates: its rows and its columns, each a layout of (thread, value).

use super::FragmentLayout;
use crate::Layout;

/// Rows and columns of each thread's values: two layouts of the fragment's shape, to the row and to
/// the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axes {
    /// (thread, value) to row.
    pub row: Layout,
    /// (thread, value) to column.
    pub col: Layout,
}

impl FragmentLayout {
    /// The fragment's rows and columns apart, so that a kernel adds where the index would have to
    /// be divided.
    ///
    /// Each integer of a fragment layout walks along one axis: its stride is a number of rows, or a
    /// multiple of all rows.
    ///
    /// ```
    /// use tilewright_layout::fragment::{Atom, MmaOperand, fragment};
    /// let atom = Atom::named("SM80_16x8x16_F32BF16BF16F32_TN").unwrap();
    /// let axes = fragment(&atom, MmaOperand::C).axes();
    /// assert_eq!(axes.row.to_string(), "((4,8),(2,2)):((0,1),(0,8))");
    /// assert_eq!(axes.col.to_string(), "((4,8),(2,2)):((2,0),(1,0))");
    /// ```
    pub const fn axes(&self) -> Axes {
        let mut row = self.layout;
        let mut col = self.layout;
        let mut i = 0;
        while i < self.layout.strides().len() {
            let stride = self.layout.stride[i];
            row.stride[i] = stride % self.rows;
            col.stride[i] = stride / self.rows;
            i += 1;
        }
        Axes { row, col }
    }

    /// The row that each lane of a warp addresses when `ldmatrix` loads the operand of an
    /// `mma.sync`: lane to `row + rows * column`, columns counted in elements.
    ///
    /// An 8×8 matrix of 16-bit units is what one register of every lane holds: its rows come first,
    /// then the matrices in the order of the registers. `transposed`, memory holds the columns of
    /// the matrices as its rows.
    ///
    /// ```
    /// use tilewright_layout::fragment::{Atom, MmaOperand, fragment};
    /// let atom = Atom::named("SM80_16x8x16_F32BF16BF16F32_TN").unwrap();
    /// assert_eq!(fragment(&atom, MmaOperand::A).matrix_rows(2, false).to_string(), "(8,2,2):(1,8,128)");
    /// assert_eq!(fragment(&atom, MmaOperand::B).matrix_rows(2, true).to_string(), "(8,2):(8,64)");
    /// ```
    ///
    /// `packed` is the number of elements in a register.
    pub const fn matrix_rows(&self, packed: i64, transposed: bool) -> Layout {
        let values = Layout::constant(self.layout.mode(1));
        let mut modes = [Layout::raw_leaf(8, if transposed { self.rows } else { 1 }); 3];
        let mut count = 1;
        let mut elements = 1;
        let mut i = 0;
        while i < values.extents().len() {
            if elements >= packed && count < modes.len() {
                modes[count] = Layout::raw_leaf(values.extents()[i], values.strides()[i]);
                count += 1;
            }
            elements *= values.extents()[i];
            i += 1;
        }
        Layout::constant(Layout::tuple(modes.split_at(count).0))
    }
}
