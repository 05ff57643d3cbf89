//! The engine: runs a checkpoint on a device, prompts in, tokens out.
//!
//! ```
//! use std::path::Path;
//! use tilewright::{Device, Engine, Request, Sampling};
//!
//! let engine = Engine::load(Path::new("models/tiny-llama"), Device::cpu())?;
//! let request = Request::new(engine.prompt_ids("In the beginning")?, 48);
//! let (completions, speed) = engine.generate(&[request], Sampling::GREEDY, |_, _| ())?;
//! println!("{} ({:.0} tokens/s)", engine.tokenizer().decode(&completions[0].token_ids)?, speed.tokens_per_second());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "cli")]
mod bare;
mod by_graph;
mod cells;
mod decode_plan;
mod deferred_summaries;
mod device;
mod error;
mod flow;
mod flow_parameters;
mod generate;
mod grammar;
mod kv;
mod limits;
mod lowering;
mod machines;
mod model;
mod on_device;
mod on_host;
mod pages;
pub mod pipeline;
mod place;
mod request;
mod requests;
mod sampling;
mod session;
pub(crate) mod settings;
mod stop;
mod text;
mod with_flow;

use std::path::Path;
use std::sync::Arc;

use tilewright_flow::program::FlowSettings;
use tilewright_kernels::quant::QuantMatrix;
use tilewright_kernels::weights::Codes;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, MAX_ROWS};
use tilewright_megakernel::model::ModelSpec;
pub use tilewright_megakernel::vm::graph::Exchange;
pub use tilewright_megakernel::vm::resident::Compilation;
use tilewright_megakernel::weights::WeightTensor;

use crate::checkpoint::{Checkpoint, Tokenizer};
#[cfg(feature = "cli")]
pub(crate) use bare::Bare;
pub use decode_plan::{DecodePlan, PlanBuffer, PlanOptions, PlanPart};
pub use device::{Device, DeviceError, NoFirstGpu, first_gpu};
pub use error::EngineError;
pub use flow::{Chosen, OnChosen};
pub use flow_parameters::{FileError, ParametersError, flow_parameters_file, read_flow_parameters};
#[cfg(feature = "cli")]
pub(crate) use generate::prompt_bytes;
pub use grammar::{Grammar, GrammarCompiler, GrammarError};
pub use kv::{KvType, NoKvType};
use model::Model;
#[cfg(feature = "cli")]
pub(crate) use model::SharedWeights;
pub use pipeline::{GroupError, Identity, Member, PipelineError, ProcessGroup, Stage};
pub use place::{Abort, OnProgress};
#[cfg(feature = "cli")]
pub(crate) use place::{Opened, device_options, open};
use place::{Place, Unloaded};
pub use request::{Answer, Completion, Finish, Request, Speed, StopCause};
pub use requests::{
    BatchOptions, Batcher, BatcherLoad, EndTokens, Event, KvEvent, LogitsHook, LogitsProcessor, Logprobs, Penalties,
    RequestHandle, Server, ServerEvent, ServerRequest, ServerRoom, Statistics, Stream, Submission, Ticket, Token,
    TokenMask, WidthTimes,
};
#[cfg(feature = "cli")]
pub(crate) use requests::{Gain, MOST_PROPOSED, Proposer};
pub use sampling::Sampling;
pub use session::Session;
pub use stop::{EmptyStop, StopTexts};
pub use text::{Text, TextRules};

/// Fewest rows of a prefill chunk; a step with fewer decodes.
const LEAST_CHUNK: usize = limits::MOST_ROWS + 1;

/// Refuses quantised weights that a device does not run, before any are sent to it.
fn check_device(checkpoint: &Checkpoint, device: Device) -> Result<(), EngineError> {
    if let Device::Cpu { .. } = device {
        return Ok(());
    }
    let refused = |(name, matrix): (&str, &Arc<QuantMatrix>)| Some((name.to_owned(), Codes::of(matrix).err()?));
    match checkpoint.quantized_modules().filter_map(refused).min_by(|a, b| a.0.cmp(&b.0)) {
        Some((module, source)) => Err(EngineError::Quantized { module, source }),
        None => Ok(()),
    }
}

/// The note about weights that a device rounds, since its matrices are bf16.
fn rounded(checkpoint: &Checkpoint) -> Option<String> {
    let wider = |dtype: DType| {
        let is = |(_, tensor): &(&str, &WeightTensor)| tensor.dtype() == dtype && tensor.shape().len() > 1;
        (checkpoint.tensors().filter(is).count(), dtype)
    };
    let found: Vec<String> = [wider(DType::F32), wider(DType::F16)]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, dtype)| format!("{count} matrices are {dtype}"))
        .collect();
    (!found.is_empty()).then(|| format!("{}; they are rounded to bf16 on this device", found.join(" and ")))
}

