//! Random sizes and numbers, the same for the same seed.

use super::element::TrialElement;
use std::ops::RangeInclusive;

/// A source of random numbers for trials: SplitMix64 (Steele, Lea, Flood 2014).
///
/// ```
/// use tilewright_codegen::trial::Draw;
/// let draw = || { let mut draw = Draw::new(7); (draw.between(1..=9), draw.floats::<f32>(2, |v| v as f32)) };
/// assert_eq!(draw(), draw());
/// ```
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// The source of a seed.
    pub fn new(seed: u64) -> Draw {
        Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A whole number of a range, its ends included; the first of an empty range.
    pub fn between(&mut self, range: RangeInclusive<u32>) -> u32 {
        let count = u64::from(range.end().saturating_sub(*range.start())) + 1;
        range.start() + ((u128::from(self.bits()) * u128::from(count)) >> 64) as u32
    }

    /// A number from -1 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// Draws `count` numbers from -1 to 1, rounded to a type.
    pub fn floats<T: TrialElement>(&mut self, count: usize, round: fn(f64) -> T) -> Vec<T> {
        (0..count).map(|_| round(self.unit())).collect()
    }

    /// Draws `count` whole numbers from -`most` to `most`, as a type: sums and products of few of
    /// them are exact.
    pub fn integers<T: TrialElement>(&mut self, count: usize, most: u32, of: fn(f64) -> T) -> Vec<T> {
        (0..count).map(|_| of(f64::from(self.between(0..=2 * most)) - f64::from(most))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_stay_in_their_range(seed: u64, (low, more) in (0u32..1000, 0u32..1000)) {
            let mut draw = Draw::new(seed);
            prop_assert!((low..=low + more).contains(&draw.between(low..=low + more)));
            prop_assert!(draw.unit().abs() <= 1.0);
            prop_assert!(draw.integers(20, 3, |v| v as i8).iter().all(|v| v.abs() <= 3));
        }
    }

    #[test]
    fn all_of_a_small_range_is_drawn() {
        let mut draw = Draw::new(0);
        let seen: std::collections::BTreeSet<u32> = (0..100).map(|_| draw.between(3..=6)).collect();
        assert!(seen.into_iter().eq(3..=6));
        let full: Vec<u32> = (0..50).map(|_| draw.between(0..=u32::MAX)).collect();
        assert!(full.iter().any(|&v| v > u32::MAX / 2) && full.iter().any(|&v| v < u32::MAX / 2));
    }
}
