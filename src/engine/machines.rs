//! The machines of a session: one for each number of rows, on the host or on a device.

use std::ops::ControlFlow;

use tilewright_codegen::target::Target;
use tilewright_flow::program::{Phase, summaries};
use tilewright_kernels::sample::Request as Draw;
use tilewright_megakernel::lower::{Indexer, LowerOptions, StepPlan, lower_indexed, plan};
use tilewright_megakernel::program::Program;
use tilewright_megakernel::schedule::{TYPICAL_CONTEXT, schedule};
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::{Accepted, DeviceOptions, Text};
use tilewright_megakernel::vm::graph::AnyGraph;
use tilewright_megakernel::vm::resident::DeviceKv;
use tilewright_megakernel::vm::{RequestSlot, StepCells};

use super::by_graph::STREAMED;
use super::error::EngineError;
use super::flow::{ObservedShape, SessionFlow};
use super::model::Model;
use super::place::{Gpu, Place};
use crate::engine::limits::{CHUNKS, LEAST_GRAPH, MOST_ROWS, PACKED_CHUNK};

/// Steps that the machines do without the host between.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    /// Most of them.
    pub steps: usize,
    /// The draws for each row's next token; if empty, greedy. They advance from step to step.
    pub draws: &'a [Draw],
    /// Tokens that end a row.
    pub ends: &'a [u32],
    /// Rows whose tokens are restricted, and the masks of their first.
    pub masks: &'a [(usize, Vec<u32>)],
}

/// Machines that share KV pools. A machine's width is its number of rows.
pub(super) trait Machines: Send {
    /// The width of the machine that runs that many rows; made on first use.
    fn width(&mut self, rows: usize) -> Result<usize, EngineError>;

    /// Most rows of a prefill chunk.
    fn chunk_rows(&self) -> usize;

    /// Rows of the next prefill chunk of a prompt with that many tokens left.
    fn chunk(&mut self, rest: usize) -> Result<usize, EngineError>;

    /// Whether rows of the next steps attend to everything, or to what a flow chooses; and whether
    /// they are a prompt's chunk.
    fn set_phase(&mut self, _phase: Phase, _feeds: bool) {}

    /// Sets the request whose states each row of that width continues with, if a flow keeps states.
    fn set_slots(&mut self, _width: usize, _slots: &[RequestSlot]) -> Result<(), EngineError> {
        Ok(())
    }

    /// Sets the request of each row by number, for the observer.
    fn set_requests(&mut self, _requests: &[u64]) {}

    /// Most rows of a step.
    fn most_rows(&self) -> usize;

    /// Runs a step on the machine of that width; `each` gets the logits of these rows, in their
    /// order.
    fn step(&mut self, width: usize, cells: &StepCells, rows: &[usize], each: EachRow) -> Result<(), EngineError>;

    /// Runs a step whose tokens the machine chooses, where machines do; gives those of the rows
    /// that are asked for, [`NO_TOKEN`](tilewright_megakernel::vm::NO_TOKEN) where no token is the
    /// likeliest, and `each` gets logits.
    fn choose(
        &mut self,
        _width: usize,
        _cells: &StepCells,
        _asked: Asked,
        _each: EachRow,
    ) -> Result<Vec<u32>, EngineError> {
        Ok(Vec::new())
    }

    /// Most steps that feed tokens back by themselves; 0 where machines do not.
    fn most_steps(&self) -> usize {
        0
    }

    /// Whether launches propose tokens of a sequence by themselves.
    fn proposes(&self) -> bool {
        false
    }

    /// Goes on with a sequence on the machine of that width, several of its tokens in a step; gives
    /// how many steps `each` was told of.
    fn propose(&mut self, width: usize, text: &Text, steps: usize, each: EachAccepted) -> Result<usize, EngineError> {
        let _ = (width, text, steps, each);
        Ok(0)
    }

    /// Starts to compile the kernels of a machine of that many rows, unless they are compiled.
    fn ahead(&mut self, rows: usize) {
        let _ = rows;
    }

    /// Prepares a session for its first prompt (its length, if known) and for steps of a number of
    /// rows.
    fn begin(&mut self, rows: usize, _prompt: Option<usize>) -> Result<(), EngineError> {
        // A prompt's chunks are compiled while the weights are on their way.
        self.ahead(MOST_ROWS);
        self.width(rows).map(drop)
    }

    /// Most steps of a launch of that width in which tokens are restricted; 0 where the host chooses
    /// such tokens.
    fn masked_steps(&self, _width: usize) -> usize {
        0
    }

    /// Runs steps that feed tokens back; returns how many `each` got. After its `Break` it may get
    /// a few that were under way.
    fn run(&mut self, _: usize, _cells: &StepCells, _: Run, _each: &mut dyn EachStep) -> Result<usize, EngineError> {
        Ok(0)
    }
}

