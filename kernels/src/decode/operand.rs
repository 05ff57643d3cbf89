//! Activations in shared memory as the A operand of `m16n8k16`.
//!
//! The rows of the operand are rows of the batch. Up to four of them leave rows of the MMA free: there goes what bf16
//! rounds off of f32 (`x = high + low`), so that products are as exact as the weights at no cost in instructions. From five
//! rows on, activations are rounded to bf16.

use half::bf16;
use tilewright_codegen::build::{Ptr, Shared, Val};

use super::array::narrow;
use super::{Float, Team, Unit};

/// Most rows that come in two parts.
const SPLIT_ROWS: u32 = 4;
/// Elements of a row that a lane's group of four reads at once: half of the banks.
const RUN: u32 = 32;

/// Activations `[parts, rows, padded k]` in shared memory.
#[derive(Clone, Copy)]
pub struct Operand<'k> {
    at: Ptr<'k, Shared, bf16>,
    rows: u32,
    unit: Unit,
    float: Float,
}

/// A lane's words of a chunk for the MMA's rows 0 to 7 and, from nine rows on, 8 to 15.
#[derive(Clone, Copy)]
pub(super) struct Fragment<'k> {
    pub low: [Val<'k, u32>; 4],
    pub high: Option<[Val<'k, u32>; 4]>,
}

/// Where a lane reads.
#[derive(Clone, Copy)]
pub(super) struct Lane<'k> {
    low: Ptr<'k, Shared, u32>,
    high: Option<Ptr<'k, Shared, u32>>,
}

impl<'k> Operand<'k> {
    /// Bytes of shared memory that `rows` rows of a unit's length take, which come from elements of that type.
    ///
    /// ```
    /// use tilewright_kernels::decode::{Float, Operand, Unit};
    /// let unit = Unit::new(2048, 8, 16384)?;
    /// assert_eq!(Operand::bytes(1, unit, Float::F32), 2 * (2048 + 32) * 2);
    /// assert_eq!(Operand::bytes(1, unit, Float::Bf16), (2048 + 32) * 2);
    /// assert_eq!(Operand::bytes(8, unit, Float::F32), 8 * (2048 + 32) * 2);
    /// # Ok::<(), tilewright_kernels::decode::UnitError>(())
    /// ```
    pub fn bytes(rows: u32, unit: Unit, float: Float) -> u32 {
        parts(rows, float) * rows * pitch(unit) * 2
    }

    /// The operand that begins there, aligned to 16 bytes, for 1 to 16 rows.
    pub fn new(at: Ptr<'k, Shared, bf16>, rows: u32, unit: Unit, float: Float) -> Operand<'k> {
        Operand { at, rows, unit, float }
    }

    /// Rows of the batch.
    pub fn rows(self) -> u32 {
        self.rows
    }

    /// Parts in which rows are stored.
    pub(super) fn parts(self) -> u32 {
        parts(self.rows, self.float)
    }

    fn pitch(self) -> u32 {
        pitch(self.unit)
    }

    /// Stores four elements of a row, from a column that is a multiple of four.
    #[track_caller]
    pub(super) fn store4(self, row: u32, column: Val<'k, u32>, [a, b, c, d]: [Val<'k, f32>; 4]) {
        let place = |part: u32| self.at.at((part * self.rows + row) * self.pitch()).at(column).cast::<u32>();
        let ((ab, rest_ab), (cd, rest_cd)) = (narrow(a, b), narrow(c, d));
        place(0).store_vec([ab, cd]);
        if self.parts() == 2 {
            let [low_a, low_b, low_c, low_d] = [rest_ab[0], rest_ab[1], rest_cd[0], rest_cd[1]];
            place(1).store_vec([narrow(low_a, low_b).0, narrow(low_c, low_d).0]);
        }
    }

    /// Zeros behind the rows, where weights are zeros too: what lay there could be a NaN.
    pub(super) fn clear_tail(self, team: Team<'k>) {
        let tail = self.unit.padded_k() - self.unit.k();
        for row in 0..self.parts() * self.rows {
            let start = self.at.at(row * self.pitch() + self.unit.k()).cast::<u16>();
            team.each(tail, |at| start.at(at).store(0u16));
        }
    }

    /// Where this lane reads: rows of the MMA that stand for no row of the batch repeat one that does, and are ignored.
    pub(super) fn lane(self, team: Team<'k>) -> Lane<'k> {
        let k = team.k;
        let (group, column) = (k.lane() / 4, k.lane() % 4 * 8);
        let row = |row: Val<'k, u32>| self.at.at(row * self.pitch() + column).cast::<u32>();
        let last = self.rows - 1;
        if self.parts() == 2 {
            return Lane { low: row((group % 4).min(last) + group / 4 * self.rows), high: None };
        }
        let high = (self.rows > 8).then(|| row((group + 8).min(last)));
        Lane { low: row(group.min(last)), high }
    }
}

impl<'k> Lane<'k> {
    /// This lane's words of a chunk.
    #[track_caller]
    pub fn chunk(self, chunk: Val<'k, u32>) -> Fragment<'k> {
        // A chunk is 32 elements: 16 words.
        let read = |from: Ptr<'k, Shared, u32>| from.at(chunk * 16).load_vec::<4>();
        Fragment { low: read(self.low), high: self.high.map(read) }
    }
}

/// Elements from a row to the next: an odd number of runs, so that neighbouring rows lie in different banks when a warp
/// reads them.
fn pitch(unit: Unit) -> u32 {
    ((unit.padded_k() / RUN) | 1) * RUN
}

impl Float {
    /// The narrowest type from which a product of so many rows loses nothing: f32 where rows come in two parts.
    ///
    /// ```
    /// use tilewright_kernels::decode::Float;
    /// assert_eq!((Float::enough_for(4), Float::enough_for(5)), (Float::F32, Float::Bf16));
    /// ```
    pub fn enough_for(rows: u32) -> Float {
        if rows <= SPLIT_ROWS { Float::F32 } else { Float::Bf16 }
    }
}

/// Parts in which rows are stored: bf16 has no low part.
pub(super) fn parts(rows: u32, float: Float) -> u32 {
    if rows <= SPLIT_ROWS && float != Float::Bf16 { 2 } else { 1 }
}
