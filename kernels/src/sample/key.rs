//! Logits and their numbers as keys of 64 bits, whose order is the order of tokens.

use tilewright_codegen::build::Val;

/// The token of a row that is idle, has ended, or has no choice: its largest logit is infinite, or
/// all are NaN. A row without a choice ends. As an i32 it is -1.
pub const NO_TOKEN: u32 = u32::MAX;

/// The largest key of groups of `lanes` lanes, a power of two, in each lane of the group.
pub(crate) fn largest<'k>(key: Val<'k, u64>, lanes: u32) -> Val<'k, u64> {
    (0..lanes.ilog2()).rev().fold(key, |largest, bit| {
        let (low, high) = largest.split();
        largest.max(key.builder().join(low.shfl_bfly(1u32 << bit), high.shfl_bfly(1u32 << bit)))
    })
}

/// A number that is larger where the logit is larger and, among equals, where the index is lower.
/// NaN counts as −∞, and −0 as 0.
pub(crate) fn key<'k>(value: Val<'k, f32>, index: Val<'k, u32>) -> Val<'k, u64> {
    let value = value.ne(value).select(f32::NEG_INFINITY, value) + 0.0;
    let bits = value.bits::<u32>();
    let ordered = bits.ge(1u32 << 31).select(!bits, bits | 1 << 31);
    value.builder().join::<u64>(!index, ordered)
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

/// The logit and the index that a key encodes.
pub(crate) fn unkey<'k>(key: Val<'k, u64>) -> (Val<'k, f32>, Val<'k, u32>) {
    let (index, ordered) = key.split();
    let bits = ordered.ge(1u32 << 31).select(ordered & 0x7fff_ffff, !ordered);
    (bits.bits(), !index)
}
