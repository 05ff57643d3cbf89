//! Quantised weights on the device: codes of 4 or 8 bits, and the factors of their groups.
//!
//! A unit is eight rows, as of bf16, and a lane still reads 16 bytes of a tile: 32 codes of 4 bits, or 16 of 8. A tile so
//! covers 128 or 64 of k, which are four or two *steps* of 32. In each step a lane has the eight k that it would have of
//! bf16, so activations keep their order. A stage is its tiles and, behind them, the scales of its groups, then their zeros:
//! one contiguous copy.
//!
//! | code | in memory | a word has | within it |
//! |---|---|---|---|
//! | `u4`, `i4` | unsigned, `i4` plus 8 | 8 | element e at nibble `4·(e mod 2) + e/2` |
//! | `u8`, `i8` | unsigned, `i8` plus 128 | 4 | element e at byte `2·(e mod 2) + e/2` |
//! | `e4m3` | as it is | 4 | the same |
//!
//! So one mask takes a pair of neighbours in k out of a word, an element for each half of a register.

use tilewright_codegen::build::{Bf16x2, F16x2, Ptr, Shared, Val};
use tilewright_layout::Layout;

use super::packed::{leaf, modes};
use super::{DEPTH, Unit};
use crate::quant::{Code, QuantMatrix};
use crate::tile::{Float, Index};

/// How quantised weights are stored on a device: constant in the code, equal for all rows of a stream.
///
/// ```
/// use tilewright_kernels::gemv::{Codes, Unit};
/// use tilewright_kernels::{quant::Code, tile::Float};
/// let codes = Codes { code: Code::U4, group: Some(128), zeros: false, scale: Float::Bf16 };
/// let unit = Unit::of_codes(4096, 8, 16384, codes)?;
/// // 32 tiles of 512 bytes, and 32 groups of eight scales.
/// assert_eq!((unit.stages(), unit.stage_k(), unit.stage_bytes()), (1, 4096, 16384 + 512));
/// # Ok::<(), tilewright_kernels::gemv::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Codes {
    /// What the codes mean: `u4`, `u8` or `e4m3`; signed integers are stored with an offset.
    pub code: Code,
    /// Weights of a group along k; `None`: a row is one group.
    pub group: Option<u32>,
    /// Whether groups have zeros of their own; else it is the middle code of integers, and 0 of minifloats.
    pub zeros: bool,
    /// The type of the scales.
    pub scale: Float,
}

/// Why a device has no form for a quantised matrix; each names what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodesError {
    /// A code without a conversion.
    #[error("has {0} codes")]
    Code(Code),
    /// A group that is no whole number of steps.
    #[error("has groups of {0}, no multiple of 32")]
    Group(usize),
    /// Scales of a type that a device does not read.
    #[error("has scales that are no f32, f16 or bf16")]
    Scale,
    /// A permutation of k.
    #[error("has an act-order")]
    Order,
}

impl Codes {
    /// The form of codes that a device has for these: signed integers become unsigned.
    ///
    /// # Errors
    /// What of it a device does not have.
    pub fn new(code: Code, group: Option<usize>, zeros: bool, scale: Float) -> Result<Codes, CodesError> {
        let code = match code {
            Code::U4 | Code::I4 => Code::U4,
            Code::U8 | Code::I8 => Code::U8,
            Code::E4m3 => Code::E4m3,
            Code::E2m1 => return Err(CodesError::Code(code)),
        };
        match group {
            Some(found) if found == 0 || !found.is_multiple_of(DEPTH as usize) => Err(CodesError::Group(found)),
            _ => Ok(Codes { code, group: group.map(|group| group as u32), zeros, scale }),
        }
    }

    /// The form of a matrix.
    ///
    /// # Errors
    /// What of it a device does not have.
    pub fn of(matrix: &QuantMatrix) -> Result<Codes, CodesError> {
        let group = (matrix.groups() > 1).then_some(matrix.group());
        match matrix.order() {
            Some(_) => Err(CodesError::Order),
            None => Codes::new(matrix.code(), group, matrix.has_zeros(), matrix.scale_float()),
        }
    }

    /// The form that holds matrices of both: the common divisor of their groups, the wider scales. `None` where their codes
    /// differ.
    pub fn join(self, other: Codes) -> Option<Codes> {
        let group = match (self.group, other.group) {
            (Some(a), Some(b)) => Some(common_divisor(a, b)),
            (a, b) => a.or(b),
        };
        let scale = if self.scale == other.scale { self.scale } else { Float::F32 };
        let zeros = self.zeros || other.zeros;
        (self.code == other.code).then_some(Codes { code: self.code, group, zeros, scale })
    }

    /// k of a tile.
    pub(super) fn depth(self) -> u32 {
        128 * 4 / self.code.bits() as u32
    }

