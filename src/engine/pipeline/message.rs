//! Control messages between rank 0 and the other ranks, as records of a fixed size.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | the kind |
//! | 4 | bytes of the text |
//! | 48 | six numbers of 64 bits |
//! | 200 | a text, UTF-8; zeros after it |
//!
//! All numbers are little-endian. Positions, page tables, activations and logits go by
//! [`Transport`](super::Transport); the records say how many words come.

use thiserror::Error;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, MAX_ROWS};
use tilewright_megakernel::vm::StepCells;

/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = 256;
/// Numbers of a record.
const NUMBERS: usize = 6;
/// Most bytes of a record's text.
const TEXT_BYTES: usize = RECORD_BYTES - 8 - 8 * NUMBERS;

/// A control message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// Rank 0 to all: a session begins.
    Begin { session: u64, shape: Shape },
    /// Rank 0 to all: a step of `rows` rows comes from the previous rank, and the logits of
    /// `asked` rows are needed.
    Step { session: u64, rows: usize, asked: usize },
    /// Rank 0 to all: a session has ended.
    End { session: u64 },
    /// The sender is alive.
    Alive,
    /// A rank failed: the rank tells rank 0, and rank 0 all others.
    Failed { rank: usize, why: String },
    /// Rank 0 to all: the work is done.
    Bye,
}

/// The lowering options of a session, as far as ranks have to agree on them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    context: usize,
    page_tokens: usize,
    pages: usize,
    splits: Option<usize>,
    kv: String,
}

impl Shape {
    /// The shape of a session with these options.
    pub fn of(options: &LowerOptions) -> Shape {
        Shape {
            context: options.context,
            page_tokens: options.page_tokens,
            pages: options.pool_pages(),
            splits: options.splits,
            kv: options.kv.name().to_owned(),
        }
    }

    /// The options of a rank's programs; the lowering checks them.
    ///
    /// # Errors
    /// If the type of keys and values is unknown.
    pub fn options(&self) -> Result<LowerOptions, MessageError> {
        let kv = DType::from_name(&self.kv).ok_or_else(|| MessageError::Kv { found: self.kv.clone() })?;
        let Shape { page_tokens, pages, splits, .. } = *self;
        let base = LowerOptions::for_context(self.context);
        Ok(LowerOptions { page_tokens, pages: Some(pages), splits, kv, ..base })
    }
}

/// Why a message is invalid.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
#[non_exhaustive]
pub enum MessageError {
    #[error("it sent an unknown message ({found}); run the same build on all hosts")]
    Unknown { found: u32 },
    #[error("it sent a step of {found} rows; a step has 1 to {MAX_ROWS}")]
    Rows { found: usize },
    #[error("it sent a step that asks for the logits of row {found}; the step has {rows} rows")]
    Asked { found: usize, rows: usize },
    #[error("it sent `{found}` as the type of keys and values; run the same build on all hosts")]
    Kv { found: String },
    #[error("it sent a message out of turn: {found}")]
    Turn { found: String },
}

impl Message {
    /// The record of the message. A text that is too long is cut.
    pub fn record(&self) -> [u8; RECORD_BYTES] {
        let (kind, numbers, text): (u32, [u64; NUMBERS], &str) = match self {
            Message::Alive => (0, [0; NUMBERS], ""),
            Message::Begin { session, shape } => {
                let Shape { context, page_tokens, pages, splits, ref kv } = *shape;
                let [context, page_tokens, pages] = [context, page_tokens, pages].map(|number| number as u64);
                let splits = splits.map_or(u64::MAX, |splits| splits as u64);
                (1, [*session, context, page_tokens, pages, splits, 0], kv)
            }
            Message::Step { session, rows, asked } => (2, [*session, *rows as u64, *asked as u64, 0, 0, 0], ""),
            Message::End { session } => (3, [*session, 0, 0, 0, 0, 0], ""),
            Message::Failed { rank, why } => (4, [*rank as u64, 0, 0, 0, 0, 0], why),
            Message::Bye => (5, [0; NUMBERS], ""),
        };
        let end = text.floor_char_boundary(TEXT_BYTES);
        let mut record = [0; RECORD_BYTES];
        record[..4].copy_from_slice(&kind.to_le_bytes());
        record[4..8].copy_from_slice(&(end as u32).to_le_bytes());
        for (at, number) in numbers.into_iter().enumerate() {
            record[8 + 8 * at..][..8].copy_from_slice(&number.to_le_bytes());
        }
        record[RECORD_BYTES - TEXT_BYTES..][..end].copy_from_slice(&text.as_bytes()[..end]);
        record
    }

