//! The implementation of Dynamo's `LLMEngine`: loads a model, runs requests, reports KV events.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use dynamo_backend_common::{
    DynamoError, EngineConfig, GenerateContext, KvEventPublisher, KvEventSource, LLMEngine, LlmRegistration,
    MetricsBindings, MetricsCtx, PreprocessedRequest,
};
use futures::stream::BoxStream;
use tilewright::engine::{
    BatchOptions, BatcherLoad, Device, Engine, EngineError, Grammar, GrammarCompiler, GrammarError, KvType, LogitsHook,
    Server,
};
use tokio_util::sync::CancellationToken;

use crate::error::{RequestError, WorkerError};
use crate::kv_events::{self, KvEventFeed};
use crate::load::{self, Loaded};
use crate::output::{Chunk, Running, Watched};
use crate::request::ModelFacts;

/// Most tokens of the KV cache unless a number is given, or one sequence has more.
const MOST_KV_TOKENS: usize = 131_072;
/// Longest time to wait for the engine's thread at the end.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two looks at the requests that still run at the end.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// How a worker runs a model.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The folder of the checkpoint.
    pub model: PathBuf,
    /// The name of the model in requests.
    pub name: String,
    /// The device.
    pub device: Device,
    /// Most requests that run at a time.
    pub rows: usize,
    /// Most tokens of a sequence; the model's own limit without it.
    pub max_context: Option<usize>,
    /// Tokens that the KV cache holds; without it, what `rows` sequences need, at most 131,072.
    pub kv_tokens: Option<usize>,
    /// Tokens of a chunk of a prompt, on a GPU.
    pub prompt_chunk: Option<usize>,
    /// The type of keys and values.
    pub kv: Option<KvType>,
    /// Whether KV events are published.
    pub kv_events: bool,
    /// Longest time for which running requests go on once the worker is told to end.
    pub drain: Duration,
}

/// A model that Dynamo drives. It is loaded by `start` and dropped by `cleanup`.
pub struct TilewrightEngine {
    options: EngineOptions,
    model: Mutex<Option<Arc<Model>>>,
    publisher: Arc<OnceLock<Arc<KvEventPublisher>>>,
    closing: CancellationToken,
}

/// A loaded model and the thread that runs its requests.
struct Model {
    engine: Engine,
    server: Server,
    context: usize,
    grammars: OnceLock<Result<GrammarCompiler, GrammarError>>,
}

impl TilewrightEngine {
    /// An engine that has loaded nothing yet.
    pub fn new(options: EngineOptions) -> TilewrightEngine {
        TilewrightEngine {
            options,
            model: Mutex::new(None),
            publisher: Arc::default(),
            closing: CancellationToken::new(),
        }
    }

    fn model(&self) -> Result<Arc<Model>, WorkerError> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(WorkerError::NotRunning)
    }
}

impl EngineOptions {
    /// Loads the model and starts its thread.
    fn load(&self, publisher: &Arc<OnceLock<Arc<KvEventPublisher>>>) -> Result<Model, EngineError> {
        let mut engine = Engine::load(&self.model, self.device)?;
        if let Some(kv) = self.kv {
            engine = engine.with_kv(kv);
        }
        if let Some(rows) = self.prompt_chunk {
            engine = engine.with_prompt_chunk(rows)?;
        }
        engine.notes().iter().for_each(|note| tracing::info!("{note}"));
        let positions = engine.spec().max_positions;
        let context = self.max_context.map_or(positions, |most| most.min(positions));
        let wanted = self.rows.saturating_mul(context).min(MOST_KV_TOKENS.max(context));
        let tokens = self.kv_tokens.unwrap_or(wanted).max(1);
        let pages = Some(engine.kv_pages(tokens));
        let batch = BatchOptions { rows: self.rows, pages, ..BatchOptions::for_context(context) };
        let server = match self.kv_events {
            true => {
                let mut feed = KvEventFeed::new(publisher);
                engine.server_with_kv_events(&batch, move |events| feed.publish(events))?
            }
            false => engine.server(&batch)?,
        };
        Ok(Model { engine, server, context, grammars: OnceLock::new() })
    }
}

