//! The engine: a checkpoint and a device; prompts in, tokens out.
//!
//! ```no_run
//! use std::path::Path;
//! use tilewright::engine::{Device, Engine, Request};
//! use tilewright_kernels::naive::Sampling;
//!
//! let engine = Engine::load(Path::new("models/tiny-llama"), Device::cpu())?;
//! let prompt_ids = engine.tokenizer().encode("In the beginning")?;
//! let request = Request { prompt_ids, max_new_tokens: 48 };
//! let (completions, speed) = engine.generate(&[request], &Sampling::GREEDY, |_, _| ())?;
//! println!("{} ({:.0} tokens/s)", engine.tokenizer().decode(&completions[0].token_ids)?, speed.tokens_per_second());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod behind;
mod by_graph;
mod cells;
mod device;
mod error;
mod flow;
mod flow_parameters;
mod generate;
mod kv;
mod machines;
mod model;
mod on_device;
mod pages;
pub mod pipeline;
mod place;
mod requests;
mod session;
pub(crate) mod settings;
mod stop;
mod text;

use std::path::Path;
use std::sync::Arc;

use tilewright_flow::program::FlowSettings;
use tilewright_kernels::gemv::Codes;
use tilewright_kernels::quant::QuantMatrix;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, MAX_ROWS};
use tilewright_megakernel::model::ModelSpec;
pub use tilewright_megakernel::vm::device::Compilation;
pub use tilewright_megakernel::vm::graph::Exchange;
use tilewright_megakernel::weights::WeightTensor;

use crate::checkpoint::{Checkpoint, Tokenizer};
pub use device::{Device, DeviceError};
pub use error::EngineError;
pub use flow::{Chosen, OnChosen};
pub use flow_parameters::{FileError, ParametersError, flow_parameters_file, read_flow_parameters};
pub use generate::{Answer, Completion, Finish, Request, Speed};
pub use kv::{KvType, NoKvType};
pub(crate) use model::Bare;
use model::Model;
pub use pipeline::{Identity, Meeting, PipelineError, Rows, Seat};
pub use place::{Abort, OnProgress};
pub(crate) use place::{Opened, device_options, open};
use place::{Place, Unloaded};
pub use requests::{
    BatchOptions, Batcher, Event, Logprobs, Penalties, Server, ServerEvent, Statistics, Stream, Submission, Ticket,
    Token, WidthTimes,
};
pub(crate) use requests::{Gain, MOST_PROPOSED, Proposer};
pub use session::{Row, Run, Session};
pub use stop::{EmptyStop, StopTexts};
pub(crate) use text::Text;

/// Fewest rows of a prompt's chunk: fewer are a step that decodes.
const LEAST_CHUNK: usize = machines::MOST_ROWS + 1;

/// Refuses quantised weights that a device does not run, before anything is sent to it.
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

/// What a device, whose matrices are bf16, rounds of a checkpoint.
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

/// A loaded model on a device.
pub struct Engine {
    checkpoint: Arc<Checkpoint>,
    model: Model,
    device: Device,
    place: Arc<Place>,
    abort: Abort,
    /// Rows of a step that feeds a prompt on a device; none: those of a step that decodes.
    prompt_chunk: Option<usize>,
    /// How keys and values are kept; none: f32 on the host, bf16 on a device.
    kv: Option<KvType>,
    /// What chooses the tokens that rows attend to; none: they attend to all.
    flow: Option<Arc<FlowSettings>>,
    /// Who is told what the flow chose.
    observer: Option<OnChosen>,
    /// How rows come from and go to other ranks.
    rows: Rows,
}

impl Engine {
    /// Loads a Hugging Face folder.
    ///
    /// # Errors
    /// If the folder is not a checkpoint that is completely understood, or there is no such device.
    pub fn load(dir: &Path, device: Device) -> Result<Engine, EngineError> {
        Engine::load_with(dir, device, Box::new(|_| ()))
    }

    /// The same; `on_progress` is told how far the weights are on their way to a device.
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

    /// An engine for a checkpoint that is open. Its weights go to the device with the first session, and `on_progress`
    /// is told how far they are.
    ///
    /// # Errors
    /// If there is no such device, or it does not run quantised weights and the checkpoint has some.
    pub fn new(checkpoint: Checkpoint, device: Device, on_progress: OnProgress) -> Result<Engine, EngineError> {
        check_device(&checkpoint, device)?;
        Ok(Engine::of(checkpoint, device, Place::open(device)?, on_progress))
    }

    fn of(checkpoint: Checkpoint, device: Device, place: Unloaded, on_progress: OnProgress) -> Engine {
        let checkpoint = Arc::new(checkpoint);
        let model = Model::of(&checkpoint);
        let place = Arc::new(place.with(&model.weights, on_progress));
        let (abort, prompt_chunk, kv, flow, observer) = (Abort::default(), None, None, None, None);
        Engine { checkpoint, model, device, place, abort, prompt_chunk, kv, flow, observer, rows: Rows::Tcp }
    }

    /// Feeds prompts of sessions in chunks of so many tokens, by a [graph of launches](tilewright_megakernel::vm::graph). Where they are more than
    /// 64, or the weights cannot be read as they are packed, all matrices then lie on the device twice.
    ///
    /// # Errors
    /// If there are fewer rows than that is for, or more than a program has, or the engine runs on the host.
    pub fn with_prompt_chunk(self, rows: usize) -> Result<Engine, EngineError> {
        if self.place.world().is_some() && !self.place.has_graphs_of_stages() {
            return Err(PipelineError::Chunk.into());
        }
        let on_device = matches!(&*self.place, Place::Gpu(_));
        match on_device && (LEAST_CHUNK..=MAX_ROWS).contains(&rows) {
            true => Ok(Engine { prompt_chunk: Some(rows), ..self }),
            false => Err(EngineError::PromptChunk { found: rows, least: LEAST_CHUNK, most: MAX_ROWS }),
        }
    }

    /// Adds up by that what devices that share the model have each, in [graphs of launches](tilewright_megakernel::vm::graph) that are made from now on.
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

    /// Keeps keys and values of sessions as that type; else they are f32 on the host and bf16 on a device.
    #[must_use]
    pub fn with_kv(self, kv: KvType) -> Engine {
        Engine { kv: Some(kv), ..self }
    }

    /// What programs are lowered with, for sequences of that many tokens.
    fn lowering(&self, context: usize, sampling: bool) -> LowerOptions {
        let base = session::lowering_options(self.place(), context, sampling);
        LowerOptions { kv: self.kv.map_or(base.kv, KvType::dtype), ..base }
    }

    /// What ends the engine's work from another thread: a step that runs then fails as aborted, and later ones run.
    pub fn abort_handle(&self) -> Abort {
        self.abort.clone()
    }

    fn place(&self) -> &Arc<Place> {
        &self.place
    }

    fn model(&self) -> &Model {
        &self.model
    }

    /// Kernels that were compiled so far, each with when that began and how long it took the driver; none on the host.
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

    /// Where it runs.
    pub fn device(&self) -> Device {
        self.device
    }

    pub(crate) fn checkpoint(&self) -> &Arc<Checkpoint> {
        &self.checkpoint
    }

    /// What the user should know of how the model is computed here, one line each: what the checkpoint wants and does not
    /// get, and what a device rounds.
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
