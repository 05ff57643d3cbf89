//! Control of the thread.

use crate::ir::attr::Remark;
use crate::ir::{ControlOp, Operand, Ty};
use crate::sim::fault::FaultKind;
use crate::sim::machine::{Cur, GroupState, Next, Simulation, Trouble, Try, lanes};
use crate::sim::number::{LANES, LaneValues};
use crate::sim::print::filled;

impl Simulation<'_> {
    pub(crate) fn control_op(&mut self, cur: Cur, op: &ControlOp) -> Try<Next> {
        match op {
            ControlOp::Exit {} => {
                self.count_split(cur);
                self.exit(cur)
            }
            ControlOp::Trap {} => Err(Trouble::lane(FaultKind::Trap, cur.mask.trailing_zeros() as usize)),
            ControlOp::Print { values, text } => {
                self.print(cur, text, values);
                Ok(Next::Go)
            }
            ControlOp::Assert { cond, text } => {
                let truth = self.value(cur.warp, *cond);
                match (0..LANES).find(|&lane| cur.mask >> lane & 1 == 1 && truth[lane] == 0) {
                    Some(lane) => Err(Trouble::lane(FaultKind::Assertion { text: text.0.clone() }, lane)),
                    None => Ok(Next::Go),
                }
            }
            ControlOp::NanoSleep { ns } => {
                let ns = self.value(cur.warp, *ns)[cur.mask.trailing_zeros() as usize].min(1_000_000);
                let until = self.now + 1 + self.rng.below(ns as usize + 1) as u64;
                Ok(Next::Pass(GroupState::Sleep { until }))
            }
            ControlOp::SetMaxNReg { .. } => Ok(self.gather_warp(cur)?.unwrap_or(Next::Go)),
            ControlOp::Comment { .. } => Ok(Next::Go),
        }
    }

    /// A line of each lane that runs.
    fn print(&mut self, cur: Cur, text: &Remark, values: &[Operand]) {
        let rows: Vec<LaneValues> = values.iter().map(|&value| self.value(cur.warp, value)).collect();
        let types: Vec<Ty> = values.iter().map(|&value| self.program.type_of(value)).collect();
        let [block, across] = [self.blocks[self.block_of(cur.warp) as usize].coords, self.program.launch.threads];
        for lane in lanes(cur.mask) {
            let number = self.thread(self.warps[cur.warp].index as usize, lane);
            let thread = [number % across[0], number / across[0] % across[1], number / across[0] / across[1]];
            let of_lane = rows.iter().zip(&types).map(|(row, &ty)| (ty, row[lane]));
            let [block, thread] = [block, thread].map(|[x, y, z]| format!("({x}, {y}, {z})"));
            let line = format!("block {block}, thread {thread}: {}", filled(&text.0, of_lane));
            self.launch.printed.push(line);
        }
    }
}
