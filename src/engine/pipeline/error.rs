//! Errors between the ranks of a pipeline.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use thiserror::Error as ThisError;
use tilewright_codegen::device::DeviceError;

use super::identity::OtherModel;
use super::message::{MessageError, MessageHead};
use super::transport::LinkError;

/// Most processes of a world.
pub const MOST_RANKS: usize = 64;

/// Why a pipeline cannot work, or works no more. Rank 0 is the driver, the others are workers.
#[derive(Debug, ThisError)]
#[allow(missing_docs, reason = "the message names every field")]
#[non_exhaustive]
pub enum PipelineError {
    #[error("a world of {found} processes was asked for; a pipeline has 2 to {MOST_RANKS}")]
    World { found: usize },
    #[error("rank {rank} is no worker's in a world of {world} processes; workers have 1 to {}, the driver has 0", world - 1)]
    Rank { rank: usize, world: usize },
    #[error("a patience of {found} s makes no sense; give 0.1 to 3600")]
    Patience { found: f64 },
    #[error("`{found}` is no address to meet at; give HOST:PORT, such as 127.0.0.1:7171")]
    Address {
        found: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot listen at {address}; choose an address of this host and a free port")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("the driver did not answer at {address} for {seconds} s; start rank 0 with --join {address}")]
    NoDriver {
        address: String,
        seconds: f64,
        #[source]
        source: io::Error,
    },
    #[error("{who} did not join within {seconds} s; start one worker for each rank")]
    Absent { who: String, seconds: f64 },
    #[error("{world} processes cannot share a model of {layers} layers; a stage has at least one, start fewer")]
    Stages { world: usize, layers: usize },
    #[error("{who} cannot take part: {why}")]
    Refusal {
        who: String,
        #[source]
        why: Refusal,
    },
    #[error("the driver refuses rank {rank}: {why}")]
    Refused { rank: usize, why: String },
    #[error("rank {rank}{} is lost: {source}", role(*rank))]
    Lost {
        rank: usize,
        #[source]
        source: LinkError,
    },
    #[error("rank {rank}{} failed: {why}", role(*rank))]
    Failed { rank: usize, why: String },
    #[error("more than {most} sessions were begun at a time; a worker has room for {most}, end one first")]
    Sessions { most: usize },
    #[error("a flow chooses blocks for layers of one process; use it without --world")]
    Flow,
    #[error(
        "no graph of launches computes a stage that several devices share; use --prompt-chunk on one device a process"
    )]
    Chunk,
    #[error(
        "rows go from device to device between NVIDIA GPUs, one a process; give --rows-by tcp, or a device such as cuda:0"
    )]
    NoDevice,
    #[error("rows cannot go from device to device")]
    Rows {
        #[source]
        source: DeviceError,
    },
    #[error("the ways between devices were given up")]
    GivenUp,
    #[error("the engine is a world's driver already")]
    Twice,
    #[error(
        "{found} requests are to run at a time; a stage that several devices share has rows for {most}, ask for fewer"
    )]
    Width { found: usize, most: usize },
    #[error("a thread of the pipeline cannot be started")]
    Thread(#[source] io::Error),
    #[error("a socket cannot be made")]
    Socket(#[source] io::Error),
}

/// Why a rank is not taken.
#[derive(Debug, ThisError)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum Refusal {
    #[error("it was told of a world of {found} processes, the driver of {expected}")]
    World { found: usize, expected: usize },
    #[error("workers have the ranks 1 to {}", world - 1)]
    Rank { world: usize },
    #[error("two workers have this rank")]
    Twice,
    #[error("{0}")]
    Model(#[from] OtherModel),
    #[error("{0}")]
    Message(#[from] MessageError),
}

/// The role of a rank, for messages; empty for workers.
fn role(rank: usize) -> &'static str {
    if rank == 0 { " (the driver)" } else { "" }
}

impl PipelineError {
    /// The message that reports this error to other ranks: the rank at fault, and the reason.
    /// Errors of no other rank are attributed to the driver.
    pub(super) fn report(&self) -> MessageHead {
        let (rank, why) = match self {
            PipelineError::Lost { rank, source } => (*rank, chain(source)),
            PipelineError::Failed { rank, why } => (*rank, why.clone()),
            other => (0, chain(other)),
        };
        MessageHead::Failed { rank, why }
    }

    /// A rank that is lost.
    pub(super) fn lost(rank: usize, source: impl Into<LinkError>) -> PipelineError {
        PipelineError::Lost { rank, source: source.into() }
    }

    /// The failure of a rank as another rank reported it. The text is untrusted: it is shortened
    /// and stripped of control characters.
    pub(super) fn failed(rank: usize, why: &str) -> PipelineError {
        PipelineError::Failed { rank, why: plain(why) }
    }
}

/// A text from outside on one line, of a length that can be read.
pub(super) fn plain(text: &str) -> String {
    text.chars().take(400).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// An error and its causes on one line; a cause whose text its parent ends with is not repeated.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    plain(&line)
}
