//! Where a task's weights come from, stage by stage.

use core::cell::RefCell;

use tilewright_codegen::build::{Ptr, Shared, Val};
use tilewright_layout::view::OffsetMap;

use super::prefetch::PrefetchedStage;
use crate::ring::{AnyStage, Consumer, Full, StageTile, Stages};

/// Reads several stages that have arrived together.
pub type ReadStages<'r, 'k> = &'r dyn Fn(&[Ptr<'k, Shared, u32>]);

/// A source of weights, stage by stage: a reader of the ring. While a stage is read, the next one
/// may be waited for, no more.
pub trait WeightStages<'k>: Stages<'k> {
    /// Waits for the next stage, lets a warp read it, and releases it.
    fn stage(&self, read: &dyn Fn(Ptr<'k, Shared, u32>)) {
        let stage = self.wait();
        read(stage.base());
        stage.release();
    }

    /// Reads the next stage where a warp may have nothing to read; `reads` is uniform in the warp.
    fn stage_if(&self, reads: Val<'k, bool>, read: &dyn Fn(Ptr<'k, Shared, u32>)) {
        self.stage(&|there| reads.builder().when(reads, || read(there)));
    }

    /// Most stages that [`WeightStages::several`] may be asked for.
    fn most(&self) -> u32 {
        2
    }

    /// Reads the next `count` stages, which are released together.
    fn several(&self, count: u32, read: ReadStages<'_, 'k>) {
        let stages: Vec<_> = (0..count).map(|_| self.wait()).collect();
        read(&stages.iter().map(AnyStage::base).collect::<Vec<_>>());
        stages.into_iter().for_each(AnyStage::release);
    }

    /// The task's first stages, so far as they have been taken out of the ring already: where its
    /// activations are copied.
    fn prefetched(&self) -> &[PrefetchedStage<'k>] {
        &[]
    }
}

/// The consumers' end of a ring.
impl<'k, B, L: OffsetMap> WeightStages<'k> for RefCell<Consumer<'k, B, (StageTile<u32, L>,)>> {
    fn stage_if(&self, reads: Val<'k, bool>, read: &dyn Fn(Ptr<'k, Shared, u32>)) {
        let full = self.borrow_mut().wait();
        full.read_if(reads, |full| {
            let (stage,) = full.tiles();
            read(stage.base());
        });
    }

    fn most(&self) -> u32 {
        self.borrow().stages()
    }

    fn several(&self, count: u32, read: ReadStages<'_, 'k>) {
        let stages: Vec<_> = (0..count).map(|_| self.borrow_mut().wait()).collect();
        read(&stages.iter().map(|full| full.tiles().0.base()).collect::<Vec<_>>());
        Full::release_together(&stages);
    }
}
