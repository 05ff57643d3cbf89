//! Tensor cores: fragments between shared memory and registers, `mma.sync`, `wgmma`.

use super::*;
use crate::ir::attr::{Major, Matrices, Pending, Sign, Trans};
use crate::ir::{MmaAtom, WgmmaAtom};

family! {
    /// Matrix multiply. Products are exact; the order and the width in which they are summed are
    /// the hardware's: results on small integers are exact, others within the bound of the
    /// accumulation order.
    "mma" MmaOp {
        /// d: one register per 8×8 matrix of 16-bit elements. Lane 8i + j gives in `at` the address
        /// of row j of matrix i (16 bytes, aligned to 16); lanes beyond the last matrix's eight
        /// give addresses that are not read. Lane l receives of each matrix the elements (l / 4,
        /// 2(l mod 4)) and the next; with `trans`, of the transposed matrix.
        LdMatrix "ldmatrix" (d: Ws U32, at: MemR Shared) { count: Matrices, trans: Trans } Sm80 Warp Units;
        /// The inverse of `ldmatrix`.
        StMatrix "stmatrix" (at: MemW Shared, v: Rs U32) { count: Matrices, trans: Trans } Sm90 Warp Units;
        /// acc += A·B with the atom's shape and types, in fragments. The number and types of
        /// registers are the atom's. `s8` sums wrap; floats accumulate in the accumulator's type or
        /// wider.
        MmaSync "mma.sync" (acc: RegRw any, a: Rs any, b: Rs any) { atom: MmaAtom } Sm80 Warp;
        /// Orders this thread's accesses to registers before it with `wgmma`s after it. Needed
        /// before the first `wgmma` and whenever accumulator or A registers were touched otherwise
        /// since the last.
        WgmmaFence "wgmma.fence" () Sm90a Warpgroup Orders;
        /// Closes the warpgroup's current wgmma group (which may be empty) and begins the next.
        WgmmaCommit "wgmma.commit_group" () Sm90a Warpgroup Orders;
        /// Waits until at most the `pending` youngest wgmma groups are unfinished. Only then may
        /// their registers be touched.
        WgmmaWait "wgmma.wait_group" () { pending: Pending } Sm90a Warpgroup Orders;
        /// acc = A·B + (scale ? acc : 0), asynchronously, async proxy; A and B (as K-major or
        /// MN-major) in shared memory, by descriptor. The accumulator is in use until its group was
        /// waited for, except by further `wgmma`s of the same shape. Descriptor (`u64`): bits 0–13
        /// address / 16, 16–29 leading byte offset / 16, 32–45 stride byte offset / 16, 49–51 base
        /// offset, 62–63 swizzle (0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes); see `docs/ir.md`.
        WgmmaSs "wgmma.ss" (acc: RegRw any, a: R U64, b: R U64, scale: R Pred)
            { atom: WgmmaAtom, sign_a: Sign, sign_b: Sign, major_a: Major, major_b: Major } Sm90a Warpgroup Async Proxy;
        /// Multiplies as `wgmma.ss` does, with A in four registers per thread (K-major fragment).
        WgmmaRs "wgmma.rs" (acc: RegRw any, a: Rs any, b: R U64, scale: R Pred)
            { atom: WgmmaAtom, sign_a: Sign, sign_b: Sign, major_b: Major } Sm90a Warpgroup Async Proxy;
    }
}
