//! An HTTP server for a model: OpenAI's endpoints for completions and chats, metrics, and their
//! limits.
//!
//! | file | what it holds |
//! |---|---|
//! | `options` | address, limits, timeouts |
//! | `connection` | connections, and how they end |
//! | `routes` | paths, and what is done for every request |
//! | `keys` | API keys |
//! | `body`, `parameters`, `messages` | what clients send |
//! | `error` | what they get where there is no answer |
//! | `app` | what all handlers share |
//! | `generation` | choices while they are generated |
//! | `answer`, `logprobs`, `reply`, `parts`, `channels` | what clients get, whole or as a stream |
//! | `completions`, `chat`, `texts` | the endpoints |
//! | `metrics` | counters in Prometheus' format |
//!
//! An engine's [`Server`](crate::engine::Server) runs all requests on its thread; handlers submit
//! requests to it and read its events from channels. There is no other scheduler.

mod answer;
mod app;
mod body;
mod channels;
mod chat;
mod completions;
mod connection;
mod error;
mod generation;
mod keys;
mod logprobs;
mod messages;
mod metrics;
mod options;
mod parameters;
mod parts;
mod reply;
mod routes;
mod texts;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::engine::{BatcherLoad, Engine, EngineError};
use app::App;
use connection::Until;

pub use keys::ApiKeys;
pub use options::{ServeLimits, ServeOptions};

/// Threads that answer requests; the model runs on others.
const THREADS: usize = 2;
/// Threads that read bodies, render templates and encode texts.
const WORK_THREADS: usize = 8;
/// The longest wait for these when the server ends.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The time that the thread of requests has for its last step.
const LAST_STEP: Duration = Duration::from_secs(5);

/// An HTTP server that listens.
///
/// ```no_run
/// use tilewright::engine::{BatchOptions, Device, Engine};
/// use tilewright::serve::{HttpServer, ServeOptions};
/// let engine = Engine::load("models/tiny-llama".as_ref(), Device::cpu())?;
/// let server = HttpServer::bind(engine, ServeOptions::new("tiny-llama", BatchOptions::for_context(1024)))?;
/// println!("listening at {}", server.address());
/// server.run_until_signal()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HttpServer {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
}

/// Why a server does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened at.
    #[error("{address} cannot be listened at; choose another address with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Threads, timers or signals cannot be set up.
    #[error("the server's threads cannot be started")]
    Start(#[source] io::Error),
    /// The engine refuses.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerEnd {
    /// Whether Ctrl-C ended it, and not SIGTERM.
    pub interrupted: bool,
    /// Whether all requests ended in time.
    pub drained: bool,
}

/// The requests and pages of a server that runs elsewhere.
#[derive(Clone)]
pub struct ServerMonitor(Arc<App>);

impl ServerMonitor {
    /// Requests and pages as of the last step.
    pub fn load(&self) -> BatcherLoad {
        self.0.server.load()
    }
}

impl HttpServer {
    /// Listens at the address of the options; connections are accepted once it runs.
    ///
    /// # Errors
    /// The address cannot be listened at, threads cannot be started, or the engine refuses the
    /// options of its batcher.
    pub fn bind(engine: Engine, options: ServeOptions) -> Result<HttpServer, ServeError> {
        let listen = |source| ServeError::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        listener.set_nonblocking(true).map_err(ServeError::Start)?;
        let mut builder = runtime::Builder::new_multi_thread();
        builder.worker_threads(THREADS).max_blocking_threads(WORK_THREADS).thread_name("tilewright-http").enable_all();
        let runtime = builder.build().map_err(ServeError::Start)?;
        Ok(HttpServer { runtime, listener, address, app: Arc::new(App::new(engine, options)?) })
    }

    /// The address that it listens at, with the port that was chosen for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reads the server's load while it runs elsewhere.
    pub fn monitor(&self) -> ServerMonitor {
        ServerMonitor(Arc::clone(&self.app))
    }

    /// Serves until `stop`: then no connection is accepted, and running requests go on for the time
    /// that the limits give them. Returns whether all of them ended.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub fn run(self, stop: impl Future<Output = ()>) -> Result<bool, ServeError> {
        self.run_until(Until { stop, cut: std::future::pending() })
    }

    /// Serves until SIGTERM or Ctrl-C; a second one ends it without waiting for requests.
    ///
    /// # Errors
    /// As [`HttpServer::run`]; signals cannot be received.
    pub fn run_until_signal(self) -> Result<ServerEnd, ServeError> {
        let signals = self.signals()?;
        let reached = |count: usize| {
            let mut signals = signals.clone();
            // The task that counts signals lives as long as the runtime.
            async move { _ = signals.wait_for(|received| received.count >= count).await }
        };
        let drained = self.run_until(Until { stop: reached(1), cut: reached(2) })?;
        let interrupted = signals.borrow().interrupted;
        Ok(ServerEnd { interrupted, drained })
    }

    fn run_until<S, C>(self, until: Until<S, C>) -> Result<bool, ServeError>
    where
        S: Future<Output = ()>,
        C: Future<Output = ()>,
    {
        let HttpServer { runtime, listener, app, .. } = self;
        let drained = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(ServeError::Start)?;
            let router = routes::routes(Arc::clone(&app));
            Ok(connection::serve(listener, &app, &router, until).await)
        });
        runtime.shutdown_timeout(LAST_WAIT);
        // A thread that still had machines while the process exits would crash in their driver.
        if let Some(App { server, .. }) = Arc::into_inner(app) {
            server.end(LAST_STEP);
        }
        drained
    }

    /// Counts signals from now on.
    fn signals(&self) -> Result<watch::Receiver<Signals>, ServeError> {
        let _entered = self.runtime.enter();
        let of = |kind| signal(kind).map_err(ServeError::Start);
        let (mut term, mut interrupt) = (of(SignalKind::terminate())?, of(SignalKind::interrupt())?);
        let (sender, receiver) = watch::channel(Signals::default());
        self.runtime.spawn(async move {
            loop {
                let interrupted = tokio::select! {
                    _ = term.recv() => false,
                    _ = interrupt.recv() => true,
                };
                tracing::info!("running requests go on, no other is taken; a second signal ends them");
                sender.send_modify(|signals| {
                    signals.interrupted |= interrupted;
                    signals.count += 1;
                });
            }
        });
        Ok(receiver)
    }
}

/// The signals that a process received.
#[derive(Clone, Copy, Default)]
struct Signals {
    count: usize,
    interrupted: bool,
}
