//! Pipeline parallelism: one model in the processes of a group, on one host or several.
//!
//! ```text
//!  rank 0: drives                rank 1: a stage               rank 2: the last stage
//! ┌──────────────────┐  hidden  ┌──────────────────┐  hidden  ┌──────────────────┐
//! │ embed, layers 0:a├─────────►│ layers a:b       ├─────────►│ layers b:n, head │
//! └────────▲─────────┘  NCCL    └──────────────────┘  NCCL    └────────┬─────────┘
//!          └───────────────────── logits ──────────────────────────────┘
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `group` | the process group, from a launcher's environment variables |
//! | `rendezvous` | how ranks join: the secret, and the ids of NCCL links |
//! | `control`, `message` | connections between rank 0 and the others: records of 256 bytes |
//! | `transport` | links between neighbours: traits |
//! | `nccl`, `ring` | links by NCCL; a neighbour |
//! | `identity` | whether ranks have the same model |
//! | `cut` | which layers a rank has |
//! | `driver`, `piped` | rank 0: lost ranks; a session's machines |
//! | `worker`, `stage` | other ranks: their loop, their machines |
//!
//! Rank 0 has an [`Engine`] like any other: sessions, batches and sampling are independent of the
//! other ranks. May touch: sockets of the standard library; of the engine its places, its machines'
//! programs and its models. Ranks share a secret; neither it nor NCCL's data is encrypted, so the
//! network must be trusted.

mod control;
mod cut;
mod driver;
mod error;
mod group;
mod identity;
mod message;
mod nccl;
mod piped;
mod rendezvous;
mod ring;
mod stage;
mod transport;
mod worker;

pub use driver::GroupDriver;
pub use error::{PipelineError, Refusal};
pub use group::{GroupError, MOST_RANKS, ProcessGroup};
pub use identity::{Identity, OtherModel};
pub use message::MessageError;
pub(super) use piped::{Piped, PipedSetup};
pub use transport::{LINK_ID_BYTES, LinkError, LinkId, Network, RingEnds, RingLinks, Transport, WaitLimits};
pub use worker::Stage;

use std::sync::Arc;

use super::{Engine, EngineError};
use nccl::Nccl;

/// A process of a group that has joined it.
pub enum Member {
    /// Rank 0: an engine whose steps run on all ranks.
    Driver(Box<Engine>),
    /// Any other rank: [`Stage::run`] computes its layers.
    Stage(Box<Stage>),
}

impl Engine {
    /// Joins a process group: waits until all ranks are there, and keeps the layers of its own
    /// rank. NCCL carries activations between the ranks.
    ///
    /// # Errors
    /// If the engine has a flow, a group already, no GPU, or chunks of prompts on several devices;
    /// if a rank does not join within the timeout or has another model.
    pub fn join(self, group: &ProcessGroup) -> Result<Member, EngineError> {
        let device = self.place.link_device().ok_or(PipelineError::NoDevice)?;
        let nccl = Nccl::on(device).map_err(PipelineError::Network)?;
        self.join_by(group, Arc::new(nccl))
    }

    /// [Joins](Engine::join) a process group whose ranks have this network between them.
    ///
    /// # Errors
    /// As [`Engine::join`].
    pub fn join_by(self, group: &ProcessGroup, network: Arc<dyn Network>) -> Result<Member, EngineError> {
        if self.flow.is_some() {
            return Err(PipelineError::Flow.into());
        }
        if self.prompt_chunk.is_some() && !self.place.has_graphs_of_stages() {
            return Err(PipelineError::Chunk.into());
        }
        if self.place.group().is_some() {
            return Err(PipelineError::Twice.into());
        }
        let stages = cut::cut(self.spec(), group.size())?;
        let identity = self.identity();
        let limits = WaitLimits::new(group.data_timeout(), self.abort_handle());
        let rank = group.rank();
        let layers = stages[rank];
        if rank == 0 {
            let ids = stages.iter().map(|_| network.id()).collect::<Result<Vec<_>, _>>();
            let ids = ids.map_err(PipelineError::Network)?;
            let links = RingLinks { rank, from: ids[group.size() - 1], to: ids[0] };
            let controls = rendezvous::gather(group, &identity, &ids)?;
            self.place.share(GroupDriver::new(controls, layers, &*network, &links, limits)?);
            return Ok(Member::Driver(Box::new(self)));
        }
        let (control, [from, to]) = rendezvous::join(group, &identity)?;
        let links = RingLinks { rank, from, to };
        let (control, size) = (Arc::new(control), group.size());
        Ok(Member::Stage(Box::new(Stage { engine: self, size, layers, control, network, links, limits })))
    }

    /// The identity that ranks compare before they compute together.
    pub fn identity(&self) -> Identity {
        Identity::of(&self.checkpoint).on(self.place.kind())
    }
}
