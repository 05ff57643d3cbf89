//! Within a warp: shuffles, votes, matches, reductions, the barrier of a warp.

use crate::ir::attr::{ReduxOp, ShflMode, VoteMode};
use crate::ir::{Operand, Ty, WarpOp};
use crate::sim::fault::FaultKind;
use crate::sim::machine::{Cur, GroupState, Mask, Next, Simulation, Trouble, Try, lanes};
use crate::sim::number::{LANES, LaneValues, signed};

/// The lane that a shuffle reads; nothing if it lies outside the segment.
fn source(mode: ShflMode, lane: u32, b: u32, width: u32) -> Option<u32> {
    let low = lane & !(width - 1);
    let b = b % 32;
    let high = low + width - 1;
    match mode {
        ShflMode::Idx => Some(low + b % width),
        ShflMode::Up => lane.checked_sub(b).filter(|&from| from >= low),
        ShflMode::Down => Some(lane + b).filter(|&from| from <= high),
        ShflMode::Bfly => Some(lane ^ b).filter(|&from| from <= high),
    }
}

impl Simulation<'_> {
    pub(crate) fn warp_op(&mut self, cur: Cur, op: &WarpOp) -> Try<Next> {
        let mask = match op {
            WarpOp::ActiveMask { d } => {
                self.set(cur, *d, &[u64::from(cur.mask); LANES]);
                return Ok(Next::Go);
            }
            WarpOp::Shfl { mask, .. }
            | WarpOp::Vote { mask, .. }
            | WarpOp::Ballot { mask, .. }
            | WarpOp::MatchAny { mask, .. }
            | WarpOp::MatchAll { mask, .. }
            | WarpOp::Redux { mask, .. }
            | WarpOp::Elect { mask, .. }
            | WarpOp::SyncWarp { mask } => *mask,
        };
        let Some((mask, split)) = self.members(cur, mask)? else {
            // Some lanes are missing: those that are here wait.
            return Ok(self.gather(cur, self.named(cur, mask))?.unwrap_or(Next::Switch));
        };
        if split {
            return Ok(self.part(cur, mask));
        }
        self.exchange(cur, mask, op)
    }

    /// The mask that the first lane names.
    fn named(&self, cur: Cur, mask: Operand) -> Mask {
        self.value(cur.warp, mask)[cur.mask.trailing_zeros() as usize] as u32
    }

    /// The lanes that go on together: those that name the mask that the first lane names, if they
    /// are all in it. Says whether others are here besides.
    fn members(&self, cur: Cur, operand: Operand) -> Try<Option<(Mask, bool)>> {
        let row = self.value(cur.warp, operand);
        for lane in lanes(cur.mask) {
            if row[lane] >> lane & 1 == 0 {
                return Err(Trouble::lane(FaultKind::NotInMask { mask: row[lane] as u32 }, lane));
            }
        }
        for lane in lanes(cur.mask) {
            let mask = row[lane] as u32;
            let same =
                lanes(cur.mask).filter(|&other| row[other] as u32 == mask).fold(0, |set, other| set | 1 << other);
            if same == mask {
                return Ok(Some((mask, mask != cur.mask)));
            }
        }
        Ok(None)
    }

    /// Lanes that have what they need part from those that do not.
    fn part(&mut self, cur: Cur, mask: Mask) -> Next {
        let warp = &mut self.warps[cur.warp];
        let mut rest = warp.groups[cur.group].clone();
        rest.mask &= !mask;
        rest.state = GroupState::Ready;
        warp.groups[cur.group].mask = mask;
        warp.groups.push(rest);
        Next::Switch
    }

    fn exchange(&mut self, cur: Cur, mask: Mask, op: &WarpOp) -> Try<Next> {
        match op {
            WarpOp::Shfl { d, a, b, width, mode, .. } => {
                let a = self.value(cur.warp, *a);
                let b = self.value(cur.warp, *b);
                let width = self.value(cur.warp, *width);
                let mut out = [0; LANES];
                for lane in lanes(mask) {
                    let width = width[lane] as u32;
                    if !width.is_power_of_two() || width > 32 {
                        let what = "width of a shuffle, which is a power of two";
                        return Err(Trouble::lane(
                            FaultKind::BadOperand { what, found: width.into(), limit: 32 },
                            lane,
                        ));
                    }
                    let from = source(*mode, lane as u32, b[lane] as u32, width).unwrap_or(lane as u32);
                    if mask >> from & 1 == 0 {
                        return Err(Trouble::lane(FaultKind::ShuffleOutsideMask { source: from, mask }, lane));
                    }
                    out[lane] = a[from as usize];
                }
                self.set(cur, *d, &out);
            }
            WarpOp::Vote { d, p, mode, .. } => {
                let p = self.value(cur.warp, *p);
                let truth = lanes(mask).filter(|&lane| p[lane] != 0).count() as u32;
                let all = mask.count_ones();
                let answer = match mode {
                    VoteMode::All => truth == all,
                    VoteMode::Any => truth > 0,
                    VoteMode::Uni => truth == 0 || truth == all,
                };
                self.set(cur, *d, &[u64::from(answer); LANES]);
            }
            WarpOp::Ballot { d, p, .. } => {
                let p = self.value(cur.warp, *p);
                let set = lanes(mask).filter(|&lane| p[lane] != 0).fold(0u64, |set, lane| set | 1 << lane);
                self.set(cur, *d, &[set; LANES]);
            }
            WarpOp::MatchAny { d, a, .. } => {
                let a = self.value(cur.warp, *a);
                let same = |l: usize| lanes(mask).filter(|&o| a[o] == a[l]).fold(0u64, |set, o| set | 1 << o);
                self.set(cur, *d, &core::array::from_fn(same));
            }
            WarpOp::MatchAll { d, same, a, .. } => {
                let a = self.value(cur.warp, *a);
                let first = a[mask.trailing_zeros() as usize];
                let equal = lanes(mask).all(|lane| a[lane] == first);
                self.set(cur, *d, &[if equal { u64::from(mask) } else { 0 }; LANES]);
                self.set(cur, *same, &[u64::from(equal); LANES]);
            }
            WarpOp::Redux { ty, d, a, op, .. } => {
                let a = self.value(cur.warp, *a);
                self.set(cur, *d, &[redux(*op, *ty, mask, &a); LANES]);
            }
            WarpOp::Elect { p, .. } => {
                let chosen = mask.trailing_zeros() as usize;
                self.set(cur, *p, &core::array::from_fn(|lane| u64::from(lane == chosen)));
            }
            WarpOp::SyncWarp { .. } => self.meet(cur.warp, mask),
            WarpOp::ActiveMask { .. } => {}
        }
        Ok(Next::Go)
    }
}

