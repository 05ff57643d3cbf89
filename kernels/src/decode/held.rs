//! Activations held in registers as the A operand of `m16n8k16`: each warp brings the columns that it multiplies, straight
//! from where they lie.
//!
//! No copy in shared memory: the ring may have that, and nobody waits for the slowest warp. What a lane needs of a chunk
//! are eight consecutive elements of a row, `8·(lane mod 4) ..+8` of a run of 32. Where they take more than 16 bytes, pairs
//! of lanes load them four by four, so that each load of a warp takes whole sectors of 32 bytes, and exchange what they
//! packed.

use std::cell::Cell;

use tilewright_codegen::build::{Ptr, RegArray, Shared, Val};

use super::array::narrow;
use super::input::{Merge, Squares};
use super::operand::{Fragment, parts};
use super::{Array, Input, Team, Unit};

/// Most registers of a lane that hold activations.
const REGISTERS: u32 = 128;
/// Loads of four elements that are in flight together.
const TOGETHER: usize = 16;
/// Stages whose activations are on their way while the products of one are taken.
const AHEAD: u32 = 4;

/// A warp's share of the activations: the fragments of its chunks.
///
/// What needs no more than to be loaded comes stage by stage, while the products of the first unit are taken; where it has
/// no room in registers, it comes again with each unit.
pub struct Held<'k> {
    /// By stage, as many as are held, and by chunk: a lane's words.
    slots: Vec<Vec<RegArray<'k, u32>>>,
    /// Where stages are loaded from.
    source: Option<Source<'k>>,
    /// Stages of a unit.
    stages: u32,
}

/// Words of the operand as they lie, and where this lane's row begins in the operand's halves.
struct Source<'k> {
    x: Array<'k>,
    share: Share<'k>,
    starts: Vec<Val<'k, u32>>,
}

impl<'k> Held<'k> {
    /// Whether so many rows of a unit's length can be held. `words`: they are untagged bf16.
    ///
    /// ```
    /// use tilewright_kernels::decode::{Held, Unit};
    /// let (wide, narrow) = (Unit::new(8192, 8, 16384)?, Unit::new(2048, 8, 16384)?);
    /// assert!(Held::fits(16, wide, true) && Held::fits(16, narrow, false));
    /// assert!(Held::fits(8, wide, false) && !Held::fits(9, wide, false));
    /// # Ok::<(), tilewright_kernels::decode::UnitError>(())
    /// ```
    pub fn fits(rows: u32, unit: Unit, words: bool) -> bool {
        let whole = unit.stages() * stage_registers(rows, unit) <= REGISTERS;
        let parts = 2 * stage_registers(rows, unit) <= REGISTERS && unit.padded_k() == unit.k();
        whole || words && parts
    }

