//! What `chat` asks of a model.

use std::io;

use crate::cli::Failure;

/// A message of the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whose it is: `system`, `user` or `assistant`.
    pub role: &'static str,
    /// Its text.
    pub text: String,
}

/// A model that answers.
pub trait Talker {
    /// Answers the last of the messages; `each` gets the text as it comes.
    fn answer(&mut self, turns: &[Turn], each: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<String, Failure>;
}
