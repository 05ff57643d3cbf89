//! Log probabilities, as OpenAI's two endpoints write them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::checkpoint::Tokenizer;
use crate::engine::Token;

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
    token_logprobs: Vec<f32>,
    top_logprobs: Vec<BTreeMap<String, f32>>,
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
    /// The log probabilities of a token whose text begins at that character, if there are any; also
    /// gives the characters of the token.
    pub fn of(tokenizer: &Tokenizer, token: &Token, offset: usize) -> Option<(TextLogprobs, usize)> {
        let logprobs = token.logprobs.as_ref()?;
        let own = TokenLogprob::new(tokenizer, token.id, logprobs.chosen);
        let characters = own.token.chars().count();
        let top = logprobs.top.iter().copied().chain([(token.id, logprobs.chosen)]);
        let top = top.map(|(id, logprob)| TokenLogprob::new(tokenizer, id, logprob));
        let logprobs = TextLogprobs {
            tokens: vec![own.token],
            token_logprobs: vec![own.logprob],
            top_logprobs: vec![top.map(|top| (top.token, top.logprob)).collect()],
            text_offset: vec![offset],
        };
        Some((logprobs, characters))
    }

    /// Appends those of the tokens that follow.
    pub fn join(&mut self, later: TextLogprobs) {
        self.tokens.extend(later.tokens);
        self.token_logprobs.extend(later.token_logprobs);
        self.top_logprobs.extend(later.top_logprobs);
        self.text_offset.extend(later.text_offset);
    }
}
