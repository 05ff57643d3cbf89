//! Why a kernel cannot be made for a shape.

use thiserror::Error;

/// A shape that the kernel cannot be made for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// A tile of vectors outside 1 to 256.
    #[error("tiles of {batch} vectors; wgmma takes 1 to 256: cut them")]
    Batch {
        /// Vectors of a tile.
        batch: u32,
    },
    /// No rows, or more results than 32 bits count.
    #[error("weights of {n} rows; from 1 to 2^24 are supported: cut them")]
    Rows {
        /// The rows.
        n: u32,
    },
    /// Codes that become no operand of `wgmma`.
    #[error(
        "quantised weights in groups or blocks of 16; the product by wgmma takes whole steps of 32: cut the batch to 16 vectors"
    )]
    Halves,
    /// A setting that does not go with the others.
    #[error("{what} is {found}; it must be {wanted}")]
    Setting {
        /// Its name.
        what: &'static str,
        /// Its value.
        found: u32,
        /// The accepted values.
        wanted: &'static str,
    },
    /// A thread's share of the registers does not hold its sums and its weights.
    #[error(
        "{needed} registers for a batch of {batch} and stages of {stage_tiles} tiles, and a thread of {threads} has {limit}; use fewer warpgroups or smaller stages"
    )]
    Registers {
        /// Registers needed.
        needed: u32,
        /// The batch.
        batch: u32,
        /// Tiles of a strip in a stage.
        stage_tiles: u32,
        /// Threads of a block.
        threads: u32,
        /// Registers of a thread.
        limit: u32,
    },
    /// Two stages of each ring do not fit.
    #[error(
        "{needed} bytes of shared memory for a batch of {batch} and two stages of {stage_tiles} tiles, and a block has {limit}; use smaller stages"
    )]
    Shared {
        /// Bytes needed.
        needed: u32,
        /// The batch.
        batch: u32,
        /// Tiles of a strip in a stage.
        stage_tiles: u32,
        /// Bytes of a block.
        limit: u32,
    },
}