/// The results requested from a step.
pub(super) struct Asked<'a> {
    /// Rows whose tokens the machine chooses.
    pub rows: &'a [usize],
    /// The draws for these rows; if empty, greedy.
    pub draws: &'a [Draw],
    /// Rows whose logits are wanted.
    pub logits: &'a [usize],
    /// Rows whose tokens are restricted, and their masks.
    pub masks: &'a [(usize, Vec<u32>)],
}

/// The callback for a row and its logits.
pub(super) type EachRow<'e> = &'e mut dyn FnMut(usize, &[f32]);
/// The callback for the tokens that a step with proposals accepted.
pub(super) type EachAccepted<'e> = &'e mut dyn FnMut(&Accepted) -> ControlFlow<()>;

/// What a launch of several steps tells and asks.
pub(super) trait EachStep {
    /// Takes the tokens of all rows of a step.
    fn tokens(&mut self, tokens: &[u32]) -> ControlFlow<()>;

    /// Fills the masks of rows' next tokens.
    fn masks(&mut self, masks: &mut [(usize, Vec<u32>)]);
}

/// The numbers of rows that programs are made with.
#[derive(Clone)]
pub(super) struct Widths {
    /// The widths, in any order; a device has one for the most rows that it can hold in addition.
    pub(super) rows: Vec<usize>,
    /// Most rows of a program whose tokens may be chosen at random. Wider ones only feed prompts,
    /// and code that chooses at random takes a driver a second to compile.
    pub(super) sampling: usize,
    /// Most rows of a graph's step on a device, where those are more than a step of the decode
    /// machine has.
    pub(super) chunk: Option<usize>,
    /// Whether there is one width.
    pub(super) only: bool,
    /// Whether programs of several rows propose tokens of a sequence.
    pub(super) proposals: bool,
}

/// Rows of the widest program that may sample, for a number of decoding sequences: by a graph,
/// which has some rows more, or not.
fn sampled(rows: usize) -> usize {
    if rows > STREAMED { rows.max(LEAST_GRAPH) } else { rows }
}

impl Widths {
    /// Widths for prefill chunks, and a row for each sequence.
    pub fn of_session(place: &Place, sequences: usize) -> Widths {
        // On a device kernels are made for a few widths, and rows that a step has more are idle.
        let (chunks, sequences) = match place {
            Place::Host { .. } => (&CHUNKS[..], sequences),
            Place::Gpu(_) => (&[1][..], sequences.next_power_of_two()),
        };
        Widths {
            rows: [chunks, &[sequences]].concat(),
            sampling: sampled(sequences),
            chunk: None,
            only: false,
            proposals: false,
        }
    }

    /// The powers of 2 up to a number of rows; that number alone where every step has the same.
    /// More than a step that decodes has on a device are steps of a graph there.
    pub fn of_batch(rows: usize, deterministic: bool) -> Widths {
        let powers = (0..usize::BITS).map(|power| 1 << power).take_while(|&width| width < rows && !deterministic);
        let chunk = (rows > MOST_ROWS).then(|| rows.max(LEAST_GRAPH));
        Widths {
            rows: powers.chain([rows]).collect(),
            sampling: sampled(rows),
            chunk,
            only: deterministic,
            proposals: true,
        }
    }

    /// Widths of steps in which rows decode, possibly together with a prefill chunk.
    pub fn beside(&self, decoding: usize) -> Vec<usize> {
        self.rows.iter().copied().filter(|&width| width > decoding || width >= MOST_ROWS).collect()
    }

    /// Widths with prefill chunks of that many rows.
    pub fn with_chunk(self, chunk: Option<usize>) -> Widths {
        Widths { chunk, ..self }
    }

    /// The width of a chunk of that many rows: a power of 2 from 32 on, or the widest. Kernels are
    /// made for a few widths.
    pub(super) fn of_chunk(&self, rows: usize) -> Option<usize> {
        let most = self.chunk.filter(|&most| rows <= most)?;
        if self.only {
            return Some(most);
        }
        Some(rows.next_power_of_two().max(LEAST_GRAPH).min(most))
    }

    /// The least width that has that many rows and not more than `most`.
    pub(super) fn least(&self, most: usize, rows: usize) -> usize {
        let all = self.rows.iter().copied().chain([most].into_iter().filter(|&most| most < usize::MAX));
        all.filter(|width| (rows..=most).contains(width)).min().unwrap_or(rows)
    }
}

/// The inputs from which a session's programs are lowered.
#[derive(Clone)]
pub(super) struct Lowering {
    pub(super) model: Model,
    pub(super) options: LowerOptions,
    pub(super) widths: Widths,
    pub(super) flow: Option<SessionFlow>,
    /// The phase of the next steps.
    pub(super) phase: Phase,
    /// The request of each row of the next step.
    pub(super) requests: Vec<u64>,
}

impl Lowering {
    /// The phase that programs are made for: without a flow, one program serves both.
    pub(super) fn set_phase(&mut self, phase: Phase) {
        if self.flow.is_some() {
            self.phase = phase;
        }
    }

