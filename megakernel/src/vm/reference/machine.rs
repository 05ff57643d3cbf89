//! The machine: a placed program bound to weights, with its memory and its workers.

use std::sync::atomic::{AtomicU32, Ordering};

use rayon::{ThreadPool, ThreadPoolBuilder};
use thiserror::Error;
use tilewright_kernels::sample::Request;
use tilewright_layout::DType;

use super::bind;
use super::fault::Fault;
use super::kv::KvState;
use super::walk::{Deadlock, StepWalk, Stop};
use crate::oracle::{AtomicWords, BoundSlot, Context, TaskFault};
use crate::program::{Buffer, BufferKind, SmId, TaskId};
use crate::validate::Placed;
use crate::vm::cells::{CellLimits, CellRoles};
use crate::vm::{AccessError, BindError, CellError, KvError, RequestSlot, StepCells, binding};
use crate::weights::Weights;

/// A placed program that can be stepped on CPU threads.
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_layout::DType;
/// use tilewright_graph::models::Llama;
/// use tilewright_megakernel::{lower, schedule::schedule, weights::RandomWeights};
/// use tilewright_megakernel::vm::StepCells;
/// use tilewright_megakernel::vm::reference::{KvState, Machine};
/// let spec = Llama::small().vocab(32);
/// let weights = RandomWeights::new(&spec, DType::BF16, 1)?;
/// let options = lower::LowerOptions::for_context(64);
/// let program = lower::lower(&spec, &|_| DType::BF16, Target::host(2), &options)?;
/// let mut machine = Machine::new(schedule(program, 64)?, &weights, 2)?;
/// let mut kv = KvState::new(machine.program())?;
/// let output = machine.step(&mut kv, &StepCells { tokens: &[7], positions: &[0], page_table: &[0] })?;
/// assert_eq!(output.f32(lower::LOGITS)?.len(), 32);
/// assert!((0..32).contains(&output.i32(lower::NEXT_TOKEN)?[0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Machine {
    placed: Placed,
    slots: Vec<BoundSlot>,
    memory: Vec<AtomicU32>,
    counters: Vec<AtomicU32>,
    cells: CellRoles,
    limits: CellLimits,
    threads: ThreadPool,
    faults: Vec<Fault>,
    operands: Option<fn(f32) -> f32>,
}

/// Why a step did not end. The outputs are then undefined, and so are the KV entries of the
/// positions of this step; the machine can be stepped again.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum StepError {
    #[error("the cells are refused")]
    Cells(#[from] CellError),
    #[error("the KV state does not fit the program")]
    Kv(#[from] KvError),
    #[error("task {task} `{label}` on {sm} failed")]
    Task { task: TaskId, label: String, sm: SmId, source: TaskFault },
    #[error("task {task} `{label}` on {sm} panicked: {message}")]
    Panicked { task: TaskId, label: String, sm: SmId, message: String },
    #[error("{0}")]
    Deadlock(Deadlock),
}

/// The output buffers of a step, valid until the next step.
#[derive(Clone, Copy)]
pub struct StepOutput<'a> {
    machine: &'a Machine,
}

impl Machine {
    /// Binds a program to weights, with `workers` threads. Weights are shared, not copied.
    ///
    /// # Errors
    /// A weight that is missing or not as its buffer says, cells that make no sense, no memory or
    /// no threads.
    pub fn new(placed: Placed, weights: &dyn Weights, workers: usize) -> Result<Machine, BindError> {
        if workers == 0 {
            return Err(BindError::NoWorkers);
        }
        let (slots, words) = bind::slots(&placed, weights)?;
        let (cells, limits) = binding::cells(&placed)?;
        let memory = bind::memory(words)?;
        let counters = placed.counters.iter().map(|_| AtomicU32::new(0)).collect();
        let name = |index| format!("sm-worker-{index}");
        let threads = ThreadPoolBuilder::new().num_threads(workers).thread_name(name).build();
        let threads = threads.map_err(|source| BindError::Threads { workers, source })?;
        let faults = Vec::new();
        let operands = None;
        let machine = Machine { placed, slots, memory, counters, cells, limits, threads, faults, operands };
        let slots: Vec<RequestSlot> =
            RequestSlot::of_rows(machine.limits.rows_with_slots, machine.limits.slots).collect();
        machine.write_slots(&slots);
        Ok(machine)
    }

    /// The program.
    pub fn program(&self) -> &Placed {
        &self.placed
    }

