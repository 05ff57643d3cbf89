//! Sums that are cut: where rows of activations are longer than registers hold, an SM takes some
//! columns of many rows of weights instead of all columns of a few.
//!
//! Every SM reads the activations that its weights meet. Of 16 rows of 14336 these are 459 KB,
//! twice the weights that an SM has of the level; over the columns of a part they are the part's
//! share. The price is a level more, which adds up the parts.

use tilewright_kernels::gemv::activations::{AOperand, Packing};
use tilewright_kernels::weights::Strip;
use tilewright_layout::DType;

use super::{LowerError, STRIP, partition};
use crate::ops::{Linear, LinearInput, LinearOutput, LinearPart, Op, Reduce};
use crate::program::{BufferId, BufferKind, CounterId, Program, Span, Task, Wait, float_of};
use crate::vm::device::DeviceOptions;

/// The split of a level's linear sums along K into partial sums.
struct Cut {
    /// Stages of a strip, and its columns, of each part.
    parts: Vec<(u32, Span)>,
    /// The buffers of the parts.
    buffers: Vec<BufferId>,
}

impl Program {
    /// Cuts along k the sums whose activations a device would load repeatedly: those that do not
    /// fit registers, of at least as many rows as the threshold
    /// [`activation_rows`](crate::vm::device::Thresholds::activation_rows). After
    /// [`Program::stored_as`], since the form of weights says what a stage is, and before it is
    /// scheduled. Any placement of tasks finds the same order of weights.
    ///
    /// # Errors
    /// If a task does not fit its operands.
    ///
    /// ```
    /// use tilewright_codegen::target::Target;
    /// use tilewright_layout::DType;
    /// use tilewright_megakernel::{lower::{LowerOptions, lower}, model::ModelSpec, vm::device::DeviceOptions};
    /// let spec = ModelSpec::named("llama-3.1-8b").unwrap();
    /// let lowered = |rows| {
    ///     let options = LowerOptions { rows, activation: DType::BF16, ..LowerOptions::for_context(1024) };
    ///     lower(&spec, &|_| DType::BF16, Target::named("h100").unwrap(), &options).unwrap()
    /// };
    /// let parts = |rows| {
    ///     let cut = lowered(rows).with_cut_sums(&DeviceOptions::default()).unwrap();
    ///     cut.tasks.iter().filter(|task| task.op.name() == "reduce").count()
    /// };
    /// // A reduction of 132 tiles in each of 32 layers, where 16 rows of 14336 elements are too many.
    /// assert_eq!((parts(1), parts(16)), (0, 32 * 132));
    /// ```
    pub fn with_cut_sums(mut self, options: &DeviceOptions) -> Result<Program, LowerError> {
        if self.devices > 1 {
            return Ok(self);
        }
        let tasks = std::mem::take(&mut self.tasks);
        let mut rest = tasks.as_slice();
        while let Some(first) = rest.first() {
            let (level, following) = rest.split_at(rest.iter().take_while(|task| is_like(first, task)).count().max(1));
            rest = following;
            match self.cut_of(level, options) {
                None => level.iter().for_each(|task| self.keep(task)),
                Some(cut) => self.add_level(level, &cut)?,
            }
        }
        Ok(self)
    }

    fn keep(&mut self, task: &Task) {
        let id = self.tasks.len().into();
        self.tasks.push(Task { id, ..task.clone() });
    }

    /// The split of the sums of a level; `None` if they stay whole.
    fn cut_of(&mut self, level: &[Task], options: &DeviceOptions) -> Option<Cut> {
        let (op, x) = summed(level.first()?)?;
        let weight = self.buffers.get(op.weight.index())?;
        let input = self.buffers.get(x.index())?;
        let &[n, k] = weight.shape.as_slice() else { return None };
        let float = float_of(input.dtype)?;
        let rows = op.rows.len() as u32;
        let whole = n.is_multiple_of(4) && k.is_multiple_of(8) && rows <= Packing::ROWS;
        if options.thresholds.part_registers == 0
            || rows < options.thresholds.activation_rows
            || op.bias.is_some()
            || !whole
        {
            return None;
        }
        let warps = options.warps;
        let bytes = options.stage_bytes;
        let strip = match weight.quantised.map(|form| form.codes()).transpose().ok()? {
            None => Strip::new(k as u32, warps, bytes),
            Some(codes) => Strip::of_codes(k as u32, warps, bytes, codes),
        };
        let strip = strip.ok()?;
        let packing = Packing::of(rows, float);
        // Places of a part may have columns of another, which its readers do not wait for.
        if strip.is_halved() || weight.quantised.is_some_and(|form| form.ordered) {
            return None;
        }
        let registers = |stages: u32| AOperand::registers(strip.part(0, stages), packing);
        if registers(strip.stages()) <= options.activation_registers || registers(1) > options.activation_registers {
            return None;
        }
        let most = (1..strip.stages())
            .take_while(|&stages| registers(stages) <= options.thresholds.part_registers)
            .last()
            .unwrap_or(1);
        let parts = partition(strip.stages() as usize, strip.stages().div_ceil(most) as usize);
        let columns = |stages: &Span| {
            let [lo, hi] = [stages.lo, stages.hi].map(|stage| (stage * strip.stage_k() as usize).min(k));
            (stages.len() as u32, Span::new(lo, hi))
        };
        let shape = self.buffers.get(op.output.out().index())?.shape.clone();
        let buffers = (0..parts.len()).map(|part| self.part_buffer(part, &shape)).collect();
        Some(Cut { parts: parts.iter().map(columns).collect(), buffers })
    }

