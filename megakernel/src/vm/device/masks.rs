//! Rows whose tokens the host restricts while a launch runs. Their masks lie after the tokens in the
//! words that both share.

use super::{DeviceMachine, status};
use crate::vm::masks::MaskShape;
use crate::vm::{LaunchError, MaskSender};

impl DeviceMachine {
    /// Restricts the tokens of some rows in the next launch, and no others': the kernel waits, in
    /// each of its steps, for a mask of each of these rows, before it chooses.
    ///
    /// # Errors
    /// [`LaunchError::NoMasks`] if the machine was made without the option
    /// [`masks`](super::DeviceOptions::masks) and there are such rows; a row that is not there.
    pub fn restrict(&mut self, rows: &[usize]) -> Result<Option<MaskSender>, LaunchError> {
        let Some(tokens) = self.plan.masked_tokens() else {
            return if rows.is_empty() { Ok(None) } else { Err(LaunchError::NoMasks) };
        };
        let shape = MaskShape { first: status::masks(self.plan.rows), rows: self.plan.rows, tokens };
        let sender = MaskSender::new(self.status(), shape, self.epoch());
        self.masked.restrict(&sender, rows)?;
        Ok(Some(sender))
    }

    /// Tells the devices which rows of the launch that begins have masks.
    pub(super) fn send_masked(&mut self, masked: Vec<u32>) -> Result<(), LaunchError> {
        let Some(flags) = self.masked.begin(masked, self.plan.rows as usize) else { return Ok(()) };
        for part in self.parts() {
            let memory = part.memory.masked.as_ref().ok_or(LaunchError::NoMasks)?;
            part.stream.upload(&flags, memory).map_err(|error| self.named(error))?;
        }
        Ok(())
    }
}
