//! `cp.async` and its groups; the rows of the family `copy`, by mechanism.

use super::bulk::BulkLoad;
use super::tensor::{TensorLoad, TensorStore};
use crate::ir::attr::{BulkDone, NoInc};
use crate::ir::{Addr, CopyOp, Operand};
use crate::sim::fault::FaultKind;
use crate::sim::machine::Reduction;
use crate::sim::machine::reach::OpAccess;
use crate::sim::machine::{Address, Cur, EngineWork, Flight, Home, Next, Simulation, Ticket, Trouble, Try, lanes};

/// A `cp.async` of a lane.
#[derive(Clone, Copy)]
struct LaneCopy {
    to: Address,
    from: Address,
    /// Bytes that are written.
    bytes: u32,
    /// Bytes that are read; the rest is zeros.
    filled: u32,
}

impl Simulation<'_> {
    pub(crate) fn copy_op(&mut self, cur: Cur, op: &CopyOp) -> Try<Next> {
        match op {
            CopyOp::CpAsync { dst, src, filled, bytes, .. } => self.cp_async(cur, *dst, *src, *filled, bytes.count()),
            CopyOp::CpAsyncCommit {} => {
                for lane in lanes(cur.mask) {
                    self.warps[cur.warp].issued[lane].copies.close();
                }
                Ok(Next::Go)
            }
            CopyOp::CpAsyncWait { pending } => self.wait_copies(cur, pending.0),
            CopyOp::CpAsyncMbarArrive { bar, noinc } => self.arrive_after_copies(cur, *bar, *noinc),
            CopyOp::BulkCommit {} => {
                for lane in lanes(cur.mask) {
                    self.warps[cur.warp].issued[lane].bulk.close();
                }
                Ok(Next::Go)
            }
            CopyOp::BulkWait { pending, done } => self.wait_bulk(cur, pending.0, *done),
            &CopyOp::BulkG2S { dst, src, bytes, bar, multicast, .. } => {
                self.bulk_load(cur, BulkLoad { dst, src, bytes, bar, multicast, reduction: None })
            }
            &CopyOp::BulkS2C { dst, src, bytes, bar } => {
                self.bulk_load(cur, BulkLoad { dst, src, bytes, bar, multicast: None, reduction: None })
            }
            &CopyOp::ReduceS2C { ty, dst, src, bytes, bar, op } => {
                let reduction = Some(Reduction { op, ty });
                self.bulk_load(cur, BulkLoad { dst, src, bytes, bar, multicast: None, reduction })
            }
            CopyOp::BulkS2G { dst, src, bytes, .. } => self.bulk_store(cur, *dst, *src, *bytes, None),
            CopyOp::ReduceS2G { ty, dst, src, bytes, op, .. } => {
                self.bulk_store(cur, *dst, *src, *bytes, Some(Reduction { op: *op, ty: *ty }))
            }
            &CopyOp::TensorLoad { dst, map, ref at, bar, multicast, .. } => {
                for lane in lanes(cur.mask) {
                    self.tensor_load(cur, lane, TensorLoad { dst, map, at, bar, multicast })?;
                }
                Ok(Next::Go)
            }
            &CopyOp::TensorStore { map, ref at, src, .. } => {
                for lane in lanes(cur.mask) {
                    self.tensor_store(cur, lane, TensorStore { map, at, src, op: None })?;
                }
                Ok(Next::Go)
            }
            &CopyOp::TensorReduce { map, ref at, src, op, .. } => {
                for lane in lanes(cur.mask) {
                    self.tensor_store(cur, lane, TensorStore { map, at, src, op: Some(op) })?;
                }
                Ok(Next::Go)
            }
            // Hints.
            CopyOp::BulkPrefetch { .. } | CopyOp::BoxPrefetch { .. } | CopyOp::TensorPrefetch { .. } => Ok(Next::Go),
        }
    }

    fn cp_async(&mut self, cur: Cur, dst: Addr, src: Addr, filled: Option<Operand>, bytes: u32) -> Try<Next> {
        let (to_space, to) = self.lane_addresses(cur.warp, dst);
        let (from_space, from) = self.lane_addresses(cur.warp, src);
        let filled = filled.map(|operand| self.value(cur.warp, operand));
        self.count_access(cur, from_space, &from, bytes);
        for lane in lanes(cur.mask) {
            let filled = filled.map_or(bytes, |row| row[lane] as u32);
            if filled > bytes {
                let what = "bytes that cp.async reads, of those that it writes";
                let kind = FaultKind::BadOperand { what, found: filled.into(), limit: bytes.into() };
                return Err(Trouble::lane(kind, lane));
            }
            let to = self.reach(cur, lane, to_space, to[lane], bytes)?;
            // Nothing is read where nothing is asked for: the address may then lie anywhere.
            let from = if filled == 0 {
                Address { home: Home::Params(0), offset: 0 }
            } else {
                self.reach_source(cur, lane, from_space, from[lane], bytes, filled)?
            };
            self.issue_copy(cur, lane, LaneCopy { to, from, bytes, filled })?;
        }
        Ok(Next::Go)
    }

    /// The source of a copy that may read less than it is aligned to.
    fn reach_source(
        &self,
        cur: Cur,
        lane: usize,
        space: crate::ir::Space,
        address: u64,
        align: u32,
        bytes: u32,
    ) -> Try<Address> {
        if !address.is_multiple_of(u64::from(align)) {
            return Err(Trouble::lane(FaultKind::Misaligned { at: self.bytes(space, address, bytes), align }, lane));
        }
        self.locate(space, self.block_of(cur.warp), address, bytes).map_err(|mut trouble| {
            trouble.lane = Some(lane as u32);
            trouble
        })
    }

    fn issue_copy(&mut self, cur: Cur, lane: usize, copy: LaneCopy) -> Try<()> {
        let LaneCopy { to, from, bytes, filled } = copy;
        let reads = self.new_op(cur.warp, lane, true);
        let writes = self.new_op(cur.warp, lane, true);
        let thread = self.thread(cur.warp, lane);
        let view = self.warps[cur.warp].views[lane].clone();
        let access = |op, write| OpAccess { op, thread, pc: cur.pc, view: &view, write, generic: true, strength: None };
        if filled > 0 {
            self.touch_op(&access(reads, false), from, filled, true)?;
        }
        self.touch_op(&access(writes, true), to, bytes, true)?;
        let work = EngineWork::Copy { to, from, bytes, filled };
        let flight = self.launch_flight(Flight {
            work,
            warp: cur.warp as u32,
            lane: lane as u32,
            pc: cur.pc,
            reads,
            data: None,
        });
        self.warps[cur.warp].issued[lane].copies.open.push(Ticket {
            flight,
            reads,
            writes,
            pc: cur.pc,
            entrusted: false,
        });
        Ok(())
    }

    fn wait_copies(&mut self, cur: Cur, pending: u32) -> Try<Next> {
        for lane in lanes(cur.mask) {
            let tickets = self.warps[cur.warp].issued[lane].copies.take(pending);
            for ticket in tickets {
                self.complete(ticket.flight)?;
                self.adopt(cur, lane, ticket.reads);
                self.adopt(cur, lane, ticket.writes);
            }
        }
        Ok(Next::Go)
    }

    fn arrive_after_copies(&mut self, cur: Cur, bar: Addr, noinc: NoInc) -> Try<Next> {
        let (space, addresses) = self.lane_addresses(cur.warp, bar);
        for lane in lanes(cur.mask) {
            let at = self.mbarrier_at(cur, lane, space, addresses[lane])?;
            self.live_mbarrier(cur, lane, at)?;
            let counted = noinc == NoInc::Yes;
            let bar = self.mbarrier(at);
            bar.flying += 1;
            if !counted {
                bar.pending += 1;
            }
            let queue = &mut self.warps[cur.warp].issued[lane].copies;
            let tickets: Vec<Ticket> = queue.left().copied().collect();
            queue.entrust();
            let work = EngineWork::Arrive {
                block: at.block,
                mbarrier: at.index,
                copies: tickets.iter().map(|ticket| ticket.flight).collect(),
                ops: tickets.iter().flat_map(|ticket| [ticket.reads, ticket.writes]).collect(),
            };
            let op = self.new_op(cur.warp, lane, true);
            let flight = Flight { work, warp: cur.warp as u32, lane: lane as u32, pc: cur.pc, reads: op, data: None };
            self.launch_flight(flight);
        }
        Ok(Next::Go)
    }

    fn wait_bulk(&mut self, cur: Cur, pending: u32, done: BulkDone) -> Try<Next> {
        for lane in lanes(cur.mask) {
            match done {
                BulkDone::Read => {
                    let issued = &mut self.warps[cur.warp].issued[lane];
                    let count = issued.bulk.closed.len().saturating_sub(pending as usize);
                    let groups: Vec<Vec<Ticket>> = issued.bulk.closed.drain(..count).collect();
                    for group in groups {
                        for ticket in &group {
                            self.read_source(ticket.flight)?;
                            self.adopt(cur, lane, ticket.reads);
                        }
                        self.warps[cur.warp].issued[lane].half.push_back(group);
                    }
                }
                BulkDone::Full => {
                    let issued = &mut self.warps[cur.warp].issued[lane];
                    let all = issued.half.len() + issued.bulk.closed.len();
                    let count = all.saturating_sub(pending as usize);
                    let half = count.min(issued.half.len());
                    let mut tickets: Vec<Ticket> = issued.half.drain(..half).flatten().collect();
                    tickets.extend(issued.bulk.closed.drain(..count - half).flatten());
                    for ticket in tickets {
                        self.complete(ticket.flight)?;
                        self.adopt(cur, lane, ticket.reads);
                        self.adopt(cur, lane, ticket.writes);
                    }
                }
            }
        }
        Ok(Next::Go)
    }

    /// Lanes that exit must have waited for what they issued.
    pub(crate) fn check_lanes_leak(&self, cur: Cur) -> Try<()> {
        if !self.checks {
            return Ok(());
        }
        let leak = |operation, pc, lane: Option<usize>| {
            let mut trouble = Trouble::new(FaultKind::LeakedCopy { operation });
            trouble.lane = lane.map(|lane| lane as u32);
            trouble.place = Some((cur.warp as u32, pc));
            Err(trouble)
        };
        let warp = &self.warps[cur.warp];
        for lane in lanes(cur.mask) {
            let issued = &warp.issued[lane];
            if let Some(ticket) = issued.copies.left().find(|ticket| !ticket.entrusted) {
                return leak("cp.async", ticket.pc, Some(lane));
            }
            if let Some(ticket) = issued.bulk.left().next() {
                return leak("bulk copy", ticket.pc, Some(lane));
            }
        }
        match warp.wgmma.left().next() {
            Some(ticket) => leak("wgmma", ticket.pc, None),
            None => Ok(()),
        }
    }

    /// A block that ends leaves no operation that uses its memory, and no phase that no thread
    /// waited for.
    pub(crate) fn check_leaks(&self, number: u32) -> Try<()> {
        if !self.checks {
            return Ok(());
        }
        if let Some(flight) = self.flight_to(number) {
            return Err(Self::blame(flight, FaultKind::LeakedCopy { operation: "asynchronous copy" }));
        }
        self.check_phases(number)
    }
}
