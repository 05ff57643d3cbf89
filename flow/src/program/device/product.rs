//! Sums of products of many blocks by tensor cores: blocks are the rows of an atom, the row's
//! weights its columns.
//!
//! A group of four lanes has two blocks of an atom. Each lane loads eight elements of a field of
//! both, by 16 bytes: these are two words of each for two instructions, as they lie in memory,
//! since the order along the contraction is the same for the weights. A weight is two columns, its
//! bf16 and the bf16 of what is left, so that sums are as good as of f32.

use std::ops::Range;
use std::rc::Rc;

use half::bf16;
use tilewright_codegen::build::{Bf16x2, Builder, Val, Var};
use tilewright_graph::graph::ValueId;
use tilewright_kernels::mma::Accumulator;

use super::lanes::{LaneRow, PackedBf16};
use super::linear::{Factor, LinearValue, SignPart};
use super::recipe::PassRecipe;
use super::registers::{LANES, REGISTERS, ROUNDS, WEIGHTS, atoms, is_ahead, weights_registers};
use super::spread::{Spread, VECTOR};

/// Chains of sums, since an instruction waits for the one before on the same.
const CHAINS: usize = 2;

/// The weights of a row as operands: by term and atom the words of a lane.
pub(super) type WeightFragments<'k> = Rc<Vec<Vec<FragmentWords<'k>>>>;

/// Words of a lane.
type FragmentWords<'k> = Vec<Val<'k, u32>>;

/// The column of a lane in an atom: which of the atom's weights it is of, and whether it is what
/// the weight's bf16 leaves.
pub(super) struct WeightColumn<'k> {
    which: Val<'k, u32>,
    is_rest: Val<'k, bool>,
}

impl<'k> WeightColumn<'k> {
    /// The column of this lane.
    pub fn of_lane(k: &'k Builder) -> WeightColumn<'k> {
        let column = k.lane() / LANES;
        WeightColumn { which: column / 2, is_rest: (column % 2).eq(1) }
    }

    /// The weight of this lane among those of an atom; columns beyond the last one are unused.
    pub fn weight(&self, atom: &Range<u32>) -> Val<'k, u32> {
        self.which.min(atom.end - atom.start - 1) + atom.start
    }

