//! Arrays that tasks write: elements of 8, 16 or 32 bits in atomic words.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use half::{bf16, f16};
use tilewright_kernels::host::ActivationElement;
use tilewright_kernels::quant::Code;
use tilewright_kernels::tile::Float;
use tilewright_layout::DType;

use crate::program::{Buffer, float_of};

/// `count` words of 0; `None` where there is no memory for them.
pub(crate) fn zeroed(count: usize) -> Option<Vec<AtomicU32>> {
    let mut words = Vec::new();
    words.try_reserve_exact(count).ok()?;
    words.resize_with(count, || AtomicU32::new(0));
    Some(words)
}

/// Fills words with a pattern that is NaN in f32, f16, bf16 and e4m3, so that what was not written
/// shows.
pub(crate) fn poison(words: &[AtomicU32]) {
    for word in words {
        word.store(0x7fff_7fff, Relaxed);
    }
}

/// An array in atomic words: f32 or i32, one to a word, f16 or bf16, two to a word, the first in
/// the low half, or codes of e4m3, four to a word, which are numbers times a scale.
#[derive(Clone, Copy)]
pub(crate) struct AtomicWords<'a> {
    words: &'a [AtomicU32],
    /// The start of the array, in elements from the first word.
    base: usize,
    len: usize,
    dtype: DType,
    scale: f32,
}

/// The values of the e4m3 codes.
static E4M3: LazyLock<Vec<f32>> = LazyLock::new(|| Code::E4m3.values());

