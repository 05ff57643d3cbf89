//! Copy with conversion, sum, activations, soft cap.

use half::{bf16, f16};
use tilewright_layout::DType;

use super::Real;
use super::lengths::same;
use crate::activation::{Activation, GELU_CUBIC, GELU_SLOPE};

/// The value that remains of `x` once it is stored as `dtype` (f32, f16 or bf16) and read again:
/// rounding to nearest, ties to even. Any other `dtype` keeps `x`.
///
/// ```
/// use tilewright_kernels::naive::convert;
/// use tilewright_layout::DType;
/// assert_eq!(convert(1.0 + 1.0 / 256.0, DType::BF16), 1.0);
/// assert_eq!(convert(1e6, DType::F16), f32::INFINITY);
/// ```
pub fn convert(x: f32, dtype: DType) -> f32 {
    match dtype {
        DType::F16 => f16::from_f32(x).to_f32(),
        DType::BF16 => bf16::from_f32(x).to_f32(),
        _ => x,
    }
}

/// `out[i] = a[i] + b[i]`.
///
/// # Panics
/// Where one is longer than the other.
#[track_caller]
pub fn add<T: Real>(a: &[T], b: &[T]) -> Vec<T> {
    same("add", ["a", "b"], [a.len(), b.len()]);
    a.iter().zip(b).map(|(&a, &b)| a + b).collect()
}

/// An activation function of a number, `x / (1 + exp(−v))`: for [`Activation::Silu`] v is x, for
/// [`Activation::GeluTanh`] `2·√(2/π) · (x + 0.044715 x³)`. For [`Activation::ClampedSwiglu`] v is
/// `alpha · x`, and x at most `limit`.
///
/// ```
/// use tilewright_kernels::activation::Activation;
/// use tilewright_kernels::naive::activate;
/// assert!((activate(Activation::GeluTanh, 1.0f64) - 0.841_191_990_608).abs() < 1e-9);
/// ```
pub fn activate<T: Real>(activation: Activation, x: T) -> T {
    let x = match activation {
        Activation::ClampedSwiglu(clamp) if x > T::from_f64(clamp.limit().into()) => T::from_f64(clamp.limit().into()),
        Activation::Silu | Activation::GeluTanh | Activation::ClampedSwiglu(_) => x,
    };
    let v = match activation {
        Activation::Silu => x,
        Activation::ClampedSwiglu(clamp) => T::from_f64(clamp.alpha().into()) * x,
        Activation::GeluTanh => T::from_f64(GELU_SLOPE) * (x + T::from_f64(GELU_CUBIC) * x * x * x),
    };
    x / (T::ONE + (-v).exp())
}

impl Activation {
    /// The error bound of [`Activation::apply`] at `x`: 2⁻²⁰ of the value for exponential, sum and
    /// quotient; below zero also the rounded exponent, 2⁻²² of the value for each of its units.
    ///
    /// ```
    /// use tilewright_kernels::activation::Activation;
    /// assert!(Activation::GeluTanh.error(1.0) < 1e-6);
    /// assert_eq!(Activation::Silu.error(0.0), 0.0);
    /// ```
    pub fn error(self, x: f64) -> f64 {
        let exponent = match self {
            Activation::Silu => -x,
            Activation::ClampedSwiglu(clamp) => -f64::from(clamp.alpha()) * x.min(clamp.limit().into()),
            Activation::GeluTanh => -GELU_SLOPE * (x + GELU_CUBIC * x.powi(3)),
        };
        let relative = 2f64.powi(-20) + exponent.max(0.0) * std::f64::consts::LOG2_E * 2f64.powi(-22);
        activate(self, x).abs() * relative
    }
}

