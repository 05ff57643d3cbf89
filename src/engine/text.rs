//! The text of tokens as they come, up to where it stops.

use super::stop::{EmptyStop, StopTexts};
use crate::checkpoint::{TextStream, Tokenizer, TokenizerError};

/// The text of the tokens, up to a stop text or a special token that ends it.
pub struct Text<'t> {
    stream: TextStream<'t>,
    stop: StopTexts,
    /// Special tokens that end it. They have no text.
    ends: Vec<u32>,
    ended: bool,
}

impl<'t> Text<'t> {
    /// A text that ends before one of these, or at the special token of such a name.
    ///
    /// # Errors
    /// One of them is empty.
    pub fn new(tokenizer: &'t Tokenizer, stops: &[String]) -> Result<Text<'t>, EmptyStop> {
        let ends = stops.iter().filter_map(|text| tokenizer.special_id(text)).collect();
        let stop = StopTexts::new(stops.iter().cloned())?;
        Ok(Text { stream: tokenizer.stream(), stop, ends, ended: false })
    }

    /// The text that a token makes certain.
    ///
    /// # Errors
    /// The tokenizer cannot decode it.
    pub fn push(&mut self, token: u32) -> Result<String, TokenizerError> {
        let piece = self.stop.push(&self.stream.push(token)?);
        self.ended = self.stop.is_found() || self.ends.contains(&token);
        Ok(piece)
    }

    /// Whether it has ended with the last token.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The rest of the text.
    ///
    /// # Errors
    /// The tokenizer cannot decode it.
    pub fn finish(mut self) -> Result<String, TokenizerError> {
        // Behind a stop text no more is wanted, not even to be decoded.
        if self.stop.is_found() {
            return Ok(String::new());
        }
        let rest = self.stop.push(&self.stream.finish()?);
        Ok(rest + &self.stop.finish())
    }
}