    /// Passes the selections of a step's rows to the flow's observer; `output` returns outputs by
    /// name.
    pub(super) fn observe(
        &self,
        cells: &StepCells,
        output: &dyn Fn(&str) -> Result<Vec<i32>, EngineError>,
    ) -> Result<(), EngineError> {
        let Some(flow) = self.flow.as_ref().filter(|_| self.phase == Phase::Decode) else { return Ok(()) };
        let spec = &self.model.spec;
        let page_tokens = self.options.page_tokens;
        let shape = ObservedShape { layers: spec.layers, kv_heads: spec.kv_heads, page_tokens };
        flow.observe(shape, cells, &self.requests, output)
    }

    /// The lowering options without a flow.
    pub(super) fn dense(&self) -> Lowering {
        Lowering { flow: None, ..self.clone() }
    }

    /// The program that summarises a number of blocks at a time, if the flow keeps summaries.
    pub(super) fn summaries(&self, gpu: &Gpu, rows: usize) -> Result<Option<(Placed, DeviceOptions)>, EngineError> {
        let options = gpu.options(&self.model, 1, self.options.context)?;
        let prompt = Lowering { phase: Phase::Prompt, ..self.clone() }.program(rows, gpu.target.clone())?;
        let Some(program) = summaries(&prompt)? else { return Ok(None) };
        Ok(Some((schedule(program, TYPICAL_CONTEXT)?, DeviceOptions { propose: false, masks: false, ..options })))
    }

    pub(super) fn placed(&self, rows: usize, target: Target) -> Result<Placed, EngineError> {
        Ok(schedule(self.program(rows, target)?, TYPICAL_CONTEXT)?)
    }

    /// The placed program of a number of rows for a GPU, and how its kernel is cut.
    pub(super) fn on(&self, gpu: &Gpu, width: usize) -> Result<(Placed, DeviceOptions), EngineError> {
        let options = gpu.options(&self.model, width, self.options.context)?;
        let program = self.program(width, gpu.target.clone())?.with_cut_sums(&options)?;
        let placed = schedule(program, TYPICAL_CONTEXT)?;
        let propose = self.widths.proposals && width > 1 && gpu.devices == 1;
        Ok((placed, DeviceOptions { propose, masks: self.options_of(width).sampling, ..options }))
    }

    /// The options for that many rows.
    pub(super) fn options_of(&self, rows: usize) -> LowerOptions {
        let sampling = self.options.sampling && rows <= self.widths.sampling;
        LowerOptions { rows, sampling, ..self.options.clone() }
    }

    pub(super) fn program(&self, rows: usize, target: Target) -> Result<Program, EngineError> {
        let options = self.options_of(rows);
        let options = match target.arch.as_str() {
            "host" => options,
            _ => options.splits_for_gpu(self.model.spec.kv_heads, target.sms),
        };
        let Model { spec, weights, .. } = &self.model;
        let dtype_of = self.model.dtypes();
        let mut flow = self.flow.as_ref().map(|flow| flow.lowered(self.phase));
        let indexer = flow.as_mut().map(|flow| flow as &mut dyn Indexer);
        Ok(lower_indexed(spec, &dtype_of, target, &options, indexer)?.stored_as(&**weights))
    }

    /// Whether all products of a graph read weights as they are packed for the decode machine: those
    /// of experts lie row by row, and latent attention has no launches.
    pub(super) fn reads_packed(&self, gpu: &Gpu) -> bool {
        let spec = &self.model.spec;
        let has_launches = spec.experts.is_none() && spec.latent.is_none();
        gpu.target.arch == "sm_90a" && self.model.packs && has_launches
    }

    /// Whether the weights of a graph of that many rows do: codes are read so by all, weights of
    /// bf16 by few.
    pub(super) fn is_packed(&self, gpu: &Gpu, rows: usize) -> bool {
        self.reads_packed(gpu) && (rows <= PACKED_CHUNK || self.model.bits.is_some())
    }

    /// The step that a graph of launches of that many rows computes, without a flow.
    pub(super) fn step_of_graph(&self, gpu: &Gpu, rows: usize) -> Result<StepPlan, EngineError> {
        let Model { spec, weights, .. } = &self.model;
        let options = self.dense().options_of(rows);
        Ok(plan(spec, &self.model.dtypes(), gpu.target.clone(), &options)?.stored_as(&**weights))
    }

    /// Creates a graph of launches of that many rows, on these pools or new ones.
    pub(super) fn graph(&self, gpu: &Gpu, rows: usize, kv: Option<&DeviceKv>) -> Result<AnyGraph, EngineError> {
        let step = self.step_of_graph(gpu, rows)?;
        let mut graphs = gpu.graphs();
        graphs.share(&gpu.weights());
        Ok(graphs.machine(step, kv, &mut |done, total| gpu.progress(done, total))?)
    }
}
