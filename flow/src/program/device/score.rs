//! The indexer of a flow on a device: a group of lanes for each candidate, several candidates of a
//! group in flight.

use crate::FlowPass;
use std::mem::offset_of;
use std::ops::Range;

use tilewright_codegen::build::{Val, Var};
use tilewright_graph::graph::ValueId;
use tilewright_graph::op::Op;
use tilewright_graph::rows::Source;
use tilewright_kernels::attention::split::HeadCounts;
use tilewright_kernels::tile::Float;
use tilewright_megakernel::program::Span;
use tilewright_megakernel::vm::Unsupported;
use tilewright_megakernel::vm::device::{
    Call, DeviceFunction, DeviceOp, KvPools, Planned, Planner, RingFeed, SharedBytes, WeightStages, rows_of,
};

use super::amount::Amount;
use super::kept::{FlowTaskFields, Lies, NamedBuffers, OfBlock, OfRow, PackedBf16, TaskBuffers};
use super::product::{self, Ahead};
use super::recipe::PassRecipe;
use super::spread::Spread;
use super::stage::BlockStage;
use super::values::{BlockRow, BlockValues, Sources};
use super::{across, learned, pools_of, recipe_of, subject_of};
use crate::program::Score;

/// Lanes that score a candidate together, at most: eight of them read 256 bytes of bf16 by two
/// loads each, and leave a sum that three shuffles complete.
const LANES: u32 = 8;
/// Numbers of candidates that a lane has in flight.
const IN_FLIGHT: u32 = 128;
/// Most candidates of a group in flight.
const MOST: u32 = 8;

impl DeviceOp for Score {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let heads = plan.extent(self.q, 1)?;
        let dim = plan.extent(self.q, 0)?;
        let pools = pools_of(plan, self.k_pool, self.block_tokens)?;
        let group = heads as usize / pools.kv_heads.max(1);
        let subject = subject_of(&self.flow, pools, group)?;
        let recipe = recipe_of(&subject, FlowPass::Indexer, Spread::new(dim, LANES))?;
        let recipe = recipe.by_products().unwrap_or(recipe);
        plan.plain_float("q", self.q)?;
        let cells = plan.pools(self.k_pool, &self.at)?;
        let named = NamedBuffers {
            at: &self.at,
            pools: [self.k_pool, self.v_pool],
            fields: &self.fields,
            parameters: &self.parameters,
            states: &self.states,
        };
        let (kept, words) = TaskBuffers::new(plan, cells, &subject, &recipe, &named)?;
        let fields = FlowTaskFields {
            first_row: self.rows.lo as u32,
            kv_head: self.kv_head as u32,
            split: self.split as u32,
            splits: plan.extent(self.scores, 1)?,
            share: plan.extent(self.scores, 0)?,
            q: plan.operand(self.q)?,
            scores: plan.operand(self.scores)?,
            slot: plan.operand_of(self.slot)?,
            one: 1f32.to_bits(),
            kept: words,
        };
        let heads = HeadCounts { heads, kv_heads: pools.kv_heads as u32, dim, splits: 1 };
        let rows = rows_of(self.rows)?;
        let amount = Amount::new(&self.budget);
        let has_slot = self.slot.is_some();
        // Fields that the step writes before are read from their pools.
        let is_immutable = self.fields.iter().all(|&field| plan.is_immutable(field));
        Ok(Planned::new(
            ScoreDeviceFunction { rows, heads, amount, recipe, kept, has_slot, is_immutable, staged: None },
            fields,
        ))
    }
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
struct ScoreDeviceFunction {
    rows: u32,
    heads: HeadCounts,
    amount: Amount,
    recipe: PassRecipe,
    kept: TaskBuffers,
    has_slot: bool,
    /// Whether the fields are those of earlier steps.
    is_immutable: bool,
    /// The ring stage by which the fields are streamed, if they are.
    staged: Option<BlockStage>,
}

/// The candidates of a row that a task scores.
#[derive(Clone, Copy)]
pub(super) struct Candidates<'k> {
    /// Place of the first of them in the sequence.
    pub origin: Val<'k, u32>,
    /// The number of candidates.
    pub count: Val<'k, u32>,
}

impl DeviceFunction for ScoreDeviceFunction {
    fn pools(&self) -> Option<KvPools> {
        Some(self.kept.pools())
    }

