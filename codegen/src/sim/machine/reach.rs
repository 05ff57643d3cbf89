//! Reaching memory: from an address to bytes of a region, every access judged.

use super::{Cur, Machine, Trouble, Try};
use crate::ir::Space;
use crate::ir::attr::Scope;
use crate::sim::fault::{Bytes, FaultKind};
use crate::sim::memory::{Access, Conflict, Judge, OP, Region, Site, Stamp};
use crate::sim::order::View;
use crate::sim::program::SHARED_BASE;

/// Where parameters lie.
pub(crate) const PARAM_BASE: u64 = 0x4000;
/// Rank of a block in an address of `Cluster` space.
const RANK: u32 = 24;

/// A region of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Home {
    /// A buffer of the host.
    Buffer(u32),
    /// The shared memory of a block.
    Shared(u32),
    /// The parameters.
    Params,
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
            Home::Params => 1 << 30,
        }
    }
}

/// An asynchronous operation's access: the operation, who issued it, with what in view.
pub(crate) struct OpAccess<'v> {
    pub op: u32,
    pub thread: u32,
    pub pc: u32,
    pub view: &'v View,
    pub write: bool,
    pub generic: bool,
}

/// The address of a byte of a block's shared memory, for the whole cluster.
pub(crate) fn cluster_address(rank: u32, address: u32) -> u32 {
    rank << RANK | address
}

