//! Options and limits of decode benches, and the shapes of their rows.

use clap::Args;
use thiserror::Error;
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::vm::MAX_STEPS;
use tilewright_megakernel::vm::graph::Exchange;

use crate::cli::Failure;
use crate::cli::number::{self, MOST_TOKENS};
use crate::cli::subject::SubjectArgs;
use crate::engine::KvType;
use crate::tuning::Settings;

/// Settings for timing and checking.
#[derive(Args)]
pub struct DecodeArgs {
    /// Tokens that are timed, the last ones of the context
    #[arg(long, value_name = "N", default_value_t = TOKENS, value_parser = number::count(1..=MAX_STEPS as u64))]
    pub tokens: usize,
    /// Steps whose logits are compared with those of the reference machine; 0 for none
    #[arg(long, value_name = "N", default_value_t = CHECKED, value_parser = number::count(0..=MOST_TOKENS))]
    pub check: usize,
    /// Decode the whole context N times from the first position on; every time must give the same
    /// tokens
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::count(1..=1 << 20))]
    pub(super) repeat: usize,
    #[command(flatten)]
    pub graph: GraphArgs,
    /// Settings of attention in a graph of launches (tile, stages, staying, splits) or of a product
    /// by its weights (4096x14336.in_flight=4); repeat it to time several
    #[arg(long, value_name = "NAME=VALUE ..")]
    pub launch_settings: Vec<Settings>,
    /// Draw keys and values of the tokens before the timed ones instead of decoding them
    #[arg(long)]
    pub(super) drawn_history: bool,
}

/// Options of graphs of launches.
#[derive(Args, Default)]
pub struct GraphArgs {
    /// Print the times of the launches of a step by kernel, if a step is a graph of launches (more
    /// than 16 rows)
    #[arg(long)]
    pub launches: bool,
    /// All-reduce between GPUs that share a model, in graphs of launches: own (one-shot or
    /// two-shot, by rows), one-shot, two-shot, or nccl (libnccl.so.2, found by LD_LIBRARY_PATH)
    /// [default: own]
    #[arg(long, value_name = "ALGORITHM")]
    pub(super) exchange: Option<Exchange>,
}

impl GraphArgs {
    pub fn exchange(&self) -> Exchange {
        self.exchange.unwrap_or(Exchange::Own)
    }
}

/// Tokens that are timed, by default.
pub(super) const TOKENS: usize = 200;

/// Steps that are checked, by default.
pub(super) const CHECKED: usize = 2;

impl Default for DecodeArgs {
    fn default() -> DecodeArgs {
        DecodeArgs {
            tokens: TOKENS,
            check: CHECKED,
            repeat: 1,
            graph: GraphArgs::default(),
            launch_settings: Vec::new(),
            drawn_history: false,
        }
    }
}

/// Limit of the relative error of logits: bf16 operands, f32 sums.
pub(super) const LIMIT: f64 = 2e-2;
/// Limit of the relative error of logits of mixtures of experts: where the router's logits of two
/// experts are close, rounding decides which of them is chosen.
pub(super) const ROUTED_LIMIT: f64 = 2e-1;

/// The limit of the relative error of a model's logits.
pub(super) fn limit(spec: &ModelSpec) -> f64 {
    if spec.experts.is_some() { ROUTED_LIMIT } else { LIMIT }
}

#[derive(Debug, Error)]
pub(super) enum DecodeError {
    #[error(
        "step {step}: the logits are off by {error:.1e} of their norm, and {limit:.0e} is allowed; the kernel is wrong"
    )]
    Wrong { step: usize, error: f64, limit: f64 },
    #[error("run {run}: row {row} has token {found} at position {position}, and the previous run has {expected}")]
    Differs { run: usize, row: usize, position: usize, found: u32, expected: u32 },
    #[error("--tokens is {tokens} and --context {context}; at most the whole context is timed, so give fewer --tokens")]
    Tokens { tokens: usize, context: usize },
}

/// Name of the extent of quantised weights: bits of a code.
pub(super) const WEIGHT_BITS: &str = "weight_bits";

/// The shape of a row.
pub(super) fn shape(spec: &ModelSpec, subject: &SubjectArgs) -> Result<Vec<(&'static str, u64)>, Failure> {
    let rows = subject.rows();
    let context = subject.context();
    let shape = [("batch", rows), ("context", context), ("hidden", spec.hidden), ("layers", spec.layers)];
    let bits = subject.forms()?.bits().map(|bits| (WEIGHT_BITS, bits));
    let cache = (subject.kv() == KvType::Fp8).then_some(("kv_bits", 8));
    let flow = subject.flow()?.map(|flow| ("flow_blocks", flow.budget().selected(usize::MAX)));
    Ok(shape.into_iter().chain(bits).chain(cache).chain(flow).map(|(name, extent)| (name, extent as u64)).collect())
}

/// Timed launches that feed tokens back.
pub(super) const LAUNCHES: usize = 5;
