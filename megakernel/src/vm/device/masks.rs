//! Masks of rows: the tokens that each step of a launch may choose, which the host says while the
//! launch runs. They lie after the tokens in the words that both share.

use tilewright_codegen::device::{DeviceError, Mapped};
use tilewright_kernels::sample::mask_words;

use super::{DeviceMachine, status};
use crate::vm::{LaunchError, MAX_STEPS};

/// Words of a row before its mask, a line of memory. The first is the ticket: the number of the step
/// that the mask is for, counted over all launches from 1.
pub(super) const HEAD: u32 = 32;

/// The word of the first row's ticket.
pub(super) const fn start(rows: u32) -> u32 {
    (status::TOKENS + MAX_STEPS as u32 * rows).next_multiple_of(32)
}

/// Words from a row's ticket to the next one's, of masks of that many tokens.
pub(super) const fn pitch(tokens: u32) -> u32 {
    HEAD + mask_words(tokens).next_multiple_of(32)
}

/// Sends masks to a launch, from any thread, before it begins or while it runs.
#[derive(Clone, Debug)]
pub struct MaskSender {
    words: Mapped<u32>,
    rows: usize,
    tokens: u32,
    /// Steps before the launch.
    epoch: u32,
}

impl MaskSender {
    /// Words of a mask: 32 tokens each, the first in the lowest bit.
    pub fn words(&self) -> usize {
        mask_words(self.tokens) as usize
    }

    /// Sends the mask by which a step of the launch chooses a row's token, the first step's number
    /// being 0. It may be sent once the row's token of the step before has come. A mask without a set
    /// bit lets no token follow: the row ends.
    ///
    /// # Errors
    /// [`LaunchError::Mask`] if there is no such row, or the mask has another length.
    pub fn send(&self, row: usize, step: usize, mask: &[u32]) -> Result<(), LaunchError> {
        if row >= self.rows || mask.len() != self.words() {
            let MaskSender { rows, .. } = *self;
            return Err(LaunchError::Mask { row, rows, found: mask.len(), words: self.words() });
        }
        let first = self.first(row);
        for (at, &word) in mask.iter().enumerate() {
            self.words.store(first + HEAD as usize + at, word)?;
        }
        // The ticket comes after the mask.
        Ok(self.words.store(first, self.epoch.wrapping_add(step as u32 + 1))?)
    }

    fn first(&self, row: usize) -> usize {
        start(self.rows as u32) as usize + row * pitch(self.tokens) as usize
    }

    /// Takes back what was sent for launches before.
    fn forget(&self, row: usize) -> Result<(), DeviceError> {
        self.words.store(self.first(row), self.epoch)
    }
}

/// Of each row 1 if it has a mask, else 0; of rows after the last 0.
#[derive(Default)]
pub(super) struct Masked {
    /// In the next launch.
    next: Vec<u32>,
    /// As the devices know it.
    sent: Vec<u32>,
}

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
        let words = self.status().clone();
        let sender = MaskSender { words, rows: self.plan.rows as usize, tokens, epoch: self.epoch() };
        let mut masked = vec![0; sender.rows];
        for &row in rows {
            let words = sender.words();
            *masked.get_mut(row).ok_or(LaunchError::Mask { row, rows: sender.rows, found: words, words })? = 1;
            sender.forget(row)?;
        }
        self.masked.next = masked;
        Ok(Some(sender))
    }

    /// Tells the devices which rows of the launch that begins have masks; those of the next one have
    /// none.
    pub(super) fn send_masked(&mut self) -> Result<(), LaunchError> {
        let wanted = std::mem::take(&mut self.masked.next);
        let sent = &self.masked.sent;
        // A row of which nothing is said has no mask.
        let is_sent = |row: usize| wanted.get(row).unwrap_or(&0) == sent.get(row).unwrap_or(&0);
        if (0..wanted.len().max(sent.len())).all(is_sent) {
            return Ok(());
        }
        let mut wanted = wanted;
        wanted.resize(self.plan.rows as usize, 0);
        for part in self.parts() {
            let memory = part.memory.masked.as_ref().ok_or(LaunchError::NoMasks)?;
            part.stream.upload(&wanted, memory).map_err(|error| self.named(error))?;
        }
        self.masked.sent = wanted;
        Ok(())
    }
}
