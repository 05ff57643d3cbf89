//! Score modifiers: what happens to a score between the product with the keys and the softmax.
//!
//! | modifier | effect on the score of the query at position `p` and the token at position `t` | models |
//! |---|---|---|
//! | soft cap | `x → cap·tanh(x / cap)`, where `x` is the product times the scale | Gemma 2 |
//! | sliding window | −∞ where `t ≤ p − window`: the query sees tokens `p − window + 1 ..= p` | Gemma 2, Mistral, gpt-oss, Phi-3 |
//!
//! They apply in this order, so that a token outside the window weighs nothing whatever the cap.
//! The modifiers have three forms:
//!
//! | type | holds | used by |
//! |---|---|---|
//! | [`ScoreModifier`] | values on the host | oracles, and [`split::SplitAttention`](super::split::SplitAttention) as constants |
//! | [`ScoreVariant`] | which modifiers a kernel is recorded with | [`Decode`](super::decode::Decode), [`Prefill`](super::prefill::Prefill) |
//! | [`ScoreFunction`] | values on the device: parameters of the launch, or constants | the bodies of all kernels |
//!
//! A further modifier, such as a bias by position, is a field of all three, and is computed in
//! [`ScoreFunction::apply`]. A further reason not to see a token is a field of
//! `SeenTokens`.

use core::f32::consts::{LN_2, LOG2_E};
use core::ops::Range;

use tilewright_codegen::build::{Builder, Val};

use super::AttentionError;
use crate::activation::{SoftCap, tanh};
use crate::mma::Accumulator;

/// The score modifiers of an attention layer, by value.
///
/// ```
/// use tilewright_kernels::attention::ScoreModifier;
/// // The sliding layers of Gemma 2.
/// let gemma = ScoreModifier { soft_cap: Some(50.0), window: Some(4096) };
/// gemma.check()?;
/// // The query at position 4999 sees 4096 tokens, its own included.
/// assert_eq!(gemma.seen(5000), 904..5000);
/// assert_eq!(ScoreModifier::NONE.seen(5000), 0..5000);
/// # Ok::<(), tilewright_kernels::attention::AttentionError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScoreModifier {
    /// The cap: a score `x` becomes `cap·tanh(x / cap)`, after the scale.
    pub soft_cap: Option<f32>,
    /// Tokens that a query sees, its own included.
    pub window: Option<u32>,
}

/// The score modifiers with which a kernel is recorded; their values are parameters of the launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScoreVariant {
    /// Whether scores have a soft cap.
    pub soft_cap: bool,
    /// Whether queries see a sliding window.
    pub window: bool,
}

impl ScoreModifier {
    /// No modifier: scores are products times the scale, and queries see all tokens up to theirs.
    pub const NONE: ScoreModifier = ScoreModifier { soft_cap: None, window: None };

    /// Checks the values.
    ///
    /// # Errors
    /// [`AttentionError::SoftCap`] for a cap that [`SoftCap::new`] refuses;
    /// [`AttentionError::EmptyWindow`] for a window of 0 tokens.
    pub fn check(self) -> Result<(), AttentionError> {
        let cap = self.soft_cap.map(SoftCap::new).transpose();
        cap.map_err(|error| AttentionError::SoftCap { problem: error.to_string() })?;
        if self.window == Some(0) { Err(AttentionError::EmptyWindow) } else { Ok(()) }
    }

    /// The modifiers that are set.
    ///
    /// ```
    /// use tilewright_kernels::attention::{ScoreModifier, ScoreVariant};
    /// let modifier = ScoreModifier { window: Some(512), ..ScoreModifier::NONE };
    /// assert_eq!(modifier.variant(), ScoreVariant { soft_cap: false, window: true });
    /// ```
    pub fn variant(self) -> ScoreVariant {
        ScoreVariant { soft_cap: self.soft_cap.is_some(), window: self.window.is_some() }
    }

