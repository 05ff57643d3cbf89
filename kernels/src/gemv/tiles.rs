//! Every tile of the kernel by level of memory, and the sizes that follow from a shape.

use crate::ring::{Consumers, Shape, StageTile};
use crate::weights::weight_tile::DEPTH;
use crate::weights::{Strip, StripError};
use half::bf16;
use tilewright_layout::Layout;

/// Names the ring of weights.
#[derive(Debug)]
pub enum WeightRing {}

/// Names the ring of activations.
#[derive(Debug)]
pub enum ActivationRing {}

/// A shape that the kernel cannot be made for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A batch outside 1 to 64.
    #[error("a batch of {batch} vectors; this kernel takes 1 to 64")]
    Batch {
        /// The batch.
        batch: u32,
    },
    /// k is zero or too large.
    #[error(transparent)]
    Strip(#[from] StripError),
    /// Two stages of weights do not fit in addition to the activations.
    #[error(
        "{needed} bytes of shared memory for a batch of {batch} and stages of {stage_tiles} tiles, and a block has {limit}; use smaller stages"
    )]
    Shared {
        /// Bytes needed.
        needed: u32,
        /// The batch.
        batch: u32,
        /// Tiles of a stage.
        stage_tiles: u32,
        /// Bytes of a block.
        limit: u32,
    },
}

/// Accumulators that a thread may spend: what is left of 255 registers is addresses and what was
/// loaded.
const ACCUMULATORS: u32 = 64;

/// Shared memory of a block on sm_90, bytes.
const SHARED: u32 = 227 << 10;

/// The sizes of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemvPlan {
    /// Vectors.
    pub batch: u32,
    /// Strips of weights: k, the warps that multiply, stages.
    pub strip: Strip,
    /// Strips that meet the same activations: a group goes through k together.
    pub group: u32,
    /// Stages of the ring of weights.
    pub stages: u32,
    /// Stages in flight.
    pub in_flight: u32,
    /// Stages of the ring of activations.
    pub x_stages: u32,
}

/// Tuning parameters, which change the speed and not the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemvTuning {
    /// Warps that multiply.
    pub warps: u32,
    /// Most tiles of a stage: 32 are 16 KiB.
    pub stage_tiles: u32,
    /// Stages of the ring of weights; fewer where shared memory runs out.
    pub stages: u32,
    /// Stages in flight.
    pub in_flight: u32,
    /// Stages of the ring of activations.
    pub x_stages: u32,
    /// Most strips of a group; 16 at a batch of 16, fewer where accumulators run out.
    pub group: u32,
}

impl GemvTuning {
    /// The fastest tuning for a batch, as measured on an H100.
    pub fn h100(batch: u32) -> GemvTuning {
        let one = GemvTuning { warps: 8, stage_tiles: 32, stages: 12, in_flight: 3, x_stages: 2, group: 4 };
        match batch {
            0..=8 => one,
            9..=16 => GemvTuning { stages: 9, in_flight: 4, group: 8, ..one },
            _ => GemvTuning { stage_tiles: 16, stages: 18, in_flight: 4, group: 8, ..one },
        }
    }
}

impl GemvPlan {
    /// The sizes for a batch, a k and the strips of a block.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn new(batch: u32, k: u32, strips: u32, tuning: GemvTuning) -> Result<GemvPlan, PlanError> {
        if !(1..=64).contains(&batch) {
            return Err(PlanError::Batch { batch });
        }
        let GemvTuning { warps, stage_tiles, stages, in_flight, x_stages, .. } = tuning;
        let strip = Strip::cut(k, warps, 1, stage_tiles)?;
        // Groups are alike in size, and no larger than accumulators allow.
        let most = tuning.group.min(ACCUMULATORS / (batch.div_ceil(16) * 4)).max(1);
        let group = strips.max(1).div_ceil(strips.max(1).div_ceil(most));
        let plan = GemvPlan { batch, strip, group, stages, in_flight, x_stages };
        let fixed = plan.shared_bytes() - stages * strip.stage_bytes();
        let stages = stages.min((SHARED.saturating_sub(fixed)) / strip.stage_bytes());
        let plan = GemvPlan { stages, in_flight: in_flight.min(stages), ..plan };
        if stages < tuning.stages.min(2) {
            let needed = fixed + 2 * strip.stage_bytes();
            return Err(PlanError::Shared { needed, batch, stage_tiles: strip.stage_tiles(), limit: SHARED });
        }
        Ok(plan)
    }

    /// Strips of the block with the most, of `n` rows over `blocks` blocks.
    pub fn strips(n: u32, blocks: u32) -> u32 {
        n.div_ceil(Strip::ROWS).div_ceil(blocks.max(1))
    }

    /// Elements from one vector to the next in memory: whole tiles, with zeros beyond k.
    pub fn x_pitch(&self) -> u32 {
        self.strip.tiles() * DEPTH
    }

    /// A stage of weights: (row, k) to offset.
    pub fn stage(&self) -> StageTile<bf16, Layout> {
        StageTile::new(self.strip.stage_layout())
    }

    /// A stage of activations: (vector, k) to offset. Vectors are an odd number of 64 bytes apart,
    /// so that neighbours use the other half of the banks.
    pub fn x_stage(&self) -> StageTile<bf16, Layout> {
        let leaf = |extent: u32, stride: u32| Layout::constant(Layout::leaf(extent.into(), stride.into()));
        let modes = [leaf(self.batch, self.x_stage_pitch()), leaf(self.strip.stage_k(), 1)];
        StageTile::new(Layout::constant(Layout::tuple(&modes)))
    }

    /// The distance from one vector to the next in a stage.
    pub(super) fn x_stage_pitch(&self) -> u32 {
        (self.strip.stage_tiles() | 1) * DEPTH
    }

    /// The ring of weights.
    pub fn ring(&self) -> Shape {
        Shape::stages(self.stages).in_flight(self.in_flight).consumers(Consumers::Warps(self.strip.warps()))
    }

    /// The ring of activations.
    pub fn x_ring(&self) -> Shape {
        Shape::stages(self.x_stages).consumers(Consumers::Warps(self.strip.warps()))
    }

    /// Instructions' worth of vectors.
    pub fn atoms(&self) -> u32 {
        self.batch.div_ceil(16)
    }

    /// Sums of a strip.
    pub fn sums(&self) -> u32 {
        self.batch * Strip::ROWS
    }

    /// Sums of a strip that a warp stores: vectors in eights.
    pub fn warp_sums(&self) -> u32 {
        self.batch.next_multiple_of(8) * Strip::ROWS
    }

    /// Threads of a block: those that multiply, a warp that fetches weights and one that fetches
    /// activations.
    pub fn threads(&self) -> u32 {
        (self.strip.warps() + 2) * 32
    }

    /// Shared memory, with what alignment and mbarriers add, bytes.
    pub fn shared_bytes(&self) -> u32 {
        let x = self.x_stages * (self.batch * self.x_stage_pitch() * 2).next_multiple_of(128);
        let sums = 2 * self.strip.warps() * self.warp_sums() * 4;
        self.stages * self.strip.stage_bytes() + x + sums + (self.stages + self.x_stages) * 16 + 512
    }

    /// Whether a warp's activations of a stage stay in registers while a group's strips meet them.
    pub fn x_in_registers(&self) -> bool {
        self.strip.per_warp() * self.batch.div_ceil(8) * 4 <= 64
    }
}
