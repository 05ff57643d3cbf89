//! Text as its tokens arrive: a character that is not yet complete is held back.

use super::tokenizer::Tokenizer;
use crate::checkpoint::TokenizerError;
use crate::checkpoint::tokenizer::byte_of;

/// Decodes ids one at a time and returns each character as soon as it is complete.
///
/// The pieces, joined, are [`Tokenizer::decode`] of all the ids. They differ from it in one case: a
/// run of byte tokens such as `<0xE4>` that is not UTF-8 as a whole. The decoder replaces every
/// byte of such a run by U+FFFD; the stream has already returned the characters at the run's start,
/// and replaces the bytes after them.
///
/// Only the tokens since the last two pieces are decoded each time, so the cost of a token does not
/// grow with the text.
///
/// ```
/// # use tilewright::checkpoint::{Tokenizer, TokenizerError};
/// # let json = br#"{"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
/// #     "model": {"type": "WordLevel", "vocab": {"in": 0, "the": 1, "beginning": 2}, "unk_token": "the"}}"#;
/// # let tokenizer = Tokenizer::from_json(json, 3)?;
/// let mut stream = tokenizer.stream();
/// assert_eq!(stream.push(0)?, "in");
/// assert_eq!(stream.push(1)?, " the");
/// assert_eq!(stream.finish()?, "");
/// # Ok::<(), TokenizerError>(())
/// ```
pub struct TextStream<'t> {
    tokenizer: &'t Tokenizer,
    /// The ids that give text.
    ids: Vec<u32>,
    /// The tokens of the last piece begin here: what comes after them is decoded together with
    /// them, since a decoder may treat the first token of a text differently.
    context: usize,
    /// The tokens that have given all their text end here.
    read: usize,
    /// The text returned so far.
    emitted: String,
    /// The run of byte tokens at the end of `ids`.
    run: ByteRun,
    /// Whether a piece ended inside of a run of byte tokens, so that the decoder may read the whole
    /// run otherwise.
    split: bool,
}

/// A run of byte tokens, since the last piece.
#[derive(Default)]
struct ByteRun {
    bytes: Vec<u8>,
    /// Whether the bytes are not the start of any UTF-8 text.
    is_broken: bool,
}

impl ByteRun {
    /// Takes a byte; returns whether the run ends with a complete character.
    fn push(&mut self, byte: u8) -> bool {
        if self.is_broken {
            return false;
        }
        self.bytes.push(byte);
        match std::str::from_utf8(&self.bytes) {
            Ok(_) => true,
            Err(error) => {
                self.is_broken = error.error_len().is_some();
                false
            }
        }
    }
}

impl<'t> TextStream<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer) -> TextStream<'t> {
        let emitted = String::new();
        let run = ByteRun::default();
        TextStream { tokenizer, ids: Vec::new(), context: 0, read: 0, emitted, run, split: false }
    }

    /// Takes the next id and returns the text that is now complete, perhaps none.
    ///
    /// # Errors
    /// The file's decoder cannot take the ids.
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        // Tokens that decoding omits do not end a run of bytes either, so they are omitted here.
        let Some(token) = self.tokenizer.visible_token(id) else {
            return Ok(String::new());
        };
        self.ids.push(id);
        let mut cut = false;
        match byte_of(&token) {
            Some(byte) => {
                if !self.run.push(byte) {
                    return Ok(String::new());
                }
            }
            None => cut = !std::mem::take(&mut self.run).bytes.is_empty(),
        }
        let piece = self.next_piece(cut)?;
        // A decoder without byte fallback gives a byte token's own name.
        let run = std::mem::take(&mut self.run);
        let is_decoded = std::str::from_utf8(&run.bytes).is_ok_and(|text| !text.is_empty() && piece.ends_with(text));
        if piece.is_empty() || piece.ends_with(char::REPLACEMENT_CHARACTER) {
            return Ok(String::new());
        }
        self.split |= is_decoded;
        self.context = self.read;
        self.read = self.ids.len();
        self.emitted.push_str(&piece);
        Ok(piece)
    }

    /// Returns the text that was held back; what is not a complete character becomes U+FFFD.
    ///
    /// # Errors
    /// The file's decoder cannot take the ids, or rewrote text that had been returned
    /// ([`TokenizerError::Diverged`]).
    pub fn finish(self) -> Result<String, TokenizerError> {
        let whole = self.tokenizer.decode(&self.ids)?;
        match whole.strip_prefix(self.emitted.as_str()) {
            Some(rest) => Ok(rest.to_owned()),
            None if self.split => self.next_piece(!self.run.bytes.is_empty()),
            None => Err(TokenizerError::Diverged { emitted: self.emitted.len() }),
        }
    }

    /// The text of the tokens that have given none yet; `cut`: they begin with bytes of a character
    /// that never ends.
    fn next_piece(&self, cut: bool) -> Result<String, TokenizerError> {
        if cut && self.split {
            // The decoder would replace the bytes of the last piece, too, which are of the same
            // run.
            return self.tokenizer.decode(&self.ids[self.read..]);
        }
        let before = self.tokenizer.decode(&self.ids[self.context..self.read])?;
        let now = self.tokenizer.decode(&self.ids[self.context..])?;
        match now.strip_prefix(before.as_str()) {
            Some(piece) => Ok(piece.to_owned()),
            // The decoder reads the run of bytes that the last piece is part of otherwise, now that
            // it goes on.
            None if self.split => self.tokenizer.decode(&self.ids[self.read..]),
            None => Ok(String::new()),
        }
    }
}

impl Tokenizer {
    /// A decoder that is fed one id at a time.
    pub fn stream(&self) -> TextStream<'_> {
        TextStream::new(self)
    }
}
