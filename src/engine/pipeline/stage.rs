//! The machines of a rank: one for each number of rows, on the reference machine or on a device,
//! where more than 16 rows are a graph of launches. Shards of layers are graphs, whatever the rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use tilewright_codegen::target::Target;
use tilewright_flow::program::Phase;
use tilewright_megakernel::lower::{HIDDEN_IN, HIDDEN_OUT, LOGITS, LowerOptions, MAX_ROWS};
use tilewright_megakernel::vm::device::DeviceMachine;
use tilewright_megakernel::vm::graph::{AnyGraph, GraphShard};
use tilewright_megakernel::vm::reference::{KvState, Machine, StepOutput};
use tilewright_megakernel::vm::resident::DeviceKv;
use tilewright_megakernel::vm::{AbortHandle, LoadError, StepCells, Unsupported};

use super::cut::ModelPart;
use super::error::PipelineError;
use super::ring::{Neighbour, Ring};
use crate::engine::limits::{CHUNKS, LEAST_GRAPH, MOST_ROWS};
use crate::engine::machines::{EachRow, Lowering, Widths};
use crate::engine::model::Model;
use crate::engine::place::{Gpu, Place};
use crate::engine::{Engine, EngineError};

/// Rows of a shard's prefill chunk on a GPU, if no other number is asked for: as many as are bound
/// by arithmetic.
const SHARD_CHUNK: usize = 512;

/// Machines that share the KV pools of their part of the model.
pub(in crate::engine) struct StageMachines {
    part: ModelPart,
    lowering: Lowering,
    place: Arc<Place>,
    abort: AbortHandle,
    on_host: BTreeMap<usize, Machine>,
    host_kv: Option<KvState>,
    on_device: BTreeMap<usize, DeviceMachine>,
    graphs: BTreeMap<usize, AnyGraph>,
    shards: BTreeMap<usize, GraphShard>,
    device_kv: Option<DeviceKv>,
    most: usize,
}

