//! Atomic read-modify-writes.

use crate::ir::attr::{AtomOp, AtomOrder, RedOrder, Round, Scope};
use crate::ir::{Addr, MemOp, Operand, Space, Ty, ValueId};
use crate::sim::machine::Reduction;
use crate::sim::machine::{Address, Cur, Next, Simulation, Try, lanes};
use crate::sim::number::{BF16, F16, FloatFormat, LANES, LaneValues, decode, encode_f64};
use crate::sim::order::ThreadView;

/// A read-modify-write, taken apart.
struct Rmw {
    ty: Ty,
    at: Addr,
    change: AtomicChange,
    order: AtomOrder,
    result: Option<ValueId>,
}

enum AtomicChange {
    Op(AtomOp, Operand),
    Swap { old: Operand, new: Operand },
}

fn parts(op: &MemOp) -> Option<Rmw> {
    match *op {
        MemOp::Atom { ty, d, at, v, op, order } => {
            Some(Rmw { ty, at, change: AtomicChange::Op(op, v), order, result: Some(d) })
        }
        MemOp::Cas { ty, d, at, old, v, order } => {
            Some(Rmw { ty, at, change: AtomicChange::Swap { old, new: v }, order, result: Some(d) })
        }
        MemOp::Red { ty, at, v, op, order } => {
            let order = match order {
                RedOrder::Relaxed(scope) => AtomOrder::Relaxed(scope),
                RedOrder::Release(scope) => AtomOrder::Release(scope),
            };
            Some(Rmw { ty, at, change: AtomicChange::Op(op, v), order, result: None })
        }
        MemOp::Ld { .. } | MemOp::St { .. } | MemOp::PrefetchL2 { .. } | MemOp::CreatePolicy { .. } => None,
    }
}

/// A half or a double of two: sums round to nearest; of a number and a NaN, the number is the
/// lesser and the greater.
fn combine_floats(op: AtomOp, ty: Ty, m: u64, v: u64) -> u64 {
    let format = if ty == Ty::BF16 { BF16 } else { F16 };
    let value = |bits| if ty == Ty::F64 { f64::from_bits(bits) } else { decode(format, bits) };
    let a = value(m);
    let b = value(v);
    let takes = |wins: bool| if a.is_nan() || !b.is_nan() && wins { v } else { m };
    if op == AtomOp::Min {
        takes(b.total_cmp(&a).is_lt())
    } else if op == AtomOp::Max {
        takes(b.total_cmp(&a).is_gt())
    } else if ty == Ty::F64 {
        (a + b).to_bits()
    } else {
        encode_f64(format, Round::Nearest, a + b)
    }
}

fn add_halves(format: FloatFormat, m: u64, v: u64) -> u64 {
    let one = |at: u32| {
        let sum = decode(format, m >> at & 0xffff) + decode(format, v >> at & 0xffff);
        encode_f64(format, Round::Nearest, sum) << at
    };
    one(0) | one(16)
}

fn add_f32(m: u64, v: u64, flush: bool) -> u64 {
    let m = f32::from_bits(m as u32);
    let v = f32::from_bits(v as u32);
    let keep = |x: f32| if flush && x.is_subnormal() { 0f32.copysign(x) } else { x };
    let sum = keep(keep(m) + keep(v));
    u64::from(if sum.is_nan() { 0x7fff_ffff } else { sum.to_bits() })
}

/// The new value.
fn apply(op: AtomOp, ty: Ty, m: u64, v: u64, flush: bool) -> u64 {
    let narrow = |bits: u64| bits & (u64::MAX >> (64 - ty.bits()));
    let signed = |bits: u64| crate::sim::number::signed(ty, bits);
    match op {
        _ if matches!(ty, Ty::F16 | Ty::BF16 | Ty::F64) => combine_floats(op, ty, m, v),
        AtomOp::Add if ty == Ty::F32 => add_f32(m, v, flush),
        AtomOp::Add if ty == Ty::F16x2 => add_halves(F16, m, v),
        AtomOp::Add if ty == Ty::BF16x2 => add_halves(BF16, m, v),
        AtomOp::Add => narrow(m.wrapping_add(v)),
        AtomOp::Min if ty.is_signed() => narrow(signed(m).min(signed(v)) as u64),
        AtomOp::Max if ty.is_signed() => narrow(signed(m).max(signed(v)) as u64),
        AtomOp::Min => m.min(v),
        AtomOp::Max => m.max(v),
        AtomOp::And => m & v,
        AtomOp::Or => m | v,
        AtomOp::Xor => m ^ v,
        AtomOp::Exch => v,
        AtomOp::Inc => {
            if m >= v {
                0
            } else {
                m + 1
            }
        }
        AtomOp::Dec => {
            if m == 0 || m > v {
                v
            } else {
                m - 1
            }
        }
    }
}

