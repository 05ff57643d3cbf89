//! Bulk copies: contiguous bytes, by the async proxy.

use crate::ir::attr::Scope;
use crate::ir::{Addr, Operand, Space};
use crate::sim::fault::FaultKind;
use crate::sim::machine::MbarrierAt;
use crate::sim::machine::Reduction;
use crate::sim::machine::reach::OpAccess;
use crate::sim::machine::{
    Address, BulkDestination, Cur, EngineWork, Flight, Home, Next, Simulation, Ticket, Trouble, Try, lanes,
};
use crate::sim::program::SHARED_BASE;

/// Bulk copies move multiples of this many bytes between multiples of it.
const UNIT: u64 = 16;

/// An address that a lane gives.
#[derive(Clone, Copy)]
pub(super) struct LaneAddress {
    pub space: Space,
    pub address: u64,
}

/// The operands of a bulk copy to shared memory.
#[derive(Clone, Copy)]
pub(super) struct BulkLoad {
    pub dst: Addr,
    pub src: Addr,
    pub bytes: Operand,
    pub bar: Addr,
    /// The blocks of the cluster that receive a copy, one bit each.
    pub multicast: Option<Operand>,
    pub reduction: Option<Reduction>,
}

/// A copy to shared memory about to be issued by a lane.
pub(super) struct SharedCopy {
    pub to: LaneAddress,
    pub bar: LaneAddress,
    pub bytes: u32,
    pub multicast: Option<u64>,
    /// The alignment of the destination's address.
    pub align: u32,
}

/// The access of an operation at one of its ends.
#[derive(Clone, Copy)]
pub(super) struct BulkEnd {
    op: u32,
    write: bool,
    strength: Option<Scope>,
}

impl BulkEnd {
    pub(super) fn reads(op: u32) -> BulkEnd {
        BulkEnd { op, write: false, strength: None }
    }

    /// Whether it overwrites what was there.
    pub(super) fn copies(self) -> bool {
        self.write && self.strength.is_none()
    }

    /// Copies write, reductions change each element by an atomic operation of the device.
    pub(super) fn writes(op: u32, reduction: Option<Reduction>) -> BulkEnd {
        BulkEnd { op, write: true, strength: reduction.map(|_| Scope::Gpu) }
    }
}

