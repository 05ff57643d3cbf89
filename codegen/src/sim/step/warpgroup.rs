//! `wgmma`: four warps issue together, the tensor core works asynchronously.

use super::wgmma::{Descriptor, Left, Multiply, SharedOperand};
use crate::ir::attr::{Major, Sign};
use crate::ir::{MmaOp, Operand, Regs, Space, WgmmaAtom};
use crate::sim::fault::FaultKind;
use crate::sim::machine::reach::OpAccess;
use crate::sim::machine::{
    Address, Cur, EngineWork, FULL, Flight, GroupState, Home, Next, Simulation, Ticket, Trouble, Try,
};
use crate::sim::memory::AccessCompletion;
use crate::sim::order::{Agent, ThreadView};
use crate::sim::program::SHARED_BASE;

/// Bytes that descriptors leave together.
const UNIT: u32 = 16;

/// The operands of either form.
struct WgmmaForm<'o> {
    acc: Regs,
    left: Result<(Operand, Major), &'o [Operand]>,
    b: Operand,
    scale: Operand,
    atom: WgmmaAtom,
    signs: (Sign, Sign),
    major_b: Major,
}

fn form(op: &MmaOp) -> Option<WgmmaForm<'_>> {
    match op {
        MmaOp::WgmmaSs { acc, a, b, scale, atom, sign_a, sign_b, major_a, major_b } => Some(WgmmaForm {
            acc: *acc,
            left: Ok((*a, *major_a)),
            b: *b,
            scale: *scale,
            atom: *atom,
            signs: (*sign_a, *sign_b),
            major_b: *major_b,
        }),
        MmaOp::WgmmaRs { acc, a, b, scale, atom, sign_a, sign_b, major_b } => Some(WgmmaForm {
            acc: *acc,
            left: Err(a),
            b: *b,
            scale: *scale,
            atom: *atom,
            signs: (*sign_a, *sign_b),
            major_b: *major_b,
        }),
        MmaOp::LdMatrix { .. }
        | MmaOp::StMatrix { .. }
        | MmaOp::MmaSync { .. }
        | MmaOp::WgmmaFence {}
        | MmaOp::WgmmaCommit {}
        | MmaOp::WgmmaWait { .. } => None,
    }
}