    /// Of the rows of an atom's weights this lane's.
    pub fn select(&self, rows: &[LaneRow<'k>]) -> LaneRow<'k> {
        let element =
            |e: usize| (1u32..).zip(&rows[1..]).fold(rows[0][e], |x, (at, row)| self.which.eq(at).select(row[e], x));
        (0..rows[0].len()).map(element).collect()
    }

    /// The operands that the weights of a row are, by atom the row of this lane's weight.
    pub fn fragments(&self, linear: &LinearValue, atoms: &[LaneRow<'k>]) -> WeightFragments<'k> {
        let of_part = |part: SignPart, x: Val<'k, f32>| match part {
            SignPart::Whole => x,
            SignPart::Positive => x.max(0.0f32),
            SignPart::Negative => x.min(0.0f32),
        };
        let operand = |row: &LaneRow<'k>, part: SignPart| -> FragmentWords<'k> {
            let element = |e: usize| {
                let x = of_part(part, row[e]);
                self.is_rest.select(x - x.cast::<bf16>().cast::<f32>(), x)
            };
            (0..row.len()).step_by(2).map(|e| element(e).pair::<Bf16x2>(element(e + 1)).bits()).collect()
        };
        let of_term = |&(_, part): &(Factor, SignPart)| atoms.iter().map(|row| operand(row, part)).collect();
        Rc::new(linear.terms.iter().map(of_term).collect())
    }
}

/// The weights of each atom.
pub(super) fn weights_of_atoms(linear: &LinearValue) -> impl Iterator<Item = Range<u32>> + use<> {
    let count = linear.count;
    (0..count).step_by(WEIGHTS as usize).map(move |first| first..(first + WEIGHTS).min(count))
}

/// Eights of a field of the block of a round: what of it, and where it comes from.
pub(super) type Fetch<'f, 'k> = &'f dyn Fn(usize, ValueId, Range<u32>) -> Vec<PackedBf16<'k>>;

/// The blocks of the next round, on their way: by run of eight elements, round and field the words.
pub(super) struct Ahead<'k> {
    words: Vec<Vec<Vec<[Var<'k, u32>; 4]>>>,
}

impl<'k> Ahead<'k> {
    /// Loads the first blocks, where blocks are loaded ahead.
    pub fn new(k: &'k Builder, recipe: &PassRecipe, rounds: usize, fetch: Fetch<'_, 'k>) -> Option<Ahead<'k>> {
        let [linear] = recipe.linear() else { return None };
        if !is_ahead(recipe.linear(), recipe.spread) {
            return None;
        }
        let run =
            |run: u32| (0..rounds).map(|round| of_fields(linear, round, run, fetch, &|word| k.var(word))).collect();
        Some(Ahead { words: (0..recipe.spread.held(recipe.spread.dim as usize) / VECTOR).map(run).collect() })
    }

    /// A run of eight of all blocks.
    fn get(&self, run: u32) -> Blocks<'k> {
        let field = |words: &[Var<'k, u32>; 4]| words.map(Var::get);
        let round = |fields: &Vec<[Var<'k, u32>; 4]>| fields.iter().map(field).collect();
        self.words[run as usize].iter().map(round).collect()
    }

    /// Loads it of the blocks that come next.
    fn load(&self, linear: &LinearValue, run: u32, fetch: Fetch<'_, 'k>) {
        for (round, fields) in self.words[run as usize].iter().enumerate() {
            let next: Vec<PackedBf16<'k>> = of_fields(linear, round, run, fetch, &|word| word);
            for (words, next) in fields.iter().zip(next) {
                words.iter().zip(next).for_each(|(word, next)| word.set(next));
            }
        }
    }
}

/// The words of a run of eight, by round and field.
type Blocks<'k> = Vec<Vec<PackedBf16<'k>>>;

/// A run of eight of the fields of the block of a round.
fn of_fields<'k, T>(
    linear: &LinearValue,
    round: usize,
    run: u32,
    fetch: Fetch<'_, 'k>,
    each: &dyn Fn(Val<'k, u32>) -> T,
) -> Vec<[T; 4]> {
    let of = |&field: &ValueId| fetch(round, field, run..run + 1).into_iter().next().map(|words| words.map(each));
    linear.fields.iter().filter_map(of).collect()
}

/// The source of a round's blocks.
pub(super) enum BlockOperands<'f, 'k> {
    /// They are loaded.
    Loaded(Fetch<'f, 'k>),
    /// They are on their way, and those of the next round are loaded.
    Ahead(&'f Ahead<'k>, Fetch<'f, 'k>),
}

/// The sums of the blocks of some atoms: of each round of each atom as many as there are, in every
/// lane of a block's group.
pub(super) fn sums<'k>(
    k: &'k Builder,
    linear: &LinearValue,
    weights: &WeightFragments<'k>,
    spread: Spread,
    rounds: usize,
    operands: &BlockOperands<'_, 'k>,
) -> Vec<LaneRow<'k>> {
    let tiles = rounds / ROUNDS;
    let eights = spread.held(spread.dim as usize) / VECTOR;
    let new = || std::array::from_fn::<_, CHAINS, _>(|_| Accumulator::warp::<bf16>(k, 1, atoms(linear)));
    let all: Vec<[Accumulator<'k, f32>; CHAINS]> = (0..tiles).map(|_| new()).collect();
    let multiply = |run: u32, blocks: &Blocks<'k>| {
        for (chains, blocks) in all.iter().zip(blocks.chunks(ROUNDS)) {
            instructions(weights, run, &factors(linear, blocks), chains);
        }
    };
    match operands {
        // Larger and smaller ones are in registers of their own: all loads are on their way before
        // the first product.
        BlockOperands::Ahead(ahead, fetch) if linear.fields.len() > 1 => {
            let of_run =
                |run: u32| -> Vec<_> { ahead.get(run).chunks(ROUNDS).map(|blocks| factors(linear, blocks)).collect() };
            let factors: Vec<_> = (0..eights).map(of_run).collect();
            (0..eights).for_each(|run| ahead.load(linear, run, *fetch));
            // Loads that nothing waits for in this round would be put after all of its products.
            k.sync_warp();
            for (run, tiles) in (0..).zip(&factors) {
                tiles.iter().zip(&all).for_each(|(factors, chains)| instructions(weights, run, factors, chains));
            }
        }
        BlockOperands::Ahead(ahead, fetch) => (0..eights).for_each(|run| {
            multiply(run, &ahead.get(run));
            ahead.load(linear, run, *fetch);
            k.sync_warp();
        }),
        BlockOperands::Loaded(fetch) => {
            // The runs of eight that are in flight.
            let words = linear.fields.len() as u32 * rounds as u32 * 4;
            let room = REGISTERS.saturating_sub(weights_registers(linear, spread)) / words;
            let together = room.clamp(1, eights);
            for first in (0..eights).step_by(together as usize) {
                let runs = first..(first + together).min(eights);
                let round = |run: u32| -> Blocks<'k> {
                    (0..rounds).map(|round| of_fields(linear, round, run, *fetch, &|word| word)).collect()
                };
                let loaded: Vec<Blocks<'k>> = runs.clone().map(round).collect();
                runs.zip(&loaded).for_each(|(run, blocks)| multiply(run, blocks));
            }
        }
    }
    let group = k.lane() / LANES * LANES;
    let of_round = |round: usize| -> LaneRow<'k> {
        let tile = round / ROUNDS;
        let half = (round % ROUNDS) as u32;
        // A weight's two columns are adjacent.
        let of_atom = |atom: u32| {
            let register = 4 * atom + 2 * half;
            let pair = |chain: &Accumulator<'k, f32>| chain.get(register) + chain.get(register + 1);
            let [first, rest @ ..] = &all[tile];
            rest.iter().fold(pair(first), |sum, chain| sum + pair(chain))
        };
        let mine: LaneRow<'k> = (0..atoms(linear)).map(of_atom).collect();
        let sum = |row: u32| mine[(row / WEIGHTS) as usize].shfl_idx(group + row % WEIGHTS);
        (0..linear.count).map(sum).collect()
    };
    (0..rounds).map(of_round).collect()
}

/// An atom's blocks as operands: by term, of both halves of a run of eight.
type Factors<'k> = Vec<[[Val<'k, u32>; 4]; 2]>;

