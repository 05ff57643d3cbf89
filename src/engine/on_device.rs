//! Machines on a device: one for each number of rows, and graphs of launches for more.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::JoinHandle;

use tilewright_flow::program::Phase;
use tilewright_kernels::sample::Request as Draw;
use tilewright_megakernel::lower::{LOGITS, NEXT_TOKEN};
use tilewright_megakernel::vm::device::{DeviceMachine, Plan, Text};
use tilewright_megakernel::vm::graph::AnyGraph;
use tilewright_megakernel::vm::resident::{DeviceKv, Packed};
use tilewright_megakernel::vm::{
    AbortHandle, LaunchError, LoadError, MAX_ENDS, MaskSender, RequestSlot, StepCells, Unsupported,
};

use super::by_graph::is_faster;
use super::deferred_summaries::{DeferredSummaries, SUMMARY_ROWS};
use super::error::EngineError;
use super::flow::SessionFlow;
use super::machines::{Asked, EachAccepted, EachRow, EachStep, Lowering, Machines, Run, Widths};
use super::place::{Gpu, Place};
use crate::engine::limits::{MOST_ROWS, PACKED_CHUNK};

/// The device machine. All its machines and those of other sessions share the streamed weights.
pub(super) struct OnDevice {
    pub(super) lowering: Lowering,
    pub(super) place: Arc<Place>,
    pub(super) machines: BTreeMap<(Phase, usize), DeviceMachine>,
    /// Launch graphs, for steps of more rows.
    pub(super) graphs: BTreeMap<usize, AnyGraph>,
    pub(super) kv: Option<DeviceKv>,
    /// Most rows whose activations fit a block's shared memory, as far as is known.
    pub(super) most: usize,
    pub(super) abort: AbortHandle,
    /// Threads that compile what is needed later.
    pub(super) under_way: Vec<JoinHandle<()>>,
    /// Whether the next rows are a prompt's.
    pub(super) feeds: bool,
    /// The summaries that a flow still has to compute for blocks completed by graphs.
    pub(super) deferred: DeferredSummaries,
    /// Whether a graph computes the model, as far as is known.
    pub(super) has_graphs: bool,
}