impl<'a> AtomicWords<'a> {
    /// An array of `len` elements that starts `base` elements after the first word.
    pub(crate) fn new(words: &'a [AtomicU32], base: usize, len: usize, dtype: DType) -> AtomicWords<'a> {
        AtomicWords { words, base, len, dtype, scale: 1.0 }
    }

    /// The array of a buffer that starts `base` of its elements after the first word.
    pub(crate) fn of_buffer(words: &'a [AtomicU32], buffer: &Buffer, base: usize) -> AtomicWords<'a> {
        AtomicWords::new(words, base, buffer.elements().unwrap_or(0), buffer.dtype)
    }

    /// Sets the factor of codes.
    pub(crate) fn scaled(self, scale: f32) -> AtomicWords<'a> {
        AtomicWords { scale, ..self }
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The index, from the first word, of `count` elements from `start`; `None` where the array
    /// ends before.
    fn at(&self, start: usize, count: usize) -> Option<usize> {
        (start.checked_add(count)? <= self.len).then_some(self.base + start)
    }

    /// Appends the elements `start..start + count` to `out`, as f32.
    #[must_use]
    pub(crate) fn read(&self, start: usize, count: usize, out: &mut Vec<f32>) -> Option<()> {
        let at = self.at(start, count)?;
        out.reserve(count);
        if self.dtype == DType::F8E4M3 {
            let byte = |at: usize| Some((self.words.get(at / 4)?.load(Relaxed) >> (8 * (at % 4))) as u8);
            for at in at..at + count {
                out.push(E4M3.get(usize::from(byte(at)?))? * self.scale);
            }
            return Some(());
        }
        match float_of(self.dtype)? {
            Float::F32 => {
                out.extend(self.words.get(at..at + count)?.iter().map(|word| f32::from_bits(word.load(Relaxed))));
            }
            Float::Bf16 => self.read_halves(at, count, out, |bits| bf16::from_bits(bits).widen())?,
            Float::F16 => self.read_halves(at, count, out, |bits| f16::from_bits(bits).widen())?,
        }
        Some(())
    }

    fn read_halves(&self, at: usize, count: usize, out: &mut Vec<f32>, wide: impl Fn(u16) -> f32) -> Option<()> {
        let end = at + count;
        let half = |at: usize| Some((self.words.get(at / 2)?.load(Relaxed) >> (16 * (at % 2))) as u16);
        let mut at = at;
        if at % 2 == 1 && at < end {
            out.push(wide(half(at)?));
            at += 1;
        }
        let pairs = self.words.get(at / 2..at / 2 + (end - at) / 2)?;
        out.extend(pairs.iter().flat_map(|word| {
            let word = word.load(Relaxed);
            [wide(word as u16), wide((word >> 16) as u16)]
        }));
        if (end - at) % 2 == 1 {
            out.push(wide(half(end - 1)?));
        }
        Some(())
    }

    /// Stores `values` from element `start` on, converted to the array's type.
    #[must_use]
    pub(crate) fn write(&self, start: usize, values: &[f32]) -> Option<()> {
        let at = self.at(start, values.len())?;
        if self.dtype == DType::F8E4M3 {
            let inverse = 1.0 / self.scale;
            for (at, value) in (at..).zip(values) {
                set_part(self.words.get(at / 4)?, 8, at % 4, u32::from(nearest(value * inverse)));
            }
            return Some(());
        }
        match float_of(self.dtype)? {
            Float::F32 => {
                for (word, value) in self.words.get(at..at + values.len())?.iter().zip(values) {
                    word.store(value.to_bits(), Relaxed);
                }
            }
            Float::Bf16 => self.write_halves(at, values, |value| bf16::from_f32(value).to_bits())?,
            Float::F16 => self.write_halves(at, values, |value| f16::from_f32(value).to_bits())?,
        }
        Some(())
    }

    fn write_halves(&self, at: usize, values: &[f32], narrow: impl Fn(f32) -> u16) -> Option<()> {
        let odd = (at % 2).min(values.len());
        let (first, rest) = values.split_at(odd);
        let (pairs, last) = rest.as_chunks::<2>();
        let words = self.words.get((at + odd) / 2..(at + values.len()).div_ceil(2))?;
        if let [value] = first {
            set_part(self.words.get(at / 2)?, 16, 1, narrow(*value).into());
        }
        for (word, &[low, high]) in words.iter().zip(pairs) {
            word.store(u32::from(narrow(low)) | u32::from(narrow(high)) << 16, Relaxed);
        }
        if let [value] = last {
            set_part(words.last()?, 16, 0, narrow(*value).into());
        }
        Some(())
    }

    /// The element `at` of an i32 array.
    pub(crate) fn read_i32(&self, at: usize) -> Option<i32> {
        let at = self.at(at, 1).filter(|_| self.dtype == DType::I32)?;
        Some(self.words.get(at)?.load(Relaxed) as i32)
    }

    /// Stores `values` from element `start` on in an i32 array.
    #[must_use]
    pub(crate) fn write_i32(&self, start: usize, values: &[i32]) -> Option<()> {
        let at = self.at(start, values.len()).filter(|_| self.dtype == DType::I32)?;
        for (word, &value) in self.words.get(at..at + values.len())?.iter().zip(values) {
            word.store(value as u32, Relaxed);
        }
        Some(())
    }
}

/// The nearest code of e4m3; NaN for NaN.
fn nearest(value: f32) -> u8 {
    if value.is_nan() { 0x7f } else { Code::E4m3.nearest(value) }
}

/// Stores some bits of a word while other tasks may be storing its other bits.
fn set_part(word: &AtomicU32, width: u32, part: usize, bits: u32) {
    let shift = width * part as u32;
    let mask = (1u32 << width) - 1;
    // The closure never refuses, so neither does the update.
    let _ = word.fetch_update(Relaxed, Relaxed, |old| Some(old & !(mask << shift) | bits << shift));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Reads return written values, converted; neighbouring elements keep their values.
        #[test]
        fn writes_exactly_what_it_says(base in 0usize..5, len in 1usize..20, start in 0usize..20, count in 0usize..20, which in 0usize..4) {
            let dtype = [DType::F32, DType::F16, DType::BF16, DType::F8E4M3][which];
            let words = zeroed(30).unwrap();
            let all = AtomicWords::new(&words, 0, 30, dtype).scaled(0.5);
            // Multiples of 0.5 below 8 are codes of e4m3 times 0.5.
            let before: Vec<f32> = (0..30).map(|i| (i % 16) as f32 * 0.5).collect();
            all.write(0, &before).unwrap();
            let array = AtomicWords::new(&words, base, len, dtype).scaled(0.5);
            let values: Vec<f32> = (0..count).map(|i| -((i % 16) as f32) * 0.25).collect();
            let fits = start + count <= len;
            prop_assert_eq!(array.write(start, &values).is_some(), fits);
            let mut expected = before;
            if fits {
                expected[base + start..base + start + count].copy_from_slice(&values);
            }
            let mut found = Vec::new();
            all.read(0, 30, &mut found).unwrap();
            prop_assert_eq!(&found, &expected);
            let mut part = Vec::new();
            prop_assert_eq!(array.read(start, count, &mut part).is_some(), fits);
            if fits {
                prop_assert_eq!(&part, &values);
            }
        }
    }

    #[test]
    fn poison_is_nan_in_every_type() {
        let words = zeroed(2).unwrap();
        poison(&words);
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F8E4M3] {
            let mut out = Vec::new();
            AtomicWords::new(&words, 0, 2, dtype).read(0, 2, &mut out).unwrap();
            assert!(out.iter().all(|x| x.is_nan()), "{dtype}");
        }
    }
}
