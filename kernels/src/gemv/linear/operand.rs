//! Activations in shared memory as the A operand of `m16n8k16`.

use core::cell::Cell;

use half::bf16;
use tilewright_codegen::build::{F16x2, Ptr, Shared, Val, Var};

use super::beyond::Beyond;
use super::packing::{Packing, Quads};
use crate::gemv::product::Fragment;
use crate::gemv::{DEPTH, Terms, Unit, convert};
use crate::tile::narrow;
use crate::warps::ConsumerWarps;

/// Activations `[parts, rows, padded k]` in shared memory.
#[derive(Clone, Copy)]
pub struct Operand<'k> {
    at: Ptr<'k, Shared, bf16>,
    unit: Unit,
    packing: Packing,
    beyond: Option<Beyond<'k>>,
}

/// Where a lane reads: each of its quads of a tile.
#[derive(Clone)]
pub(super) struct Lane<'k> {
    quads: Vec<Ptr<'k, Shared, u32>>,
    packing: Packing,
}

impl<'k> Operand<'k> {
    /// Bytes of shared memory that rows of a unit's length take.
    ///
    /// ```
    /// use tilewright_kernels::{gemv::Unit, gemv::linear::{Operand, Packing}, tile::Float};
    /// let unit = Unit::new(2048, 8, 16384)?;
    /// assert_eq!(Operand::bytes(unit, Packing::of(1, Float::F32)), 2 * (2048 + 32) * 2);
    /// assert_eq!(Operand::bytes(unit, Packing::of(1, Float::Bf16)), (2048 + 32) * 2);
    /// # Ok::<(), tilewright_kernels::gemv::UnitError>(())
    /// ```
    pub fn bytes(unit: Unit, packing: Packing) -> u32 {
        let packing = packing.meeting(unit);
        packing.parts() * packing.rows() * pitch(unit) * 2
    }

    /// The operand that begins there, aligned to 16 bytes.
    pub fn new(at: Ptr<'k, Shared, bf16>, (unit, packing): (Unit, Packing), beyond: Option<Beyond<'k>>) -> Operand<'k> {
        Operand { at, unit, packing, beyond }
    }

    /// Rows of the batch.
    pub fn rows(self) -> u32 {
        self.packing.rows()
    }

    /// Parts of an element.
    pub(super) fn parts(self) -> u32 {
        self.packing.parts()
    }

    /// Stores eight elements of a part of a row, from a column that is a multiple of eight, as they are multiplied.
    #[track_caller]
    pub(super) fn store8(self, part: u32, row: u32, column: Val<'k, u32>, words: [Val<'k, u32>; 4]) {
        self.row(part, row).at(column).cast::<u32>().store_vec(words);
    }

    /// A row of a part.
    fn row(self, part: u32, row: u32) -> Ptr<'k, Shared, bf16> {
        self.at.at((part * self.rows() + row) * pitch(self.unit))
    }

    /// Stores four elements of a row, from a column that is a multiple of four; as codes want them.
    #[track_caller]
    pub(super) fn store4(self, row: u32, column: Val<'k, u32>, [a, b, c, d]: [Val<'k, f32>; 4]) {
        let [even, odd] = lift(self.unit, self.packing);
        let times = |x: Val<'k, f32>, lift: Option<f32>| lift.map_or(x, |lift| x * lift);
        let [a, b, c, d] = [times(a, even), times(b, even), times(c, odd), times(d, odd)];
        let place = |part: u32| self.row(part, row).at(column).cast::<u32>();
        if self.packing.terms() == Terms::F16 {
            self.beyond.into_iter().for_each(|beyond| beyond.look(&[a, b, c, d]));
            return place(0).store_vec([a.pair::<F16x2>(b).bits(), c.pair::<F16x2>(d).bits()]);
        }
        let ((ab, rest_ab), (cd, rest_cd)) = (narrow(a, b), narrow(c, d));
        place(0).store_vec([ab, cd]);
        if self.packing.parts() == 2 {
            let [low_a, low_b, low_c, low_d] = [rest_ab[0], rest_ab[1], rest_cd[0], rest_cd[1]];
            place(1).store_vec([narrow(low_a, low_b).0, narrow(low_c, low_d).0]);
        }
    }

    /// Zeros behind the rows, where weights are zeros too: what lay there could be a NaN.
    pub(super) fn clear_tail(self, team: ConsumerWarps<'k>) {
        let tail = self.unit.padded_k() - self.unit.k();
        for row in 0..self.packing.parts() * self.rows() {
            let start = self.row(0, row).at(self.unit.k()).cast::<u16>();
            team.each(tail, |at| start.at(at).store(0u16));
        }
    }

    /// Where this lane reads the columns of two steps at a time, for codes as the A operand: lanes 0 to 15 of the first step.
    pub(super) fn two_steps(self, team: ConsumerWarps<'k>) -> TwoSteps<'k> {
        let (k, columns) = (team.k, self.packing.parts() * self.packing.rows());
        let column = team.k.lane() / 4 % 4;
        let reads = (columns < 4).then(|| column.lt(columns));
        let at = column.min(columns - 1) * pitch(self.unit) + k.lane() / 16 * DEPTH + k.lane() % 4 * 8;
        let kept = if columns < 4 { TwoSteps::IN_FLIGHT } else { 0 };
        let kept = (0..kept).map(|_| std::array::from_fn(|_| k.var(0u32))).collect();
        TwoSteps { from: self.at.at(at).cast(), reads, kept, next: Cell::new(0) }
    }

    /// Where this lane reads.
    pub(super) fn lane(self, team: ConsumerWarps<'k>) -> Lane<'k> {
        let (packing, column) = (self.packing, team.k.lane() % 4 * 8);
        let quads = packing.halves().into_iter().flat_map(|half| {
            let row = half.row(team);
            let of_part = |part: Val<'k, u32>| {
                let start = (part * packing.rows() + row) * pitch(self.unit);
                self.at.at(start + column).cast::<u32>()
            };
            let parts = match packing.quads() {
                Quads::High => vec![team.k.lit(0)],
                Quads::Folded => vec![team.k.lane() / 16],
                Quads::Both => vec![team.k.lit(0), team.k.lit(1)],
            };
            parts.into_iter().map(of_part).collect::<Vec<_>>()
        });
        Lane { quads: quads.collect(), packing }
    }
}

