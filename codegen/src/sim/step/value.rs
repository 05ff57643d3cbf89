//! Sources of values: parameters, special registers, addresses, mutable registers.

use crate::ir::attr::{ClockReg, SpecialReg};
use crate::ir::{Ty, ValueOp};
use crate::sim::fault::FaultKind;
use crate::sim::machine::{Cur, Next, Simulation, Trouble, Try, lanes, reach};
use crate::sim::number::{LANES, LaneValues, signed};
use crate::sim::program::Ref;

impl Simulation<'_> {
    pub(crate) fn value_op(&mut self, cur: Cur, op: &ValueOp) -> Try<Next> {
        let program = self.program;
        match *op {
            ValueOp::Param { ty, d, param } => {
                let at = program.param_offsets[param.index()] as usize;
                let value = self.params_of(self.block_of(cur.warp)).load(at, ty.bytes() as usize);
                self.set(cur, d, &[value; LANES]);
            }
            ValueOp::ParamPtr { d, param } => {
                let at = reach::PARAM_BASE + u64::from(program.param_offsets[param.index()]);
                self.set(cur, d, &[at; LANES]);
            }
            ValueOp::Shared { d, alloc } => {
                self.set(cur, d, &[u64::from(program.shared[alloc.index()].start); LANES]);
            }
            ValueOp::Special { d, reg } => {
                let row = self.special(cur, reg);
                self.set(cur, d, &row);
            }
            ValueOp::Clock { ty, d, reg } => {
                // A step is a cycle; the timer ticks as the clock does.
                let time = match reg {
                    ClockReg::Clock => self.now & 0xffff_ffff,
                    ClockReg::Clock64 | ClockReg::Globaltimer => self.now,
                };
                self.set(cur, d, &[if ty == Ty::U32 { time & 0xffff_ffff } else { time }; LANES]);
            }
            ValueOp::PtrAdd { ty, from, d, p, bytes } => {
                let p = self.value(cur.warp, p);
                let bytes = self.value(cur.warp, bytes);
                let mask = u64::MAX >> (64 - ty.bits());
                let sum = |l: usize| p[l].wrapping_add(signed(from, bytes[l]) as u64) & mask;
                self.set(cur, d, &core::array::from_fn(sum));
            }
            ValueOp::PtrBits { d, p, .. } => {
                let row = self.value(cur.warp, p);
                self.set(cur, d, &row);
            }
            ValueOp::PtrFrom { d, bits, .. } => {
                let row = self.value(cur.warp, bits);
                self.set(cur, d, &row);
            }
            ValueOp::MapA { d, p, rank } => {
                let p = self.value(cur.warp, p);
                let rank = self.value(cur.warp, rank);
                let limit = u64::from(self.geometry.cluster);
                if let Some(lane) = lanes(cur.mask).find(|&lane| rank[lane] >= limit) {
                    let what = "rank of a block beyond the cluster";
                    return Err(Trouble::lane(
                        FaultKind::BadOperand { what, found: rank[lane], limit: limit - 1 },
                        lane,
                    ));
                }
                let to = |l: usize| u64::from(reach::cluster_address(rank[l] as u32 & 0xff, p[l] as u32));
                self.set(cur, d, &core::array::from_fn(to));
            }
            // Decoding makes steps of their own of these.
            ValueOp::Get { .. } | ValueOp::Set { .. } => {}
        }
        Ok(Next::Go)
    }

    fn special(&self, cur: Cur, reg: SpecialReg) -> LaneValues {
        let warp = &self.warps[cur.warp];
        let block = &self.blocks[warp.block as usize];
        let [x, y, _] = self.program.launch.threads;
        let grid = self.launch.grid;
        let shape = self.program.launch.cluster;
        let thread = |lane: usize| warp.index * 32 + lane as u32;
        let same = |value: u32| [u64::from(value); LANES];
        match reg {
            SpecialReg::TidX => core::array::from_fn(|lane| u64::from(thread(lane) % x)),
            SpecialReg::TidY => core::array::from_fn(|lane| u64::from(thread(lane) / x % y)),
            SpecialReg::TidZ => core::array::from_fn(|lane| u64::from(thread(lane) / x / y)),
            SpecialReg::CtaidX => same(block.coords[0]),
            SpecialReg::CtaidY => same(block.coords[1]),
            SpecialReg::CtaidZ => same(block.coords[2]),
            SpecialReg::NctaidX => same(grid[0]),
            SpecialReg::NctaidY => same(grid[1]),
            SpecialReg::NctaidZ => same(grid[2]),
            SpecialReg::Laneid => core::array::from_fn(|lane| lane as u64),
            SpecialReg::ClusterCtarank => same(warp.block % self.geometry.cluster),
            SpecialReg::ClusterNctarank => same(self.geometry.cluster),
            SpecialReg::ClusteridX => same(block.coords[0] / shape[0]),
            SpecialReg::NclusteridX => same(grid[0] / shape[0]),
            SpecialReg::Smid => same(warp.block % self.geometry.device % self.launch.multiprocessors.max(1)),
        }
    }

    /// The name of a register, as the text form has it.
    pub(crate) fn register_name(&self, var: u32) -> String {
        let row = self.program.first_var + var;
        let array = self.program.var_rows.partition_point(|&first| first <= row).saturating_sub(1);
        let first = self.program.var_rows.get(array).copied().unwrap_or(row);
        format!("r{array}[{}]", row - first)
    }

    /// A register that no `wgmma` in flight uses.
    pub(crate) fn check_arrived(&self, cur: Cur, var: u32) -> Try<()> {
        let warp = &self.warps[cur.warp];
        if self.checks && warp.flying > 0 && warp.in_flight[var as usize] > 0 {
            return Err(Trouble::new(FaultKind::WgmmaInFlight { register: self.register_name(var) }));
        }
        Ok(())
    }

    /// A register that these lanes have written.
    pub(crate) fn check_set(&self, cur: Cur, var: u32) -> Try<()> {
        let missing = cur.mask & !self.warps[cur.warp].written[var as usize];
        if self.checks && missing != 0 {
            let kind = FaultKind::UninitialisedRegister { register: self.register_name(var) };
            return Err(Trouble::lane(kind, missing.trailing_zeros() as usize));
        }
        Ok(())
    }

    /// Records that these lanes have written a register.
    pub(crate) fn mark_set(&mut self, cur: Cur, var: u32) {
        let row = (self.program.first_var + var) as usize;
        let warp = &mut self.warps[cur.warp];
        warp.written[var as usize] |= cur.mask;
        warp.touched[row] = true;
    }

    pub(super) fn get_register(&mut self, cur: Cur, var: u32, dest: u32) -> Try<Next> {
        self.check_arrived(cur, var)?;
        self.check_set(cur, var)?;
        let row = self.warps[cur.warp].regs[(self.program.first_var + var) as usize];
        self.warps[cur.warp].put(dest as usize, cur.mask, &row);
        Ok(Next::Go)
    }

    pub(super) fn set_register(&mut self, cur: Cur, var: u32, value: Ref) -> Try<Next> {
        self.check_arrived(cur, var)?;
        let row = *self.read(cur.warp, value);
        let at = (self.program.first_var + var) as usize;
        self.warps[cur.warp].put(at, cur.mask, &row);
        self.mark_set(cur, var);
        Ok(Next::Go)
    }
}
