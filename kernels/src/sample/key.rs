//! The token that the key of a logit ([`ranked_key`](crate::collective::ranked_key)) stands for.

use tilewright_codegen::build::Val;

use crate::collective::Warp;

/// The token of a row that is idle, has ended, or has no choice: its largest logit is infinite, or
/// all are NaN. A row without a choice ends. As an i32 it is -1.
pub const NO_TOKEN: u32 = u32::MAX;

/// The largest key of groups of `lanes` lanes, a power of two, in each lane of the group.
pub(crate) fn largest<'k>(key: Val<'k, u64>, lanes: u32) -> Val<'k, u64> {
    Warp::logical(key.builder(), lanes).reduce(key, |a, b| a.max(b))
}

/// The order of the least finite logit, −f32::MAX; that of −∞ is one less.
const LEAST_FINITE: u32 = 0x0080_0000;
/// The number of orders of finite logits; the next one is that of ∞.
const FINITE: u32 = 0xff00_0000;

/// The index that the key of a row's largest logit encodes, or [`NO_TOKEN`] where that logit is
/// infinite: then no token is the likeliest. A key of 0 encodes nothing.
pub(super) fn chosen<'k>(largest: Val<'k, u64>) -> Val<'k, u32> {
    let (index, ordered) = largest.split();
    (ordered - LEAST_FINITE).lt(FINITE).select(!index, NO_TOKEN)
}
