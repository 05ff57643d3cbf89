//! Reaching memory: from an address to bytes of a region, every access judged.

use super::{BlockState, Cur, Simulation, Trouble, Try};
use crate::ir::Space;
use crate::ir::attr::Scope;
use crate::sim::fault::{ByteRange, FaultKind};
use crate::sim::machine::Address;
use crate::sim::machine::Home;
use crate::sim::memory::{Conflict, Judge, Memory, OP, PendingAccess, Region, Site, Stamp};
use crate::sim::order::ThreadView;
use crate::sim::program::SHARED_BASE;
use core::ops::Range;

/// The base address of parameters.
pub(crate) const PARAM_BASE: u64 = 0x4000;
/// Rank of a block in an address of `Cluster` space.
const RANK: u32 = 24;

/// An asynchronous operation's access: the operation, its issuer, and the issuer's view.
pub(crate) struct OpAccess<'v> {
    pub op: u32,
    pub thread: u32,
    pub pc: u32,
    pub view: &'v ThreadView,
    pub write: bool,
    pub generic: bool,
    /// The scope at which each element is accessed atomically, if it is.
    pub strength: Option<Scope>,
}

/// Why an access may not be.
enum Refused {
    ReadOnly,
    Race(Conflict),
}

/// The region whose shadow has what was accessed there. Parameters and blocks that are gone have
/// none.
fn shadowed<'m>(memory: &'m mut Memory, blocks: &'m mut [BlockState], home: Home) -> Option<&'m mut Region> {
    match home {
        Home::Buffer(index) => Some(&mut memory.buffers[index as usize].region),
        Home::Shared(block) => blocks[block as usize].shared.as_mut(),
        Home::Params(_) => None,
    }
}

/// Judges an access to bytes of a region by its shadow, and records it if asked to. Read-only
/// memory needs none: every read of it passes.
fn pass(
    region: &mut Region,
    judge: &Judge<'_>,
    now: &PendingAccess<'_>,
    bytes: Range<usize>,
    record: bool,
) -> Result<(), Refused> {
    if region.read_only {
        return if now.write { Err(Refused::ReadOnly) } else { Ok(()) };
    }
    let judged = if record {
        region.shadow.touch(judge, now, bytes.start, bytes.len())
    } else {
        region.shadow.judge(judge, now, bytes.start, bytes.len())
    };
    judged.map_err(Refused::Race)
}

/// A region, apart from the rest of the machine.
fn region_in<'m>(memory: &'m Memory, blocks: &'m [BlockState], params: &'m [Region], home: Home) -> Option<&'m Region> {
    match home {
        Home::Buffer(index) => Some(&memory.buffers[index as usize].region),
        Home::Shared(block) => blocks[block as usize].shared.as_ref(),
        Home::Params(device) => params.get(device as usize),
    }
}

/// A buffer or an allocation in shared memory: addresses that one comparison finds.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    first: u64,
    bytes: u64,
    start: Address,
}

impl Extent {
    /// The place of bytes that lie inside.
    pub(crate) fn find(self, address: u64, bytes: u32) -> Option<Address> {
        let within = address.wrapping_sub(self.first);
        let inside = within < self.bytes && self.bytes - within >= u64::from(bytes);
        inside.then(|| Address { offset: self.start.offset + within as usize, ..self.start })
    }
}

/// The address of a byte of a block's shared memory, for the whole cluster.
pub(crate) fn cluster_address(rank: u32, address: u32) -> u32 {
    rank << RANK | address
}

