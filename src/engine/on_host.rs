//! A model's steps on the host: the reference machine.

use std::collections::BTreeMap;

use tilewright_codegen::target::Target;
use tilewright_flow::program::Phase;
use tilewright_megakernel::lower::LOGITS;
use tilewright_megakernel::vm::reference::{KvState, Machine, StepError};
use tilewright_megakernel::vm::{AbortHandle, RequestSlot, StepCells};

use super::error::EngineError;
use crate::engine::limits::CHUNKS;
use crate::engine::machines::{EachRow, Lowering, Machines};

/// The reference machine.
pub(super) struct OnHost {
    pub(super) lowering: Lowering,
    pub(super) workers: usize,
    pub(super) machines: BTreeMap<(Phase, usize), Machine>,
    pub(super) kv: Option<KvState>,
    pub(super) abort: AbortHandle,
}

impl Machines for OnHost {
    fn width(&mut self, rows: usize) -> Result<usize, EngineError> {
        let width = self.lowering.widths.least(usize::MAX, rows);
        if !self.machines.contains_key(&(self.lowering.phase, width)) {
            let placed = self.lowering.placed(width, Target::host(self.workers))?;
            let machine = Machine::new(placed, &*self.lowering.model.weights, self.workers)?;
            if self.kv.is_none() {
                self.kv = Some(KvState::new(machine.program())?);
            }
            self.machines.insert((self.lowering.phase, width), machine);
        }
        Ok(width)
    }

    fn set_phase(&mut self, phase: Phase, _: bool) {
        self.lowering.set_phase(phase);
    }

    fn set_slots(&mut self, width: usize, slots: &[RequestSlot]) -> Result<(), EngineError> {
        match self.machines.get_mut(&(self.lowering.phase, width)) {
            Some(machine) if self.lowering.phase == Phase::Decode => {
                Ok(machine.set_slots(slots).map_err(StepError::from)?)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn set_requests(&mut self, requests: &[u64]) {
        self.lowering.requests = requests.to_vec();
    }

    fn chunk_rows(&self) -> usize {
        CHUNKS[0]
    }

    fn chunk(&mut self, rest: usize) -> Result<usize, EngineError> {
        Ok(CHUNKS.into_iter().find(|&rows| rows <= rest).unwrap_or(1))
    }

    fn most_rows(&self) -> usize {
        usize::MAX
    }

    fn step(&mut self, width: usize, cells: &StepCells, rows: &[usize], each: EachRow) -> Result<(), EngineError> {
        if self.abort.is_set() {
            self.abort.clear();
            return Err(EngineError::Aborted);
        }
        let (Some(machine), Some(kv)) = (self.machines.get_mut(&(self.lowering.phase, width)), self.kv.as_mut()) else {
            unreachable!("`width` made both")
        };
        let output = machine.step(kv, cells)?;
        self.lowering.observe(cells, &|name| Ok(output.i32(name)?))?;
        for &row in rows {
            each(row, &output.f32_row(LOGITS, row)?);
        }
        Ok(())
    }
}
