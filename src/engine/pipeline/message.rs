//! Messages between the ranks of a pipeline.
//!
//! A message is a head, which says what it is, and words: cells, rows of the residual stream,
//! logits. Heads are read strictly. The number of words follows from the head and the model; the
//! receiver checks it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, MAX_ROWS};
use tilewright_megakernel::program::Span;
use tilewright_megakernel::vm::StepCells;

use super::frame::{Frame, FrameError};
use super::identity::Identity;
use super::row_transport::Rows;

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The head.
    pub head: MessageHead,
    /// The words that follow the head.
    pub words: Vec<u32>,
}

/// The head of a message: its type and fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MessageHead {
    /// A worker to the driver: its identity.
    Hello {
        /// Its rank.
        rank: usize,
        /// Ranks that it was told of.
        world: usize,
        /// Its model.
        model: Identity,
        /// The port at which the rank before it is to call.
        port: u16,
    },
    /// The driver to a worker: what it does.
    Welcome {
        /// Its layers.
        layers: Span,
        /// The next rank's address, if there is one.
        next: Option<SocketAddr>,
        /// The token that neighbours of this process group share.
        token: u64,
        /// Milliseconds for which a rank may say nothing.
        patience: u64,
        /// Numbers of the ways from device to device: from the previous rank, and to the next one
        /// if there is one. Empty where rows are words.
        ways: Vec<Vec<u8>>,
    },
    /// The driver to a worker: it does not take part.
    Refused {
        /// Why.
        why: String,
    },
    /// A worker to the next worker.
    Neighbour {
        /// Its rank.
        rank: usize,
        /// The token that the driver sent to both.
        token: u64,
    },
    /// A worker to the driver: its neighbours are there.
    Ready,
    /// From rank to rank: a session begins.
    Begin {
        /// Its number.
        session: u64,
        /// The lowering of its programs.
        shape: Shape,
    },
    /// From rank to rank: a step; words: [`StepWords`].
    Step {
        /// The session.
        session: u64,
        /// Its number.
        step: u64,
        /// Its rows.
        rows: usize,
        /// Rows whose logits are wanted.
        asked: Vec<usize>,
        /// The transport of the rows: words after the step inputs, or device to device.
        by: Rows,
    },
    /// The last rank to the driver: a step is done; words: the logits of the rows that were asked
    /// for, in their order.
    Logits {
        /// The session.
        session: u64,
        /// The number of the step.
        step: u64,
    },
    /// From rank to rank: a session has ended.
    End {
        /// Its number.
        session: u64,
    },
    /// The sender is alive.
    Alive,
    /// A rank failed: a worker tells the driver, and the driver all others.
    Failed {
        /// The rank.
        rank: usize,
        /// Why.
        why: String,
    },
    /// The driver to all: the work is done.
    Bye,
}

/// The lowering options of a session, as far as ranks have to agree on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
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

    /// The options of a stage's programs; the lowering checks them.
    ///
    /// # Errors
    /// If the type of keys and values is unknown.
    pub fn options(&self, layers: Span) -> Result<LowerOptions, MessageError> {
        let kv = DType::from_name(&self.kv).ok_or_else(|| MessageError::Kv { found: self.kv.clone() })?;
        let Shape { page_tokens, pages, splits, .. } = *self;
        let base = LowerOptions::for_context(self.context);
        Ok(LowerOptions { page_tokens, pages: Some(pages), splits, kv, layers: Some(layers), ..base })
    }
}

/// Why a message makes no sense.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
#[non_exhaustive]
pub enum MessageError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a message of another build came; run the same build on all hosts")]
    MessageHead(#[from] serde_json::Error),
    #[error("a step of {found} rows came; a step has 1 to {MAX_ROWS}")]
    Rows { found: usize },
    #[error("a step asks for the logits of row {found}, it has {rows}")]
    Asked { found: usize, rows: usize },
    #[error("{found} words came where {expected} make sense")]
    Words { found: usize, expected: usize },
    #[error("`{found}` came as the type of keys and values, which is none")]
    Kv { found: String },
    #[error("{found} ways from device to device were told, {expected} make sense")]
    Ways { found: usize, expected: usize },
    #[error("a message came out of turn: {found}")]
    Turn { found: String },
}

impl From<MessageHead> for Message {
    fn from(head: MessageHead) -> Message {
        Message { head, words: Vec::new() }
    }
}

impl Message {
    /// Encodes the message as a frame.
    ///
    /// # Errors
    /// If the head cannot be written as JSON, which no head is.
    pub fn frame(&self) -> Result<Frame, MessageError> {
        Ok(Frame { head: serde_json::to_vec(&self.head)?, words: self.words.clone() })
    }

    /// Decodes a frame.
    ///
    /// # Errors
    /// If its head is invalid.
    pub fn of(frame: Frame) -> Result<Message, MessageError> {
        Ok(Message { head: serde_json::from_slice(&frame.head)?, words: frame.words })
    }

    /// The error for this message where another was expected.
    pub fn out_of_turn(&self) -> MessageError {
        let mut found = format!("{:?}", self.head);
        if let Some((end, _)) = found.char_indices().nth(80) {
            found.truncate(end);
        }
        MessageError::Turn { found }
    }
}

/// The words of a step: positions, page tables, and the residual stream of all rows, where that
/// does not go from device to device.
///
/// ```text
/// positions [rows] i32 | page tables [rows, entries] i32 | residual stream [rows, hidden] f32
/// ```
#[derive(Debug)]
pub struct StepWords {
    positions: Vec<i32>,
    page_table: Vec<i32>,
    hidden: Vec<f32>,
}

