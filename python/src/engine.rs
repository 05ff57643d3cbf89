//! A model on a device: requests from any Python thread, batched on a thread of the engine's own,
//! which never holds Python's lock.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tilewright::checkpoint::{ChatValue, Checkpoint, Conversation, Scheme, model_folder};
use tilewright::engine::{
    EndTokens, Finish, Grammar, GrammarCompiler, KvType, Logprobs, Penalties, RequestHandle, Server, ServerEvent,
    ServerRequest, ServerRoom, Submission, TextRules, first_gpu,
};
use tilewright::megakernel::weights::WeightTensor;
use tilewright::{Device, Sampling};

use crate::error::{EngineError, engine_error};
use crate::plan::{Asked, Plan};
use crate::tensors::{Named, weights};

/// How often a thread that waits for a token looks whether Python was interrupted.
const SIGNALS: Duration = Duration::from_millis(50);
/// Most requests that run at a time.
const MOST_ROWS: usize = 64;

/// A model on a device.
#[pyclass(frozen, module = "tilewright._native")]
pub struct Engine {
    engine: tilewright::Engine,
    server: Mutex<Option<Server>>,
    grammars: Mutex<Option<GrammarCompiler>>,
}

/// What a model is loaded with.
#[derive(FromPyObject)]
pub struct EngineOptions {
    device: Option<String>,
    rows: usize,
    context: Option<usize>,
    kv_tokens: Option<usize>,
    prompt_chunk: Option<usize>,
    kv: Option<String>,
    weights: Option<String>,
    deterministic: bool,
}

/// What is asked for a prompt, besides the prompt.
#[derive(FromPyObject)]
pub struct Request {
    max_new_tokens: usize,
    temperature: f32,
    top_k: Option<usize>,
    top_p: f32,
    min_p: f32,
    seed: u64,
    row: u32,
    stop: Vec<String>,
    stop_token_ids: Vec<u32>,
    ignore_eos: bool,
    min_new_tokens: usize,
    repetition_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    no_repeat_ngram: usize,
    logit_bias: Vec<(u32, f32)>,
    logprobs: Option<usize>,
    priority: i32,
    timeout: Option<f64>,
    speculate: bool,
    grammar: Option<(String, String)>,
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (model, options, tensors=None))]
    fn new(py: Python<'_>, model: PathBuf, options: EngineOptions, tensors: Option<Vec<Named>>) -> PyResult<Engine> {
        let tensors = tensors.map(weights).transpose()?;
        py.detach(|| Engine::load(&model, &options, tensors))
    }

    /// Token ids of a text, with the special tokens that the tokenizer adds.
    fn encode(&self, text: &str) -> PyResult<Vec<u32>> {
        self.engine.prompt_ids(text).map_err(engine_error)
    }

    /// The text of token ids.
    fn decode(&self, ids: Vec<u32>) -> PyResult<String> {
        self.engine.tokenizer().decode(&ids).map_err(engine_error)
    }

    /// Token ids of a conversation, given as JSON, by the model's chat template with variables of
    /// its own.
    fn chat_ids(&self, conversation: &str, variables: Vec<(String, String)>) -> PyResult<Vec<u32>> {
        let mut conversation = Conversation::from_json(conversation).map_err(engine_error)?;
        for (name, json) in variables {
            let value = ChatValue::from_json(&json).map_err(engine_error)?;
            conversation = conversation.with_variable(name, value);
        }
        self.engine.chat_ids(&conversation).map_err(engine_error)
    }

    /// Logits after every token, f32, row-major.
    fn logits<'py>(&self, py: Python<'py>, ids: Vec<u32>) -> PyResult<Bound<'py, PyBytes>> {
        let logits = py.detach(|| self.engine.logits(&ids)).map_err(engine_error)?;
        let bytes: Vec<u8> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
        Ok(PyBytes::new(py, &bytes))
    }

    /// Submits a prompt.
    fn submit(&self, py: Python<'_>, prompt: Vec<u32>, request: Request) -> PyResult<Stream> {
        py.detach(|| self.send(prompt, request))
    }

    /// A decode step of the model, or of a part of it.
    fn plan(&self, py: Python<'_>, asked: Asked) -> PyResult<Plan> {
        py.detach(|| Plan::new(&self.engine, asked))
    }

    #[getter]
    fn vocabulary(&self) -> usize {
        self.engine.spec().vocab
    }

    #[getter]
    fn positions(&self) -> usize {
        self.engine.spec().max_positions
    }

    #[getter]
    fn device(&self) -> String {
        self.engine.device().to_string()
    }

    #[getter]
    fn end_tokens(&self) -> Vec<u32> {
        self.engine.ends().to_vec()
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.engine.notes()
    }

    /// Requests that run, that wait, and pages of the cache that are held and that there are.
    fn load_now(&self) -> PyResult<(usize, usize, usize, usize)> {
        self.with_server(|server| {
            let load = server.load();
            Ok((load.running, load.waiting, load.held_pages, load.pages))
        })
    }

    /// Ends the engine once its requests are gone; whether it did within `seconds`.
    fn close(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let most = duration(seconds)?;
        let server = lock(&self.server).take();
        Ok(py.detach(|| server.is_none_or(|server| server.end(most))))
    }
}

