//! The number of blocks that a row attends to, on a device: [`Budget`] for a length that is not
//! known while recording.

use tilewright_codegen::build::Val;

use crate::memory::Budget;

/// A budget as a device computes with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Amount {
    /// Blocks at the begin, and at the end, that are always attended to.
    pub first: u32,
    pub last: u32,
    top_k: u32,
    ratio: f64,
}

impl Amount {
    pub fn new(budget: &Budget) -> Amount {
        let first = budget.first() as u32;
        let last = budget.last() as u32;
        Amount { first, last, top_k: budget.top_k() as u32, ratio: budget.ratio() }
    }

    /// The number of blocks that are attended to, of `blocks`.
    pub fn selected<'k>(self, blocks: Val<'k, u32>) -> Val<'k, u32> {
        let fixed = blocks.builder().lit(self.top_k + self.first + self.last);
        let most = match self.ratio > 0.0 {
            true => fixed.max((blocks.cast::<f64>() * self.ratio).cast::<u32>()),
            false => fixed,
        };
        blocks.min(most)
    }

    /// The number of candidate blocks of a row that does not attend to all blocks.
    pub fn candidates<'k>(self, blocks: Val<'k, u32>) -> Val<'k, u32> {
        blocks - (self.first + self.last)
    }
}

/// The candidates of a row that a task scores.
#[derive(Clone, Copy)]
pub(super) struct Candidates<'k> {
    /// Place of the first of them in the sequence.
    pub origin: Val<'k, u32>,
    /// How many.
    pub count: Val<'k, u32>,
}