impl Machine<'_> {
    /// The region and offset of an address, all bytes inside; `block` is the block that asks.
    pub(crate) fn locate(&self, space: Space, block: u32, address: u64, bytes: u32) -> Try<(Home, usize)> {
        let wrong = |kind| Err(Trouble::new(kind));
        match space {
            Space::Global => match self.memory.find(address, bytes as usize) {
                Ok((index, offset)) => Ok((Home::Buffer(index as u32), offset)),
                Err(_) => wrong(FaultKind::OutOfBounds(self.bytes(space, address, bytes))),
            },
            Space::Shared => self.locate_shared(space, block, address as u32, address, bytes),
            Space::Cluster => {
                let rank = address as u32 >> RANK;
                let first = block - block % self.geometry.cluster;
                if rank >= self.geometry.cluster {
                    return wrong(FaultKind::OutOfBounds(self.bytes(space, address, bytes)));
                }
                self.locate_shared(space, first + rank, address as u32 & ((1 << RANK) - 1), address, bytes)
            }
            Space::Param => {
                let offset = address.wrapping_sub(PARAM_BASE);
                if offset.saturating_add(u64::from(bytes)) > self.params.data.len() as u64 {
                    return wrong(FaultKind::OutOfBounds(self.bytes(space, address, bytes)));
                }
                Ok((Home::Params, offset as usize))
            }
        }
    }

    fn locate_shared(&self, space: Space, block: u32, at: u32, address: u64, bytes: u32) -> Try<(Home, usize)> {
        let inside = self.program.shared_at(at).is_some_and(|(_, _)| {
            let last = at.saturating_add(bytes.saturating_sub(1));
            // An access may run over the seam of two allocations only if it begins and ends in them; the gaps between
            // belong to nobody.
            self.program.shared_at(last).is_some()
        });
        if !inside {
            return Err(Trouble::new(FaultKind::OutOfBounds(self.bytes(space, address, bytes))));
        }
        if self.blocks[block as usize].shared.is_none() {
            return Err(Trouble::new(FaultKind::BlockGone(self.bytes(space, address, bytes))));
        }
        Ok((Home::Shared(block), (at - SHARED_BASE) as usize))
    }

    /// Bytes with their names, for a report.
    pub(crate) fn bytes(&self, space: Space, address: u64, bytes: u32) -> Bytes {
        let name = match space {
            Space::Global => self.memory.buffers.iter().rev().find(|b| b.address <= address).and_then(|buffer| {
                let offset = address - buffer.address;
                (offset < buffer.region.data.len() as u64 + 512).then(|| (buffer.name.clone(), offset))
            }),
            Space::Shared | Space::Cluster => {
                let at = address as u32 & ((1 << RANK) - 1);
                self.program.shared_at(at).map(|(alloc, offset)| (alloc.name.clone(), u64::from(offset)))
            }
            Space::Param => None,
        };
        Bytes { space, address, bytes, name }
    }

    /// The address of a place in a region.
    pub(crate) fn name_place(&self, home: Home, offset: usize, bytes: u32) -> Bytes {
        match home {
            Home::Buffer(index) => {
                let buffer = &self.memory.buffers[index as usize];
                Bytes {
                    space: Space::Global,
                    address: buffer.address + offset as u64,
                    bytes,
                    name: Some((buffer.name.clone(), offset as u64)),
                }
            }
            Home::Shared(_) => self.bytes(Space::Shared, u64::from(SHARED_BASE) + offset as u64, bytes),
            Home::Params => self.bytes(Space::Param, PARAM_BASE + offset as u64, bytes),
        }
    }

    pub(crate) fn region(&self, home: Home) -> Option<&Region> {
        match home {
            Home::Buffer(index) => Some(&self.memory.buffers[index as usize].region),
            Home::Shared(block) => self.blocks[block as usize].shared.as_ref(),
            Home::Params => Some(&self.params),
        }
    }

    pub(crate) fn region_mut(&mut self, home: Home) -> Option<&mut Region> {
        match home {
            Home::Buffer(index) => Some(&mut self.memory.buffers[index as usize].region),
            Home::Shared(block) => self.blocks[block as usize].shared.as_mut(),
            Home::Params => Some(&mut self.params),
        }
    }

    /// Judges and records an access of a lane.
    pub(crate) fn touch(
        &mut self,
        cur: Cur,
        lane: usize,
        (home, offset): (Home, usize),
        bytes: u32,
        write: bool,
        strength: Option<Scope>,
    ) -> Try<()> {
        if !self.checks {
            return Ok(());
        }
        let thread = self.thread(cur.warp, lane);
        let warp = &self.warps[cur.warp];
        let stamp = Stamp { who: thread + 1, time: warp.clock[lane], site: Site::new(cur.pc, strength) };
        let access = Access { stamp, thread, view: &warp.views[lane], write, proxy: None };
        let judge = Judge { geometry: self.geometry, ops: &self.ops };
        let region = match home {
            Home::Buffer(index) => &mut self.memory.buffers[index as usize].region,
            Home::Shared(block) => match self.blocks[block as usize].shared.as_mut() {
                Some(region) => region,
                None => return Ok(()),
            },
            Home::Params => return Ok(()),
        };
        if region.read_only {
            return if write { Err(self.read_only(home, offset, bytes, lane)) } else { Ok(()) };
        }
        match region.shadow.touch(&judge, &access, offset, bytes as usize) {
            Ok(()) => Ok(()),
            Err(conflict) => Err(self.race(home, (offset, bytes), write, false, Some(lane), conflict)),
        }
    }

    fn read_only(&self, home: Home, offset: usize, bytes: u32, lane: usize) -> Box<Trouble> {
        Trouble::lane(FaultKind::ReadOnly(self.name_place(home, offset, bytes)), lane)
    }

    fn race(
        &self,
        home: Home,
        (offset, bytes): (usize, u32),
        wrote: bool,
        asynchronous: bool,
        lane: Option<usize>,
        conflict: Conflict,
    ) -> Box<Trouble> {
        // Of a large range, the cell where it happened.
        let (offset, bytes) = if bytes > 16 { (conflict.offset, 4) } else { (offset, bytes) };
        let kind = FaultKind::Race { at: self.name_place(home, offset, bytes), wrote, asynchronous, why: conflict.why };
        Box::new(Trouble {
            kind,
            lane: lane.map(|lane| lane as u32),
            other: Some((conflict.other, conflict.other_wrote)),
            place: None,
        })
    }

    /// Judges an access of an asynchronous operation, and records it if asked to.
    pub(crate) fn touch_op(
        &mut self,
        access: &OpAccess<'_>,
        (home, offset): (Home, usize),
        bytes: u32,
        record: bool,
    ) -> Try<()> {
        if !self.checks || home == Home::Params {
            return Ok(());
        }
        let stamp = Stamp { who: OP | access.op, time: 0, site: Site::new(access.pc, None) };
        let now = Access {
            stamp,
            thread: access.thread,
            view: access.view,
            write: access.write,
            proxy: (!access.generic).then_some(home.side()),
        };
        let judge = Judge { geometry: self.geometry, ops: &self.ops };
        let region = match home {
            Home::Buffer(index) => &mut self.memory.buffers[index as usize].region,
            Home::Shared(block) => match self.blocks[block as usize].shared.as_mut() {
                Some(region) => region,
                None => return Ok(()),
            },
            Home::Params => return Ok(()),
        };
        if region.read_only {
            return if access.write { Err(self.read_only(home, offset, bytes, 0)) } else { Ok(()) };
        }
        let result = if record {
            region.shadow.touch(&judge, &now, offset, bytes as usize)
        } else {
            region.shadow.judge(&judge, &now, offset, bytes as usize)
        };
        let lane = (access.thread % 32) as usize;
        result.map_err(|conflict| self.race(home, (offset, bytes), access.write, true, Some(lane), conflict))
    }

    /// Whether all these bytes were written by somebody.
    pub(crate) fn check_written(&self, home: Home, offset: usize, bytes: usize) -> Try<()> {
        if !self.checks {
            return Ok(());
        }
        let missing = self.region(home).and_then(|region| region.written.first_missing(offset, bytes));
        match missing {
            Some(at) => {
                Err(Trouble::new(FaultKind::Uninitialised(self.name_place(home, at, (offset + bytes - at) as u32))))
            }
            None => Ok(()),
        }
    }
}