/// The operands that a run of eight of an atom's blocks is.
fn factors<'k>(linear: &LinearValue, blocks: &[Vec<PackedBf16<'k>>]) -> Factors<'k> {
    let of_term = |&(factor, _): &(Factor, SignPart)| {
        let word = |round: usize, word: usize| {
            operand(factor, &blocks[round].iter().map(|words| words[word]).collect::<Vec<_>>())
        };
        [0, 2].map(|i| [word(0, i), word(1, i), word(0, i + 1), word(1, i + 1)])
    };
    linear.terms.iter().map(of_term).collect()
}

/// The products of a run of eight of an atom's blocks: two instructions for each term.
fn instructions<'k>(
    weights: &WeightFragments<'k>,
    run: u32,
    factors: &Factors<'k>,
    chains: &[Accumulator<'k, f32>; CHAINS],
) {
    for (halves, weights) in factors.iter().zip(weights.iter()) {
        for (half, &a) in halves.iter().enumerate() {
            let b = |atom: &FragmentWords<'k>| {
                let first = 4 * run as usize + 2 * half;
                [atom[first], atom[first + 1]].into()
            };
            let b: Vec<_> = weights.iter().map(b).collect();
            chains[half % CHAINS].mma::<bf16>(&[a.into()], &b);
        }
    }
}

/// A word of the blocks' operand.
fn operand<'k>(factor: Factor, fields: &[Val<'k, u32>]) -> Val<'k, u32> {
    let pair = |field: usize| fields[field].bits::<Bf16x2>();
    match factor {
        Factor::Plain => fields[0],
        Factor::Larger => pair(0).max(pair(1)).bits(),
        Factor::Smaller => pair(0).min(pair(1)).bits(),
    }
}
