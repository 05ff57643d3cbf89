//! A neighbour in the ring of ranks: its link, whose failures name its rank.

use std::sync::Arc;

use tilewright_codegen::device::Buffer;

use super::error::PipelineError;
use super::transport::{LinkError, Transport};
use crate::engine::EngineError;

/// The previous or the next rank.
pub(super) struct Neighbour {
    /// Its rank.
    pub rank: usize,
    /// This rank's end of the link.
    pub link: Arc<dyn Transport>,
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
