//! Activations on their way to the registers of the lanes that multiply them, straight from where
//! they lie.
//!
//! No copy in shared memory: the ring can use that memory, and no warp waits for the slowest. A
//! lane needs eight consecutive elements of a row of a tile, `8·(lane mod 4) ..+8` of a run of 32.
//! Where they take more than 16 bytes, pairs of lanes load them four by four, so that each load of
//! a warp takes whole sectors of 32 bytes, and exchange what they packed.

use tilewright_codegen::build::{Bf16x2, IntoVal, Scalar, Val, Var};

use super::operand::lift;
use super::shared_bytes::is_wide;
use crate::gemv::activations::{F16Overflow, Half, Packing, Prologue, Quads, Scaled, Squares, size};
use crate::gemv::product::Fragment;
use crate::norm::add_squares;
use crate::tile::Array;
use crate::warps::ConsumerWarps;
use crate::weights::{DEPTH, Strip, Terms};

/// Loads of four elements that are in flight together; fewer where registers hold the weights of a
/// group of strips, or a row of 4096 of each of 16 vectors.
const TOGETHER: [usize; 2] = [16, 8];
/// Elements in flight together where each is loaded by itself, for more than eight rows.
const TOGETHER_EACH: usize = 4;

/// −0, in both halves.
const MINUS_ZERO: u32 = 0x8000_8000;

/// The activations of a tile, and how they lie in the operand.
pub(super) struct ActivationSource<'k> {
    pub consumers: ConsumerWarps<'k>,
    pub strip: Strip,
    pub packing: Packing,
    input: Prologue<'k>,
    /// First row.
    first: Val<'k, u32>,
    /// Elements from a row to the next.
    pitch: u32,
    halves: Vec<(Half, Var<'k, f32>)>,
    /// The largest size of what became an f16 here.
    most: Option<Var<'k, u32>>,
    /// Whether the rows of the lane's halves are loaded, if not all are: others are zeros.
    chosen: [Option<Val<'k, bool>>; 2],
}

/// Words that are on their way: of each half and tile.
pub(super) struct AskedWords<'k>(Vec<Vec<[Val<'k, u32>; 4]>>);

/// Four elements of a row from a column on; `inside`: whether there are any, where that is not
/// known.
#[derive(Clone, Copy)]
struct Four<'k> {
    column: Val<'k, u32>,
    inside: Option<Val<'k, bool>>,
}

