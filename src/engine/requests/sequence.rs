//! A request while it is there: its tokens, its pages, and how far it is.

use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

use tilewright_megakernel::vm::RequestSlot;

use super::super::request::Finish;
use super::gain::Gain;
use super::proposer::{MOST_PROPOSED, Proposer};
use super::submission::{EndTokens, Logprobs, Ticket};

/// The facts about a request that a scheduler needs.
#[derive(Debug)]
pub struct Ask {
    /// Tokens of the prompt, at least one.
    pub prompt: Vec<u32>,
    /// Most new tokens, at least one.
    pub max_new_tokens: usize,
    /// The priority: higher ones are first.
    pub priority: i32,
    /// Its deadline.
    pub expires: Option<Duration>,
    /// Whether its tokens are chosen by the host.
    pub by_host: bool,
    /// Whether they are restricted, where the host does not choose them.
    pub masked: bool,
    /// Whether tokens are proposed.
    pub speculate: bool,
    /// The tokens that end it.
    pub ends: EndTokens,
    /// Likeliest tokens at each position of the prompt whose log probabilities are wanted.
    pub prompt_logprobs: Option<usize>,
}

/// The log probabilities of a prompt's tokens so far.
#[derive(Debug)]
pub struct PromptScores {
    /// Likeliest tokens that are wanted besides the prompt's own.
    pub count: usize,
    /// Those of the tokens after the first, in order.
    pub found: Vec<Logprobs>,
}

/// The place of a request in the order of all: by priority, then by submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderKey {
    /// The higher, the earlier.
    pub priority: Reverse<i32>,
    /// The earlier, the earlier.
    pub ticket: Ticket,
}

/// A request that waits or runs.
#[derive(Debug)]
pub struct Sequence {
    /// Prompt and new tokens.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens whose keys and values are in its pages; fewer than there are tokens.
    pub computed: usize,
    /// The page of every run of tokens.
    pub pages: Vec<i32>,
    /// Pages of those that are full, and known to be so.
    pub filled: usize,
    /// Its deadline.
    pub expires: Option<Duration>,
    /// Whether its tokens are chosen by the host.
    pub by_host: bool,
    /// Whether they are restricted, where the host does not choose them.
    pub masked: bool,
    /// The proposer of tokens, if proposals are wanted.
    pub proposer: Option<Proposer>,
    /// The decision between wide and narrow steps while it runs alone.
    pub gain: Gain,
    /// The slot of its flow states while it runs.
    pub slot: Option<RequestSlot>,
    /// The tokens that end it.
    pub ends: EndTokens,
    /// Log probabilities of the prompt, until its first new token takes them.
    pub scores: Option<PromptScores>,
    priority: i32,
    max_new_tokens: usize,
}

impl Sequence {
    /// A request that has no pages.
    pub fn new(ask: Ask) -> Sequence {
        let proposer = ask.speculate.then(|| {
            let mut proposer = Proposer::default();
            proposer.read(&ask.prompt);
            proposer
        });
        Sequence {
            prompt: ask.prompt.len(),
            tokens: ask.prompt,
            computed: 0,
            pages: Vec::new(),
            filled: 0,
            expires: ask.expires,
            by_host: ask.by_host,
            masked: ask.masked,
            proposer,
            gain: Gain::default(),
            slot: None,
            ends: ask.ends,
            scores: ask.prompt_logprobs.map(|count| PromptScores { count, found: Vec::new() }),
            priority: ask.priority,
            max_new_tokens: ask.max_new_tokens,
        }
    }

    /// Its place in the order.
    pub fn place(&self, ticket: Ticket) -> OrderKey {
        OrderKey { priority: Reverse(self.priority), ticket }
    }

    /// Tokens that are still to be fed, at least one: the last one's logits give the next token.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Positions of the prompt whose logits give log probabilities that are not there yet.
    pub fn unscored(&self) -> Range<usize> {
        match &self.scores {
            Some(scores) => scores.found.len()..self.prompt - 1,
            None => 0..0,
        }
    }

    /// Tokens whose keys and values may come from pages of others: those whose logits are not
    /// wanted.
    pub fn shareable(&self) -> usize {
        let unscored = self.unscored();
        if unscored.is_empty() { usize::MAX } else { unscored.start }
    }

    /// New tokens.
    pub fn generated(&self) -> &[u32] {
        &self.tokens[self.prompt..]
    }

    /// Most tokens that it may still get, in a model of that many positions; the token after the
    /// last position is chosen, and not fed.
    pub fn left(&self, positions: usize) -> usize {
        let new = self.tokens.len() - self.prompt;
        (self.max_new_tokens - new).min((positions + 1).saturating_sub(self.tokens.len()))
    }

    /// Appends its next token, and returns the reason if it ends, in a model whose sequences end at
    /// `ends`.
    pub fn push(&mut self, token: u32, ends: &[u32], positions: usize) -> Option<Finish> {
        if let Some(proposer) = self.proposer.as_ref().filter(|_| !self.gain.is_wide()) {
            self.gain.came(token, || proposer.guess(&self.tokens, MOST_PROPOSED));
        }
        self.tokens.push(token);
        if let Some(proposer) = &mut self.proposer {
            proposer.read(&self.tokens);
        }
        if let Some(cause) = self.ends.cause(token, ends) {
            Some(Finish::Stop(cause))
        } else if self.tokens.len() - self.prompt >= self.max_new_tokens {
            Some(Finish::Length)
        } else if self.tokens.len() > positions {
            Some(Finish::Positions)
        } else {
            None
        }
    }
}
