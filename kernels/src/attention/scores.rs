//! Score modifiers: what happens to a score between the product with the keys and the softmax.
//!
//! | modifier | effect on the score of the query at position `p` and the token at position `t` | models |
//! |---|---|---|
//! | soft cap | `x → cap·tanh(x / cap)`, where `x` is the product times the scale | Gemma 2 |
//! | sliding window | −∞ where `t ≤ p − window`: the query sees tokens `p − window + 1 ..= p` | Gemma 2, Mistral, gpt-oss, Phi-3 |
//!
//! | [`CustomScores`] | `x → f(place, x)`, a function of one's own; −∞ where the query does not see the token | ALiBi, prefix masks, documents |
//! | [`CustomMask`] | −∞ where the mask does not show the token; tiles are asked first | prefix masks, documents, blocks |
//! | sink | a logit of each head that takes part in the softmax, without a token: `exp(sink)` is added to the denominator | gpt-oss |
//!
//! They apply in the order cap, function, window, so that a token outside the window weighs nothing
//! whatever the cap. The modifiers have three forms:
//!
//! | type | holds | used by |
//! |---|---|---|
//! | [`ScoreModifier`] | values on the host | oracles, and [`split::SplitAttention`](super::split::SplitAttention) as constants |
//! | [`ScoreVariant`] | which modifiers a kernel is recorded with | [`Decode`](super::decode::Decode), [`Prefill`](super::prefill::Prefill) |
//! | [`ScoreFunction`] | values on the device: parameters of the launch, or constants | the bodies of all kernels |
//!
//! A further modifier by value is a field of all three, and is computed in
//! [`ScoreFunction::apply`]. A further reason not to see a token is a field of
//! `SeenTokens`.

use core::f32::consts::{LN_2, LOG2_E};
use core::fmt;
use core::ops::Range;

use tilewright_codegen::build::{Builder, Global, Ptr, Val};

use super::AttentionError;
use super::mask::{AttentionMask, CustomMask};
use super::merge::PartialAttention;
use super::place::ScorePlace;
use crate::activation::{SoftCap, tanh};
use crate::mma::Accumulator;
use crate::tile::Index;

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
    /// Whether each head has a sink.
    pub sinks: bool,
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
    /// assert_eq!(modifier.variant(), ScoreVariant { window: true, ..ScoreVariant::NONE });
    /// ```
    pub fn variant(self) -> ScoreVariant {
        ScoreVariant { soft_cap: self.soft_cap.is_some(), window: self.window.is_some(), sinks: false }
    }

    /// The tokens that the query at position `end − 1` sees, by position.
    pub fn seen(self, end: usize) -> Range<usize> {
        self.window.map_or(0, |window| end.saturating_sub(window as usize))..end
    }
}

impl ScoreVariant {
    /// No modifier.
    pub const NONE: ScoreVariant = ScoreVariant { soft_cap: false, window: false, sinks: false };

    /// The suffix of a kernel's name for its modifiers; empty for none.
    pub(super) fn suffix(self, own: OwnScores<'_>) -> String {
        let ScoreVariant { soft_cap, window, sinks } = self;
        let OwnScores { products, scores, mask } = own;
        let parts = [
            (soft_cap, "_cap"),
            (window, "_window"),
            (sinks, "_sinks"),
            (products.is_some() || scores.is_some(), "_custom"),
            (mask.is_some(), "_mask"),
        ];
        parts.into_iter().filter_map(|(is_set, suffix)| is_set.then_some(suffix)).collect()
    }
}

/// A function that a kernel applies to each score, from the score's place and value to what the
/// softmax takes: −∞ where the query does not see the token.
///
/// The value is the product of query and key times the scale, after a soft cap if there is one. The
/// function is also called for tokens and queries past the end of a sequence, whose results do not
/// count: a function that loads does so by [`ScorePlace::token_index`] and
/// [`ScorePlace::query_index`]. It must not store.
pub type CustomScore<'k> = Box<dyn Fn(ScorePlace<'k>, Val<'k, f32>) -> Val<'k, f32> + 'k>;

/// A score modifier of one's own: a closure that declares the parameters it needs, after all others
/// of the kernel, and returns the function of a score.
///
/// ```
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::attention::decode::{Decode, Layout};
/// use tilewright_kernels::attention::{CustomScores, ScoreVariant};
/// use tilewright_kernels::kv::CpAsync;
///
/// // ALiBi: a slope per head times the distance of the token.
/// let alibi = CustomScores(&|k| {
///     let slopes = k.global::<f32>("slopes");
///     Box::new(move |at, score| score - slopes.at(at.head).load() * (at.query - at.token).cast::<f32>())
/// });
/// let decode = Decode { depth: 128, value_depth: None, group: 4, layout: Layout::Dense, tile: 16, scores: ScoreVariant::NONE, lse: false };
/// let kernel = decode.custom(alibi).record::<CpAsync<2>>(Arch::Sm80);
/// assert_eq!(kernel.params.last().map(|param| param.name.as_str()), Some("slopes"));
/// ```
#[derive(Clone, Copy)]
pub struct CustomScores<'f>(pub &'f dyn for<'k> Fn(&'k Builder) -> CustomScore<'k>);

