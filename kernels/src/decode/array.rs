//! Arrays in global memory whose dtype is chosen while recording.

use half::{bf16, f16};
use tilewright_codegen::build::{Bf16x2, Builder, F16x2, Global, Ptr, Val};

/// A floating-point type of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    /// 32 bits.
    F32,
    /// 16 bits, 10 of mantissa.
    F16,
    /// 16 bits, 7 of mantissa.
    Bf16,
}

impl Float {
    /// Bytes of an element.
    pub fn bytes(self) -> u32 {
        match self {
            Float::F32 => 4,
            Float::F16 | Float::Bf16 => 2,
        }
    }
}

/// An array of floating-point numbers in global memory; loads give f32, stores round to nearest even.
#[derive(Clone, Copy)]
pub struct Array<'k> {
    at: Ptr<'k, Global, u8>,
    float: Float,
}

impl<'k> Array<'k> {
    /// The array that begins there, aligned to 16 bytes.
    pub fn new(at: Ptr<'k, Global, u8>, float: Float) -> Array<'k> {
        Array { at, float }
    }

    /// Its type of storage.
    pub fn float(self) -> Float {
        self.float
    }

    /// The array from that element on.
    #[track_caller]
    pub fn from(self, index: Val<'k, u32>) -> Array<'k> {
        let at = match self.float {
            Float::F32 => self.at.cast::<f32>().at(index).cast(),
            Float::F16 | Float::Bf16 => self.at.cast::<bf16>().at(index).cast(),
        };
        Array { at, ..self }
    }

    /// One element.
    #[track_caller]
    pub fn load(self, index: Val<'k, u32>) -> Val<'k, f32> {
        match self.float {
            Float::F32 => self.at.cast::<f32>().at(index).load(),
            Float::F16 => self.at.cast::<f16>().at(index).load().cast(),
            Float::Bf16 => self.at.cast::<bf16>().at(index).load().cast(),
        }
    }

    /// Four consecutive elements from an index that is a multiple of four, by one load.
    #[track_caller]
    pub fn load4(self, index: Val<'k, u32>) -> [Val<'k, f32>; 4] {
        match self.float {
            Float::F32 => self.at.cast::<f32>().at(index).load_vec(),
            Float::F16 => {
                let [a, b] = self.at.cast::<f16>().at(index).cast::<u32>().load_vec();
                let parts = [a, b].map(|pair| pair.bits::<F16x2>().split());
                [parts[0].0, parts[0].1, parts[1].0, parts[1].1].map(|part| part.cast())
            }
            Float::Bf16 => {
                let [a, b] = self.at.cast::<bf16>().at(index).cast::<u32>().load_vec();
                let [(p, q), (r, s)] = [a, b].map(widen);
                [p, q, r, s]
            }
        }
    }

    /// The words from an even element of a 16-bit array on.
    #[track_caller]
    pub(super) fn words(self, index: Val<'k, u32>) -> Ptr<'k, Global, u32> {
        self.at.cast::<bf16>().at(index).cast()
    }

    /// Stores one element.
    #[track_caller]
    pub fn store(self, index: Val<'k, u32>, value: Val<'k, f32>) {
        match self.float {
            Float::F32 => self.at.cast::<f32>().at(index).store(value),
            Float::F16 => self.at.cast::<f16>().at(index).store(value.cast::<f16>()),
            Float::Bf16 => self.at.cast::<bf16>().at(index).store(value.cast::<bf16>()),
        }
    }
}

/// The two bf16 numbers of a word, lower first: a bf16 is the upper half of an f32.
#[track_caller]
pub(super) fn widen(pair: Val<'_, u32>) -> (Val<'_, f32>, Val<'_, f32>) {
    ((pair << 16).bits(), (pair & 0xffff_0000).bits())
}

/// Two numbers as a word of bf16, the first lower, and what the rounding left of them.
#[track_caller]
pub(super) fn narrow<'k>(a: Val<'k, f32>, b: Val<'k, f32>) -> (Val<'k, u32>, [Val<'k, f32>; 2]) {
    let pair = a.pair::<Bf16x2>(b).bits::<u32>();
    let (high_a, high_b) = widen(pair);
    (pair, [a - high_a, b - high_b])
}

/// Zero as a float.
pub(super) fn zero(k: &Builder) -> Val<'_, f32> {
    k.lit(0.0f32)
}
