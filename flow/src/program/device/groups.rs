//! Candidates by groups of lanes: a group of lanes for each candidate, several candidates of a
//! group in flight.

use std::ops::Range;

use tilewright_codegen::build::{Val, Var};
use tilewright_graph::graph::ValueId;
use tilewright_graph::op::Op;

use super::amount::Candidates;
use super::kept::{Lies, OfBlock, OfRow};
use super::lanes::PackedBf16;
use super::product::Ahead;
use super::registers::{self, ROUNDS};
use super::values::{BlockRow, BlockValues, Sources};

/// Numbers of candidates that a lane has in flight.
const IN_FLIGHT: u32 = 128;
/// Most candidates of a group in flight.
const MOST: u32 = 8;

/// What is done with a candidate: its values, the block, its number among the candidates, and
/// whether there is such a one.
pub(super) type Each<'k, 'p, 'r, 'w> =
    &'w dyn Fn(BlockValues<'k, '_>, OfBlock<'k, 'p, 'r>, Val<'k, u32>, Val<'k, bool>);

/// Deals the candidates to the groups of lanes of all warps. All lanes of a warp take part: a group
/// without a candidate repeats the last one.
pub(super) fn each<'k, 'p, 'r>(
    of_row: OfRow<'k, 'p, 'r>,
    of: Candidates<'k>,
    values: &BlockValues<'k, 'r>,
    then: Each<'k, 'p, 'r, '_>,
) {
    go_on(begin(of_row, of, values.multiplies()), values, then);
}

/// Candidates that are dealt, the first of which are looked up, and loaded if they are loaded
/// ahead.
///
/// Where candidates lie the lanes look up for all groups at once, a round ahead.
pub(super) struct Begun<'k, 'p, 'r> {
    of_row: OfRow<'k, 'p, 'r>,
    of: Candidates<'k>,
    /// Candidates of a group together.
    together: u32,
    /// Where the candidates of this round lie, and those of the next.
    places: [Var<'k, u32>; 2],
    on_their_way: Option<Ahead<'k>>,
}

impl<'k, 'p, 'r> Begun<'k, 'p, 'r> {
    /// Candidates of a warp together.
    fn of_warp(&self) -> u32 {
        self.of_row.recipe.spread.groups() * self.together
    }

    /// The last candidate.
    fn last(&self) -> Val<'k, u32> {
        self.of.count - self.of.count.min(1)
    }

    /// The first candidate of the warp.
    fn first(&self) -> Val<'k, u32> {
        self.of_row.call.builder().warp() * self.of_warp()
    }

    /// Candidates from round to round.
    fn step(&self) -> u32 {
        self.of_row.call.consumers().warps * self.of_warp()
    }

    /// The places of the candidates of a round, each in the lane of its number.
    fn look_up(&self, base: Val<'k, u32>) -> Val<'k, u32> {
        self.of_row.place(self.of.origin + (base + self.of_row.call.builder().lane()).min(self.last()))
    }

    /// Numbers within a warp of the candidates of a group.
    fn numbers(&self) -> Vec<Val<'k, u32>> {
        let spread = self.of_row.recipe.spread;
        let group = self.of_row.call.builder().lane() / spread.lanes;
        (0..self.together).map(|round| group + round * spread.groups()).collect()
    }

    /// The candidates of a group in a round.
    fn blocks(&self, base: Val<'k, u32>, places: Val<'k, u32>) -> Vec<OfBlock<'k, 'p, 'r>> {
        let block = |number: Val<'k, u32>| {
            let at = (base + number).min(self.last());
            // Beyond the last candidate lanes have looked up the last one.
            self.of_row.block(self.of.origin + at, at, Lies::Pools(places.shfl_idx(number)))
        };
        self.numbers().into_iter().map(block).collect()
    }

    /// Eights of a field of one of some blocks.
    fn words(&self, of: &[OfBlock<'k, 'p, 'r>], round: usize, field: ValueId, runs: Range<u32>) -> Vec<PackedBf16<'k>> {
        let Op::Load { from: source } = *self.of_row.recipe.graph().op(field) else { return Vec::new() };
        of[round].fetch(source, BlockRow::row(0), runs).unwrap_or_default()
    }
}

/// Looks the first candidates up, and loads them if they are computed by products and loaded ahead.
pub(super) fn begin<'k, 'p, 'r>(of_row: OfRow<'k, 'p, 'r>, of: Candidates<'k>, multiplies: bool) -> Begun<'k, 'p, 'r> {
    let k = of_row.call.builder();
    let recipe = of_row.recipe;
    let together = match recipe.linear() {
        [] => {
            let numbers: u32 = recipe.of_block(&|_| false).into_iter().map(|id| recipe.held(id)).sum();
            (IN_FLIGHT / numbers.max(1)).clamp(1, recipe.spread.lanes.min(MOST))
        }
        linear => (ROUNDS * registers::tiles(linear, recipe.spread)) as u32,
    };
    let begun = Begun { of_row, of, together, places: [k.var(0u32), k.var(0u32)], on_their_way: None };
    begun.places[0].set(begun.look_up(begun.first()));
    begun.places[1].set(begun.look_up(begun.first() + begun.step()));
    if !multiplies || !registers::is_ahead(recipe.linear(), recipe.spread) {
        return begun;
    }
    let blocks = begun.blocks(begun.first(), begun.places[0].get());
    let fetch = |round: usize, field, runs: Range<u32>| begun.words(&blocks, round, field, runs);
    let on_their_way = Ahead::new(k, recipe, together as usize, &fetch);
    Begun { on_their_way, ..begun }
}

/// Shows all candidates.
pub(super) fn go_on<'k, 'p, 'r>(begun: Begun<'k, 'p, 'r>, values: &BlockValues<'k, 'r>, then: Each<'k, 'p, 'r, '_>) {
    let k = begun.of_row.call.builder();
    let numbers = begun.numbers();
    let step = begun.step();
    let [here, ahead] = &begun.places;
    let on_their_way = begun.on_their_way.as_ref();
    k.for_step(begun.first(), begun.of.count, step, |base| {
        let places = here.get();
        let later = ahead.get();
        here.set(later);
        ahead.set(begun.look_up(base + 2 * step));
        let blocks = begun.blocks(base, places);
        let next = on_their_way.map(|_| begun.blocks(base + step, later)).unwrap_or_default();
        let mut all: Vec<_> = blocks.iter().map(|block| values.of_block(block)).collect();
        all.iter_mut().for_each(BlockValues::load_block);
        let fetch = |round: usize, field, runs: Range<u32>| begun.words(&next, round, field, runs);
        BlockValues::multiply(&mut all, on_their_way, &fetch);
        for ((values, &block), &number) in all.into_iter().zip(&blocks).zip(&numbers) {
            then(values, block, base + number, (base + number).lt(begun.of.count));
        }
    });
}
