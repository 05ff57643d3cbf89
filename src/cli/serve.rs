//! `tilewright serve`: a model behind OpenAI's HTTP endpoints.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::thread;
use std::time::Duration;

use clap::Args;
use thiserror::Error;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::LevelFilter;

use super::Failure;
use super::device::DeviceArgs;
use super::group::{self, GroupArgs, Role};
use super::input::{self, InputError};
use super::interrupt;
use super::load::LoadOptions;
use super::number;
use super::paint::{self, OutputLevel, Word};
use super::prompt::parse_context;
use super::steps::StepArgs;
use crate::checkpoint::{Scheme, hub_name, model_folder};
use crate::engine::{BatchOptions, Engine, ServerRoom};
use crate::serve::{ApiKeys, HttpServer, ServeLimits, ServeOptions, ServerEnd};

/// Serve a model over HTTP, by OpenAI's endpoints
///
/// Endpoints are /v1/completions, /v1/chat/completions, /v1/models, /tokenize, /detokenize, /health
/// and /metrics; docs/serve.md describes their parameters. SIGTERM and Ctrl-C let running requests
/// end. Listens on this machine alone unless --listen says otherwise: anyone who reaches the
/// address can use the model, so give --api-key-file then, and put TLS in front. The processes of
/// torchrun, srun, mpirun or a LeaderWorkerSet share the model's layers over NCCL; rank 0 serves.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright serve --model models/tiny-llama
  tilewright serve --model DIR --device cuda:0 --listen 0.0.0.0:8000 --api-key-file keys.txt
  curl 127.0.0.1:8000/v1/completions -d '{\"prompt\": \"In the beginning\", \"max_tokens\": 20}'")]
pub struct ServeArgs {
    /// Folder of a Hugging Face checkpoint, or ORG/MODEL in the local cache
    #[arg(long, value_name = "MODEL")]
    model: PathBuf,
    /// Name of the model in requests and answers [default: ORG/MODEL or the folder's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Address to listen at, HOST:PORT; port 0 chooses a free port and prints it
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// File with the API keys that requests need, one a line [default: none is needed]
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

/// How the model runs.
#[derive(Args)]
struct EngineArgs {
    /// Run at most N requests at a time, 1 to 64; more than 16 on a GPU need room for the weights
    /// twice
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=64))]
    rows: u16,
    /// Give the model at most N positions: the longest sequence of a request
    #[arg(long, value_name = "N", value_parser = parse_context)]
    max_context: Option<usize>,
    /// Tokens that the KV cache holds for all requests together [default: as many as --rows
    /// sequences need, at most 131072 or one sequence]
    #[arg(long, value_name = "N", value_parser = number::tokens())]
    kv_tokens: Option<usize>,
    #[command(flatten)]
    steps: StepArgs,
    /// Cut a prompt's chunks so that a step in which others decode takes about T milliseconds; with
    /// --prompt-chunk
    #[arg(long, value_name = "T", value_parser = number::milliseconds, requires = "prompt_chunk")]
    step_ms: Option<f64>,
    /// Quantise the linear layers while loading: w4a16, w8a16 or fp8
    #[arg(long, value_name = "SCHEME")]
    weights: Option<Scheme>,
    /// Give every step the same width, so that a text does not depend on the others
    #[arg(long)]
    deterministic: bool,
}

/// What clients may send, and how long they may take.
#[derive(Args)]
struct LimitArgs {
    /// Most requests that wait for one of the rows; others get the status 429
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = number::count(0..=1 << 20))]
    queue: usize,
    /// Most connections at a time
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = number::count(1..=1 << 20))]
    connections: usize,
    /// Most bytes of a request's body
    #[arg(long, value_name = "N", default_value_t = 4 << 20, value_parser = number::count(1..=1 << 30))]
    body_bytes: usize,
    /// Longest time of a request
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, value_parser = number::seconds, allow_negative_numbers = true)]
    timeout: f64,
    /// Longest time until a request is there: its head, then its body
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0, value_parser = number::seconds, allow_negative_numbers = true)]
    read_timeout: f64,
    /// Longest time that a client reads nothing of its answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = number::seconds, allow_negative_numbers = true)]
    write_timeout: f64,
    /// Longest time for which running requests go on after SIGTERM or Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = number::seconds, allow_negative_numbers = true)]
    drain: f64,
}

/// Why the keys cannot be used.
#[derive(Debug, Error)]
enum KeyError {
    #[error("the API keys of `{}` cannot be read", path.display())]
    Read { path: PathBuf, source: InputError },
    #[error("`{}` has no API key; give it one a line, or leave --api-key-file out", path.display())]
    Empty { path: PathBuf },
}