fn redux(op: ReduxOp, ty: Ty, mask: Mask, a: &LaneValues) -> u64 {
    let all = lanes(mask).map(|lane| a[lane]);
    let value = match op {
        ReduxOp::Add => all.fold(0, u64::wrapping_add),
        ReduxOp::Min if ty.is_signed() => all.map(|v| signed(ty, v)).min().unwrap_or(0) as u64,
        ReduxOp::Max if ty.is_signed() => all.map(|v| signed(ty, v)).max().unwrap_or(0) as u64,
        ReduxOp::Min => all.min().unwrap_or(0),
        ReduxOp::Max => all.max().unwrap_or(0),
        ReduxOp::And => all.fold(u64::MAX, |x, y| x & y),
        ReduxOp::Or => all.fold(0, |x, y| x | y),
        ReduxOp::Xor => all.fold(0, |x, y| x ^ y),
    };
    value & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_stays_in_its_segment() {
        assert_eq!(source(ShflMode::Idx, 13, 9, 8), Some(9));
        assert_eq!(source(ShflMode::Up, 8, 1, 8), None);
        assert_eq!(source(ShflMode::Down, 14, 1, 8), Some(15));
        assert_eq!(source(ShflMode::Down, 15, 1, 8), None);
        assert_eq!(source(ShflMode::Bfly, 5, 16, 32), Some(21));
        assert_eq!(source(ShflMode::Bfly, 5, 16, 16), None);
        assert_eq!(source(ShflMode::Bfly, 21, 16, 16), Some(5), "below the segment is not outside");
    }
}
