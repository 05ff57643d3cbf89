//! Sampling of the next token, defined in arithmetic that gives the same answer on every machine.
//!
//! The weight of token `i` is `2^((x_i − max x) / temperature · log2 e)` as a 32-bit fixed-point
//! number: the exponential uses IEEE additions, multiplications and one division only, and sums of
//! weights are integers, which no order of summation can change. A GPU kernel that follows this
//! page picks the same tokens.

use std::cmp::Ordering;
use std::f32::consts::{LN_2, LOG2_E};

use thiserror::Error;

use super::{argmax, philox4x32};

/// Sampling parameters: greedy, or random among the likeliest tokens.
///
/// ```
/// use tilewright_kernels::naive::{Sampling, sample};
/// let logits = [0.1, 2.0, 1.9];
/// assert_eq!(sample(&logits, &Sampling::GREEDY, 0, 0), Some(1));
/// let random = Sampling::new(0.8, Some(2), 0.95, 42)?;
/// assert_eq!(sample(&logits, &random, 7, 0), sample(&logits, &random, 7, 0));
/// # Ok::<(), tilewright_kernels::naive::SamplingError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    temperature: f32,
    top_k: Option<usize>,
    top_p: f32,
    seed: u64,
}

/// Why a choice of sampling makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum SamplingError {
    /// NaN, infinite or below 0.
    #[error("the temperature is {found}; it must be 0 (greedy) or a finite number above 0")]
    Temperature {
        /// The given value.
        found: f32,
    },
    /// NaN, 0, negative or above 1.
    #[error("top-p is {found}; it must be above 0 and at most 1 (1 keeps every token)")]
    TopP {
        /// The given value.
        found: f32,
    },
    /// No token may be chosen.
    #[error("top-k is 0; it must be at least 1 (leave it out to keep every token)")]
    TopK,
}

impl Sampling {
    /// Selects the likeliest token always.
    pub const GREEDY: Sampling = Sampling { temperature: 0.0, top_k: None, top_p: 1.0, seed: 0 };

    /// Sampling at `temperature` (0: greedy) among the `top_k` likeliest tokens, and among those
    /// the fewest whose probabilities reach `top_p`; the random numbers are a function of `seed`,
    /// step and row.
    ///
    /// # Errors
    /// If a number is outside of its range.
    pub fn new(temperature: f32, top_k: Option<usize>, top_p: f32, seed: u64) -> Result<Sampling, SamplingError> {
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return Err(SamplingError::Temperature { found: temperature });
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(SamplingError::TopP { found: top_p });
        }
        if top_k == Some(0) {
            return Err(SamplingError::TopK);
        }
        Ok(Sampling { temperature, top_k, top_p, seed })
    }

    /// The temperature; 0 is greedy.
    pub fn temperature(&self) -> f32 {
        self.temperature
    }

    /// The number of likeliest tokens that may be chosen, if that is limited.
    pub fn top_k(&self) -> Option<usize> {
        self.top_k
    }

    /// The share of the probability that the tokens which may be chosen reach.
    pub fn top_p(&self) -> f32 {
        self.top_p
    }

    /// The key of the random numbers.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether the likeliest token is always chosen.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }
}

/// Chooses a token for row `row` of step `step`; `None` if there are no logits, or the largest is
/// infinite: then no token is the likeliest, and none has a probability. A NaN counts as −∞.
///
/// 1. Order tokens by falling logit, equal ones by rising index; keep the first `top_k`.
/// 2. Keep the shortest prefix of those whose weights sum to at least `top_p` of all kept so far.
/// 3. With `u` of 64 random bits (the words 0 and 1 of Philox at counter
///    `(step, step >> 32, row, 0)`, key `seed`) and `W` the sum of the kept weights, take the first
///    kept token, by rising index, at which the running sum of weights exceeds `⌊u·W / 2⁶⁴⌋`.
pub fn sample(logits: &[f32], sampling: &Sampling, step: u64, row: u32) -> Option<usize> {
    let best = argmax(logits).filter(|&best| logits[best].is_finite())?;
    if sampling.is_greedy() {
        return Some(best);
    }
    let weight = |i: usize| weight(logits[i], logits[best], sampling.temperature);
    let kept = keep(logits, sampling, weight);
    let total: u64 = kept.iter().map(|&i| weight(i)).sum();
    let key = [sampling.seed as u32, (sampling.seed >> 32) as u32];
    let words = philox4x32([step as u32, (step >> 32) as u32, row, 0], key);
    let bits = u64::from(words[1]) << 32 | u64::from(words[0]);
    let target = ((u128::from(bits) * u128::from(total)) >> 64) as u64;
    let mut sum = 0;
    let drawn = kept.into_iter().find(|&i| {
        sum += weight(i);
        sum > target
    });
    drawn.or(Some(best))
}

