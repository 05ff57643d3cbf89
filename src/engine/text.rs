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
    tokenizer: &'t Tokenizer,
    stream: TextStream<'t>,
    stop: StopTexts,
    /// Tokens that end it. They give no text.
    ends: Vec<u32>,
    /// Special tokens whose names are part of it.
    shown: Vec<u32>,
    /// Tokens in which no stop text is looked for, still to come.
    unstopped: usize,
    cause: Option<StopCause>,
}

/// What ends a text, and which special tokens it shows.
///
/// ```
/// use tilewright::engine::TextRules;
/// let rules = TextRules { stop: vec!["\n\n".to_owned()], ..TextRules::default() };
/// assert!(rules.end_tokens.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextRules {
    /// Texts before which it ends, and names of special tokens at which it does.
    pub stop: Vec<String>,
    /// Further tokens that end it, without their text.
    pub end_tokens: Vec<u32>,
    /// Special tokens whose names are part of it; the others give no text.
    pub shown: Vec<u32>,
    /// Tokens at its beginning in which no stop text is looked for.
    pub min_tokens: usize,
}

impl<'t> Text<'t> {
    /// Creates a text that ends before one of `stops`, or at the special token that one of them
    /// names.
    ///
    /// # Errors
    /// One of them is empty.
    pub fn new(tokenizer: &'t Tokenizer, stops: &[String]) -> Result<Text<'t>, EmptyStop> {
        Text::with(tokenizer, &TextRules { stop: stops.to_vec(), ..TextRules::default() })
    }

    /// Creates a text by rules.
    ///
    /// # Errors
    /// A stop text is empty.
    pub fn with(tokenizer: &'t Tokenizer, rules: &TextRules) -> Result<Text<'t>, EmptyStop> {
        let special = rules.stop.iter().filter_map(|text| tokenizer.special_id(text));
        let ends = special.chain(rules.end_tokens.iter().copied()).collect();
        let stop = StopTexts::new(rules.stop.iter().cloned())?;
        let shown = rules.shown.clone();
        Ok(Text { tokenizer, stream: tokenizer.stream(), stop, ends, shown, unstopped: rules.min_tokens, cause: None })
    }

    /// Takes the next token and returns the text that is now certain.
    ///
    /// # Errors
    /// The tokenizer cannot decode it.
    pub fn push(&mut self, token: u32) -> Result<String, TokenizerError> {
        if let Some(left) = self.unstopped.checked_sub(1) {
            self.unstopped = left;
            return self.decode(token);
        }
        if self.ends.contains(&token) {
            self.cause = Some(StopCause::StopToken(token));
            return Ok(String::new());
        }
        let text = self.decode(token)?;
        let piece = self.stop.push(&text);
        self.cause = self.stop.found().map(StopCause::StopText);
        Ok(piece)
    }

    /// The text that a token completes.
    fn decode(&mut self, token: u32) -> Result<String, TokenizerError> {
        if !self.shown.contains(&token) {
            return self.stream.push(token);
        }
        // A special token ends the characters and words before it.
        let before = std::mem::replace(&mut self.stream, self.tokenizer.stream());
        Ok(before.finish()? + &self.tokenizer.token(token).unwrap_or_default())
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