    /// The buffer of a part: all layers share it, since the next one's writers come after this
    /// one's sum.
    fn part_buffer(&mut self, part: usize, shape: &[usize]) -> BufferId {
        let name = format!("sum.part{part}");
        let known = self.buffer_named(&name).filter(|buffer| buffer.shape == shape).map(|buffer| buffer.id);
        known.unwrap_or_else(|| self.add_buffer(name, BufferKind::Activation, DType::F32, shape))
    }

    /// Adds a level of parts, partitioned over the SMs by their stages, and the level that adds
    /// them up, tile by tile as the level was cut.
    fn add_level(&mut self, level: &[Task], cut: &Cut) -> Result<(), LowerError> {
        let Some(first) = level.first() else { return Ok(()) };
        let Some((op, x)) = summed(first) else { return Ok(()) };
        let name = first.label.split('[').next().unwrap_or_default();
        let counter = self.add_counter(format!("{name}.parts"));
        let features = level.iter().filter_map(|task| summed(task)).map(|(op, _)| op.cols.hi).max().unwrap_or(0);
        let all: u32 = cut.parts.iter().map(|&(stages, _)| stages).sum();
        let mut end = 0;
        let mut number = 0;
        for (&(stages, along), &out) in cut.parts.iter().zip(&cut.buffers) {
            let before = end;
            end += stages;
            let [from, to] = [before, end].map(|stages| (self.target.sms as u32 * stages + all / 2) / all);
            for strips in partition(features.div_ceil(STRIP), (to - from).max(1) as usize) {
                let cols = Span::new(strips.lo * STRIP, (strips.hi * STRIP).min(features));
                let part = LinearPart { x, weight: op.weight, rows: op.rows, cols, along, out };
                self.add_like(first, format!("{name}[{number}]"), part, first.waits.clone(), vec![counter])?;
                number += 1;
            }
        }
        for (at, task) in level.iter().enumerate() {
            let Some((Linear { output: LinearOutput::Add { residual, out }, rows, cols, .. }, _)) = summed(task) else {
                continue;
            };
            let parts = cut.buffers.clone();
            let residual = Some(*residual);
            let out = *out;
            let rows = *rows;
            let cols = *cols;
            let sum = Reduce { parts, residual, norm: None, out, rows, cols };
            let waits = vec![Wait { counter, threshold: number }];
            self.add_like(task, format!("{name}.sum[{at}]"), sum, waits, task.signals.clone())?;
        }
        Ok(())
    }

    fn add_like(
        &mut self,
        like: &Task,
        label: String,
        op: impl Into<Op>,
        waits: Vec<Wait>,
        signals: Vec<CounterId>,
    ) -> Result<(), LowerError> {
        let added = self.add_task(&label, op, waits, signals);
        let id = added.map_err(|source| LowerError::Task { label, source })?;
        self.tasks[id.index()].device = like.device;
        Ok(())
    }
}

/// A task whose products are added to a residual, and the activations that it reads as they are.
fn summed(task: &Task) -> Option<(&Linear, BufferId)> {
    let op = task.op.get::<Linear>()?;
    match (&op.input, &op.output) {
        (&LinearInput::Plain { x }, LinearOutput::Add { .. }) => Some((op, x)),
        _ => None,
    }
}

/// Whether a task is of the same level as another whose sums may be cut.
fn is_like(first: &Task, task: &Task) -> bool {
    let (Some((a, x)), Some((b, y))) = (summed(first), summed(task)) else { return false };
    let same = (a.weight, a.rows, x, a.output.out()) == (b.weight, b.rows, y, b.output.out());
    same && (&first.waits, &first.signals, first.device) == (&task.waits, &task.signals, task.device)
}
