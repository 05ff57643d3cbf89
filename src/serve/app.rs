//! What all handlers share: the engine and its thread, options, metrics.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use axum::http::HeaderMap;

use super::error::ApiError;
use super::metrics::Metrics;
use super::options::ServeOptions;
use super::reply::ReplyFormat;
use crate::engine::{
    Device, EndTokens, Engine, EngineError, GrammarCompiler, GrammarError, Request, Server, Submission,
};

/// A served model.
pub struct App {
    /// The model.
    pub engine: Engine,
    /// The thread that runs its requests.
    pub server: Server,
    /// Options.
    pub options: ServeOptions,
    /// The format of replies in chats.
    pub format: ReplyFormat,
    /// What was counted.
    pub metrics: Metrics,
    /// The time at which it was started, in seconds since 1970.
    pub started: u64,
    grammars: OnceLock<GrammarCompiler>,
    requests: AtomicU64,
    random: RandomState,
}

/// A request: its number in the log and in answers, and when it came.
#[derive(Clone, Debug)]
pub struct RequestId {
    /// The number, or the client's own name for the request.
    pub name: Arc<str>,
    /// When its head was there.
    pub arrived: Instant,
}

/// Most bytes of a client's own name for a request.
const MOST_NAME: usize = 64;

impl App {
    /// Starts the thread that runs requests.
    pub fn new(engine: Engine, options: ServeOptions) -> Result<App, EngineError> {
        let server = engine.server(&options.batch)?;
        if matches!(engine.device(), Device::Cuda { .. } | Device::Peers { .. }) {
            warm_up(&server, &options)?;
        }
        let format = engine.checkpoint().chat_template().map(ReplyFormat::of).unwrap_or_default();
        Ok(App {
            engine,
            server,
            options,
            format,
            metrics: Metrics::default(),
            started: seconds(),
            grammars: OnceLock::new(),
            requests: AtomicU64::default(),
            random: RandomState::new(),
        })
    }

    /// Most tokens of a sequence.
    pub fn context(&self) -> usize {
        self.options.batch.context.min(self.engine.spec().max_positions)
    }

    /// The compiler of grammars, made when the first request needs one: that takes a moment.
    pub fn grammars(&self) -> Result<&GrammarCompiler, GrammarError> {
        match self.grammars.get() {
            Some(grammars) => Ok(grammars),
            None => {
                let made = self.engine.grammars()?;
                Ok(self.grammars.get_or_init(|| made))
            }
        }
    }

    /// The identity of a request: the client's `x-request-id`, or a new number.
    pub fn request(&self, headers: &HeaderMap) -> RequestId {
        let given = headers.get("x-request-id").and_then(|name| name.to_str().ok());
        let is_name = |name: &&str| {
            (1..=MOST_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"')
        };
        let name = given.filter(is_name).map_or_else(|| self.unique("req-"), str::to_owned);
        RequestId { name: name.into(), arrived: Instant::now() }
    }

    /// A name that no other one equals.
    pub fn unique(&self, prefix: &str) -> String {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        format!("{prefix}{:016x}", self.random.hash_one(number))
    }

    /// Refuses another model than the one that is served.
    pub fn check_model(&self, name: Option<&str>) -> Result<(), ApiError> {
        match name {
            Some(name) if name != self.options.model => {
                Err(ApiError::Model { name: name.to_owned(), served: self.options.model.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Runs short requests, as many as there are seats and each longer than the one before, so that
/// kernels of all widths are compiled before clients wait for them.
fn warm_up(server: &Server, options: &ServeOptions) -> Result<(), EngineError> {
    let requests = 0..options.batch.rows.min(options.batch.context.saturating_sub(2));
    let submit = |longer: usize| {
        let ends = EndTokens { ignore_model: true, ..EndTokens::default() };
        let request = Request::new(vec![0], 2 + longer);
        server.submit(Submission { ends, ..Submission::from(request) }, &[])
    };
    let streams = requests.map(submit).collect::<Result<Vec<_>, _>>()?;
    for stream in streams {
        stream.wait()?;
    }
    Ok(())
}

impl RequestId {
    /// Logs the end user that a client names.
    pub fn log_user(&self, user: Option<&str>) {
        if let Some(user) = user {
            let user: String = user.chars().take(MOST_NAME).collect();
            tracing::info!(request = &*self.name, ?user, "asked");
        }
    }
}

/// Seconds since 1970.
pub fn seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Runs work that takes more than a moment, such as the encoding of a text, on a thread for it.
pub async fn blocking<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let app = Arc::clone(app);
    tokio::task::spawn_blocking(move || work(&app)).await.unwrap_or(Err(ApiError::Stopped))
}
