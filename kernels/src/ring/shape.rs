//! The shape of a ring: stages, bytes in flight, consumers, cluster.

use super::RingThreads;

/// The method by which a stage is filled, which determines how its consumers learn that it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StageFill {
    /// The copy engine: the bytes complete the stage's mbarrier.
    Engine,
    /// A number of threads, by `cp.async`; they arrive at the stage's mbarrier.
    Threads(u32),
    /// The threads of a team, by `cp.async`: one group per stage, counted by each thread. A loop
    /// alternates between `rings` rings.
    Groups {
        /// Rings whose groups are counted together.
        rings: u32,
    },
    /// The threads of a team by stores, which are there when it has met. Two stages are enough: one
    /// is stored to again two fillings later, after the barrier of the one between.
    Stores,
}

/// The filling of a ring's stages.
#[derive(Clone, Copy)]
pub(crate) struct Filling<F> {
    /// The method, known while a kernel is recorded.
    pub fill: StageFill,
    /// Type of the ring's tokens, such as [`ByBulk`](super::ByBulk).
    pub by: F,
}

/// The threads that read a stage, and how they report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumers {
    /// A number of warps; each lane arrives once it has read.
    Warps(u32),
    /// A number of warpgroups that read by `wgmma` alone; one thread of each arrives after waiting
    /// for its group.
    Warpgroups(u32),
    /// The threads of a team, or of each of several.
    Threads(RingThreads),
}

impl Consumers {
    /// Arrivals that free a stage; none where it is free once the team has met.
    pub(super) fn arrivals(self) -> Option<u32> {
        match self {
            Consumers::Warps(count) => Some(32 * count),
            Consumers::Warpgroups(count) => Some(count),
            Consumers::Threads(RingThreads::Apart { users, .. }) => Some(users),
            Consumers::Threads(RingThreads::Block(_) | RingThreads::Warps(_)) => None,
        }
    }

    /// The threads that free a stage by a barrier of their own.
    pub(super) fn barrier_threads(self) -> Option<RingThreads> {
        if let Consumers::Threads(team @ (RingThreads::Block(_) | RingThreads::Warps(_))) = self {
            Some(team)
        } else {
            None
        }
    }
}

/// The shape of a ring.
///
/// ```
/// use tilewright_kernels::ring::{Consumers, Shape};
/// // Eleven stages of which three may be on their way, read by eight warps.
/// let shape = Shape::stages(11).in_flight(3).consumers(Consumers::Warps(8));
/// assert_ne!(shape, Shape::stages(11));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub(super) stages: u32,
    pub(super) in_flight: u32,
    pub(super) consumers: Consumers,
    pub(super) cluster: u32,
    pub(super) groups: u32,
    /// The thread that initialises mbarriers.
    pub(super) maker: u32,
}

impl Shape {
    /// A ring of `stages` stages, all of which may be in flight, read by one warp. Without a stage
    /// it is refused where the ring is constructed,
    /// [`RingError::Stages`](super::RingError::Stages).
    pub const fn stages(stages: u32) -> Shape {
        Shape { stages, in_flight: stages, consumers: Consumers::Warps(1), cluster: 1, groups: 1, maker: 0 }
    }

    /// Stages that may be on their way at once, at least one: the producer waits for an earlier one
    /// to arrive before it issues the next. A ring of arrived stages bridges waits; bytes in flight
    /// beyond what the bandwidth needs only delay everything else that the multiprocessor sends.
    #[must_use]
    pub const fn in_flight(self, stages: u32) -> Shape {
        Shape { in_flight: stages, ..self }
    }

    /// Sets the threads that read.
    #[must_use]
    pub const fn consumers(self, consumers: Consumers) -> Shape {
        Shape { consumers, ..self }
    }

    /// Blocks of a cluster that write into each other's stages (multicast): a stage is free once it
    /// was read in all of them. At most 32.
    #[must_use]
    pub const fn cluster(self, blocks: u32) -> Shape {
        Shape { cluster: blocks, ..self }
    }

    /// The number of groups of those blocks in a cluster, each of consecutive ranks: blocks write
    /// into the stages of their own group.
    #[must_use]
    pub const fn groups(self, groups: u32) -> Shape {
        Shape { groups, ..self }
    }
}
