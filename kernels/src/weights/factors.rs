//! The factors of quantised weights on the device: scales and zeros of groups, as lanes read them.

use tilewright_codegen::build::{F16x2, Ptr, Shared, Val};

use super::codes::Codes;
use super::packed::Strip;
use super::weight_tile::DEPTH;
use crate::tile::{Float, Index};

/// Which operand of the MMA weights are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightSide {
    /// The m16 operand: rows 0 to 7 are a step of the strip's rows, rows 8 to 15 the next step of
    /// the same. Lane l has sums of feature l / 4, whose activations are the columns 0 to 3 of the
    /// first step, and 4 to 7 of the second.
    A,
    /// The n8 operand, activations are the other. Lane l has sums of the features 2·(l mod 4) and
    /// the next.
    B,
    /// The n8 operand, where activations are eight rows at most: rows 8 to 15 are the same rows at
    /// other k. Of two instructions with the same activations the first is looked at for rows 0 to
    /// 7, the second for the others.
    Half,
    /// The m16 operand: rows 0 to 7 are a strip's rows, rows 8 to 15 the next strip's at the same
    /// k. Activations are the n8 operand, eight rows an instruction. Lane l has sums of feature l /
    /// 4 of both strips, for the columns 2·(l mod 4) and the next.
    Pair,
}

impl WeightSide {
    /// Accumulators of a group: where activations are the m16 operand the instructions of a step
    /// take turns, so that none waits for the one before.
    pub(crate) fn chains(self) -> u32 {
        match self {
            WeightSide::A | WeightSide::Pair => 1,
            WeightSide::B | WeightSide::Half => 2,
        }
    }

    /// Steps that an instruction takes together.
    pub fn steps(self) -> u32 {
        match self {
            WeightSide::A => 2,
            WeightSide::B | WeightSide::Half | WeightSide::Pair => 1,
        }
    }
}

/// The factors of consecutive steps of a tile.
#[derive(Clone, Copy)]
pub struct Factors<'k> {
    /// The scales of the features whose sums this lane has.
    scales: FeatureValues<'k>,
    /// The zeros of the same.
    zeros: Option<FeatureValues<'k>>,
}

