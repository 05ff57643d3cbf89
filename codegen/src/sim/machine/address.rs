//! Places in memory: homes and addresses.

/// A region of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Home {
    /// A buffer of the host.
    Buffer(u32),
    /// The shared memory of a block.
    Shared(u32),
    /// The parameters of a device's launch.
    Params(u32),
}

/// A byte of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    /// The region.
    pub home: Home,
    /// Bytes from its start.
    pub offset: usize,
}

impl Address {
    /// The key of a word in the table of released values.
    pub(crate) fn key(self) -> (u32, u32) {
        (self.home.key(), self.offset as u32)
    }
}

impl Home {
    /// 0 for global, 1 for shared memory: the side of a proxy fence.
    pub(crate) fn side(self) -> usize {
        usize::from(matches!(self, Home::Shared(_)))
    }

    /// A number of its own.
    pub(crate) fn key(self) -> u32 {
        match self {
            Home::Buffer(index) => index,
            Home::Shared(block) => 1 << 31 | block,
            Home::Params(device) => 1 << 30 | device,
        }
    }
}
