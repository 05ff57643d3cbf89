//! Control of the thread.

use crate::ir::ControlOp;
use crate::sim::fault::FaultKind;
use crate::sim::machine::{Cur, GroupState, Next, Simulation, Trouble, Try};

impl Simulation<'_> {
    pub(crate) fn control_op(&mut self, cur: Cur, op: &ControlOp) -> Try<Next> {
        match op {
            ControlOp::Exit {} => {
                self.count_split(cur);
                self.exit(cur)
            }
            ControlOp::Trap {} => Err(Trouble::lane(FaultKind::Trap, cur.mask.trailing_zeros() as usize)),
            ControlOp::NanoSleep { ns } => {
                let ns = self.value(cur.warp, *ns)[cur.mask.trailing_zeros() as usize].min(1_000_000);
                let until = self.now + 1 + self.rng.below(ns as usize + 1) as u64;
                Ok(Next::Pass(GroupState::Sleep { until }))
            }
            ControlOp::SetMaxNReg { .. } => Ok(self.gather_warp(cur)?.unwrap_or(Next::Go)),
            ControlOp::Comment { .. } => Ok(Next::Go),
        }
    }
}
