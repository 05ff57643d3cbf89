//! What may be chosen of a graph's launches.

/// How decode attention of a graph is cut on sm_90a. Its results are right whatever is chosen; tiles change the order of its sums.
///
/// ```
/// use tilewright_megakernel::vm::graph::GraphTuning;
/// let tuning = GraphTuning { tile: 16, ..GraphTuning::default() };
/// assert_eq!((tuning.stages, tuning.staying), (2, 0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphTuning {
    /// Tokens of a tile, 16 or 32.
    pub tile: u32,
    /// Stages of a warp's keys and values, 2 to 4.
    pub stages: u32,
    /// Blocks that stay on a multiprocessor and go through rows and heads; 0: each has a share of one.
    pub staying: u32,
}

impl Default for GraphTuning {
    fn default() -> GraphTuning {
        GraphTuning { tile: 32, stages: 2, staying: 0 }
    }
}
