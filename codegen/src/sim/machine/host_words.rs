//! Words that the host shares with a launch.

use super::{Address, Home};
use crate::sim::order::ThreadView;
use crate::sim::program::Program;
use crate::sim::{Arg, HostOrder, Launch};
use core::ops::Range;

/// The host's end of the words that it shares with this launch.
pub(crate) struct Host {
    pub(super) order: HostOrder,
    /// Their location: buffer and offset.
    pub(super) home: Home,
    pub(super) base: u64,
    /// The host's view after it acquired the flag's last value, and the bytes that it then reads.
    pub(super) view: ThreadView,
    pub(super) open: Range<u64>,
}

/// Bytes of an atomic word: none is wider.
pub(super) const WORD: u64 = 8;

impl Host {
    /// Creates the host's end for a launch that has one, on a kernel that has the parameter.
    pub(super) fn of(program: &Program, launch: &Launch, memory: &crate::sim::Memory) -> Option<Host> {
        let order = launch.host.clone()?;
        let param = program.params.iter().position(|param| param.name == order.param)?;
        let Some(Arg::Ptr(address)) = launch.args.get(param) else { return None };
        let (buffer, base) = memory.find(*address, 0).ok()?;
        Some(Host {
            order,
            home: Home::Buffer(buffer as u32),
            base: base as u64,
            view: ThreadView::default(),
            open: 0..0,
        })
    }

    /// Offsets from the parameter of bytes of a region; nothing where they are of another.
    pub(super) fn offsets(&self, at: Address, bytes: u32) -> Option<Range<u64>> {
        let start = (at.offset as u64).checked_sub(self.base).filter(|_| at.home == self.home)?;
        Some(start..start + u64::from(bytes))
    }

    /// A word, by its offset from the parameter.
    pub(super) fn word(&self, offset: u64) -> Address {
        Address { home: self.home, offset: (self.base + offset) as usize }
    }
}
