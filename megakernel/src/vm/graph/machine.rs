//! The machine: kernels, memory, and steps as graphs.

use crate::vm::cells::used_as;
use std::collections::BTreeMap;
use std::time::Duration;

use tilewright_codegen::device::backend::Work;
use tilewright_codegen::device::{Arg, Buffer, Device, DeviceError, Event, Graph, Stream, TensorMap};

use super::kernels::LazyKernels;
use super::launch::{Launch, LaunchArg, LaunchGrid, LaunchMemory, Scratch};
use super::memory::{AnyBuffer, GraphMemory};
use super::plan::GraphPlan;
use super::sequence::Sequences;
use crate::lower::{LOGITS, StepPlan};
use crate::program::BufferId;
use crate::vm::cells::{CellLimits, CellRoles};
use crate::vm::masks::Masked;
use crate::vm::resident::DeviceKv;
use crate::vm::{AbortHandle, AccessError, LaunchError, LoadError, StepCells, binding};

/// How long a device waits for another at a barrier, unless it is told otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of a simulated device, whose polls take no time of the host's: about 16,000 polls.
const SIMULATED_TIMEOUT: Duration = Duration::from_millis(10);

/// A step of many rows on a device, as a graph of launches.
///
/// Made by [`GraphWeights::machine`](super::GraphWeights::machine).
pub struct GraphMachine {
    pub(super) step: StepPlan,
    pub(super) plan: GraphPlan,
    pub(super) cells: CellRoles,
    pub(super) limits: CellLimits,
    device: Device,
    pub(super) stream: Stream,
    kernels: LazyKernels,
    pub(super) memory: GraphMemory,
    /// The launches of a step, by what attention is launched for and by what comes after.
    graphs: BTreeMap<(Counts, StepTail), Graph>,
    /// The launches of a choice.
    choice: Option<Graph>,
    /// The page tables that are on the device; none where that is not known.
    page_table: Vec<i32>,
    /// The rows that have masks.
    pub(super) masked: Masked,
    /// Logits of a row, and of all rows once they are asked for.
    logits: [Option<Buffer<f32>>; 2],
    abort: AbortHandle,
}

/// For how many sequences attention is launched, each a power of two or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Counts {
    /// Rows that are sequences of their own.
    alone: usize,
    /// Sequences of several rows.
    several: usize,
}

/// The work that follows the layers of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StepTail {
    /// The rows whose logits or tokens are asked for.
    Nothing,
    /// The choice of tokens, which are the next step's.
    Feed,
}

/// A callback that receives a row and its logits.
pub type EachLogits<'e> = &'e mut dyn FnMut(usize, &[f32]);

impl GraphMachine {
    pub(super) fn new(
        step: StepPlan,
        plan: GraphPlan,
        kernels: LazyKernels,
        memory: GraphMemory,
        device: Device,
        stream: Stream,
    ) -> Result<GraphMachine, LoadError> {
        let (cells, limits) = binding::cells_of(&step, used_as(step.cells().iter().copied()))?;
        let graphs = BTreeMap::new();
        let choice = None;
        let logits = [None, None];
        let abort = AbortHandle::default();
        stream.wait()?;
        Ok(GraphMachine {
            step,
            plan,
            cells,
            limits,
            device,
            stream,
            kernels,
            memory,
            graphs,
            choice,
            page_table: Vec::new(),
            masked: Masked::default(),
            logits,
            abort,
        })
    }

    /// The plan.
    pub fn plan(&self) -> &GraphPlan {
        &self.plan
    }

    /// The KV pools, for other machines of the model.
    pub fn kv(&self) -> &DeviceKv {
        &self.memory.kv
    }

    /// Makes this machine listen to a handle that others listen to as well. It is looked at before
    /// a step.
    pub fn listen_to(&mut self, handle: &AbortHandle) {
        self.abort = handle.clone();
    }

