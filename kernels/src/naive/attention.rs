//! Attention of one query head over a share of the tokens, and the merge of the shares.

use std::ops::Range;

use super::lengths::{same, whole};
use super::softmax::base_of;
use super::{Real, soft_cap};

/// The partial result of one split of the tokens: with scores `x_t = scale · q·k_t`, or
/// `cap · tanh(scale · q·k_t / cap)` under a soft cap, `m = max x_t`,
/// `l = Σ exp(x_t − m)`, `acc = Σ exp(x_t − m) · v_t`; `−∞, 0, 0` for a split without tokens, or
/// whose scores are all −∞.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitPartial<T> {
    /// Largest score.
    pub max: T,
    /// Sum of the weights.
    pub sum: T,
    /// Weighted sum of the values, `[head_dim]`.
    pub acc: Vec<T>,
}

impl<T: Real> SplitPartial<T> {
    /// The partial result of a sink, a logit that takes part in the softmax without a token: that of
    /// one token with this score whose value is zero.
    ///
    /// ```
    /// use tilewright_kernels::naive::{SplitPartial, attention, combine};
    /// let token = attention(&[1.0f64], &[0.0], &[6.0], 1.0, None);
    /// // Two equal logits, of which one has no value.
    /// assert_eq!(combine(&[token, SplitPartial::sink(0.0, 1)], 1), [3.0]);
    /// ```
    pub fn sink(logit: T, head_dim: usize) -> SplitPartial<T> {
        SplitPartial { max: logit, sum: T::ONE, acc: vec![T::ZERO; head_dim] }
    }
}

/// The tokens of split `split` of `splits`, among those that a row sees: all of a sequence, or from
/// the first token of a sliding window on.
///
/// The pages `F .. P` hold these tokens, with `F = floor(seen.start / page_tokens)` and `P =
/// ceil(seen.end / page_tokens)`. The split has the pages `F + split·w .. min(F + (split + 1)·w,
/// P)` with `w = ceil((P − F) / splits)`; of the first page it has the tokens that the row sees.
///
/// ```
/// use tilewright_kernels::naive::split_tokens;
/// assert_eq!(split_tokens(0..100, 16, 3, 0), 0..48);
/// assert_eq!(split_tokens(0..100, 16, 3, 2), 96..100);
/// assert!(split_tokens(0..100, 16, 5, 4).is_empty()); // 7 pages by twos
/// // A window of 60 tokens begins inside page 2: 5 pages by twos.
/// assert_eq!(split_tokens(40..100, 16, 3, 0), 40..64);
/// assert_eq!(split_tokens(40..100, 16, 3, 2), 96..100);
/// ```
pub fn split_tokens(seen: Range<usize>, page_tokens: usize, splits: usize, split: usize) -> Range<usize> {
    let first = seen.start / page_tokens;
    let width = (seen.end.div_ceil(page_tokens) - first).div_ceil(splits);
    let page = |split: usize| ((first + split * width) * page_tokens).max(seen.start).min(seen.end);
    page(split)..page(split + 1)
}

/// Attention of one query over the keys and values `[tokens, head_dim]` of a split,
/// `head_dim = q.len()`, with a soft cap on the scores if there is one. A sliding window is the
/// caller's: the tokens are those that the query sees.
///
/// # Panics
/// Where the keys are not a whole number of tokens, or not as many as values.
#[track_caller]
pub fn attention<T: Real>(q: &[T], keys: &[T], values: &[T], scale: T, cap: Option<T>) -> SplitPartial<T> {
    attention_by(q, keys, values, |_, product| {
        let score = product * scale;
        cap.map_or(score, |cap| soft_cap(score, cap))
    })
}

/// [`attention`] whose scores are a function of the number of a token and its product with the
/// query; −∞ where the query does not see the token.
///
/// # Panics
/// As [`attention`].
#[track_caller]
pub fn attention_by<T: Real>(q: &[T], keys: &[T], values: &[T], score: impl Fn(usize, T) -> T) -> SplitPartial<T> {
    same("attention", ["keys", "values"], [keys.len(), values.len()]);
    attention_to(q, keys, values, q.len(), score)
}

/// [`attention_by`] whose values have other columns than keys: `[tokens, columns]`.
///
/// # Panics
/// Where the keys are not a whole number of tokens, or values not as many rows.
#[track_caller]
pub fn attention_to<T: Real>(
    q: &[T],
    keys: &[T],
    values: &[T],
    columns: usize,
    score: impl Fn(usize, T) -> T,
) -> SplitPartial<T> {
    whole("attention", ["keys", "q"], [keys.len(), q.len()]);
    same("attention", ["values", "tokens times columns"], [values.len(), keys.len() / q.len() * columns]);
    let product = |k: &[T]| q.iter().zip(k).fold(T::ZERO, |sum, (&q, &k)| sum + q * k);
    let scores: Vec<T> = keys.chunks_exact(q.len()).enumerate().map(|(token, k)| score(token, product(k))).collect();
    let max = scores.iter().fold(T::NEG_INFINITY, |m, &x| if x > m { x } else { m });
    let base = base_of(scores.iter().copied());
    let mut part = SplitPartial { max, sum: T::ZERO, acc: vec![T::ZERO; columns] };
    for (&score, value) in scores.iter().zip(values.chunks_exact(columns)) {
        let weight = (score - base).exp();
        part.sum = part.sum + weight;
        for (acc, &v) in part.acc.iter_mut().zip(value) {
            *acc = *acc + weight * v;
        }
    }
    part
}

