//! Masks of rows: the tokens that each step of a launch may choose, which the host says while the
//! launch runs.

use tilewright_codegen::device::{DeviceError, Mapped};
use tilewright_kernels::sample::{MASK_HEAD, mask_pitch, mask_words};

use super::LaunchError;

/// Sends masks to a launch, from any thread, before it begins or while it runs.
#[derive(Clone, Debug)]
pub struct MaskSender {
    words: Mapped<u32>,
    /// The word of the first row's ticket.
    first: u32,
    rows: u32,
    tokens: u32,
    /// Steps before the launch.
    epoch: u32,
}

/// The masks of all rows.
#[derive(Clone, Copy)]
pub(in crate::vm) struct MaskShape {
    /// The word of the first row's ticket.
    pub first: u32,
    pub rows: u32,
    pub tokens: u32,
}

impl MaskSender {
    pub(in crate::vm) fn new(words: &Mapped<u32>, shape: MaskShape, epoch: u32) -> MaskSender {
        let MaskShape { first, rows, tokens } = shape;
        MaskSender { words: words.clone(), first, rows, tokens, epoch }
    }

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
        let first = self.ticket(row, mask.len())?;
        for (at, &word) in mask.iter().enumerate() {
            self.words.store(first + MASK_HEAD as usize + at, word)?;
        }
        // The ticket comes after the mask.
        Ok(self.words.store(first, self.epoch.wrapping_add(step as u32 + 1))?)
    }

    /// Lets steps that wait for a row's mask go on, whatever they choose.
    pub(in crate::vm) fn release(&self, row: usize) -> Result<(), DeviceError> {
        self.words.store(self.place(row), self.epoch.wrapping_add(i32::MAX as u32))
    }

    fn place(&self, row: usize) -> usize {
        self.first as usize + row * mask_pitch(self.tokens) as usize
    }

    fn ticket(&self, row: usize, found: usize) -> Result<usize, LaunchError> {
        let (rows, words) = (self.rows as usize, self.words());
        match row < rows && found == words {
            true => Ok(self.place(row)),
            false => Err(LaunchError::Mask { row, rows, found, words }),
        }
    }
}

/// The rows that have masks. Of each row 1 if it has one, else 0; of rows after the last 0.
#[derive(Default)]
pub(in crate::vm) struct Masked {
    /// In the next launch.
    next: Vec<u32>,
    /// As the devices know it.
    sent: Vec<u32>,
}

impl Masked {
    /// Sets the rows of the next launch that have masks, and takes back what was sent for launches
    /// before.
    pub fn restrict(&mut self, sender: &MaskSender, rows: &[usize]) -> Result<(), LaunchError> {
        let mut next = vec![0; sender.rows as usize];
        for &row in rows {
            let ticket = sender.ticket(row, sender.words())?;
            next[row] = 1;
            sender.words.store(ticket, sender.epoch)?;
        }
        self.next = next;
        Ok(())
    }

    /// The flags of the launch that is asked for, whether it begins or is refused: no row of the one
    /// after it has a mask.
    pub fn take(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.next)
    }

    /// The flags of a launch that begins, if the devices know others.
    pub fn begin(&mut self, mut next: Vec<u32>, rows: usize) -> Option<Vec<u32>> {
        let [wanted, sent] = [&next, &self.sent].map(|flags| flags.iter().rposition(|&flag| flag == 1));
        if wanted == sent && wanted.is_none_or(|last| next[..=last] == self.sent[..=last]) {
            return None;
        }
        next.resize(rows, 0);
        self.sent.clone_from(&next);
        Some(next)
    }
}