    /// Fragments that come stage by stage.
    fn streamed(rows: u32, source: Source<'k>) -> Held<'k> {
        let (k, unit) = (source.share.team.k, source.share.unit);
        let (stages, each) = (unit.stages(), stage_registers(rows, unit));
        let most = REGISTERS / each;
        let slots = if stages <= most { stages } else { most.min(AHEAD) };
        let chunk = |_| k.regs_unset(4 * rows.div_ceil(8));
        let slots = (0..slots).map(|_| (0..unit.per_warp()).map(chunk).collect()).collect();
        Held { slots, source: Some(source), stages }
    }

    /// Fragments that are there, by chunk.
    fn loaded(unit: Unit, low: &[[Val<'k, u32>; 4]], high: Option<&[[Val<'k, u32>; 4]]>) -> Held<'k> {
        let chunk = |(at, low): (usize, &[Val<'k, u32>; 4])| {
            let words: Vec<Val<u32>> = low.iter().chain(high.iter().flat_map(|high| &high[at])).copied().collect();
            let regs = low[0].builder().regs_unset(words.len() as u32);
            words.into_iter().zip(0..).for_each(|(word, i)| regs.set(i, word));
            regs
        };
        let chunks: Vec<RegArray<u32>> = low.iter().enumerate().map(chunk).collect();
        let slots = chunks.chunks(unit.per_warp() as usize).map(<[_]>::to_vec).collect();
        Held { slots, source: None, stages: unit.stages() }
    }

    /// Whether the first unit's products differ from the others': they bring activations along.
    pub(super) fn first_differs(&self) -> bool {
        self.source.is_some() && self.slots.len() as u32 == self.stages
    }

    /// Stages that are on their way while another's products are taken.
    fn ahead(&self) -> u32 {
        AHEAD.min(self.slots.len() as u32 - u32::from((self.slots.len() as u32) < self.stages))
    }

    /// Begins a unit's products, the first one's or another's.
    pub(super) fn begin(&self, first: bool) {
        (0..self.ahead()).for_each(|stage| self.load(stage, first));
    }

    /// Asks for what a stage will need, while another's products are taken.
    fn load(&self, stage: u32, first: bool) {
        let Some(source) = &self.source else { return };
        if stage >= self.stages || self.first_differs() && !first {
            return;
        }
        let slot = &self.slots[stage as usize % self.slots.len()];
        for (half, &start) in source.starts.iter().enumerate() {
            let loaded = source.x.eights(&source.share.eights(start, stage));
            for (regs, words) in slot.iter().zip(loaded) {
                words.into_iter().zip(4 * half as u32..).for_each(|(word, i)| regs.set(i, word));
            }
        }
    }

    /// The fragments of a stage's chunks; asks for a later one's.
    pub(super) fn stage(&self, stage: u32, first: bool) -> Vec<Fragment<'k>> {
        self.load(stage + self.ahead(), first);
        let slot = &self.slots[stage as usize % self.slots.len()];
        let words = |regs: &RegArray<'k, u32>, from: u32| std::array::from_fn(|i| regs.get(from + i as u32));
        let fragment =
            |regs: &RegArray<'k, u32>| Fragment { low: words(regs, 0), high: (regs.len() > 4).then(|| words(regs, 4)) };
        slot.iter().map(fragment).collect()
    }
}

/// Registers of a lane for a stage's chunks.
fn stage_registers(rows: u32, unit: Unit) -> u32 {
    unit.per_warp() * 4 * rows.div_ceil(8)
}

/// Whose activations this lane brings: the columns of its warp, of one row of the operand's upper or lower half.
#[derive(Clone, Copy)]
struct Share<'k> {
    team: Team<'k>,
    unit: Unit,
    /// Rows of the batch.
    rows: u32,
    /// Parts of a row.
    parts: u32,
    /// First row of the half: 0 or 8.
    base: u32,
}

/// Four elements of a row from a column on; `inside`: whether there are any, where that is not known.
#[derive(Clone, Copy)]
struct Four<'k> {
    column: Val<'k, u32>,
    inside: Option<Val<'k, bool>>,
}

impl<'k> Input<'k> {
    /// Brings rows `first..`; of a normalised input also the sums of squares. `area` keeps the weights of splits.
    pub(super) fn hold(
        self,
        team: Team<'k>,
        unit: Unit,
        first: Val<'k, u32>,
        rows: u32,
        squares: Squares<'k>,
        area: Ptr<'k, Shared, f32>,
    ) -> Held<'k> {
        let share = |base| Share { team, unit, rows, parts: parts(rows, self.float()), base };
        if let Input::Plain(x) = self
            && x.is_words()
            && share(0).is_whole()
        {
            let halves = [0, 8].into_iter().filter(|&base| base < rows).map(share);
            let starts = halves.map(|share| (first + share.row()) * unit.k()).collect();
            return Held::streamed(rows, Source { x, share: share(0), starts });
        }
        let splits = Splits { first, rows, area, weighed: Cell::new(false) };
        let low = self.words(share(0), first, squares, &splits);
        let high = (rows > 8).then(|| self.words(share(8), first, squares, &splits));
        Held::loaded(unit, &low, high.as_deref())
    }

    /// This lane's words of each chunk.
    fn words(
        self,
        share: Share<'k>,
        first: Val<'k, u32>,
        squares: Squares<'k>,
        splits: &Splits<'k>,
    ) -> Vec<[Val<'k, u32>; 4]> {
        let (row, k) = (first + share.row(), share.team.k);
        let start = row * share.unit.k();
        match self {
            Input::Plain(x) => share.by_fours(TOGETHER / 2, |fours| gather(x, start, fours)),
            Input::RmsNorm { x, weight, .. } => {
                let sum = k.var(0.0f32);
                let words = share.by_fours(TOGETHER / 2, |fours| {
                    let weights = gather(weight, k.lit(0), fours);
                    let loaded = gather(x, start, fours);
                    for x in loaded.iter().flatten() {
                        sum.set(x.fma(*x, sum.get()));
                    }
                    let times = |(x, w): (&[Val<'k, f32>; 4], &[Val<'k, f32>; 4])| std::array::from_fn(|i| x[i] * w[i]);
                    loaded.iter().zip(&weights).map(times).collect()
                });
                share.add_up(sum.get(), squares);
                words
            }
            Input::Merge(merge) => {
                let together = (TOGETHER / merge.splits as usize).max(1);
                share.by_fours(together, |fours| merge.fours(share, splits, row, fours))
            }
        }
    }
}

