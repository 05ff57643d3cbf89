//! A sequence that goes on by its own text: several tokens of it in a step, proposed and accepted
//! by the kernel.

use std::ops::ControlFlow;

use tilewright_kernels::sample::Request;

use super::kernel::Feeds;
use super::{DeviceMachine, Plan};
use crate::vm::steps::check_count;
use crate::vm::{LaunchError, NO_TOKEN, StepCells};

// Words of the text in memory: numbers, then tokens.
/// Tokens that there are.
pub(super) const LEN: u32 = 0;
/// Tokens that may still come.
pub(super) const LEFT: u32 = 1;
/// Most tokens that are proposed.
pub(super) const MOST: u32 = 2;
/// The start of a scripted text, in tokens, which is chosen regardless of the rows' results; 0:
/// none.
pub(super) const SCRIPT: u32 = 3;
/// The first token.
pub(super) const TEXT: u32 = 4;

/// The marker for a row whose proposed token was rejected.
pub(super) const REJECTED: u32 = u32::MAX - 1;

/// Words of a text of the longest sequence of a plan, and of as many tokens that are known.
pub(super) fn words(plan: &Plan) -> usize {
    let page_tokens = plan.cells.map_or(0, |cells| cells.page_tokens);
    // Loads reach beyond the last token, and the last of all needs no page.
    let most = plan.lengths.table_width * page_tokens + 16;
    2 * (TEXT + most).next_multiple_of(4) as usize
}

/// A sequence to continue.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Its tokens. All but the last have been fed.
    pub tokens: &'a [u32],
    /// Its pages.
    pub pages: &'a [i32],
    /// The sampling request for the next token, if the program samples.
    pub request: Option<Request>,
    /// Tokens that end it.
    pub ends: &'a [u32],
    /// Most tokens that it gets; what it ends with needs no room in its pages.
    pub left: usize,
    /// Most tokens that are proposed in a step; no more than the rows after the first.
    pub proposed: usize,
    /// Tokens that are chosen one after the other, whatever the rows would choose: the steps of a
    /// text that is known. Where it has less than `left`, zeros follow.
    pub script: Option<&'a [u32]>,
}

/// The tokens that a step accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Its tokens, at least one.
    pub tokens: Vec<u32>,
    /// Tokens that were proposed.
    pub proposed: usize,
}

impl Accepted {
    /// Decodes the words that a step published.
    fn of(words: &[u32]) -> Accepted {
        let is_token = |word: &u32| *word != NO_TOKEN && *word != REJECTED;
        let tokens: Vec<u32> = words.iter().copied().filter(is_token).collect();
        let fed = words.iter().filter(|word| **word != NO_TOKEN).count();
        Accepted { tokens, proposed: fed.saturating_sub(1) }
    }
}

impl DeviceMachine {
    /// Continues a sequence in one launch of at most `steps` steps. Each step feeds the last token,
    /// and after it the tokens that followed an earlier occurrence of the last tokens. The step
    /// accepts proposed tokens that the rows choose. The text is the same as that of single-token
    /// steps, and takes fewer steps.
    ///
    /// `each` gets the result of a step while the next one runs, and ends the launch by `Break`.
    /// Returns the number of steps that were delivered.
    ///
    /// The keys and values of rejected tokens are after the last position of the KV pools.
    ///
    /// # Errors
    /// If the machine was made without proposals
    /// ([`DeviceOptions::propose`](super::DeviceOptions::propose)); as
    /// [`DeviceMachine::run_until`].
    pub fn propose(
        &mut self,
        text: &Text,
        steps: usize,
        each: &mut dyn FnMut(&Accepted) -> ControlFlow<()>,
    ) -> Result<usize, LaunchError> {
        check_count(steps)?;
        self.plan().feedback?;
        let words = self.first().memory.text.clone().ok_or(LaunchError::NoProposals)?;
        let rows = self.plan().rows as usize;
        let lengths = self.plan().lengths;
        let width = lengths.table_width as usize;
        let (Some((&last, fed)), true) = (text.tokens.split_last(), text.pages.len() <= width && text.left > 0) else {
            return Err(LaunchError::Text {
                tokens: text.tokens.len(),
                pages: text.pages.len(),
                left: text.left,
                width,
            });
        };
        let number = |token: u32| i32::try_from(token).unwrap_or(i32::MAX);
        let mut table = text.pages.to_vec();
        table.resize(width, -1);
        let mut tokens = vec![0; rows];
        let mut positions = vec![-1; rows];
        (tokens[0], positions[0]) = (number(last), i32::try_from(fed.len()).unwrap_or(i32::MAX));
        let cells = StepCells { tokens: &tokens, positions: &positions, page_table: &table.repeat(rows) };
        // As many tokens are fed as come, the last of which is not: whatever the steps, they are in
        // these pages.
        cells.check_steps(&self.limits, text.left)?;
        self.set_ends(&vec![text.ends; rows])?;
        if let Some(request) = text.request {
            let draws: Vec<Request> =
                (0..rows as u64).map(|row| Request { step: request.step + row, ..request }).collect();
            self.set_requests(&draws)?;
        }
        self.set_cells(&cells)?;
        let capacity = words.len() / 2 - TEXT as usize;
        let proposed = text.proposed.min(rows - 1) as i32;
        let mut start = vec![text.tokens.len() as i32, text.left as i32, proposed, 0];
        start.extend(text.tokens.iter().map(|&token| number(token)));
        if let Some(script) = text.script {
            start[SCRIPT as usize] = capacity as i32;
            start.resize(TEXT as usize + capacity + text.tokens.len(), 0);
            start.extend(script.iter().take(capacity - text.tokens.len()).map(|&token| number(token)));
        }
        self.first().stream.upload(&start, &words.slice(0..start.len())?)?;
        let each = &mut |words: &[u32]| each(&Accepted::of(words));
        self.launch(steps as u32, Feeds::Proposals, each).map(|steps| steps as usize)
    }
}