impl Drop for OnDevice {
    /// A driver is not left while it compiles.
    fn drop(&mut self) {
        self.under_way.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// The machine of a width that is known.
fn made(machines: &mut BTreeMap<(Phase, usize), DeviceMachine>, at: (Phase, usize)) -> &mut DeviceMachine {
    machines.get_mut(&at).unwrap_or_else(|| unreachable!("`width` made it"))
}

impl OnDevice {
    fn gpu(&self) -> &Gpu {
        match &*self.place {
            Place::Gpu(gpu) => gpu,
            Place::Host { .. } => unreachable!("a device's machines are made for a device"),
        }
    }

    fn make(&mut self, width: usize) -> Result<(), EngineError> {
        let gpu = self.gpu();
        let (placed, options) = self.lowering.on(gpu, width)?;
        let mut progress = |done, total| gpu.progress(done, total);
        let mut machine = gpu.weights().machine(placed, self.kv.as_ref(), options, &mut progress)?;
        machine.listen_to(&self.abort);
        self.kv.get_or_insert_with(|| machine.kv().clone());
        self.machines.insert((self.lowering.phase, width), machine);
        Ok(())
    }

    /// Whether graphs of few rows read the weights that lie packed: then prompts come in by these,
    /// whose kernels a driver compiles side by side, and a prompt waits for none of the decode
    /// machine's.
    fn feeds_by_graph(&self) -> bool {
        let gpu = self.gpu();
        let lowering = &self.lowering;
        let is_one = self.has_graphs && gpu.devices == 1 && !gpu.is_simulated();
        is_one && lowering.reads_packed(gpu) && !lowering.widths.only
    }

    /// The rows of the graph that runs that many, of a prefill or others, if one does: it has to
    /// where there are more than the decode machine has, and where every step has one width; it
    /// does by choice where it is faster.
    fn of_graph(&self, feeds: bool, rows: usize) -> Option<usize> {
        let widths = &self.lowering.widths;
        let by_choice = self.is_by_choice(feeds, rows);
        let widths = match widths.chunk {
            None if by_choice => widths.clone().with_chunk(Some(PACKED_CHUNK)),
            Some(_) | None => widths.clone(),
        };
        if rows > self.most || widths.only || by_choice { widths.of_chunk(rows) } else { None }
    }

    /// Whether the next steps attend to everything, as graphs do.
    fn attends(&self) -> bool {
        self.lowering.flow.is_none() || self.lowering.phase == Phase::Prompt
    }

    /// Whether a graph runs that many rows, of a prefill or others, although the decode machine
    /// could.
    fn is_by_choice(&self, feeds: bool, rows: usize) -> bool {
        let is_faster = if feeds { rows > 1 } else { self.attends() && is_faster(&self.lowering.model.spec, rows) };
        is_faster && self.feeds_by_graph()
    }

    /// Sends the weights that the decode machine of that many rows streams, unless they are on the
    /// device.
    fn send(&self, rows: usize) -> Result<(), EngineError> {
        let gpu = self.gpu();
        let width = self.lowering.widths.least(self.most, rows.min(self.most));
        let (placed, options) = self.lowering.on(gpu, width)?;
        Ok(gpu.weights().send(&placed, options, &mut |done, total| gpu.progress(done, total))?)
    }

    /// Begins to compile the kernels by which a graph feeds prompts, all at once, before its
    /// weights are there.
    fn compile_graph(&mut self, width: usize) {
        let lowering = self.lowering.clone();
        let place = Arc::clone(&self.place);
        // An error occurs again when the machine is made, and is reported there.
        let compile = move || -> Option<()> {
            let Place::Gpu(gpu) = &*place else { return None };
            let (placed, options) = lowering.on(gpu, 1).ok()?;
            let packed = Packed::new(&placed, &Plan::new(&placed, options).ok()?.streams);
            let plan = gpu.graphs().plan(&lowering.step_of_graph(gpu, width).ok()?, Some(&packed)).ok()?;
            std::thread::scope(|scope| {
                let kernels = &gpu.kernels;
                let codes = &plan.kernels;
                let compile = |number: usize| scope.spawn(move || kernels.compile(&codes[number]).map(drop));
                plan.of_prompts().into_iter().for_each(|number| drop(compile(number)));
            });
            Some(())
        };
        self.under_way.push(std::thread::spawn(move || {
            compile();
        }));
    }

    /// Waits for what machines of other widths have still under way on the pools.
    fn settle(&self, width: usize) -> Result<(), EngineError> {
        let mut others = self.graphs.iter().filter(|(other, _)| **other != width);
        Ok(others.try_for_each(|(_, machine)| machine.wait())?)
    }

    /// Prepares a launch of `steps` steps: pools that no other machine writes, and the summaries of
    /// all complete blocks where a flow chooses by them. A graph writes none: the blocks that it
    /// completes are noted.
    fn prepare(&mut self, width: usize, cells: &StepCells, steps: usize) -> Result<(), EngineError> {
        self.settle(width)?;
        let keeps = |flow: &&SessionFlow| !flow.settings.traced().declared.fields.is_empty();
        let Some(flow) = self.lowering.flow.as_ref().filter(keeps) else { return Ok(()) };
        if self.graphs.contains_key(&width) {
            self.deferred.note(cells, steps, flow.settings.block_tokens(), self.lowering.options.page_tokens);
            return Ok(());
        }
        match self.lowering.phase {
            Phase::Decode if !self.deferred.is_empty() => self.summarise(),
            Phase::Decode | Phase::Prompt => Ok(()),
        }
    }

    /// Summarises the blocks that graphs completed.
    fn summarise(&mut self) -> Result<(), EngineError> {
        if !self.deferred.is_made() {
            let gpu = self.gpu();
            let Some((placed, options)) = self.lowering.summaries(gpu, SUMMARY_ROWS)? else {
                self.deferred.clear();
                return Ok(());
            };
            let mut progress = |done, total| gpu.progress(done, total);
            let mut machine = gpu.weights().machine(placed, self.kv.as_ref(), options, &mut progress)?;
            machine.listen_to(&self.abort);
            self.deferred.machine = Some(machine);
        }
        self.deferred.run(self.lowering.options.pages_per_sequence())
    }

    /// Creates a graph of launches of that many rows.
    fn make_graph(&mut self, width: usize) -> Result<(), EngineError> {
        if self.lowering.flow.is_some() && self.kv.is_none() {
            // A flow's block data is in the same pools, but a graph's program does not include it.
            self.make(self.lowering.widths.least(self.most, 1))?;
        }
        let gpu = self.gpu();
        // Where nothing but wide graphs runs, packed weights are of no use.
        let lowering = &self.lowering;
        let packed = lowering.is_packed(gpu, width) || lowering.reads_packed(gpu) && !lowering.widths.only;
        if packed && gpu.weights().packed().is_none() {
            match self.send(1) {
                Ok(()) | Err(EngineError::Load(LoadError::Unsupported(_))) => {}
                Err(error) => return Err(error),
            }
        }
        let mut machine = self.lowering.graph(gpu, width, self.kv.as_ref())?;
        machine.listen_to(&self.abort);
        if self.lowering.widths.only {
            machine.attend_together();
        }
        self.kv.get_or_insert_with(|| machine.kv().clone());
        self.graphs.insert(width, machine);
        Ok(())
    }
}

impl Machines for OnDevice {
    /// Programs of many rows need more shared memory than a block has where the model is large:
    /// then the most rows become fewer, and the caller is told by a smaller width than it asked
    /// for.
    fn width(&mut self, rows: usize) -> Result<usize, EngineError> {
        if let Some(width) = self.of_graph(self.feeds, rows).filter(|_| self.attends()) {
            let made = if self.graphs.contains_key(&width) { Ok(()) } else { self.make_graph(width) };
            match made {
                Ok(()) => return Ok(width),
                // Without prefill chunks the decode machine feeds prompts as well.
                Err(EngineError::Load(LoadError::Unsupported(_) | LoadError::Memory { .. }))
                    if self.lowering.widths.chunk.is_none() =>
                {
                    self.has_graphs = false;
                }
                Err(error) => return Err(error),
            }
        }
        loop {
            let width = self.lowering.widths.least(self.most, rows.min(self.most));
            if self.machines.contains_key(&(self.lowering.phase, width)) {
                return Ok(width);
            }
            match self.make(width) {
                Ok(()) => return Ok(width),
                Err(EngineError::Load(LoadError::Unsupported(Unsupported::Shared { .. }))) if width > 1 => {
                    self.most = width / 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn set_phase(&mut self, phase: Phase, feeds: bool) {
        self.lowering.set_phase(phase);
        self.feeds = feeds;
    }

    /// The weights are sent, and the decode kernels are compiled in parallel with those of the
    /// prompt.
    fn begin(&mut self, rows: usize, prompt: Option<usize>) -> Result<(), EngineError> {
        if !self.feeds_by_graph() {
            self.ahead(MOST_ROWS);
            return self.width(rows).map(drop);
        }
        // A driver that compiles lets nothing else be done: the kernels of prefill come first,
        // those of decode after the first token.
        match prompt.and_then(|tokens| self.of_graph(true, tokens.min(self.chunk_rows()))) {
            Some(width) => self.compile_graph(width),
            None => self.ahead(rows),
        }
        match self.send(rows) {
            Err(EngineError::Load(LoadError::Unsupported(Unsupported::Shared { .. }))) if rows > 1 => {
                self.width(rows).map(drop)
            }
            sent => sent,
        }
    }

    fn set_slots(&mut self, width: usize, slots: &[RequestSlot]) -> Result<(), EngineError> {
        match self.machines.get_mut(&(self.lowering.phase, width)) {
            Some(machine) if self.lowering.phase == Phase::Decode => Ok(machine.set_slots(slots)?),
            Some(_) | None => Ok(()),
        }
    }

    fn set_requests(&mut self, requests: &[u64]) {
        self.lowering.requests = requests.to_vec();
    }

    fn chunk_rows(&self) -> usize {
        // Fewer rows cost as many bytes: a chunk is as large as there are rows.
        let packed = if self.feeds_by_graph() { PACKED_CHUNK } else { self.most };
        self.lowering.widths.chunk.unwrap_or(packed).max(self.most)
    }

    fn chunk(&mut self, rest: usize) -> Result<usize, EngineError> {
        self.width(rest.min(self.chunk_rows())).map(|width| width.min(rest))
    }

    fn most_rows(&self) -> usize {
        self.most
    }

    fn step(&mut self, width: usize, cells: &StepCells, rows: &[usize], each: EachRow) -> Result<(), EngineError> {
        self.prepare(width, cells, 1)?;
        match self.graphs.get_mut(&width) {
            Some(machine) if rows.is_empty() => return Ok(machine.submit(cells)?),
            Some(machine) => return Ok(machine.step(cells, rows, each)?),
            None => {}
        }
        let machine = made(&mut self.machines, (self.lowering.phase, width));
        machine.step(cells)?;
        self.lowering.observe(cells, &|name| Ok(machine.i32(name)?))?;
        for &row in rows {
            each(row, &machine.f32_row(LOGITS, row)?);
        }
        Ok(())
    }

    fn choose(
        &mut self,
        width: usize,
        cells: &StepCells,
        asked: Asked,
        each: EachRow,
    ) -> Result<Vec<u32>, EngineError> {
        self.prepare(width, cells, 1)?;
        if let Some(machine) = self.graphs.get_mut(&width) {
            send_first(machine.restrict(&masked(asked.masks))?, asked.masks)?;
            let tokens = machine.choose(cells, asked.rows, asked.draws)?;
            machine.logits(asked.logits, each)?;
            return Ok(tokens);
        }
        let machine = made(&mut self.machines, (self.lowering.phase, width));
        if self.lowering.options.sampling {
            let mut draws = vec![Draw::default(); width];
            asked.rows.iter().zip(asked.draws).for_each(|(&row, &draw)| draws[row] = draw);
            machine.set_requests(&draws)?;
        }
        send_first(machine.restrict(&masked(asked.masks))?, asked.masks)?;
        machine.step(cells)?;
        for &row in asked.logits {
            each(row, &machine.f32_row(LOGITS, row)?);
        }
        let tokens = if asked.rows.is_empty() { Vec::new() } else { machine.i32(NEXT_TOKEN)? };
        Ok(asked.rows.iter().map(|&row| tokens[row] as u32).collect())
    }

    fn most_steps(&self) -> usize {
        // The choices of a launch's steps are not observed.
        let is_observed = self.lowering.flow.as_ref().is_some_and(SessionFlow::is_observed);
        if is_observed { 0 } else { self.gpu().launch_steps }
    }

    /// Whether the decode machine can run steps with proposals; graphs cannot.
    fn proposes(&self) -> bool {
        let Widths { proposals, only, chunk, .. } = &self.lowering.widths;
        *proposals && !(*only && chunk.is_some())
    }

    fn propose(&mut self, width: usize, text: &Text, steps: usize, each: EachAccepted) -> Result<usize, EngineError> {
        self.settle(width)?;
        let machine = made(&mut self.machines, (self.lowering.phase, width));
        let request = text.request.or(self.lowering.options.sampling.then(Draw::default));
        Ok(machine.propose(&Text { request, ..*text }, steps, each)?)
    }

    fn ahead(&mut self, rows: usize) {
        let width = self.lowering.widths.least(self.most, rows.min(self.most));
        let by_graph = (self.feeds && self.feeds_by_graph()) || self.is_by_choice(self.feeds, rows);
        if by_graph || self.machines.contains_key(&(self.lowering.phase, width)) || self.gpu().is_simulated() {
            return;
        }
        let lowering = self.lowering.clone();
        let place = Arc::clone(&self.place);
        // An error occurs again when the machine is made, and is reported there.
        let compile = move || {
            let (Place::Gpu(gpu), mut width) = (&*place, width) else { return };
            while let Ok((placed, options)) = lowering.on(gpu, width) {
                match Plan::new(&placed, options) {
                    Ok(plan) => return drop(gpu.kernels.of(&plan)),
                    // As `width` finds out which rows have room.
                    Err(Unsupported::Shared { .. }) if width > 1 => width /= 2,
                    Err(_) => return,
                }
            }
        };
        self.under_way.push(std::thread::spawn(compile));
    }

    fn masked_steps(&self, width: usize) -> usize {
        let takes = match self.graphs.get(&width) {
            Some(graph) => graph.masked_steps(),
            None if self.lowering.options_of(width).sampling => usize::MAX,
            None => 0,
        };
        // A simulated launch does not hear the host.
        let most = if self.gpu().is_simulated() { 1 } else { self.most_steps() };
        takes.min(most)
    }

    fn run(
        &mut self,
        width: usize,
        cells: &StepCells,
        run: Run,
        each: &mut dyn EachStep,
    ) -> Result<usize, EngineError> {
        self.prepare(width, cells, run.steps)?;
        // The caller checks for the end tokens that a launch has no room for.
        let ends = &run.ends[..run.ends.len().min(MAX_ENDS)];
        if let Some(machine) = self.graphs.get_mut(&width) {
            let sender = send_first(machine.restrict(&masked(run.masks))?, run.masks)?;
            let mut told = Told::new(run, sender, each);
            let each = &mut |tokens: &[u32]| told.tokens(tokens);
            let steps = machine.run_until(cells, run.steps, run.draws, &vec![ends; width], each)?;
            return told.end(steps);
        }
        let machine = made(&mut self.machines, (self.lowering.phase, width));
        let mut draws = run.draws.to_vec();
        if self.lowering.options.sampling {
            draws.resize(width, Draw::default());
        }
        machine.set_requests(&draws)?;
        let sender = send_first(machine.restrict(&masked(run.masks))?, run.masks)?;
        let mut told = Told::new(run, sender, each);
        let each = &mut |tokens: &[u32]| told.tokens(tokens);
        let steps = machine.run_until(cells, run.steps, &vec![ends; width], each)?;
        told.end(steps)
    }
}

/// The rows of masks.
fn masked(masks: &[(usize, Vec<u32>)]) -> Vec<usize> {
    masks.iter().map(|(row, _)| *row).collect()
}

/// Sends the masks of the first step.
fn send_first(sender: Option<MaskSender>, masks: &[(usize, Vec<u32>)]) -> Result<Option<MaskSender>, EngineError> {
    for ((row, mask), sender) in masks.iter().zip(sender.iter().cycle()) {
        sender.send(*row, 0, mask)?;
    }
    Ok(sender)
}

/// A launch of several steps, whose tokens are told, and which is told masks.
struct Told<'t> {
    each: &'t mut dyn EachStep,
    sender: Option<MaskSender>,
    masks: Vec<(usize, Vec<u32>)>,
    steps: usize,
    done: usize,
    failure: Option<LaunchError>,
}

impl<'t> Told<'t> {
    fn new(run: Run, sender: Option<MaskSender>, each: &'t mut dyn EachStep) -> Told<'t> {
        let sender = sender.filter(|_| !run.masks.is_empty());
        Told { each, sender, masks: run.masks.to_vec(), steps: run.steps, done: 0, failure: None }
    }

    fn tokens(&mut self, tokens: &[u32]) -> ControlFlow<()> {
        let flow = self.each.tokens(tokens);
        self.done += 1;
        let Told { done, steps, masks, .. } = self;
        let Some(sender) = self.sender.as_ref().filter(|_| flow.is_continue() && done < steps) else { return flow };
        self.each.masks(masks);
        match masks.iter().try_for_each(|(row, mask)| sender.send(*row, *done, mask)) {
            Ok(()) => flow,
            Err(error) => {
                self.failure = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn end(self, steps: usize) -> Result<usize, EngineError> {
        self.failure.map_or(Ok(steps), |error| Err(error.into()))
    }
}
