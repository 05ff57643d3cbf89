//! Operations within a warp. Without a mask, all lanes take part: 32, or those that the last warp
//! of the block has.

use super::val::{Lane, Raw, Word};
use super::{Builder, IntoVal, Val};
use crate::ir::attr::{ReduxOp, ShflMode, VoteMode};
use crate::ir::{Const, Operand, Ty, WarpOp};

/// All lanes of a whole warp.
const FULL: u32 = u32::MAX;

impl<'k, T: Lane> Val<'k, T> {
    /// The value in another lane, as `mode` says, within segments of `width` lanes, among the lanes
    /// of `mask`.
    #[track_caller]
    pub fn shfl(self, mode: ShflMode, b: impl IntoVal<'k, u32>, width: u32, mask: u32) -> Val<'k, T> {
        self.shfl_among(mode, b.val(self.k).op, width, Const::u32(mask).into())
    }

    #[track_caller]
    fn shfl_among(self, mode: ShflMode, b: Operand, width: u32, mask: Operand) -> Val<'k, T> {
        let ty = T::TY;
        let a = self.op;
        let width = Const::u32(width).into();
        Val::new(self.k, self.k.value(ty, |d| WarpOp::Shfl { ty, d, a, b, width, mask, mode }))
    }

    /// The value in a lane.
    #[track_caller]
    pub fn shfl_idx(self, lane: impl IntoVal<'k, u32>) -> Val<'k, T> {
        self.shfl_among(ShflMode::Idx, lane.val(self.k).op, 32, self.k.all_lanes())
    }

    /// The value `distance` lanes below.
    #[track_caller]
    pub fn shfl_up(self, distance: impl IntoVal<'k, u32>) -> Val<'k, T> {
        self.shfl_among(ShflMode::Up, distance.val(self.k).op, 32, self.k.all_lanes())
    }

    /// The value `distance` lanes above.
    #[track_caller]
    pub fn shfl_down(self, distance: impl IntoVal<'k, u32>) -> Val<'k, T> {
        self.shfl_among(ShflMode::Down, distance.val(self.k).op, 32, self.k.all_lanes())
    }

    /// The value in the lane whose number differs in these bits.
    #[track_caller]
    pub fn shfl_bfly(self, bits: impl IntoVal<'k, u32>) -> Val<'k, T> {
        self.shfl_among(ShflMode::Bfly, bits.val(self.k).op, 32, self.k.all_lanes())
    }

    /// Reduces the lanes' values and returns the result in every lane: five shuffles, each combined
    /// with `f`.
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
        self.vote_among(mode, Const::u32(mask).into())
    }

    #[track_caller]
    fn vote_among(self, mode: VoteMode, mask: Operand) -> Val<'k, bool> {
        let p = self.op;
        Val::new(self.k, self.k.value(Ty::Pred, |d| WarpOp::Vote { d, p, mask, mode }))
    }

    /// Whether it is true in every lane.
    #[track_caller]
    pub fn all(self) -> Val<'k, bool> {
        self.vote_among(VoteMode::All, self.k.all_lanes())
    }

    /// Whether it is true in some lane.
    #[track_caller]
    pub fn any(self) -> Val<'k, bool> {
        self.vote_among(VoteMode::Any, self.k.all_lanes())
    }

    /// The lanes where it is true, one bit each.
    #[track_caller]
    pub fn ballot(self) -> Val<'k, u32> {
        let p = self.op;
        let mask = self.k.all_lanes();
        Val::new(self.k, self.k.value(Ty::U32, |d| WarpOp::Ballot { d, p, mask }))
    }
}

impl<'k, T: Raw> Val<'k, T> {
    /// The lanes that hold the same value.
    #[track_caller]
    pub fn match_any(self) -> Val<'k, u32> {
        let ty = T::TY;
        let a = self.op;
        let mask = self.k.all_lanes();
        Val::new(self.k, self.k.value(Ty::U32, |d| WarpOp::MatchAny { ty, d, a, mask }))
    }

    /// All lanes if they hold the same value, else none; and whether they do.
    #[track_caller]
    pub fn match_all(self) -> (Val<'k, u32>, Val<'k, bool>) {
        let ty = T::TY;
        let a = self.op;
        let mask = self.k.all_lanes();
        let out = self.k.values(&[Ty::U32, Ty::Pred], |v| WarpOp::MatchAll { ty, d: v[0], same: v[1], a, mask });
        (Val::new(self.k, out[0]), Val::new(self.k, out[1]))
    }
}

impl<'k, T: Word> Val<'k, T> {
    /// Reduces the lanes' values and returns the result in every lane, by one instruction.
    #[track_caller]
    pub fn redux(self, op: ReduxOp) -> Val<'k, T> {
        let ty = T::TY;
        let a = self.op;
        let mask = self.k.all_lanes();
        Val::new(self.k, self.k.value(ty, |d| WarpOp::Redux { ty, d, a, mask, op }))
    }
}

impl Builder {
    /// The lanes that the warp has: fewer than 32 only in the last warp of a block that is not a
    /// multiple of 32.
    #[track_caller]
    fn all_lanes(&self) -> Operand {
        let threads = self.threads();
        let part = Const::u32((1 << (threads % 32)) - 1);
        match threads {
            _ if threads.is_multiple_of(32) => Const::u32(FULL).into(),
            ..32 => part.into(),
            _ => self.warp().ge(threads / 32).select(Val::<u32>::new(self, part.into()), FULL).op,
        }
    }

    /// The lanes that are executing together now.
    #[track_caller]
    pub fn active_mask(&self) -> Val<'_, u32> {
        Val::new(self, self.value(Ty::U32, |d| WarpOp::ActiveMask { d }))
    }

    /// True in one lane of the warp.
    #[track_caller]
    pub fn elect(&self) -> Val<'_, bool> {
        let mask = self.all_lanes();
        Val::new(self, self.value(Ty::Pred, |p| WarpOp::Elect { p, mask }))
    }

    /// The lanes of the warp wait for each other; their accesses to memory are ordered.
    #[track_caller]
    pub fn sync_warp(&self) {
        self.emit(WarpOp::SyncWarp { mask: self.all_lanes() });
    }
}