    /// Runs one step: sets the cells, walks all queues, and gives the outputs.
    ///
    /// # Errors
    /// Cells or a KV state that do not fit, before anything runs; a task that failed or panicked; a
    /// deadlock.
    pub fn step(&mut self, kv: &mut KvState, cells: &StepCells) -> Result<StepOutput<'_>, StepError> {
        cells.check(&self.limits)?;
        let pools = self.placed.buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool);
        let pools = pools.map(|buffer| kv.pool(buffer)).collect::<Result<Vec<_>, _>>()?;
        let set = [
            (&self.cells.token, cells.tokens),
            (&self.cells.position, cells.positions),
            (&self.cells.page_table, cells.page_table),
        ];
        for (buffers, values) in set {
            for words in buffers.iter().filter_map(|id| self.words(self.placed.buffers.get(id.index())?)) {
                // The lengths were checked against the buffers' shapes.
                let _ = words.write_i32(0, values);
            }
        }
        self.counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        let program = self.placed.program();
        let queues = self.placed.queues();
        let on = Context {
            buffers: &program.buffers,
            slots: &self.slots,
            memory: &self.memory,
            pools: &pools,
            operands: self.operands,
            declared: None,
        };
        let walk = StepWalk::new(program, on, queues, &self.counters, &self.faults, self.threads.current_num_threads());
        self.threads.broadcast(|thread| walk.work(thread.index()));
        match walk.into_stop() {
            Ok(()) => Ok(StepOutput { machine: self }),
            Err((stop, deadlock)) => Err(self.stopped(stop, deadlock)),
        }
    }

    fn stopped(&self, stop: Stop, deadlock: Deadlock) -> StepError {
        let label = |task: TaskId| self.placed.tasks.get(task.index()).map(|t| t.label.clone()).unwrap_or_default();
        match stop {
            Stop::Fault { task, sm, fault } => StepError::Task { task, label: label(task), sm, source: fault },
            Stop::Panic { task, sm, message } => StepError::Panicked { task, label: label(task), sm, message },
            Stop::Deadlock => StepError::Deadlock(deadlock),
        }
    }

    /// Sets what the next token of every row is chosen by, until it is set again: greedily, where
    /// it was never set.
    ///
    /// # Errors
    /// If there is not one request for each row, or one makes no sense.
    pub fn set_requests(&mut self, requests: &[Request]) -> Result<(), CellError> {
        self.limits.check_requests(requests)?;
        for words in self.cells.request.iter().filter_map(|id| self.words(self.placed.buffers.get(id.index())?)) {
            // The length was checked against the buffer's shape.
            let _ = words.write_i32(0, bytemuck::cast_slice(requests));
        }
        Ok(())
    }

    /// Sets which slot each row has, until it is set again: row `r` slot `r`, where it was never
    /// set.
    ///
    /// # Errors
    /// If there is not one for each row, a slot is not there, or two rows have the same.
    pub fn set_slots(&mut self, slots: &[RequestSlot]) -> Result<(), CellError> {
        self.limits.check_slots(slots)?;
        self.write_slots(slots);
        Ok(())
    }

    fn write_slots(&self, slots: &[RequestSlot]) {
        for words in self.cells.slot.iter().filter_map(|id| self.words(self.placed.buffers.get(id.index())?)) {
            // The length was checked against the buffer's shape.
            let _ = words.write_i32(0, bytemuck::cast_slice(slots));
        }
    }

    /// Sets an input buffer of floating-point elements, converted to its type.
    ///
    /// # Errors
    /// If there is no such input of that many elements.
    pub fn set_input(&mut self, name: &str, values: &[f32]) -> Result<(), AccessError> {
        let buffer = self.input(name, values.len())?;
        let set = self.words(buffer).and_then(|words| words.write(0, values));
        set.ok_or_else(|| AccessError::DType { name: name.to_owned(), found: buffer.dtype, asked: "floating point" })
    }

    /// Sets an input buffer of i32 elements.
    ///
    /// # Errors
    /// If there is no such input of that many elements.
    pub fn set_input_i32(&mut self, name: &str, values: &[i32]) -> Result<(), AccessError> {
        let buffer = self.input(name, values.len())?;
        let set = self.words(buffer).and_then(|words| words.write_i32(0, values));
        set.ok_or_else(|| AccessError::DType { name: name.to_owned(), found: buffer.dtype, asked: "i32" })
    }

    /// The input buffer of that name and of `found` elements.
    fn input(&self, name: &str, found: usize) -> Result<&Buffer, AccessError> {
        let buffer = self.named(name)?;
        if buffer.kind != BufferKind::Input {
            let action = "sets input buffers only";
            return Err(AccessError::Kind { name: name.to_owned(), found: buffer.kind, action });
        }
        match buffer.elements().unwrap_or(0) {
            expected if expected == found => Ok(buffer),
            expected => Err(AccessError::Length { name: name.to_owned(), expected, found }),
        }
    }

    /// Fills activations and outputs with NaN: what a step reads or leaves without having written
    /// it then shows.
    pub fn poison(&mut self) {
        for buffer in &self.placed.buffers {
            if let (BufferKind::Activation | BufferKind::Output, Some(words)) = (buffer.kind, self.words(buffer)) {
                let whole = AtomicWords::len(&words);
                let _ = match words.dtype() == DType::I32 {
                    true => words.write_i32(0, &vec![i32::MIN; whole]),
                    false => words.write(0, &vec![f32::NAN; whole]),
                };
            }
        }
    }

    /// Rounds product operands other than weights, keys and values in every step from now on:
    /// activations after their norm, queries, the weights of attention, its result. Sums and the
    /// residual stream stay f32. Keys and values have the type of their pools.
    ///
    /// With the rounding to bf16 that is what a device of bf16 operands computes at best.
    pub fn set_operands(&mut self, rounded: Option<fn(f32) -> f32>) {
        self.operands = rounded;
    }

    /// Makes every step from now on suffer a fault.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    fn named(&self, name: &str) -> Result<&Buffer, AccessError> {
        self.placed.buffer_named(name).ok_or_else(|| AccessError::Missing { name: name.to_owned() })
    }

    /// The array of a buffer that lies in the machine's memory.
    fn words(&self, buffer: &Buffer) -> Option<AtomicWords<'_>> {
        match self.slots.get(buffer.id.index())? {
            BoundSlot::Memory { base } => Some(AtomicWords::of_buffer(&self.memory, buffer, *base)),
            BoundSlot::Weight(_) | BoundSlot::Quantized(_) | BoundSlot::Experts(_) | BoundSlot::Pool { .. } => None,
        }
    }
}

