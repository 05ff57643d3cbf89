//! Ends of a ring: stages and their barriers.

use core::marker::PhantomData;
use core::ops::Deref;

use tilewright_codegen::build::{Builder, Mbarrier, Shared, Val};
use tilewright_codegen::ir::attr::{BarScope, ProxyFence};

use super::{Consumers, Operands, Shape, StageFill};

/// The state that producer and consumers share: barriers, operands and their addresses.
pub(super) struct RingParts<'k, B, O: Operands> {
    pub barriers: RingBarriers<'k>,
    pub operands: O,
    pub bases: O::Bases<'k>,
    pub(super) brand: PhantomData<fn() -> B>,
}

/// The barriers between the two ends of a ring, for any contents of its stages. Not generic: the
/// code that records them is compiled once for all rings.
#[derive(Clone, Copy)]
pub(super) struct RingBarriers<'k> {
    pub k: &'k Builder,
    /// Completes when a stage's bytes are there, where it does not follow from the threads' own
    /// copies.
    pub(super) full: Option<Mbarrier<'k, Shared>>,
    /// Completes when a stage was read, where readers arrive.
    pub empty: Option<Mbarrier<'k, Shared>>,
    pub shape: Shape,
    pub fill: StageFill,
}

impl<B, O: Operands> Clone for RingParts<'_, B, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B, O: Operands> Copy for RingParts<'_, B, O> {}

impl<'k, B, O: Operands> Deref for RingParts<'k, B, O> {
    type Target = RingBarriers<'k>;

    fn deref(&self) -> &RingBarriers<'k> {
        &self.barriers
    }
}

impl<'k> RingBarriers<'k> {
    /// The mbarrier of a stage that completes when its bytes are there.
    #[track_caller]
    pub fn full(&self, stage: Val<'k, u32>) -> Mbarrier<'k, Shared> {
        self.full.map_or_else(|| unreachable!("groups of copies have no mbarrier"), |full| full.at(stage))
    }

    /// Waits until a stage is full; consumers with a barrier of their own wait at it here, which
    /// frees the stage before.
    #[track_caller]
    pub fn wait(&self, stage: Val<'k, u32>, parity: Val<'k, u32>) {
        match self.fill {
            // The bytes come by the async proxy, be it from another block: their arrival needs no
            // wider scope.
            StageFill::Engine | StageFill::Threads(_) => self.full(stage).wait(parity),
            StageFill::Groups { rings } => self.k.cp_async_wait(rings * (self.shape.stages - 1) - 1),
            StageFill::Stores => {}
        }
        if let Some(team) = self.shape.consumers.barrier_threads() {
            if self.fill == StageFill::Engine {
                // Reads may still be on their way after the barrier, and the next copy is not
                // ordered after them.
                self.k.fence_proxy_async(ProxyFence::Shared);
            }
            team.sync(self.k);
        }
    }

    /// The scope at which other blocks' arrivals at "empty" are waited for. Those of `wgmma`'s
    /// readers order no access of their own, so that nothing is waited for beyond the block.
    pub fn scope(&self) -> BarScope {
        match self.shape.consumers {
            Consumers::Warps(_) if self.shape.cluster > 1 => BarScope::Cluster,
            Consumers::Warps(_) | Consumers::Warpgroups(_) | Consumers::Threads(_) => BarScope::Cta,
        }
    }
}