/// Elements of an array from `start` on; zeros where there are none.
fn gather<'k>(array: Array<'k>, start: Val<'k, u32>, fours: &[Four<'k>]) -> Vec<[Val<'k, f32>; 4]> {
    let loaded = array.gather(&fours.iter().map(|four| start + four.column).collect::<Vec<_>>());
    loaded.into_iter().zip(fours).map(|(values, four)| four.or_zero(values)).collect()
}

impl<'k> Four<'k> {
    fn or_zero(self, values: [Val<'k, f32>; 4]) -> [Val<'k, f32>; 4] {
        self.inside.map_or(values, |inside| values.map(|value| inside.select(value, 0.0f32)))
    }
}

/// The weights of the splits of all rows, in shared memory: made once for all warps, while the first results are on their
/// way. If each warp asked for those of its own columns, all SMs would crowd at a few lines of level two.
struct Splits<'k> {
    first: Val<'k, u32>,
    rows: u32,
    area: Ptr<'k, Shared, f32>,
    weighed: Cell<bool>,
}

impl<'k> Splits<'k> {
    /// f32 `[rows, heads, splits]`.
    fn weighed(&self, team: Team<'k>, merge: Merge<'k>) -> Ptr<'k, Shared, f32> {
        if !self.weighed.replace(true) {
            merge.weigh(team, self.first, self.rows, self.area);
            team.sync();
        }
        self.area
    }
}

impl<'k> Merge<'k> {
    /// Elements of the merge of a row's splits. Those without tokens are loaded too: they are zeros, and to ask whether there
    /// are any would make the loads wait for each other.
    fn fours(
        self,
        share: Share<'k>,
        splits: &Splits<'k>,
        row: Val<'k, u32>,
        fours: &[Four<'k>],
    ) -> Vec<[Val<'k, f32>; 4]> {
        let loaded: Vec<_> = fours.iter().map(|four| self.load_all(row, four.column)).collect();
        let weights = splits.weighed(share.team, self).at(share.row() * (self.heads * self.splits));
        // A chunk's two fours are of one head where heads are whole chunks.
        let of_head = if self.dim.is_multiple_of(32) { 2 } else { 1 };
        let of = |four: &Four<'k>| {
            let weights = weights.at(four.column / self.dim * self.splits);
            (0..self.splits).map(|s| weights.at(s).load()).collect::<Vec<_>>()
        };
        let weights: Vec<_> = fours.iter().step_by(of_head).map(of).collect();
        let merged = fours.iter().zip(loaded).enumerate().map(|(at, (four, parts))| {
            let zero = [four.column.builder().lit(0.0f32); 4];
            let sum = parts
                .iter()
                .zip(&weights[at / of_head])
                .fold(zero, |sum, (part, w)| std::array::from_fn(|i| w.fma(part[i], sum[i])));
            four.or_zero(sum)
        });
        merged.collect()
    }
}

