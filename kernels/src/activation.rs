//! Functions of one number in the epilogues of products and in attention: the [`Activation`] of a
//! gate, `tanh` and the soft cap.
//!
//! `tanh.approx` has a relative error of 2⁻¹¹, too much for logits. [`tanh`] is built from `ex2`
//! and `rcp` instead, and [`soft_cap`] from it.

use core::f32::consts::LOG2_E;
use core::f64;
use std::hash::{Hash, Hasher};

use thiserror::Error;
use tilewright_codegen::build::Val;

/// The activation function of a gated product's gate.
///
/// [`Activation::apply`] records it in a kernel; [`naive::activate`](crate::naive::activate) is its
/// definition.
///
/// ```
/// use tilewright_codegen::build::{block, record};
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::activation::Activation;
///
/// let kernel = record("gelu", Arch::Sm80, block(32), |k| {
///     let x = k.global::<f32>("x").at(k.tid());
///     x.store(Activation::GeluTanh.apply(x.load()));
/// });
/// # tilewright_codegen::verify::verify(kernel)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x · sigmoid(x) = x / (1 + exp(−x))`.
    #[default]
    Silu,
    /// GELU by its approximation with tanh: `x / 2 · (1 + tanh(u))`, where
    /// `u = √(2/π) · (x + 0.044715 x³)`. That is `x / (1 + exp(−2u))`.
    GeluTanh,
    /// That of gpt-oss: `min(x, limit) · sigmoid(alpha · min(x, limit))`. As a gate it multiplies
    /// `u + 1`, where `u` is the other factor, within `±limit`.
    ClampedSwiglu(ClampedSwiglu),
}

/// The numbers of [`Activation::ClampedSwiglu`]: both positive.
///
/// ```
/// use tilewright_kernels::activation::ClampedSwiglu;
/// let gate = ClampedSwiglu::new(1.702, 7.0)?;
/// assert_eq!((gate.alpha(), gate.limit()), (1.702, 7.0));
/// let error = ClampedSwiglu::new(1.702, 0.0).unwrap_err().to_string();
/// assert_eq!(error, "the numbers of a clamped gate must be from 1e-30 to 1e30, got alpha 1.702 and limit 0.0");
/// # Ok::<(), tilewright_kernels::activation::ClampedSwigluError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClampedSwiglu {
    alpha: f32,
    limit: f32,
}

/// Numbers that no clamped gate has.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("the numbers of a clamped gate must be from 1e-30 to 1e30, got alpha {alpha:?} and limit {limit:?}")]
pub struct ClampedSwigluError {
    /// The factor in the sigmoid.
    pub alpha: f32,
    /// The bound.
    pub limit: f32,
}

impl ClampedSwiglu {
    /// The gate with a factor in the sigmoid and a bound.
    ///
    /// # Errors
    /// For a number that is not from 1e-30 to 1e30.
    pub fn new(alpha: f32, limit: f32) -> Result<ClampedSwiglu, ClampedSwigluError> {
        let sound = [alpha, limit].into_iter().all(|number| (1e-30..=1e30).contains(&number));
        if sound { Ok(ClampedSwiglu { alpha, limit }) } else { Err(ClampedSwigluError { alpha, limit }) }
    }

    /// The factor in the sigmoid.
    pub fn alpha(self) -> f32 {
        self.alpha
    }

    /// The bound of the gate, and of the other factor's magnitude.
    pub fn limit(self) -> f32 {
        self.limit
    }
}

/// Neither number is NaN.
impl Eq for ClampedSwiglu {}

impl Hash for ClampedSwiglu {
    fn hash<H: Hasher>(&self, state: &mut H) {
        [self.alpha, self.limit].map(f32::to_bits).hash(state);
    }
}

/// `2 · √(2/π)`: how many times `x + 0.044715 x³` is in `2u` of [`Activation::GeluTanh`].
pub(crate) const GELU_SLOPE: f64 = f64::consts::FRAC_2_SQRT_PI * f64::consts::SQRT_2;
/// The coefficient of `x³` in [`Activation::GeluTanh`].
pub(crate) const GELU_CUBIC: f64 = 0.044_715;

