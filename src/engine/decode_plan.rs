//! A decode step, or a part of one, whose launch a caller queues on a stream.

use std::ops::Range;

use tilewright_codegen::device::{Buffer, Device, Stream};
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LayerParts, LowerOptions, PAGE_TABLE, lower};
use tilewright_megakernel::program::{BufferKind, Span};
use tilewright_megakernel::schedule::{TYPICAL_CONTEXT, schedule};
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions};

use super::Engine;
use super::error::EngineError;
use super::limits::MOST_ROWS;
use super::place::Place;

/// The part of a model that a [`DecodePlan`] computes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PlanPart {
    /// All of it, from token ids to logits and the next token.
    #[default]
    Model,
    /// Decoder layers, from the residual stream before them to that after them.
    Layers(Range<usize>),
    /// Of one layer the norm, projections, rotation, attention and residual sum.
    Attention(usize),
    /// Of one layer the norm, the MLP or the experts, and the residual sum.
    Mlp(usize),
}

/// What a [`DecodePlan`] is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// The part of the model.
    pub part: PlanPart,
    /// Tokens of a step, 1 to 16: of different sequences, or consecutive ones of a sequence.
    pub rows: usize,
    /// Longest sequence, in tokens.
    pub context: usize,
    /// Pages of each KV pool; `None`: as many as `rows` sequences of `context` tokens need.
    pub pages: Option<usize>,
    /// Whether next tokens are drawn as the buffer `request` says; else they are the likeliest.
    pub sampling: bool,
}

impl PlanOptions {
    /// The whole model for one row, greedily.
    ///
    /// ```
    /// use tilewright::engine::{PlanOptions, PlanPart};
    /// let options = PlanOptions { part: PlanPart::Layers(3..4), rows: 8, ..PlanOptions::for_context(4096) };
    /// assert_eq!(options.pages, None);
    /// ```
    pub fn for_context(context: usize) -> PlanOptions {
        PlanOptions { part: PlanPart::Model, rows: 1, context, pages: None, sampling: false }
    }
}

/// A buffer of a [`DecodePlan`], in device memory.
#[derive(Clone, Debug)]
pub struct PlanBuffer {
    /// Its name.
    pub name: String,
    /// The memory.
    pub memory: Buffer<u8>,
    /// The type of elements.
    pub dtype: DType,
    /// The shape, outermost dimension first.
    pub shape: Vec<usize>,
}

/// A decode step, or a part of one, as one kernel launch that a caller queues on a stream of its
/// own, alone or captured in a CUDA graph.
///
/// The launch reads its inputs from buffers of the plan and leaves its results in others:
///
/// | buffer | type, shape | of |
/// |---|---|---|
/// | `token` | i32 `[rows]` | the model: token ids |
/// | `hidden.in`, `hidden.out` | f32 `[rows, hidden]` | parts: the residual stream |
/// | `position` | i32 `[rows]` | all but an MLP: the place in its sequence; negative: the row is idle |
/// | `page_table` | i32 `[rows, pages of a sequence]` | all but an MLP: its pages of the pools |
/// | `layers.N.k`, `layers.N.v` | bf16 `[kv_heads, pages, page_tokens, head_dim]` | each layer that attends |
/// | `logits`, `next_token` | f32 `[rows, vocab]`, i32 `[rows]` | the model |
///
/// Page tables begin as one run of pages after the other, where there are pages enough.
///
/// ```
/// use std::path::Path;
/// use tilewright::engine::PlanOptions;
/// use tilewright::Engine;
///
/// let engine = Engine::load(Path::new("models/tiny-llama"), "sim:1".parse()?)?;
/// let mut plan = engine.decode_plan(&PlanOptions::for_context(64))?;
/// let stream = plan.stream().clone();
/// let write = |name: &str, number: i32| -> Result<(), Box<dyn std::error::Error>> {
///     Ok(stream.upload(&number.to_le_bytes(), &plan.buffer(name)?.memory)?)
/// };
/// write("token", 42)?;
/// write("position", 0)?;
/// plan.queue(&stream)?;
/// stream.wait()?;
/// plan.check()?;
/// let next = stream.read(&plan.buffer("next_token")?.memory.cast::<i32>()?)?;
/// assert!((0..engine.spec().vocab as i32).contains(&next[0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DecodePlan {
    machine: DeviceMachine,
    stream: Stream,
}

