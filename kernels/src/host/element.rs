//! Element types of weights.

use bytemuck::Pod;
use half::{bf16, f16};

/// The number format of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationFormat {
    /// IEEE binary32.
    F32,
    /// The upper half of a binary32.
    Bf16,
    /// IEEE binary16.
    F16,
}

/// An element that activations are multiplied with: f32, bf16 or f16.
pub trait ActivationElement: Pod + Send + Sync {
    /// The storage format of a number.
    const FORMAT: ActivationFormat;

    /// Converts to f32: exact, and without branches, so that loops over it vectorise.
    fn widen(self) -> f32;
}

impl ActivationElement for f32 {
    const FORMAT: ActivationFormat = ActivationFormat::F32;

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl ActivationElement for bf16 {
    const FORMAT: ActivationFormat = ActivationFormat::Bf16;

    /// The upper half of an f32.
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

impl ActivationElement for f16 {
    const FORMAT: ActivationFormat = ActivationFormat::F16;

    /// Exponent and mantissa are moved to their place in an f32, whose exponent is then off by 127
    /// − 15 = 112; the product with 2¹¹² puts that right and normalises subnormals. ∞ and NaN
    /// (exponent 31) get the exponent of f32's.
    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let scaled = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((127 + 112) << 23);
        let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
        f32::from_bits(scaled.to_bits() | special | (bits & 0x8000) << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sixteen_bit_number_is_widened_exactly() {
        let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        for bits in 0..=u16::MAX {
            let half = f16::from_bits(bits);
            let brain = bf16::from_bits(bits);
            assert!(same(half.widen(), half.to_f32()), "f16 {bits:#x}");
            assert!(same(brain.widen(), brain.to_f32()), "bf16 {bits:#x}");
        }
    }
}