/// Most bytes of a file with keys.
const KEY_BYTES: u64 = 1 << 20;

/// Runs the subcommand.
pub fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let keys = args.api_key_file.as_deref().map(keys).transpose()?.unwrap_or_default();
    log();
    let form = LoadOptions { scheme: args.engine.weights, max_context: args.engine.max_context };
    let group = match Role::of_environment(&args.group)? {
        Role::Stage(group) => return group::run_stage(&args.model, &args.device, form, &group, outlive_sigterm),
        Role::Driver(group) => group,
    };
    let engine = args.engine.steps.apply(group::load(&args.model, &args.device, form, group.as_ref())?)?;
    let engine = group::drive(engine, group.as_ref())?;
    let options = ServeOptions {
        listen: args.listen,
        keys,
        limits: args.limits.limits(),
        ..ServeOptions::new(args.name(), args.engine.batch(&engine))
    };
    let is_open = options.keys.is_empty() && !args.listen.ip().is_loopback();
    let server = HttpServer::bind(engine, options)?;
    if is_open {
        paint::line(Word::Note, "other machines may use the model without a key; --api-key-file asks for one");
    }
    paint::line(Word::Note, &format!("listening at http://{}", server.address()));
    let ServerEnd { interrupted, drained } = server.run_until_signal()?;
    if !drained {
        paint::line(Word::Note, "requests that still ran were ended");
    }
    Ok(if interrupted { ExitCode::from(interrupt::CODE) } else { ExitCode::SUCCESS })
}

/// Exit code after a second SIGTERM, as shells report it: 128 and the number of SIGTERM.
const TERMINATED: u8 = 143;

/// Lets a rank outlive the first SIGTERM: launchers send it to all ranks, and rank 0 ends the work once
/// its requests have ended. A second one ends this rank.
fn outlive_sigterm() -> Result<(), Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let mut term = {
        let _entered = runtime.enter();
        signal(SignalKind::terminate())?
    };
    let wait = move || {
        runtime.block_on(async {
            term.recv().await;
            tracing::info!("this rank goes on until rank 0 ends the work; a second signal ends it");
            term.recv().await;
        });
        group::leave(TERMINATED);
        process::exit(TERMINATED.into())
    };
    thread::Builder::new().name("sigterm".to_owned()).spawn(wait)?;
    Ok(())
}

impl ServeArgs {
    /// The name of the model.
    fn name(&self) -> String {
        let folder = model_folder(&self.model).unwrap_or_else(|_| self.model.clone());
        let of_folder = || fs::canonicalize(&folder).ok()?.file_name()?.to_str().map(str::to_owned);
        self.name.clone().or_else(|| hub_name(&folder)).or_else(of_folder).unwrap_or_else(|| "model".to_owned())
    }
}

impl EngineArgs {
    fn batch(&self, engine: &Engine) -> BatchOptions {
        let room = ServerRoom { rows: self.rows.into(), context: self.max_context, kv_tokens: self.kv_tokens };
        BatchOptions {
            step_time: self.step_ms.map(|ms| Duration::from_secs_f64(ms / 1e3)),
            deterministic: self.deterministic,
            ..engine.batch_options(room)
        }
    }
}

impl LimitArgs {
    fn limits(&self) -> ServeLimits {
        ServeLimits {
            queue: self.queue,
            connections: self.connections,
            body: self.body_bytes,
            request: Duration::from_secs_f64(self.timeout),
            read: Duration::from_secs_f64(self.read_timeout),
            write: Duration::from_secs_f64(self.write_timeout),
            drain: Duration::from_secs_f64(self.drain),
        }
    }
}

/// The keys of a file.
fn keys(path: &Path) -> Result<ApiKeys, KeyError> {
    let text = input::read(path, KEY_BYTES).map_err(|source| KeyError::Read { path: path.to_owned(), source })?;
    let keys = ApiKeys::of_text(&text);
    if keys.is_empty() { Err(KeyError::Empty { path: path.to_owned() }) } else { Ok(keys) }
}

/// Writes the log to standard error; --quiet leaves warnings, --verbose adds details.
fn log() {
    let level = match paint::level() {
        OutputLevel::Quiet => LevelFilter::WARN,
        OutputLevel::Normal => LevelFilter::INFO,
        OutputLevel::Verbose => LevelFilter::DEBUG,
    };
    let log = tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).with_target(false);
    log.with_max_level(level).init();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without it this process would be gone.
    #[test]
    fn a_rank_outlives_the_first_sigterm() {
        outlive_sigterm().expect("a thread and a signal's handler");
        let id = process::id().to_string();
        assert!(process::Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
        thread::sleep(Duration::from_millis(200));
    }
}
