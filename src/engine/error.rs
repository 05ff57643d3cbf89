//! Errors of the engine.

use std::sync::Arc;

use thiserror::Error;
use tilewright_codegen::device::DeviceError;
use tilewright_kernels::naive::SamplingError;
use tilewright_kernels::weights::CodesError;
use tilewright_megakernel::lower::LowerError;
use tilewright_megakernel::ops::OperandError;
use tilewright_megakernel::schedule::ScheduleError;
use tilewright_megakernel::vm::reference::StepError;
use tilewright_megakernel::vm::{AccessError, BindError, KvError, LaunchError, LoadError};

use super::pipeline::PipelineError;
use super::stop::EmptyStop;
use crate::checkpoint::{ChatError, CheckpointError, TokenizerError};
use crate::results::ResultsError;
use crate::tuning::SettingsError;

/// Why an engine could not answer. A later version may have further variants: a `match` needs an
/// arm for them.
///
/// ```
/// use tilewright::engine::EngineError;
///
/// fn advice(error: &EngineError) -> &'static str {
///     match error {
///         EngineError::EmptyPrompt | EngineError::NoPrompt => "give a prompt",
///         EngineError::PromptTooLong { .. } | EngineError::PromptText { .. } => "shorten the prompt",
///         _ => "read the message",
///     }
/// }
/// assert_eq!(advice(&EngineError::EmptyPrompt), "give a prompt");
/// assert_eq!(advice(&EngineError::ServerEnded), "read the message");
/// ```
#[derive(Debug, Error)]
#[deny(clippy::exhaustive_enums, reason = "a caller's match must compile with further variants")]
#[non_exhaustive]
#[allow(missing_docs, reason = "the message names every field")]
pub enum EngineError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Chat(#[from] ChatError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(
        "the logits after position {position} are not numbers (NaN), or infinite; the weights are damaged or too large for \
         the arithmetic, or every token is suppressed"
    )]
    NotANumber { position: usize },
    #[error("the model cannot be lowered")]
    Lower(#[from] LowerError),
    #[error("the model's program cannot be scheduled")]
    Schedule(#[from] ScheduleError),
    #[error("the weights do not fit the program")]
    Bind(#[from] BindError),
    #[error("a decode step failed")]
    Step(#[from] StepError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(
        "no kernels are generated for {device} (compute capability {}.{}); the megakernel runs on 8.0 and later, `cpu` runs \
         everywhere", .capability.0, .capability.1
    )]
    NoKernels { device: String, capability: (u32, u32) },
    #[error(
        "weight {module} {source}, which runs on `cpu` alone; give --device cpu, or another form of the checkpoint"
    )]
    Quantized { module: String, source: CodesError },
    #[error(
        "a prompt's chunk is {found} rows; it has {least} to {most} on GPUs (cuda:N, cuda:A-B or sim:SEED), and on cpu none is chosen"
    )]
    PromptChunk { found: usize, least: usize, most: usize },
    #[error("an exchange is between GPUs that share a model: give several, such as cuda:0-1, or none of --exchange")]
    Exchange,
    #[error("the megakernel runs on a GPU: give a device such as cuda:0, or sim for a simulated one")]
    NoGpu,
    #[error("a plan is of one GPU: load the engine on a device such as cuda:0, or sim for a simulated one")]
    PlanDevice,
    #[error("a plan has 1 to {most} rows, {found} were asked for; feed prompts by several steps")]
    PlanRows { found: usize, most: usize },
    #[error("the user's file of tuned settings cannot be used; mend it, or remove it and tune again")]
    Tuned(#[from] ResultsError),
    #[error(transparent)]
    Flow(#[from] tilewright_flow::program::SettingsError),
    #[error("{found} requests are to run at a time; with a flow a step on a device has rows for {most}, ask for fewer")]
    FlowRows { found: usize, most: usize },
    #[error("the settings that were tuned for this model are no options of this build; remove them, or tune again")]
    Settings(#[from] SettingsError),
    #[error("the model cannot be brought to the device")]
    Load(#[from] LoadError),
    #[error("a launch of the megakernel failed")]
    Launch(#[from] LaunchError),
    #[error("the work was aborted")]
    Aborted,
    #[error("a flow's summaries cannot be lowered")]
    Summaries(#[from] OperandError),
    #[error("the KV cache cannot be made")]
    Kv(#[from] KvError),
    #[error("the program has other outputs than the engine reads")]
    Access(#[from] AccessError),
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    #[error("the prompt is empty; give it at least one token")]
    EmptyPrompt,
    #[error("no prompt was given; give at least one")]
    NoPrompt,
    #[error("token {at} of the prompt is {id}, the model's vocabulary has {vocab} tokens")]
    TokenId { at: usize, id: u32, vocab: usize },
    #[error("the prompt has {tokens} tokens, the model has {max} positions; shorten the prompt")]
    PromptTooLong { tokens: usize, max: usize },
    #[error(
        "the prompt has {bytes} bytes; at most {limit} are accepted for the model's {positions} positions, shorten the prompt"
    )]
    PromptText { bytes: usize, limit: u64, positions: usize },
    #[error("the sequence holds {len} tokens, the session was made for {context}")]
    ContextFull { len: usize, context: usize },
    #[error("the KV pools have no free page left of {pages}")]
    OutOfPages { pages: usize },
    #[error(
        "the prompt has {prompt} tokens and {new} new ones are asked for, which is more than the {context} that a sequence \
         may hold here; ask for fewer, or for a larger context"
    )]
    RequestContext { prompt: usize, new: usize, context: usize },
    #[error(
        "a prompt of {prompt} tokens and {new} new ones need {needed} pages of the KV pools, which have {pages}; ask for \
         fewer, or for more pages"
    )]
    RequestPages { prompt: usize, new: usize, needed: usize, pages: usize },
    #[error("the {name} penalty is {found}; it must be {expected}")]
    Penalty { name: &'static str, found: f32, expected: &'static str },
    #[error("min_p is {found}; it must be a number from 0 to 1 (0 changes nothing)")]
    MinP { found: f32 },
    #[error("the bias of token {token} is {found}; it must be a finite number (0 changes nothing)")]
    Bias { token: u32, found: f32 },
    #[error("the request's own rule ends it: {reason}")]
    Processor { reason: String },
    #[error(transparent)]
    Stop(#[from] EmptyStop),
    #[error("{waiting} requests wait for a seat already, which is the most; try again later")]
    QueueFull { waiting: usize },
    #[error("no thread can be started for the server")]
    Thread(#[source] std::io::Error),
    #[error(transparent)]
    OfStep(#[from] Arc<EngineError>),
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    #[error(transparent)]
    OfPipeline(Arc<PipelineError>),
    #[error("the server has ended; start another one")]
    ServerEnded,
    #[error("sequence {found} does not exist, the session has {sequences}")]
    Sequence { found: usize, sequences: usize },
}

impl EngineError {
    /// Whether the work was aborted by an [`Abort`](super::Abort) of the engine.
    pub fn is_abort(&self) -> bool {
        match self {
            EngineError::OfStep(error) => error.is_abort(),
            error => matches!(error, EngineError::Aborted | EngineError::Launch(LaunchError::Aborted { .. })),
        }
    }
}
