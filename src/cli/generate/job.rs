//! The work of a `generate` command.

use crate::cli::generate::args::{BatchArgs, GenerateArgs};
use crate::cli::interrupt::Interrupt;
use crate::engine::{Engine, Penalties, Request, Sampling};

/// The requests to generate, with their options.
pub(super) struct GenerationJob<'e> {
    pub(super) engine: &'e Engine,
    pub(super) requests: Vec<Request>,
    pub(super) sampling: Sampling,
    pub(super) stop: &'e [String],
    pub(super) interrupt: Interrupt,
    pub(super) args: &'e GenerateArgs,
}

impl GenerationJob<'_> {
    pub(super) fn penalties(&self) -> Penalties {
        self.args.batch.penalties(self.engine.checkpoint().generation())
    }

    /// Tokens that are never chosen.
    pub(super) fn suppressed(&self) -> &[u32] {
        &self.engine.checkpoint().generation().suppress_tokens
    }

    /// Whether something is asked for that only a batch has.
    pub(super) fn needs_batch(&self) -> bool {
        let BatchArgs { logprobs, speculate, deterministic, .. } = self.args.batch;
        let changes = !self.penalties().is_none() || !self.suppressed().is_empty();
        changes || logprobs.is_some() || speculate || deterministic
    }
}
