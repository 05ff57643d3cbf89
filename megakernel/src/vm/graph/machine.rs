//! The machine: kernels, memory, and steps as graphs.

use std::collections::BTreeMap;

use tilewright_codegen::device::backend::Work;
use tilewright_codegen::device::{Arg, Buffer, Device, DeviceError, Graph, Kernel, Stream, TensorMap};

use super::launch::{Launch, LaunchArg, LaunchGrid, LaunchMemory, Scratch};
use super::memory::{AnyBuffer, GraphMemory};
use super::plan::GraphPlan;
use super::sequence::Sequences;
use crate::lower::LOGITS;
use crate::validate::Checked;
use crate::vm::device::{AbortHandle, DeviceKv, LaunchError, LoadError};
use crate::vm::reference::bind;
use crate::vm::reference::cells::Limits;
use crate::vm::reference::roles::Cells;
use crate::vm::reference::{AccessError, StepCells};

/// A program of many rows on a device, as a graph of launches.
///
/// Made by [`GraphWeights::machine`](super::GraphWeights::machine).
pub struct GraphMachine {
    program: Checked,
    plan: GraphPlan,
    cells: Cells,
    limits: Limits,
    device: Device,
    stream: Stream,
    kernels: Vec<Kernel>,
    memory: GraphMemory,
    /// The launches of a step, by the number of sequences that attention is launched for.
    graphs: BTreeMap<usize, Graph>,
    /// Logits of a row, and of all rows once they are asked for.
    logits: [Option<Buffer<f32>>; 2],
    abort: AbortHandle,
}

/// Who gets a row and its logits.
pub type EachLogits<'e> = &'e mut dyn FnMut(usize, &[f32]);

impl GraphMachine {
    pub(super) fn new(
        program: Checked,
        plan: GraphPlan,
        kernels: Vec<Kernel>,
        memory: GraphMemory,
        (device, stream): (Device, Stream),
    ) -> Result<GraphMachine, LoadError> {
        let (cells, limits) = bind::cells(&program)?;
        let (graphs, logits, abort) = (BTreeMap::new(), [None, None], AbortHandle::default());
        stream.wait()?;
        Ok(GraphMachine { program, plan, cells, limits, device, stream, kernels, memory, graphs, logits, abort })
    }

    /// The program.
    pub fn program(&self) -> &Checked {
        &self.program
    }

    /// The plan.
    pub fn plan(&self) -> &GraphPlan {
        &self.plan
    }

    /// The KV pools, for other machines of the model.
    pub fn kv(&self) -> &DeviceKv {
        &self.memory.kv
    }

    /// Makes this machine listen to a handle that others listen to as well. It is looked at before a step.
    pub fn listen_to(&mut self, handle: &AbortHandle) {
        self.abort = handle.clone();
    }

    /// Runs a step; `each` gets the logits of these rows, in their order, which may be none. Behind it the keys and values are there for
    /// every machine of the pools.
    ///
    /// # Errors
    /// Cells that do not fit, or rows that there are not, before anything runs; an abort; a device that fails.
    pub fn step(&mut self, cells: &StepCells, rows: &[usize], each: EachLogits) -> Result<(), LaunchError> {
        let count = self.plan.rows as usize;
        if let Some(&row) = rows.iter().find(|row| **row >= count) {
            return Err(AccessError::Row { name: LOGITS.to_owned(), rows: count, row }.into());
        }
        self.submit(cells)?;
        self.logits(rows, each)?;
        self.wait()
    }

    /// Queues a step whose logits nobody asks for; the host may prepare the next one meanwhile. Other machines of the pools, whose
    /// streams are others, run behind [`GraphMachine::wait`].
    ///
    /// # Errors
    /// As [`GraphMachine::step`]; a device that failed in an earlier step.
    pub fn submit(&mut self, cells: &StepCells) -> Result<(), LaunchError> {
        cells.check(&self.limits)?;
        if self.abort.is_set() {
            self.abort.clear();
            return Err(LaunchError::Aborted { steps: 0 });
        }
        let sequences = self.set_cells(cells)?;
        if !self.graphs.contains_key(&sequences) {
            let work = self.work(&self.plan.launches, sequences, None)?;
            self.graphs.insert(sequences, self.device.graph(&work)?);
        }
        Ok(self.graphs[&sequences].launch(&self.stream)?)
    }

    /// Waits for the steps that were submitted: behind it their keys and values are there for every machine of the pools.
    ///
    /// # Errors
    /// If the device failed in one of them.
    pub fn wait(&self) -> Result<(), LaunchError> {
        Ok(self.stream.wait()?)
    }

    /// Sends the cells; gives for how many sequences attention is launched.
    fn set_cells(&self, cells: &StepCells) -> Result<usize, LaunchError> {
        let sequences = Sequences::of(cells);
        let most = (self.plan.rows as usize).max(1);
        let padded = sequences.count().next_power_of_two().min(most);
        let sequences = sequences.padded(padded);
        let set = [
            (&self.cells.token, cells.tokens),
            (&self.cells.position, cells.positions),
            (&self.cells.page_table, cells.page_table),
        ];
        for (buffers, values) in set {
            for buffer in buffers {
                if let Some(cell) = self.memory.cells.get(buffer) {
                    self.stream.upload(values, cell)?;
                }
            }
        }
        let GraphMemory { query_starts, token_starts, tables, .. } = &self.memory;
        self.stream.upload(&sequences.query_starts, &query_starts.slice(0..padded + 1)?)?;
        self.stream.upload(&sequences.token_starts, &token_starts.slice(0..padded + 1)?)?;
        self.stream.upload(&sequences.tables, &tables.slice(0..sequences.tables.len())?)?;
        Ok(padded)
    }

