//! Quantised weights on the device: codes of 4 or 8 bits, and the factors of their groups.
//!
//! A strip is eight rows, as of bf16, and a lane still reads 16 bytes of a tile: 32 codes of 4
//! bits, or 16 of 8. A tile so covers 128 or 64 of k, which are four or two *steps* of 32. In each
//! step a lane has the eight k that it would have of bf16, so activations keep their order. A stage
//! is its tiles, then the scales of its groups, then their zeros: one contiguous copy.
//!
//! | code | in memory | a word has | within it |
//! |---|---|---|---|
//! | `u4`, `i4` | unsigned, `i4` plus 8 | 8 | element e at nibble `4·(e mod 2) + e/2` |
//! | `e2m1` | as it is | 8 | element e at nibble `2·(e mod 2) + 4·(e/2 mod 2) + e/4` |
//! | `u8`, `i8` | unsigned, `i8` plus 128 | 4 | element e at byte `2·(e mod 2) + e/2` |
//! | `e4m3` | as it is | 4 | element e at byte e |
//!
//! If groups are not a whole number of steps, such as groups of 16, a step's halves are the k of
//! its two instructions: element e of lane l is the step's k 4·l + e, or 16 + 4·l + e − 4 from e =
//! 4 on. The activations have the same order ([`columns`](crate::gemv::activations::columns)), and
//! each instruction has sums of its own.
//!
//! Blocks of sixteen `e2m1` ([`Codes::of_blocks`]) have their scales between tiles and factors, 64
//! bytes a tile, `[row, half of a step, step]`: a lane's eight codes of a step are of one block,
//! and its four blocks of a tile a word.
//!
//! So one mask takes a pair of neighbours in k out of a word, an element for each half of a
//! register; of `e4m3` an instruction does. Of `e2m1` a shift and two masks make four `e4m3`.

use tilewright_layout::Layout;

use super::weight_tile::{DEPTH, ROWS, leaf, modes};
use crate::quant::{Code, QuantMatrix};
use crate::tile::Float;

/// The storage format of quantised weights on a device: a constant of the generated code, equal for
/// all rows of a stream.
///
/// ```
/// use tilewright_kernels::weights::{Codes, Strip};
/// use tilewright_kernels::{quant::Code, tile::Float};
/// let codes = Codes { code: Code::U4, group: Some(128), zeros: false, scale: Float::Bf16, blocks: false };
/// let strip = Strip::of_codes(4096, 8, 16384, codes)?;
/// // 32 tiles of 512 bytes, and 32 groups of eight scales.
/// assert_eq!((strip.stages(), strip.stage_k(), strip.stage_bytes()), (1, 4096, 16384 + 512));
/// # Ok::<(), tilewright_kernels::weights::StripError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Codes {
    /// The encoding of the codes: `u4`, `u8`, `e4m3` or `e2m1`; signed integers are stored with an
    /// offset.
    pub code: Code,
    /// Weights of a group along k; `None`: a row is one group.
    pub group: Option<u32>,
    /// Whether groups have zeros of their own; else it is the middle code of integers, and 0 of
    /// minifloats.
    pub zeros: bool,
    /// The type of the scales.
    pub scale: Float,
    /// Whether sixteen `e2m1` each have an `e4m3` that makes them numbers of f16, as NVFP4's have
    /// ([`Codes::of_blocks`]).
    pub blocks: bool,
}

/// Why a device has no form for a quantised matrix; each names what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodesError {
    /// A group that is not a whole number of half steps.
    #[error("has groups of {0}, no multiple of 16")]
    Group(usize),
    /// Scales of a type that a device does not read.
    #[error("has scales that are no f32, f16 or bf16")]
    Scale,
    /// A permutation of k, where rows are read one by one or by parts.
    #[error("has an act-order")]
    Order,
}

impl Codes {
    /// The form of codes that a device has for these: signed integers become unsigned.
    ///
    /// # Errors
    /// If a device does not support the format.
    pub fn new(code: Code, group: Option<usize>, zeros: bool, scale: Float) -> Result<Codes, CodesError> {
        let code = match code {
            Code::U4 | Code::I4 => Code::U4,
            Code::U8 | Code::I8 => Code::U8,
            Code::E4m3 | Code::E2m1 => code,
        };
        match group {
            Some(found) if found == 0 || !found.is_multiple_of(HALF as usize) => Err(CodesError::Group(found)),
            _ => Ok(Codes { code, group: group.map(|group| group as u32), zeros, scale, blocks: false }),
        }
    }

    /// The format of NVFP4: a row is one group, whose scale is the tensor's, and blocks of sixteen
    /// codes have an `e4m3` each. That times a code has at most six bits: exact as f16, and sums of
    /// them need no scale of their own.
    ///
    /// ```
    /// use tilewright_kernels::weights::{Codes, Strip};
    /// let strip = Strip::of_codes(4096, 8, 16384, Codes::of_blocks())?;
    /// // 32 tiles of 512 bytes with 64 bytes of their blocks each, and eight scales.
    /// assert_eq!(strip.stage_bytes(), (32u32 * (512 + 64) + 32).next_multiple_of(128));
    /// # Ok::<(), tilewright_kernels::weights::StripError>(())
    /// ```
    pub fn of_blocks() -> Codes {
        Codes { code: Code::E2m1, group: None, zeros: false, scale: Float::F32, blocks: true }
    }