    /// Runs a step launch by launch: each kernel's name and what it took between events, those of
    /// the layers and, where the program ends in one, of a choice. The layers run once before, so
    /// that the device finds the launches queued and no time is the host's. A graph begins launches
    /// closer to each other.
    ///
    /// # Errors
    /// As [`GraphMachine::submit`].
    pub fn times(&mut self, cells: &StepCells) -> Result<Vec<(String, Duration)>, LaunchError> {
        cells.check(&self.limits)?;
        let counts = self.set_cells(cells)?;
        let choice: Vec<Launch> = self.plan.choice.iter().flat_map(|choice| choice.fed.iter().cloned()).collect();
        let layers = self.work_by_name(&self.plan.launches, counts)?;
        layers.iter().try_for_each(|(_, work)| self.stream.submit(work))?;
        let mut events = vec![self.stream.record()?];
        let all = [layers, self.work_by_name(&choice, counts)?].concat();
        for (_, work) in &all {
            self.stream.submit(work)?;
            events.push(self.stream.record()?);
        }
        self.stream.wait()?;
        Ok(between(all, &events)?)
    }

    /// Launches as work, with their kernels' names.
    pub(super) fn work_by_name(&self, launches: &[Launch], counts: Counts) -> Result<Vec<(String, Work)>, DeviceError> {
        let name = |launch: &Launch| self.plan.kernels[launch.kernel].name.clone();
        let names = launches.iter().filter(|launch| counts.runs(launch)).map(name);
        Ok(names.zip(self.work(launches, counts, None)?).collect())
    }

    /// Lets all rows attend by the kernel of prompts from now on, so that a row has the same bits
    /// whether its token is of a prompt or was generated. Decoding rows take longer by it.
    pub fn attend_together(&mut self) {
        self.plan.alone = 0;
    }

    /// Runs a step; `each` gets the logits of these rows, in their order, which may be none. After
    /// it the keys and values are there for every machine of the pools.
    ///
    /// # Errors
    /// Cells that do not fit, or rows that there are not, before anything runs; an abort; a device
    /// that fails.
    pub fn step(&mut self, cells: &StepCells, rows: &[usize], each: EachLogits) -> Result<(), LaunchError> {
        self.check_rows(rows)?;
        self.submit(cells)?;
        self.logits(rows, each)?;
        self.wait()
    }

    /// Fails where there is no such row.
    pub(super) fn check_rows(&self, rows: &[usize]) -> Result<(), LaunchError> {
        let count = self.plan.rows as usize;
        match rows.iter().find(|row| **row >= count) {
            Some(&row) => Err(AccessError::Row { name: LOGITS.to_owned(), rows: count, row }.into()),
            None => Ok(()),
        }
    }

    /// Captures launches as a graph.
    pub(super) fn graph_of(&self, launches: &[Launch], counts: Counts) -> Result<Graph, LaunchError> {
        Ok(self.device.graph(&self.work(launches, counts, None)?)?)
    }

    /// How long a device waits for another at a barrier, unless it is told otherwise.
    pub(super) fn barrier_timeout(&self) -> Duration {
        if self.is_simulated() { SIMULATED_TIMEOUT } else { TIMEOUT }
    }

    /// Whether its device runs what it is given at once.
    pub(super) fn is_simulated(&self) -> bool {
        self.device.properties().driver == 0
    }

    /// Queues a step without logits; the host may prepare the next one meanwhile. Other machines of
    /// the pools, whose streams are others, run after [`GraphMachine::wait`].
    ///
    /// # Errors
    /// As [`GraphMachine::step`]; a device that failed in an earlier step.
    pub fn submit(&mut self, cells: &StepCells) -> Result<(), LaunchError> {
        cells.check(&self.limits)?;
        self.listen()?;
        let counts = self.set_cells(cells)?;
        self.launch(counts, StepTail::Nothing)
    }

    /// Fails if an abort was requested.
    pub(super) fn listen(&self) -> Result<(), LaunchError> {
        if self.abort.is_set() {
            self.abort.clear();
            return Err(LaunchError::Aborted { steps: 0 });
        }
        Ok(())
    }

    /// Queues the launches of a step, whose cells are set.
    pub(super) fn launch(&mut self, counts: Counts, tail: StepTail) -> Result<(), LaunchError> {
        if !self.graphs.contains_key(&(counts, tail)) {
            // A step is a graph of its own: attention reads lengths and pages before the launches
            // of its graph have ended.
            let mut work = self.work(&self.plan.launches, counts, None)?;
            if let (StepTail::Feed, Some(choice)) = (tail, &self.plan.choice) {
                work.extend(self.work(&choice.fed, counts, None)?);
            }
            self.graphs.insert((counts, tail), self.device.graph(&work)?);
        }
        Ok(self.graphs[&(counts, tail)].launch(&self.stream)?)
    }

