//! How decode attention of a graph is cut.

/// How decode attention of a graph is cut on sm_90a. Its results are right whatever is chosen; tiles change the order of its sums.
///
/// ```
/// use tilewright_megakernel::vm::graph::GraphTuning;
/// assert_eq!(GraphTuning::of([128, 4], 64), GraphTuning { tile: 32, stages: 3, staying: 1, splits: 0, spare: 0 });
/// assert_eq!(GraphTuning::of([128, 4], 32), GraphTuning { tile: 16, stages: 2, staying: 2, splits: 0, spare: 0 });
/// assert_eq!(GraphTuning::of([64, 4], 64), GraphTuning { tile: 32, stages: 3, staying: 2, splits: 0, spare: 0 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphTuning {
    /// Tokens of a tile, 16 or 32.
    pub tile: u32,
    /// Stages of a warp's keys and values, 2 to 4.
    pub stages: u32,
    /// Blocks that stay on a multiprocessor and go through rows and heads; 0: each has a share of one.
    pub staying: u32,
    /// Shares of a row's tokens, 1 to 8; 0: as the width has them.
    pub splits: u32,
    /// Kilobytes of shared memory that the products before attention and behind it leave. Where a block of attention has room in these, its first keys
    /// and values come while the product before it runs, and the weights of the one behind it while it runs itself.
    pub spare: u32,
}

impl GraphTuning {
    /// Blocks that are not to stay: each has a share of a row and head.
    pub const SHARES: GraphTuning = GraphTuning { tile: 32, stages: 2, staying: 0, splits: 0, spare: 0 };

    /// What is chosen for heads of so many dimensions, so many of which share keys and values, and a step of so many rows: what an H200 is fastest
    /// with at 1024 tokens, where shared memory has room for it.
    pub fn of([depth, group]: [u32; 2], rows: u32) -> GraphTuning {
        // Parts of more than eight rows take the room of a stage.
        match (depth, group) {
            (..=64, ..=8) => GraphTuning { tile: 32, stages: 3, staying: 2, splits: 0, spare: 0 },
            (65..=128, ..=8) if rows > 32 => GraphTuning { tile: 32, stages: 3, staying: 1, splits: 0, spare: 0 },
            _ => GraphTuning { tile: 16, stages: 2, staying: 2, splits: 0, spare: 0 },
        }
    }
}
