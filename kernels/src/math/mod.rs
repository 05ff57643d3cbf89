//! Elementary functions for kernels, accurate and fast, of f32, f16 and bf16.
//!
//! Functions of this module use no approximate instruction: only sums, products, fused
//! multiply-adds, correctly rounded quotients and bits. A GPU therefore computes the bits that the
//! simulator computes. Functions of [`fast`] use the approximate instructions. The simulator
//! computes those in f64 and rounds to nearest, so that a GPU is less exact than the simulator; the
//! bounds hold for both, and contain the error that the PTX ISA documents for each instruction.
//!
//! | function | accurate, in ulp | fast |
//! |---|---|---|
//! | [`exp`] | 1 | relative 2⁻²¹·⁹ + \|x\| · 2⁻²³·⁶ |
//! | [`log`] | 1 | absolute 2⁻²² for 0.5 < x < 2, relative 2⁻²¹·⁴ elsewhere |
//! | [`tanh`] | 2 | relative 2⁻¹¹ |
//! | [`erf`] | 1.5 | absolute 2⁻¹⁹·⁵ |
//! | [`sin`], [`cos`] | 2, any x | absolute 2⁻²⁰·⁴ for \|x\| ≤ 2π |
//! | [`pow`] | 2 | relative 2⁻²¹·⁹ · (1 + \|y\| · max(1, \|log₂ x\|)), x ≥ 0 |
//! | [`rsqrt`] | 1.5 | relative 2⁻²²·⁹ |
//! | [`sigmoid`] | 2.5 | relative 2⁻²¹ + \|x\| · 2⁻²³·⁶ |
//! | [`silu`] | 3 | [`Activation::error`](crate::activation::Activation::error) |
//! | [`gelu`] | absolute 2⁻²³ · \|x\| | absolute 2⁻²⁰ · \|x\| |
//! | [`gelu_tanh`] | absolute 2⁻²² · \|x\| | [`Activation::error`](crate::activation::Activation::error) |
//!
//! An ulp is the distance of neighbouring f32 at the exact value. Accurate functions keep
//! subnormals, infinities and NaN; fast functions flush subnormals to zero. Of f16 and bf16,
//! functions compute in f32 and round once: accurate results are within 0.51 ulp of the type.
//!
//! Kernels that ship use [`activation`](crate::activation), whose functions are between the two.

mod activations;
mod evaluate;
mod exponential;
pub mod fast;
mod hyperbolic;
mod trigonometric;

use half::{bf16, f16};
use tilewright_codegen::build::{IntoVal, Numeric, Val};

/// A float that the functions take: computed as f32, and rounded once to nearest.
pub trait MathFloat: Numeric {}

impl MathFloat for f32 {}
impl MathFloat for f16 {}
impl MathFloat for bf16 {}

macro_rules! of_one {
    ($($(#[$doc:meta])+ $name:ident from $module:ident;)+) => { $(
        $(#[$doc])+
        #[track_caller]
        pub fn $name<T: MathFloat>(x: Val<'_, T>) -> Val<'_, T> {
            $module::$name(x.cast::<f32>()).cast()
        }
    )+ };
}

of_one! {
    /// eˣ, within 1 ulp.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::math;
    /// # let kernel = record("sample", Arch::Sm80, block(32), |k| {
    /// let x = k.global::<f32>("x").at(k.tid());
    /// x.store(math::exp(x.load())); // within 1 ulp
    /// let y = k.global::<half::bf16>("y").at(k.tid());
    /// y.store(math::fast::exp(y.load())); // by `ex2.approx`
    /// # });
    /// # tilewright_codegen::verify::verify(kernel).unwrap();
    /// ```
    exp from exponential;
    /// The natural logarithm, within 1 ulp: −∞ of 0, NaN below.
    log from exponential;
    /// The hyperbolic tangent, within 2 ulp.
    tanh from hyperbolic;
    /// The error function `2/√π · ∫₀ˣ exp(−t²) dt`, within 1.5 ulp.
    erf from hyperbolic;
    /// The sine of any f32, within 2 ulp; NaN of infinities.
    ///
    /// Arguments above 2¹⁵ are reduced with 224 bits of 1/2π, in a branch.
    sin from trigonometric;
    /// The cosine of any f32, within 2 ulp; NaN of infinities.
    cos from trigonometric;
    /// `1/√x`, within 1.5 ulp: ±∞ of ±0, NaN below.
    rsqrt from exponential;
    /// The logistic function `1 / (1 + exp(−x))`, within 2.5 ulp.
    sigmoid from activations;
    /// `x · sigmoid(x)`, within 3 ulp; −0 of −∞.
    silu from activations;
    /// `x/2 · (1 + erf(x/√2))`, within `2⁻²³ · |x|`; −0 of −∞.
    gelu from activations;
    /// GELU by its approximation with tanh, `x · sigmoid(2·√(2/π) · (x + 0.044715·x³))`, within
    /// `2⁻²² · |x|`; −0 of −∞.
    gelu_tanh from activations;
}

/// xʸ, within 2 ulp, with the special cases of C's `pow`.
///
/// 1 where y is 0 or x is 1, even of NaN; NaN where x is below zero and y is finite and not whole.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::math;
/// # let kernel = record("sample", Arch::Sm80, block(32), |k| {
/// let x = k.global::<f32>("x").at(k.tid());
/// x.store(math::pow(x.load(), 2.4));
/// # });
/// # tilewright_codegen::verify::verify(kernel).unwrap();
/// ```
#[track_caller]
pub fn pow<'k, T: MathFloat>(x: Val<'k, T>, y: impl IntoVal<'k, T>) -> Val<'k, T> {
    let y = y.val(x.builder());
    exponential::pow(x.cast::<f32>(), y.cast::<f32>()).cast()
}
