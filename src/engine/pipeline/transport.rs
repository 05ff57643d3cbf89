//! Links between neighbouring ranks: traits that NCCL implements, and tests in one process do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thiserror::Error;
use tilewright_codegen::device::{Buffer, Collective, DeviceError};
use tilewright_megakernel::vm::AbortHandle;

use super::message::MessageError;

/// Bytes of a link's id, which is an `ncclUniqueId`.
pub const LINK_ID_BYTES: usize = 128;
/// The id that both ends of a link share.
pub type LinkId = [u8; LINK_ID_BYTES];

/// Why a rank cannot be reached.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
#[non_exhaustive]
pub enum LinkError {
    #[error("it sent nothing for {seconds} s")]
    Silent { seconds: f64 },
    #[error("it closed the connection")]
    Closed,
    #[error("the connection failed: {0}")]
    Io(std::io::Error),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("the link to its device failed")]
    Device(#[source] DeviceError),
    #[error("the link was ended at this rank")]
    Ended,
    #[error("the work was aborted")]
    Aborted,
}

impl From<DeviceError> for LinkError {
    fn from(error: DeviceError) -> LinkError {
        match error {
            DeviceError::GivenUp => LinkError::Ended,
            source => LinkError::Device(source),
        }
    }
}

/// The limits of a wait for a neighbouring rank.
#[derive(Clone, Debug)]
pub struct WaitLimits {
    ended: Arc<AtomicBool>,
    abort: AbortHandle,
    timeout: Duration,
}

impl WaitLimits {
    /// Waits end after the timeout, by the abort handle, or by [`WaitLimits::end`].
    pub(super) fn new(timeout: Duration, abort: AbortHandle) -> WaitLimits {
        WaitLimits { ended: Arc::default(), abort, timeout }
    }

    /// Ends all waits: another rank is lost, or the work is done.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Refuses to wait longer.
    ///
    /// # Errors
    /// [`LinkError::Ended`], [`LinkError::Aborted`], or [`LinkError::Silent`] if the wait that
    /// began then has taken too long.
    pub fn check(&self, begun: Instant) -> Result<(), LinkError> {
        if self.ended.load(Ordering::Acquire) {
            return Err(LinkError::Ended);
        }
        if self.abort.is_set() {
            return Err(LinkError::Aborted);
        }
        if begun.elapsed() > self.timeout {
            return Err(LinkError::Silent { seconds: self.timeout.as_secs_f64() });
        }
        Ok(())
    }
}

/// One end of a link from a rank to the next one. What one end sends, the other receives in order;
/// the number of words is known at both.
pub trait Transport: Send + Sync {
    /// Queues words to be sent. At most one message is in flight: waits until the last one is
    /// received.
    ///
    /// # Errors
    /// If the link fails, or the wait comes to its limits.
    fn send(&self, words: &[u32]) -> Result<(), LinkError>;

    /// Receives `count` words.
    ///
    /// # Errors
    /// As [`Transport::send`].
    fn receive(&self, count: usize) -> Result<Vec<u32>, LinkError>;

    /// Whether rows go from device to device, by [`Transport::send_rows`].
    fn carries_rows(&self) -> bool {
        false
    }

    /// Queues rows of a device to be sent. They may be overwritten afterwards.
    ///
    /// # Errors
    /// As [`Transport::send`].
    fn send_rows(&self, rows: &Buffer<f32>) -> Result<(), LinkError> {
        let _ = rows;
        Err(LinkError::Ended)
    }

    /// Receives rows into memory of a device.
    ///
    /// # Errors
    /// As [`Transport::send`].
    fn receive_rows(&self, rows: &Buffer<f32>) -> Result<(), LinkError> {
        let _ = rows;
        Err(LinkError::Ended)
    }
}

/// The two links of a rank in the ring of all ranks, and what adds up the parts of all.
#[derive(Clone, Copy, Debug)]
pub struct RingLinks {
    /// The rank.
    pub rank: usize,
    /// The number of ranks.
    pub size: usize,
    /// The id of the link from the previous rank.
    pub from: LinkId,
    /// The id of the link to the next rank.
    pub to: LinkId,
    /// The id of the sums of all ranks, where each has a shard of every layer.
    pub sums: Option<LinkId>,
}

/// The ids that rank 0 hands out.
pub(super) struct GroupIds {
    /// Those of the links from each rank to the next.
    pub links: Vec<LinkId>,
    /// That of the sums of all ranks, where each has a shard of every layer.
    pub sums: Option<LinkId>,
}

impl GroupIds {
    /// The ids of a rank.
    pub fn of(&self, rank: usize) -> RingLinks {
        let size = self.links.len();
        RingLinks { rank, size, from: self.links[(rank + size - 1) % size], to: self.links[rank], sums: self.sums }
    }
}

/// The ends of a rank's two links: from the previous rank, and to the next.
pub struct RingEnds {
    /// The receiving end.
    pub from: Arc<dyn Transport>,
    /// The sending end.
    pub to: Arc<dyn Transport>,
    /// NCCL, which adds up the parts of all ranks' devices; where there is none, as of simulated
    /// devices, the hosts add up along the ring.
    pub collective: Option<Collective>,
}

/// A kind of transport between ranks.
pub trait Network: Send + Sync {
    /// Creates the id of a link, or of the sums of all ranks.
    ///
    /// # Errors
    /// If this process has no such transport.
    fn id(&self) -> Result<LinkId, LinkError>;

    /// Opens both links of a rank, once the neighbours do, and the sums of all ranks, once all do.
    ///
    /// # Errors
    /// If a link fails, or the wait comes to its limits.
    fn open(&self, links: &RingLinks, limits: &WaitLimits) -> Result<RingEnds, LinkError>;
}
