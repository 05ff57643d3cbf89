//! The definition in f64, and by how much a kernel's result may be off.
//!
//! With `S = scale·max Σ|q·k|`, for `n` tokens of `d` columns in bf16, sums in f32, `u = 2⁻²³`
//! (twice the rounding of f32: tensor cores cut off), relative to `size = Σ w·|v| / Σ w`:
//!
//! | where | how much |
//! |---|---|
//! | a weight is rounded to bf16 for the product with V, not for the sum of the weights | 2⁻⁸ |
//! | a score is a sum of d exact products; the scale, its product with the largest score and the fused multiply-add round too. A weight is off by that much relatively, in the numerator and in the denominator | 2·S·(d + 4)·u |
//! | a soft cap is within [`SOFT_CAP_ERROR`] of its value, which is at most the cap | 2·cap·2⁻¹⁹ |
//! | a function of one's own changes a score by at most `F`, exactly up to two roundings | as `S` |
//! | a maximum that grows shrinks what was summed: an `ex2` of a rounded difference, at most once for 16 tokens and once a merge | in the next two |
//! | sums of n weights and of n weighted values, `ex2` (2⁻²²), the merges of warps and blocks, the reciprocal | 2·(n + 32)·u + 2·S·n·u |
//! | the result is rounded to bf16 | 2⁻⁸ of its value |
//!
//! A log-sum-exp is off by what the sum of the weights is off relatively, by the rounding of the
//! largest score and of the result, and by `lg2` (2⁻²²).

use tilewright_codegen::trial::{Bound, Expected};

use std::cell::Cell;
use std::ops::Range;

use half::bf16;

use crate::activation::SOFT_CAP_ERROR;
use crate::attention::ScoreModifier;
use crate::naive;

/// The largest relative error of rounding to bf16.
const ROUND: f64 = 1.0 / 256.0;

/// Keys and values of a sequence and head.
pub(super) struct CachedHead {
    /// Columns of a key and of a value.
    depths: [usize; 2],
    keys: Vec<f64>,
    values: Vec<f64>,
    sizes: Vec<f64>,
    /// Length of the longest key.
    longest: f64,
}

impl CachedHead {
    /// `[tokens, columns]` each.
    pub(super) fn new(depths: [u32; 2], [keys, values]: [Vec<f64>; 2]) -> CachedHead {
        let depths = depths.map(|depth| depth as usize);
        let longest = keys.chunks(depths[0]).map(length).fold(0.0, f64::max);
        let sizes = values.iter().map(|v| v.abs()).collect();
        CachedHead { depths, keys, values, sizes, longest }
    }
}

fn length(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// The tokens that a query sees, and the modifiers of their scores.
pub(super) struct Visible<'a> {
    /// The tokens.
    pub tokens: Range<usize>,
    /// Factor on the scores.
    pub scale: f64,
    /// The cap on the scores.
    pub soft_cap: Option<f64>,
    /// The logit that takes part in the softmax.
    pub sink: Option<f64>,
    /// A function of a token's position and score.
    pub custom: Option<&'a dyn Fn(usize, f64) -> f64>,
}

impl Visible<'_> {
    /// The tokens that the query at position `end − 1` sees.
    pub(super) fn new(modifier: ScoreModifier, end: u32, scale: f64) -> Visible<'static> {
        let soft_cap = modifier.soft_cap.map(f64::from);
        Visible { tokens: modifier.seen(end as usize), scale, soft_cap, sink: None, custom: None }
    }
}

/// A result: its values, and the largest part of the bound that does not depend on a value.
pub(super) struct AttendedValues {
    values: Vec<f64>,
    absolute: f64,
    /// The log-sum-exp of each row, and by how much it may be off.
    logs: Vec<f64>,
    logs_absolute: f64,
}

impl AttendedValues {
    /// A result of `elements` elements in rows of `depth`, none of which is known yet.
    pub(super) fn new(elements: usize, depth: u32) -> AttendedValues {
        let logs = vec![f64::NAN; elements / depth as usize];
        AttendedValues { values: vec![f64::NAN; elements], absolute: 0.0, logs, logs_absolute: 0.0 }
    }

