//! The contents of a step's cells, row by row.

use tilewright_megakernel::vm::StepCells;

/// Tokens, positions and page tables of the rows of a step.
pub struct OwnedCells {
    tokens: Vec<i32>,
    positions: Vec<i32>,
    page_table: Vec<i32>,
    /// Entries of a row's page table.
    per_row: usize,
    rows: usize,
}

impl OwnedCells {
    /// Creates the inputs of a step of `rows` rows, all idle.
    pub fn new(width: usize, per_row: usize) -> OwnedCells {
        let tokens = vec![0; width];
        let positions = vec![-1; width];
        let page_table = vec![0; width * per_row];
        OwnedCells { tokens, positions, page_table, per_row, rows: 0 }
    }

    /// The next row: a token at a position of the sequence that has these pages. A step has no more
    /// rows than its width.
    pub fn push(&mut self, token: u32, position: usize, pages: &[i32]) {
        let row = self.rows;
        self.tokens[row] = i32::try_from(token).unwrap_or(i32::MAX);
        self.positions[row] = i32::try_from(position).unwrap_or(i32::MAX);
        self.page_table[row * self.per_row..][..pages.len()].copy_from_slice(pages);
        self.rows += 1;
    }

    /// The cells.
    pub fn cells(&self) -> StepCells<'_> {
        StepCells { tokens: &self.tokens, positions: &self.positions, page_table: &self.page_table }
    }
}
