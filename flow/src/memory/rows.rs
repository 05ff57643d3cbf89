//! The rows of a batch as tables: where each begins, which chunks of it are scored.

use crate::error::RunError;
use crate::memory::Budget;

/// Candidate blocks of a row that are scored together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The row: `request·key heads + head`.
    pub row: u32,
    /// The first block, counted in its row.
    pub begin: u32,
    /// Number of blocks, at most those of a chunk.
    pub len: u32,
    /// Whether it is the first of its row.
    pub is_first: bool,
}

/// The rows of a batch: prefix sums over rows, and the chunks of what is scored.
///
/// All key heads of a request have the same number of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowTable {
    /// The start of each row in a flat list of all blocks; one more than rows.
    pub dense: Vec<u32>,
    /// The start of each row in a flat list of the selected blocks; one more than rows.
    pub sparse: Vec<u32>,
    /// The chunks, by row and then by block.
    pub chunks: Vec<Chunk>,
}

impl RowTable {
    /// The table of requests with the given number of blocks each.
    ///
    /// ```
    /// use tilewright_flow::memory::{Budget, RowTable};
    /// let table = RowTable::new(&[9, 3], 1, &Budget::new(2, 0.0, 1, 1)?, 4)?;
    /// assert_eq!((table.dense, table.sparse), (vec![0, 9, 12], vec![0, 4, 7]));
    /// assert_eq!(table.chunks.iter().map(|c| (c.row, c.begin, c.len)).collect::<Vec<_>>(), [(0, 1, 4), (0, 5, 3)]);
    /// # Ok::<(), tilewright_flow::RunError>(())
    /// ```
    ///
    /// # Errors
    /// [`RunError::Blocks`] where counts exceed 32 bits; [`RunError::Budget`] for chunks of 0
    /// blocks.
    pub fn new(blocks: &[usize], kv_heads: usize, budget: &Budget, chunk: usize) -> Result<RowTable, RunError> {
        if chunk == 0 {
            return Err(RunError::Budget { name: "chunk", value: "0".into(), bound: "at least 1 block" });
        }
        let count = |number: usize| u32::try_from(number).map_err(|_| RunError::Blocks { blocks: number });
        let mut table = RowTable { dense: vec![0], sparse: vec![0], chunks: Vec::new() };
        let mut dense = 0usize;
        let mut sparse = 0usize;
        for (row, &len) in blocks.iter().flat_map(|len| std::iter::repeat_n(len, kv_heads)).enumerate() {
            dense = dense.saturating_add(len);
            sparse = sparse.saturating_add(budget.selected(len));
            table.dense.push(count(dense)?);
            table.sparse.push(count(sparse)?);
            let candidates = budget.candidates(len).unwrap_or(0..0);
            for begin in candidates.clone().step_by(chunk) {
                table.chunks.push(Chunk {
                    row: count(row)?,
                    begin: count(begin)?,
                    len: count(chunk.min(candidates.end - begin))?,
                    is_first: begin == candidates.start,
                });
            }
        }
        Ok(table)
    }
}
