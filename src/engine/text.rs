//! The text of tokens as they arrive, up to where it stops.

use super::stop::{EmptyStop, StopTexts};
use crate::checkpoint::{TextStream, Tokenizer, TokenizerError};
use crate::engine::StopCause;

/// The text of tokens as they arrive, up to a stop text or a special token that ends it.
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use tilewright::engine::{Device, Engine, Request, Sampling, Text};
/// let engine = Engine::load("models/tiny-llama".as_ref(), Device::cpu())?;
/// let request = Request::new(engine.prompt_ids("In the beginning")?, 48);
/// let mut text = Text::new(engine.tokenizer(), &["\n\n".to_owned()])?;
/// engine.generate(&[request], Sampling::GREEDY, |_, token| {
///     print!("{}", text.push(token).unwrap_or_default());
///     if text.is_ended() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
/// })?;
/// println!("{}", text.finish()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Text<'t> {
    stream: TextStream<'t>,
    stop: StopTexts,
    /// Special tokens that end it. They have no text.
    ends: Vec<u32>,
    cause: Option<StopCause>,
}

impl<'t> Text<'t> {
    /// Creates a text that ends before one of `stops`, or at the special token that one of them
    /// names.
    ///
    /// # Errors
    /// One of them is empty.
    pub fn new(tokenizer: &'t Tokenizer, stops: &[String]) -> Result<Text<'t>, EmptyStop> {
        let ends = stops.iter().filter_map(|text| tokenizer.special_id(text)).collect();
        let stop = StopTexts::new(stops.iter().cloned())?;
        Ok(Text { stream: tokenizer.stream(), stop, ends, cause: None })
    }

    /// Takes the next token and returns the text that is now certain.
    ///
    /// # Errors
    /// The tokenizer cannot decode it.
    pub fn push(&mut self, token: u32) -> Result<String, TokenizerError> {
        let piece = self.stop.push(&self.stream.push(token)?);
        let special = || self.ends.contains(&token).then_some(StopCause::StopToken(token));
        self.cause = self.stop.found().map(StopCause::StopText).or_else(special);
        Ok(piece)
    }

    /// Whether the text has ended with the last token.
    pub fn is_ended(&self) -> bool {
        self.cause.is_some()
    }

    /// The stop condition that ended the text.
    pub fn cause(&self) -> Option<StopCause> {
        self.cause
    }

    /// Returns the text that was held back.
    ///
    /// # Errors
    /// The tokenizer cannot decode it.
    pub fn finish(mut self) -> Result<String, TokenizerError> {
        // Tokens after a stop text are not decoded.
        if self.stop.is_found() {
            return Ok(String::new());
        }
        let rest = self.stop.push(&self.stream.finish()?);
        Ok(rest + &self.stop.finish())
    }
}
