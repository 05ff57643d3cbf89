//! Within a warp. Without a mask named, all 32 lanes take part.

use super::val::{Lane, Raw, Word};
use super::{Arg, Builder, Val};
use crate::ir::attr::{ReduxOp, ShflMode, VoteMode};
use crate::ir::{Const, Ty, WarpOp};

/// All lanes.
pub(super) const FULL: u32 = u32::MAX;

impl<'k, T: Lane> Val<'k, T> {
    /// The value in another lane, as `mode` says, within segments of `width` lanes, among the lanes of `mask`.
    #[track_caller]
    pub fn shfl(self, mode: ShflMode, b: impl Arg<'k, u32>, width: u32, mask: u32) -> Val<'k, T> {
        let (ty, a, b) = (T::TY, self.op, b.val(self.k).op);
        let (width, mask) = (Const::u32(width).into(), Const::u32(mask).into());
        Val::new(self.k, self.k.value(ty, |d| WarpOp::Shfl { ty, d, a, b, width, mask, mode }))
    }

    /// The value in a lane.
    #[track_caller]
    pub fn shfl_idx(self, lane: impl Arg<'k, u32>) -> Val<'k, T> {
        self.shfl(ShflMode::Idx, lane, 32, FULL)
    }

    /// The value so many lanes below.
    #[track_caller]
    pub fn shfl_up(self, distance: impl Arg<'k, u32>) -> Val<'k, T> {
        self.shfl(ShflMode::Up, distance, 32, FULL)
    }

    /// The value so many lanes above.
    #[track_caller]
    pub fn shfl_down(self, distance: impl Arg<'k, u32>) -> Val<'k, T> {
        self.shfl(ShflMode::Down, distance, 32, FULL)
    }

    /// The value in the lane whose number differs in these bits.
    #[track_caller]
    pub fn shfl_bfly(self, bits: impl Arg<'k, u32>) -> Val<'k, T> {
        self.shfl(ShflMode::Bfly, bits, 32, FULL)
    }

    /// What the lanes' values combine to, in every lane: five shuffles, each combined with `f`.
    #[track_caller]
    pub fn warp_reduce(self, f: impl Fn(Val<'k, T>, Val<'k, T>) -> Val<'k, T>) -> Val<'k, T> {
        let mut all = self;
        for bits in [16u32, 8, 4, 2, 1] {
            all = f(all, all.shfl_bfly(bits));
        }
        all
    }
}

impl<'k> Val<'k, bool> {
    /// The answer to a vote among the lanes of `mask`.
    #[track_caller]
    pub fn vote(self, mode: VoteMode, mask: u32) -> Val<'k, bool> {
        let (p, mask) = (self.op, Const::u32(mask).into());
        Val::new(self.k, self.k.value(Ty::Pred, |d| WarpOp::Vote { d, p, mask, mode }))
    }

    /// Whether it is true in every lane.
    #[track_caller]
    pub fn all(self) -> Val<'k, bool> {
        self.vote(VoteMode::All, FULL)
    }

    /// Whether it is true in some lane.
    #[track_caller]
    pub fn any(self) -> Val<'k, bool> {
        self.vote(VoteMode::Any, FULL)
    }

    /// The lanes where it is true, one bit each.
    #[track_caller]
    pub fn ballot(self) -> Val<'k, u32> {
        let (p, mask) = (self.op, Const::u32(FULL).into());
        Val::new(self.k, self.k.value(Ty::U32, |d| WarpOp::Ballot { d, p, mask }))
    }
}

impl<'k, T: Raw> Val<'k, T> {
    /// The lanes that hold the same value.
    #[track_caller]
    pub fn match_any(self) -> Val<'k, u32> {
        let (ty, a, mask) = (T::TY, self.op, Const::u32(FULL).into());
        Val::new(self.k, self.k.value(Ty::U32, |d| WarpOp::MatchAny { ty, d, a, mask }))
    }

    /// All lanes if they hold the same value, else none; and whether they do.
    #[track_caller]
    pub fn match_all(self) -> (Val<'k, u32>, Val<'k, bool>) {
        let (ty, a, mask) = (T::TY, self.op, Const::u32(FULL).into());
        let out = self.k.values(&[Ty::U32, Ty::Pred], |v| WarpOp::MatchAll { ty, d: v[0], same: v[1], a, mask });
        (Val::new(self.k, out[0]), Val::new(self.k, out[1]))
    }
}

impl<'k, T: Word> Val<'k, T> {
    /// What the lanes' values combine to, in every lane, by one instruction.
    #[track_caller]
    pub fn redux(self, op: ReduxOp) -> Val<'k, T> {
        let (ty, a, mask) = (T::TY, self.op, Const::u32(FULL).into());
        Val::new(self.k, self.k.value(ty, |d| WarpOp::Redux { ty, d, a, mask, op }))
    }
}

impl Builder {
    /// The lanes that are executing together now.
    #[track_caller]
    pub fn active_mask(&self) -> Val<'_, u32> {
        Val::new(self, self.value(Ty::U32, |d| WarpOp::ActiveMask { d }))
    }

    /// True in one lane of the warp.
    #[track_caller]
    pub fn elect(&self) -> Val<'_, bool> {
        let mask = Const::u32(FULL).into();
        Val::new(self, self.value(Ty::Pred, |p| WarpOp::Elect { p, mask }))
    }

    /// The lanes of the warp wait for each other; their accesses to memory are ordered.
    #[track_caller]
    pub fn sync_warp(&self) {
        self.emit(WarpOp::SyncWarp { mask: Const::u32(FULL).into() });
    }
}
