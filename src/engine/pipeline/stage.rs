//! The machines of a stage: one for each number of rows, on the reference machine.

use std::collections::BTreeMap;

use tilewright_codegen::target::Target;
use tilewright_flow::program::Phase;
use tilewright_megakernel::lower::{HIDDEN_IN, LowerOptions};
use tilewright_megakernel::vm::reference::{KvState, Machine, StepCells, StepOutput};

use crate::engine::EngineError;
use crate::engine::machines::{Lowering, Widths};
use crate::engine::model::Model;

/// Machines that share the KV pools of their layers.
pub(in crate::engine) struct StageMachines {
    lowering: Lowering,
    workers: usize,
    machines: BTreeMap<usize, Machine>,
    kv: Option<KvState>,
}

impl StageMachines {
    /// Of the layers that the options name, on so many threads.
    pub fn new(model: Model, options: LowerOptions, workers: usize) -> StageMachines {
        // Programs are made for the rows that somebody asks for.
        let widths = Widths { rows: Vec::new(), sampling: 0, chunk: None, only: false, proposals: false };
        let (flow, phase, requests) = (None, Phase::Decode, Vec::new());
        let lowering = Lowering { model, options, widths, flow, phase, requests };
        StageMachines { lowering, workers, machines: BTreeMap::new(), kv: None }
    }

    /// Entries of a row's page table, and the width of the residual stream.
    pub fn sizes(&self) -> [usize; 2] {
        [self.lowering.options.pages_per_sequence(), self.lowering.model.spec.hidden]
    }

    /// Makes the machine of so many rows, where there is none.
    ///
    /// # Errors
    /// If there can be none.
    pub fn make(&mut self, rows: usize) -> Result<(), EngineError> {
        if !self.machines.contains_key(&rows) {
            let placed = self.lowering.placed(rows, Target::host(self.workers))?;
            let machine = Machine::new(placed, &*self.lowering.model.weights, self.workers)?;
            if self.kv.is_none() {
                self.kv = Some(KvState::new(machine.program())?);
            }
            self.machines.insert(rows, machine);
        }
        Ok(())
    }

    /// Runs a step of so many rows; `hidden` is the residual stream, for a stage that is not the first.
    ///
    /// # Errors
    /// If there is no machine of so many rows, or it fails.
    pub fn step(
        &mut self,
        rows: usize,
        cells: &StepCells,
        hidden: Option<&[f32]>,
    ) -> Result<StepOutput<'_>, EngineError> {
        self.make(rows)?;
        let (Some(machine), Some(kv)) = (self.machines.get_mut(&rows), self.kv.as_mut()) else {
            unreachable!("`make` made both")
        };
        if let Some(hidden) = hidden {
            machine.set_input(HIDDEN_IN, hidden)?;
        }
        Ok(machine.step(kv, cells)?)
    }
}
