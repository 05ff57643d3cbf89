//! The command line of a worker.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use dynamo_backend_common::{CommonArgs, DisaggregationMode, WorkerConfig};
use thiserror::Error;
use tilewright::engine::{Device, KvType};

use crate::engine::{EngineOptions, TilewrightEngine};

/// Options of a worker.
#[derive(Args, Clone, Debug)]
pub struct WorkerArgs {
    /// Folder of a Hugging Face checkpoint
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Name of the model in requests [default: the folder's name]
    #[arg(long, value_name = "NAME")]
    pub served_model_name: Option<String>,
    /// Device: cpu, cpu:N or sim
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: Device,
    /// Run at most N requests at a time, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub rows: u16,
    /// Give a sequence at most N tokens [default: the model's positions]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_context: Option<usize>,
    /// Tokens that the KV cache holds for all requests together [default: as many as --rows
    /// sequences need, at most 131072 or one sequence]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub kv_tokens: Option<usize>,
    /// Prefill prompts in chunks of N tokens, 17 to 4096, on a GPU
    #[arg(long, value_name = "N")]
    pub prompt_chunk: Option<usize>,
    /// Keep keys and values as bf16 or fp8 [default: f32 on cpu, bf16 elsewhere]
    #[arg(long, value_name = "TYPE")]
    pub kv: Option<KvType>,
    /// Publish no KV events
    #[arg(long)]
    pub no_kv_events: bool,
    /// Let running requests go on for N seconds at SIGTERM; others continue on another worker
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub drain: u32,
    #[command(flatten)]
    common: CommonArgs,
}

/// Options that do not go together.
#[derive(Debug, Error)]
pub enum OptionsError {
    /// The worker has another role than that of all of a request.
    #[error("--disaggregation-mode must be agg: this worker runs prefill and decode of a request, not one of them")]
    Disaggregated,
    /// The folder has no name.
    #[error("{} has no name; give --served-model-name", .0.display())]
    NoName(PathBuf),
}

impl WorkerArgs {
    /// The engine and what Dynamo must know about the worker.
    ///
    /// # Errors
    /// The options do not go together.
    pub fn engine(self) -> Result<(TilewrightEngine, WorkerConfig), OptionsError> {
        let common = self.common;
        if common.disaggregation_mode != DisaggregationMode::Aggregated {
            return Err(OptionsError::Disaggregated);
        }
        let name = match self.served_model_name {
            Some(name) => name,
            None => folder_name(&self.model).ok_or_else(|| OptionsError::NoName(self.model.clone()))?,
        };
        let config = WorkerConfig {
            namespace: common.namespace,
            component: common.component,
            endpoint: common.endpoint,
            model_name: self.model.display().to_string(),
            served_model_name: Some(name.clone()),
            endpoint_types: common.endpoint_types,
            custom_jinja_template: common.custom_jinja_template,
            tool_call_parser: common.dyn_tool_call_parser,
            reasoning_parser: common.dyn_reasoning_parser,
            exclude_tools_when_tool_choice_none: common.exclude_tools_when_tool_choice_none,
            metrics_labels: vec![("model".to_owned(), name.clone())],
            runtime: common.runtime,
            route_to_encoder: common.route_to_encoder,
            enable_rl: common.enable_rl,
            ..WorkerConfig::default()
        };
        let options = EngineOptions {
            model: self.model,
            name,
            device: self.device,
            rows: usize::from(self.rows),
            max_context: self.max_context,
            kv_tokens: self.kv_tokens,
            prompt_chunk: self.prompt_chunk,
            kv: self.kv,
            kv_events: !self.no_kv_events,
            drain: Duration::from_secs(u64::from(self.drain)),
        };
        Ok((TilewrightEngine::new(options), config))
    }
}

fn folder_name(path: &Path) -> Option<String> {
    path.canonicalize().ok()?.file_name()?.to_str().map(str::to_owned)
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("it must be a positive number".to_owned()),
    }
}
