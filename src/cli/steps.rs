//! How an engine runs its steps: options of every command that runs a model.

use clap::Args;

use super::Failure;
use crate::engine::{Engine, Exchange, KvType};

/// How an engine runs its steps.
#[derive(Args)]
pub struct StepArgs {
    /// Prefill prompts in chunks of N tokens, 17 to 4096: fast on a GPU that has room for the
    /// weights twice
    #[arg(long, value_name = "N")]
    prompt_chunk: Option<usize>,
    /// All-reduce between GPUs that share the model, in prefill: own (one-shot or two-shot, by
    /// rows), one-shot, two-shot, or nccl (libnccl.so.2, found by LD_LIBRARY_PATH) [default: own]
    #[arg(long, value_name = "ALGORITHM")]
    exchange: Option<Exchange>,
    /// Keep keys and values as this: bf16, or fp8, e4m3 codes in half the bytes [default: f32 on
    /// cpu, bf16 elsewhere]
    #[arg(long, value_name = "TYPE")]
    kv: Option<KvType>,
}

impl StepArgs {
    /// The engine with these options.
    pub fn apply(&self, mut engine: Engine) -> Result<Engine, Failure> {
        if let Some(kv) = self.kv {
            engine = engine.with_kv(kv);
        }
        if let Some(rows) = self.prompt_chunk {
            engine = engine.with_prompt_chunk(rows)?;
        }
        if let Some(exchange) = self.exchange {
            engine = engine.with_exchange(exchange)?;
        }
        Ok(engine)
    }
}