impl Activation {
    /// All of them, the last with gpt-oss's numbers.
    pub const ALL: [Activation; 3] = [Activation::Silu, Activation::GeluTanh, Activation::GPT_OSS];
    /// That of gpt-oss's models.
    pub const GPT_OSS: Activation = Activation::ClampedSwiglu(ClampedSwiglu { alpha: 1.702, limit: 7.0 });

    /// Its name, as kernels that are specialised for it have it in theirs.
    pub fn name(self) -> &'static str {
        match self {
            Activation::Silu => "silu",
            Activation::GeluTanh => "gelu_tanh",
            Activation::ClampedSwiglu(_) => "clamped_swiglu",
        }
    }

    /// Applies it in f32 by one `ex2` and one approximate division, within [`Activation::error`].
    #[track_caller]
    pub fn apply(self, x: Val<'_, f32>) -> Val<'_, f32> {
        let x = match self {
            Activation::Silu | Activation::GeluTanh => x,
            // Comparisons with a NaN are false, so that it stays.
            Activation::ClampedSwiglu(clamp) => x.gt(clamp.limit).select(clamp.limit, x),
        };
        // The power of two that the exponential is. Far below zero it overflows, and the quotient
        // is a zero.
        let exponent = match self {
            Activation::Silu => x * -LOG2_E,
            Activation::ClampedSwiglu(clamp) => x * (-LOG2_E * clamp.alpha),
            Activation::GeluTanh => {
                let linear = -GELU_SLOPE * f64::consts::LOG2_E;
                (x * x).fma((linear * GELU_CUBIC) as f32, linear as f32) * x
            }
        };
        x.div_approx(exponent.ex2() + 1.0)
    }

    /// What a gate multiplies, from the other factor `u`: `u` itself but for
    /// [`Activation::ClampedSwiglu`].
    #[track_caller]
    pub fn factor(self, u: Val<'_, f32>) -> Val<'_, f32> {
        let Activation::ClampedSwiglu(ClampedSwiglu { limit, .. }) = self else { return u };
        let u = u.gt(limit).select(limit, u);
        u.lt(-limit).select(-limit, u) + 1.0
    }

    /// A bound on the magnitude of its derivative: by how much it amplifies the error of a sum.
    pub fn slope(self) -> f64 {
        match self {
            Activation::Silu | Activation::ClampedSwiglu(_) => 1.1,
            Activation::GeluTanh => 1.13,
        }
    }
}

/// The square of the magnitude below which [`tanh`] is a polynomial: `1 − 2/(e²ˣ + 1)` cancels near
/// zero.
const SMALL_SQUARED: f32 = 0.4 * 0.4;

/// Minimax coefficients of `(tanh(x) − x) / x³` in `x²` for `|x| ≤ 0.4`, highest first: the
/// polynomial is off by 1.2e-7 of tanh(x) at most.
const SMALL: [f32; 3] = [-0.047_794_215, 0.132_776_29, -0.333_318_83];

/// The hyperbolic tangent, within 2⁻¹⁹ of its value.
///
/// The largest error is just below −0.4, where `ex2` (2⁻²²), the sum and `rcp` (2⁻²³) are off by
/// 4e-7 of 0.38. It costs one `ex2`, one `rcp` and nine other instructions, and no branch.
/// Infinities give ±1; NaN stays NaN; a zero keeps its sign.
///
/// ```
/// use tilewright_codegen::build::{block, record};
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::activation::tanh;
///
/// let kernel = record("tanh", Arch::Sm80, block(32), |k| {
///     let x = k.global::<f32>("x").at(k.tid());
///     x.store(tanh(x.load()));
/// });
/// # tilewright_codegen::verify::verify(kernel)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn tanh(x: Val<'_, f32>) -> Val<'_, f32> {
    let large = ((x * (2.0 * LOG2_E)).ex2() + 1.0).recip_approx().fma(-2.0, 1.0);
    let squared = x * x;
    let [fifth, third, first] = SMALL;
    let polynomial = squared.fma(fifth, third).fma(squared, first);
    let small = (polynomial * squared).fma(x, x);
    squared.lt(SMALL_SQUARED).select(small, large)
}

