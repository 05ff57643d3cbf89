//! What may be chosen of a graph's launches.

/// What may be chosen freely of the launches of a graph. Results are right whatever is chosen; settings of attention change the order of its sums.
///
/// ```
/// use tilewright_megakernel::vm::graph::GraphTuning;
/// let tuning = GraphTuning { ahead: 64 << 10, ..GraphTuning::default() };
/// assert_eq!((tuning.per_sm, tuning.tile, tuning.stages), (1, 32, 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphTuning {
    /// Bytes that each block asks level two for of the product of packed weights that comes next, while its own last bytes are on their way; 0:
    /// nothing is asked for.
    pub ahead: u32,
    /// Blocks of products of packed weights that a multiprocessor has room for, 1 or 2; a product that has no such settings has 1.
    pub per_sm: u32,
    /// Tokens of a tile of decode attention on sm_90a, 16 or 32.
    pub tile: u32,
    /// Stages of a warp's keys and values there, 2 to 4.
    pub stages: u32,
}

impl Default for GraphTuning {
    fn default() -> GraphTuning {
        GraphTuning { ahead: 0, per_sm: 1, tile: 32, stages: 2 }
    }
}
