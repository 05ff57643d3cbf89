//! Errors between the ranks of a process group.

use std::error::Error;
use std::io;
use std::time::Duration;

use thiserror::Error as ThisError;
use tilewright_codegen::device::DeviceError;

use super::group::GroupError;
use super::identity::OtherModel;
use super::message::{Message, MessageError};
use super::transport::LinkError;

/// Why a process group cannot work, or works no more. Rank 0 drives; the others compute stages.
#[derive(Debug, ThisError)]
#[allow(missing_docs, reason = "the message names every field")]
#[non_exhaustive]
pub enum PipelineError {
    #[error(transparent)]
    Group(#[from] GroupError),
    #[error("rank 0 cannot listen at {address}; set MASTER_PORT or TILEWRIGHT_GROUP_PORT to a free port")]
    Listen { address: String },
    #[error("rank 0 did not answer at {address} for {seconds} s; check MASTER_ADDR, and that rank 0 runs")]
    NoDriver {
        address: String,
        seconds: f64,
        #[source]
        source: io::Error,
    },
    #[error("{who} did not join within {seconds} s; start every rank, or raise TILEWRIGHT_GROUP_TIMEOUT")]
    Absent { who: String, seconds: f64 },
    #[error("{size} processes cannot share a model of {layers} layers; a stage has at least one, start fewer")]
    Stages { size: usize, layers: usize },
    #[error("{who} cannot join: {why}")]
    Refusal {
        who: String,
        #[source]
        why: Refusal,
    },
    #[error("rank 0 refuses rank {rank}: {why}")]
    Refused { rank: usize, why: String },
    #[error("rank {rank} is lost: {source}")]
    Lost {
        rank: usize,
        #[source]
        source: LinkError,
    },
    #[error("rank {rank} failed: {why}")]
    Failed { rank: usize, why: String },
    #[error("more than {most} sessions run at a time; end one first")]
    Sessions { most: usize },
    #[error("a flow chooses blocks for all layers of one process; unset WORLD_SIZE to run it in one")]
    Flow,
    #[error(
        "no graph of launches computes a stage that several devices share; use --prompt-chunk with one GPU a process"
    )]
    Chunk,
    #[error(
        "NCCL carries activations between the ranks of a process group, so each needs a GPU; give --device cuda:N, or unset WORLD_SIZE"
    )]
    NoDevice,
    #[error(
        "--tensor-parallel is {found}, and the process group has {size} processes; give {size}, or leave it out for a pipeline of layers"
    )]
    Shards { found: usize, size: usize },
    #[error(
        "a process has one shard of the model, on one GPU; give --device cuda:N, or leave --tensor-parallel out for a pipeline of layers"
    )]
    ShardDevice,
    #[error(
        "quantised weights have no shards in several processes; give --device cuda:A-B, or leave --tensor-parallel out for a pipeline of layers"
    )]
    ShardCodes,
    #[error("the sums of all ranks took longer than {seconds} s; raise TILEWRIGHT_GROUP_TIMEOUT if no rank hangs")]
    Late { seconds: f64 },
    #[error("NCCL cannot add up the parts of all ranks")]
    Sum(#[source] DeviceError),
    #[error("NCCL cannot connect the ranks")]
    Network(#[source] LinkError),
    #[error("the process group has ended")]
    Ended,
    #[error("the engine is in a process group already")]
    Twice,
    #[error(
        "{found} requests are to run at a time; a stage that several devices share has rows for {most}, ask for fewer"
    )]
    Width { found: usize, most: usize },
    #[error("a thread of the process group cannot be started")]
    Thread(#[source] io::Error),
    #[error("a socket of the process group failed")]
    Socket(#[source] io::Error),
}

/// Why a rank is not taken.
#[derive(Debug, ThisError)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum Refusal {
    #[error("it was started in a group of {found} processes, rank 0 in one of {expected}")]
    Size { found: usize, expected: usize },
    #[error("ranks that join are 1 to {}", size - 1)]
    Rank { size: usize },
    #[error("it was started with --tensor-parallel {found}, rank 0 with {expected}; give all ranks the same")]
    Shards { found: usize, expected: usize },
    #[error("two processes have this rank")]
    Twice,
    #[error(transparent)]
    Model(#[from] OtherModel),
}

impl PipelineError {
    /// The message that reports this error to other ranks: the rank at fault, and the reason.
    /// Errors of no other rank are attributed to rank 0.
    pub(super) fn report(&self) -> Message {
        let (rank, why) = match self {
            PipelineError::Lost { rank, source } => (*rank, chain(source)),
            PipelineError::Failed { rank, why } => (*rank, why.clone()),
            other => (0, chain(other)),
        };
        Message::Failed { rank, why }
    }

    /// Ranks that did not join.
    pub(super) fn absent(ranks: impl Iterator<Item = usize>, timeout: Duration) -> PipelineError {
        let ranks: Vec<String> = ranks.map(|rank| format!("rank {rank}")).collect();
        PipelineError::Absent { who: ranks.join(", "), seconds: timeout.as_secs_f64() }
    }

    /// A rank that is lost.
    pub(super) fn lost(rank: usize, source: impl Into<LinkError>) -> PipelineError {
        PipelineError::Lost { rank, source: source.into() }
    }

    /// A rank that sent what is invalid.
    pub(super) fn invalid(rank: usize, error: MessageError) -> PipelineError {
        PipelineError::lost(rank, error)
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

/// An error and its causes as a text from outside.
pub(super) fn chain(error: &dyn Error) -> String {
    plain(&crate::chain(error))
}