    /// Queues the choice of tokens after a step, for the rows that are named.
    pub(super) fn submit_choice(&mut self) -> Result<(), LaunchError> {
        let choice = match (self.choice.take(), &self.plan.choice) {
            (Some(choice), _) => choice,
            (None, Some(choice)) => self.device.graph(&self.work(&choice.launches, Counts::NONE, None)?)?,
            (None, None) => return Ok(()),
        };
        choice.launch(&self.stream)?;
        self.choice = Some(choice);
        Ok(())
    }

    /// Waits for the steps that were submitted: after it their keys and values are there for every
    /// machine of the pools.
    ///
    /// # Errors
    /// If the device failed in one of them.
    pub fn wait(&self) -> Result<(), LaunchError> {
        Ok(self.stream.wait()?)
    }

    /// The sequences of a step's cells.
    pub(super) fn sequences(&self, cells: &StepCells) -> Sequences {
        Sequences::of(cells, self.plan.alone as usize)
    }

    /// For how many sequences attention is launched.
    pub(super) fn counts(&self, sequences: &Sequences) -> Counts {
        Counts::of(sequences, (self.plan.rows as usize).max(1))
    }

    /// Sends the cells; gives for how many sequences attention is launched.
    pub(super) fn set_cells(&mut self, cells: &StepCells) -> Result<Counts, LaunchError> {
        let sequences = self.sequences(cells);
        self.send_cells(cells, &sequences)
    }

    /// Sends step inputs whose sequences are known. Page tables go to the device where they are not
    /// those of the step before: a prompt's chunks have the same, in megabytes.
    pub(super) fn send_cells(&mut self, cells: &StepCells, sequences: &Sequences) -> Result<Counts, LaunchError> {
        let counts = self.counts(sequences);
        for (buffers, values) in [(&self.cells.token, cells.tokens), (&self.cells.position, cells.positions)] {
            self.send(buffers, values)?;
        }
        if self.page_table != cells.page_table {
            // If this fails, the contents of the table are unknown.
            self.page_table.clear();
            self.send(&self.cells.page_table, cells.page_table)?;
            self.page_table.extend_from_slice(cells.page_table);
        }
        let GraphMemory { query_starts, token_starts, tables, lengths, .. } = &self.memory;
        if counts.alone > 0 {
            let mut alone = sequences.alone.clone();
            // Blocks that stay look at all rows, others at as many as there are rounded up.
            alone.resize(self.plan.alone as usize, 0);
            self.stream.upload(&alone, &lengths.slice(0..alone.len())?)?;
        }
        let padded = counts.several;
        if padded == 0 {
            return Ok(counts);
        }
        let sequences = sequences.clone().padded(padded);
        self.stream.upload(&sequences.query_starts, &query_starts.slice(0..padded + 1)?)?;
        self.stream.upload(&sequences.token_starts, &token_starts.slice(0..padded + 1)?)?;
        self.stream.upload(&sequences.tables, &tables.slice(0..sequences.tables.len())?)?;
        Ok(counts)
    }

    /// Sends the values of a role's cells.
    fn send(&self, buffers: &[BufferId], values: &[i32]) -> Result<(), LaunchError> {
        for cell in buffers.iter().filter_map(|buffer| self.memory.cells.get(buffer)) {
            self.stream.upload(values, cell)?;
        }
        Ok(())
    }

    /// The logits of some rows of the step that was submitted: by a product for each row, or where
    /// several are asked for by one of all rows.
    ///
    /// # Errors
    /// If the device fails.
    pub fn logits(&mut self, rows: &[usize], each: EachLogits) -> Result<(), LaunchError> {
        let (Some(plan), false) = (&self.plan.logits, rows.is_empty()) else { return Ok(()) };
        let vocab = plan.vocab as usize;
        let all = rows.len() > 1;
        let (launches, count) = if all { (&plan.of_all, self.plan.rows as usize) } else { (&plan.of_row, 1) };
        let logits = match &self.logits[usize::from(all)] {
            Some(logits) => logits.clone(),
            None => self.device.buffer::<f32>(vocab * count)?,
        };
        for work in self.work(launches, Counts::NONE, Some((rows[0], &logits)))? {
            self.stream.submit(&work)?;
        }
        for &row in rows {
            let first = if all { row * vocab } else { 0 };
            each(row, &self.stream.read(&logits.slice(first..first + vocab)?)?);
        }
        self.logits[usize::from(all)] = Some(logits);
        Ok(())
    }

