//! A block: its shared memory, its barriers; and the barrier of its cluster.

use crate::sim::memory::{Region, Site, Stamp};
use crate::sim::order::ThreadView;

/// A named barrier of a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bar {
    /// Threads that it waits for, once a thread has arrived.
    pub threads: u32,
    pub came: u32,
    pub view: ThreadView,
    /// The first arrival: warp of the grid and step.
    pub first: (u32, Site),
}

/// An mbarrier.
#[derive(Clone, Debug, Default)]
pub(crate) struct MbarrierState {
    pub live: bool,
    pub count: u32,
    pub pending: u32,
    pub bytes: i64,
    /// Phases completed.
    pub phase: u32,
    /// The views of the threads that arrived in the current phase, and those of completed phases.
    pub current: ThreadView,
    pub done: ThreadView,
    /// The initialisation, and whether its thread made it visible to the async proxy.
    pub init: Stamp,
    pub fenced: bool,
    /// The last phase that received bytes, and the number of phases that some thread saw complete.
    pub fed: Option<u32>,
    pub seen: u32,
    /// Operations in flight that will complete in this block.
    pub flying: u32,
}

/// A block of the grid.
pub(crate) struct BlockState {
    pub coords: [u32; 3],
    /// Empty before the block starts and after it ends.
    pub shared: Option<Region>,
    pub bars: Vec<Bar>,
    pub mbarriers: Vec<MbarrierState>,
    /// Threads that have not exited.
    pub threads: u32,
    pub done: bool,
}

/// The barrier of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterBar {
    /// Warps that arrived in this phase.
    pub came: u32,
    pub view: ThreadView,
    /// Warps that have not exited.
    pub warps: u32,
    /// The views of arrivals in the completed phase, and the warps that may pass and have not yet.
    pub open: ThreadView,
    pub opened: std::collections::BTreeSet<u32>,
}