    fn shared(&self, warps: u32) -> SharedBytes {
        let kept = self.staged.as_ref().map_or(0, BlockStage::kept_bytes);
        let operand = across::shared_bytes(&self.recipe, warps).max(learned::shared_bytes(&self.recipe)).max(kept);
        SharedBytes { operand, ..SharedBytes::default() }
    }

    fn stream(&mut self, stage_bytes: u32) {
        let is_streamed = self.is_immutable && !self.has_slot;
        self.staged = is_streamed.then(|| BlockStage::new(&self.recipe, &self.kept, stage_bytes)).flatten();
    }

    fn fills(&self) -> bool {
        self.staged.is_some()
    }

    fn fill<'k>(&self, feed: RingFeed<'k, '_>) {
        let Some(stage) = &self.staged else { return };
        let value = |field: usize| feed.value(field);
        let first_row = value(offset_of!(FlowTaskFields, first_row));
        let kv_head = value(offset_of!(FlowTaskFields, kv_head));
        let k = feed.builder();
        k.for_(0u32, self.rows, |at| {
            k.break_if(feed.stopped());
            let row = first_row + at;
            let position = feed.pages([offset_of!(FlowTaskFields, kept); 2], self.kept.pools()).position.load(row);
            self.candidates(position, &value, |of| stage.fill(feed, [row, kv_head], of));
        });
    }

    fn run<'k>(&self, call: Call<'k, '_>, ring: &dyn WeightStages<'k>) {
        let k = call.builder();
        let first_row = call.value(offset_of!(FlowTaskFields, first_row));
        k.for_(0u32, self.rows, |at| {
            let row = first_row + at;
            let position = self.kept.cells(call).position.load(row);
            self.candidates(position, &|field| call.value(field), |of| self.score(call, row, of, ring));
        });
    }
}

impl ScoreDeviceFunction {
    /// The candidates of the task's split of a row at a position, where not all of its blocks are
    /// selected.
    fn candidates<'k>(
        &self,
        position: Val<'k, i32>,
        value: &dyn Fn(usize) -> Val<'k, u32>,
        then: impl FnOnce(Candidates<'k>),
    ) {
        let k = position.builder();
        k.moving().when(position.ge(0), || {
            let blocks = position.cast::<u32>() / self.kept.block_tokens() + 1;
            k.moving().when(blocks.gt(self.amount.selected(blocks)), || {
                let candidates = self.amount.candidates(blocks);
                let splits = value(offset_of!(FlowTaskFields, splits));
                let width = (candidates + (splits - 1)) / splits;
                let begin = (value(offset_of!(FlowTaskFields, split)) * width).min(candidates);
                let count = width.min(candidates - begin);
                then(Candidates { origin: begin + self.amount.first, count });
            });
        });
    }