/// The soft cap `cap · tanh(x / cap)` of a score or a logit, within 2⁻¹⁹ of its value; `cap` is
/// positive, and neither it nor its reciprocal overflows.
///
/// ```
/// use tilewright_codegen::build::{block, record};
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::activation::soft_cap;
///
/// let kernel = record("cap", Arch::Sm80, block(32), |k| {
///     let logit = k.global::<f32>("logits").at(k.tid());
///     logit.store(soft_cap(logit.load(), 30.0));
/// });
/// # tilewright_codegen::verify::verify(kernel)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn soft_cap(x: Val<'_, f32>, cap: f32) -> Val<'_, f32> {
    tanh(x * (1.0 / cap)) * cap
}

/// The relative error of [`tanh`], and of [`soft_cap`]: 2⁻¹⁹.
///
/// Of [`tanh`] it is 1.05 · 2⁻²⁰ at most, just below −0.4: there `e²ˣ = 0.45` is off by 2⁻²² and a
/// rounded exponent, 3.3e-7 of it; the sum 1.45 by that and half a unit, 2.1e-7; its reciprocal by
/// 2⁻²³ more, 1.8e-7; twice that, rounded, is 3.8e-7 of 0.38. A soft cap adds roundings of 2⁻²⁴: of
/// the argument four (it passes on at most what its argument has), of the result three. All are
/// 1.45e-6, and 2⁻¹⁹ is 1.9e-6.
pub(crate) const SOFT_CAP_ERROR: f64 = 1.0 / (1 << 19) as f64;

/// The bound of a soft cap: a number of which also the reciprocal is a normal number.
///
/// ```
/// use tilewright_kernels::activation::SoftCap;
/// assert_eq!(SoftCap::new(30.0)?.get(), 30.0);
/// let error = SoftCap::new(0.0).unwrap_err().to_string();
/// assert_eq!(error, "a soft cap must be a number from 1e-30 to 1e30, got 0.0");
/// # Ok::<(), tilewright_kernels::activation::SoftCapError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoftCap {
    cap: f32,
}

/// A number is not the bound of a soft cap.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("a soft cap must be a number from 1e-30 to 1e30, got {cap:?}")]
pub struct SoftCapError {
    /// The number.
    pub cap: f32,
}

impl SoftCap {
    /// The bound of that magnitude.
    ///
    /// # Errors
    /// For a number that is not from 1e-30 to 1e30.
    pub fn new(cap: f32) -> Result<SoftCap, SoftCapError> {
        if (1e-30..=1e30).contains(&cap) { Ok(SoftCap { cap }) } else { Err(SoftCapError { cap }) }
    }

    /// The number.
    pub fn get(self) -> f32 {
        self.cap
    }

    /// Applies it: [`soft_cap`]. Its slope is at most 1.
    #[track_caller]
    pub fn apply(self, x: Val<'_, f32>) -> Val<'_, f32> {
        soft_cap(x, self.cap)
    }

    /// The error bound of [`SoftCap::apply`] for a capped value.
    pub(crate) fn error(capped: f64) -> f64 {
        capped.abs() * SOFT_CAP_ERROR
    }
}

/// A cap is not NaN.
impl Eq for SoftCap {}

impl Hash for SoftCap {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.cap.to_bits().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use tilewright_codegen::build::{Builder, block, record};
    use tilewright_codegen::device::sim;
    use tilewright_codegen::ir::Arch;
    use tilewright_codegen::trial::{Bound, Expected, Trial};
    use tilewright_codegen::verify::verify;

    use super::*;
    use crate::naive;

    /// Arguments of both signs: zero, every exponent with 64 mantissas, subnormals, infinity, NaN,
    /// and the range where tanh bends, in steps of 1/2048.
    fn arguments() -> Vec<f32> {
        let patterns = (0..=f32::INFINITY.to_bits()).step_by(1 << 17).map(f32::from_bits);
        let bend = (0..16 * 2048).map(|step| step as f32 / 2048.0);
        let positive: Vec<f32> = patterns.chain(bend).chain([f32::NAN]).collect();
        positive.iter().flat_map(|&x| [x, -x]).collect()
    }

