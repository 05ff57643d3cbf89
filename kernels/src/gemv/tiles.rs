//! Every tile of the kernel by level of memory, and the sizes that follow from a shape.

use crate::ring::{Consumers, Shape, StageTile};
use half::bf16;
use tilewright_layout::typed::{RowMajor, StaticLayout};
use tilewright_layout::{Layout, LayoutError};

/// Rows of a tile: the n of the matrix instruction.
pub const ROWS: u32 = 8;

/// A unit, (row, k) to offset: what a warp reads by one 16-byte load a lane, two matrix instructions' worth.
pub type Unit = RowMajor<8, 32>;

/// k of a unit.
const DEPTH: u32 = 32;

/// Who reads which eight elements of a unit, (row, octet) to lane: lane `4·row + octet` has k = 8·octet to 8·octet + 7 of
/// its row, of the weights and of the activations alike, so that every slot of the contraction meets its partner.
pub type Octets = RowMajor<8, 4>;

/// Names the ring of weights.
#[derive(Debug)]
pub enum Weights {}

/// Names the ring of activations.
#[derive(Debug)]
pub enum Vectors {}

/// A shape that the kernel cannot be made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A batch outside 1 to 64.
    #[error("a batch of {batch} vectors; this kernel takes 1 to 64")]
    Batch {
        /// The batch.
        batch: u32,
    },
    /// k is zero or too large.
    #[error("{k} products a sum; this kernel takes 1 to {limit}")]
    Depth {
        /// k.
        k: u32,
        /// The largest k.
        limit: u32,
    },
    /// Two stages of weights do not fit beside the activations.
    #[error(
        "{needed} bytes of shared memory for a batch of {batch} and stages of {stage_units} units, and a block has {limit}; use smaller stages"
    )]
    Shared {
        /// Bytes needed.
        needed: u32,
        /// The batch.
        batch: u32,
        /// Units of a stage.
        stage_units: u32,
        /// Bytes of a block.
        limit: u32,
    },
}

/// Largest k.
const MOST_K: u32 = 1 << 20;

/// Accumulators that a thread may spend: what is left of 255 registers is addresses and what was loaded.
const ACCUMULATORS: u32 = 64;

/// Shared memory of a block on sm_90, bytes.
const SHARED: u32 = 227 << 10;

/// The sizes of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Vectors.
    pub batch: u32,
    /// Elements of a vector.
    pub k: u32,
    /// Warps that multiply.
    pub warps: u32,
    /// Units of a stage.
    pub stage_units: u32,
    /// Stages of a tile.
    pub tile_stages: u32,
    /// Tiles that meet the same activations: a group goes through k together.
    pub group: u32,
    /// Stages of the ring of weights.
    pub stages: u32,
    /// Of them in flight.
    pub in_flight: u32,
    /// Stages of the ring of activations.
    pub x_stages: u32,
}

/// What may be chosen freely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Warps that multiply.
    pub warps: u32,
    /// Most units of a stage: 32 are 16 KiB.
    pub stage_units: u32,
    /// Stages of the ring of weights; fewer where shared memory runs out.
    pub stages: u32,
    /// Of them in flight.
    pub in_flight: u32,
    /// Stages of the ring of activations.
    pub x_stages: u32,
    /// Most tiles of a group; 16 at a batch of 16, fewer where accumulators run out.
    pub group: u32,
}

impl Tuning {
    /// What was fastest for a batch on an H100; `docs/kernels.md` has the measurements.
    pub fn h100(batch: u32) -> Tuning {
        let one = Tuning { warps: 8, stage_units: 32, stages: 12, in_flight: 3, x_stages: 2, group: 4 };
        match batch {
            0..=8 => one,
            9..=16 => Tuning { stages: 9, in_flight: 4, group: 8, ..one },
            _ => Tuning { stage_units: 16, stages: 18, in_flight: 4, group: 8, ..one },
        }
    }
}