impl StepOutput<'_> {
    /// All elements of a floating-point output, as f32.
    ///
    /// # Errors
    /// If there is no such output.
    pub fn f32(&self, name: &str) -> Result<Vec<f32>, AccessError> {
        let words = self.output(name)?;
        self.floats(name, words, 0, words.len())
    }

    /// Row `row` of a floating-point output (its first dimension), as f32.
    ///
    /// # Errors
    /// If there is no such output or row.
    pub fn f32_row(&self, name: &str, row: usize) -> Result<Vec<f32>, AccessError> {
        let words = self.output(name)?;
        let rows = self.machine.named(name)?.shape.first().copied().unwrap_or(1);
        if row >= rows {
            return Err(AccessError::Row { name: name.to_owned(), rows, row });
        }
        let width = words.len() / rows;
        self.floats(name, words, row * width, width)
    }

    /// All elements of an i32 output.
    ///
    /// # Errors
    /// If there is no such output.
    pub fn i32(&self, name: &str) -> Result<Vec<i32>, AccessError> {
        let words = self.output(name)?;
        let values = (0..words.len()).map(|at| words.read_i32(at)).collect::<Option<Vec<_>>>();
        values.ok_or_else(|| AccessError::DType { name: name.to_owned(), found: words.dtype(), asked: "i32" })
    }

    fn output(&self, name: &str) -> Result<AtomicWords<'_>, AccessError> {
        let buffer = self.machine.named(name)?;
        let wrong =
            || AccessError::Kind { name: name.to_owned(), found: buffer.kind, action: "reads output buffers only" };
        self.machine.words(buffer).filter(|_| buffer.kind == BufferKind::Output).ok_or_else(wrong)
    }

    fn floats(&self, name: &str, words: AtomicWords, start: usize, count: usize) -> Result<Vec<f32>, AccessError> {
        let mut out = Vec::new();
        let read = words.read(start, count, &mut out);
        let wrong = || AccessError::DType { name: name.to_owned(), found: words.dtype(), asked: "f32" };
        read.map(|()| out).ok_or_else(wrong)
    }
}