    /// The message of a record.
    ///
    /// # Errors
    /// If the record is of no known kind.
    pub fn of(record: &[u8; RECORD_BYTES]) -> Result<Message, MessageError> {
        let word = |at: usize| record[at..at + 4].iter().rev().fold(0, |word, &byte| (word << 8) | u32::from(byte));
        let number = |at: usize| u64::from(word(12 + 8 * at)) << 32 | u64::from(word(8 + 8 * at));
        let size = |at: usize| usize::try_from(number(at)).unwrap_or(usize::MAX);
        let length = (word(4) as usize).min(TEXT_BYTES);
        let text = || String::from_utf8_lossy(&record[RECORD_BYTES - TEXT_BYTES..][..length]).into_owned();
        let session = number(0);
        Ok(match word(0) {
            0 => Message::Alive,
            1 => {
                let splits = (number(4) != u64::MAX).then(|| size(4));
                let shape = Shape { context: size(1), page_tokens: size(2), pages: size(3), splits, kv: text() };
                Message::Begin { session, shape }
            }
            2 => Message::Step { session, rows: size(1), asked: size(2) },
            3 => Message::End { session },
            4 => Message::Failed { rank: size(0), why: text() },
            5 => Message::Bye,
            found => return Err(MessageError::Unknown { found }),
        })
    }

    /// The error for this message where another was expected.
    pub fn out_of_turn(&self) -> MessageError {
        MessageError::Turn { found: format!("{self:?}").chars().take(80).collect() }
    }
}

/// The words of a step: tokens for a rank that embeds them, positions, page tables, the rows whose
/// logits are needed, and the residual stream, unless that goes from device to device.
///
/// ```text
/// tokens [rows] | positions [rows] | page tables [rows, entries] | asked [asked] | residual stream [rows, hidden]
/// ```
#[derive(Debug)]
pub(super) struct StepWords {
    tokens: Vec<i32>,
    positions: Vec<i32>,
    page_table: Vec<i32>,
    asked: Vec<usize>,
    hidden: Vec<f32>,
}

/// The sizes of a step's words.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepSizes {
    /// Rows of the step.
    pub rows: usize,
    /// Rows whose logits are needed.
    pub asked: usize,
    /// Whether tokens are among the words.
    pub tokens: bool,
    /// Entries of a row's page table.
    pub entries: usize,
    /// Numbers of a row's residual stream, 0 if it goes from device to device.
    pub hidden: usize,
}

impl StepSizes {
    /// The number of words.
    ///
    /// # Errors
    /// If the step has no rows, too many, or asks for more than it has.
    pub fn words(&self) -> Result<usize, MessageError> {
        let StepSizes { rows, asked, tokens, entries, hidden } = *self;
        if !(1..=MAX_ROWS).contains(&rows) {
            return Err(MessageError::Rows { found: rows });
        }
        if asked > rows {
            return Err(MessageError::Asked { found: asked, rows });
        }
        let of_row = entries.saturating_add(hidden).saturating_add(1 + usize::from(tokens));
        Ok(rows.saturating_mul(of_row).saturating_add(asked))
    }
}

impl StepWords {
    /// The words without a residual stream; with tokens, where the cells have some.
    pub fn pack(cells: &StepCells, asked: &[usize]) -> Vec<u32> {
        let cells = cells.tokens.iter().chain(cells.positions).chain(cells.page_table).map(|&cell| cell as u32);
        cells.chain(asked.iter().map(|&row| row as u32)).collect()
    }

