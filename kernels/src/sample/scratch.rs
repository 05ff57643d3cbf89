//! Scratch memory of the choice among tokens, and which tokens may be chosen.

use tilewright_codegen::build::{Ptr, Shared, Val};
use tilewright_codegen::ir::attr::Round;

use crate::sample::{Shortlist, SumSearch, select};
use crate::warps::ConsumerWarps;

/// Most tokens of a shortlist.
pub(super) const SHORTLIST: u32 = 2048;

/// What limits the tokens that may be chosen.
#[derive(Clone, Copy)]
pub(super) struct TokenLimits<'k> {
    pub(super) top_k: Val<'k, u32>,
    pub(super) top_p: Val<'k, f32>,
}

impl<'k> TokenLimits<'k> {
    /// The sum of weights that is enough, of a total.
    pub(super) fn share(self, total: Val<'k, u64>) -> Val<'k, u64> {
        (self.top_p.cast::<f64>() * total.cast::<f64>()).round(Round::Up).cast()
    }
}

/// Shared memory that the choice uses while it runs; free again after the next barrier of the
/// consumers.
#[derive(Clone, Copy)]
pub struct SampleScratch<'k> {
    pub(super) at: Ptr<'k, Shared, u64>,
    pub(super) bins: Ptr<'k, Shared, u64>,
}

/// Words of 64 bits for the warps' sums and for what was found.
pub(super) const MEETING: u32 = 2 * 32 + 2;

impl<'k> SampleScratch<'k> {
    /// Bytes that [`sample`](crate::sample::sample) needs.
    pub const BYTES: u32 = 8 * (MEETING + select::BINS + SHORTLIST);
    /// Bytes that [`argmax`](crate::sample::argmax) needs.
    pub const ARGMAX_BYTES: u32 = 8 * MEETING;

    /// The scratch memory at an address that is aligned to 16 bytes.
    pub fn new(at: Ptr<'k, Shared, u64>) -> SampleScratch<'k> {
        SampleScratch { at, bins: at.at(MEETING) }
    }

    pub(super) fn search(self, consumers: ConsumerWarps<'k>) -> SumSearch<'k> {
        SumSearch { consumers, runs: self.at, sums: self.at.at(32u32), found: self.at.at(64u32) }
    }

    /// The shortlist of `count` tokens.
    pub(super) fn list(self, count: Val<'k, u32>) -> Shortlist<'k> {
        let tokens = self.bins.at(select::BINS).cast();
        Shortlist { tokens, logits: tokens.at(SHORTLIST).cast(), count }
    }
}
