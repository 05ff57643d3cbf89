//! Agents, whose order clocks record, and where they are on the machine.

/// The dimensions of the grid and of clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Warps of a block.
    pub warps: u32,
    /// Components of a block: its warps, its warpgroups, its mbarriers.
    pub components: u32,
    /// Blocks of a cluster.
    pub cluster: u32,
    /// Blocks of a device.
    pub device: u32,
    /// 2^32 / `warps`, rounded up: warps are divided by it at every access.
    reciprocal: u64,
}

impl Geometry {
    pub(crate) fn new(threads: u32, cluster: u32, mbarriers: u32) -> Geometry {
        let warps = threads.div_ceil(32);
        let reciprocal = (1u64 << 32).div_ceil(u64::from(warps.max(1)));
        Geometry { warps, components: warps + warps.div_ceil(4) + mbarriers, cluster, device: u32::MAX, reciprocal }
    }

    /// The block of a warp of the grid, and the warp's index there.
    ///
    /// Exact, since threads have 32 bits and a block has at most 32 warps: `warp` times the error
    /// of the reciprocal stays below 2^32.
    pub(crate) fn split(self, warp: u32) -> (u32, u32) {
        let block = ((u64::from(warp) * self.reciprocal) >> 32) as u32;
        (block, warp.wrapping_sub(block.wrapping_mul(self.warps)))
    }

    /// Divides the blocks over devices, `each` to one.
    pub(crate) fn on_devices(self, blocks: u32) -> Geometry {
        Geometry { device: blocks.max(1), ..self }
    }

    pub(crate) fn block_of(self, thread: Thread) -> u32 {
        self.split(thread / 32).0
    }

    pub(crate) fn cluster_of(self, block: u32) -> u32 {
        block / self.cluster
    }

    pub(crate) fn device_of(self, block: u32) -> u32 {
        block / self.device
    }

    /// The component of a warpgroup's `wgmma`.
    pub(crate) fn warpgroup(self, group: u32) -> u32 {
        self.warps + group
    }

    /// The component of an mbarrier's completions.
    pub(crate) fn mbarrier(self, index: u32) -> u32 {
        self.warps + self.warps.div_ceil(4) + index
    }
}

/// A component at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agent {
    pub block: u32,
    pub component: u32,
    pub time: u32,
}

/// A thread: warp of the grid · 32 + lane.
pub(crate) type Thread = u32;

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn warps_are_split_as_a_division_splits_them(threads in 1u32..=1024, warp in 0u32..1 << 27) {
            let geometry = Geometry::new(threads, 1, 0);
            assert_eq!(geometry.split(warp), (warp / geometry.warps, warp % geometry.warps));
            assert_eq!(geometry.split(warp - warp % geometry.warps).1, 0);
        }
    }
}
