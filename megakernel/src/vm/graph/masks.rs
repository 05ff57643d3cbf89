//! Rows whose tokens the host restricts while steps run: a launch between their logits and the
//! choice hides the others.

use super::GraphMachine;
use crate::vm::masks::MaskShape;
use crate::vm::{LaunchError, MAX_STEPS, MaskSender};

impl GraphMachine {
    /// Restricts the tokens of some rows in the next [`choose`](GraphMachine::choose) or
    /// [`run_until`](GraphMachine::run_until), and no others': its steps wait for a mask of each of
    /// these rows, also where it has ended. A mask that does not come in some seconds leaves its row
    /// without a token.
    ///
    /// # Errors
    /// [`LaunchError::NoMasks`] if the program does not sample and there are such rows; a row that is
    /// not there.
    pub fn restrict(&mut self, rows: &[usize]) -> Result<Option<MaskSender>, LaunchError> {
        let Some(sender) = self.mask_sender() else {
            return if rows.is_empty() { Ok(None) } else { Err(LaunchError::NoMasks) };
        };
        self.masked.restrict(&sender, rows)?;
        Ok(Some(sender))
    }

    /// Most steps of [`run_until`](GraphMachine::run_until) in which rows may have masks; 0: none may
    /// have any.
    pub fn masked_steps(&self) -> usize {
        match (&self.memory.masks, self.plan.alone) {
            (None, _) => 0,
            // The host sets the cells of every step.
            (Some(_), 0) => 1,
            (Some(_), _) => MAX_STEPS,
        }
    }

    fn mask_sender(&self) -> Option<MaskSender> {
        let shape = MaskShape { first: 0, rows: self.plan.rows, tokens: self.plan.mask_tokens()? };
        Some(MaskSender::new(&self.memory.masks.as_ref()?.words, shape, 0))
    }

    /// Tells the device which rows of the steps that begin have masks, and gives what releases them;
    /// nothing where there are none.
    pub(super) fn begin_masked(
        &mut self,
        masked: Vec<u32>,
        rows: &[usize],
    ) -> Result<Option<MaskRelease>, LaunchError> {
        let any = masked.contains(&1);
        let flags = self.masked.begin(masked, self.plan.rows as usize);
        if let (Some(flags), Some(memory)) = (&flags, &self.memory.masks) {
            self.stream.upload(flags, &memory.masked)?;
        }
        let Some(sender) = self.mask_sender().filter(|_| any) else { return Ok(None) };
        self.stream.upload(&[0u32], &self.memory.steps)?;
        Ok(Some(MaskRelease { sender, rows: rows.to_vec() }))
    }
}

/// Lets steps go on that wait for masks, when nothing sends these any more.
pub(super) struct MaskRelease {
    sender: MaskSender,
    rows: Vec<usize>,
}

impl Drop for MaskRelease {
    fn drop(&mut self) {
        // The rows are there.
        self.rows.iter().for_each(|&row| drop(self.sender.release(row)));
    }
}
