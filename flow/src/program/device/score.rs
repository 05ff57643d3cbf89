//! The indexer of a flow on a device.

use std::mem::offset_of;

use tilewright_codegen::build::Val;
use tilewright_graph::op::Op;
use tilewright_graph::rows::Source;
use tilewright_kernels::attention::split::HeadCounts;
use tilewright_kernels::tile::Float;
use tilewright_megakernel::program::Span;
use tilewright_megakernel::vm::Unsupported;
use tilewright_megakernel::vm::device::{
    Call, DeviceFunction, DeviceOp, KvPools, Planned, Planner, RingFeed, SharedBytes, WeightStages,
};
use tilewright_megakernel::vm::rows_of;

use super::amount::{Amount, Candidates};
use super::buffers::{FlowTaskFields, NamedBuffers, TaskBuffers};
use super::groups::{Each, begin, go_on};
use super::kept::{OfBlock, OfRow};
use super::plan::{pools_of, recipe_of, subject_of};
use super::recipe::PassRecipe;
use super::spread::Spread;
use super::stage::BlockStage;
use super::values::BlockValues;
use super::{across, learned};
use crate::FlowPass;
use crate::program::Score;

/// Lanes that score a candidate together, at most: eight of them read 256 bytes of bf16 by two
/// loads each, and leave a sum that three shuffles complete.
const LANES: u32 = 8;
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
                let consumers = call.consumers();
                let kept = call.scratch().operand.cast::<f32>();
                let keep: Each<'k, '_, '_, '_> = &|values, block, at, is_there| {
                    self.finish(values, block, lane, is_there, &|score| kept.at(at).store(score));
                };
                stage.each(of_row, of, &values, ring, keep, &|first, [begin, end]| {
                    let to = scores.at(begin - of.origin);
                    let from = kept.at(begin - first);
                    k.for_step(k.tid(), end - begin, consumers.threads(), |at| to.at(at).store(from.at(at).load()));
                });
            }
            (None, Some(begun)) => go_on(begun, &values, each),
            (None, None) => go_on(begin(of_row, of, values.multiplies()), &values, each),
        }
        if self.recipe.across().len() + usize::from(self.has_slot) > 0 {
            // The next row finds the shared memory free.
            call.consumers().sync();
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
