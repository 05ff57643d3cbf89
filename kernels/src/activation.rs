//! Functions of one number in the epilogues of products and in attention: `tanh` and the soft cap.
//!
//! `tanh.approx` has a relative error of 2⁻¹¹, too much for logits. [`tanh`] is built from `ex2` and
//! `rcp` instead, and [`soft_cap`] from it.

use core::f32::consts::LOG2_E;

use tilewright_codegen::build::Val;

/// The square of the magnitude below which [`tanh`] is a polynomial: `1 − 2/(e²ˣ + 1)` cancels near
/// zero.
const SMALL_SQUARED: f32 = 0.4 * 0.4;

/// Minimax coefficients of `(tanh(x) − x) / x³` in `x²` for `|x| ≤ 0.4`, highest first: the
/// polynomial is off by 1.2e-7 of tanh(x) at most.
const SMALL: [f32; 3] = [-0.047_794_215, 0.132_776_29, -0.333_318_83];

/// The hyperbolic tangent, within 2⁻²⁰ of its value: eight units in the last place or so.
///
/// It costs one `ex2`, one `rcp` and nine other instructions, and no branch. Infinities give ±1;
/// NaN stays NaN; a zero keeps its sign.
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

/// The soft cap `cap · tanh(x / cap)` of a score or a logit, within 2⁻²⁰ of its value; `cap` is
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

    /// Compares a function on the simulator with its oracle in f64.
    fn compare(of: impl for<'k> Fn(Val<'k, f32>) -> Val<'k, f32>, oracle: impl Fn(f64) -> f64, bound: Bound) {
        let x = arguments();
        let kernel = record("function", Arch::Sm80, block(256), |k: &Builder| {
            let [from, to] = ["x", "y"].map(|name| k.global::<f32>(name));
            let at = k.block_id() * 256 + k.tid();
            k.when(at.lt(x.len() as u32), || to.at(at).store(of(from.at(at).load())));
        });
        let y: Vec<f64> = x.iter().map(|&x| oracle(f64::from(x))).collect();
        let mut trial = Trial::new(verify(kernel).unwrap(), x.len().div_ceil(256) as u32);
        let (from, to) = (trial.input("x", &x), trial.output("y", Expected::near::<f32>(&y, bound)));
        let outcome = trial.pass(from).pass(to).run(&sim::open(0)).unwrap();
        assert!(outcome.is_right(), "{outcome}");
    }

    /// Half the bound: the simulator rounds `ex2` and `rcp` to nearest, a GPU is off by more.
    const TANH: Bound = Bound { absolute: 0.0, relative: 1.0 / (1 << 21) as f64 };

    #[test]
    fn tanh_is_near_everywhere() {
        compare(tanh, f64::tanh, TANH);
    }

    #[test]
    fn soft_cap_is_near_everywhere() {
        // A subnormal argument loses bits when it is divided by the cap.
        let bound = Bound { absolute: 1e-36, ..TANH };
        for cap in [1.0, 30.0, 50.0] {
            compare(|x| soft_cap(x, cap), |x| naive::soft_cap(x, f64::from(cap)), bound);
        }
    }
}
