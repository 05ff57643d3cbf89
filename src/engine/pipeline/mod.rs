//! One model in the processes of a group, on one host or several: pipeline parallelism, where each
//! rank has layers of its own, or tensor parallelism, where each has a shard of every layer.
//!
//! ```text
//!  rank 0: drives                rank 1: a stage               rank 2: the last stage
//! ┌──────────────────┐  hidden  ┌──────────────────┐  hidden  ┌──────────────────┐
//! │ embed, layers 0:a├─────────►│ layers a:b       ├─────────►│ layers b:n, head │
//! └────────▲─────────┘  NCCL    └──────────────────┘  NCCL    └────────┬─────────┘
//!          └───────────────────── logits ──────────────────────────────┘
//! ```
//!
//! Shards use the same ring: the words of a step go round before the ranks compute it, and the
//! logits after it. Between, NCCL adds up the parts of all within the launch graphs; simulated
//! devices have no NCCL, and their hosts add up along the ring.
//!
//! | file | what it holds |
//! |---|---|
//! | `group` | the process group, from a launcher's environment variables |
//! | `rendezvous` | how ranks join: the secret, and the ids of NCCL links |
//! | `control`, `message` | connections between rank 0 and the others: records of 256 bytes |
//! | `transport` | links between neighbours: traits |
//! | `nccl`, `ring` | links and sums by NCCL; a rank's neighbours, and sums along the ring |
//! | `identity` | whether ranks have the same model |
//! | `cut` | which part of the model a rank has |
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

pub use cut::ModelPart;
pub use driver::GroupDriver;
pub use error::{PipelineError, Refusal};
pub use group::{GroupError, MOST_RANKS, ProcessGroup};
pub use identity::{Identity, OtherModel};
pub use message::MessageError;
pub(super) use piped::{Piped, PipedSetup};
pub use transport::{LINK_ID_BYTES, LinkError, LinkId, Network, RingEnds, RingLinks, Transport, WaitLimits};
pub use worker::Stage;

use std::sync::Arc;

use super::place::Place;
use super::{Engine, EngineError};
use nccl::Nccl;
use transport::GroupIds;

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
        let parts = self.parts(group)?;
        let identity = self.identity();
        let limits = WaitLimits::new(group.data_timeout(), self.abort_handle());
        let part = parts[group.rank()];
        if group.rank() == 0 {
            let id = || network.id().map_err(PipelineError::Network);
            let links = parts.iter().map(|_| id()).collect::<Result<Vec<_>, _>>()?;
            let sums = (group.tensor_parallel() > 1).then(id).transpose()?;
            let ids = GroupIds { links, sums };
            let controls = rendezvous::gather(group, &identity, &ids)?;
            self.place.share(GroupDriver::new(controls, part, &*network, &ids.of(0), limits)?);
            return Ok(Member::Driver(Box::new(self)));
        }
        let (control, links) = rendezvous::join(group, &identity)?;
        let control = Arc::new(control);
        Ok(Member::Stage(Box::new(Stage { engine: self, part, control, network, links, limits })))
    }

    /// The part of the model that each rank of a group has.
    fn parts(&self, group: &ProcessGroup) -> Result<Vec<ModelPart>, EngineError> {
        let (size, found) = (group.size(), group.tensor_parallel());
        if found == 1 {
            return Ok(cut::cut(self.spec(), size)?.into_iter().map(ModelPart::Layers).collect());
        }
        if found != size {
            return Err(PipelineError::Shards { found, size }.into());
        }
        match &**self.place() {
            Place::Gpu(gpu) if gpu.devices == 1 => {}
            Place::Gpu(_) | Place::Host { .. } => return Err(PipelineError::ShardDevice.into()),
        }
        if self.checkpoint.quantized_modules().next().is_some() {
            return Err(PipelineError::ShardCodes.into());
        }
        // A model without such shards is refused before ranks wait for each other.
        stage::check_shard(self, group.rank(), size)?;
        Ok((0..size).map(|rank| ModelPart::Shard { rank, size }).collect())
    }

    /// The identity that ranks compare before they compute together.
    pub fn identity(&self) -> Identity {
        Identity::of(&self.checkpoint).on(self.place.kind())
    }
}
