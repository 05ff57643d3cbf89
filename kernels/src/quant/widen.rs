//! The kernel that writes a matrix of codes as bf16, row by row: for products of many rows, whose
//! operands are bf16.
//!
//! A thread takes eight places of a row. Codes are packed by [`Widen::codes`], with a scale and a
//! zero for each group ([`Widen::factors`]). A number is `(code − zero) · scale` in f32, rounded
//! once to bf16.

use half::bf16;
use tilewright_codegen::build::{Bf16x2, Global, Ptr, Val, block, record};
use tilewright_codegen::ir::{Arch, Kernel, Ty};

use super::{Code, CodeFormat, QuantMatrix};

/// The shapes and types that the kernel is specialised for.
///
/// ```
/// use tilewright_kernels::quant::{Code, QuantMatrix, QuantParts, Widen, Zeros};
/// let codes = vec![0x21, 0x0f];
/// let scales = vec![0.5, 2.0];
/// let parts = QuantParts { n: 1, k: 3, code: Code::U4, group: 2, codes, scales, zeros: Zeros::Same(8), order: None };
/// let matrix = QuantMatrix::new(parts)?;
/// let widen = Widen::of(&matrix);
/// // Rows end with whole runs of eight places.
/// assert_eq!(widen.codes(&matrix), [0x21, 0x0f, 0, 0]);
/// assert_eq!(widen.factors(&matrix), [0.5, 8.0, 2.0, 8.0]);
/// # Ok::<(), tilewright_kernels::quant::QuantError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Widen {
    /// The encoding of the codes.
    pub code: Code,
    /// Columns.
    pub k: u32,
    /// Codes of a group, along k.
    pub group: u32,
    /// Whether columns are permuted.
    pub ordered: bool,
}

/// Threads of a block.
const THREADS: u32 = 256;
/// Places of a thread.
const PLACES: u32 = 8;

impl Widen {
    /// The kernel of a matrix.
    pub fn of(matrix: &QuantMatrix) -> Widen {
        let [k, group] = [matrix.k(), matrix.group()].map(|extent| extent as u32);
        Widen { code: matrix.code(), k, group, ordered: matrix.order().is_some() }
    }

    /// Runs of places of a row.
    fn runs(self) -> u32 {
        self.k.div_ceil(PLACES)
    }

    /// Groups of a row.
    fn groups(self) -> u32 {
        self.k.div_ceil(self.group)
    }

    /// Blocks for a number of rows.
    pub fn blocks(self, rows: u32) -> u32 {
        (u64::from(rows) * u64::from(self.runs())).div_ceil(THREADS.into()).try_into().unwrap_or(u32::MAX)
    }

    /// The codes as the kernel reads them: rows of whole runs.
    pub fn codes(self, matrix: &QuantMatrix) -> Vec<u8> {
        let bytes = (self.runs() * self.code.bits() as u32) as usize;
        let mut codes = vec![0; matrix.n() * bytes];
        for (row, to) in codes.chunks_exact_mut(bytes).enumerate() {
            let from = matrix.row(row);
            to[..from.len()].copy_from_slice(from);
        }
        codes
    }

    /// Scale and zero of each group, `[n, groups, 2]`.
    pub fn factors(self, matrix: &QuantMatrix) -> Vec<f32> {
        let of_row = |row: usize| {
            let scales = matrix.scales(row).iter().enumerate();
            scales.flat_map(move |(group, &scale)| [scale, matrix.zero(row, group).into()])
        };
        (0..matrix.n()).flat_map(of_row).collect()
    }

    /// The kernel `widen`: the numbers of a matrix of `rows` rows from row `first_row` of `out` on,
    /// whose rows have k elements.
    ///
    /// Parameters: `codes`, `factors` (f32), `order` (u32 `[k]`, the column of every place; not
    /// looked at where places are columns), `out` (bf16), `rows`, `first_row`.
    pub fn record(self, arch: Arch) -> Kernel {
        record("widen", arch, block(THREADS), |k| {
            let codes = k.global::<u32>("codes");
            let factors = k.global::<f32>("factors");
            // Where there is no order, a launch passes some other array.
            let of_order: &[Ty] = if self.ordered { &[Ty::U32] } else { &[] };
            let order = k.global_of("order", of_order).cast::<u32>();
            let out = k.global::<bf16>("out");
            let [rows, first_row]: [Val<'_, u32>; 2] = [k.param("rows"), k.param("first_row")];
            let at = k.block_id() * THREADS + k.tid();
            let row = at / self.runs();
            let run = at % self.runs();
            k.when(row.lt(rows), || {
                let from = codes.at(at.mul_wide(self.code.bits() as u32 / 4));
                let words: Vec<Val<u32>> = match self.code.bits() {
                    4 => from.load_vec::<1>().into(),
                    _ => from.load_vec::<2>().into(),
                };
                let factors = factors.at((row * self.groups()).mul_wide(2u32));
                let first = run * PLACES;
                let together = self.group.is_multiple_of(PLACES).then(|| of_group(factors, first / self.group));
                let number = |place: u32| {
                    // Places beyond the last column have the last group, and are not stored.
                    let group = || of_group(factors, ((first + place) / self.group).min(self.groups() - 1));
                    let [scale, zero] = together.unwrap_or_else(group);
                    (self.value(&words, place) - zero) * scale
                };
                let out = out.at((first_row + row).mul_wide(self.k));
                if !self.ordered && self.k.is_multiple_of(PLACES) {
                    let word = |pair: u32| number(2 * pair).pair::<Bf16x2>(number(2 * pair + 1)).bits::<u32>();
                    out.at(first).cast::<u32>().store_vec([word(0), word(1), word(2), word(3)]);
                    return;
                }
                for place in 0..PLACES {
                    k.when((first + place).lt(self.k), || {
                        let column = if self.ordered { order.at(first + place).load() } else { first + place };
                        out.at(column).store(number(place).cast::<bf16>());
                    });
                }
            });
        })
    }

    /// The value of a code: exact.
    fn value<'k>(self, words: &[Val<'k, u32>], place: u32) -> Val<'k, f32> {
        let per_word = 32 / self.code.bits() as u32;
        let word = words[(place / per_word) as usize];
        let shift = place % per_word * self.code.bits() as u32;
        let bits = || (word >> shift) & ((1 << self.code.bits()) - 1);
        let signed =
            || (word << (32 - self.code.bits() as u32 - shift)).bits::<i32>() >> (32 - self.code.bits() as u32);
        match self.code.format() {
            CodeFormat::Unsigned => bits().cast(),
            CodeFormat::Signed => signed().cast(),
            CodeFormat::Float { .. } => minifloat(self.code, bits()),
        }
    }
}

/// The exact value of a floating-point code; for another code its bits as a number. Exponent and
/// mantissa go to the places of an f32, times the power of two by which the biases differ.
pub(crate) fn minifloat(code: Code, bits: Val<u32>) -> Val<f32> {
    let CodeFormat::Float { mantissa, bias } = code.format() else { return bits.cast() };
    let sign = 1u32 << (code.bits() - 1);
    let magnitude = (bits & (sign - 1)) << (23 - mantissa);
    (magnitude | ((bits & sign) << (32 - code.bits() as u32))).bits::<f32>() * f32::from_bits((254 - bias) << 23)
}

/// Scale and zero of a group of a row.
fn of_group<'k>(factors: Ptr<'k, Global, f32>, group: Val<'k, u32>) -> [Val<'k, f32>; 2] {
    factors.at(group * 2).load_vec()
}