impl StepWords {
    /// The words of a message.
    pub fn pack(cells: &StepCells, hidden: &[f32]) -> Vec<u32> {
        let cells = cells.positions.iter().chain(cells.page_table).map(|&cell| cell as u32);
        cells.chain(hidden.iter().map(|x| x.to_bits())).collect()
    }

    /// Reads the words of a step of `rows` rows, with `entries` entries of a page table and a
    /// residual stream of `hidden` numbers a row.
    ///
    /// # Errors
    /// If the step has no rows, too many or other words.
    pub fn of(words: &[u32], rows: usize, [entries, hidden]: [usize; 2]) -> Result<StepWords, MessageError> {
        if !(1..=MAX_ROWS).contains(&rows) {
            return Err(MessageError::Rows { found: rows });
        }
        let of_rows = |each: usize| rows.saturating_mul(each);
        let expected = of_rows(entries.saturating_add(hidden).saturating_add(1));
        if words.len() != expected {
            return Err(MessageError::Words { found: words.len(), expected });
        }
        let (positions, rest) = words.split_at(rows);
        let (page_table, hidden) = rest.split_at(of_rows(entries));
        let cells = |words: &[u32]| words.iter().map(|&word| word as i32).collect();
        Ok(StepWords {
            positions: cells(positions),
            page_table: cells(page_table),
            hidden: hidden.iter().map(|&word| f32::from_bits(word)).collect(),
        })
    }

    /// The cells of a stage that takes no token ids.
    pub fn cells(&self) -> StepCells<'_> {
        StepCells { tokens: &[], positions: &self.positions, page_table: &self.page_table }
    }

    /// The residual stream.
    pub fn hidden(&self) -> &[f32] {
        &self.hidden
    }
}

/// Refuses rows that a step has not.
///
/// # Errors
/// If one of them is beyond the step's, or there are more than it has.
pub fn check_asked(asked: &[usize], rows: usize) -> Result<(), MessageError> {
    match asked.iter().find(|&&row| row >= rows) {
        Some(&found) => Err(MessageError::Asked { found, rows }),
        None if asked.len() > rows => Err(MessageError::Words { found: asked.len(), expected: rows }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn heads() -> impl Strategy<Value = MessageHead> {
        let shape = Shape::of(&LowerOptions::for_context(64));
        let address = any::<[u8; 4]>().prop_map(|ip| SocketAddr::from((ip, 4711)));
        let next = prop::option::of(address);
        prop_oneof![
            (any::<[usize; 2]>(), any::<u16>()).prop_map(|([rank, world], port)| MessageHead::Hello {
                rank,
                world,
                model: Identity::default(),
                port
            }),
            (any::<[usize; 2]>(), next, any::<[u64; 2]>()).prop_map(|([lo, hi], next, [token, patience])| {
                let ways = vec![vec![7; 128]; usize::from(next.is_some())];
                MessageHead::Welcome { layers: Span { lo, hi }, next, token, patience, ways }
            }),
            ".{0,20}".prop_map(|why| MessageHead::Refused { why }),
            any::<u64>().prop_map(move |session| MessageHead::Begin { session, shape: shape.clone() }),
            (any::<[u64; 2]>(), any::<usize>(), prop::collection::vec(any::<usize>(), 0..9), any::<bool>()).prop_map(
                |([session, step], rows, asked, words)| {
                    let by = if words { Rows::Tcp } else { Rows::Nccl };
                    MessageHead::Step { session, step, rows, asked, by }
                }
            ),
            (any::<usize>(), ".{0,20}").prop_map(|(rank, why)| MessageHead::Failed { rank, why }),
            prop::sample::select(vec![MessageHead::Ready, MessageHead::Alive, MessageHead::Bye]),
        ]
    }

    proptest! {
        #[test]
        fn a_message_comes_back(head in heads(), words in prop::collection::vec(any::<u32>(), 0..20)) {
            let message = Message { head, words };
            prop_assert_eq!(Message::of(message.frame().expect("JSON")).expect("a message"), message);
        }

        /// Any head that is JSON or nearly so is a message or an error.
        #[test]
        fn heads_with_damage_are_answered(head in heads(), at: prop::sample::Index, byte: u8) {
            let mut frame = Message::from(head).frame().expect("JSON");
            let at = at.index(frame.head.len());
            frame.head[at] = byte;
            if let Ok(message) = Message::of(frame) {
                prop_assert!(message.frame().is_ok());
            }
        }

        /// Whatever numbers a step claims: as many words as they mean, or an error.
        #[test]
        fn steps_have_as_many_words_as_they_mean(
            rows in prop_oneof![0usize..6, any::<usize>()],
            sizes in prop_oneof![[0usize..5, 0usize..5], any::<[usize; 2]>()],
            words in prop::collection::vec(any::<u32>(), 0..60),
        ) {
            if let Ok(step) = StepWords::of(&words, rows, sizes) {
                prop_assert_eq!(step.cells().positions.len(), rows);
                prop_assert_eq!(StepWords::pack(&step.cells(), step.hidden()), words);
            }
        }
    }

    #[test]
    fn what_is_out_of_turn_is_told_in_few_words() {
        let long = Message::from(MessageHead::Refused { why: "é".repeat(1000) });
        assert!(long.out_of_turn().to_string().chars().count() < 130);
    }
}
