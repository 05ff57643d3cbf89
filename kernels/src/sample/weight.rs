//! Weights of tokens in fixed point, and the random bits that choose among them: the arithmetic of
//! `naive::sample`.

use std::f32::consts::LOG2_E;

use tilewright_codegen::build::{Builder, Val};

use crate::naive::{EXP2_TERMS, LEAST_EXPONENT};

/// 1.5 · 2²³.
const TO_INTEGER: f32 = 12_582_912.0;

/// What turns a logit into a weight.
#[derive(Clone, Copy)]
pub(super) struct Weigh<'k> {
    /// The largest logit, as it stands.
    pub max: Val<'k, f32>,
    /// Above 0.
    pub temperature: Val<'k, f32>,
}

impl<'k> Weigh<'k> {
    /// The weight's logarithm to base 2, as `naive::sample` rounds it; it falls, or stays, where
    /// the logit falls.
    pub fn exponent(self, x: Val<'k, f32>) -> Val<'k, f32> {
        (x - self.max).div_rn(self.temperature) * LOG2_E
    }

    /// The weight, at most 2³². Conversions between floats and integers are slow, so bits stand in
    /// for them.
    pub fn weight(self, x: Val<'k, f32>) -> Val<'k, u64> {
        let exponent = self.exponent(x);
        // The nearest integer, ties to even, is left in the low bits of a sum whose unit in the
        // last place is 1.
        let shifted = exponent + TO_INTEGER;
        let whole = shifted - TO_INTEGER;
        let down = TO_INTEGER.to_bits() - shifted.bits::<u32>();
        let [first, rest @ ..] = EXP2_TERMS;
        let start = (exponent - whole) * first + rest[0];
        let power = rest[1..].iter().fold(start, |sum, &term| sum * (exponent - whole) + term);
        // 2³² times a number from ½ to 2: 24 bits, eight or, from 1 on, nine bits further up.
        let bits = power.bits::<u32>();
        let mantissa = (bits & 0x7f_ffff) | 0x80_0000;
        let scaled = mantissa.mul_wide(power.ge(1.0).select(512u32, 256u32)) >> down;
        let weight = exponent.ge(LEAST_EXPONENT).select(scaled, 0u64);
        x.eq(self.max).select(1u64 << 32, weight)
    }
}

/// Words 0 and 1 of Philox4x32-10 at counter `(step, step >> 32, row, 0)`, key `seed`, the first
/// lower.
pub(super) fn random_bits<'k>(
    k: &'k Builder,
    seed: Val<'k, u64>,
    step: Val<'k, u64>,
    row: Val<'k, u32>,
) -> Val<'k, u64> {
    let (step_low, step_high) = step.split();
    let mut key = seed.split();
    let mut counter = [step_low, step_high, row, k.lit(0u32)];
    for _ in 0..10 {
        let (a_low, a_high) = counter[0].mul_wide(0xD251_1F53u32).split();
        let (b_low, b_high) = counter[2].mul_wide(0xCD9E_8D57u32).split();
        counter = [b_high ^ counter[1] ^ key.0, b_low, a_high ^ counter[3] ^ key.1, a_low];
        key = (key.0 + 0x9E37_79B9u32, key.1 + 0xBB67_AE85u32);
    }
    k.join(counter[0], counter[1])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tilewright_codegen::build::{block, record};
    use tilewright_codegen::device::sim;
    use tilewright_codegen::ir::Arch;
    use tilewright_codegen::trial::{Expected, Trial};
    use tilewright_codegen::verify::verify;

    use super::Weigh;
    use crate::naive;

    /// A trial of the weights of some logits.
    fn weights(logits: &[f32], max: f32, temperature: f32) -> Trial {
        let kernel = record("weights", Arch::Sm80, block(32), |k| {
            let max = k.param::<f32>("max");
            let temperature = k.param::<f32>("temperature");
            let n = k.param::<u32>("n");
            let x = k.global::<f32>("x");
            let out = k.global::<u64>("out");
            let weigh = Weigh { max, temperature };
            k.for_step(k.tid(), n, 32, |at| out.at(at).store(weigh.weight(x.at(at).load())));
        });
        let expected: Vec<u64> = logits.iter().map(|&x| naive::weight(x, max, temperature)).collect();
        let mut trial = Trial::new(verify(kernel).unwrap(), 1);
        let x = trial.input("x", logits);
        let out = trial.output("out", Expected::exact(&expected));
        trial.pass(max).pass(temperature).pass(logits.len() as u32).pass(x).pass(out)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Every weight is the oracle's, bit for bit.
        #[test]
        fn weights_are_the_oracles(
            below in proptest::collection::vec(0f32..45.0, 200),
            max in -30f32..30.0,
            temperature in prop_oneof![Just(1.0f32), 0.01f32..3.0, Just(1e-38), Just(1e30)],
        ) {
            let mut logits: Vec<f32> = below.iter().map(|d| max - d * temperature).collect();
            logits.extend([max, f32::NAN, f32::NEG_INFINITY, f32::MIN, max.next_down(), -0.0, 1e-40]);
            logits.retain(|&x| x.is_nan() || x <= max);
            let outcome = weights(&logits, max, temperature).run(&sim::open(0)).unwrap();
            prop_assert!(outcome.is_right(), "{}", outcome);
        }
    }

    #[test]
    fn weights_below_an_infinite_or_missing_maximum() {
        for max in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            let logits = [max, f32::NAN, f32::NEG_INFINITY];
            let outcome = weights(&logits, max, 0.7).run(&sim::open(0)).unwrap();
            assert!(outcome.is_right(), "{outcome}");
        }
    }
}
