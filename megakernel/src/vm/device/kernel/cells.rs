//! Positions and page tables in shared memory: a step does not change them, and every task needs them first.

use tilewright_codegen::build::{Builder, Global, Ptr, Shared};
use tilewright_kernels::decode::{Cells, Team};

use crate::vm::device::plan::CellsPlan;
use crate::vm::device::{Plan, PoolClass};

/// The step's positions and page tables.
#[derive(Clone, Copy)]
pub(super) struct StepCells<'k> {
    k: &'k Builder,
    state: Ptr<'k, Global, u8>,
    kept: Option<(CellsPlan, Ptr<'k, Shared, i32>)>,
}

impl<'k> StepCells<'k> {
    pub fn new(k: &'k Builder, plan: &Plan, state: Ptr<'k, Global, u8>) -> StepCells<'k> {
        let kept = plan.cells.map(|cells| (cells, k.shared::<i32>("cells", cells.rows * (cells.table_width + 1))));
        StepCells { k, state, kept }
    }

    /// Brings them to shared memory; by the team, before a barrier.
    pub fn fetch(self, team: Team<'k>) {
        if let Some((plan, kept)) = self.kept {
            let (positions, tables) = (self.global(plan.position), self.global(plan.table));
            team.each(plan.rows, |row| kept.at(row).store(positions.at(row).load()));
            team.each(plan.rows * plan.table_width, |at| kept.at(plan.rows).at(at).store(tables.at(at).load()));
        }
    }

    /// The positions and page tables of a class.
    pub fn of(self, pools: PoolClass) -> (Cells<'k>, Cells<'k>) {
        match self.kept {
            Some((plan, kept)) => (Cells::Shared(kept), Cells::Shared(kept.at(plan.rows))),
            None => (Cells::Global(self.global(pools.position)), Cells::Global(self.global(pools.table))),
        }
    }

    /// The positions and page tables of a class in global memory, for a thread that runs ahead of the step.
    pub fn of_step(self, pools: PoolClass) -> (Cells<'k>, Cells<'k>) {
        (Cells::Strong(self.global(pools.position)), Cells::Strong(self.global(pools.table)))
    }

    fn global(self, units: u32) -> Ptr<'k, Global, i32> {
        self.state.at(self.k.lit(units).mul_wide(16u32)).cast()
    }
}
