//! Checkpoints: a Hugging Face folder in, an architecture, its weights and its tokenizer out.
//!
//! | file of the folder | read by | gives |
//! |---|---|---|
//! | `config.json` | [`ModelConfig`] | the [`ModelSpec`], rotation evaluated |
//! | `generation_config.json` (optional) | [`Checkpoint::open`] | the tokens that end a sequence |
//! | `tokenizer.json` | [`Tokenizer`] | text to ids and back |
//! | `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json` (optional) | [`Checkpoint::open`] | special tokens that `tokenizer.json` lacks |
//! | `chat_template.jinja`, or `chat_template` of `tokenizer_config.json` (optional) | [`ChatTemplate`] | messages to text |
//! | `quantize_config.json`, `quant_config.json`, `hf_quant_config.json` (optional) | [`Checkpoint::open`] | how weights are quantised, where `config.json` does not say |
//! | `model.safetensors`, or `model.safetensors.index.json` and its shards | [`Checkpoint::open`] | the tensors |
//!
//! The reader is strict: an unknown key, value or tensor is an error that names it. A model that
//! loads and computes something slightly different is worse than a model that does not load. This
//! module reads files; it does not depend on programs or devices.

mod bounds;
mod chat;
mod config;
mod error;
mod fault;
mod files;
mod generation;
mod guard;
mod header;
mod hint;
mod hub;
mod json;
mod quant;
mod quantize;
mod shards;
mod special;
mod stacked;
mod stream;
mod tensors;
mod tokenizer;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use tilewright_kernels::quant::QuantMatrix;
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::weights::{WeightTensor, Weights};

pub use chat::{ChatError, ChatMessage, ChatTemplate, ChatValue, Conversation, ConversationError};
pub use config::ModelConfig;
#[cfg(feature = "cli")]
pub(crate) use config::value_of_folder;
pub use error::{CheckpointError, Faults, IndexFault, TensorFault, TokenMismatch, TokenizerError};
pub use fault::{ConfigError, ConfigFault};
pub use generation::GenerationSettings;
pub(crate) use guard::catching;
pub use guard::panic_is_handled;
pub use header::HeaderError;
pub use hint::{Hint, UnsupportedFormat};
pub use hub::{HubCache, HubError, hub_name, model_folder};
pub use quant::{PartFault, QuantPlan, StoredModule};
pub use quantize::{NoScheme, QuantizeError, QuantizeReport, Scheme, quantize};
pub use stream::TextStream;
pub use tensors::Progress;
pub use tilewright_graph::models::RealBound;
pub use tokenizer::Tokenizer;

use generation::Generation;
use shards::Shard;
use special::Special;

// Weights are read in place, and the format is little-endian.
const _: () = assert!(cfg!(target_endian = "little"), "checkpoints are read in place on little-endian machines alone");

/// An opened checkpoint, complete and consistent.
///
/// Weights are mapped, not read: a tensor's bytes come from the disk when they are first touched.
/// Tensors ([`Weights::tensor`]) keep the map alive after the checkpoint is dropped. The files must
/// not be changed or truncated meanwhile; replacing one by another under the same name is safe. If
/// a file is truncated, the process gets SIGBUS; the command line turns it into one line and exit
/// code 2. Quantised modules are read while the checkpoint is opened: their codes are unpacked into
/// the canonical form, 4 or 8 bits each ([`Weights::quantized`]).
///
/// ```no_run
/// use tilewright::checkpoint::Checkpoint;
/// let checkpoint = Checkpoint::open("models/tiny-llama".as_ref(), &mut |_| {})?;
/// let ids = checkpoint.tokenizer().encode("In the beginning")?;
/// println!("{} layers, {ids:?}", checkpoint.spec().layers);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Checkpoint {
    spec: ModelSpec,
    eos_ids: Vec<u32>,
    tokenizer: Tokenizer,
    tensors: HashMap<String, WeightTensor>,
    quantized: HashMap<String, Arc<QuantMatrix>>,
    cache_scales: HashMap<String, f32>,
    chat: Option<ChatTemplate>,
    generation: GenerationSettings,
    notes: Vec<String>,
}