    /// Launches as work, but for those of no block; `logits`: the row whose logits are computed,
    /// and where they go.
    pub(super) fn work(
        &self,
        launches: &[Launch],
        counts: Counts,
        logits: Option<(usize, &Buffer<f32>)>,
    ) -> Result<Vec<Work>, DeviceError> {
        let runs = || launches.iter().filter(|launch| counts.runs(launch));
        self.kernels.compile(runs().map(|launch| launch.kernel))?;
        runs().map(|launch| self.work_of(launch, counts, logits)).collect()
    }

    fn work_of(
        &self,
        launch: &Launch,
        counts: Counts,
        logits: Option<(usize, &Buffer<f32>)>,
    ) -> Result<Work, DeviceError> {
        let memory = |arg: &LaunchArg| arg.memory().map(|memory| self.memory(memory, logits)).transpose();
        let memory = launch.args.iter().map(memory).collect::<Result<Vec<_>, _>>()?;
        let map = |(arg, memory): (&LaunchArg, &Option<AnyBuffer>)| match (arg, memory) {
            (LaunchArg::Map(_, shape), Some(memory)) => {
                let map = match memory {
                    AnyBuffer::Bf16(buffer) => self.device.tensor_map(buffer, shape.clone()),
                    AnyBuffer::Bytes(buffer) => self.device.tensor_map(buffer, shape.clone()),
                    AnyBuffer::F32(buffer) => self.device.tensor_map(buffer, shape.clone()),
                    AnyBuffer::U32(buffer) => self.device.tensor_map(buffer, shape.clone()),
                    AnyBuffer::I32(buffer) => self.device.tensor_map(buffer, shape.clone()),
                    AnyBuffer::Peer(_) | AnyBuffer::Mapped(_) => return Ok(None),
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
        self.kernels.get(launch.kernel)?.work(counts.grid(launch.grid), &args)
    }

    /// The first cell of a role.
    fn cell(&self, buffers: &[BufferId]) -> Option<AnyBuffer> {
        self.memory.cells.get(buffers.first()?).cloned().map(AnyBuffer::I32)
    }

    /// The memory that a launch argument names.
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
            (LaunchMemory::Tokens, _) => self.cell(&self.cells.token).ok_or(absent),
            (LaunchMemory::Positions, _) => self.cell(&self.cells.position).ok_or(absent),
            _ => self.memory.get(memory).ok_or(absent),
        }
    }
}

impl Counts {
    /// No attention.
    pub(super) const NONE: Counts = Counts { alone: 0, several: 0 };

    /// The counts of a step of at most `rows` rows, padded to powers of two.
    fn of(sequences: &Sequences, rows: usize) -> Counts {
        let padded = |count: usize| if count == 0 { 0 } else { count.next_power_of_two().min(rows) };
        Counts { alone: padded(sequences.alone.len()), several: padded(sequences.count()) }
    }

    /// Whether a launch has any block.
    fn runs(self, launch: &Launch) -> bool {
        self.grid(launch.grid).iter().all(|&blocks| blocks > 0)
    }

    /// The blocks of a launch.
    fn grid(self, grid: LaunchGrid) -> [u32; 3] {
        match grid {
            LaunchGrid::Blocks(blocks) => [blocks, 1, 1],
            LaunchGrid::PerSequence(blocks) => [blocks, self.several as u32, 1],
            LaunchGrid::WithRows(blocks) => [if self.alone > 0 { blocks } else { 0 }, 1, 1],
            LaunchGrid::PerRow([x, y]) => [x, y, self.alone as u32],
        }
    }
}

/// The time of each piece of work, from the events before and after it.
pub(super) fn between(work: Vec<(String, Work)>, events: &[Event]) -> Result<Vec<(String, Duration)>, DeviceError> {
    work.into_iter().zip(events.windows(2)).map(|((name, _), pair)| Ok((name, pair[1].since(&pair[0])?))).collect()
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
            AnyBuffer::Peer(buffer) => Arg::peer(buffer),
            AnyBuffer::Mapped(words) => words.into(),
        }
    }
}
