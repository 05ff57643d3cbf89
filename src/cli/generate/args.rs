//! Options of `generate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use thiserror::Error;

use super::number;
use crate::checkpoint::{GenerationSettings, Scheme};
use crate::cli::generate::{DeviceArgs, FlowArgs};
use crate::cli::group::GroupArgs;
use crate::cli::prompt::{PromptArgs, parse_context};
use crate::cli::steps::StepArgs;
use crate::engine::Penalties;

/// Continue a prompt with a model
///
/// Greedy unless a temperature is given; stops at the model's end-of-sequence token, or before a
/// text of --stop. The text streams to standard output. Ctrl-C ends it with what there is by then,
/// and exit code 130. Several prompts are batched continuously; each of them is a line of JSON when
/// it ends. The processes of torchrun, srun, mpirun or a LeaderWorkerSet share the model's layers
/// over NCCL; rank 0 prints.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright generate --model models/tiny-llama --prompt \"In the beginning\"
  tilewright generate --model DIR --chat --prompt \"Why is the sky blue?\" --temperature 0.7 --top-p 0.9
  tilewright generate --model DIR --prompt-file prompts.txt --each-line --device cuda:0 --prompt-chunk 512")]
pub struct GenerateArgs {
    /// Folder of a Hugging Face checkpoint, or ORG/MODEL in the local cache
    #[arg(long, value_name = "MODEL")]
    pub(super) model: PathBuf,
    #[command(flatten)]
    pub(super) prompt: PromptArgs,
    /// Most tokens to generate
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(super) max_new_tokens: usize,
    /// End before this text, or at the special token of this name; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) stop: Vec<String>,
    /// Sample with this temperature; 0 is greedy
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(super) temperature: f32,
    /// Sample among the K likeliest tokens only
    #[arg(long, value_name = "K")]
    pub(super) top_k: Option<usize>,
    /// Sample among the likeliest tokens that together have probability P
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    pub(super) top_p: f32,
    /// Seed of the sampler: the same seed gives the same text
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(super) seed: u64,
    #[command(flatten)]
    pub(super) device: DeviceArgs,
    #[command(flatten)]
    pub(super) group: GroupArgs,
    #[command(flatten)]
    pub(super) steps: StepArgs,
    #[command(flatten)]
    pub(super) flow: FlowArgs,
    /// Quantise the linear layers while loading: w4a16, w8a16 or fp8
    #[arg(long, value_name = "SCHEME")]
    pub(super) weights: Option<Scheme>,
    /// Give the model at most N positions; runs a model whose attention is in chunks of N or more
    /// tokens
    #[arg(long, value_name = "N", value_parser = parse_context)]
    pub(super) max_context: Option<usize>,
    /// Print one JSON object at the end instead of streaming text
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) batch: BatchArgs,
}

/// A time that no step has.
#[derive(Debug, Error)]
#[error("--step-ms must be a positive number of milliseconds, got {found}")]
pub(super) struct NoTime {
    pub(super) found: f64,
}

/// Log probabilities that would not be printed.
#[derive(Debug, Error)]
#[error("--logprobs needs --json with one prompt, whose text is streamed; add --json, or leave --logprobs out")]
pub(super) struct LogprobsUnseen;

/// Options of a batch of requests.
#[derive(Args)]
pub(super) struct BatchArgs {
    /// Divide positive logits of tokens of prompt and text by R, multiply negative ones [default:
    /// as generation_config.json says, else 1]
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub(super) repetition_penalty: Option<f32>,
    /// Forbid repeated n-grams of N tokens, 0: allow all [default: as generation_config.json says]
    #[arg(long, value_name = "N", value_parser = number::count(0..=number::MOST_TOKENS))]
    pub(super) no_repeat_ngram: Option<usize>,
    /// Subtract P from the logits of tokens that the new text contains
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(super) presence_penalty: f32,
    /// Subtract P from the logits of tokens of the new text, once per occurrence
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(super) frequency_penalty: f32,
    /// Give each token's log probability, and those of the N likeliest; with --json
    #[arg(long, value_name = "N", value_parser = number::count(0..=number::MOST_TOKENS))]
    pub(super) logprobs: Option<usize>,
    /// Propose tokens from what the text repeats, and verify several in one step; the text is the
    /// same
    #[arg(long)]
    pub(super) speculate: bool,
    /// Continue at most N prompts at a time, 1 to 64; more than 16 on a GPU need room for the
    /// weights twice
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) rows: u16,
    /// Cut a prompt's chunks so that a step in which others decode takes about T milliseconds; with
    /// --prompt-chunk
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub(super) step_ms: Option<f64>,
    /// Give every step the same width, so that a text does not depend on the others
    #[arg(long)]
    pub(super) deterministic: bool,
}

impl BatchArgs {
    /// The target time of a step in which requests decode.
    pub(super) fn step_time(&self) -> Result<Option<Duration>, NoTime> {
        let time = |ms: f64| match Duration::try_from_secs_f64(ms / 1e3) {
            Ok(time) if !time.is_zero() => Ok(time),
            _ => Err(NoTime { found: ms }),
        };
        self.step_ms.map(time).transpose()
    }

    /// The penalties: those requested, else those of the checkpoint.
    pub(super) fn penalties(&self, wanted: &GenerationSettings) -> Penalties {
        Penalties {
            repetition: self.repetition_penalty.or(wanted.repetition_penalty).unwrap_or(1.0),
            presence: self.presence_penalty,
            frequency: self.frequency_penalty,
            no_repeat: self.no_repeat_ngram.unwrap_or(wanted.no_repeat_ngram_size),
        }
    }
}
