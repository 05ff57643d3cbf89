//! Text as its tokens arrive: a character that is not yet whole is held back.

use super::tokenizer::{Tokenizer, TokenizerError};

/// Decodes ids one at a time. The pieces, joined, are [`Tokenizer::decode`] of all the ids.
///
/// A piece is given out once no later token can change it: not while the text ends in the middle of a character, and not
/// within a run of `<0xE4>`-like byte tokens, which are read as one. Only the tokens since the last two pieces are decoded
/// each time, so the cost of a token does not grow with the text.
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
    /// The tokens of the last piece begin here: what comes after them is decoded together with them, since a decoder may
    /// treat the first token of a text differently.
    context: usize,
    /// The tokens that have given all their text end here.
    read: usize,
    /// The text given out so far.
    emitted: String,
}

impl<'t> TextStream<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer) -> TextStream<'t> {
        TextStream { tokenizer, ids: Vec::new(), context: 0, read: 0, emitted: String::new() }
    }

    /// Takes the next id and gives the text that is now certain, perhaps none.
    ///
    /// # Errors
    /// The file's decoder cannot take the ids.
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        // What decoding leaves out does not end a run of bytes either, so it is left out here.
        let Some(token) = self.tokenizer.visible_token(id) else {
            return Ok(String::new());
        };
        self.ids.push(id);
        if is_byte(&token) {
            return Ok(String::new());
        }
        let before = self.tokenizer.decode(&self.ids[self.context..self.read])?;
        let now = self.tokenizer.decode(&self.ids[self.context..])?;
        match now.strip_prefix(before.as_str()) {
            Some(piece) if !piece.is_empty() && !piece.ends_with(char::REPLACEMENT_CHARACTER) => {
                self.context = self.read;
                self.read = self.ids.len();
                self.emitted.push_str(piece);
                Ok(piece.to_owned())
            }
            _ => Ok(String::new()),
        }
    }

    /// Gives the text that was held back; what is not a whole character becomes U+FFFD.
    ///
    /// # Errors
    /// The file's decoder cannot take the ids, or rewrote text that had been given out ([`TokenizerError::Diverged`]).
    pub fn finish(self) -> Result<String, TokenizerError> {
        let whole = self.tokenizer.decode(&self.ids)?;
        match whole.strip_prefix(self.emitted.as_str()) {
            Some(rest) => Ok(rest.to_owned()),
            None => Err(TokenizerError::Diverged { emitted: self.emitted.len() }),
        }
    }
}

/// Whether a token stands for one byte: `<0x00>` to `<0xFF>`.
fn is_byte(token: &str) -> bool {
    let digits = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
}