impl<'k> ActivationSource<'k> {
    /// The rows of `packing` from `first` on, which lie `pitch` elements apart.
    pub fn new(
        consumers: ConsumerWarps<'k>,
        strip: Strip,
        packing: Packing,
        input: Prologue<'k>,
        first: Val<'k, u32>,
        pitch: u32,
    ) -> ActivationSource<'k> {
        let halves = packing.halves().into_iter().map(|half| (half, consumers.k.var(0.0f32))).collect();
        let made = packing.terms() != Terms::Bf16 && !matches!(input, Prologue::Scaled { .. });
        ActivationSource {
            consumers,
            strip,
            packing,
            input,
            first,
            pitch,
            halves,
            most: made.then(|| consumers.k.var(0u32)),
            chosen: [None; 2],
        }
    }

    /// Loads plain activations only of the rows of the lane that are chosen.
    pub fn of_rows(self, chosen: [Option<Val<'k, bool>>; 2]) -> ActivationSource<'k> {
        ActivationSource { chosen, ..self }
    }

    /// Whether a half's row is loaded, if that is not certain.
    fn is_chosen(&self, half: Half) -> Option<Val<'k, bool>> {
        self.chosen[half.base() as usize / 8]
    }

    /// The columns where the steps of 32 of this warp's tiles of a stage begin.
    pub fn columns(&self, stage: Val<'k, u32>) -> Vec<Val<'k, u32>> {
        let ActivationSource { consumers, strip, .. } = *self;
        let first = strip.tile(consumers.k.warp(), stage * strip.per_warp());
        let tile = |round: u32| (first + round * consumers.warps) * strip.depth();
        let steps = |tile: Val<'k, u32>| (0..strip.steps()).map(move |s| if s == 0 { tile } else { tile + s * DEPTH });
        (0..strip.per_warp()).map(tile).flat_map(steps).collect()
    }

    /// The words of each tile that begins at one of these columns, for this lane. For a normalised
    /// input it adds up the squares.
    pub fn fragments(&self, columns: &[Val<'k, u32>]) -> Vec<Vec<Fragment<'k>>> {
        self.of_halves(self.halves.iter().map(|&(half, squares)| self.quads(half, squares, columns)).collect())
    }

    /// Fragments from the quads of each half and tile.
    fn of_halves(&self, halves: Vec<Vec<Vec<[Val<'k, u32>; 4]>>>) -> Vec<Vec<Fragment<'k>>> {
        let tile = |at: usize| {
            let quads: Vec<[Val<u32>; 4]> = halves.iter().flat_map(|half| half[at].iter().copied()).collect();
            let fragments = self.packing.fragments(&quads);
            if self.has_pairs() { fragments.into_iter().map(Fragment::of_pairs).collect() } else { fragments }
        };
        (0..halves.first().map_or(0, Vec::len)).map(tile).collect()
    }

    /// Asks for what [`ActivationSource::fragments`] loads, where that is words of all rows: so that
    /// what several sources load is in flight together.
    pub fn ask(&self, columns: &[Val<'k, u32>]) -> Option<AskedWords<'k>> {
        let Prologue::Plain(x) = self.input else { return None };
        let of_half = |&(half, _): &(Half, _)| self.by_eights(x, self.start(half), columns, None);
        let of_all = self.chosen.iter().all(Option::is_none);
        (of_all && self.has_words(x)).then(|| AskedWords(self.halves.iter().map(of_half).collect()))
    }

    /// The fragments of words that were asked for.
    pub fn of_asked(&self, AskedWords(halves): AskedWords<'k>) -> Vec<Vec<Fragment<'k>>> {
        let of_half = |half: Vec<[Val<'k, u32>; 4]>| half.into_iter().map(|quad| vec![self.lift_words(quad)]).collect();
        self.of_halves(halves.into_iter().map(of_half).collect())
    }

    /// Whether eight elements of `x` are loaded as words.
    fn has_words(&self, x: Array<'k>) -> bool {
        x.is_words() && self.strip.k().is_multiple_of(8)
    }

    /// The first element of a half's row.
    fn start(&self, half: Half) -> Val<'k, u32> {
        (self.first + half.row(self.consumers)) * self.pitch
    }

    /// Resets the sums of squares to zero.
    pub fn clear_squares(&self) {
        self.halves.iter().for_each(|(_, squares)| squares.set(0.0f32));
    }

    /// Stores the warp's sums of squares of a normalised input; after a phase, added to what it
    /// stored before.
    pub fn store_squares(&self, to: Squares<'k>, accumulates: Option<Val<'k, bool>>) {
        if self.input.norm().is_some() {
            self.halves.iter().for_each(|(half, squares)| half.add_up(self.consumers, squares.get(), to, accumulates));
        }
    }

    /// Reports the overflow if values that were converted to f16 exceed its range.
    pub fn check_overflow(&self, overflow: Option<F16Overflow<'k>>) {
        if let (Some(most), Some(overflow)) = (self.most, overflow) {
            overflow.check_size(most.get());
        }
    }

    /// The quads of each tile for this lane.
    fn quads(&self, half: Half, squares: Var<'k, f32>, columns: &[Val<'k, u32>]) -> Vec<Vec<[Val<'k, u32>; 4]>> {
        let k = self.consumers.k;
        let start = self.start(half);
        match self.input {
            Prologue::Plain(x) if self.has_words(x) => self
                .by_eights(x, start, columns, self.is_chosen(half))
                .into_iter()
                .map(|quad| vec![self.lift_words(quad)])
                .collect(),
            Prologue::Scaled { x, .. } => self.of_terms(x, half, columns),
            Prologue::Plain(x) => self.by_fours(columns, |fours| {
                let load = || gather(x, start, fours);
                self.is_chosen(half).map_or_else(load, |chosen| or_zeros(chosen, fours.len(), load))
            }),
            Prologue::Ordered(ordered) => self.by_fours(columns, |fours| {
                let places: Vec<_> = fours.iter().map(|four| four.column).collect();
                let loaded = ordered.gather(start, &places);
                let loaded: Vec<_> = loaded.into_iter().zip(fours).map(|(x, four)| four.or_zero(x)).collect();
                let Some(weight) = ordered.weight() else { return loaded };
                self.weighted(&loaded, &gather(weight, k.lit(0), fours), squares)
            }),
            Prologue::RmsNorm { x, weight, .. } => self.by_fours(columns, |fours| {
                let weights = gather(weight, k.lit(0), fours);
                let loaded = gather(x, start, fours);
                self.weighted(&loaded, &weights, squares)
            }),
        }
    }

    /// Elements times the weights of their norm; their squares are added up.
    fn weighted(
        &self,
        x: &[[Val<'k, f32>; 4]],
        weights: &[[Val<'k, f32>; 4]],
        squares: Var<'k, f32>,
    ) -> Vec<[Val<'k, f32>; 4]> {
        let sum = add_squares(squares.get(), x.iter().flatten().copied());
        squares.set(sum);
        let times = |(x, w): (&[Val<'k, f32>; 4], &[Val<'k, f32>; 4])| std::array::from_fn(|i| x[i] * w[i]);
        x.iter().zip(weights).map(times).collect()
    }

    /// The eight elements of each tile for this lane, words of the operand unchanged; zeros beyond
    /// the row.
    fn by_eights(
        &self,
        x: Array<'k>,
        start: Val<'k, u32>,
        columns: &[Val<'k, u32>],
        chosen: Option<Val<'k, bool>>,
    ) -> Vec<[Val<'k, u32>; 4]> {
        let mine = self.consumers.k.lane() % 4 * 8;
        let end = self.strip.k();
        let inside = |&column: &Val<'k, u32>| (!self.is_whole()).then(|| (column + mine).lt(end));
        let place = |&column: &Val<'k, u32>| {
            let column = column + mine;
            start + if self.is_whole() { column } else { column.min(end - 8) }
        };
        let load = || x.eights(&columns.iter().map(place).collect::<Vec<_>>());
        let loaded = chosen.map_or_else(load, |chosen| or_zeros(chosen, columns.len(), load));
        let or_zero = |(quad, inside): ([Val<'k, u32>; 4], Option<Val<'k, bool>>)| {
            inside.map_or(quad, |inside| quad.map(|word| inside.select(word, 0u32)))
        };
        loaded.into_iter().zip(columns.iter().map(inside)).map(or_zero).collect()
    }

    /// The eight terms of each tile for this lane, of each part that it loads; zeros beyond the
    /// row.
    fn of_terms(&self, x: Scaled<'k>, half: Half, columns: &[Val<'k, u32>]) -> Vec<Vec<[Val<'k, u32>; 4]>> {
        let k = self.consumers.k;
        let end = self.strip.k();
        // In pairs both halves bring the rows of the first, two pairs of columns each.
        let (row, quad) =
            if self.has_pairs() { (k.lane() / 4, half.base() / 2) } else { (self.first + half.row(self.consumers), 0) };
        let mine = k.lane() % 4 * 8 + quad;
        let parts = match self.packing.quads() {
            Quads::High => vec![k.lit(0u32)],
            Quads::Folded => vec![k.lane() / 16],
            Quads::Both => vec![k.lit(0u32), k.lit(1)],
        };
        let place = |&column: &Val<'k, u32>| if self.is_whole() { column } else { column.min(end - DEPTH) } + mine;
        let places: Vec<_> = columns.iter().map(place).collect();
        let loaded: Vec<_> = parts.into_iter().map(|part| x.eights(part, row, &places)).collect();
        let tile = |(at, &column): (usize, &Val<'k, u32>)| {
            let quads = loaded.iter().map(|part| part[at]);
            if self.is_whole() {
                return quads.collect();
            }
            quads.map(|quad| quad.map(|word| column.lt(end).select(word, 0u32))).collect()
        };
        columns.iter().enumerate().map(tile).collect()
    }

    /// Whether rows lie in pairs.
    fn has_pairs(&self) -> bool {
        matches!(self.input, Prologue::Scaled { x, .. } if x.form.has_pairs())
    }

    /// Eight elements of bf16 as codes want them.
    fn lift_words(&self, quad: [Val<'k, u32>; 4]) -> [Val<'k, u32>; 4] {
        let k = self.consumers.k;
        if self.packing.terms() != Terms::Bf16 {
            let of_words = |words: [Val<'k, u32>; 2]| {
                let four = words.map(|word| [word << 16u32, word & 0xffff_0000u32].map(|x| x.bits::<f32>()));
                self.pack([four[0][0], four[0][1], four[1][0], four[1][1]])
            };
            let [first, second] = [[quad[0], quad[1]], [quad[2], quad[3]]].map(|words| of_words(words)[0]);
            return [first[0], first[1], second[0], second[1]];
        }
        let times = |word: Val<'k, u32>, lift: Option<f32>| {
            lift.map_or(word, |lift| {
                let both = u32::from(half::bf16::from_f32(lift).to_bits()) * 0x1_0001;
                word.bits::<Bf16x2>().fma(k.lit(both).bits::<Bf16x2>(), k.lit(MINUS_ZERO).bits::<Bf16x2>()).bits()
            })
        };
        let lift = lift(self.strip, self.packing);
        std::array::from_fn(|i| times(quad[i], lift[i % 2]))
    }

    /// Whether rows end with a tile.
    fn is_whole(&self) -> bool {
        self.strip.padded_k() == self.strip.k()
    }

    /// The quads of tiles, whose elements `load` gives four by four, of some tiles at once.
    fn by_fours(
        &self,
        columns: &[Val<'k, u32>],
        load: impl Fn(&[Four<'k>]) -> Vec<[Val<'k, f32>; 4]>,
    ) -> Vec<Vec<[Val<'k, u32>; 4]>> {
        let lane = self.consumers.k.lane();
        // Both lanes of a pair first load the even lane's eight, then the odd lane's.
        let offset = lane % 4 / 2 * 16 + lane % 2 * 4;
        let four = |column: Val<'k, u32>| {
            let end = self.strip.k();
            let inside = (!self.is_whole()).then(|| column.lt(end));
            Four { column: if inside.is_some() { column.min(end - 4) } else { column }, inside }
        };
        let tiles: Vec<[Four; 2]> =
            columns.iter().map(|&column| [0u32, 8].map(|next| four(column + offset + next))).collect();
        let some = |tiles: &[[Four<'k>; 2]]| {
            let values = load(tiles.as_flattened());
            let tile = |pair: &[[Val<'k, f32>; 4]]| {
                let [even, odd] = [self.pack(pair[0]), self.pack(pair[1])];
                even.into_iter().zip(odd).map(|(even, odd)| self.exchange([even, odd])).collect::<Vec<_>>()
            };
            values.chunks(2).map(tile).collect::<Vec<_>>()
        };
        let few = is_wide(self.strip, self.packing) || self.packing.terms() == Terms::F16;
        let each = self.input.ordered().is_some() && self.halves.len() > 1;
        let together = if each { TOGETHER_EACH } else { TOGETHER[usize::from(few)] };
        tiles.chunks(together / 2).flat_map(some).collect()
    }

    /// Four elements, as codes want them, as words of each of this lane's quads.
    fn pack(&self, [a, b, c, d]: [Val<'k, f32>; 4]) -> Vec<[Val<'k, u32>; 2]> {
        let [even, odd] = lift(self.strip, self.packing);
        let times = |x: Val<'k, f32>, lift: Option<f32>| lift.map_or(x, |lift| x * lift);
        let [a, b, c, d] = [times(a, even), times(b, even), times(c, odd), times(d, odd)];
        if let Some(most) = self.most {
            most.set([a, b, c, d].into_iter().fold(most.get(), |most, x| most.max(size(x))));
        }
        let terms = self.packing.terms();
        let both = [terms.narrow(a, b), terms.narrow(c, d)];
        let high = both.map(|(word, _)| word);
        let low = || both.map(|(_, [x, y])| terms.narrow(x, y).0);
        match self.packing.quads() {
            Quads::High => vec![high],
            Quads::Both => vec![high, low()],
            Quads::Folded => {
                let is_low = self.consumers.k.lane().ge(16);
                let low = low();
                vec![[0, 1].map(|i| is_low.select(low[i], high[i]))]
            }
        }
    }

    /// The eight elements of this lane: those that it loaded, and those of its neighbour.
    fn exchange(&self, [even, odd]: [[Val<'k, u32>; 2]; 2]) -> [Val<'k, u32>; 4] {
        let is_odd = (self.consumers.k.lane() % 2).eq(1);
        let got = [0, 1].map(|i| is_odd.select(even[i], odd[i]).shfl_bfly(1));
        let first = [0, 1].map(|i| is_odd.select(got[i], even[i]));
        let second = [0, 1].map(|i| is_odd.select(odd[i], got[i]));
        [first[0], first[1], second[0], second[1]]
    }
}

/// What `load` gives where a condition holds, zeros elsewhere: nothing is loaded there.
fn or_zeros<'k, T>(
    condition: Val<'k, bool>,
    count: usize,
    load: impl Fn() -> Vec<[Val<'k, T>; 4]>,
) -> Vec<[Val<'k, T>; 4]>
where
    T: Scalar + Default + IntoVal<'k, T>,
{
    let k = condition.builder();
    let all: Vec<[Var<'k, T>; 4]> = (0..count).map(|_| std::array::from_fn(|_| k.var(T::default()))).collect();
    k.when(condition, || {
        for (to, from) in all.iter().zip(load()) {
            to.iter().zip(from).for_each(|(to, from)| to.set(from));
        }
    });
    all.into_iter().map(|four| four.map(Var::get)).collect()
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
