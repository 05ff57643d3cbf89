//! Options of the server: address, limits, timeouts.

use std::net::SocketAddr;
use std::time::Duration;

use super::keys::ApiKeys;
use crate::engine::BatchOptions;

/// Options of an HTTP server.
///
/// ```
/// use tilewright::engine::BatchOptions;
/// use tilewright::serve::ServeOptions;
/// let options = ServeOptions::new("llama", BatchOptions::for_context(2048));
/// assert!(options.listen.ip().is_loopback());
/// ```
#[derive(Clone)]
pub struct ServeOptions {
    /// The address to listen at; 127.0.0.1:8000 by default.
    pub listen: SocketAddr,
    /// The name of the model in requests and answers.
    pub model: String,
    /// Options of the batcher; its context is the longest sequence of a request.
    pub batch: BatchOptions,
    /// The keys that requests need; none by default.
    pub keys: ApiKeys,
    /// Limits on what clients send and how long they take.
    pub limits: ServeLimits,
}

/// Limits on what clients send, how long they take, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeLimits {
    /// Most requests that wait for a seat; more are refused.
    pub queue: usize,
    /// Most connections at a time; more wait to be accepted.
    pub connections: usize,
    /// Most bytes of a body.
    pub body: usize,
    /// Longest time of a request.
    pub request: Duration,
    /// Longest time until the head of a request is there, and then its body.
    pub read: Duration,
    /// Longest time that a client reads nothing of its answer.
    pub write: Duration,
    /// Longest time for which running requests go on once the server is told to end.
    pub drain: Duration,
}

impl Default for ServeLimits {
    fn default() -> ServeLimits {
        ServeLimits {
            queue: 256,
            connections: 1024,
            body: 4 << 20,
            request: Duration::from_secs(600),
            read: Duration::from_secs(15),
            write: Duration::from_secs(30),
            drain: Duration::from_secs(30),
        }
    }
}

impl ServeOptions {
    /// The default options for a model of that name: loopback, no keys.
    pub fn new(model: impl Into<String>, batch: BatchOptions) -> ServeOptions {
        ServeOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 8000)),
            model: model.into(),
            batch,
            keys: ApiKeys::default(),
            limits: ServeLimits::default(),
        }
    }
}
