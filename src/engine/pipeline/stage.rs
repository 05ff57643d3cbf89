//! The machines of a stage: one for each number of rows, on the reference machine or on a device,
//! where more than 16 rows are a graph of launches.

use std::collections::BTreeMap;
use std::sync::Arc;

use tilewright_codegen::target::Target;
use tilewright_flow::program::Phase;
use tilewright_megakernel::lower::{HIDDEN_IN, HIDDEN_OUT, LOGITS, LowerOptions};
use tilewright_megakernel::vm::device::DeviceMachine;
use tilewright_megakernel::vm::graph::AnyGraph;
use tilewright_megakernel::vm::reference::{KvState, Machine, StepOutput};
use tilewright_megakernel::vm::resident::DeviceKv;
use tilewright_megakernel::vm::{AbortHandle, LoadError, StepCells, Unsupported};

use super::ring::Neighbour;
use crate::engine::EngineError;
use crate::engine::limits::MOST_ROWS;
use crate::engine::machines::{EachRow, Lowering, Widths};
use crate::engine::model::Model;
use crate::engine::place::{Gpu, Place};

/// Machines that share the KV pools of their layers.
pub(in crate::engine) struct StageMachines {
    lowering: Lowering,
    place: Arc<Place>,
    abort: AbortHandle,
    on_host: BTreeMap<usize, Machine>,
    host_kv: Option<KvState>,
    on_device: BTreeMap<usize, DeviceMachine>,
    graphs: BTreeMap<usize, AnyGraph>,
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

impl StageMachines {
    /// Creates the machines of a stage for the layers that the options name, on a place.
    pub fn new(place: &Arc<Place>, model: Model, options: LowerOptions, abort: &AbortHandle) -> StageMachines {
        // Programs are made for the rows that are requested.
        let widths = Widths { rows: Vec::new(), sampling: 0, chunk: None, only: false, proposals: false };
        let (most, devices) = match &**place {
            Place::Host { .. } => (usize::MAX, 1),
            Place::Gpu(gpu) => (MOST_ROWS, gpu.devices),
        };
        let options = LowerOptions { devices, ..options };
        let flow = None;
        let phase = Phase::Decode;
        let requests = Vec::new();
        StageMachines {
            lowering: Lowering { model, options, widths, flow, phase, requests },
            place: Arc::clone(place),
            abort: abort.clone(),
            on_host: BTreeMap::new(),
            host_kv: None,
            on_device: BTreeMap::new(),
            graphs: BTreeMap::new(),
            device_kv: None,
            most,
        }
    }

    /// Entries of a row's page table, and the width of the residual stream.
    pub fn sizes(&self) -> [usize; 2] {
        [self.lowering.options.pages_per_sequence(), self.lowering.model.spec.hidden]
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

    fn make(&mut self, rows: usize) -> Result<(), EngineError> {
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