/// Numbers of the one or two features that a lane has sums of: of 16 bits as they are, until they
/// are used.
#[derive(Clone, Copy)]
enum FeatureValues<'k> {
    /// As they are.
    Wide([Val<'k, f32>; 2]),
    /// One as it is.
    OneWide(Val<'k, f32>),
    /// Two in a word.
    Two(Float, Val<'k, u32>),
    /// One in the lower half of a word.
    One(Float, Val<'k, u32>),
}

impl<'k> FeatureValues<'k> {
    /// Loads those of eight neighbouring numbers that a lane has features of.
    #[track_caller]
    fn load(float: Float, at: Ptr<'k, Shared, u8>, side: WeightSide) -> FeatureValues<'k> {
        let lane = Index::lane(at.builder());
        let at = match side {
            WeightSide::A | WeightSide::Pair => at.at((lane / 4 * float.bytes()).get(at.builder())),
            WeightSide::B | WeightSide::Half => at.at((lane % 4 * (2 * float.bytes())).get(at.builder())),
        };
        match (float, side) {
            (Float::F32, WeightSide::A | WeightSide::Pair) => FeatureValues::OneWide(at.cast::<f32>().load()),
            (Float::F32, WeightSide::B | WeightSide::Half) => FeatureValues::Wide(at.cast::<f32>().load_vec()),
            (_, WeightSide::A | WeightSide::Pair) => FeatureValues::One(float, at.cast::<u16>().load().cast()),
            (_, WeightSide::B | WeightSide::Half) => FeatureValues::Two(float, at.cast::<u32>().load()),
        }
    }

    /// Those that a lane has features of, where lane l was given those of the rows 2·(l / 8) and
    /// the next.
    #[track_caller]
    fn of_word(float: Float, word: Val<'k, u32>, side: WeightSide) -> FeatureValues<'k> {
        let lane = word.builder().lane();
        match side {
            WeightSide::A | WeightSide::Pair => FeatureValues::One(float, word >> (lane / 4 % 2 * 16u32)),
            WeightSide::B | WeightSide::Half => FeatureValues::Two(float, word.shfl_idx(lane % 4 * 8u32)),
        }
    }

    /// Replaces each word by what `word` gives.
    fn map(self, word: &mut dyn FnMut(Val<'k, u32>) -> Val<'k, u32>) -> FeatureValues<'k> {
        match self {
            FeatureValues::OneWide(one) => FeatureValues::OneWide(word(one.bits()).bits()),
            FeatureValues::Wide(both) => FeatureValues::Wide(both.map(|number| word(number.bits()).bits())),
            FeatureValues::Two(float, both) => FeatureValues::Two(float, word(both)),
            FeatureValues::One(float, one) => FeatureValues::One(float, word(one)),
        }
    }

    /// The numbers, twice where it is one.
    #[track_caller]
    fn get(self) -> [Val<'k, f32>; 2] {
        match self {
            FeatureValues::Wide(both) => both,
            FeatureValues::OneWide(one) => [one; 2],
            FeatureValues::Two(Float::F16, both) => {
                let (a, b) = both.bits::<F16x2>().split();
                [a.cast(), b.cast()]
            }
            FeatureValues::Two(_, both) => [(both << 16u32).bits(), (both & 0xffff_0000u32).bits()],
            FeatureValues::One(Float::F16, one) => [one.bits::<F16x2>().split().0.cast(); 2],
            FeatureValues::One(_, one) => [(one << 16u32).bits(); 2],
        }
    }
}

impl<'k> Factors<'k> {
    /// Replaces each word by what `word` gives.
    pub(crate) fn map(self, word: &mut dyn FnMut(Val<'k, u32>) -> Val<'k, u32>) -> Factors<'k> {
        Factors { scales: self.scales.map(word), zeros: self.zeros.map(|zeros| zeros.map(word)) }
    }

    /// Factors of words that were loaded before: of 16 bits, of the rows 2·(l / 8) and the next in
    /// lane l.
    #[track_caller]
    pub(crate) fn of_words(
        codes: Codes,
        side: WeightSide,
        scales: Val<'k, u32>,
        zeros: Option<Val<'k, u32>>,
    ) -> Factors<'k> {
        let of = |float| move |word| FeatureValues::of_word(float, word, side);
        Factors { scales: of(codes.scale)(scales), zeros: zeros.map(of(Float::Bf16)) }
    }

    /// The scales of the features of the even and of the odd sums.
    #[track_caller]
    pub(crate) fn scales(self) -> [Val<'k, f32>; 2] {
        self.scales.get()
    }

    /// Their zeros, where groups have their own.
    #[track_caller]
    pub(crate) fn zeros(self) -> Option<[Val<'k, f32>; 2]> {
        self.zeros.map(FeatureValues::get)
    }
}

impl Strip {
    /// Steps that share their factors, at most a tile's; 1 where halves of a step do.
    pub fn run(self) -> u32 {
        self.steps().min(self.span() / DEPTH).max(1)
    }

    /// Whether the halves of a step may be of different groups: then places are not columns
    /// ([`columns`](crate::gemv::activations::columns)).
    pub fn is_halved(self) -> bool {
        self.codes().is_some_and(Codes::is_halved)
    }

    /// Runs of steps of a tile whose products are summed by themselves: steps that share factors
    /// and, where weights are the A operand, at least two; halves of a step where these are groups.
    pub(crate) fn parts(self, side: WeightSide) -> u32 {
        if self.is_halved() { 2 * self.steps() } else { self.steps() / self.run().max(side.steps()) }
    }

    /// Loads this lane's factors of a tile of a stage, whose factors begin at `at`: of each run of
    /// steps.
    #[track_caller]
    pub(crate) fn factors<'k>(
        self,
        codes: Codes,
        side: WeightSide,
        at: Ptr<'k, Shared, u8>,
        tile: Index<'k>,
    ) -> Vec<Factors<'k>> {
        let k = at.builder();
        let span = self.span();
        let depth = self.depth();
        let runs = if self.is_halved() { 2 * self.steps() } else { self.steps() / self.run() };
        let bytes = Strip::ROWS * codes.scale.bytes();
        let first = if span >= depth { tile / (span / depth) } else { tile * runs };
        let zeros = self.zeros_at() - self.scales_at();
        let factors = |run: u32| {
            let group = first + run;
            let scales = FeatureValues::load(codes.scale, at.at((group * bytes).get(k)), side);
            let zeros = codes.zeros.then(|| {
                let at = at.at((group * (2 * Strip::ROWS) + zeros).get(k));
                FeatureValues::load(Float::Bf16, at, side)
            });
            Factors { scales, zeros }
        };
        (0..runs).map(factors).collect()
    }
}