/// The tokens that steps 1 and 2 keep, by rising index.
fn keep(logits: &[f32], sampling: &Sampling, weight: impl Fn(usize) -> u64) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..logits.len()).collect();
    if let Some(k) = sampling.top_k.filter(|&k| k < kept.len()) {
        kept.select_nth_unstable_by(k - 1, |&a, &b| likelier(logits, a, b));
        kept.truncate(k);
    }
    if sampling.top_p < 1.0 {
        kept.sort_unstable_by(|&a, &b| likelier(logits, a, b));
        let total: u64 = kept.iter().map(|&i| weight(i)).sum();
        let wanted = (f64::from(sampling.top_p) * total as f64).ceil() as u64;
        let mut sum = 0;
        let reached = kept.iter().position(|&i| {
            sum += weight(i);
            sum >= wanted
        });
        kept.truncate(reached.map_or(kept.len(), |at| at + 1));
    }
    kept.sort_unstable();
    kept
}

/// The order of step 1.
fn likelier(logits: &[f32], a: usize, b: usize) -> Ordering {
    let key = |i: usize| if logits[i].is_nan() { f32::NEG_INFINITY } else { logits[i] };
    key(b).partial_cmp(&key(a)).unwrap_or(Ordering::Equal).then(a.cmp(&b))
}

/// 2^f for f in −½..½: the terms ln2^k / k! of its Taylor series, the highest power first.
pub(crate) const EXP2_TERMS: [f32; 7] =
    [1.540_353e-4, 1.333_355_8e-3, 9.618_129e-3, 5.550_411e-2, 0.240_226_5, LN_2, 1.0];
/// Exponents of 2 below which a weight is 0.
pub(crate) const LEAST_EXPONENT: f32 = -40.0;

