//! Random numbers, and the bits that are worth trying for each type.

use tilewright_codegen::ir::Ty;

/// A stream of random numbers (SplitMix64): the same for the same seed on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        let mut rng = Rng(seed ^ 0x7411_e3a1_5eed_0001);
        rng.next();
        rng
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }

    /// True in `part` of 100 cases.
    pub fn percent(&mut self, part: usize) -> bool {
        self.below(100) < part
    }

    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// Bits of a value of the type: random ones, small ones, and those at the edges.
    pub fn bits(&mut self, ty: Ty) -> u64 {
        match ty {
            Ty::Pred => self.next() & 1,
            Ty::F16 => self.float(5, 10),
            Ty::BF16 => self.float(8, 7),
            Ty::F32 => self.float(8, 23),
            Ty::F64 => self.float(11, 52),
            Ty::F16x2 => self.float(5, 10) | self.float(5, 10) << 16,
            Ty::BF16x2 => self.float(8, 7) | self.float(8, 7) << 16,
            Ty::U8 | Ty::S8 | Ty::U16 | Ty::S16 | Ty::U32 | Ty::S32 | Ty::U64 | Ty::S64 | Ty::Ptr(_) => {
                self.integer(ty.bits())
            }
        }
    }

    fn integer(&mut self, width: u32) -> u64 {
        let mask = u64::MAX >> (64 - width);
        let bits = match self.below(8) {
            0..=2 => self.next(),
            3 | 4 => self.below(70) as u64,
            5 => (self.below(70) as u64).wrapping_neg(),
            6 => (1u64 << self.below(width as usize)).wrapping_add(self.below(3) as u64).wrapping_sub(1),
            _ => {
                let most = mask >> 1;
                self.pick(&[0, mask, most, most + 1, 1, mask - 1])
            }
        };
        bits & mask
    }

    /// The bits of a float with this many bits of exponent and mantissa.
    fn float(&mut self, exponent: u32, mantissa: u32) -> u64 {
        let sign = 1u64 << (exponent + mantissa);
        let ones = (1u64 << mantissa) - 1;
        let all = (1u64 << exponent) - 1;
        let bias = (1u64 << (exponent - 1)) - 1;
        let negative = if self.percent(50) { sign } else { 0 };
        let magnitude = match self.below(10) {
            0 => self.next() & (sign - 1),
            1..=4 => ((bias + self.below(12) as u64 - 6) << mantissa) | (self.next() & ones),
            5 => {
                // Few bits, so that sums are exact and ties occur.
                let low = mantissa - 3;
                ((bias + self.below(16) as u64 - 4) << mantissa) | ((self.next() & 7) << low)
            }
            6 => self.next() & ones,
            7 => (self.below(all as usize) as u64) << mantissa | self.next() & ones,
            _ => {
                let infinity = all << mantissa;
                let quiet = infinity | 1 << (mantissa - 1) | self.next() & ones;
                self.pick(&[0, 1, ones, 1 << mantissa, bias << mantissa, infinity - 1, infinity, quiet, infinity + 1])
            }
        };
        negative | magnitude
    }
}