impl Simulation<'_> {
    pub(super) fn atomic(&mut self, cur: Cur, op: &MemOp) -> Try<Next> {
        let Some(rmw) = parts(op) else { return Ok(Next::Go) };
        let space = if let Ty::Ptr(space) = self.program.type_of(rmw.at.base) { space } else { Space::Global };
        let base = self.value(cur.warp, rmw.at.base);
        let mask = u64::MAX >> (64 - space.address().bits());
        let bytes = rmw.ty.bytes();
        let (scope, acquires, releases) = match rmw.order {
            AtomOrder::Relaxed(scope) => (scope, false, false),
            AtomOrder::Acquire(scope) => (scope, true, false),
            AtomOrder::Release(scope) => (scope, false, true),
            AtomOrder::AcqRel(scope) => (scope, true, true),
        };
        let (first, second): (LaneValues, LaneValues) = match rmw.change {
            AtomicChange::Op(_, v) => (self.value(cur.warp, v), [0; LANES]),
            AtomicChange::Swap { old, new } => (self.value(cur.warp, old), self.value(cur.warp, new)),
        };
        let mut out = [0; LANES];
        let mut near = None;
        for lane in lanes(cur.mask) {
            let address = base[lane].wrapping_add(rmw.at.offset as u64) & mask;
            let at = self.reach_near(cur, lane, space, address, bytes, &mut near)?;
            self.touch(cur, lane, at, bytes, true, Some(scope))?;
            let block = self.block_of(cur.warp);
            if releases {
                self.settle_all(block)
            } else {
                self.settle(block, at, bytes as usize)
            }
            self.check_written(at, bytes as usize).map_err(|mut trouble| {
                trouble.lane = Some(lane as u32);
                trouble
            })?;
            let old = self.region(at.home).map_or(0, |region| region.load(at.offset, bytes as usize));
            let new = match rmw.change {
                AtomicChange::Op(op, _) => apply(op, rmw.ty, old, first[lane], at.home.side() == 0),
                AtomicChange::Swap { .. } => {
                    if old == first[lane] {
                        second[lane]
                    } else {
                        old
                    }
                }
            };
            out[lane] = old;
            let changed = self.region_mut(at.home).is_some_and(|region| region.store(at.offset, bytes as usize, new));
            if changed {
                self.changed();
            }
            if self.checks {
                let told = self.order_atomic(cur, lane, at, scope, acquires, releases);
                self.host_sees(lane, at, bytes, told.as_ref(), true)?;
            }
        }
        if let Some(d) = rmw.result {
            self.set(cur, d, &out);
        }
        Ok(Next::Go)
    }

    /// Puts bytes into memory, or combines the elements that they are with those there.
    pub(crate) fn put(&mut self, at: Address, data: &[u8], reduction: Option<Reduction>) -> Try<()> {
        let Some(Reduction { op, ty }) = reduction else {
            self.write_bytes(at, data);
            return Ok(());
        };
        self.check_written(at, data.len())?;
        let size = ty.bytes() as usize;
        let flush = at.home.side() == 0;
        let Some(region) = self.region_mut(at.home) else { return Ok(()) };
        for (offset, bytes) in (at.offset..).step_by(size).zip(data.chunks_exact(size)) {
            let v = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
            let new = apply(op, ty, region.load(offset, size), v, flush);
            region.store(offset, size, new);
        }
        Ok(())
    }

    /// Acquires and releases views for a lane's read-modify-write; the value keeps the releases
    /// that it carried.
    fn order_atomic(
        &mut self,
        cur: Cur,
        lane: usize,
        at: Address,
        scope: Scope,
        acquires: bool,
        releases: bool,
    ) -> Option<(Scope, ThreadView)> {
        let key = at.key();
        let block = self.warps[cur.warp].block;
        if let Some(released) = self.released.get(&key) {
            if acquires {
                if let Some(news) = released.acquire(self.geometry, scope, block) {
                    self.learn(cur.warp, 1 << lane, &news);
                }
            } else {
                self.warps[cur.warp].fences[lane].heard.absorb(self.geometry, released);
            }
        }
        let told = if releases {
            Some((scope, self.publish(cur.warp, 1 << lane)))
        } else {
            self.warps[cur.warp].fences[lane].released.clone()
        };
        if let Some((scope, view)) = &told {
            self.released.entry(key).or_default().add(self.geometry, *scope, block, view);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_follow_their_rows() {
        let u32 = |op, m, v| apply(op, Ty::U32, m, v, false);
        assert_eq!(u32(AtomOp::Add, 0xffff_ffff, 2), 1);
        assert_eq!((u32(AtomOp::Inc, 3, 3), u32(AtomOp::Inc, 2, 3)), (0, 3));
        assert_eq!((u32(AtomOp::Dec, 0, 3), u32(AtomOp::Dec, 4, 3), u32(AtomOp::Dec, 2, 3)), (3, 3, 1));
        assert_eq!(apply(AtomOp::Min, Ty::S32, 0xffff_ffff, 1, false), 0xffff_ffff);
        assert_eq!(apply(AtomOp::Max, Ty::U32, 0xffff_ffff, 1, false), 0xffff_ffff);
        let tiny = u64::from(1u32);
        assert_eq!((add_f32(tiny, tiny, true), add_f32(tiny, tiny, false)), (0, 2));
        assert_eq!(apply(AtomOp::Add, Ty::F16x2, 0x3c00_3c00, 0x4000_3c00, false), 0x4200_4000);
    }
}
