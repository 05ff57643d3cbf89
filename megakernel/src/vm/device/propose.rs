//! Launches that propose tokens of one sequence.

use std::ops::ControlFlow;

use tilewright_kernels::sample::Request;

use super::DeviceMachine;
use super::kernel::Feeds;
use super::text::{Accepted, SCRIPT, TEXT, Text};
use crate::vm::steps::check_count;
use crate::vm::{LaunchError, StepCells};

impl DeviceMachine {
    /// Continues a sequence in one launch of at most `steps` steps. In each of them the tokens that
    /// followed its last ones when these came before are fed after the last, and as many count as
    /// the rows choose: the text is the one that steps of one row of this machine give, and comes
    /// in fewer. `each` gets what a step gave, while the next one runs, and ends the launch by
    /// `Break`. Gives how many steps it was told of.
    ///
    /// What a rejected token left in the KV pools lies after the last position.
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
        self.launch(steps as u32, Feeds::Proposals, Vec::new(), each).map(|steps| steps as usize)
    }
}