impl Simulation<'_> {
    /// An address and a size that bulk copies accept, inside one allocation.
    fn reach_bulk(&self, cur: Cur, lane: usize, at: LaneAddress, bytes: u32) -> Try<Address> {
        let LaneAddress { space, address } = at;
        if !address.is_multiple_of(UNIT) {
            let at = self.bytes(space, address, bytes);
            return Err(Trouble::lane(FaultKind::Misaligned { at, align: UNIT as u32 }, lane));
        }
        if bytes == 0 || !u64::from(bytes).is_multiple_of(UNIT) {
            let what = "bytes of a bulk copy, a multiple of 16 above zero";
            return Err(Trouble::lane(FaultKind::BadOperand { what, found: bytes.into(), limit: UNIT }, lane));
        }
        self.locate(space, self.block_of(cur.warp), address, bytes).map_err(|mut trouble| {
            trouble.lane = Some(lane as u32);
            trouble
        })
    }

    pub(super) fn bulk_load(&mut self, cur: Cur, copy: BulkLoad) -> Try<Next> {
        let BulkLoad { dst, src, bytes, bar, multicast, reduction } = copy;
        let (to_space, to) = self.lane_addresses(cur.warp, dst);
        let (from_space, from) = self.lane_addresses(cur.warp, src);
        let (bar_space, bars) = self.lane_addresses(cur.warp, bar);
        let bytes = self.value(cur.warp, bytes);
        let masks = multicast.map(|operand| self.value(cur.warp, operand));
        for lane in lanes(cur.mask) {
            let size = bytes[lane] as u32;
            let from = self.reach_bulk(cur, lane, LaneAddress { space: from_space, address: from[lane] }, size)?;
            let load = SharedCopy {
                to: LaneAddress { space: to_space, address: to[lane] },
                bar: LaneAddress { space: bar_space, address: bars[lane] },
                bytes: size,
                multicast: masks.map(|row| row[lane]),
                align: UNIT as u32,
            };
            let reads = self.new_op(cur.warp, lane, false);
            self.touch_by(cur, lane, BulkEnd::reads(reads), from, size)?;
            let targets = self.targets(cur, lane, &load)?;
            for target in &targets {
                let side = BulkEnd::writes(target.op, reduction);
                self.touch_by(cur, lane, side, target.address(), size)?;
            }
            let work = EngineWork::ToShared { targets, from, bytes: size, reduction };
            self.fly(cur, lane, work, reads);
        }
        Ok(Next::Go)
    }

    pub(super) fn bulk_store(
        &mut self,
        cur: Cur,
        dst: Addr,
        src: Addr,
        bytes: Operand,
        reduction: Option<Reduction>,
    ) -> Try<Next> {
        let (to_space, to) = self.lane_addresses(cur.warp, dst);
        let (from_space, from) = self.lane_addresses(cur.warp, src);
        let bytes = self.value(cur.warp, bytes);
        for lane in lanes(cur.mask) {
            let size = bytes[lane] as u32;
            let from = self.reach_bulk(cur, lane, LaneAddress { space: from_space, address: from[lane] }, size)?;
            let to = self.reach_bulk(cur, lane, LaneAddress { space: to_space, address: to[lane] }, size)?;
            let reads = self.new_op(cur.warp, lane, false);
            let writes = self.new_op(cur.warp, lane, false);
            self.touch_by(cur, lane, BulkEnd::reads(reads), from, size)?;
            self.touch_by(cur, lane, BulkEnd::writes(writes, reduction), to, size)?;
            self.fly_in_group(cur, lane, EngineWork::ToGlobal { to, from, bytes: size, reduction }, reads, writes);
        }
        Ok(Next::Go)
    }

    /// Judges and records an access of the async proxy for a lane.
    pub(super) fn touch_by(&mut self, cur: Cur, lane: usize, side: BulkEnd, at: Address, bytes: u32) -> Try<()> {
        let view = self.warps[cur.warp].views[lane].clone();
        let thread = self.thread(cur.warp, lane);
        let BulkEnd { op, write, strength } = side;
        let access = OpAccess { op, thread, pc: cur.pc, view: &view, write, generic: false, strength };
        self.touch_op(&access, at, bytes, true)
    }

    pub(super) fn fly(&mut self, cur: Cur, lane: usize, work: EngineWork, reads: u32) -> u64 {
        let flight = Flight { work, warp: cur.warp as u32, lane: lane as u32, pc: cur.pc, reads, data: None };
        self.launch_flight(flight)
    }

    /// Issues an operation of the thread's current bulk group.
    pub(super) fn fly_in_group(&mut self, cur: Cur, lane: usize, work: EngineWork, reads: u32, writes: u32) {
        let flight = self.fly(cur, lane, work, reads);
        let ticket = Ticket { flight, reads, writes, pc: cur.pc, entrusted: false };
        self.warps[cur.warp].issued[lane].bulk.open.push(ticket);
    }

    /// The blocks that a copy goes to, each with its mbarrier.
    pub(super) fn targets(&mut self, cur: Cur, lane: usize, load: &SharedCopy) -> Try<Vec<BulkDestination>> {
        let LaneAddress { space, address } = load.to;
        if !address.is_multiple_of(u64::from(load.align)) {
            let at = self.bytes(space, address, load.bytes);
            return Err(Trouble::lane(FaultKind::Misaligned { at, align: load.align }, lane));
        }
        let Address { home, offset } = self.reach_bulk(cur, lane, load.to, load.bytes)?;
        let bar = self.mbarrier_at(cur, lane, load.bar.space, load.bar.address)?;
        let Home::Shared(block) = home else {
            return Err(Trouble::lane(FaultKind::OutOfBounds(self.bytes(space, address, load.bytes)), lane));
        };
        let blocks = match load.multicast {
            None => vec![(block, bar.block)],
            Some(mask) => {
                let size = self.geometry.cluster;
                let first = block - block % size;
                if mask == 0 || mask >> size != 0 {
                    let what = "mask of a multicast, which names blocks of the cluster";
                    let kind = FaultKind::BadOperand { what, found: mask, limit: (1 << size) - 1 };
                    return Err(Trouble::lane(kind, lane));
                }
                (0..size).filter(|rank| mask >> rank & 1 == 1).map(|rank| (first + rank, first + rank)).collect()
            }
        };
        let mut targets = Vec::new();
        for (block, bar_block) in blocks {
            if self.blocks[block as usize].shared.is_none() {
                let at = self.bytes(Space::Shared, u64::from(SHARED_BASE) + offset as u64, load.bytes);
                return Err(Trouble::lane(FaultKind::BlockGone(at), lane));
            }
            let at = MbarrierAt { block: bar_block, index: bar.index };
            self.entrust(cur, lane, at)?;
            let op = self.new_op(cur.warp, lane, false);
            targets.push(BulkDestination { block, offset, mbarrier: (at.block, at.index), op });
        }
        Ok(targets)
    }
}