impl Simulation<'_> {
    pub(super) fn wgmma(&mut self, cur: Cur, op: &MmaOp) -> Try<Next> {
        let Some(form) = form(op) else { return Ok(Next::Go) };
        let index = self.warps[cur.warp].index;
        let first = cur.warp - (index % 4) as usize;
        if index / 4 * 4 + 4 > self.geometry.warps {
            let what = "warps of a warpgroup in the block";
            let found = u64::from(self.geometry.warps % 4);
            return Err(Trouble::new(FaultKind::BadOperand { what, found, limit: 4 }));
        }
        let here = |state: &GroupState| *state == GroupState::Warpgroup { pc: cur.pc };
        let others = (first..first + 4).filter(|&warp| warp != cur.warp);
        let came = others.clone().all(|warp| self.warps[warp].groups.iter().any(|group| here(&group.state)));
        if !came {
            return Ok(Next::Pass(GroupState::Warpgroup { pc: cur.pc }));
        }
        self.issue(cur, first, &form)?;
        for warp in others {
            self.release(warp, true, here);
        }
        Ok(Next::Go)
    }

    fn issue(&mut self, cur: Cur, first: usize, form: &WgmmaForm<'_>) -> Try<()> {
        let keep = self.value(cur.warp, form.scale)[0] != 0;
        let vars = self.run_vars(form.acc);
        for warp in first..first + 4 {
            let at = Cur { warp, mask: FULL, ..cur };
            for var in vars.clone() {
                self.check_fenced(warp, (self.program.first_var + var) as usize)?;
                if keep {
                    self.check_set(at, var)?;
                }
            }
            for operand in form.left.err().unwrap_or_default() {
                if let Some(value) = operand.as_value() {
                    self.check_fenced(warp, self.program.row(value))?;
                }
            }
        }
        let left = match form.left {
            Ok((a, major)) => {
                let descriptor = Descriptor::decode(self.value(cur.warp, a)[0]);
                Left::Shared(SharedOperand { descriptor, major })
            }
            Err(values) => Left::Registers(
                (first..first + 4)
                    .map(|warp| {
                        core::array::from_fn(|i| values.get(i).map_or([0; 32], |&value| self.value(warp, value)))
                    })
                    .collect(),
            ),
        };
        let block = self.warps[cur.warp].block;
        let multiply = Multiply {
            block,
            warp: first,
            atom: form.atom,
            row: (self.program.first_var + vars.start) as usize,
            a: left,
            b: SharedOperand { descriptor: Descriptor::decode(self.value(cur.warp, form.b)[0]), major: form.major_b },
            keep,
            signs: form.signs,
        };
        self.check_pattern(&multiply)?;
        let op = self.new_op(cur.warp, 0, false);
        self.touch_operands(cur, first, op, &multiply)?;
        let flight = self.launch_flight(Flight {
            work: EngineWork::Multiply(Box::new(multiply)),
            warp: cur.warp as u32,
            lane: 0,
            pc: cur.pc,
            reads: op,
            data: None,
        });
        self.engine.follow(first as u32, flight);
        for warp in first..first + 4 {
            let warp = &mut self.warps[warp];
            warp.flying += 1;
            for var in vars.clone() {
                warp.in_flight[var as usize] += 1;
                warp.written[var as usize] = FULL;
            }
            warp.wgmma.open.push(Ticket { flight, reads: op, writes: op, pc: cur.pc, entrusted: false });
            warp.uses.push((flight, vars.clone()));
        }
        Ok(())
    }

    fn check_fenced(&self, warp: usize, row: usize) -> Try<()> {
        if !self.checks || !self.warps[warp].touched[row] {
            return Ok(());
        }
        let register = match (row as u32).checked_sub(self.program.first_var) {
            Some(var) => self.register_name(var),
            None => "of the A operand".into(),
        };
        Err(Trouble::new(FaultKind::NoWgmmaFence { register }))
    }

    /// Operands begin in the first row of their swizzle's pattern.
    fn check_pattern(&self, multiply: &Multiply) -> Try<()> {
        let a = match multiply.a {
            Left::Shared(operand) => Some(operand),
            Left::Registers(_) => None,
        };
        for SharedOperand { descriptor: operand, .. } in a.into_iter().chain([multiply.b]) {
            let offset = operand.off_pattern();
            if offset != 0 && self.checks {
                let at = self.bytes(Space::Shared, operand.start.into(), UNIT);
                return Err(Trouble::new(FaultKind::SwizzleBase { at, offset, span: operand.span }));
            }
        }
        Ok(())
    }

    /// Records the tensor core's reads, checked against the view of every warp.
    fn touch_operands(&mut self, cur: Cur, first: usize, op: u32, multiply: &Multiply) -> Try<()> {
        let ranges = self.ranges(multiply)?;
        if !self.checks {
            return Ok(());
        }
        let mut views: Vec<(usize, usize, ThreadView)> = Vec::new();
        for warp in first..first + 4 {
            for (lane, view) in self.warps[warp].views.iter().enumerate() {
                if !views.iter().any(|(_, _, other)| other.same(view) || other == view) {
                    views.push((warp, lane, view.clone()));
                }
            }
        }
        let home = Home::Shared(multiply.block);
        for (i, (warp, lane, view)) in views.iter().enumerate() {
            let thread = self.thread(*warp, *lane);
            let access = OpAccess { op, thread, pc: cur.pc, view, write: false, generic: false, strength: None };
            for &(start, bytes) in &ranges {
                let at = Address { home, offset: (start - SHARED_BASE) as usize };
                self.touch_op(&access, at, bytes, i + 1 == views.len())?;
            }
        }
        Ok(())
    }

    /// The bytes of shared memory that it reads, in runs of units; each unit inside of allocations.
    fn ranges(&self, multiply: &Multiply) -> Try<Vec<(u32, u32)>> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let mut inside = 0..0;
        for unit in multiply.addresses() {
            if unit < inside.start || unit + UNIT > inside.end {
                self.locate(Space::Shared, multiply.block, unit.into(), UNIT)?;
                inside = self.program.shared_at(unit).map_or(0..0, |(alloc, _)| alloc.start..alloc.start + alloc.bytes);
            }
            match ranges.last_mut() {
                Some((start, bytes)) if *start + *bytes == unit => *bytes += UNIT,
                _ => ranges.push((unit, UNIT)),
            }
        }
        Ok(ranges)
    }

    pub(super) fn wait_wgmma(&mut self, cur: Cur, pending: u32) -> Try<Next> {
        let tickets = self.warps[cur.warp].wgmma.take(pending);
        let group = self.warps[cur.warp].index / 4;
        let block = self.warps[cur.warp].block;
        for ticket in tickets {
            self.complete(ticket.flight)?;
            let time = ticket.flight as u32 + 1;
            let agent = Agent { block, component: self.geometry.warpgroup(group), time };
            self.ops[ticket.reads as usize].done = AccessCompletion::By(agent);
            if self.checks {
                let mut news = ThreadView::default();
                news.learn(self.geometry, agent);
                self.learn(cur.warp, cur.mask, &news);
            }
            let warp = &mut self.warps[cur.warp];
            warp.flying -= 1;
            if let Some(at) = warp.uses.iter().position(|(flight, _)| *flight == ticket.flight) {
                let (_, vars) = warp.uses.swap_remove(at);
                for var in vars {
                    warp.in_flight[var as usize] -= 1;
                }
            }
        }
        Ok(Next::Go)
    }
}
