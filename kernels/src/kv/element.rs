//! The number format of a pool: floating-point numbers, or 8-bit codes with a scale.

use tilewright_codegen::build::{Global, Ptr, Val};
use tilewright_codegen::ir::attr::Fp8;

use crate::kv::runs::run_of;
use crate::tile::{Array, Float};

/// The number format of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolType {
    /// Floating-point numbers.
    Float(Float),
    /// E4m3 codes: a number is its code times the pool's scale.
    E4m3,
}

impl PoolType {
    /// Bytes of an element.
    ///
    /// ```
    /// use tilewright_kernels::{kv::PoolType, tile::Float};
    /// assert_eq!((PoolType::Float(Float::Bf16).bytes(), PoolType::E4m3.bytes()), (2, 1));
    /// ```
    pub fn bytes(self) -> u32 {
        match self {
            PoolType::Float(float) => float.bytes(),
            PoolType::E4m3 => 1,
        }
    }

    /// Dimensions of a run of rows of `dim`.
    pub(crate) fn run(self, dim: u32) -> u32 {
        run_of(self.bytes(), dim)
    }
}

/// A pool's numbers in global memory.
#[derive(Clone, Copy)]
pub enum PoolArray<'k> {
    /// Floating-point numbers.
    Float(Array<'k>),
    /// Codes, from sm_89 on.
    E4m3 {
        /// The codes, aligned to 16 bytes.
        codes: Ptr<'k, Global, u8>,
        /// The factor of a code, above 0.
        scale: Val<'k, f32>,
    },
}

impl<'k> From<Array<'k>> for PoolArray<'k> {
    fn from(array: Array<'k>) -> PoolArray<'k> {
        PoolArray::Float(array)
    }
}

impl<'k> PoolArray<'k> {
    /// The number format.
    pub fn pool_type(self) -> PoolType {
        match self {
            PoolArray::Float(array) => PoolType::Float(array.float()),
            PoolArray::E4m3 { .. } => PoolType::E4m3,
        }
    }

    /// Stores one number, rounded to nearest even. A code is that of `value · (1 / scale)`, where
    /// the reciprocal is rounded; what is too large becomes the largest.
    #[track_caller]
    pub fn store(self, index: Val<'k, u32>, value: Val<'k, f32>) {
        match self {
            PoolArray::Float(array) => array.store(index, value),
            PoolArray::E4m3 { codes, scale } => {
                let code = (value * scale.recip()).pair_fp8(0.0f32, Fp8::E4M3);
                codes.at(index).store(code.cast::<u8>());
            }
        }
    }

    /// Stores `N` consecutive numbers, 1, 2 or 4, from an index that is a multiple of `N`.
    #[track_caller]
    pub(crate) fn store_run<const N: usize>(self, index: Val<'k, u32>, values: [Val<'k, f32>; N]) {
        match self {
            PoolArray::Float(array) => array.store_run(index, values),
            PoolArray::E4m3 { .. } => (0..).zip(values).for_each(|(i, value): (u32, _)| self.store(index + i, value)),
        }
    }

    /// The words from an element on, where a word begins.
    #[track_caller]
    pub(crate) fn words(self, index: Val<'k, u32>) -> Ptr<'k, Global, u32> {
        match self {
            PoolArray::Float(array) => array.words(index),
            PoolArray::E4m3 { codes, .. } => codes.at(index).cast(),
        }
    }
}
