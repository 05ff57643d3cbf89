//! The number of blocks that a row attends to.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::RunError;

/// The number of blocks that a row attends to: `min(L, max(top_k + first + last, ⌊ratio·L⌋))` of
/// `L`.
///
/// A row of at most that many blocks attends to all of them; nothing is scored and no state is
/// saved. In a longer row the *candidates* are the blocks `[first, L − last)`: they are scored, and
/// the best of them join the first and the last blocks. The last block may be partial and has no
/// fields yet, therefore `last ≥ 1`.
///
/// ```
/// use tilewright_flow::memory::Budget;
/// let budget = Budget::new(4, 0.0, 1, 2)?;
/// assert_eq!((budget.selected(7), budget.candidates(7)), (7, None));
/// assert_eq!((budget.selected(8), budget.candidates(8)), (7, Some(1..6)));
/// assert_eq!(Budget::new(4, 0.5, 1, 2)?.selected(100), 50);
/// # Ok::<(), tilewright_flow::RunError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "BudgetJson", into = "BudgetJson")]
pub struct Budget {
    top_k: u32,
    ratio: f64,
    first: u32,
    last: u32,
}

/// A budget as JSON spells it.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Numbers", deny_unknown_fields)]
struct BudgetJson {
    top_k: u32,
    ratio: f64,
    first: u32,
    last: u32,
}

impl TryFrom<BudgetJson> for Budget {
    type Error = RunError;

    fn try_from(numbers: BudgetJson) -> Result<Budget, RunError> {
        Budget::new(numbers.top_k, numbers.ratio, numbers.first, numbers.last)
    }
}

impl From<Budget> for BudgetJson {
    fn from(Budget { top_k, ratio, first, last }: Budget) -> BudgetJson {
        BudgetJson { top_k, ratio, first, last }
    }
}

impl Budget {
    /// The best `top_k` candidates, or more where `ratio` of the blocks is more; always the `first`
    /// and the `last` blocks.
    ///
    /// # Errors
    /// [`RunError::Budget`]: `top_k` or `last` is 0, the ratio is not within 0 to 1, or the sum
    /// exceeds 2³².
    pub fn new(top_k: u32, ratio: f64, first: u32, last: u32) -> Result<Budget, RunError> {
        let refuse = |name, value: String, bound| Err(RunError::Budget { name, value, bound });
        if top_k == 0 {
            return refuse("top_k", top_k.to_string(), "at least 1");
        }
        if !(0.0..=1.0).contains(&ratio) {
            return refuse("ratio", ratio.to_string(), "a number from 0 to 1");
        }
        if last == 0 {
            return refuse("last", last.to_string(), "at least 1, for the block that is not complete");
        }
        if top_k.checked_add(first).and_then(|sum| sum.checked_add(last)).is_none() {
            return refuse("top_k + first + last", format!("{top_k} + {first} + {last}"), "less than 2^32 in all");
        }
        Ok(Budget { top_k, ratio, first, last })
    }

    /// The number of `blocks` that are attended to.
    pub fn selected(&self, blocks: usize) -> usize {
        let fixed = (self.top_k + self.first + self.last) as usize;
        blocks.min(fixed.max((self.ratio * blocks as f64) as usize))
    }

    /// The blocks that are scored, or none where all are attended to.
    pub fn candidates(&self, blocks: usize) -> Option<Range<usize>> {
        (blocks > self.selected(blocks)).then(|| self.first as usize..blocks - self.last as usize)
    }

    /// The number of candidates that are chosen in a row that has candidates.
    pub fn chosen(&self, blocks: usize) -> usize {
        self.selected(blocks) - (self.first + self.last) as usize
    }

    /// The least number of candidates that are chosen.
    pub const fn top_k(&self) -> usize {
        self.top_k as usize
    }

    /// The share of the blocks that is attended to where that is more.
    pub const fn ratio(&self) -> f64 {
        self.ratio
    }

    /// Blocks at the begin that are always attended to.
    pub const fn first(&self) -> usize {
        self.first as usize
    }

    /// Blocks at the end that are always attended to.
    pub const fn last(&self) -> usize {
        self.last as usize
    }
}