impl<'k> Share<'k> {
    /// Whether rows end with a chunk.
    fn is_whole(self) -> bool {
        self.unit.padded_k() == self.unit.k()
    }

    /// This lane's row of the batch. Rows of the MMA that stand for none repeat one that does, and are ignored.
    fn row(self) -> Val<'k, u32> {
        let group = self.team.k.lane() / 4;
        let row = if self.parts == 2 { group % 4 } else { group + self.base };
        row.min(self.rows - 1)
    }

    /// Columns where this warp's chunks of a stage begin.
    fn chunks(self, stage: u32) -> impl Iterator<Item = Val<'k, u32>> {
        let Share { team, unit, .. } = self;
        let mine = team.k.warp() * unit.per_warp();
        (0..unit.per_warp()).map(move |chunk| (mine + (stage * team.warps * unit.per_warp() + chunk)) * 32)
    }

    /// Where this lane's eight elements of each chunk of a stage begin.
    fn eights(self, start: Val<'k, u32>, stage: u32) -> Vec<Val<'k, u32>> {
        let start = start + self.team.k.lane() % 4 * 8;
        self.chunks(stage).map(|chunk| start + chunk).collect()
    }

    /// The words of every chunk, whose elements `load` gives four by four, of `together` chunks at once.
    fn by_fours(self, together: usize, load: impl Fn(&[Four<'k>]) -> Vec<[Val<'k, f32>; 4]>) -> Vec<[Val<'k, u32>; 4]> {
        let lane = self.team.k.lane();
        // Both lanes of a pair first load the even lane's eight, then the odd lane's.
        let offset = lane % 4 / 2 * 16 + lane % 2 * 4;
        let four = |column: Val<'k, u32>| {
            let end = self.unit.k();
            let inside = (!self.is_whole()).then(|| column.lt(end));
            Four { column: if inside.is_some() { column.min(end - 4) } else { column }, inside }
        };
        let chunks = (0..self.unit.stages()).flat_map(|stage| self.chunks(stage));
        let chunks: Vec<[Four; 2]> = chunks.map(|chunk| [0u32, 8].map(|next| four(chunk + offset + next))).collect();
        let some = |chunks: &[[Four<'k>; 2]]| {
            let values = load(chunks.as_flattened());
            values.chunks(2).map(|pair| self.exchange([self.pack(pair[0]), self.pack(pair[1])])).collect::<Vec<_>>()
        };
        chunks.chunks(together).flat_map(some).collect()
    }

    /// Four elements as words, or what rounding left of them where this lane has the low part.
    fn pack(self, [a, b, c, d]: [Val<'k, f32>; 4]) -> [Val<'k, u32>; 2] {
        let high = [narrow(a, b), narrow(c, d)];
        if self.parts == 1 {
            return high.map(|(word, _)| word);
        }
        let is_low = self.team.k.lane().ge(16);
        high.map(|(word, [x, y])| is_low.select(narrow(x, y).0, word))
    }

    /// This lane's eight elements: what it loaded of them, and what its neighbour did.
    fn exchange(self, [even, odd]: [[Val<'k, u32>; 2]; 2]) -> [Val<'k, u32>; 4] {
        let is_odd = (self.team.k.lane() % 2).eq(1);
        let got = [0, 1].map(|i| is_odd.select(even[i], odd[i]).shfl_bfly(1));
        let first = [0, 1].map(|i| is_odd.select(got[i], even[i]));
        let second = [0, 1].map(|i| is_odd.select(odd[i], got[i]));
        [first[0], first[1], second[0], second[1]]
    }

    /// Stores the warp's sums of squares of the half's rows, of which this lane has a part.
    fn add_up(self, sum: Val<'k, f32>, squares: Squares<'k>) {
        let Share { team, rows, base, .. } = self;
        let (k, sum) = (team.k, [1u32, 2].into_iter().fold(sum, |sum, bits| sum + sum.shfl_bfly(bits)));
        let row = k.lane() / 4 + base;
        let mine = (k.lane() % 4).eq(0) & row.lt(rows);
        k.when(mine, || squares.at(k.warp()).at(row * team.warps).store(sum));
    }
}
