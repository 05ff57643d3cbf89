//! Stages of a ring one after another, for code that need not know which ring it is.

use core::cell::RefCell;

use tilewright_codegen::build::{Ptr, Scalar, Shared, Val};
use tilewright_layout::view::OffsetMap;

use super::consumer::release;
use super::{Consumer, Full, StageTile};
use crate::ring::parts::RingBarriers;

/// Stages in the order in which they were filled, for whole warps.
pub trait Stages<'k> {
    /// Waits for the next stage.
    fn wait(&self) -> AnyStage<'k>;
}

/// A stage that is full, of any ring.
#[must_use = "a stage that was waited for is released"]
pub struct AnyStage<'k> {
    base: Ptr<'k, Shared, u32>,
    /// The ring and the stage whose release is signalled, if it is.
    told: Option<(RingBarriers<'k>, Val<'k, u32>)>,
}

impl<'k> AnyStage<'k> {
    /// A stage without a ring: its release does nothing.
    pub fn untold(base: Ptr<'k, Shared, u32>) -> AnyStage<'k> {
        AnyStage { base, told: None }
    }

    /// The address of the stage.
    pub fn base(&self) -> Ptr<'k, Shared, u32> {
        self.base
    }

    /// Releases the stage: this warp has read it.
    #[track_caller]
    pub fn release(self) {
        if let Some((barriers, stage)) = self.told {
            release(barriers, &[stage], barriers.k.lit(true));
        }
    }
}

impl<'k, B, T: Scalar, L: OffsetMap> From<Full<'k, B, (StageTile<T, L>,)>> for AnyStage<'k> {
    #[track_caller]
    fn from(full: Full<'k, B, (StageTile<T, L>,)>) -> AnyStage<'k> {
        let (tile,) = full.tiles();
        AnyStage { base: tile.base().cast(), told: Some((full.parts.barriers, full.stage)) }
    }
}

/// The consumers' end of a ring.
impl<'k, B, L: OffsetMap> Stages<'k> for RefCell<Consumer<'k, B, (StageTile<u32, L>,)>> {
    fn wait(&self) -> AnyStage<'k> {
        self.borrow_mut().wait().into()
    }
}