/// What a gate multiplies, from the other factor `u`: `u`, or `u + 1` with `u` within `±limit` for
/// [`Activation::ClampedSwiglu`].
///
/// ```
/// use tilewright_kernels::activation::Activation;
/// use tilewright_kernels::naive::gate_factor;
/// assert_eq!([Activation::Silu, Activation::GPT_OSS].map(|gate| gate_factor(gate, 9.0)), [9.0, 8.0]);
/// ```
pub fn gate_factor<T: Real>(activation: Activation, u: T) -> T {
    let Activation::ClampedSwiglu(clamp) = activation else { return u };
    let limit = T::from_f64(clamp.limit().into());
    let u = if u > limit { limit } else { u };
    T::ONE + if u < -limit { -limit } else { u }
}

/// `out[i] = activation(gate[i]) · factor(up[i])`, where the [`gate_factor`] is `up[i]` but for
/// [`Activation::ClampedSwiglu`].
///
/// # Panics
/// Where one is longer than the other.
#[track_caller]
pub fn gated<T: Real>(activation: Activation, gate: &[T], up: &[T]) -> Vec<T> {
    same("gated", ["gate", "up"], [gate.len(), up.len()]);
    gate.iter().zip(up).map(|(&gate, &up)| activate(activation, gate) * gate_factor(activation, up)).collect()
}

/// `cap · tanh(x / cap)`.
///
/// ```
/// use tilewright_kernels::naive::soft_cap;
/// assert_eq!(soft_cap(1e9f64, 30.0), 30.0);
/// assert!((soft_cap(0.1f64, 30.0) - 0.1).abs() < 1e-5);
/// ```
pub fn soft_cap<T: Real>(x: T, cap: T) -> T {
    cap * (x / cap).tanh()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silu_has_its_known_values_and_limits() {
        let silu = |x: f64| activate(Activation::Silu, x);
        assert_eq!(silu(0.0), 0.0);
        assert!((silu(1.0) - 0.731_058_578_630_004_9).abs() < 1e-15);
        assert_eq!(activate(Activation::Silu, -200.0f32), -0.0);
        assert_eq!(activate(Activation::Silu, 200.0f32), 200.0);
        assert_eq!(gated(Activation::Silu, &[1.0f64], &[2.0])[0], 2.0 * silu(1.0));
        assert_eq!(add(&[1.0f32, 2.0], &[3.0, -2.0]), [4.0, 0.0]);
    }

    #[test]
    fn the_gate_of_gpt_oss_has_its_values() {
        let gate = |g: f64, u: f64| gated(Activation::GPT_OSS, &[g], &[u])[0];
        let alpha = f64::from(1.702f32);
        let of = |g: f64| g / (1.0 + (-alpha * g).exp());
        assert_eq!(gate(2.0, 3.0), of(2.0) * 4.0);
        assert_eq!(gate(9.0, 9.0), of(7.0) * 8.0);
        assert_eq!(gate(-9.0, -9.0), of(-9.0) * -6.0);
        assert!(gate(f64::NAN, 1.0).is_nan() && gate(1.0, f64::NAN).is_nan());
    }

    /// The form with one exponential is the definition: `x / 2 · (1 + tanh(u))`.
    #[test]
    fn gelu_is_that_of_tanh() {
        let inner = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
        for step in -64..=64 {
            let x = f64::from(step) / 16.0;
            let gelu = 0.5 * x * (1.0 + inner(x).tanh());
            assert!((activate(Activation::GeluTanh, x) - gelu).abs() < 1e-14, "{x}");
        }
        assert_eq!(activate(Activation::GeluTanh, -200.0f32), -0.0);
        assert_eq!(activate(Activation::GeluTanh, 200.0f32), 200.0);
    }

    #[test]
    fn conversion_rounds_ties_to_even() {
        // bf16 keeps 8 significant bits: 1 + 2^-8 and 1 + 3·2^-8 lie halfway.
        assert_eq!(convert(1.0 + 3.0 / 256.0, DType::BF16), 1.0 + 4.0 / 256.0);
        assert_eq!(convert(1.0 + 1.0 / 2048.0, DType::F16), 1.0);
        assert_eq!(convert(0.1, DType::F32), 0.1);
    }
}
