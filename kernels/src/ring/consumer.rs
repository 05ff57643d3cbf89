//! The consumers' end: wait → read → release, at once or one stage later.

use tilewright_codegen::build::{Val, Var};
use tilewright_codegen::ir::attr::ProxyFence;

use super::cursor::Cursor;
use super::{Consumers, Operands, StageFill};
use crate::ring::parts::{RingBarriers, RingParts};

/// The end of a ring that reads stages. Every consumer comes through every step.
pub struct Consumer<'k, B, O: Operands> {
    parts: RingParts<'k, B, O>,
    next: Cursor<'k>,
}

/// A stage that is full, to be read and released.
#[must_use = "a stage that was waited for is released"]
pub struct Full<'k, B, O: Operands> {
    pub(super) parts: RingParts<'k, B, O>,
    pub(super) stage: Val<'k, u32>,
}

impl<'k, B, O: Operands> Consumer<'k, B, O> {
    #[track_caller]
    pub(super) fn new(parts: RingParts<'k, B, O>) -> Self {
        Consumer { parts, next: Cursor::new(parts.k, parts.shape.stages, 0, 0) }
    }

    /// Stages of the ring.
    pub fn stages(&self) -> u32 {
        self.parts.shape.stages
    }

    /// Waits until the next stage is full.
    #[track_caller]
    pub fn wait(&mut self) -> Full<'k, B, O> {
        let parts = self.parts;
        let (stage, parity) = self.next.step();
        parts.wait(stage, parity);
        Full { parts, stage }
    }

    /// Turns the consumer into one whose stages are released one step later: for `wgmma`, which
    /// reads a stage while the next one is already being issued.
    #[track_caller]
    pub fn deferred(self) -> Deferred<'k, B, O> {
        let k = self.parts.k;
        Deferred { before: k.var(0u32), held: k.var(0u32), consumer: self }
    }
}

impl<'k, B, O: Operands> Full<'k, B, O> {
    /// The tiles of the stage.
    #[track_caller]
    pub fn tiles(&self) -> O::Views<'k> {
        self.parts.operands.views(self.parts.bases, self.stage)
    }

    /// Releases the stage: this consumer has read it. A team that frees stages by a barrier does
    /// nothing here: its next wait does.
    #[track_caller]
    pub fn release(self) {
        release(self.parts.barriers, &[self.stage], self.parts.k.lit(true));
    }

    /// Releases stages that this consumer has read, with one fence after the reads of all.
    #[track_caller]
    pub fn release_together(stages: &[Self]) {
        if let Some(first) = stages.first() {
            let numbers: Vec<_> = stages.iter().map(|full| full.stage).collect();
            release(first.parts.barriers, &numbers, first.parts.k.lit(true));
        }
    }

    /// Lets this consumer, one of some warps, read the stage if `reads` is true, the same for all
    /// of a warp, and releases it. A consumer that does not read needs no fence, since no copy can
    /// overtake its reads.
    #[track_caller]
    pub fn read_if(self, reads: Val<'k, bool>, read: impl FnOnce(&Self)) {
        let RingBarriers { k, empty, shape, fill, .. } = self.parts.barriers;
        let (Some(empty), Consumers::Warps(_), 1) = (empty, shape.consumers, shape.cluster) else {
            k.moving().when(reads, || read(&self));
            return self.release();
        };
        k.moving().when(reads, || {
            read(&self);
            if fill == StageFill::Engine {
                k.fence_proxy_async(ProxyFence::Shared);
            }
        });
        empty.at(self.stage).arrive();
    }
}

/// Arrives at the stages' "empty", in every block that writes there, where `really`.
#[track_caller]
pub(super) fn release<'k>(barriers: RingBarriers<'k>, stages: &[Val<'k, u32>], really: Val<'k, bool>) {
    let RingBarriers { k, empty, shape, fill, .. } = barriers;
    let Some(empty) = empty else { return };
    let blocks = shape.cluster;
    let rank = |member: Val<'k, u32>| {
        if shape.groups > 1 { k.cluster_rank() / blocks * blocks + member } else { member }
    };
    match shape.consumers {
        Consumers::Warps(_) => {
            if fill == StageFill::Engine {
                // Reads may still be in flight when the arrival is seen, and the copy that follows
                // is not ordered after them.
                k.fence_proxy_async(ProxyFence::Shared);
            }
            // Each lane for itself: that costs no more than to meet the warp, and
            // `compute-sanitizer` follows it.
            for &stage in stages {
                let empty = empty.at(stage);
                k.when(really, || match blocks {
                    1 => empty.arrive(),
                    _ => (0..blocks).for_each(|block| empty.on(rank(k.lit(block))).arrive()),
                });
            }
        }
        Consumers::Warpgroups(_) | Consumers::Threads(_) => {
            let member = if let Consumers::Warpgroups(_) = shape.consumers { k.tid() % 128 } else { k.lane() };
            for &stage in stages {
                let empty = empty.at(stage);
                k.when(member.lt(blocks) & really, || match blocks {
                    1 => empty.arrive(),
                    // A release to the cluster would drain the thread's stores at every step;
                    // `wgmma` only read.
                    _ => empty.on(rank(member)).arrive_async(),
                });
            }
        }
    }
}

/// A consumer that still uses the stage before while it works on the next one.
pub struct Deferred<'k, B, O: Operands> {
    consumer: Consumer<'k, B, O>,
    /// The stage that is not released yet.
    before: Var<'k, u32>,
    /// 1 where there is one.
    held: Var<'k, u32>,
}

/// A stage that is full; its release comes with the next stage's.
#[must_use = "a stage that was waited for is kept, and the one before it released"]
pub struct DeferredFull<'a, 'k, B, O: Operands> {
    ring: &'a Deferred<'k, B, O>,
    full: Full<'k, B, O>,
}

impl<'k, B, O: Operands> Deferred<'k, B, O> {
    /// Waits until the next stage is full. The one before is still this consumer's.
    #[track_caller]
    pub fn wait(&mut self) -> DeferredFull<'_, 'k, B, O> {
        let full = self.consumer.wait();
        DeferredFull { ring: self, full }
    }

    /// Releases the stage that is kept, where everything that read it was waited for; the next one
    /// finds none before it.
    #[track_caller]
    pub fn release_last(&mut self) {
        release(self.consumer.parts.barriers, &[self.before.get()], self.held.get().ne(0));
        self.held.set(0u32);
    }
}

impl<'k, B, O: Operands> DeferredFull<'_, 'k, B, O> {
    /// The tiles of the stage.
    #[track_caller]
    pub fn tiles(&self) -> O::Views<'k> {
        self.full.tiles()
    }

    /// Releases the stage: everything that read it was waited for.
    #[track_caller]
    pub fn release(self) {
        self.full.release();
    }

    /// The stage before was read: all but the newest `wgmma` group were waited for. This one is
    /// kept.
    #[track_caller]
    pub fn release_previous(self) {
        let Deferred { consumer, before, held } = self.ring;
        release(consumer.parts.barriers, &[before.get()], held.get().ne(0));
        self.keep();
    }

    /// Keeps the stage, where none is kept before it.
    #[track_caller]
    pub fn keep(self) {
        self.ring.before.set(self.full.stage);
        self.ring.held.set(1u32);
    }
}