/// A model on a device: loads a Hugging Face folder, continues prompts, serves requests.
///
/// | to | call |
/// |---|---|
/// | load a folder | [`Engine::load`]; [`Engine::new`] for an open [`Checkpoint`] |
/// | encode a text or a conversation | [`Engine::prompt_ids`], [`Engine::chat_ids`] |
/// | continue prompts, and read tokens as they are generated | [`Engine::generate`] |
/// | serve requests from many threads, with batching | [`Engine::server`], [`Engine::batcher`] |
/// | make texts follow a grammar, such as a JSON schema | [`Engine::grammars`] |
/// | get logits for every token of a text | [`Engine::logits`] |
/// | queue a decode step, or a part of one, on a stream of one's own | [`Engine::decode_plan`] |
/// | stop work from another thread | [`Engine::abort_handle`] |
///
/// A [`Device`] is the CPU (the reference machine, exact and slow), one GPU or several that share
/// the model, or the simulator of a GPU. Weights go to a GPU with the first session; kernels are
/// compiled when they are first needed.
///
/// Streaming a text, with sampling:
///
/// ```
/// use tilewright::engine::Text;
/// use tilewright::{Device, Engine, Request, Sampling};
///
/// let engine = Engine::load("models/tiny-llama".as_ref(), Device::cpu())?;
/// let request = Request::new(engine.prompt_ids("In the beginning")?, 16);
/// let mut text = Text::new(engine.tokenizer(), &[])?;
/// let mut pieces = Vec::new();
/// let sampling = Sampling::default().temperature(0.7).top_p(0.9).seed(1);
/// let (completions, _) = engine.generate(&[request], sampling, |_, token| pieces.push(text.push(token)))?;
/// let whole: String = pieces.into_iter().collect::<Result<_, _>>()?;
/// let rest = text.finish()?;
/// assert_eq!(whole + &rest, engine.tokenizer().decode(&completions[0].token_ids)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Every method that can fail returns an [`EngineError`], whose message is one line: what was
/// wrong, where, and what to do. A checkpoint that is not completely understood is refused rather
/// than computed differently.
pub struct Engine {
    checkpoint: Arc<Checkpoint>,
    model: Model,
    device: Device,
    place: Arc<Place>,
    abort: Abort,
    /// Rows of a prefill step on a device; none: those of a decode step.
    prompt_chunk: Option<usize>,
    /// The element type of the KV cache; none: f32 on the CPU, bf16 on a device.
    kv: Option<KvType>,
    /// The sparse-attention flow that chooses the tokens that rows attend to; none: rows attend to
    /// all tokens.
    flow: Option<Arc<FlowSettings>>,
    /// The callback that gets the flow's choices.
    observer: Option<OnChosen>,
}

impl Engine {
    /// Loads a Hugging Face folder.
    ///
    /// # Errors
    /// If the folder is not a checkpoint that is completely understood, or there is no such device.
    pub fn load(dir: &Path, device: Device) -> Result<Engine, EngineError> {
        Engine::load_with(dir, device, Box::new(|_| ()))
    }