/// `⌊2³² · exp((x − max) / temperature)⌋`, to about 1e-6 relative; 2³² for the maximum, 0 for NaN.
pub(crate) fn weight(x: f32, max: f32, temperature: f32) -> u64 {
    if x == max {
        return 1 << 32;
    }
    let exponent = (x - max) / temperature * LOG2_E;
    if exponent.is_nan() || exponent < LEAST_EXPONENT {
        return 0;
    }
    let whole = exponent.round_ties_even();
    let power = EXP2_TERMS.into_iter().fold(0.0, |sum: f32, term| sum * (exponent - whole) + term);
    ((power * 4_294_967_296.0) as u64) >> -(whole as i32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::naive::softmax;

    #[test]
    fn bad_parameters_are_named() {
        let new = Sampling::new;
        assert!(matches!(new(f32::NAN, None, 1.0, 0), Err(SamplingError::Temperature { .. })));
        assert_eq!(new(-1.0, None, 1.0, 0), Err(SamplingError::Temperature { found: -1.0 }));
        assert!(matches!(new(f32::INFINITY, None, 1.0, 0), Err(SamplingError::Temperature { .. })));
        assert_eq!(new(1.0, None, 0.0, 0), Err(SamplingError::TopP { found: 0.0 }));
        assert_eq!(new(1.0, None, 1.5, 0), Err(SamplingError::TopP { found: 1.5 }));
        assert!(matches!(new(1.0, None, f32::NAN, 0), Err(SamplingError::TopP { .. })));
        assert_eq!(new(1.0, Some(0), 1.0, 0), Err(SamplingError::TopK));
        assert!(SamplingError::TopP { found: 1.5 }.to_string().contains("1.5"));
    }

    #[test]
    fn odd_logits_are_survived() {
        let hot = Sampling::new(1.0, None, 0.9, 1).unwrap();
        assert_eq!(sample(&[], &hot, 0, 0), None);
        assert_eq!(sample(&[f32::NAN, 1.0, f32::NEG_INFINITY], &hot, 0, 0), Some(1));
        for sampling in [hot, Sampling::GREEDY] {
            assert_eq!(sample(&[0.0, f32::INFINITY, 5.0], &sampling, 3, 0), None);
            assert_eq!(sample(&[f32::NAN; 4], &sampling, 0, 0), None);
            assert_eq!(sample(&[f32::NEG_INFINITY; 4], &sampling, 7, 0), None);
            assert_eq!(sample(&[f32::NAN, f32::NEG_INFINITY], &sampling, 5, 0), None);
            assert_eq!(sample(&[f32::NEG_INFINITY, f32::MIN, f32::NAN], &sampling, 5, 0), Some(1));
        }
        let cold = Sampling::new(1e-38, None, 1.0, 1).unwrap();
        assert_eq!(sample(&[1.0, 1.5, -3.0], &cold, 0, 0), Some(1));
    }

    #[test]
    fn the_frequencies_are_the_softmax() {
        let logits = [0.5f32, -1.0, 2.0, 1.5, -30.0];
        let temperature = 0.7f32;
        let sampling = Sampling::new(temperature, None, 1.0, 99).unwrap();
        let mut counts = [0u32; 5];
        let draws = 40_000;
        for step in 0..draws {
            counts[sample(&logits, &sampling, step, 3).unwrap()] += 1;
        }
        let expected = softmax(&logits.map(|x| f64::from(x) / f64::from(temperature)));
        for (count, p) in counts.into_iter().zip(expected) {
            // Five standard deviations of a binomial count.
            let n = draws as f64;
            let count = f64::from(count);
            assert!((count - n * p).abs() <= 5.0 * (n * p * (1.0 - p)).sqrt() + 1e-3, "{count} {}", n * p);
        }
    }

    #[test]
    fn steps_rows_and_seeds_draw_independently() {
        let logits = [0.0f32; 64];
        let draw = |seed, step, row| sample(&logits, &Sampling::new(1.0, None, 1.0, seed).unwrap(), step, row);
        let line = |f: &dyn Fn(u64) -> Option<usize>| (0..16).map(f).collect::<Vec<_>>();
        let base = line(&|i| draw(1, i, 0));
        assert_eq!(base, line(&|i| draw(1, i, 0)));
        assert_ne!(base, line(&|i| draw(2, i, 0)));
        assert_ne!(base, line(&|i| draw(1, i, 1)));
        assert_ne!(base, line(&|i| draw(1, i + (1 << 32), 0)));
    }

    proptest! {
        /// The fixed-point weight is the exponential.
        #[test]
        fn weights_are_exponentials(d in -20.0f32..0.0, temperature in 0.5f32..2.0) {
            let expected = (f64::from(d) / f64::from(temperature)).exp() * 4_294_967_296.0;
            let got = weight(d, 0.0, temperature) as f64;
            prop_assert!((got - expected).abs() <= 5e-6 * expected + 1.0, "{got} {expected}");
        }

        /// A draw is one of the k likeliest, and one of the fewest that reach p; greedy sampling is
        /// the argmax.
        #[test]
        fn draws_are_among_the_kept(
            logits in proptest::collection::vec(-4.0f32..4.0, 1..60),
            k in 1usize..70,
            p in 0.05f32..1.0,
            seed: u64,
            step: u64,
        ) {
            let token = sample(&logits, &Sampling::new(1.0, Some(k), p, seed).unwrap(), step, 0).unwrap();
            let better = |i: usize| likelier(&logits, i, token) == Ordering::Less;
            let before: Vec<usize> = (0..logits.len()).filter(|&i| better(i)).collect();
            prop_assert!(before.len() < k);
            let mut sorted = logits.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            sorted.truncate(k);
            let kept = softmax(&sorted.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
            prop_assert!(kept[..before.len()].iter().sum::<f64>() < f64::from(p) + 1e-5);
            prop_assert_eq!(sample(&logits, &Sampling::GREEDY, step, 0), argmax(&logits));
        }
    }
}