    /// The logits of some rows of the step that was submitted: by a product for each row, or where several are asked for by one of
    /// all rows.
    fn logits(&mut self, rows: &[usize], each: EachLogits) -> Result<(), LaunchError> {
        let (Some(plan), false) = (&self.plan.logits, rows.is_empty()) else { return Ok(()) };
        let (vocab, all) = (plan.vocab as usize, rows.len() > 1);
        let (launches, count) = if all { (&plan.of_all, self.plan.rows as usize) } else { (&plan.of_row, 1) };
        let logits = match &self.logits[usize::from(all)] {
            Some(logits) => logits.clone(),
            None => self.device.buffer::<f32>(vocab * count)?,
        };
        for work in self.work(launches, 1, Some((rows[0], &logits)))? {
            self.stream.submit(&work)?;
        }
        for &row in rows {
            let first = if all { row * vocab } else { 0 };
            each(row, &self.stream.read(&logits.slice(first..first + vocab)?)?);
        }
        self.logits[usize::from(all)] = Some(logits);
        Ok(())
    }

    /// Launches as work; `logits`: the row whose logits are computed, and where they go.
    fn work(
        &self,
        launches: &[Launch],
        sequences: usize,
        logits: Option<(usize, &Buffer<f32>)>,
    ) -> Result<Vec<Work>, DeviceError> {
        launches.iter().map(|launch| self.work_of(launch, sequences, logits)).collect()
    }

    fn work_of(
        &self,
        launch: &Launch,
        sequences: usize,
        logits: Option<(usize, &Buffer<f32>)>,
    ) -> Result<Work, DeviceError> {
        let memory = |arg: &LaunchArg| match arg {
            LaunchArg::Pointer(memory) | LaunchArg::Map(memory, _) => self.memory(*memory, logits).map(Some),
            LaunchArg::Number(_) | LaunchArg::Factor(_) => Ok(None),
        };
        let memory = launch.args.iter().map(memory).collect::<Result<Vec<_>, _>>()?;
        let map = |(arg, memory): (&LaunchArg, &Option<AnyBuffer>)| match (arg, memory) {
            (LaunchArg::Map(_, shape), Some(memory)) => {
                let map = match memory {
                    AnyBuffer::Bf16(buffer) => self.device.tensor_map(buffer, shape.clone()),
                    AnyBuffer::Bytes(buffer) => self.device.tensor_map(buffer, shape.clone()),
                    AnyBuffer::F32(buffer) => self.device.tensor_map(buffer, shape.clone()),
                    AnyBuffer::U32(buffer) => self.device.tensor_map(buffer, shape.clone()),
                    AnyBuffer::I32(buffer) => self.device.tensor_map(buffer, shape.clone()),
                };
                map.map(Some)
            }
            _ => Ok(None),
        };
        let maps = launch.args.iter().zip(&memory).map(map).collect::<Result<Vec<Option<TensorMap>>, _>>()?;
        let args = launch.args.iter().zip(&memory).zip(&maps).filter_map(|((arg, memory), map)| match arg {
            LaunchArg::Number(number) => Some((*number).into()),
            LaunchArg::Factor(factor) => Some((*factor).into()),
            LaunchArg::Map(..) => map.as_ref().map(Arg::Map),
            LaunchArg::Pointer(_) => memory.as_ref().map(AnyBuffer::arg),
        });
        let args: Vec<Arg<'_>> = args.collect();
        let grid = match launch.grid {
            LaunchGrid::Blocks(blocks) => [blocks, 1],
            LaunchGrid::PerSequence(blocks) => [blocks, sequences as u32],
        };
        self.kernels[launch.kernel].work(grid, &args)
    }

    /// What a launch names.
    fn memory(&self, memory: LaunchMemory, logits: Option<(usize, &Buffer<f32>)>) -> Result<AnyBuffer, DeviceError> {
        let absent = DeviceError::Range { start: 0, end: 0, len: 0 };
        match (memory, logits) {
            (LaunchMemory::Logits, Some((_, logits))) => Ok(AnyBuffer::F32(logits.clone())),
            (LaunchMemory::NormedRow, Some((row, _))) => {
                let normed = self.memory.get(LaunchMemory::Scratch(Scratch::Normed));
                let (Some(AnyBuffer::Bytes(normed)), Some(plan)) = (normed, &self.plan.logits) else {
                    return Err(absent);
                };
                let bytes = plan.width as usize * 2;
                Ok(AnyBuffer::Bytes(normed.slice(row * bytes..(row + 1) * bytes)?))
            }
            _ => self.memory.get(memory).ok_or(absent),
        }
    }
}

/// A step that was submitted reads and writes what the machine holds.
impl Drop for GraphMachine {
    fn drop(&mut self) {
        // A device that failed has nothing under way.
        let _ = self.stream.wait();
    }
}

impl AnyBuffer {
    fn arg(&self) -> Arg<'static> {
        match self {
            AnyBuffer::Bf16(buffer) => buffer.into(),
            AnyBuffer::F32(buffer) => buffer.into(),
            AnyBuffer::U32(buffer) => buffer.into(),
            AnyBuffer::I32(buffer) => buffer.into(),
            AnyBuffer::Bytes(buffer) => buffer.into(),
        }
    }
}
