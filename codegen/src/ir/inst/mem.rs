//! Memory: loads, stores, atomics, hints. All of it through the generic proxy.

use super::*;
use crate::ir::attr::{AtomOp, AtomOrder, Eviction, LdCache, LdOrder, Prefetch, RedOrder, StCache, StOrder};

family! {
    /// Loads, stores and atomics. An address is a multiple of the bytes accessed by one thread;
    /// else it is a fault. Vectors hold 1, 2, 4 or 8 elements, at most 16 bytes (8-bit elements: at
    /// most 4 elements).
    "mem" MemOp {
        /// d = the elements at `at`, the first at the lowest address. Memory order as [`LdOrder`]
        /// says; orders other than `Weak` access one element of 32 or 64 bits each atomically (a
        /// vector element by element). `Nc` hints require memory that is not written while the
        /// kernel runs. Acquire: everything that the writer of the value read released at a scope
        /// that includes both threads happens before what follows in this thread. `Param` space:
        /// the bytes of the parameter, `Weak` only.
        Ld "ld" <ty: Data> (d: Ws ty, at: MemR Readable, policy: Ro U64) { order: LdOrder, cache: LdCache, prefetch: Prefetch } Sm80;
        /// The elements are written at `at`. Memory order as [`StOrder`] says.
        St "st" <ty: Data> (at: MemW Memory, v: Rs ty, policy: Ro U64) { order: StOrder, cache: StCache } Sm80;
        /// d = the element at `at`, which becomes `op(element, v)`, in one atomic step. Types:
        /// `add` u32 s32 u64 f32 f16x2 bf16x2 (pairs: each half atomic by itself, global space
        /// only); `min max` u32 s32 u64; `and or xor exch` u32 u64; `inc dec` u32. `f32` add makes
        /// subnormal operands and results zero of their sign in global memory, and keeps them in
        /// shared memory. `bf16x2` needs sm_90.
        Atom "atom" <ty: Atomic> (d: W ty, at: MemRw Memory, v: R ty) { op: AtomOp, order: AtomOrder } Sm80;
        /// d = the element at `at`, which becomes `v` if it equals `old`, in one atomic step.
        Cas "atom.cas" <ty: Swap> (d: W ty, at: MemRw Memory, old: R ty, v: R ty) { order: AtomOrder } Sm80;
        /// The element at `at` becomes `op(element, v)`; nothing is returned, so the thread does
        /// not wait. Types as `atom`, `exch` excepted.
        Red "red" <ty: Atomic> (at: MemRw Memory, v: R ty) { op: AtomOp, order: RedOrder } Sm80;
        /// A hint: the cache line at `at` will be read; bring it to L2. Any global address is
        /// legal.
        PrefetchL2 "prefetch.l2" (at: MemAt Global) Sm80;
        /// d = an access policy for L2: all accesses of that kind get that eviction priority. An
        /// opaque number.
        CreatePolicy "createpolicy" (d: W U64) { eviction: Eviction } Sm80 Pure;
    }
}