impl Engine {
    fn load(
        model: &std::path::Path,
        options: &EngineOptions,
        tensors: Option<BTreeMap<String, WeightTensor>>,
    ) -> PyResult<Engine> {
        let device = match &options.device {
            Some(name) => name.parse().map_err(engine_error)?,
            None => first_gpu().map_or_else(|_| Device::cpu(), |_| Device::Cuda { ordinal: 0 }),
        };
        let folder = model_folder(model).map_err(engine_error)?;
        let checkpoint = match tensors {
            Some(tensors) => Checkpoint::with_tensors(&folder, tensors, options.context),
            None => Checkpoint::open_within(&folder, options.context, &mut |_| ()),
        };
        let mut checkpoint = checkpoint.map_err(engine_error)?;
        if let Some(name) = &options.weights {
            let scheme: Scheme = name.parse().map_err(engine_error)?;
            checkpoint = checkpoint.quantised(scheme, None).map_err(engine_error)?;
        }
        let mut engine = tilewright::Engine::new(checkpoint, device, Box::new(|_| ())).map_err(engine_error)?;
        if let Some(name) = &options.kv {
            engine = engine.with_kv(name.parse::<KvType>().map_err(engine_error)?);
        }
        if let Some(rows) = options.prompt_chunk {
            engine = engine.with_prompt_chunk(rows).map_err(engine_error)?;
        }
        if !(1..=MOST_ROWS).contains(&options.rows) {
            let found = options.rows;
            return Err(EngineError::new_err(format!("rows is {found}; 1 to {MOST_ROWS} requests run at a time")));
        }
        let room = ServerRoom { rows: options.rows, context: options.context, kv_tokens: options.kv_tokens };
        let mut batch = engine.batch_options(room);
        batch.deterministic = options.deterministic;
        let server = engine.server(&batch).map_err(engine_error)?;
        Ok(Engine { engine, server: Mutex::new(Some(server)), grammars: Mutex::default() })
    }

    fn with_server<T>(&self, run: impl FnOnce(&Server) -> PyResult<T>) -> PyResult<T> {
        match lock(&self.server).as_ref() {
            Some(server) => run(server),
            None => Err(EngineError::new_err("the engine is closed")),
        }
    }

    fn send(&self, prompt: Vec<u32>, request: Request) -> PyResult<Stream> {
        let request = self.server_request(prompt, request)?;
        let (events, heard) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        let waker = Waker::default();
        let delivery = Delivery { events: Some(events), waker: waker.clone() };
        let deliver = move |event| delivery.deliver(event);
        // A caller that has gone drops the handle, which cancels the request.
        self.with_server(|server| Ok(server.post(request, deliver, move |handle| _ = answer.send(handle))))?;
        let ended = |_| EngineError::new_err("the engine's thread has ended; load the model again");
        let handle = answered.recv().map_err(ended)?.map_err(engine_error)?;
        Ok(Stream { handle, events: Mutex::new(heard), waker, reader: OnceLock::new() })
    }

    fn server_request(&self, prompt: Vec<u32>, request: Request) -> PyResult<ServerRequest> {
        let mut sampling = Sampling::default().temperature(request.temperature).top_p(request.top_p).seed(request.seed);
        if let Some(top_k) = request.top_k {
            sampling = sampling.top_k(top_k);
        }
        let processor = match request.grammar {
            Some((kind, text)) => Some(self.grammar(&kind, text)?),
            None => None,
        };
        let submission = Submission {
            sampling,
            row: request.row,
            penalties: Penalties {
                repetition: request.repetition_penalty,
                presence: request.presence_penalty,
                frequency: request.frequency_penalty,
                no_repeat: request.no_repeat_ngram,
            },
            bias: request.logit_bias,
            min_p: request.min_p,
            processor,
            ends: EndTokens {
                ignore_model: request.ignore_eos,
                tokens: request.stop_token_ids,
                min_new_tokens: request.min_new_tokens,
            },
            logprobs: request.logprobs,
            priority: request.priority,
            deadline: request.timeout.map(duration).transpose()?,
            speculate: request.speculate,
            ..Submission::from(tilewright::Request::new(prompt, request.max_new_tokens))
        };
        let text = TextRules { stop: request.stop, ..TextRules::default() };
        Ok(ServerRequest { submission, text, most_waiting: None })
    }