impl Engine {
    /// Plans a decode step of the model, or of a part of it, and sends the weights that it reads.
    /// They stay on the device as long as the engine.
    ///
    /// # Errors
    /// [`EngineError::PlanDevice`] where the engine does not run on one GPU or a simulated one; a
    /// part that the model does not have; a device that does not have the memory.
    pub fn decode_plan(&self, options: &PlanOptions) -> Result<DecodePlan, EngineError> {
        let Place::Gpu(gpu) = &**self.place() else { return Err(EngineError::PlanDevice) };
        if gpu.devices > 1 || self.place().group().is_some() {
            return Err(EngineError::PlanDevice);
        }
        let &PlanOptions { rows, context, pages, sampling, ref part } = options;
        if rows > MOST_ROWS {
            return Err(EngineError::PlanRows { found: rows, most: MOST_ROWS });
        }
        let (layers, parts) = match part {
            PlanPart::Model => (None, LayerParts::Stage),
            PlanPart::Layers(layers) => (Some(Span::new(layers.start, layers.end)), LayerParts::Layers),
            PlanPart::Attention(layer) => (Some(Span::one(*layer)), LayerParts::Attention),
            PlanPart::Mlp(layer) => (Some(Span::one(*layer)), LayerParts::Mlp),
        };
        let model = self.model();
        let base = self.lowering(context, sampling);
        let lowered = LowerOptions { rows, pages, layers, parts, ..base };
        let lowered = lowered.splits_for_gpu(model.spec.kv_heads, gpu.target.sms);
        let kernel = DeviceOptions { queued: true, ..gpu.options(model, rows, context)? };
        let program = lower(&model.spec, &model.dtypes(), gpu.target.clone(), &lowered)?;
        let program = program.stored_as(&*model.weights).with_cut_sums(&kernel)?;
        let placed = schedule(program, TYPICAL_CONTEXT)?;
        let machine = gpu.weights().machine(placed, None, kernel, &mut |done, total| gpu.progress(done, total))?;
        let stream = machine.device().stream()?;
        let plan = DecodePlan { machine, stream };
        let width = lowered.pages_per_sequence();
        if plan.has(PAGE_TABLE) && lowered.pool_pages() >= rows * width {
            let table: Vec<i32> = (0..(rows * width) as i32).collect();
            plan.stream.upload(&table, &plan.buffer(PAGE_TABLE)?.memory.cast()?)?;
        }
        plan.stream.wait()?;
        Ok(plan)
    }
}

impl DecodePlan {
    /// A stream of the plan's device, for a caller that has none.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.machine.device()
    }

    fn has(&self, name: &str) -> bool {
        self.machine.program().buffer_named(name).is_some()
    }

    /// The buffers that a caller writes and reads, pools among them.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn buffers(&self) -> Result<Vec<PlanBuffer>, EngineError> {
        let is_callers =
            |kind| matches!(kind, BufferKind::Cell | BufferKind::Input | BufferKind::Output | BufferKind::KvPool);
        let buffers = self.machine.program().buffers.iter().filter(|buffer| is_callers(buffer.kind));
        buffers.map(|buffer| self.buffer(&buffer.name)).collect()
    }

    /// The buffer of that name.
    ///
    /// # Errors
    /// If the plan has none.
    pub fn buffer(&self, name: &str) -> Result<PlanBuffer, EngineError> {
        let (memory, dtype, shape) = self.machine.memory(name)?;
        Ok(PlanBuffer { name: name.to_owned(), memory, dtype, shape: shape.to_vec() })
    }

    /// Queues a step. It waits for nothing and allocates nothing.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn queue(&self, stream: &Stream) -> Result<(), EngineError> {
        Ok(self.machine.queue(stream)?)
    }

    /// Reports what failed in queued steps that have ended, and prepares the next ones.
    ///
    /// # Errors
    /// The first failure since the last call.
    pub fn check(&mut self) -> Result<(), EngineError> {
        Ok(self.machine.check()?)
    }

    /// Runs steps of a whole model in one launch, each with the tokens that the one before chose,
    /// and gives these, `[steps, rows]`. `tokens` and `positions` are of the first step.
    ///
    /// # Errors
    /// A part of a model; cells that do not fit; a launch that failed.
    pub fn run(&mut self, tokens: &[i32], positions: &[i32], steps: usize) -> Result<Vec<u32>, EngineError> {
        let table: Vec<i32> = match self.has(PAGE_TABLE) {
            true => self.stream.read(&self.buffer(PAGE_TABLE)?.memory.cast()?)?,
            false => Vec::new(),
        };
        Ok(self.machine.run(&StepCells { tokens, positions, page_table: &table }, steps)?)
    }
}
