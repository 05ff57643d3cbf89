//! Within a warp: shuffles, votes, matches, reductions, and the barrier of a warp.
//!
//! Each instruction has a `mask` of lanes. Every lane of the mask must execute the same instruction
//! with the same mask before any of them goes on (they need not be converged before); a lane
//! executes it only with its own bit set. A mask that names a lane that has exited, or never comes,
//! is a fault. Only `bar.warp` orders accesses to memory.

use super::*;
use crate::ir::attr::{ReduxOp, ShflMode, VoteMode};

family! {
    /// Warp-wide instructions.
    "warp" WarpOp {
        /// d = a of another lane. With `lo = lane & −width` and `hi = lo + width − 1` the lane's
        /// segment and b taken mod 32, the source is `lo + (b mod width)` (`idx`), `lane − b`
        /// (`up`), `lane + b` (`down`) or `lane ^ b` (`bfly`). Where the source lies below `lo`
        /// (`up`) or above `hi` (the others), d = the lane's own a. `width` is a power of two up to
        /// 32 and a constant. Reading a lane outside the mask is a fault. No order on memory.
        Shfl "shfl" <ty: Lane> (d: W ty, a: R ty, b: R U32, width: R U32, mask: R U32) { mode: ShflMode } Sm80;
        /// d = the answer to the vote among the lanes of the mask.
        Vote "vote" (d: W Pred, p: R Pred, mask: R U32) { mode: VoteMode } Sm80;
        /// d = the lanes of the mask whose predicate is true, one bit each.
        Ballot "ballot" (d: W U32, p: R Pred, mask: R U32) Sm80;
        /// d = the lanes of the mask whose a equals this lane's a.
        MatchAny "match.any" <ty: Raw> (d: W U32, a: R ty, mask: R U32) Sm80;
        /// d = the mask if a is the same in all its lanes, else 0; `same` says which.
        MatchAll "match.all" <ty: Raw> (d: W U32, same: W Pred, a: R ty, mask: R U32) Sm80;
        /// d = the combination of a over the lanes of the mask, in each of them.
        Redux "redux" <ty: Word> (d: W ty, a: R ty, mask: R U32) { op: ReduxOp } Sm80;
        /// d = the lanes of the warp that execute this together now. A fact about the machine, not
        /// a synchronisation.
        ActiveMask "activemask" (d: W U32) Sm80;
        /// p is true in one lane of the mask, always the same one for a mask: the lowest.
        Elect "elect" (p: W Pred, mask: R U32) Sm90;
        /// The lanes of the mask wait for each other; their accesses to memory before it happen
        /// before those after it.
        SyncWarp "bar.warp" (mask: R U32) Sm80 Orders;
    }
}
