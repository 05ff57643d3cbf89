//! The ring of ranks, as one of them has it: its neighbours, whose failures name their ranks, and
//! the sums of all ranks.

use std::sync::Arc;

use tilewright_codegen::device::Buffer;
use tilewright_megakernel::vm::graph::Summand;

use super::error::PipelineError;
use super::nccl::NcclSums;
use super::transport::{LinkError, RingEnds, RingLinks, Transport, WaitLimits};
use crate::engine::EngineError;

/// The previous or the next rank.
pub(super) struct Neighbour {
    /// Its rank.
    pub rank: usize,
    /// This rank's end of the link.
    pub link: Arc<dyn Transport>,
}

/// A rank's place in the ring.
pub(super) struct Ring {
    rank: usize,
    size: usize,
    /// The previous rank; of rank 0 the last, which sends logits.
    pub previous: Neighbour,
    /// The next rank.
    pub next: Neighbour,
    /// NCCL's sums of all ranks; none in a pipeline, and on simulated devices.
    pub nccl: Option<NcclSums>,
}

impl Ring {
    /// The place of a rank whose links are open.
    pub fn new(links: &RingLinks, ends: &RingEnds, limits: &WaitLimits) -> Ring {
        let RingLinks { rank, size, .. } = *links;
        Ring {
            rank,
            size,
            previous: Neighbour { rank: (rank + size - 1) % size, link: Arc::clone(&ends.from) },
            next: Neighbour { rank: (rank + 1) % size, link: Arc::clone(&ends.to) },
            nccl: ends.collective.clone().map(|collective| NcclSums::new(collective, limits.clone())),
        }
    }

    /// Whether the next rank is rank 0.
    pub fn is_last(&self) -> bool {
        self.next.rank == 0
    }

    /// Replaces this rank's summand by the sum of all ranks, on the host: partial sums go from rank
    /// 0 to the last, in the order in which the devices of one process add up, and then the sum
    /// goes round.
    pub fn add_up(&self, own: &mut Summand) -> Result<(), EngineError> {
        let count = own.values().len();
        if self.rank > 0 {
            own.add(bytemuck::cast_slice(&self.previous.receive(count)?));
        }
        self.next.send(bytemuck::cast_slice(own.values()))?;
        if self.is_last() {
            return Ok(());
        }
        let total = self.previous.receive(count)?;
        own.set(bytemuck::cast_slice(&total));
        if self.rank + 2 < self.size { self.next.send(&total) } else { Ok(()) }
    }

    /// Sends this rank's words to rank 0, after those of the ranks from 1 on before it.
    pub fn gather(&self, own: &[f32]) -> Result<(), EngineError> {
        let mut words = match self.rank - 1 {
            0 => Vec::new(),
            before => self.previous.receive(before * own.len())?,
        };
        words.extend(own.iter().map(|x| x.to_bits()));
        self.next.send(&words)
    }

    /// The words that the other ranks [gather](Ring::gather), at rank 0: `count` of each, by rank.
    pub fn gathered(&self, count: usize) -> Result<Vec<u32>, EngineError> {
        self.previous.receive((self.size - 1) * count)
    }
}

impl Neighbour {
    /// Queues words to be sent.
    pub fn send(&self, words: &[u32]) -> Result<(), EngineError> {
        self.named(self.link.send(words))
    }

    /// Receives `count` words.
    pub fn receive(&self, count: usize) -> Result<Vec<u32>, EngineError> {
        self.named(self.link.receive(count))
    }

    /// Queues rows of a device to be sent.
    pub fn send_rows(&self, rows: &Buffer<f32>) -> Result<(), EngineError> {
        self.named(self.link.send_rows(rows))
    }

    /// Receives rows into memory of a device.
    pub fn receive_rows(&self, rows: &Buffer<f32>) -> Result<(), EngineError> {
        self.named(self.link.receive_rows(rows))
    }

    fn named<T>(&self, result: Result<T, LinkError>) -> Result<T, EngineError> {
        result.map_err(|error| match error {
            LinkError::Aborted => EngineError::Aborted,
            LinkError::Ended => PipelineError::Ended.into(),
            source => PipelineError::lost(self.rank, source).into(),
        })
    }
}