impl Checkpoint {
    /// Opens a folder and checks everything in it that can be checked without computing. `progress`
    /// is called for each tensor.
    ///
    /// # Errors
    /// A [`CheckpointError`] that names the file and what is wrong in it.
    pub fn open(dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Checkpoint, CheckpointError> {
        Checkpoint::open_within(dir, None, progress)
    }

    /// Opens a folder for sequences of at most `max_context` tokens. A model whose attention is
    /// limited to a sliding window can be opened if the window holds that many.
    ///
    /// # Errors
    /// Those of [`Checkpoint::open`].
    pub fn open_within(
        dir: &Path,
        max_context: Option<usize>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Checkpoint, CheckpointError> {
        Checkpoint::read(dir, max_context, || shards::open(dir), progress)
    }

    /// Opens a folder with weights that are in memory, by the names that files would have them
    /// under, and checks them as those of files. None is copied.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use std::path::Path;
    /// use tilewright::checkpoint::Checkpoint;
    /// let folder = Path::new("models/tiny-llama");
    /// let tensors: BTreeMap<_, _> =
    ///     Checkpoint::open(folder, &mut |_| ())?.tensors().map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect();
    /// let checkpoint = Checkpoint::with_tensors(folder, tensors, None)?;
    /// assert_eq!(checkpoint.spec().layers, 4);
    /// assert!(Checkpoint::with_tensors(folder, BTreeMap::new(), None).is_err());
    /// # Ok::<(), tilewright::checkpoint::CheckpointError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Checkpoint::open`].
    pub fn with_tensors(
        dir: &Path,
        tensors: BTreeMap<String, WeightTensor>,
        max_context: Option<usize>,
    ) -> Result<Checkpoint, CheckpointError> {
        Checkpoint::read(dir, max_context, || Ok(shards::of_tensors(dir, tensors)), &mut |_| ())
    }

    fn read(
        dir: &Path,
        max_context: Option<usize>,
        weights: impl FnOnce() -> Result<Vec<Shard>, CheckpointError>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Checkpoint, CheckpointError> {
        if !dir.is_dir() {
            return Err(CheckpointError::NotAFolder { path: dir.to_owned(), hint: Hint::for_no_folder(dir) });
        }
        refuse_adapter(dir)?;
        let ModelConfig { spec, eos_ids, quantization } = ModelConfig::of_folder_within(dir, max_context)?;
        let plan = quantization.unwrap_or_default();
        let generation = read_generation(&dir.join("generation_config.json"), &spec)?;
        let mut notes = generation.notes(&eos_ids);
        let eos_ids = generation.eos_ids.unwrap_or(eos_ids);
        let generation = generation.settings;
        let path = dir.join("tokenizer.json");
        let text = files::read(&path)?;
        let wrong = |source| CheckpointError::Tokenizer { path: path.clone(), source };
        let mut tokenizer = Tokenizer::from_json(&text, spec.vocab).map_err(&wrong)?;
        let special = Special::read(dir)?;
        notes.extend(tokenizer.add(&special).map_err(&wrong)?);
        let mut shards = weights()?;
        stacked::split(&mut shards);
        let gathered = tensors::gather(dir, &spec, &plan, &shards, progress)?;
        notes.extend(plan.notes().iter().chain(&gathered.notes).cloned());
        let tensors = gathered.dense;
        let quantized = gathered.quantized;
        let cache_scales = gathered.cache_scales;
        Ok(Checkpoint {
            spec,
            eos_ids,
            tokenizer,
            tensors,
            quantized,
            cache_scales,
            chat: special.chat,
            generation,
            notes,
        })
    }

    /// The architecture.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// The tokens that end a sequence: of `generation_config.json`, or else of `config.json`. There
    /// may be none.
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos_ids
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The chat template, where the checkpoint has one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.chat.as_ref()
    }

    /// Every quantised matrix with the name that its weight would have, in no order.
    pub fn quantized_modules(&self) -> impl ExactSizeIterator<Item = (&str, &Arc<QuantMatrix>)> {
        self.quantized.iter().map(|(name, matrix)| (name.as_str(), matrix))
    }

    /// The settings of `generation_config.json` that apply to every choice of a token.
    pub fn generation(&self) -> &GenerationSettings {
        &self.generation
    }

    /// Notes for the user, one line each: settings of the checkpoint that are not applied.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Every dense tensor with its name, in no order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = (&str, &WeightTensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Reads every page of the weights, so that the first token does not wait for the disk. Worth
    /// it where they fit the memory; `progress` is called every 64 MiB.
    pub fn read_ahead(&self, progress: &mut dyn FnMut(Progress)) {
        const PAGE: usize = 4096;
        const REPORT: usize = 64 << 20;
        let total = self.tensors.values().map(|tensor| tensor.bytes().as_ref().len() as u64).sum();
        let mut done = 0;
        for tensor in self.tensors.values() {
            for chunk in tensor.bytes().as_ref().chunks(REPORT) {
                let sum = chunk.iter().step_by(PAGE).fold(0u8, |sum, &byte| sum.wrapping_add(byte));
                std::hint::black_box(sum);
                done += chunk.len() as u64;
                progress(Progress { done, total });
            }
        }
    }
}

impl Weights for Checkpoint {
    fn tensor(&self, name: &str) -> Option<WeightTensor> {
        self.tensors.get(name).cloned()
    }

    fn quantized(&self, name: &str) -> Option<Arc<QuantMatrix>> {
        self.quantized.get(name).cloned()
    }

    fn cache_scale(&self, pool: &str) -> Option<f32> {
        self.cache_scales.get(pool).copied()
    }
}

/// Reads `generation_config.json`, if the file exists.
fn read_generation(path: &Path, spec: &ModelSpec) -> Result<Generation, CheckpointError> {
    let Some(text) = files::read_optional(path)? else { return Ok(Generation::default()) };
    generation::read(&text, spec.vocab).map_err(|error| match error {
        ConfigError::Json(source) => CheckpointError::Json { path: path.to_owned(), source },
        ConfigError::Faults(faults) => CheckpointError::Config { path: path.to_owned(), faults },
    })
}

/// Refuses a folder whose weights an adapter would change.
fn refuse_adapter(dir: &Path) -> Result<(), CheckpointError> {
    let Some(text) = files::read_optional(&dir.join("adapter_config.json"))? else { return Ok(()) };
    let base = json::parse(&text).ok().and_then(|adapter| Some(adapter.get("base_model_name_or_path")?.to_string()));
    Err(CheckpointError::Adapter { path: dir.to_owned(), base: base.unwrap_or_else(|| "unknown".to_owned()) })
}