impl fmt::Debug for CustomScores<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomScores")
    }
}

/// The function of a [`CustomProducts`], and the factor of its results.
pub struct ScaledProducts<'k> {
    /// The factor of results, above 0 and the same in all threads: the softmax multiplies with it,
    /// which costs nothing.
    pub factor: Val<'k, f32>,
    /// The function, from a product to its score over the factor.
    pub function: CustomScore<'k>,
}

/// A [`CustomScores`] without its multiplications: the closure takes the scale, and the function
/// products that are not multiplied with it.
///
/// ```
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::activation::tanh;
/// use tilewright_kernels::attention::prefill::{Kv, Prefill, QueryLayout};
/// use tilewright_kernels::attention::{CustomProducts, ScaledProducts, ScoreVariant};
///
/// // A soft cap: cap·tanh(scale·product / cap), with one multiplication for each product.
/// let capped = CustomProducts(&|k, scale| {
///     let cap = k.param::<f32>("cap");
///     let rate = scale / cap;
///     ScaledProducts { factor: cap, function: Box::new(move |_, product| tanh(product * rate)) }
/// });
/// let prefill = Prefill {
///     depth: 128, value_depth: None, group: 1, causal: true, queries: QueryLayout::Ragged, kv: Kv::Ragged,
///     scores: ScoreVariant::NONE, lse: false,
/// };
/// tilewright_codegen::verify::verify(prefill.products(capped).record_hopper())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct CustomProducts<'f>(pub &'f dyn for<'k> Fn(&'k Builder, Val<'k, f32>) -> ScaledProducts<'k>);

impl fmt::Debug for CustomProducts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomProducts")
    }
}

/// What an author adds to an attention kernel. Its parameters come last: those of `products`, of
/// `scores`, then of `mask`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnScores<'f> {
    /// The function of products.
    pub products: Option<CustomProducts<'f>>,
    /// The score modifier; after `products` there is none.
    pub scores: Option<CustomScores<'f>>,
    /// The mask.
    pub mask: Option<CustomMask<'f>>,
}

impl OwnScores<'_> {
    /// Declares the parameters.
    pub(super) fn declare<'k>(self, k: &'k Builder, scores: ScoreFunction<'_, 'k>) -> OwnFunctions<'k> {
        let scale = || scores.softmax_scale.map_or_else(|| k.lit(LN_2), |scale| scale * LN_2);
        if self.products.is_some() && self.scores.is_some() {
            k.refuse(&"attention with a function of products and one of scores: take one of them");
        }
        OwnFunctions {
            products: self.products.map(|products| products.0(k, scale())),
            scores: self.scores.map(|scores| scores.0(k)),
            mask: self.mask.map(|mask| mask.0(k)),
        }
    }
}

/// The functions of an [`OwnScores`].
pub(super) struct OwnFunctions<'k> {
    products: Option<ScaledProducts<'k>>,
    scores: Option<CustomScore<'k>>,
    mask: Option<AttentionMask<'k>>,
}

/// An attention kernel with a score modifier or a mask of one's own.
#[derive(Clone, Copy, Debug)]
pub struct WithScores<'f, K> {
    /// The kernel.
    pub kernel: K,
    /// The modifier and the mask.
    pub own: OwnScores<'f>,
}

impl<K> From<K> for WithScores<'_, K> {
    fn from(kernel: K) -> Self {
        WithScores { kernel, own: OwnScores::default() }
    }
}

