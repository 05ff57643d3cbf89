//! The parts of a product's time: rates and costs of the memory, the clusters and the tensor cores.

use super::HopperTuning;

/// Bytes that memory brings in a microsecond, of an H200.
pub(super) const MEMORY: f64 = 4.6e6;

/// Bytes that a multiprocessor takes in in a microsecond.
pub(super) const INGRESS: f64 = 80e3;

/// Bytes of sums that others of its cluster send a block in a microsecond.
pub(super) const EXCHANGE: f64 = 25e3;

/// Additional microseconds of an exchange.
pub(super) const MEET: f64 = 1.0;

/// Cycles of a microsecond.
pub(super) const CYCLES: f64 = 1750.0;

/// The fallback tuning if no other one fits.
pub(super) const LEAST: HopperTuning = HopperTuning {
    warpgroups: 1,
    strips: 8,
    stage_tiles: 2,
    stages: 12,
    in_flight: IN_FLIGHT[0],
    multicast: 1,
    splits: 1,
    vectors: 0,
    per_sm: 1,
};

/// Most and fewest stages on their way to a block. As many as there are keep an H200 no busier, and
/// what a warpgroup issues then waits for them: at 64 vectors 3 of 16 KB gain 4 % of 4096 × 4096
/// and 5 % of 2048 × 8192 and lose nothing on five other shapes; 2 lose 9 % of 4096 × 14336. Of
/// stages of 28 KB 4 and 5 lose 0.8 % of a whole step of Llama-3.1-8B, and 2 lose nothing.
pub(super) const IN_FLIGHT: [u32; 2] = [3, 2];