    /// The tokens that the query at position `end − 1` sees, by position.
    pub fn seen(self, end: usize) -> Range<usize> {
        self.window.map_or(0, |window| end.saturating_sub(window as usize))..end
    }
}

impl ScoreVariant {
    /// No modifier.
    pub const NONE: ScoreVariant = ScoreVariant { soft_cap: false, window: false };

    /// The suffix of a kernel's name for its modifiers; empty for none.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            ScoreVariant { soft_cap: false, window: false } => "",
            ScoreVariant { soft_cap: true, window: false } => "_cap",
            ScoreVariant { soft_cap: false, window: true } => "_window",
            ScoreVariant { soft_cap: true, window: true } => "_cap_window",
        }
    }
}

/// The function from products of queries and keys to the scores that a softmax takes: the scale and
/// the modifiers of a kernel.
#[derive(Clone, Copy)]
pub struct ScoreFunction<'k> {
    /// The factor of scores in the softmax; `None`: already applied.
    softmax_scale: Option<Val<'k, f32>>,
    cap: Option<ScoreCap<'k>>,
    /// Tokens that a query sees, where these are a window.
    window: Option<Val<'k, u32>>,
}

/// A soft cap of scores: `gain · tanh(rate · x)`.
#[derive(Clone, Copy)]
struct ScoreCap<'k> {
    rate: Val<'k, f32>,
    /// `None`: the softmax multiplies with it.
    gain: Option<Val<'k, f32>>,
}

impl<'k> ScoreFunction<'k> {
    /// Declares the parameters of the launch: `scale` (f32, the scale times log₂e), `soft_cap`
    /// (f32, if the variant has one) and `window` (u32, if the variant has one).
    pub fn declare(k: &'k Builder, variant: ScoreVariant) -> ScoreFunction<'k> {
        let scale = k.param::<f32>("scale");
        let soft_cap = variant.soft_cap.then(|| k.param::<f32>("soft_cap"));
        let window = variant.window.then(|| k.param::<u32>("window"));
        ScoreFunction {
            softmax_scale: Some(soft_cap.map_or(scale, |cap| cap * LOG2_E)),
            cap: soft_cap.map(|cap| ScoreCap { rate: scale * LN_2 / cap, gain: None }),
            window,
        }
    }

    /// The score function of constant modifiers, for products of queries already multiplied by the
    /// scale and log₂e. The cap of such a score is the cap times log₂e.
    ///
    /// ```
    /// use tilewright_codegen::build::{block, record};
    /// use tilewright_codegen::ir::Arch;
    /// use tilewright_kernels::attention::{ScoreFunction, ScoreModifier};
    ///
    /// let modifier = ScoreModifier { soft_cap: Some(50.0), window: None };
    /// let kernel = record("capped", Arch::Sm80, block(32), |k| {
    ///     let score = k.global::<f32>("scores").at(k.tid());
    ///     score.store(ScoreFunction::constant(k, modifier).apply(score.load()));
    /// });
    /// # tilewright_codegen::verify::verify(kernel)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn constant(k: &'k Builder, modifier: ScoreModifier) -> ScoreFunction<'k> {
        let cap = modifier.soft_cap.map(|cap| {
            let cap = cap * LOG2_E;
            ScoreCap { rate: k.lit(1.0 / cap), gain: Some(k.lit(cap)) }
        });
        ScoreFunction { softmax_scale: None, cap, window: modifier.window.map(|window| k.lit(window)) }
    }