impl<'k> Lane<'k> {
    /// This lane's words of a tile.
    #[track_caller]
    pub fn tile(&self, tile: Val<'k, u32>) -> Vec<Fragment<'k>> {
        let quads: Vec<[Val<u32>; 4]> = self.quads.iter().map(|from| from.at(tile * (DEPTH / 2)).load_vec()).collect();
        self.packing.fragments(&quads)
    }
}

/// Where a lane reads the columns of two steps at a time. Lanes of columns that are nobody's read nothing: half of what shared memory gives is
/// not asked for. What they bring instead is ignored.
pub(super) struct TwoSteps<'k> {
    from: Ptr<'k, Shared, u32>,
    /// Whether this lane's column is somebody's; `None`: all are.
    reads: Option<Val<'k, bool>>,
    /// Where lanes that read nothing have numbers all the same, by turns.
    kept: Vec<[Var<'k, u32>; 4]>,
    next: Cell<usize>,
}

impl<'k> TwoSteps<'k> {
    /// Loads that are on their way together.
    const IN_FLIGHT: usize = 8;

    /// This lane's words of a step and the next.
    #[track_caller]
    pub fn get(&self, step: Val<'k, u32>) -> Vec<Fragment<'k>> {
        let at = self.from.at(step * (DEPTH / 2));
        let Some(reads) = self.reads else { return vec![Fragment { low: at.load_vec(), high: None }] };
        let number = self.next.replace((self.next.get() + 1) % self.kept.len());
        let kept = &self.kept[number];
        reads.builder().when(reads, || kept.iter().zip(at.load_vec::<4>()).for_each(|(kept, word)| kept.set(word)));
        vec![Fragment { low: kept.map(Var::get), high: None }]
    }

    /// The same of some steps, all in flight together.
    #[track_caller]
    pub fn all(&self, steps: &[Val<'k, u32>]) -> Vec<Vec<Fragment<'k>>> {
        let Some(reads) = self.reads else { return steps.iter().map(|&step| self.get(step)).collect() };
        let k = reads.builder();
        let words: Vec<[Var<u32>; 4]> = steps.iter().map(|_| std::array::from_fn(|_| k.var(0u32))).collect();
        k.when(reads, || {
            for (words, &step) in words.iter().zip(steps) {
                let loaded = self.from.at(step * (DEPTH / 2)).load_vec::<4>();
                words.iter().zip(loaded).for_each(|(to, word)| to.set(word));
            }
        });
        words.iter().map(|words| vec![Fragment { low: words.map(Var::get), high: None }]).collect()
    }
}

/// What the even and the odd pairs of a lane's eight elements are multiplied with for the codes of a unit, if it has codes.
pub(super) fn lift(unit: Unit, packing: Packing) -> [Option<f32>; 2] {
    match unit.codes() {
        Some(codes) => convert::lift(codes.code, packing.terms()).map(Some),
        None => [None; 2],
    }
}

/// Elements from a row to the next: an odd number of tiles' k, half of the banks each, so that neighbouring rows lie in different banks when a warp
/// reads them.
fn pitch(unit: Unit) -> u32 {
    ((unit.padded_k() / DEPTH) | 1) * DEPTH
}
