//! Fragments of bf16 rows that are any number of elements apart: tiles whose extents no type has.

use half::bf16;
use tilewright_codegen::build::{Ptr, Shared, Val};
use tilewright_codegen::ir::attr::Trans;

use super::InputType;
use crate::tile::RegisterTensor;

/// Rows in shared memory, each a multiple of eight elements after the one before.
#[derive(Clone, Copy)]
pub(crate) struct PitchedRows<'k> {
    /// The first element.
    pub at: Ptr<'k, Shared, bf16>,
    /// Elements from row to row.
    pub pitch: u32,
}

impl<'k> PitchedRows<'k> {
    /// The eight-element vector of a lane: `eights` are the lanes' bits by which they go down eight
    /// rows, and right eight columns.
    fn vector(self, column: Val<'k, u32>, [down, right]: [u32; 2]) -> Ptr<'k, Shared, bf16> {
        let lane = column.builder().lane();
        let bit = |bit: u32| lane / bit % 2;
        self.at.at((bit(down) * 8 + lane % 8) * self.pitch + (column + bit(right) * 8))
    }

    /// Sixteen rows and sixteen columns from `column` on as an A operand.
    pub fn a(self, column: Val<'k, u32>) -> RegisterTensor<'k, u32, <bf16 as InputType>::WarpA> {
        self.vector(column, [8, 16]).ldmatrix::<4>(Trans::No).into()
    }

    /// Sixteen rows, which are columns of the product, and sixteen columns, its K, as B operands.
    pub fn b(self, column: Val<'k, u32>) -> [RegisterTensor<'k, u32, <bf16 as InputType>::WarpB>; 2] {
        let [a, b, c, d] = self.vector(column, [16, 8]).ldmatrix::<4>(Trans::No);
        [[a, b].into(), [c, d].into()]
    }

    /// Sixteen rows, the K of the product, and sixteen of its columns as B operands.
    pub fn b_across(self, column: Val<'k, u32>) -> [RegisterTensor<'k, u32, <bf16 as InputType>::WarpB>; 2] {
        let [a, b, c, d] = self.vector(column, [8, 16]).ldmatrix::<4>(Trans::Yes);
        [[a, b].into(), [c, d].into()]
    }
}
