//! Requests: continuous batching, shared prefixes, preemption, speculation.
//!
//! | file | what it holds |
//! |---|---|
//! | `submission` | what is asked, and what comes back |
//! | `scheduler` | the state machine: which requests get rows and pages in the next step |
//! | `phases` | which requests attend to everything, and for which a flow chooses |
//! | `step` | what a step runs |
//! | `sequence` | a request while it is there |
//! | `cache` | pages: holders, prefixes that are found by their tokens |
//! | `kv_events` | changes of the pages that are found |
//! | `slots` | places for what a flow keeps of requests |
//! | `proposer` | tokens that may come next, from what the text repeats |
//! | `gain` | whether steps of several of a sequence's tokens pay |
//! | `choice` | tokens chosen by the host: penalties, log probabilities |
//! | `processor` | a caller's own rules for that choice |
//! | `pace` | how many rows a step may have so that it ends in time |
//! | `times` | what steps of each width took |
//! | `giving` | delivery of a step's tokens to their requests |
//! | `batcher` | scheduler and machine together, a step at a time |
//! | `server` | a batcher on a thread of its own |
//!
//! `scheduler`, `sequence`, `cache`, `slots`, `phases`, `pace`, `proposer`, `gain` and `choice` are
//! pure: their outputs depend on their inputs alone.

mod batcher;
mod cache;
mod choice;
mod flow_limits;
mod gain;
mod giving;
mod kv_events;
mod pace;
mod phases;
mod processor;
mod proposer;
mod scheduler;
mod sequence;
mod server;
mod slots;
mod step;
mod submission;
mod times;
#[cfg(test)]
mod trials;

pub(super) use batcher::MOST_SEATS;
pub use batcher::{BatchOptions, Batcher, ServerRoom};
#[cfg(feature = "cli")]
pub(crate) use batcher::{BatcherSetup, batcher_of};
#[cfg(feature = "cli")]
pub(crate) use gain::Gain;
pub use kv_events::KvEvent;
pub use processor::{LogitsHook, LogitsProcessor, TokenMask};
#[cfg(feature = "cli")]
pub(crate) use proposer::{MOST_PROPOSED, Proposer};
pub use server::{RequestHandle, Server, ServerEvent, ServerRequest, Stream};
pub use submission::{BatcherLoad, EndTokens, Event, Logprobs, Penalties, Statistics, Submission, Ticket, Token};
pub use times::WidthTimes;