    /// Reads the words of a step.
    ///
    /// # Errors
    /// If a row that is asked for is beyond the step's.
    pub fn of(words: &[u32], sizes: StepSizes) -> Result<StepWords, MessageError> {
        let StepSizes { rows, asked, tokens, entries, .. } = sizes;
        let (tokens, rest) = words.split_at(if tokens { rows.min(words.len()) } else { 0 });
        let (positions, rest) = rest.split_at(rows.min(rest.len()));
        let (page_table, rest) = rest.split_at((rows * entries).min(rest.len()));
        let (asked, hidden) = rest.split_at(asked.min(rest.len()));
        if let Some(&found) = asked.iter().find(|&&row| row as usize >= rows) {
            return Err(MessageError::Asked { found: found as usize, rows });
        }
        let cells = |words: &[u32]| words.iter().map(|&word| word as i32).collect();
        Ok(StepWords {
            tokens: cells(tokens),
            positions: cells(positions),
            page_table: cells(page_table),
            asked: asked.iter().map(|&row| row as usize).collect(),
            hidden: hidden.iter().map(|&word| f32::from_bits(word)).collect(),
        })
    }

    /// The step's cells.
    pub fn cells(&self) -> StepCells<'_> {
        StepCells { tokens: &self.tokens, positions: &self.positions, page_table: &self.page_table }
    }

    /// The rows whose logits are needed.
    pub fn asked(&self) -> &[usize] {
        &self.asked
    }

    /// The residual stream.
    pub fn hidden(&self) -> &[f32] {
        &self.hidden
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn messages() -> impl Strategy<Value = Message> {
        let numbers = any::<[usize; 3]>();
        let splits = prop::option::of(0usize..1000);
        let shape = (numbers, splits, "[a-z0-9]{0,8}").prop_map(|([context, page_tokens, pages], splits, kv)| Shape {
            context,
            page_tokens,
            pages,
            splits,
            kv,
        });
        prop_oneof![
            (any::<u64>(), shape).prop_map(|(session, shape)| Message::Begin { session, shape }),
            (any::<u64>(), any::<[usize; 2]>()).prop_map(|(session, [rows, asked])| Message::Step {
                session,
                rows,
                asked
            }),
            any::<u64>().prop_map(|session| Message::End { session }),
            (any::<usize>(), ".{0,40}").prop_map(|(rank, why)| Message::Failed { rank, why }),
            prop::sample::select(vec![Message::Alive, Message::Bye]),
        ]
    }

    proptest! {
        #[test]
        fn a_message_comes_back(message in messages()) {
            prop_assert_eq!(Message::of(&message.record()).expect("a message"), message);
        }

        /// Any bytes are a message or an error.
        #[test]
        fn any_record_is_answered(bytes in prop::collection::vec(any::<u8>(), RECORD_BYTES), kind in 0u8..8) {
            let mut record: [u8; RECORD_BYTES] = bytes.try_into().expect("the size of a record");
            record[..4].copy_from_slice(&[kind, 0, 0, 0]);
            prop_assert_eq!(Message::of(&record).is_ok(), kind < 6);
        }

        #[test]
        fn a_long_reason_is_cut(why in ".{100,400}") {
            let Ok(Message::Failed { why: found, .. }) = Message::of(&Message::Failed { rank: 1, why: why.clone() }.record())
            else { panic!("a failure") };
            prop_assert!(found.len() <= TEXT_BYTES && why.starts_with(&found));
            prop_assert!(found == why || found.len() + 4 > TEXT_BYTES);
        }

        /// Whatever a step claims: as many words as that means, or an error.
        #[test]
        fn steps_have_the_words_that_they_claim(
            sizes in prop_oneof![[0usize..6, 0usize..6, 0usize..5, 0usize..5], any::<[usize; 4]>()],
            tokens in any::<bool>(),
            word in 0u32..8,
        ) {
            let [rows, asked, entries, hidden] = sizes;
            let sizes = StepSizes { rows, asked, tokens, entries, hidden };
            if let Ok(count) = sizes.words() && count < 1000 {
                match StepWords::of(&vec![word; count], sizes) {
                    Ok(step) => {
                        prop_assert_eq!(step.cells().positions.len(), rows);
                        prop_assert_eq!(step.cells().tokens.len(), if tokens { rows } else { 0 });
                        prop_assert_eq!(step.cells().page_table.len(), rows * entries);
                        prop_assert_eq!((step.asked().len(), step.hidden().len()), (asked, rows * hidden));
                        let mut packed = StepWords::pack(&step.cells(), step.asked());
                        packed.extend(step.hidden().iter().map(|x| x.to_bits()));
                        prop_assert_eq!(packed, vec![word; count]);
                    }
                    Err(error) => prop_assert!(asked > 0 && word as usize >= rows, "{}", error),
                }
            }
        }
    }
}