impl Model {
    /// What Dynamo registers.
    fn registration(&self, options: &EngineOptions) -> EngineConfig {
        let load = self.server.load();
        EngineConfig {
            model: options.model.display().to_string(),
            served_model_name: Some(options.name.clone()),
            llm: Some(LlmRegistration {
                context_length: u32::try_from(self.context).ok(),
                kv_cache_block_size: u32::try_from(self.server.page_tokens()).ok(),
                total_kv_blocks: Some(load.pages as u64),
                max_num_seqs: Some(load.seats as u64),
                ..LlmRegistration::default()
            }),
            ..EngineConfig::default()
        }
    }

    /// Compiles a grammar; this may take a while.
    fn compile(&self, grammar: &Grammar) -> Result<LogitsHook, RequestError> {
        let compiler = self.grammars.get_or_init(|| self.engine.grammars()).as_ref();
        // The error has no source, and is not cloned.
        let compiler = compiler.map_err(|error| GrammarError::Refused(error.to_string()))?;
        Ok(compiler.compile(grammar)?)
    }
}

impl Loaded for Model {
    fn load(&self) -> BatcherLoad {
        self.server.load()
    }
}

#[async_trait]
impl LLMEngine for TilewrightEngine {
    async fn start(&self, _worker_id: u64) -> Result<EngineConfig, DynamoError> {
        let (options, publisher) = (self.options.clone(), Arc::clone(&self.publisher));
        tracing::info!(model = %options.model.display(), device = %options.device, "loading");
        let loaded = tokio::task::spawn_blocking(move || options.load(&publisher)).await;
        let loaded = loaded.map_err(|_| WorkerError::LoaderEnded)?;
        let path = || self.options.model.clone();
        let model = loaded.map_err(|error| WorkerError::Load { path: path(), source: Box::new(error) })?;
        let registration = model.registration(&self.options);
        *self.model.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(model));
        Ok(registration)
    }

    async fn generate(
        &self,
        request: PreprocessedRequest,
        context: GenerateContext,
    ) -> Result<BoxStream<'static, Chunk>, DynamoError> {
        let model = self.model()?;
        let facts = ModelFacts { checkpoint: model.engine.checkpoint(), context: model.context };
        let translated = facts.translate(&request)?;
        let mut submission = translated.submission;
        if let Some(grammar) = translated.grammar {
            let compiling = Arc::clone(&model);
            let compiled = tokio::task::spawn_blocking(move || compiling.compile(&grammar)).await;
            submission.processor = Some(compiled.map_err(|_| WorkerError::LoaderEnded)??);
        }
        let watched = Watched { context: context.inner_arc(), closing: self.closing.clone() };
        let running = Running::submit(&model.server, submission, model.engine.ends(), watched).await?;
        Ok(running.into_stream())
    }

    /// Waits for requests to end, for a time. Others are ended by an error upon which the frontend
    /// continues them on another worker.
    async fn cleanup(&self) -> Result<(), DynamoError> {
        let Some(model) = self.model.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        let begun = Instant::now();
        let is_busy = |load: BatcherLoad| load.running + load.waiting > 0;
        while is_busy(model.server.load()) && begun.elapsed() < self.options.drain {
            tokio::time::sleep(DRAIN_INTERVAL).await;
        }
        self.closing.cancel();
        // A request that is being submitted holds the model; its thread ends with it.
        if let Some(model) = Arc::into_inner(model) {
            let ended = tokio::task::spawn_blocking(move || model.server.end(END_TIMEOUT)).await;
            if !ended.unwrap_or(false) {
                tracing::warn!("requests still run; the process ends without them");
            }
        }
        Ok(())
    }

    async fn kv_event_sources(&self) -> Result<Vec<KvEventSource>, DynamoError> {
        Ok(if self.options.kv_events { vec![kv_events::source(&self.publisher)] } else { Vec::new() })
    }

    async fn setup_metrics(&self, _context: MetricsCtx<'_>) -> Result<MetricsBindings, DynamoError> {
        Ok(load::bindings(Arc::downgrade(&self.model()?)))
    }

    async fn health_check_payload(&self) -> Result<Option<serde_json::Value>, DynamoError> {
        Ok(Some(serde_json::json!({
            "token_ids": [0],
            "stop_conditions": { "max_tokens": 1 },
            "sampling_options": { "temperature": 0.0 },
            "output_options": {},
        })))
    }
}