    /// Loads a Hugging Face folder and reports to `on_progress` how many bytes of weights have
    /// reached the device.
    ///
    /// # Errors
    /// As [`Engine::load`].
    pub fn load_with(dir: &Path, device: Device, on_progress: OnProgress) -> Result<Engine, EngineError> {
        // Each takes some tenths of a second: a tokenizer is read while a driver starts.
        let (place, checkpoint) = std::thread::scope(|scope| {
            let place = scope.spawn(|| Place::open(device));
            let checkpoint = Checkpoint::open(dir, &mut |_| ());
            (place.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), checkpoint)
        });
        let checkpoint = checkpoint?;
        check_device(&checkpoint, device)?;
        Ok(Engine::of(checkpoint, device, place?, on_progress))
    }

    /// Creates an engine for an open checkpoint. Its weights go to the device with the first
    /// session, and `on_progress` gets how many bytes have arrived.
    ///
    /// # Errors
    /// If there is no such device, or it does not run quantised weights and the checkpoint has
    /// some.
    pub fn new(checkpoint: Checkpoint, device: Device, on_progress: OnProgress) -> Result<Engine, EngineError> {
        check_device(&checkpoint, device)?;
        Ok(Engine::of(checkpoint, device, Place::open(device)?, on_progress))
    }

    fn of(checkpoint: Checkpoint, device: Device, place: Unloaded, on_progress: OnProgress) -> Engine {
        let checkpoint = Arc::new(checkpoint);
        let model = Model::of(&checkpoint);
        let place = Arc::new(place.with(&model.weights, on_progress));
        let abort = place.abort_handle();
        let prompt_chunk = None;
        let kv = None;
        let flow = None;
        let observer = None;
        Engine { checkpoint, model, device, place, abort, prompt_chunk, kv, flow, observer }
    }

    /// Prefills prompts in chunks of `rows` tokens, by a [graph of
    /// launches](tilewright_megakernel::vm::graph).
    ///
    /// With more than 64 rows, or weights whose packed form the graph cannot read, the device holds
    /// all matrices twice.
    ///
    /// # Errors
    /// If `rows` is out of the range that a graph has, or the engine runs on the CPU.
    pub fn with_prompt_chunk(self, rows: usize) -> Result<Engine, EngineError> {
        if self.place.group().is_some() && !self.place.has_graphs_of_stages() {
            return Err(PipelineError::Chunk.into());
        }
        let on_device = matches!(&*self.place, Place::Gpu(_));
        match on_device && (LEAST_CHUNK..=MAX_ROWS).contains(&rows) {
            true => Ok(Engine { prompt_chunk: Some(rows), ..self }),
            false => Err(EngineError::PromptChunk { found: rows, least: LEAST_CHUNK, most: MAX_ROWS }),
        }
    }

    /// Sets how GPUs that share the model all-reduce, in [graphs of
    /// launches](tilewright_megakernel::vm::graph) made from now on.
    ///
    /// # Errors
    /// If the engine does not run on several devices.
    pub fn with_exchange(self, exchange: Exchange) -> Result<Engine, EngineError> {
        match &*self.place {
            Place::Gpu(gpu) if gpu.devices > 1 => gpu.graphs().set_exchange(exchange),
            Place::Gpu(_) | Place::Host { .. } => return Err(EngineError::Exchange),
        }
        Ok(self)
    }

    /// Sets the element type of the KV cache. The default is f32 on the CPU and bf16 on a GPU.
    #[must_use]
    pub fn with_kv(self, kv: KvType) -> Engine {
        Engine { kv: Some(kv), ..self }
    }

    /// The options that programs are lowered with, for sequences of `context` tokens.
    fn lowering(&self, context: usize, sampling: bool) -> LowerOptions {
        let base = lowering::lowering_options(self.place(), context, sampling);
        LowerOptions { kv: self.kv.map_or(base.kv, KvType::dtype), ..base }
    }

    /// Pages of the KV pools that hold that many tokens.
    pub fn kv_pages(&self, tokens: usize) -> usize {
        self.lowering(tokens, false).pages_per_sequence()
    }

    /// Returns a handle that ends the engine's work from another thread: the running step fails as
    /// aborted, later steps run.
    pub fn abort_handle(&self) -> Abort {
        self.abort.clone()
    }

    fn place(&self) -> &Arc<Place> {
        &self.place
    }

    fn model(&self) -> &Model {
        &self.model
    }

    /// The kernels that were compiled so far, each with the start and the duration of its
    /// compilation; none on the CPU.
    pub fn compiled(&self) -> Vec<Compilation> {
        self.place.compiled()
    }

    /// The model's architecture.
    pub fn spec(&self) -> &ModelSpec {
        self.checkpoint.spec()
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.checkpoint.tokenizer()
    }

    /// The device that the model runs on.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The checkpoint: weights, architecture, generation settings, chat template.
    ///
    /// ```
    /// use std::path::Path;
    /// use tilewright::{Device, Engine};
    ///
    /// let engine = Engine::load(Path::new("models/tiny-llama"), Device::cpu())?;
    /// let checkpoint = engine.checkpoint();
    /// assert_eq!((checkpoint.spec().max_positions, checkpoint.eos_ids()), (1024, &[1][..]));
    /// # Ok::<(), tilewright::engine::EngineError>(())
    /// ```
    pub fn checkpoint(&self) -> &Arc<Checkpoint> {
        &self.checkpoint
    }

    /// Notes for the user, one line each: settings of the checkpoint that are not applied, and
    /// weights that the device rounds.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.checkpoint.notes().to_vec();
        if !matches!(self.device, Device::Cpu { .. }) {
            notes.extend(rounded(&self.checkpoint));
        }
        notes
    }

    /// The tokens that end a sequence.
    pub fn ends(&self) -> &[u32] {
        self.checkpoint.eos_ids()
    }

    /// Whether a token ends a sequence.
    pub fn is_end(&self, token: u32) -> bool {
        self.checkpoint.eos_ids().contains(&token)
    }
}
