//! Positions and page tables in shared memory: a step does not change them, and every task needs
//! them first.
//!
//! The thread that fills the ring looks at them too, for keys and values: it waits until the
//! consumer warps have brought those of its step, and they wait until it has done with them.

use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val};
use tilewright_codegen::ir::attr::Scope;
use tilewright_kernels::kv::{PageTable, StepScalars, Streamed, TokenStage, immutable_prefix};
use tilewright_kernels::warps::ConsumerWarps;

use super::sync::{ProducerWatch, Sync};
use crate::vm::device::KvPools;
use crate::vm::device::shape::{CellsPlan, KernelShape};

/// The step's positions and page tables.
#[derive(Clone, Copy)]
pub(super) struct StepCells<'k> {
    k: &'k Builder,
    state: Ptr<'k, Global, u8>,
    /// The scope of the writer of the next step's inputs.
    scope: Scope,
    /// Entries of a row of the page table.
    width: Val<'k, u32>,
    kept: Option<(CellsPlan, Ptr<'k, Shared, i32>)>,
    /// Steps of this launch whose cells are there, and steps that the ring's producer has done
    /// with; where tokens are streamed.
    turns: Option<[Ptr<'k, Shared, u32>; 2]>,
}

impl<'k> StepCells<'k> {
    pub fn new(k: &'k Builder, shape: &KernelShape, state: Ptr<'k, Global, u8>, width: Val<'k, u32>) -> StepCells<'k> {
        let kept = shape.cells.map(|cells| (cells, k.shared::<i32>("cells", cells.numbers())));
        let streams = shape.fills_stages;
        let turns = streams.then(|| ["cells_there", "cells_done"].map(|name| k.shared(name, 1)));
        let scope = if shape.devices > 1 { Scope::Sys } else { Scope::Gpu };
        StepCells { k, state, scope, width, kept, turns }
    }

    /// Initialises the block's words; by one thread, before any other thread uses them.
    pub fn start(self) {
        self.turns.into_iter().flatten().for_each(|turn| turn.store_relaxed(0u32, Scope::Cta));
    }

    /// Waits until the producer has finished with the cells of the step before; by one thread.
    pub fn wait_for_producer(self, sync: Sync<'k>, step: Val<'k, u32>) {
        if let Some([_, done]) = self.turns {
            sync.until(done, step, || ());
        }
    }

    /// Waits until the cells of a step are loaded; by the producer. They may not be when it is told
    /// to stop.
    pub fn wait_for_step(self, sync: Sync<'k>, watch: Option<ProducerWatch<'k>>, step: Val<'k, u32>) {
        if let Some([there, _]) = self.turns {
            watch.into_iter().for_each(ProducerWatch::begins);
            sync.until(there, step + 1, || watch.into_iter().for_each(ProducerWatch::looks));
        }
    }

    /// Signals that the producer has finished with the step inputs of a step.
    pub fn done(self, step: Val<'k, u32>) {
        if let Some([_, done]) = self.turns {
            done.store_release(step + 1, Scope::Cta);
        }
    }

    /// Copies the cells of a step to shared memory; by the consumer warps, after a barrier.
    pub fn fetch(self, consumers: ConsumerWarps<'k>, step: Val<'k, u32>) {
        if let Some((plan, kept)) = self.kept {
            let positions = self.global(plan.position);
            let tables = self.global(plan.table);
            consumers.each(plan.rows, |row| kept.at(row).store(positions.at(row).load()));
            // Entry by entry: rows have the same number of them.
            let near = self.width.min(plan.near());
            self.k.for_step(self.k.tid(), near * plan.rows, consumers.threads(), |at| {
                let row = at % plan.rows;
                let entry = at / plan.rows;
                kept.at(plan.rows).at(row * plan.near() + entry).store(tables.at(row * self.width + entry).load());
            });
        }
        consumers.sync();
        if let (Some((plan, kept)), Some([there, _])) = (self.kept, self.turns) {
            let position = StepScalars::Shared(kept);
            let table = self.table(plan.table);
            let to = prefix_cells(plan, kept);
            consumers.each(plan.rows, |row| {
                to.at(row).store(immutable_prefix(position, table, plan.page_tokens, row, plan.rows));
            });
            consumers.sync();
            self.k.when(self.k.tid().eq(0), || there.store_release(step + 1, Scope::Cta));
        }
    }

    /// The positions and page tables of an opcode.
    pub fn of(self, pools: KvPools) -> (StepScalars<'k>, PageTable<'k>) {
        let position = match self.kept {
            Some((_, kept)) => StepScalars::Shared(kept),
            None => StepScalars::Global(self.global(pools.position)),
        };
        (position, self.table(pools.table))
    }

    /// The page tables, of which the first entries are kept.
    fn table(self, table: u32) -> PageTable<'k> {
        let near = self.kept.map(|(plan, kept)| (plan.near(), kept.at(plan.rows)));
        PageTable { cells: StepScalars::Global(self.global(table)), width: self.width, near }
    }

    /// The tokens of the step that are streamed through the ring.
    pub fn streamed(self, stage: TokenStage) -> Option<Streamed<'k>> {
        let (plan, kept) = self.kept?;
        Some(Streamed { stage, immutable_prefix: StepScalars::Shared(prefix_cells(plan, kept)) })
    }

    /// The positions and page tables of an opcode in global memory, for a thread that runs ahead of
    /// the step.
    pub fn of_step(self, pools: KvPools) -> (StepScalars<'k>, PageTable<'k>) {
        let cells = StepScalars::Strong(self.global(pools.table), self.scope);
        (
            StepScalars::Strong(self.global(pools.position), self.scope),
            PageTable { cells, width: self.width, near: None },
        )
    }

    fn global(self, strips: u32) -> Ptr<'k, Global, i32> {
        self.state.at(self.k.lit(strips).mul_wide(16u32)).cast()
    }
}

/// The immutable prefix of each row: after positions and page tables.
fn prefix_cells(plan: CellsPlan, kept: Ptr<'_, Shared, i32>) -> Ptr<'_, Shared, i32> {
    kept.at(plan.rows * (plan.near() + 1))
}