impl Simulation<'_> {
    /// The region and offset of an address, all bytes inside; `block` is the block that asks.
    pub(crate) fn locate(&self, space: Space, block: u32, address: u64, bytes: u32) -> Try<Address> {
        let wrong = |kind| Err(Trouble::new(kind));
        match space {
            Space::Global => match self.memory.find(address, bytes as usize) {
                Ok((index, offset)) => Ok(Address { home: Home::Buffer(index as u32), offset }),
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
                if offset.saturating_add(u64::from(bytes)) > self.params_of(block).data.len() as u64 {
                    return wrong(FaultKind::OutOfBounds(self.bytes(space, address, bytes)));
                }
                Ok(Address { home: Home::Params(self.geometry.device_of(block)), offset: offset as usize })
            }
        }
    }

    fn locate_shared(&self, space: Space, block: u32, at: u32, address: u64, bytes: u32) -> Try<Address> {
        let inside = self.program.shared_at(at).is_some_and(|(_, _)| {
            let last = at.saturating_add(bytes.saturating_sub(1));
            // An access may run over the seam of two allocations only if it begins and ends in
            // them; the gaps between have no owner.
            self.program.shared_at(last).is_some()
        });
        if !inside {
            return Err(Trouble::new(FaultKind::OutOfBounds(self.bytes(space, address, bytes))));
        }
        if self.blocks[block as usize].shared.is_none() {
            return Err(Trouble::new(FaultKind::BlockGone(self.bytes(space, address, bytes))));
        }
        Ok(Address { home: Home::Shared(block), offset: (at - SHARED_BASE) as usize })
    }

    /// The extent around an address that was located. Addresses of a cluster have none.
    pub(crate) fn extent(&self, space: Space, address: u64, home: Home) -> Option<Extent> {
        let of = |first, bytes, offset| Some(Extent { first, bytes, start: Address { home, offset } });
        match (space, home) {
            (Space::Global, Home::Buffer(index)) => {
                let buffer = &self.memory.buffers[index as usize];
                of(buffer.address, buffer.region.data.len() as u64, 0)
            }
            (Space::Shared, Home::Shared(_)) => {
                let (alloc, _) = self.program.shared_at(address as u32)?;
                of(alloc.start.into(), alloc.bytes.into(), (alloc.start - SHARED_BASE) as usize)
            }
            _ => None,
        }
    }

    /// The parameters that a block sees.
    pub(crate) fn params_of(&self, block: u32) -> &Region {
        &self.params[self.geometry.device_of(block) as usize]
    }

    /// Bytes with their names, for a report.
    pub(crate) fn bytes(&self, space: Space, address: u64, bytes: u32) -> ByteRange {
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
        ByteRange { space, address, bytes, name }
    }

    /// The address of a place in a region.
    pub(crate) fn name_address(&self, Address { home, offset }: Address, bytes: u32) -> ByteRange {
        match home {
            Home::Buffer(index) => {
                let buffer = &self.memory.buffers[index as usize];
                ByteRange {
                    space: Space::Global,
                    address: buffer.address + offset as u64,
                    bytes,
                    name: Some((buffer.name.clone(), offset as u64)),
                }
            }
            Home::Shared(_) => self.bytes(Space::Shared, u64::from(SHARED_BASE) + offset as u64, bytes),
            Home::Params(_) => self.bytes(Space::Param, PARAM_BASE + offset as u64, bytes),
        }
    }

    pub(crate) fn region(&self, home: Home) -> Option<&Region> {
        region_in(self.memory, &self.blocks, &self.params, home)
    }

    /// Loads numbers of `bytes` each, one after the other, into rows of registers of a lane.
    pub(crate) fn load_into(&mut self, cur: Cur, lane: usize, at: Address, bytes: usize, rows: &[u32]) {
        let region = region_in(self.memory, &self.blocks, &self.params, at.home);
        let regs = &mut self.warps[cur.warp].regs;
        for (&row, offset) in rows.iter().zip((at.offset..).step_by(bytes)) {
            regs[row as usize][lane] = region.map_or(0, |region| region.load(offset, bytes));
        }
    }

    pub(crate) fn region_mut(&mut self, home: Home) -> Option<&mut Region> {
        match home {
            Home::Buffer(index) => Some(&mut self.memory.buffers[index as usize].region),
            Home::Shared(block) => self.blocks[block as usize].shared.as_mut(),
            Home::Params(device) => self.params.get_mut(device as usize),
        }
    }

    /// Judges and records an access of a lane.
    pub(crate) fn touch(
        &mut self,
        cur: Cur,
        lane: usize,
        at: Address,
        bytes: u32,
        write: bool,
        strength: Option<Scope>,
    ) -> Try<()> {
        if !self.checks {
            return Ok(());
        }
        if self.host.is_some() {
            self.meets_host(at, bytes, write, strength)
                .map_err(|why| Trouble::lane(FaultKind::Host { at: self.name_address(at, bytes), why }, lane))?;
        }
        let thread = self.thread(cur.warp, lane);
        let warp = &self.warps[cur.warp];
        let stamp = Stamp { who: thread + 1, time: warp.clock[lane], site: Site::new(cur.pc, strength) };
        let access = PendingAccess { stamp, thread, view: &warp.views[lane], write, proxy: None };
        let judge = Judge { geometry: self.geometry, ops: &self.ops };
        let Some(region) = shadowed(self.memory, &mut self.blocks, at.home) else { return Ok(()) };
        let passed = pass(region, &judge, &access, at.offset..at.offset + bytes as usize, true);
        passed.map_err(|refused| self.refuse(refused, &access, at, bytes))
    }

    /// The words for an access that may not be.
    fn refuse(&self, refused: Refused, now: &PendingAccess<'_>, at: Address, bytes: u32) -> Box<Trouble> {
        let lane = now.thread as usize % 32;
        match refused {
            Refused::ReadOnly => Trouble::lane(FaultKind::ReadOnly(self.name_address(at, bytes)), lane),
            Refused::Race(conflict) => {
                // Of a large range, the cell where it happened.
                let at = if bytes > 16 {
                    let cell = self.program.cell[at.home.side()];
                    self.name_address(Address { offset: conflict.offset, ..at }, cell)
                } else {
                    self.name_address(at, bytes)
                };
                let asynchronous = now.stamp.who & OP != 0;
                let kind = FaultKind::Race { at, wrote: now.write, asynchronous, why: conflict.why };
                let mut trouble = Trouble::lane(kind, lane);
                trouble.other = Some((conflict.other, conflict.other_wrote));
                trouble
            }
        }
    }

    /// Judges an access of an asynchronous operation, and records it if asked to.
    pub(crate) fn touch_op(&mut self, access: &OpAccess<'_>, at: Address, bytes: u32, record: bool) -> Try<()> {
        if !self.checks {
            return Ok(());
        }
        self.meets_host(at, bytes, access.write, None).map_err(|why| {
            Trouble::lane(FaultKind::Host { at: self.name_address(at, bytes), why }, access.thread as usize % 32)
        })?;
        let now = PendingAccess {
            stamp: Stamp { who: OP | access.op, time: 0, site: Site::new(access.pc, access.strength) },
            thread: access.thread,
            view: access.view,
            write: access.write,
            proxy: (!access.generic).then_some(at.home.side()),
        };
        let judge = Judge { geometry: self.geometry, ops: &self.ops };
        let Some(region) = shadowed(self.memory, &mut self.blocks, at.home) else { return Ok(()) };
        let passed = pass(region, &judge, &now, at.offset..at.offset + bytes as usize, record);
        passed.map_err(|refused| self.refuse(refused, &now, at, bytes))
    }

    /// Checks that all these bytes were written.
    pub(crate) fn check_written(&self, at: Address, bytes: usize) -> Try<()> {
        if !self.checks {
            return Ok(());
        }
        let end = at.offset + bytes;
        match self.region(at.home).and_then(|region| region.written.first_missing(at.offset, bytes)) {
            Some(offset) => {
                let missing = self.name_address(Address { offset, ..at }, (end - offset) as u32);
                Err(Trouble::new(FaultKind::Uninitialised(missing)))
            }
            None => Ok(()),
        }
    }
}