    /// The factor by which the softmax multiplies the results of [`apply`](ScoreFunction::apply):
    /// the scale times log₂e, or the cap times log₂e; `None`: no factor.
    pub fn softmax_scale(self) -> Option<Val<'k, f32>> {
        self.softmax_scale
    }

    /// The score of a product: with a soft cap `tanh(x / cap)`, times the cap unless the softmax
    /// multiplies with it. Tokens that a query does not see are masked afterwards.
    #[track_caller]
    pub fn apply(self, product: Val<'k, f32>) -> Val<'k, f32> {
        let Some(ScoreCap { rate, gain }) = self.cap else { return product };
        let capped = tanh(product * rate);
        gain.map_or(capped, |gain| capped * gain)
    }

    /// Replaces the products of the first `rows` rows of each lane by scores.
    #[track_caller]
    pub(super) fn apply_to(self, scores: Accumulator<'k, f32>, rows: u32) {
        if self.cap.is_none() {
            return;
        }
        for at in scores.rows().into_iter().take(rows as usize).flatten() {
            scores.registers().set(at, self.apply(scores.get(at)));
        }
    }

    /// Tokens that a query sees, its own included; `None` where there is no window.
    pub fn window(self) -> Option<Val<'k, u32>> {
        self.window
    }

    /// The first token that the query at position `end − 1` sees; `None` where there is no window.
    pub fn first_seen(self, end: Val<'k, u32>) -> Option<Val<'k, u32>> {
        self.window.map(|window| first_seen(end, window))
    }
}

/// The tokens of a tile that a query sees, counted from the tile's first.
#[derive(Clone, Copy)]
pub(super) struct SeenTokens<'k> {
    /// The first one, where a window may hide others.
    pub first: Option<Val<'k, u32>>,
    /// The end of the seen tokens; `None`: the end of the tile.
    pub end: Option<SeenEnd<'k>>,
}

/// The end of the tokens that a query sees.
#[derive(Clone, Copy)]
pub(super) enum SeenEnd<'k> {
    /// Before this one.
    Before(Val<'k, u32>),
    /// With this one.
    With(Val<'k, u32>),
}

impl<'k> SeenTokens<'k> {
    /// The score of a token, or −∞ where the query does not see it. Both are asked for where they
    /// are needed, the score last.
    #[track_caller]
    pub fn mask(self, token: impl Fn() -> Val<'k, u32>, score: impl FnOnce() -> Val<'k, f32>) -> Val<'k, f32> {
        let inside = self.end.map(|end| match end {
            SeenEnd::Before(end) => token().lt(end),
            SeenEnd::With(last) => token().le(last),
        });
        let seen = self.first.map(|first| token().ge(first));
        let seen = inside.into_iter().chain(seen).reduce(|inside, seen| inside & seen);
        let score = score();
        seen.map_or(score, |seen| seen.select(score, f32::NEG_INFINITY))
    }
}

/// The first token that the query at position `end − 1` sees through a window.
pub(super) fn first_seen<'k>(end: Val<'k, u32>, window: Val<'k, u32>) -> Val<'k, u32> {
    end.max(window) - window
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_no_kernel_takes_are_refused() {
        let cap = |cap| ScoreModifier { soft_cap: Some(cap), window: None }.check();
        for right in [1e-30, 0.5, 30.0, 50.0, 1e30] {
            assert_eq!(cap(right), Ok(()), "{right}");
        }
        for wrong in [0.0, -50.0, f32::NAN, f32::INFINITY, f32::MAX, 1e-40] {
            let error = cap(wrong).expect_err("refused").to_string();
            assert!(error.contains("soft cap") && error.contains(&format!("{wrong:?}")), "{error}");
        }
        let empty = ScoreModifier { soft_cap: None, window: Some(0) };
        assert_eq!(empty.check(), Err(AttentionError::EmptyWindow));
        assert_eq!(ScoreModifier { window: Some(1), ..empty }.check(), Ok(()));
    }

    /// Compares a window with that of transformers: `kv > q − window`, and causal.
    #[test]
    fn a_window_is_that_of_transformers() {
        for window in [1i64, 2, 15, 16, 17, 100] {
            let modifier = ScoreModifier { soft_cap: None, window: Some(window as u32) };
            for query in 0..60i64 {
                let sees = |token: &i64| *token > query - window && *token <= query;
                let expected: Vec<usize> = (0..60).filter(sees).map(|token| token as usize).collect();
                assert_eq!(modifier.seen(query as usize + 1).collect::<Vec<_>>(), expected);
            }
        }
    }
}