/// The output of a step.
pub(super) enum StageOutput<'m> {
    Host(StepOutput<'m>),
    Device(&'m DeviceMachine),
    Graph(&'m mut AnyGraph),
}

/// The input of a stage besides step inputs.
#[derive(Clone, Copy)]
pub(super) enum Inlet<'i> {
    /// Nothing: tokens are among the cells.
    Tokens,
    /// The residual stream.
    Words(&'i [f32]),
    /// Rows that come from another device.
    Link(&'i Neighbour),
}

impl Inlet<'_> {
    /// The residual stream on the host. A stream from another device is on that device only, for a
    /// graph.
    fn words(&self) -> Option<&[f32]> {
        match self {
            Inlet::Words(hidden) => Some(hidden),
            Inlet::Tokens | Inlet::Link(_) => None,
        }
    }
}

/// Whether a device runs a step of `rows` rows as a graph of launches. Its rows then go directly to
/// the next device if there is a link between the two.
pub(super) fn is_wide(rows: usize) -> bool {
    rows > MOST_ROWS
}

impl StageOutput<'_> {
    /// Sends what the next stage takes: words, and the residual stream after them, or from device
    /// to device if the link does that and the step is a graph's.
    pub fn hand_on(&self, next: &Neighbour, mut words: Vec<u32>) -> Result<(), EngineError> {
        if let StageOutput::Graph(machine) = self
            && next.link.carries_rows()
        {
            next.send(&words)?;
            return next.send_rows(&machine.output(HIDDEN_OUT)?);
        }
        words.extend(self.hidden()?.iter().map(|x| x.to_bits()));
        next.send(&words)
    }

    /// The residual stream of all rows, of a stage that is not the last.
    pub fn hidden(&self) -> Result<Vec<f32>, EngineError> {
        match self {
            StageOutput::Host(output) => Ok(output.f32(HIDDEN_OUT)?),
            StageOutput::Device(machine) => Ok(machine.f32(HIDDEN_OUT)?),
            StageOutput::Graph(machine) => Ok(machine.f32(HIDDEN_OUT)?),
        }
    }

    /// The logits of rows, in their order, of the last stage.
    pub fn logits(self, rows: &[usize], each: EachRow) -> Result<(), EngineError> {
        match self {
            StageOutput::Host(output) => {
                for &row in rows {
                    each(row, &output.f32_row(LOGITS, row)?);
                }
            }
            StageOutput::Device(machine) => {
                for &row in rows {
                    each(row, &machine.f32_row(LOGITS, row)?);
                }
            }
            StageOutput::Graph(machine) => machine.logits(rows, each)?,
        }
        Ok(())
    }
}

/// Checks that a rank can have such a shard: a step of the fewest rows is planned.
///
/// # Errors
/// If devices cannot share the model evenly, or no launches compute it.
pub(super) fn check_shard(engine: &Engine, rank: usize, size: usize) -> Result<(), EngineError> {
    let Place::Gpu(gpu) = &**engine.place() else { return Err(PipelineError::ShardDevice.into()) };
    let part = ModelPart::Shard { rank, size };
    let options = engine.lowering(LEAST_GRAPH, false);
    let machines = StageMachines::new(engine.place(), engine.model().clone(), part, options, &engine.abort_handle());
    let step = machines.lowering.step_of_graph(gpu, LEAST_GRAPH)?;
    gpu.graphs().shard_plan(&step, rank)?;
    Ok(())
}

impl StageMachines {
    /// Creates the machines of a rank for its part of the model, on a place.
    pub fn new(
        place: &Arc<Place>,
        model: Model,
        part: ModelPart,
        options: LowerOptions,
        abort: &AbortHandle,
    ) -> StageMachines {
        // Programs are made for the rows that are requested.
        let widths = Widths { rows: Vec::new(), sampling: 0, chunk: None, only: false, proposals: false };
        let (most, devices) = match (&**place, part) {
            (Place::Host { .. }, _) => (usize::MAX, 1),
            (Place::Gpu(_), ModelPart::Shard { .. }) => (MAX_ROWS, 1),
            (Place::Gpu(gpu), ModelPart::Layers(_)) => (MOST_ROWS, gpu.devices),
        };
        let options = part.options(LowerOptions { devices, ..options });
        let flow = None;
        let phase = Phase::Decode;
        let requests = Vec::new();
        StageMachines {
            part,
            lowering: Lowering { model, options, widths, flow, phase, requests },
            place: Arc::clone(place),
            abort: abort.clone(),
            on_host: BTreeMap::new(),
            host_kv: None,
            on_device: BTreeMap::new(),
            graphs: BTreeMap::new(),
            shards: BTreeMap::new(),
            device_kv: None,
            most,
        }
    }

    /// Entries of a row's page table.
    pub fn entries(&self) -> usize {
        self.lowering.options.pages_per_sequence()
    }

    /// The width of the residual stream.
    pub fn hidden(&self) -> usize {
        self.lowering.model.spec.hidden
    }

    /// Whether each rank has a shard of every layer.
    pub fn is_shard(&self) -> bool {
        matches!(self.part, ModelPart::Shard { .. })
    }

    /// Logits of a row that this rank computes.
    pub fn vocab(&self) -> usize {
        let vocab = self.lowering.model.spec.vocab;
        match self.part {
            ModelPart::Layers(_) => vocab,
            ModelPart::Shard { size, .. } => vocab / size,
        }
    }

    /// Most rows of a prefill chunk.
    pub fn chunk_rows(&self, widths: &Widths) -> usize {
        let most = match &*self.place {
            Place::Host { .. } => return CHUNKS[0],
            Place::Gpu(gpu) if self.is_shard() => {
                let is_short = gpu.is_simulated() || widths.only;
                return widths.chunk.unwrap_or(if is_short { LEAST_GRAPH } else { SHARD_CHUNK }).max(LEAST_GRAPH);
            }
            Place::Gpu(_) => self.most,
        };
        widths.chunk.unwrap_or(most).max(most)
    }

    /// Most rows of a step, as far as is known.
    pub fn most_rows(&self) -> usize {
        self.most
    }

    /// Makes the machine of the smallest width that has `rows` rows, or of a smaller one if the
    /// device has no room for it.
    ///
    /// # Errors
    /// If no such width is possible.
    pub fn width(&mut self, widths: &Widths, rows: usize) -> Result<usize, EngineError> {
        if self.is_shard() {
            let most = self.chunk_rows(widths).max(rows);
            let width = if widths.only { most } else { rows.next_power_of_two().max(LEAST_GRAPH).min(most) };
            self.make(width)?;
            if widths.only {
                // A row has the same bits whatever the rows beside it.
                self.shards.get_mut(&width).into_iter().for_each(GraphShard::attend_together);
            }
            return Ok(width);
        }
        let is_wide = self.most < usize::MAX && (rows > self.most || widths.only);
        if let Some(width) = widths.of_chunk(rows).filter(|_| is_wide) {
            return self.make(width).map(|()| width);
        }
        loop {
            let width = widths.least(self.most, rows.min(self.most));
            match self.make(width) {
                Ok(()) => return Ok(width),
                Err(EngineError::Load(LoadError::Unsupported(Unsupported::Shared { .. }))) if width > 1 => {
                    self.most = width / 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the machine of that number of rows, unless there is one.
    pub fn make(&mut self, rows: usize) -> Result<(), EngineError> {
        if let ModelPart::Shard { rank, .. } = self.part {
            return if self.shards.contains_key(&rows) { Ok(()) } else { self.make_shard(rows, rank) };
        }
        let on_device = self.on_device.contains_key(&rows) || self.graphs.contains_key(&rows);
        if on_device || self.on_host.contains_key(&rows) {
            return Ok(());
        }
        match &*Arc::clone(&self.place) {
            Place::Host { workers, .. } => self.make_on_host(rows, *workers),
            Place::Gpu(gpu) if is_wide(rows) => self.make_graph(rows, gpu),
            Place::Gpu(gpu) => self.make_on_device(rows, gpu),
        }
    }

    fn make_on_host(&mut self, rows: usize, workers: usize) -> Result<(), EngineError> {
        let placed = self.lowering.placed(rows, Target::host(workers))?;
        let machine = Machine::new(placed, &*self.lowering.model.weights, workers)?;
        if self.host_kv.is_none() {
            self.host_kv = Some(KvState::new(machine.program())?);
        }
        self.on_host.insert(rows, machine);
        Ok(())
    }

    fn make_on_device(&mut self, rows: usize, gpu: &Gpu) -> Result<(), EngineError> {
        let (placed, options) = self.lowering.on(gpu, rows)?;
        let mut progress = |done, total| gpu.progress(done, total);
        let mut machine = gpu.weights().machine(placed, self.device_kv.as_ref(), options, &mut progress)?;
        machine.listen_to(&self.abort);
        self.device_kv.get_or_insert_with(|| machine.kv().clone());
        self.on_device.insert(rows, machine);
        Ok(())
    }

    /// Products of few rows read the weights that the decode machine streams, where a kernel does.
    fn make_graph(&mut self, rows: usize, gpu: &Gpu) -> Result<(), EngineError> {
        let is_packed = self.lowering.is_packed(gpu, rows);
        if is_packed && gpu.weights().packed().is_none() {
            let (placed, options) = self.lowering.on(gpu, 1)?;
            match gpu.weights().send(&placed, options, &mut |done, total| gpu.progress(done, total)) {
                Ok(()) | Err(LoadError::Unsupported(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut machine = self.lowering.graph(gpu, rows, self.device_kv.as_ref())?;
        machine.listen_to(&self.abort);
        self.device_kv.get_or_insert_with(|| machine.kv().clone());
        self.graphs.insert(rows, machine);
        Ok(())
    }

    fn make_shard(&mut self, rows: usize, rank: usize) -> Result<(), EngineError> {
        let Place::Gpu(gpu) = &*self.place else { return Err(PipelineError::ShardDevice.into()) };
        let step = self.lowering.step_of_graph(gpu, rows)?;
        let kv = self.device_kv.as_ref();
        let machine = gpu.graphs().shard(step, rank, kv, &mut |done, total| gpu.progress(done, total))?;
        self.device_kv.get_or_insert_with(|| machine.kv().clone());
        self.shards.insert(rows, machine);
        Ok(())
    }

    /// Runs a step of a shard at the same time as all other ranks.
    ///
    /// # Errors
    /// If there is no machine of `rows` rows, it fails, or a rank is lost.
    pub fn step_of_shard(&mut self, rows: usize, cells: &StepCells, ring: &Ring) -> Result<(), EngineError> {
        let shard = self.shard(rows)?;
        let stepped = match &ring.nccl {
            Some(nccl) => nccl.step(shard, cells),
            None => shard.step_by_host(cells, &mut |summand| ring.add_up(summand)),
        };
        // An aborted launch of a simulated device.
        stepped.map_err(|error| if error.is_abort() { EngineError::Aborted } else { error })
    }

    /// Makes the machine of a step, and checks the step's cells: what fails here reaches no other
    /// rank.
    ///
    /// # Errors
    /// If there is no such machine, or the cells do not fit it.
    pub fn check(&mut self, rows: usize, cells: &StepCells) -> Result<(), EngineError> {
        Ok(self.shard(rows)?.check(cells)?)
    }

    /// The logits of some rows of a shard's step, one row after the other: those of this rank's
    /// part of the vocabulary.
    ///
    /// # Errors
    /// If the device fails.
    pub fn logits_of_shard(&mut self, rows: usize, asked: &[usize]) -> Result<Vec<f32>, EngineError> {
        let mut logits = Vec::with_capacity(asked.len() * self.vocab());
        self.shard(rows)?.logits(asked, &mut |_, row| logits.extend_from_slice(row))?;
        Ok(logits)
    }

    fn shard(&mut self, rows: usize) -> Result<&mut GraphShard, EngineError> {
        self.make(rows)?;
        self.shards.get_mut(&rows).ok_or_else(|| PipelineError::ShardDevice.into())
    }

    /// Runs a step of `rows` rows.
    ///
    /// # Errors
    /// If there is no machine of `rows` rows, or it fails.
    pub fn step(&mut self, rows: usize, cells: &StepCells, inlet: Inlet) -> Result<StageOutput<'_>, EngineError> {
        self.make(rows)?;
        if let Some(machine) = self.graphs.get_mut(&rows) {
            match inlet {
                Inlet::Tokens => {}
                Inlet::Words(hidden) => machine.set_input(HIDDEN_IN, hidden)?,
                Inlet::Link(previous) => previous.receive_rows(&machine.input(HIDDEN_IN)?)?,
            }
            machine.submit(cells)?;
            // The next step may be another machine's, on the same pools.
            machine.wait()?;
            return Ok(StageOutput::Graph(machine));
        }
        if let Some(machine) = self.on_device.get_mut(&rows) {
            if let Some(hidden) = inlet.words() {
                machine.set_input(HIDDEN_IN, hidden)?;
            }
            machine.step(cells)?;
            return Ok(StageOutput::Device(machine));
        }
        let (Some(machine), Some(kv)) = (self.on_host.get_mut(&rows), self.host_kv.as_mut()) else {
            unreachable!("`make` made both")
        };
        if let Some(hidden) = inlet.words() {
            machine.set_input(HIDDEN_IN, hidden)?;
        }
        Ok(StageOutput::Host(machine.step(kv, cells)?))
    }
}