impl<'f, K> WithScores<'f, K> {
    /// Adds a function of products.
    #[must_use]
    pub fn products(self, products: CustomProducts<'f>) -> WithScores<'f, K> {
        WithScores { own: OwnScores { products: Some(products), ..self.own }, ..self }
    }

    /// Adds a score modifier.
    #[must_use]
    pub fn custom(self, scores: CustomScores<'f>) -> WithScores<'f, K> {
        WithScores { own: OwnScores { scores: Some(scores), ..self.own }, ..self }
    }

    /// Adds a mask.
    #[must_use]
    pub fn mask(self, mask: CustomMask<'f>) -> WithScores<'f, K> {
        WithScores { own: OwnScores { mask: Some(mask), ..self.own }, ..self }
    }
}

/// The function from products of queries and keys to the scores that a softmax takes: the scale and
/// the modifiers of a kernel.
#[derive(Clone, Copy)]
pub struct ScoreFunction<'f, 'k> {
    /// The factor of scores in the softmax; `None`: already applied.
    softmax_scale: Option<Val<'k, f32>>,
    cap: Option<ScoreCap<'k>>,
    custom: Option<CustomFunction<'f, 'k>>,
    mask: Option<&'f AttentionMask<'k>>,
    /// Tokens that a query sees, where these are a window.
    window: Option<Val<'k, u32>>,
    /// A logit of each query head.
    sinks: Option<Ptr<'k, Global, f32>>,
}

/// A soft cap of scores: `gain · tanh(rate · x)`.
#[derive(Clone, Copy)]
struct ScoreCap<'k> {
    rate: Val<'k, f32>,
    /// `None`: the softmax multiplies with it.
    gain: Option<Val<'k, f32>>,
}

/// A function of scores, between the factors from what comes before it to scores, and from scores
/// to what the softmax takes.
#[derive(Clone, Copy)]
struct CustomFunction<'f, 'k> {
    /// `None`: it takes products.
    before: Option<Val<'k, f32>>,
    function: &'f dyn Fn(ScorePlace<'k>, Val<'k, f32>) -> Val<'k, f32>,
    /// `None`: the softmax multiplies with it.
    after: Option<f32>,
}

/// A tile of scores in a warp's accumulator: where its rows and columns are.
#[derive(Clone, Copy)]
pub(super) struct ScoreTile<'t, 'k> {
    /// The sequence.
    pub sequence: Val<'k, u32>,
    /// The query head and position of this lane's row in that eighth of sixteen rows.
    pub row: &'t dyn Fn(u32) -> [Val<'k, u32>; 2],
    /// The position of the first column's token.
    pub first: Val<'k, u32>,
    /// Tokens of the sequence.
    pub tokens: Val<'k, u32>,
}

impl<'k> ScoreTile<'_, 'k> {
    /// Replaces the scores of the first `rows` rows of each lane.
    #[track_caller]
    fn each(
        &self,
        scores: Accumulator<'k, f32>,
        rows: u32,
        function: impl Fn(&dyn Fn() -> ScorePlace<'k>, Val<'k, f32>) -> Val<'k, f32>,
    ) {
        let ScoreTile { sequence, row, first, tokens } = *self;
        let k = first.builder();
        let columns = scores.columns(Index::lane(k));
        for (half, registers) in (0..rows).zip(scores.rows()) {
            let [head, query] = row(half);
            for at in registers {
                let place = || {
                    // The constant is added last: columns would stay in registers through the loop.
                    let token = (columns[at as usize] + first).get(k);
                    ScorePlace { sequence, head, query, token, tokens }
                };
                scores.registers().set(at, function(&place, scores.get(at)));
            }
        }
    }
}