/// The merge of all splits of one query: with `M = max m_s` and `w_s = exp(m_s − M)` (0 where
/// `l_s = 0`), `Σ w_s·acc_s / Σ w_s·l_s`; zeros where no split has tokens, or every score is −∞.
pub fn combine<T: Real>(parts: &[SplitPartial<T>], head_dim: usize) -> Vec<T> {
    let base = base_of(parts.iter().map(|part| part.max));
    let mut sum = T::ZERO;
    let mut out = vec![T::ZERO; head_dim];
    for part in parts.iter().filter(|part| part.sum != T::ZERO) {
        let weight = (part.max - base).exp();
        sum = sum + weight * part.sum;
        for (out, &acc) in out.iter_mut().zip(&part.acc) {
            *out = *out + weight * acc;
        }
    }
    if sum != T::ZERO {
        for out in &mut out {
            *out = *out / sum;
        }
    }
    out
}

/// The log-sum-exp of all scores of one query, `log Σ exp(x_t)`: −∞ where no split has tokens, or
/// every score is −∞.
///
/// ```
/// use tilewright_kernels::naive::{attention, log_sum_exp};
/// let token = attention(&[1.0f64], &[3.0], &[6.0], 1.0, None);
/// assert_eq!(log_sum_exp(&[token]), 3.0);
/// ```
pub fn log_sum_exp<T: Real>(parts: &[SplitPartial<T>]) -> T {
    let base = base_of(parts.iter().map(|part| part.max));
    let weights = parts.iter().map(|part| (part.max - base).exp() * part.sum);
    base + weights.fold(T::ZERO, |sum, weight| sum + weight).ln()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::naive::softmax;

    proptest! {
        /// The splits cover every token that a row sees once, in order, and begin at pages.
        #[test]
        fn splits_partition_the_tokens(
            tokens in 0usize..500,
            window in 0usize..600,
            page in 1usize..40,
            splits in 1usize..12,
        ) {
            let seen = tokens.saturating_sub(window)..tokens;
            let of = |split| split_tokens(seen.clone(), page, splits, split);
            let covered: Vec<usize> = (0..splits).flat_map(of).collect();
            prop_assert_eq!(covered, seen.clone().collect::<Vec<_>>());
            let begins = |split| of(split).start;
            prop_assert!((1..splits).all(|s| begins(s).is_multiple_of(page) || begins(s) == tokens));
        }

        /// However the tokens are split, the merge is softmax(scale · qKᵀ)·V.
        #[test]
        fn merged_splits_are_softmax_attention(
            q in proptest::collection::vec(-2.0f64..2.0, 4),
            kv in proptest::collection::vec(-2.0f64..2.0, 8..200),
            splits in 1usize..9,
        ) {
            let tokens = kv.len() / 8;
            let (keys, values) = kv[..tokens * 8].split_at(tokens * 4);
            let scores: Vec<f64> =
                keys.chunks(4).map(|k| 0.5 * q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>()).collect();
            let weights = softmax(&scores);
            let parts: Vec<_> = (0..splits)
                .map(|s| split_tokens(0..tokens, 2, splits, s))
                .map(|t| attention(&q, &keys[t.start * 4..t.end * 4], &values[t.start * 4..t.end * 4], 0.5, None))
                .collect();
            for (d, out) in combine(&parts, 4).into_iter().enumerate() {
                let expected: f64 = weights.iter().zip(values.chunks(4)).map(|(w, v)| w * v[d]).sum();
                prop_assert!((out - expected).abs() < 1e-13, "{out} {expected}");
            }
        }
    }

    #[test]
    fn no_tokens_merge_to_zeros() {
        let empty = attention::<f32>(&[1.0, 2.0], &[], &[], 1.0, None);
        assert_eq!((empty.max, empty.sum), (f32::NEG_INFINITY, 0.0));
        assert_eq!(combine(&[empty.clone(), empty], 2), [0.0, 0.0]);
    }

    /// Scores of 20 and 40 under a cap of 10: 9.64 and 9.99, whose weights differ by a third.
    #[test]
    fn a_soft_cap_comes_between_the_scale_and_the_softmax() {
        let part = attention(&[2.0f64], &[20.0, 40.0], &[1.0, 0.0], 0.5, Some(10.0));
        let capped = [10.0 * 2f64.tanh(), 10.0 * 4f64.tanh()];
        assert_eq!(part.max, capped[1]);
        assert!((part.acc[0] - (capped[0] - capped[1]).exp()).abs() < 1e-15);
    }

    /// Keys of −∞ against positive queries: every score is −∞, in one split or all.
    #[test]
    fn scores_that_are_all_negative_infinity_give_zeros() {
        let masked = attention(&[1.0f32, 2.0], &[f32::NEG_INFINITY; 6], &[1.0; 6], 0.5, None);
        assert_eq!((masked.max, masked.sum), (f32::NEG_INFINITY, 0.0));
        assert_eq!(masked.acc, [0.0, 0.0]);
        assert_eq!(combine(&[masked.clone(), masked.clone()], 2), [0.0, 0.0]);
        let seen = attention(&[1.0f32, 2.0], &[1.0, 1.0], &[3.0, 4.0], 0.5, None);
        assert_eq!(combine(&[masked, seen], 2), [3.0, 4.0]);
    }
}