    /// The form of a matrix. Of one with an act-order codes lie place by place: what they meet is
    /// brought in that order ([`Ordered`](crate::gemv::activations::Ordered)).
    ///
    /// # Errors
    /// If a device does not support the format.
    pub fn of(matrix: &QuantMatrix) -> Result<Codes, CodesError> {
        if matrix.blocks().is_some() {
            return Ok(Codes::of_blocks());
        }
        let group = (matrix.groups() > 1).then_some(matrix.group());
        Codes::new(matrix.code(), group, matrix.has_zeros(), matrix.scale_float())
    }

    /// The form that holds matrices of both: the common divisor of their groups, the wider scales.
    /// `None` where their codes differ.
    pub fn join(self, other: Codes) -> Option<Codes> {
        if self.blocks != other.blocks {
            return self.joined().join(other.joined());
        }
        let group = match (self.group, other.group) {
            (Some(a), Some(b)) => Some(common_divisor(a, b)),
            (a, b) => a.or(b),
        };
        let scale = if self.scale == other.scale { self.scale } else { Float::F32 };
        let zeros = self.zeros || other.zeros;
        (self.code == other.code).then_some(Codes { code: self.code, group, zeros, scale, blocks: self.blocks })
    }

    /// Folds the tensor's scale into each block's.
    fn joined(self) -> Codes {
        if self.blocks { Codes { group: Some(BLOCK), blocks: false, ..self } } else { self }
    }

    /// Whether groups are whole steps of 32, or rows, and have all factors: what products of many
    /// rows read.
    pub fn is_of_whole_steps(self) -> bool {
        !self.is_halved() && !self.blocks
    }

    /// Whether the halves of a step may be of different groups.
    pub fn is_halved(self) -> bool {
        self.group.is_some_and(|group| !group.is_multiple_of(DEPTH))
    }

    /// Whether two codes at a time become numbers of bf16: what a code is less its zero is one, and
    /// so is its scale.
    pub(crate) fn is_widened_in_pairs(self) -> bool {
        self.code.is_integer() && self.code.bits() == 4 && self.scale == Float::Bf16
    }

    /// k of a tile.
    pub(crate) fn depth(self) -> u32 {
        128 * 4 / self.code.bits() as u32
    }

    /// Bytes of the factors of eight rows' group.
    pub(crate) fn factor_bytes(self) -> u32 {
        ROWS * (self.scale.bytes() + if self.zeros { 2 } else { 0 })
    }

    /// A tile, (row, k) to code: each lane's 16 bytes one after the other, its words step by step.
    pub(crate) fn tile(self) -> Layout {
        let k = match (self.code, self.is_halved()) {
            (Code::U4 | Code::I4, false) => modes(&[leaf(2, 4), leaf(4, 1), leaf(4, 32), leaf(4, 8)]),
            (Code::U4 | Code::I4, true) => modes(&[leaf(2, 4), leaf(2, 1), leaf(4, 32), leaf(2, 2), leaf(4, 8)]),
            (Code::E2m1, false) => modes(&[leaf(2, 2), leaf(2, 4), leaf(2, 1), leaf(4, 32), leaf(4, 8)]),
            (Code::E2m1, true) => modes(&[leaf(2, 2), leaf(2, 4), leaf(4, 32), leaf(2, 1), leaf(4, 8)]),
            (Code::U8 | Code::I8, false) => modes(&[leaf(2, 2), leaf(2, 1), leaf(2, 4), leaf(4, 16), leaf(2, 8)]),
            (Code::U8 | Code::I8, true) => modes(&[leaf(2, 2), leaf(2, 1), leaf(4, 16), leaf(2, 4), leaf(2, 8)]),
            (Code::E4m3, false) => modes(&[leaf(8, 1), leaf(4, 16), leaf(2, 8)]),
            (Code::E4m3, true) => modes(&[leaf(4, 1), leaf(4, 16), leaf(2, 4), leaf(2, 8)]),
        };
        modes(&[leaf(ROWS, 4 * 16 * 8 / self.code.bits() as u32), k])
    }

    /// The stored form of a zero point: the stored code whose value is 0.
    pub(super) fn stored_zero(self, zero: i16) -> half::bf16 {
        half::bf16::from_f32(f32::from(zero))
    }
}

/// The offset added to codes that are stored unsigned.
pub(super) const fn offset(code: Code) -> i16 {
    match code {
        Code::I4 => 8,
        Code::I8 => 128,
        Code::U4 | Code::U8 | Code::E4m3 | Code::E2m1 => 0,
    }
}

/// Weights of a row that an instruction takes, the least of a group.
const HALF: u32 = DEPTH / 2;
/// Codes of a block.
pub(super) const BLOCK: u32 = 16;

/// The largest number that divides both.
pub(super) const fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
