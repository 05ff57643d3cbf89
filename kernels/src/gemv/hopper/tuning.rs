//! The tuning parameters of the Hopper kernel.

/// Tuning parameters, which change the speed and not the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HopperTuning {
    /// Warpgroups that multiply, 1 to 4: 64 rows of weights each, the last of them fewer where the
    /// tile ends.
    pub warpgroups: u32,
    /// Strips of a tile, 2 at least: more than one warpgroup fewer would have, and no more than
    /// eight for each. Of gates, which take turns with what they gate, even.
    pub strips: u32,
    /// Tiles of a strip in a stage: 4 are 128 of k.
    pub stage_tiles: u32,
    /// Stages of weights, fewer where shared memory runs out; of activations as many, 5 at most.
    /// Weights wait there for the activations of the launch before.
    pub stages: u32,
    /// Stages of weights in flight.
    pub in_flight: u32,
    /// Blocks of a cluster that share activations by multicast, one tile of weights below the
    /// other.
    pub multicast: u32,
    /// Blocks of a cluster that share k, and exchange their sums.
    pub splits: u32,
    /// Vectors of a tile, a multiple of eight for each block that shares them; 0: all. Tiles of
    /// other vectors are other tiles.
    pub vectors: u32,
    /// Blocks that a multiprocessor has room for, 1 or 2. A launch has one for each: the second is
    /// of the next launch, whose weights then come before this one has ended.
    pub per_sm: u32,
}

impl HopperTuning {
    /// Blocks of a cluster.
    pub fn cluster(self) -> u32 {
        self.multicast * self.splits
    }
}
