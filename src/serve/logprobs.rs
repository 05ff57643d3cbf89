//! Log probabilities, as OpenAI's two endpoints write them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::checkpoint::Tokenizer;
use crate::engine::{Logprobs, Token};

/// The log probability that stands for an impossible token, which JSON has no number for.
const IMPOSSIBLE: f32 = -9999.0;

/// A token of a chat with its log probability.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChatLogprob {
    #[serde(flatten)]
    token: TokenLogprob,
    top_logprobs: Vec<TokenLogprob>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct TokenLogprob {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

/// Tokens of a completion with their log probabilities.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TextLogprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
    text_offset: Vec<usize>,
}

impl TokenLogprob {
    fn new(tokenizer: &Tokenizer, id: u32, logprob: f32) -> TokenLogprob {
        let bytes = tokenizer.token_bytes(id).unwrap_or_default();
        TokenLogprob { token: String::from_utf8_lossy(&bytes).into_owned(), logprob: logprob.max(IMPOSSIBLE), bytes }
    }
}

impl ChatLogprob {
    /// The log probabilities of a token, if there are any.
    pub fn of(tokenizer: &Tokenizer, token: &Token) -> Option<ChatLogprob> {
        let logprobs = token.logprobs.as_ref()?;
        let of = |id, logprob| TokenLogprob::new(tokenizer, id, logprob);
        let top_logprobs = logprobs.top.iter().map(|&(id, logprob)| of(id, logprob)).collect();
        Some(ChatLogprob { token: of(token.id, logprobs.chosen), top_logprobs })
    }
}

impl TextLogprobs {
    /// Adds a token whose text begins at the character `offset`, and its log probabilities, which
    /// the first token of a text lacks; returns its characters.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32, logprobs: Option<&Logprobs>, offset: usize) -> usize {
        let chosen = logprobs.map(|logprobs| logprobs.chosen);
        let own = TokenLogprob::new(tokenizer, id, chosen.unwrap_or_default());
        // Special tokens are named here and not in the text.
        let is_special = tokenizer.special_id(&own.token) == Some(id);
        let characters = if is_special { 0 } else { own.token.chars().count() };
        let top = logprobs.map(|logprobs| logprobs.top.iter().copied().chain([(id, logprobs.chosen)]));
        let top = top.map(|top| top.map(|(id, logprob)| TokenLogprob::new(tokenizer, id, logprob)));
        self.tokens.push(own.token);
        self.token_logprobs.push(chosen.map(|_| own.logprob));
        self.top_logprobs.push(top.map(|top| top.map(|top| (top.token, top.logprob)).collect()));
        self.text_offset.push(offset);
        characters
    }

    /// Appends those of the tokens that follow.
    pub fn join(&mut self, later: TextLogprobs) {
        self.tokens.extend(later.tokens);
        self.token_logprobs.extend(later.token_logprobs);
        self.top_logprobs.extend(later.top_logprobs);
        self.text_offset.extend(later.text_offset);
    }
}