    /// Bytes of the factors of eight rows' group.
    pub(super) fn factor_bytes(self) -> u32 {
        Unit::ROWS * (self.scale.bytes() + if self.zeros { 2 } else { 0 })
    }

    /// A tile, (row, k) to code: each lane's 16 bytes one behind the other, its words step by step.
    pub(super) fn tile(self) -> Layout {
        let k = match self.code.bits() {
            4 => modes(&[leaf(2, 4), leaf(4, 1), leaf(4, 32), leaf(4, 8)]),
            _ => modes(&[leaf(2, 2), leaf(2, 1), leaf(2, 4), leaf(4, 16), leaf(2, 8)]),
        };
        modes(&[leaf(Unit::ROWS, 4 * 16 * 8 / self.code.bits() as u32), k])
    }

    /// What is stored for a zero: the number that is added to what the conversion of a code gives ([`super::convert`]).
    pub(super) fn addend(self, zero: i16) -> half::bf16 {
        let addend = if self.code == Code::U4 { -(128 + zero) } else { self.code.middle() - zero };
        half::bf16::from_f32(f32::from(addend))
    }
}

/// What is added to codes that are stored unsigned.
pub(super) const fn offset(code: Code) -> i16 {
    match code {
        Code::I4 => 8,
        Code::I8 => 128,
        Code::U4 | Code::U8 | Code::E4m3 | Code::E2m1 => 0,
    }
}

/// The largest number that divides both.
pub(super) const fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// The factors of consecutive steps of a tile.
#[derive(Clone, Copy)]
pub struct Factors<'k> {
    /// The scales of the two features whose sums this lane has.
    scales: Scales<'k>,
    /// What is added to the codes of the row whose weights this lane has, in both halves.
    pub(super) addend: Option<Val<'k, u32>>,
}

/// Two scales: of 16 bits as they are, until they are used.
#[derive(Clone, Copy)]
enum Scales<'k> {
    Pair([Val<'k, f32>; 2]),
    Word(Float, Val<'k, u32>),
}

impl<'k> Factors<'k> {
    /// Factors of words that were loaded before: two scales of 16 bits, and two neighbouring rows' zeros.
    pub(super) fn of_words(codes: Codes, scales: Val<'k, u32>, zeros: Option<Val<'k, u32>>) -> Factors<'k> {
        let addend = zeros.map(|zeros| zeros.prmt(zeros, scales.builder().lane() / 4 % 2 * 0x2222u32 + 0x1010u32));
        Factors { scales: Scales::Word(codes.scale, scales), addend }
    }

    /// The scales.
    #[track_caller]
    pub(super) fn scales(self) -> [Val<'k, f32>; 2] {
        match self.scales {
            Scales::Pair(both) => both,
            Scales::Word(Float::F16, both) => {
                let (a, b) = both.bits::<F16x2>().split();
                [a.cast(), b.cast()]
            }
            Scales::Word(_, both) => [(both << 16u32).bits(), (both & 0xffff_0000u32).bits()],
        }
    }
}

impl Unit {
    /// Steps that share their factors, at most a tile's.
    pub fn run(self) -> u32 {
        self.steps().min(self.span() / DEPTH)
    }

    /// Loads this lane's factors of a tile of a stage, whose factors begin at `at`: of each run of steps.
    #[track_caller]
    pub(super) fn factors<'k>(self, codes: Codes, at: Ptr<'k, Shared, u8>, tile: Index<'k>) -> Vec<Factors<'k>> {
        let (k, span, depth) = (at.builder(), self.span(), self.depth());
        let (runs, bytes) = (self.steps() / self.run(), Unit::ROWS * codes.scale.bytes());
        let first = if span >= depth { tile / (span / depth) } else { tile * runs };
        let zeros = self.zeros_at() - self.scales_at();
        let factors = |run: u32| {
            let group = first + run;
            let mine = (Index::lane(k) % 4 * (2 * codes.scale.bytes())).get(k);
            let pair = at.at(mine).at((group * bytes).get(k));
            let addend = codes.zeros.then(|| {
                let mine = (Index::lane(k) / 4 * 2).get(k);
                let one = at.at(mine).at((group * (2 * Unit::ROWS) + zeros).get(k)).cast::<u16>().load();
                let one = one.cast::<u32>();
                one.prmt(one, 0x1010u32)
            });
            Factors { scales: scale_pair(codes.scale, pair), addend }
        };
        (0..runs).map(factors).collect()
    }
}

/// Two neighbouring scales.
#[track_caller]
fn scale_pair<'k>(float: Float, at: Ptr<'k, Shared, u8>) -> Scales<'k> {
    match float {
        Float::F32 => Scales::Pair(at.cast::<f32>().load_vec()),
        Float::Bf16 | Float::F16 => Scales::Word(float, at.cast::<u32>().load()),
    }
}

/// A register of two bf16.
pub(super) fn pair<'k>(word: Val<'k, u32>) -> Val<'k, Bf16x2> {
    word.bits()
}
