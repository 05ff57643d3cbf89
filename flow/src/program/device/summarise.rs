//! The cache pass of a flow on a device: a warp for each row whose token completes a block.

use std::mem::offset_of;

use tilewright_graph::op::Op;
use tilewright_graph::rows::Source;
use tilewright_megakernel::program::Span;
use tilewright_megakernel::vm::Unsupported;
use tilewright_megakernel::vm::device::{Call, DeviceFunction, DeviceOp, KvPools, Planned, Planner, WeightStages};
use tilewright_megakernel::vm::rows_of;

use super::buffers::{FlowTaskFields, NamedBuffers, TaskBuffers};
use super::kept::{Lies, OfRow};
use super::plan::{pools_of, recipe_of, subject_of};
use super::recipe::PassRecipe;
use super::spread::{Spread, WARP};
use super::values::BlockValues;
use crate::FlowPass;
use crate::program::Summarise;

impl DeviceOp for Summarise {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let pools = pools_of(plan, self.k_pool, self.block_tokens)?;
        let subject = subject_of(&self.flow, pools, self.group)?;
        let recipe = recipe_of(&subject, FlowPass::Cache, Spread::new(pools.head_dim as u32, WARP))?;
        let cells = plan.pools(self.k_pool, &self.at)?;
        let named = NamedBuffers {
            at: &self.at,
            pools: [self.k_pool, self.v_pool],
            fields: &self.fields,
            parameters: &self.parameters,
            states: &[],
        };
        let (kept, words) = TaskBuffers::new(plan, cells, &subject, &recipe, &named)?;
        let first_row = self.rows.lo as u32;
        let kv_head = self.kv_head as u32;
        let fields =
            FlowTaskFields { first_row, kv_head, one: 1f32.to_bits(), kept: words, ..FlowTaskFields::default() };
        Ok(Planned::new(Summaries { rows: rows_of(self.rows)?, recipe, kept }, fields))
    }
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
struct Summaries {
    rows: u32,
    recipe: PassRecipe,
    kept: TaskBuffers,
}

impl DeviceFunction for Summaries {
    fn pools(&self) -> Option<KvPools> {
        Some(self.kept.pools())
    }

    fn run<'k>(&self, call: Call<'k, '_>, _: &dyn WeightStages<'k>) {
        let k = call.builder();
        let spread = self.recipe.spread;
        let block_tokens = self.kept.block_tokens();
        let first_row = call.value(offset_of!(FlowTaskFields, first_row));
        let kv_head = call.value(offset_of!(FlowTaskFields, kv_head));
        let lane = k.lane() % spread.lanes;
        k.for_step(k.warp(), self.rows, call.consumers().warps, |at| {
            let row = first_row + at;
            let tokens = self.kept.cells(call).position.load(row) + 1;
            k.when(tokens.gt(0) & (tokens.max(0).cast::<u32>() % block_tokens).eq(0), || {
                let of_row = OfRow {
                    call,
                    recipe: &self.recipe,
                    kept: &self.kept,
                    kv_head,
                    row,
                    lane,
                    queries: None,
                    slot: None,
                };
                let at = tokens.cast::<u32>() / block_tokens - 1;
                let block = of_row.block(at, k.lit(0u32), Lies::Pools(of_row.place(at)));
                let mut values = BlockValues::new(k, &self.recipe, lane, &block);
                for id in self.recipe.graph().effects() {
                    let Op::Store { to: Source::Field(field), .. } = *self.recipe.graph().op(id) else { continue };
                    let rows = values.all(id);
                    // The groups of a warp have computed the same.
                    k.when(k.lane().lt(spread.lanes), || {
                        rows.iter().zip(0..).for_each(|(row, at)| block.store(field, at, row));
                    });
                }
            });
        });
    }
}
