//! The threads of a ring that free its stages by a barrier, and rings for each of several such
//! groups.

use tilewright_codegen::build::{Builder, Val};

/// The named barrier of the reading threads, which are separate from the filling thread.
const APART_BARRIER: u32 = 1;

/// The threads that fill and read a ring together, or one thread that fills and separate threads
/// that read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingThreads {
    /// The whole block, with its number of threads.
    Block(u32),
    /// A ring per warp, with the number of warps.
    Warps(u32),
    /// A single thread fills; `users` warps from warp `first` on read by `wgmma` alone, each at its
    /// own time.
    Apart {
        /// The first warp that reads.
        first: u32,
        /// The number of warps that read.
        users: u32,
    },
}

/// Rings of a block, one for each team.
#[derive(Clone, Copy)]
pub(super) struct TeamRings<'k> {
    /// Threads of a team.
    pub team: RingThreads,
    /// Rings of the block.
    pub count: u32,
    /// Number of this thread's ring.
    pub own: Val<'k, u32>,
}

impl RingThreads {
    /// Threads that read a ring.
    pub fn threads(self) -> u32 {
        match self {
            RingThreads::Block(threads) => threads,
            RingThreads::Warps(_) => 32,
            RingThreads::Apart { users, .. } => 32 * users,
        }
    }

    /// Rings of the block.
    pub(super) fn rings(self, k: &Builder) -> TeamRings<'_> {
        let (count, own) = match self {
            RingThreads::Block(_) | RingThreads::Apart { .. } => (1, k.lit(0u32)),
            RingThreads::Warps(warps) => (warps, k.warp()),
        };
        TeamRings { team: self, count, own }
    }

    /// The index of this thread among those of its ring.
    pub fn thread(self, k: &Builder) -> Val<'_, u32> {
        match self {
            RingThreads::Block(_) => k.tid(),
            RingThreads::Warps(_) => k.lane(),
            RingThreads::Apart { first, .. } => k.tid() - 32 * first,
        }
    }

    /// A barrier of the threads that read a ring.
    pub fn sync(self, k: &Builder) {
        match self {
            RingThreads::Block(_) => k.barrier(),
            RingThreads::Warps(_) => k.sync_warp(),
            RingThreads::Apart { users, .. } => k.bar_sync(APART_BARRIER, 32 * users),
        }
    }
}
