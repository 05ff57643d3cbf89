//! Activations held in registers as the A operand of `m16n8k16`: each warp brings the columns that it multiplies, straight
//! from where they lie.
//!
//! No copy in shared memory: the ring may have that, and nobody waits for the slowest warp. What a lane needs of a chunk
//! are eight consecutive elements of a row, `8·(lane mod 4) ..+8` of a run of 32. Where they take more than 16 bytes, pairs
//! of lanes load them four by four, so that each load of a warp takes whole sectors of 32 bytes, and exchange what they
//! packed.

use tilewright_codegen::build::Val;

use super::array::narrow;
use super::input::Squares;
use super::operand::{Fragment, parts};
use super::{Array, Input, Team, Unit};

/// Most registers of a lane that hold activations.
const REGISTERS: u32 = 128;
/// Loads of four elements that are in flight together.
const TOGETHER: usize = 16;

/// A warp's share of the activations: the fragments of its chunks, stage by stage.
pub struct Held<'k> {
    fragments: Vec<Fragment<'k>>,
}

impl<'k> Held<'k> {
    /// Whether so many rows of a unit's length can be held.
    ///
    /// ```
    /// use tilewright_kernels::decode::{Held, Unit};
    /// let (wide, narrow) = (Unit::new(8192, 8, 16384)?, Unit::new(2048, 8, 16384)?);
    /// assert!(Held::fits(8, wide) && !Held::fits(9, wide) && Held::fits(16, narrow));
    /// # Ok::<(), tilewright_kernels::decode::UnitError>(())
    /// ```
    pub fn fits(rows: u32, unit: Unit) -> bool {
        unit.stages() * unit.per_warp() * 4 * rows.div_ceil(8) <= REGISTERS
    }

    /// The fragment of a chunk of this warp, counted over all stages.
    pub(super) fn fragment(&self, chunk: u32) -> Fragment<'k> {
        self.fragments[chunk as usize]
    }
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
    /// Brings rows `first..`; of a normalised input also the sums of squares.
    pub(super) fn hold(
        self,
        team: Team<'k>,
        unit: Unit,
        first: Val<'k, u32>,
        rows: u32,
        squares: Squares<'k>,
    ) -> Held<'k> {
        let share = |base| Share { team, unit, rows, parts: parts(rows, self.float()), base };
        let low = self.words(share(0), first, squares);
        let high = (rows > 8).then(|| self.words(share(8), first, squares));
        let fragment = |(at, &low): (usize, &[Val<'k, u32>; 4])| Fragment { low, high: high.as_ref().map(|h| h[at]) };
        Held { fragments: low.iter().enumerate().map(fragment).collect() }
    }

    /// This lane's words of each chunk.
    fn words(self, share: Share<'k>, first: Val<'k, u32>, squares: Squares<'k>) -> Vec<[Val<'k, u32>; 4]> {
        let (row, k) = (first + share.row(), share.team.k);
        let start = row * share.unit.k();
        match self {
            Input::Plain(x) if x.is_words() && share.is_whole() => x.eights(&share.eights(start)),
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

    /// Columns where this warp's chunks begin.
    fn chunks(self) -> Vec<Val<'k, u32>> {
        let Share { team, unit, .. } = self;
        let mine = team.k.warp() * unit.per_warp();
        let of_stage = |stage: u32| (0..unit.per_warp()).map(move |chunk| stage * team.warps * unit.per_warp() + chunk);
        (0..unit.stages()).flat_map(of_stage).map(|chunk| (mine + chunk) * 32).collect()
    }

    /// Where this lane's eight elements of each chunk begin.
    fn eights(self, start: Val<'k, u32>) -> Vec<Val<'k, u32>> {
        let start = start + self.team.k.lane() % 4 * 8;
        self.chunks().into_iter().map(|chunk| start + chunk).collect()
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
        let chunks: Vec<[Four; 2]> =
            self.chunks().into_iter().map(|chunk| [0u32, 8].map(|next| four(chunk + offset + next))).collect();
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
