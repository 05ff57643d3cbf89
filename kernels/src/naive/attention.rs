//! Attention of one query head over a share of the tokens, and the merge of the shares.

use std::ops::Range;

use super::Real;
use super::lengths::{same, whole};
use super::softmax::base_of;

/// The partial result of one split of the tokens: with scores `x_t = scale · q·k_t`, `m = max x_t`,
/// `l = Σ exp(x_t − m)`, `acc = Σ exp(x_t − m) · v_t`; `−∞, 0, 0` for a split without tokens, or
/// whose scores are all −∞.
#[derive(Clone, Debug, PartialEq)]
pub struct Split<T> {
    /// Largest score.
    pub max: T,
    /// Sum of the weights.
    pub sum: T,
    /// Weighted sum of the values, `[head_dim]`.
    pub acc: Vec<T>,
}

/// The tokens of split `split` of `splits`: of the `P = ceil(tokens / page_tokens)` pages, the
/// split has `split·w .. min((split + 1)·w, P)` with `w = ceil(P / splits)`.
///
/// ```
/// use tilewright_kernels::naive::split_tokens;
/// assert_eq!(split_tokens(100, 16, 3, 0), 0..48);
/// assert_eq!(split_tokens(100, 16, 3, 2), 96..100);
/// assert!(split_tokens(100, 16, 5, 4).is_empty()); // 7 pages by twos
/// ```
pub fn split_tokens(tokens: usize, page_tokens: usize, splits: usize, split: usize) -> Range<usize> {
    let width = tokens.div_ceil(page_tokens).div_ceil(splits) * page_tokens;
    (split * width).min(tokens)..((split + 1) * width).min(tokens)
}

/// Attention of one query over the keys and values `[tokens, head_dim]` of a split,
/// `head_dim = q.len()`.
///
/// # Panics
/// Where the keys are not a whole number of tokens, or not as many as values.
#[track_caller]
pub fn attention<T: Real>(q: &[T], keys: &[T], values: &[T], scale: T) -> Split<T> {
    whole("attention", ["keys", "q"], [keys.len(), q.len()]);
    same("attention", ["keys", "values"], [keys.len(), values.len()]);
    let scores: Vec<T> = keys
        .chunks_exact(q.len())
        .map(|k| q.iter().zip(k).fold(T::ZERO, |sum, (&q, &k)| sum + q * k) * scale)
        .collect();
    let max = scores.iter().fold(T::NEG_INFINITY, |m, &x| if x > m { x } else { m });
    let base = base_of(scores.iter().copied());
    let mut part = Split { max, sum: T::ZERO, acc: vec![T::ZERO; q.len()] };
    for (&score, value) in scores.iter().zip(values.chunks_exact(q.len())) {
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
pub fn combine<T: Real>(parts: &[Split<T>], head_dim: usize) -> Vec<T> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::naive::softmax;

    proptest! {
        /// The splits cover every token once, in order.
        #[test]
        fn splits_partition_the_tokens(tokens in 0usize..500, page in 1usize..40, splits in 1usize..12) {
            let covered: Vec<usize> = (0..splits).flat_map(|s| split_tokens(tokens, page, splits, s)).collect();
            prop_assert_eq!(covered, (0..tokens).collect::<Vec<_>>());
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
                .map(|s| split_tokens(tokens, 2, splits, s))
                .map(|t| attention(&q, &keys[t.start * 4..t.end * 4], &values[t.start * 4..t.end * 4], 0.5))
                .collect();
            for (d, out) in combine(&parts, 4).into_iter().enumerate() {
                let expected: f64 = weights.iter().zip(values.chunks(4)).map(|(w, v)| w * v[d]).sum();
                prop_assert!((out - expected).abs() < 1e-13, "{out} {expected}");
            }
        }
    }

    #[test]
    fn no_tokens_merge_to_zeros() {
        let empty = attention::<f32>(&[1.0, 2.0], &[], &[], 1.0);
        assert_eq!((empty.max, empty.sum), (f32::NEG_INFINITY, 0.0));
        assert_eq!(combine(&[empty.clone(), empty], 2), [0.0, 0.0]);
    }

    /// Keys of −∞ against positive queries: every score is −∞, in one split or all.
    #[test]
    fn scores_that_are_all_negative_infinity_give_zeros() {
        let masked = attention(&[1.0f32, 2.0], &[f32::NEG_INFINITY; 6], &[1.0; 6], 0.5);
        assert_eq!((masked.max, masked.sum), (f32::NEG_INFINITY, 0.0));
        assert_eq!(masked.acc, [0.0, 0.0]);
        assert_eq!(combine(&[masked.clone(), masked.clone()], 2), [0.0, 0.0]);
        let seen = attention(&[1.0f32, 2.0], &[1.0, 1.0], &[3.0, 4.0], 0.5);
        assert_eq!(combine(&[masked, seen], 2), [3.0, 4.0]);
    }
}
