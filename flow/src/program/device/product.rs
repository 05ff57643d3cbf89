//! Sums of products of many blocks by tensor cores: blocks are the rows of an atom, the row's weights its columns.
//!
//! A group of four lanes has two blocks of an atom. Each lane loads eight elements of a field of both, by 16 bytes: these are two
//! words of each for two instructions, as they lie in memory, since the order along the contraction is the same for the weights. A
//! weight is two columns, its bf16 and the bf16 of what is left, so that sums are as good as of f32.

use std::rc::Rc;

use half::bf16;
use tilewright_codegen::build::{Bf16x2, Builder, Val};
use tilewright_kernels::mma::Accumulator;

use super::kept::Words;
use super::linear::{Factor, Linear, Part};
use super::spread::{Spread, VECTOR};
use super::values::{Row, Values};

/// Lanes that share a row of an atom.
const LANES: u32 = 4;
/// Weights whose columns an atom has.
const WEIGHTS: u32 = 4;
/// Rounds of groups whose blocks are the rows of an atom.
pub(super) const ROUNDS: usize = 2;
/// Most registers of weights.
pub(super) const MOST_WEIGHTS: u32 = 64;
/// Registers of weights and of blocks on their way, together.
const REGISTERS: u32 = 96;
/// Chains of sums, since an instruction waits for the one before on the same.
const CHAINS: usize = 2;

/// How rows lie in the lanes of atoms, where heads have whole steps of all lanes.
pub(super) fn spread(dim: u32) -> Option<Spread> {
    dim.is_multiple_of(LANES * VECTOR).then(|| Spread::new(dim, LANES))
}

/// Atoms across: of weights.
fn atoms(linear: &Linear) -> u32 {
    linear.count.div_ceil(WEIGHTS)
}

/// Registers that the weights take.
pub(super) fn weights_registers(linear: &Linear, spread: Spread) -> u32 {
    linear.terms.len() as u32 * atoms(linear) * spread.held(spread.dim as usize) / 2
}

/// Registers of a field of an atom's blocks.
fn field_registers(spread: Spread) -> u32 {
    ROUNDS as u32 * spread.held(spread.dim as usize) / 2
}

/// How many atoms of blocks are in flight together.
pub(super) fn tiles(linear: &[Linear], spread: Spread) -> usize {
    let most = linear.iter().map(|linear| linear.fields.len() as u32 * field_registers(spread)).max();
    let weights = linear.iter().map(|linear| weights_registers(linear, spread)).sum::<u32>();
    ((REGISTERS.saturating_sub(weights) / most.unwrap_or(1).max(1)) as usize).clamp(1, 2)
}

/// The weights of a row as operands: by term and atom the words of a lane.
pub(super) type Weights<'k> = Rc<Vec<Vec<Operand<'k>>>>;

/// Words of a lane.
type Operand<'k> = Vec<Val<'k, u32>>;

/// The operands that the weights of a row are.
pub(super) fn weights<'k>(k: &'k Builder, linear: &Linear, values: &mut Values<'k, '_>) -> Weights<'k> {
    let column = k.lane() / LANES;
    let (which, is_rest) = (column / 2, (column % 2).eq(1));
    let rows: Vec<Row<'k>> = (0..linear.count).map(|row| values.weighed(linear, row)).collect();
    let of_part = |part: Part, x: Val<'k, f32>| match part {
        Part::Whole => x,
        Part::Positive => x.max(0.0f32),
        Part::Negative => x.min(0.0f32),
    };
    let operand = |rows: &[Row<'k>], part: Part| -> Operand<'k> {
        let element = |e: usize| {
            // Columns beyond the last weight are nobody's.
            let others = (1u32..).zip(&rows[1..]);
            let x = others.fold(rows[0][e], |x, (at, row)| which.eq(at).select(row[e], x));
            let x = of_part(part, x);
            is_rest.select(x - x.cast::<bf16>().cast::<f32>(), x)
        };
        let words = (0..rows[0].len()).step_by(2);
        words.map(|e| element(e).pair::<Bf16x2>(element(e + 1)).bits()).collect()
    };
    let of_term = |&(_, part): &(Factor, Part)| rows.chunks(WEIGHTS as usize).map(|rows| operand(rows, part)).collect();
    Rc::new(linear.terms.iter().map(of_term).collect())
}

/// The sums of the blocks of some atoms: of each round of each atom as many as there are, in every lane of a block's group.
///
/// `fetch` gives some runs of eight elements of a field of the block of a round.
pub(super) fn sums<'k>(
    k: &'k Builder,
    (linear, weights, spread): (&Linear, &Weights<'k>, Spread),
    rounds: usize,
    fetch: &dyn Fn(usize, usize, std::ops::Range<u32>) -> Vec<Words<'k>>,
) -> Vec<Row<'k>> {
    let (tiles, eights) = (rounds / ROUNDS, spread.held(spread.dim as usize) / VECTOR);
    let new = || std::array::from_fn::<_, CHAINS, _>(|_| Accumulator::warp::<bf16>(k, 1, atoms(linear)));
    let all: Vec<[Accumulator<'k, f32>; CHAINS]> = (0..tiles).map(|_| new()).collect();
    // So many runs of eight are in flight.
    let words = linear.fields.len() as u32 * rounds as u32 * 4;
    let room = REGISTERS.saturating_sub(weights_registers(linear, spread)) / words;
    let together = room.clamp(1, eights);
    for first in (0..eights).step_by(together as usize) {
        let runs = first..(first + together).min(eights);
        let field = |round: usize| -> Vec<Vec<Words<'k>>> {
            (0..linear.fields.len()).map(|field| fetch(round, field, runs.clone())).collect()
        };
        let loaded: Vec<Vec<Vec<Words<'k>>>> = (0..rounds).map(field).collect();
        for (tile, chains) in all.iter().enumerate() {
            let blocks = &loaded[tile * ROUNDS..][..ROUNDS];
            for (at, run) in runs.clone().enumerate() {
                for ((factor, _), weights) in linear.terms.iter().zip(weights.iter()) {
                    for half in 0..2 {
                        let word = |round: usize, word: usize| {
                            operand(*factor, &blocks[round].iter().map(|of| of[at][word]).collect::<Vec<_>>())
                        };
                        let i = 2 * half;
                        let a = [word(0, i), word(1, i), word(0, i + 1), word(1, i + 1)];
                        let b = |atom: &Operand<'k>| {
                            let first = 4 * run as usize + i;
                            [atom[first], atom[first + 1]].into()
                        };
                        let b: Vec<_> = weights.iter().map(b).collect();
                        chains[half % CHAINS].mma::<bf16>(&[a.into()], &b);
                    }
                }
            }
        }
    }
    let group = k.lane() / LANES * LANES;
    let of_round = |round: usize| -> Row<'k> {
        let (tile, half) = (round / ROUNDS, (round % ROUNDS) as u32);
        // A weight's two columns lie beside each other.
        let of_atom = |atom: u32| {
            let register = 4 * atom + 2 * half;
            let pair = |chain: &Accumulator<'k, f32>| chain.get(register) + chain.get(register + 1);
            let [first, rest @ ..] = &all[tile];
            rest.iter().fold(pair(first), |sum, chain| sum + pair(chain))
        };
        let mine: Row<'k> = (0..atoms(linear)).map(of_atom).collect();
        let sum = |row: u32| mine[(row / WEIGHTS) as usize].shfl_idx(group + row % WEIGHTS);
        (0..linear.count).map(sum).collect()
    };
    (0..rounds).map(of_round).collect()
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
