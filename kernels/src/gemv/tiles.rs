//! Every tile of the kernel by level of memory, and the sizes that follow from a shape.

use crate::ring::{Consumers, Shape, Tile};
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
    /// The activations of one stage do not fit.
    #[error("{needed} bytes for the activations of a batch of {batch} over one stage, and {budget} are allowed")]
    Activations {
        /// Bytes needed.
        needed: u32,
        /// The batch.
        batch: u32,
        /// Bytes allowed.
        budget: u32,
    },
}

/// Largest k.
const MOST_K: u32 = 1 << 20;

/// The sizes of a kernel. [`Plan::new`] chooses them for a batch and a k; the others may be tuned.
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
    /// Stages of a tile in one pass.
    pub pass_stages: u32,
    /// Passes over the tiles of a group.
    pub passes: u32,
    /// Tiles of a group, whose sums are kept from pass to pass.
    pub group: u32,
    /// Stages of the ring.
    pub stages: u32,
    /// Stages in flight.
    pub in_flight: u32,
}

/// What may be chosen freely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Warps that multiply.
    pub warps: u32,
    /// Most units of a stage: 32 are 16 KiB.
    pub stage_units: u32,
    /// Stages of the ring.
    pub stages: u32,
    /// Stages in flight.
    pub in_flight: u32,
    /// Most bytes of activations at a time.
    pub x_bytes: u32,
}

impl Tuning {
    /// What was fastest for a batch of 1 on an H100; `docs/kernels.md` has the measurements.
    pub const H100: Tuning = Tuning { warps: 8, stage_units: 32, stages: 5, in_flight: 3, x_bytes: 32 << 10 };

    /// What was fastest for a batch.
    pub fn for_batch(batch: u32) -> Tuning {
        match batch {
            0..=1 => Tuning::H100,
            _ => Tuning { x_bytes: 128 << 10, ..Tuning::H100 },
        }
    }
}

impl Plan {
    /// The sizes for a batch and a k.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn new(batch: u32, k: u32, tuning: Tuning) -> Result<Plan, PlanError> {
        if !(1..=64).contains(&batch) {
            return Err(PlanError::Batch { batch });
        }
        if !(1..=MOST_K).contains(&k) {
            return Err(PlanError::Depth { k, limit: MOST_K });
        }
        let Tuning { warps, stages, in_flight, .. } = tuning;
        let units = k.div_ceil(DEPTH);
        let fewest = units.div_ceil(tuning.stage_units);
        let one = batch * (units.div_ceil(fewest) * DEPTH * 2 + 64);
        if one > tuning.x_bytes {
            return Err(PlanError::Activations { needed: one, batch, budget: tuning.x_bytes });
        }
        // The passes are alike: what that adds is filled with zeros.
        let passes = fewest.div_ceil(tuning.x_bytes / one);
        let pass_stages = fewest.div_ceil(passes);
        let stage_units = units.div_ceil(pass_stages * passes);
        let group = (4096 / (batch * ROWS)).max(1);
        Ok(Plan { batch, k, warps, stage_units, pass_stages, passes, group, stages, in_flight })
    }

    /// Units of a tile.
    pub fn tile_units(&self) -> u32 {
        self.stage_units * self.pass_stages * self.passes
    }

    /// k with the zeros behind it.
    pub fn padded_k(&self) -> u32 {
        self.tile_units() * DEPTH
    }

    /// Elements of a tile of weights.
    pub fn tile_elements(&self) -> u32 {
        self.tile_units() * ROWS * DEPTH
    }

    /// The weights of `n` rows in memory: (row, k) to offset, eight rows after eight rows, unit after unit.
    ///
    /// # Errors
    /// [`LayoutError`] where they are too many to count.
    pub fn weights(&self, n: u32) -> Result<Layout, LayoutError> {
        self.units(n.div_ceil(ROWS), self.tile_units())
    }

    /// So many tiles of so many units, row by row.
    fn units(&self, tiles: u32, units: u32) -> Result<Layout, LayoutError> {
        let order = Layout::parse(&format!("({tiles},{units}):({units},1)"))?;
        Unit::LAYOUT.blocked_product(&order)
    }

    /// A stage: (row, k) to offset.
    ///
    /// # Errors
    /// [`LayoutError`] where it is too large to count, which no plan is.
    pub fn stage(&self) -> Result<Tile<bf16, Layout>, LayoutError> {
        Ok(Tile::new(self.units(1, self.stage_units)?))
    }

    /// The ring of weights.
    pub fn ring(&self) -> Shape {
        Shape::stages(self.stages).in_flight(self.in_flight).consumers(Consumers::Warps(self.warps))
    }

    /// k of a pass.
    pub fn pass_k(&self) -> u32 {
        self.pass_stages * self.stage_units * DEPTH
    }

    /// From one vector to the next in shared memory, elements: an odd number of 64 bytes, so that neighbours use the
    /// other half of the banks.
    pub fn x_stride(&self) -> u32 {
        let halves = self.pass_k() / DEPTH;
        (halves | 1) * DEPTH
    }

    /// Instructions' worth of vectors.
    pub fn m_tiles(&self) -> u32 {
        self.batch.div_ceil(16)
    }

    /// The activations of a pass in shared memory: (vector, k) to offset.
    pub fn x(&self) -> Layout {
        Layout::constant(Layout::parse(&format!("({},{}):({},1)", self.batch, self.pass_k(), self.x_stride())))
    }

    /// Elements of a load of activations: vectors are as aligned as k lets them be.
    pub fn x_vector(&self) -> u32 {
        [8, 4, 2].into_iter().find(|width| self.k.is_multiple_of(*width)).unwrap_or(1)
    }

    /// Independent sums of a warp: a matrix instruction waits for the one before it in its chain.
    pub fn chains(&self) -> u32 {
        (4 / self.m_tiles()).max(1)
    }

    /// Sums of a tile.
    pub fn sums(&self) -> u32 {
        self.batch * ROWS
    }

    /// Sums of a tile that a warp stores: vectors in eights.
    pub fn warp_sums(&self) -> u32 {
        self.batch.next_multiple_of(8) * ROWS
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        (self.warps + 1) * 32
    }

    /// Elements of a stage.
    pub fn stage_elements(&self) -> u32 {
        self.stage_units * ROWS * DEPTH
    }
}
