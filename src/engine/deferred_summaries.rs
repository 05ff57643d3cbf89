//! Deferred summaries: blocks that machines without ops of flows completed, and the machine that
//! summarises them before a flow chooses by them.
//!
//! A block's summary depends on its keys and values alone. So it may come at any time between the
//! block's last token and the first step that chooses: a prompt's blocks come together, many in a
//! launch, and whatever a page was given to meanwhile, what is summarised is what it holds by then.

use std::collections::BTreeSet;

use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::DeviceMachine;

use super::error::EngineError;
use crate::engine::limits::MOST_ROWS;

/// Blocks of a launch.
pub(super) const SUMMARY_ROWS: usize = MOST_ROWS;

/// Blocks without summaries, and the machine that makes them.
#[derive(Default)]
pub(super) struct DeferredSummaries {
    /// Page, and the block's last token in it.
    blocks: BTreeSet<(i32, i32)>,
    pub(super) machine: Option<DeviceMachine>,
}

impl DeferredSummaries {
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub fn is_made(&self) -> bool {
        self.machine.is_some()
    }

    pub fn clear(&mut self) {
        self.blocks.clear();
    }

    /// Records the blocks that `steps` steps complete, each of which adds a token to every row. If
    /// fewer are run, some of them are not complete: what is made of these is made again.
    pub fn note(&mut self, cells: &StepCells, steps: usize, block_tokens: usize, page_tokens: usize) {
        let width = cells.page_table.len() / cells.positions.len().max(1);
        for (&first, table) in cells.positions.iter().zip(cells.page_table.chunks(width.max(1))) {
            let Ok(first) = usize::try_from(first) else { continue };
            let last = (first..first + steps).filter(|position| (position + 1).is_multiple_of(block_tokens));
            let place = |position: usize| Some((*table.get(position / page_tokens)?, (position % page_tokens) as i32));
            self.blocks.extend(last.filter_map(place));
        }
    }

    /// Summarises them; a row's page table has `per_row` entries. Each row is a sequence of one
    /// page.
    pub fn run(&mut self, per_row: usize) -> Result<(), EngineError> {
        let Some(machine) = &mut self.machine else { return Ok(()) };
        while !self.blocks.is_empty() {
            let now: Vec<(i32, i32)> = self.blocks.iter().take(SUMMARY_ROWS).copied().collect();
            let mut positions: Vec<i32> = now.iter().map(|&(_, position)| position).collect();
            let mut page_table: Vec<i32> =
                now.iter().flat_map(|&(page, _)| std::iter::repeat_n(page, per_row)).collect();
            positions.resize(SUMMARY_ROWS, -1);
            page_table.resize(SUMMARY_ROWS * per_row, 0);
            machine.step(&StepCells { tokens: &[], positions: &positions, page_table: &page_table })?;
            now.iter().for_each(|block| _ = self.blocks.remove(block));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_noted_where_its_last_token_lies_and_once() {
        let mut deferred = DeferredSummaries::default();
        // Blocks of 2 in pages of 4: a prompt's tokens 1 to 4, an idle row, and the last token of
        // another sequence's second page.
        let positions = [1, 2, 3, 4, -1, 7];
        let table = [[5, 6], [5, 6], [5, 6], [5, 6], [0, 0], [9, 8]].concat();
        let cells = StepCells { tokens: &[], positions: &positions, page_table: &table };
        deferred.note(&cells, 1, 2, 4);
        deferred.note(&cells, 1, 2, 4);
        assert_eq!(deferred.blocks.iter().copied().collect::<Vec<_>>(), [(5, 1), (5, 3), (8, 3)]);
        // Three steps from token 1 on, and no further than the table goes.
        let mut deferred = DeferredSummaries::default();
        deferred.note(&StepCells { tokens: &[], positions: &[1], page_table: &[5, 6] }, 3, 2, 4);
        deferred.note(&StepCells { tokens: &[], positions: &[7], page_table: &[5, 6] }, 4, 2, 4);
        assert_eq!(deferred.blocks.iter().copied().collect::<Vec<_>>(), [(5, 1), (5, 3), (6, 3)]);
    }
}