    fn grammar(&self, kind: &str, text: String) -> PyResult<tilewright::engine::LogitsHook> {
        let grammar = match kind {
            "json" => Grammar::JsonObject,
            "json_schema" => Grammar::JsonSchema(serde_json::from_str(&text).map_err(engine_error)?),
            "regex" => Grammar::Regex(text),
            "choice" => Grammar::Choice(serde_json::from_str(&text).map_err(engine_error)?),
            "lark" => Grammar::Lark(text),
            other => return Err(EngineError::new_err(format!("there is no grammar of the kind {other}"))),
        };
        let mut compiler = lock(&self.grammars);
        if compiler.is_none() {
            *compiler = Some(self.engine.grammars().map_err(engine_error)?);
        }
        let compiler = compiler.as_ref().ok_or_else(|| EngineError::new_err("no compiler of grammars"))?;
        compiler.compile(&grammar).map_err(engine_error)
    }
}

/// The end of a socket that wakes an event loop, where one waits.
#[derive(Clone, Default)]
struct Waker(Arc<Mutex<Option<UnixStream>>>);

impl Waker {
    fn wake(&self) {
        if let Some(mut socket) = lock(&self.0).as_ref() {
            // A full socket has a byte already, which is enough.
            _ = socket.write(&[1]);
        }
    }
}

/// The server's end of a stream. Its last act is to wake the loop: no event comes any more.
struct Delivery {
    events: Option<Sender<ServerEvent>>,
    waker: Waker,
}

impl Delivery {
    fn deliver(&self, event: ServerEvent) -> ControlFlow<()> {
        let is_heard = self.events.as_ref().is_some_and(|events| events.send(event).is_ok());
        self.waker.wake();
        if is_heard { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.events = None;
        self.waker.wake();
    }
}

/// The events of a request as they arrive. Dropping it cancels the request.
#[pyclass(frozen, module = "tilewright._native")]
pub struct Stream {
    handle: RequestHandle,
    events: Mutex<Receiver<ServerEvent>>,
    waker: Waker,
    reader: OnceLock<UnixStream>,
}

/// A token, or the end of a request.
#[pyclass(frozen, get_all, module = "tilewright._native")]
pub struct Token {
    /// The token; none at the end.
    id: Option<u32>,
    /// The text that it makes certain, or that was held back until the end.
    text: String,
    /// Its log probability and those of the likeliest, where they were asked for.
    logprobs: Option<(f32, Vec<(u32, f32)>)>,
    /// All new tokens, at the end.
    token_ids: Vec<u32>,
    /// Why the request ended, at the end.
    finish: Option<&'static str>,
}

#[pymethods]
impl Stream {
    /// The next event; none after the last. Waits with Python's lock released.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Token>> {
        loop {
            match py.detach(|| lock(&self.events).recv_timeout(SIGNALS)) {
                Ok(event) => return token(event).map(Some),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            }
        }
    }

    /// The next event if there is one: whether there will be one, and the event.
    fn poll(&self) -> PyResult<(bool, Option<Token>)> {
        if let Some(mut reader) = self.reader.get() {
            // What arrives from here on wakes again.
            let mut bytes = [0; 64];
            while matches!(reader.read(&mut bytes), Ok(1..)) {}
        }
        match lock(&self.events).try_recv() {
            Ok(event) => token(event).map(|token| (true, Some(token))),
            Err(TryRecvError::Disconnected) => Ok((false, None)),
            Err(TryRecvError::Empty) => Ok((true, None)),
        }
    }

    /// A file that can be read when there may be an event, for an event loop.
    fn fileno(&self) -> PyResult<i32> {
        if let Some(reader) = self.reader.get() {
            return Ok(reader.as_raw_fd());
        }
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        let reader = self.reader.get_or_init(|| reader);
        *lock(&self.waker.0) = Some(writer);
        // Events that came before woke no loop.
        self.waker.wake();
        Ok(reader.as_raw_fd())
    }

    /// Ends the request.
    fn cancel(&self) {
        self.handle.cancel();
    }
}

fn token(event: ServerEvent) -> PyResult<Token> {
    let pair = |logprobs: Logprobs| (logprobs.chosen, logprobs.top);
    match event {
        ServerEvent::Token { token, text } => Ok(Token {
            id: Some(token.id),
            text,
            logprobs: token.logprobs.map(pair),
            token_ids: Vec::new(),
            finish: None,
        }),
        ServerEvent::End { completion, text } => Ok(Token {
            id: None,
            text,
            logprobs: None,
            token_ids: completion.token_ids,
            finish: Some(match completion.finish {
                Finish::Stop(_) => "stop",
                Finish::Length => "length",
                Finish::Positions => "positions",
                Finish::Cancelled => "cancelled",
                Finish::Deadline => "timeout",
            }),
        }),
        ServerEvent::Fault(error) => Err(engine_error(&*error)),
    }
}

fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{seconds} is no number of seconds: {error}")))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