impl<'f, 'k> ScoreFunction<'f, 'k> {
    /// Declares the parameters of the launch: `scale` (f32, the scale times log₂e), and as far as
    /// the variant has them `soft_cap` (f32), `window` (u32) and `sinks` (pointer to f32).
    pub fn declare(k: &'k Builder, variant: ScoreVariant) -> ScoreFunction<'f, 'k> {
        let scale = k.param::<f32>("scale");
        let soft_cap = variant.soft_cap.then(|| k.param::<f32>("soft_cap"));
        let window = variant.window.then(|| k.param::<u32>("window"));
        let sinks = variant.sinks.then(|| k.global::<f32>("sinks"));
        ScoreFunction {
            softmax_scale: Some(soft_cap.map_or(scale, |cap| cap * LOG2_E)),
            cap: soft_cap.map(|cap| ScoreCap { rate: scale * LN_2 / cap, gain: None }),
            custom: None,
            mask: None,
            window,
            sinks,
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
    pub fn constant(k: &'k Builder, modifier: ScoreModifier) -> ScoreFunction<'f, 'k> {
        let cap = modifier.soft_cap.map(|cap| {
            let cap = cap * LOG2_E;
            ScoreCap { rate: k.lit(1.0 / cap), gain: Some(k.lit(cap)) }
        });
        let window = modifier.window.map(|window| k.lit(window));
        ScoreFunction { softmax_scale: None, cap, custom: None, mask: None, window, sinks: None }
    }

    /// Adds a function of one's own, if there is one: the recorded function of a [`CustomScores`].
    #[must_use]
    pub fn with(
        self,
        k: &'k Builder,
        function: Option<&'f dyn Fn(ScorePlace<'k>, Val<'k, f32>) -> Val<'k, f32>>,
    ) -> ScoreFunction<'f, 'k> {
        let Some(function) = function else { return self };
        // Scores before the function are natural ones times log₂e, or what the softmax would
        // multiply.
        let before = Some(self.softmax_scale.map_or_else(|| k.lit(LN_2), |scale| scale * LN_2));
        let after = self.softmax_scale.is_none().then_some(LOG2_E);
        let softmax_scale = self.softmax_scale.map(|_| k.lit(LOG2_E));
        ScoreFunction { softmax_scale, custom: Some(CustomFunction { before, function, after }), ..self }
    }

    /// Adds the functions of one's own.
    #[must_use]
    pub(super) fn with_own(self, k: &'k Builder, own: &'f OwnFunctions<'k>) -> ScoreFunction<'f, 'k> {
        let mut scores = self.with(k, own.scores.as_deref().map(|function| function as _));
        if let Some(ScaledProducts { factor, function }) = &own.products {
            let custom = CustomFunction { before: None, function: &**function, after: None };
            scores = ScoreFunction { softmax_scale: Some(*factor * LOG2_E), custom: Some(custom), ..scores };
        }
        ScoreFunction { mask: own.mask.as_ref(), ..scores }
    }

    /// The mask of one's own, if there is one.
    pub(super) fn mask(self) -> Option<&'f AttentionMask<'k>> {
        self.mask
    }

    /// The factor by which the softmax multiplies the results of [`apply`](ScoreFunction::apply):
    /// the scale times log₂e, or the cap times log₂e; `None`: no factor.
    pub fn softmax_scale(self) -> Option<Val<'k, f32>> {
        self.softmax_scale
    }

    /// The score of a product before a function of one's own: with a soft cap `tanh(x / cap)`,
    /// times the cap unless the softmax multiplies with it. Tokens that a query does not see are
    /// masked afterwards.
    #[track_caller]
    pub fn apply(self, product: Val<'k, f32>) -> Val<'k, f32> {
        let Some(ScoreCap { rate, gain }) = self.cap else { return product };
        let capped = tanh(product * rate);
        gain.map_or(capped, |gain| capped * gain)
    }

    /// The score of a product at a place.
    #[track_caller]
    pub(super) fn apply_at(self, place: impl FnOnce() -> ScorePlace<'k>, product: Val<'k, f32>) -> Val<'k, f32> {
        let score = self.apply(product);
        let Some(CustomFunction { before, function, after }) = self.custom else { return score };
        let score = function(place(), before.map_or(score, |before| score * before));
        after.map_or(score, |after| score * after)
    }

    /// Replaces the products of the first `rows` rows of each lane by scores.
    #[track_caller]
    pub(super) fn apply_to<'t>(self, scores: Accumulator<'k, f32>, rows: u32, tile: impl FnOnce() -> ScoreTile<'t, 'k>)
    where
        'k: 't,
    {
        if self.custom.is_none() {
            if self.cap.is_some() {
                for at in scores.rows().into_iter().take(rows as usize).flatten() {
                    scores.registers().set(at, self.apply(scores.get(at)));
                }
            }
            return;
        }
        tile().each(scores, rows, |place, product| self.apply_at(place, product));
    }

    /// Hides the scores of tokens that a mask of one's own does not show, unless the tile is seen
    /// `whole`.
    #[track_caller]
    pub(super) fn mask_to<'t>(
        self,
        scores: Accumulator<'k, f32>,
        rows: u32,
        whole: impl FnOnce(&AttentionMask<'k>) -> Val<'k, bool>,
        tile: impl FnOnce() -> ScoreTile<'t, 'k>,
    ) where
        'k: 't,
    {
        let Some(mask) = self.mask else { return };
        let tile = tile();
        let k = tile.first.builder();
        k.moving().when(!whole(mask), || {
            tile.each(scores, rows, |place, score| (mask.sees)(place()).select(score, f32::NEG_INFINITY));
        });
    }

    /// The sink of a query head times log₂e, as scores of the softmax are; `None` where there are
    /// none.
    #[track_caller]
    pub fn sink(self, head: impl FnOnce() -> Val<'k, u32>) -> Option<Val<'k, f32>> {
        self.sinks.map(|sinks| load_sink(sinks.at(head())))
    }

    /// The sinks from a query head on; `None` where there are none.
    pub(super) fn sinks(self, head: impl FnOnce() -> Val<'k, u32>) -> Option<Ptr<'k, Global, f32>> {
        self.sinks.map(|sinks| sinks.at(head()))
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

/// A sink times log₂e, as scores of the softmax are.
#[track_caller]
pub(super) fn load_sink<'k>(sink: Ptr<'k, Global, f32>) -> Val<'k, f32> {
    sink.load() * LOG2_E
}

impl<'k, const N: usize> PartialAttention<'k, N> {
    /// Adds a sink, times log₂e, if there is one: a token of that score whose value is zero.
    #[track_caller]
    pub(super) fn with_sink(self, sink: Option<Val<'k, f32>>) -> PartialAttention<'k, N> {
        let Some(max) = sink else { return self };
        let k = max.builder();
        PartialAttention::merge(&[self, PartialAttention { max, sum: k.lit(1.0f32), acc: [k.lit(0.0f32); N] }])
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