impl Plan {
    /// The sizes for a batch and a k, and blocks that have so many tiles each.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn new(batch: u32, k: u32, tiles: u32, tuning: Tuning) -> Result<Plan, PlanError> {
        if !(1..=64).contains(&batch) {
            return Err(PlanError::Batch { batch });
        }
        if !(1..=MOST_K).contains(&k) {
            return Err(PlanError::Depth { k, limit: MOST_K });
        }
        let Tuning { warps, stages, in_flight, x_stages, .. } = tuning;
        let units = k.div_ceil(DEPTH);
        let tile_stages = units.div_ceil(tuning.stage_units);
        let stage_units = units.div_ceil(tile_stages);
        // Groups are alike in size, and no larger than accumulators allow.
        let most = tuning.group.min(ACCUMULATORS / (batch.div_ceil(16) * 4)).max(1);
        let group = tiles.max(1).div_ceil(tiles.max(1).div_ceil(most));
        let plan = Plan { batch, k, warps, stage_units, tile_stages, group, stages, in_flight, x_stages };
        let fixed = plan.shared_bytes() - stages * plan.stage_elements() * 2;
        let stages = stages.min((SHARED.saturating_sub(fixed)) / (plan.stage_elements() * 2));
        let plan = Plan { stages, in_flight: in_flight.min(stages), ..plan };
        if stages < tuning.stages.min(2) {
            let needed = fixed + 2 * plan.stage_elements() * 2;
            return Err(PlanError::Shared { needed, batch, stage_units, limit: SHARED });
        }
        Ok(plan)
    }

    /// Tiles of the block that has most, of `n` rows over so many blocks.
    pub fn tiles(n: u32, blocks: u32) -> u32 {
        n.div_ceil(ROWS).div_ceil(blocks.max(1))
    }

    /// k with the zeros behind it.
    pub fn padded_k(&self) -> u32 {
        self.tile_stages * self.stage_k()
    }

    /// k of a stage.
    pub fn stage_k(&self) -> u32 {
        self.stage_units * DEPTH
    }

    /// From one vector to the next in memory: whole units. Behind k stand zeros.
    pub fn x_pitch(&self) -> u32 {
        self.units() * DEPTH
    }

    /// Units of a row, without those that the last stage adds.
    pub fn units(&self) -> u32 {
        self.k.div_ceil(DEPTH)
    }

    /// Elements of a stage of weights.
    pub fn stage_elements(&self) -> u32 {
        self.stage_k() * ROWS
    }

    /// Elements of a tile of weights.
    pub fn tile_elements(&self) -> u32 {
        self.stage_elements() * self.tile_stages
    }

    /// The weights of `n` rows in memory: (row, k) to offset, eight rows after eight rows, unit after unit.
    ///
    /// # Errors
    /// [`LayoutError`] where they are too many to count.
    pub fn weights(&self, n: u32) -> Result<Layout, LayoutError> {
        tiles_of_units(n.div_ceil(ROWS), self.tile_stages * self.stage_units)
    }

    /// A stage of weights: (row, k) to offset.
    ///
    /// # Errors
    /// [`LayoutError`] where it is too large to count, which no plan is.
    pub fn stage(&self) -> Result<StageTile<bf16, Layout>, LayoutError> {
        Ok(StageTile::new(tiles_of_units(1, self.stage_units)?))
    }

    /// A stage of activations: (vector, k) to offset. Vectors are an odd number of 64 bytes apart, so that neighbours
    /// use the other half of the banks.
    ///
    /// # Errors
    /// [`LayoutError`] where it is too large to count, which no plan is.
    pub fn x_stage(&self) -> Result<StageTile<bf16, Layout>, LayoutError> {
        let (batch, k, pitch) = (self.batch, self.stage_k(), self.x_stage_pitch());
        Ok(StageTile::new(Layout::parse(&format!("({batch},{k}):({pitch},1)"))?))
    }

    /// From one vector to the next in a stage.
    fn x_stage_pitch(&self) -> u32 {
        (self.stage_units | 1) * DEPTH
    }

    /// The ring of weights.
    pub fn ring(&self) -> Shape {
        Shape::stages(self.stages).in_flight(self.in_flight).consumers(Consumers::Warps(self.warps))
    }

    /// The ring of activations.
    pub fn x_ring(&self) -> Shape {
        Shape::stages(self.x_stages).consumers(Consumers::Warps(self.warps))
    }

    /// Instructions' worth of vectors.
    pub fn m_tiles(&self) -> u32 {
        self.batch.div_ceil(16)
    }

    /// Sums of a tile.
    pub fn sums(&self) -> u32 {
        self.batch * ROWS
    }

    /// Sums of a tile that a warp stores: vectors in eights.
    pub fn warp_sums(&self) -> u32 {
        self.batch.next_multiple_of(8) * ROWS
    }

    /// Threads of a block: those that multiply, a warp that fetches weights and one that fetches activations.
    pub fn threads(&self) -> u32 {
        (self.warps + 2) * 32
    }

    /// Shared memory, with what alignment and mbarriers add, bytes.
    pub fn shared_bytes(&self) -> u32 {
        let x = self.x_stages * (self.batch * self.x_stage_pitch() * 2).next_multiple_of(128);
        let sums = 2 * self.warps * self.warp_sums() * 4;
        self.stages * self.stage_elements() * 2 + x + sums + (self.stages + self.x_stages) * 16 + 512
    }

    /// Whether a warp's activations of a stage stay in registers while a group's tiles meet them.
    pub fn x_in_registers(&self) -> bool {
        self.stage_units.div_ceil(self.warps) * self.batch.div_ceil(8) * 4 <= 64
    }
}

/// So many tiles of so many units each: (row, k) to offset.
fn tiles_of_units(tiles: u32, units: u32) -> Result<Layout, LayoutError> {
    let order = Layout::parse(&format!("({tiles},{units}):({units},1)"))?;
    Unit::LAYOUT.blocked_product(&order)
}