    /// Sets the elements from `at` on to what query `q` finds in the tokens of a head that it sees.
    pub(super) fn attend(&mut self, at: usize, q: &[f64], head: &CachedHead, visible: Visible<'_>) {
        let Visible { tokens, scale, soft_cap, sink, custom } = visible;
        let [of_keys, depth] = head.depths;
        let range = |depth: usize| tokens.start * depth..tokens.end * depth;
        let changed = Cell::new(0f64);
        let score = |token: usize, product: f64| {
            let score = product * scale;
            let score = soft_cap.map_or(score, |cap| naive::soft_cap(score, cap));
            let Some(custom) = custom else { return score };
            let result = custom(tokens.start + token, score);
            if result.is_finite() {
                changed.set(changed.get().max((result - score).abs()));
            }
            result
        };
        let of = |values: &[f64]| {
            let part = naive::attention_to(q, &head.keys[range(of_keys)], &values[range(depth)], depth, score);
            let sink = sink.map(|sink| naive::SplitPartial::sink(sink, depth));
            [part].into_iter().chain(sink).collect::<Vec<_>>()
        };
        let parts = of(&head.values);
        self.values[at..at + depth].copy_from_slice(&naive::combine(&parts, depth));
        let log = naive::log_sum_exp(&parts);
        self.logs[at / depth] = log;
        let size = naive::combine(&of(&head.sizes), depth).into_iter().fold(0.0, f64::max);
        // Σ|q·k| is at most the product of the lengths.
        let scores = scale * length(q) * head.longest + changed.get();
        let n = tokens.len() as f64;
        let d = of_keys as f64;
        let capped = soft_cap.map_or(0.0, |cap| 2.0 * cap * SOFT_CAP_ERROR);
        let sums = 2.0 * (scores * (d + 4.0 + n) + n + 32.0) * 2f64.powi(-23) + capped;
        self.absolute = self.absolute.max((ROUND + sums) * size * (1.0 + ROUND));
        let of_log = if log.is_finite() { 4.0 * log.abs() * 2f64.powi(-23) } else { 0.0 };
        self.logs_absolute = self.logs_absolute.max(sums + of_log + 2f64.powi(-20));
    }

    /// The expected output of the kernel: every element.
    pub(super) fn expected(&self) -> Expected {
        Expected::near::<bf16>(&self.values, Bound { absolute: self.absolute, relative: ROUND })
    }

    /// The expected log-sum-exp of every row.
    pub(super) fn expected_logs(&self) -> Expected {
        Expected::near::<f32>(&self.logs, Bound { absolute: self.logs_absolute, relative: 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use tilewright_codegen::trial::Draw;

    use super::*;

    /// A kernel that overlooks one token of any of these numbers, or reads one too many, is outside
    /// the bound.
    #[test]
    fn one_token_more_or_less_is_found() {
        for (depth, tokens) in [(64u32, 2usize), (96, 17), (128, 64), (64, 130), (128, 200)] {
            let mut draw = Draw::new(tokens as u64);
            let mut numbers = |count: usize| -> Vec<f64> { (0..count).map(|_| draw.unit()).collect() };
            let d = depth as usize;
            let scale = 1.0 / f64::from(depth).sqrt();
            let q = numbers(d);
            let head = CachedHead::new([depth; 2], [numbers(tokens * d), numbers(tokens * d)]);
            let result = |tokens| {
                let mut result = AttendedValues::new(d, depth);
                result.attend(0, &q, &head, Visible { tokens, ..Visible::new(ScoreModifier::NONE, 0, scale) });
                result
            };
            let exact = result(0..tokens);
            for wrong in [result(0..tokens - 1), result(1..tokens)] {
                assert!(are_apart([&exact, &wrong]), "{tokens} tokens of {depth} columns");
            }
        }
    }

    /// Whether each of two results is outside the bound of the other.
    fn are_apart([a, b]: [&AttendedValues; 2]) -> bool {
        [(a, b), (b, a)].into_iter().all(|(of, other)| {
            let bound = Bound { absolute: of.absolute, relative: ROUND };
            of.values.iter().zip(&other.values).any(|(e, v)| (v - e).abs() > bound.at(*e))
        })
    }

    /// A query, and 40 tokens of 64 columns.
    fn drawn_head() -> (Vec<f64>, CachedHead) {
        let mut draw = Draw::new(7);
        let mut numbers = |count: usize| -> Vec<f64> { (0..count).map(|_| draw.unit()).collect() };
        let q = numbers(64);
        (q, CachedHead::new([64; 2], [numbers(40 * 64), numbers(40 * 64)]))
    }

    /// A kernel that leaves out a sink of the size of its scores is outside the bound.
    #[test]
    fn a_missing_sink_is_found() {
        let (q, head) = drawn_head();
        let result = |sink| {
            let mut result = AttendedValues::new(64, 64);
            result.attend(0, &q, &head, Visible { sink, ..Visible::new(ScoreModifier::NONE, 40, 0.125) });
            result
        };
        let sunk = result(Some(1.0));
        assert!(are_apart([&sunk, &result(None)]) && are_apart([&sunk, &result(Some(0.5))]));
    }

    /// A kernel that leaves out the cap, or caps before it scales, is outside the bound where
    /// scores reach the cap.
    #[test]
    fn a_missing_cap_is_found() {
        let (q, head) = drawn_head();
        let result = |scale: f64, soft_cap| {
            let mut result = AttendedValues::new(64, 64);
            result.attend(0, &q, &head, Visible { soft_cap, ..Visible::new(ScoreModifier::NONE, 40, scale) });
            result
        };
        let capped = result(0.5, Some(0.5));
        for wrong in [result(0.5, None), result(1.0, Some(0.5))] {
            assert!(are_apart([&capped, &wrong]));
        }
    }
}