    /// Scores the candidates of a row.
    fn score<'k>(&self, call: Call<'k, '_>, row: Val<'k, u32>, of: Candidates<'k>, ring: &dyn WeightStages<'k>) {
        let k = call.builder();
        let spread = self.recipe.spread;
        let HeadCounts { heads, kv_heads, dim, .. } = self.heads;
        let kv_head = call.value(offset_of!(FlowTaskFields, kv_head));
        let group = heads / kv_heads;
        let q = call.array(offset_of!(FlowTaskFields, q), Float::F32);
        let slot = self.has_slot.then(|| {
            let slot = call.state(offset_of!(FlowTaskFields, slot)).cast::<i32>().at(row * 2);
            (slot.load().max(0).cast::<u32>(), slot.at(1u32).load().cast::<f32>())
        });
        let lane = k.lane() % spread.lanes;
        let of_row = OfRow {
            call,
            recipe: &self.recipe,
            kept: &self.kept,
            kv_head,
            row,
            lane,
            queries: Some((q, (row * heads + kv_head * group) * dim)),
            slot,
        };
        let across = self.recipe.across();
        // The first blocks are on their way while the row's queries come.
        let is_begun = across.is_empty() && self.staged.is_none();
        let begun = is_begun.then(|| begin(of_row, of, true));
        let mut values = BlockValues::new(k, &self.recipe, lane, &of_row);
        values.know_row();
        for id in across {
            across::gather(&mut values, id, of_row, of);
            values.know_row();
        }
        let splits = call.value(offset_of!(FlowTaskFields, splits));
        let place = (row * kv_heads + kv_head) * splits + call.value(offset_of!(FlowTaskFields, split));
        let scores = call.state(offset_of!(FlowTaskFields, scores)).cast::<f32>();
        let scores = scores.at(place * call.value(offset_of!(FlowTaskFields, share)));
        let each: Each<'k, '_, '_, '_> = &|values, block, at, is_there| {
            self.finish(values, block, lane, is_there, &|score| scores.at(at).store(score));
        };
        match (&self.staged, begun) {
            (Some(stage), _) => {
                let team = call.team();
                let kept = call.scratch().operand.cast::<f32>();
                let keep: Each<'k, '_, '_, '_> = &|values, block, at, is_there| {
                    self.finish(values, block, lane, is_there, &|score| kept.at(at).store(score));
                };
                stage.each(of_row, of, &values, ring, keep, &|first, [begin, end]| {
                    let to = scores.at(begin - of.origin);
                    let from = kept.at(begin - first);
                    k.for_step(k.tid(), end - begin, team.threads(), |at| to.at(at).store(from.at(at).load()));
                });
            }
            (None, Some(begun)) => go_on(begun, &values, each),
            (None, None) => go_on(begin(of_row, of, values.multiplies()), &values, each),
        }
        if self.recipe.across().len() + usize::from(self.has_slot) > 0 {
            // The next row finds the shared memory free.
            call.team().sync();
        }
    }

    /// Stores the score of a candidate, if it is one, and saves its states.
    fn finish<'k>(
        &self,
        mut values: BlockValues<'k, '_>,
        block: OfBlock<'k, '_, '_>,
        lane: Val<'k, u32>,
        is_there: Val<'k, bool>,
        store: &dyn Fn(Val<'k, f32>),
    ) {
        let k = lane.builder();
        let mut saves = Vec::new();
        for id in self.recipe.graph().effects() {
            match *self.recipe.graph().op(id) {
                Op::Select { .. } => {
                    let score = values.all(id)[0][0];
                    k.when(is_there & lane.eq(0), || store(score));
                }
                Op::Store { to: Source::State(state), .. } => saves.push((state, values.all(id))),
                _ => {}
            }
        }
        if !saves.is_empty() {
            // All lanes have read what they save.
            k.sync_warp();
            k.when(is_there, || saves.iter().for_each(|(state, rows)| block.save(*state, rows)));
        }
    }
}

/// An action on a candidate, given its values, the block, its number among the candidates, and
/// whether it exists.
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
struct Begun<'k, 'p, 'r> {
    of_row: OfRow<'k, 'p, 'r>,
    of: Candidates<'k>,
    /// Candidates of a group together.
    together: u32,
    /// The locations of this round's candidates, and of the next round's.
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
        self.of_row.call.team().warps * self.of_warp()
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
fn begin<'k, 'p, 'r>(of_row: OfRow<'k, 'p, 'r>, of: Candidates<'k>, multiplies: bool) -> Begun<'k, 'p, 'r> {
    let k = of_row.call.builder();
    let recipe = of_row.recipe;
    let together = match recipe.linear() {
        [] => {
            let numbers: u32 = recipe.of_block(&|_| false).into_iter().map(|id| recipe.held(id)).sum();
            (IN_FLIGHT / numbers.max(1)).clamp(1, recipe.spread.lanes.min(MOST))
        }
        linear => (product::ROUNDS * product::tiles(linear, recipe.spread)) as u32,
    };
    let begun = Begun { of_row, of, together, places: [k.var(0u32), k.var(0u32)], on_their_way: None };
    begun.places[0].set(begun.look_up(begun.first()));
    begun.places[1].set(begun.look_up(begun.first() + begun.step()));
    if !multiplies || !product::is_ahead(recipe.linear(), recipe.spread) {
        return begun;
    }
    let blocks = begun.blocks(begun.first(), begun.places[0].get());
    let fetch = |round: usize, field, runs: Range<u32>| begun.words(&blocks, round, field, runs);
    let on_their_way = Ahead::new(k, recipe, together as usize, &fetch);
    Begun { on_their_way, ..begun }
}

/// Shows all candidates.
fn go_on<'k, 'p, 'r>(begun: Begun<'k, 'p, 'r>, values: &BlockValues<'k, 'r>, then: Each<'k, 'p, 'r, '_>) {
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