    /// Compares a function on the simulator with its oracle in f64. `bound` gives by how much the
    /// function may be off at an argument, whose exact value is finite or NaN.
    fn compare(
        x: &[f32],
        of: impl for<'k> Fn(Val<'k, f32>) -> Val<'k, f32>,
        oracle: impl Fn(f64) -> f64,
        bound: impl Fn(f64) -> f64,
    ) {
        // The error in units of its bound.
        let kernel = record("function", Arch::Sm80, block(256), |k: &Builder| {
            let [from, exact, bound, to] = ["x", "exact", "bound", "error"].map(|name| k.global::<f32>(name));
            let at = k.block_id() * 256 + k.tid();
            k.when(at.lt(x.len() as u32), || {
                let error = of(from.at(at).load()) - exact.at(at).load();
                to.at(at).store(error / bound.at(at).load());
            });
        });
        let exact: Vec<f64> = x.iter().map(|&x| oracle(f64::from(x))).collect();
        let narrow: Vec<f32> = exact.iter().map(|&y| y as f32).collect();
        // The least normal numbers are flushed.
        let bounds: Vec<f32> = x.iter().map(|&x| bound(f64::from(x)).max(1e-36) as f32).collect();
        let none: Vec<f64> = exact.iter().map(|y| if y.is_nan() { f64::NAN } else { 0.0 }).collect();
        let mut trial = Trial::new(verify(kernel).unwrap(), x.len().div_ceil(256) as u32);
        let [from, exact, bounds] = [("x", x), ("exact", &narrow), ("bound", &bounds)].map(|(n, v)| trial.input(n, v));
        let error = trial.output("error", Expected::near::<f32>(&none, Bound { absolute: 1.0, relative: 0.0 }));
        let outcome = trial.pass(from).pass(exact).pass(bounds).pass(error).run(&sim::open(0)).unwrap();
        assert!(outcome.is_right(), "{outcome}");
    }

    /// A quarter of the documented error: the simulator rounds `ex2` and `rcp` to nearest, a GPU is
    /// less exact.
    const TANH: f64 = 1.0 / (1 << 21) as f64;

    #[test]
    fn tanh_is_near_everywhere() {
        compare(&arguments(), tanh, f64::tanh, |x| TANH * x.tanh().abs());
    }

    #[test]
    fn activations_are_near_everywhere() {
        let finite: Vec<f32> = arguments().into_iter().filter(|x| x.is_finite()).collect();
        for activation in Activation::ALL {
            let oracle = |x| naive::activate(activation, x);
            compare(&finite, |x| activation.apply(x), oracle, |x| activation.error(x));
        }
    }

    #[test]
    fn factors_are_exact() {
        for activation in Activation::ALL {
            let oracle = |x| naive::gate_factor(activation, x);
            // Where the factor is the argument itself, that of an infinity is infinite.
            let finite: Vec<f32> = arguments().into_iter().filter(|&x| !oracle(f64::from(x)).is_infinite()).collect();
            // A sum is rounded once.
            compare(&finite, |x| activation.factor(x), oracle, |x| oracle(x).abs() * f64::from(f32::EPSILON));
        }
    }

    #[test]
    fn slopes_are_bounds() {
        for activation in Activation::ALL {
            let at = |step: i32| naive::activate(activation, f64::from(step) / 1024.0);
            let steepest = (-16_384..16_384).map(|step| (at(step + 1) - at(step)).abs() * 1024.0).fold(0.0, f64::max);
            assert!(steepest < activation.slope() && steepest > activation.slope() - 0.02, "{steepest}");
        }
    }

    #[test]
    fn soft_cap_is_near_everywhere() {
        for cap in [1.0f32, 30.0, 50.0] {
            let oracle = |x: f64| naive::soft_cap(x, f64::from(cap));
            compare(&arguments(), |x| soft_cap(x, cap), oracle, |x| TANH * oracle(x).abs());
        }
    }
}
