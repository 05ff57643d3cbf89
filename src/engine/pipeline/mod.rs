//! Pipeline parallelism: one model in several processes, on one host or several.
//!
//! ```text
//!  rank 0: the driver            rank 1: a worker              rank 2: a worker, the last
//! ┌──────────────────┐  hidden  ┌──────────────────┐  hidden  ┌──────────────────┐
//! │ embed, layers 0:a├─────────►│ layers a:b       ├─────────►│ layers b:n, head │
//! └────────▲─────────┘  rows    └──────────────────┘  rows    └────────┬─────────┘
//!          └───────────────────── logits ──────────────────────────────┘
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `frame`, `message` | what lies on a stream, and what it means |
//! | `transport` | the way to another rank: a trait, and TCP |
//! | `rows` | the way from a device to that of another rank, by NCCL |
//! | `identity` | whether ranks have the same model |
//! | `cut` | which layers a rank has |
//! | `join` | how a world comes together |
//! | `world`, `piped` | the driver: who is there and who is lost; a session's machines |
//! | `worker`, `stage` | a worker: its life, its machines |
//!
//! The driver is an [`Engine`] like any other: sessions, batches and choices are independent of the
//! other ranks. May touch: sockets of the standard library; of the engine its places, its machines'
//! programs and its models. Any host that reaches the ports can take part: there is neither a
//! password nor encryption, so they are for a network that is trusted.

mod cut;
mod error;
mod frame;
mod identity;
mod join;
mod message;
mod piped;
mod row_transport;
mod rows;
mod stage;
mod transport;
mod worker;
mod world;

pub use error::{MOST_RANKS, PipelineError, Refusal};
pub use frame::{Frame, FrameError, MOST_HEAD, MOST_WORDS, VERSION};
pub use identity::{Identity, OtherModel};
pub use join::{Meeting, Seat};
pub use message::{Message, MessageError, MessageHead, Shape, StepWords};
pub(super) use piped::{Piped, PipedSetup};
pub use row_transport::{NoRows, Rows};

pub use transport::{LinkError, Tcp, Transport};
pub use world::World;

use tilewright_codegen::device::{Device, DeviceLink};

use super::{Engine, EngineError};

impl Engine {
    /// Makes the engine the driver of a world: waits until all workers have joined, and keeps the
    /// first layers to itself.
    ///
    /// # Errors
    /// If the engine has a flow, a world already, or chunks of prompts on several devices, a worker
    /// does not fit, or one is missing when the patience is over.
    pub fn with_world(self, meeting: Meeting) -> Result<Engine, EngineError> {
        if self.flow.is_some() {
            return Err(PipelineError::Flow.into());
        }
        if self.prompt_chunk.is_some() && !self.place.has_graphs_of_stages() {
            return Err(PipelineError::Chunk.into());
        }
        if self.place.world().is_some() {
            return Err(PipelineError::Twice.into());
        }
        let device = self.row_device()?;
        let patience = meeting.patience();
        let id = |device| DeviceLink::id(device).map_err(|source| PipelineError::Rows { source });
        let ways = device.iter().flat_map(|device| (1..meeting.world()).map(move |_| id(device)));
        let ways = ways.collect::<Result<Vec<_>, _>>()?;
        let mut world = meeting.join(&self.identity(), self.spec(), &ways)?;
        if let (Some(device), Some(id)) = (device, ways.into_iter().next()) {
            world.open_rows(&device, id, patience, &self.abort_handle())?;
        }
        self.place.share(world);
        Ok(self)
    }

    /// Sets the transport of rows between ranks.
    ///
    /// # Errors
    /// If the device does not support NCCL links: it is not an NVIDIA GPU, shares its stage with
    /// others, or NCCL is missing.
    pub fn with_rows(self, rows: Rows) -> Result<Engine, EngineError> {
        let engine = Engine { rows, ..self };
        if let Some(device) = engine.row_device()? {
            DeviceLink::check(&device).map_err(|source| PipelineError::Rows { source })?;
        }
        Ok(engine)
    }

    /// The device of which rows go to another one, where they do.
    fn row_device(&self) -> Result<Option<Device>, PipelineError> {
        match self.rows {
            Rows::Tcp => Ok(None),
            Rows::Nccl => self.place.row_device().map(Some).ok_or(PipelineError::NoDevice),
        }
    }

    /// The identity that ranks compare before they compute together.
    pub fn identity(&self) -> Identity {
        Identity::of(&self.checkpoint).on(self.place.kind(), self.rows)
    }
}
