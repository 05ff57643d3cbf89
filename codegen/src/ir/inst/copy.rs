//! Asynchronous copies: `cp.async` by groups, bulk copies and tensor maps by mbarrier or by bulk
//! group.
//!
//! An asynchronous copy reads its source and writes its destination at any time between its issue
//! and its completion; neither may be touched meanwhile in a way that would matter.

use super::*;
use crate::ir::attr::{AtomOp, BulkDone, CpBytes, CpCache, NoInc, Pending};

family! {
    /// Asynchronous copies.
    "copy" CopyOp {
        /// Copies `bytes` (4, 8 or 16) from global to shared memory, both aligned to `bytes`. With
        /// `filled`, only that many bytes are read (0 to `bytes`) and the rest is zeroed. Belongs
        /// to the thread's current cp.async group. Generic proxy. `cg` copies 16 bytes only.
        /// Visible to this thread once its group was waited for; to others after a barrier.
        CpAsync "cp.async" (dst: MemW Shared, src: MemR Global, filled: Ro U32) { bytes: CpBytes, cache: CpCache } Sm80 Async;
        /// Closes the thread's current cp.async group (which may be empty) and begins the next.
        CpAsyncCommit "cp.async.commit_group" () Sm80 Orders;
        /// Waits until at most the `pending` youngest closed groups of this thread are unfinished.
        CpAsyncWait "cp.async.wait_group" () { pending: Pending } Sm80 Orders;
        /// Arrives once at the mbarrier, on the thread's behalf, when all earlier `cp.async` of
        /// this thread are complete.
        CpAsyncMbarArrive "cp.async.mbarrier.arrive" (bar: MemRw Bar) { noinc: NoInc } Sm80 Async Orders;
        /// Copies `bytes` from global memory to the block's shared memory (or, with an address of
        /// `Cluster` space, to another block's, whose mbarrier it then names), async proxy;
        /// addresses and `bytes` are multiples of 16, `bytes` > 0. On completion the bytes are
        /// visible, then counted off the pending bytes of `bar`. With `multicast`, a mask of ranks:
        /// the same bytes go to the same offset in each of these blocks of the cluster, each
        /// completing on the mbarrier at the offset of `bar` in its own block.
        BulkG2S "cp.async.bulk.g2s" (dst: MemW OnChip, src: MemR Global, bytes: R U32, bar: MemRw BarOnChip, multicast: Ro U16, policy: Ro U64) Sm90 Async Proxy Units;
        /// Copies `bytes` from shared to global memory, async proxy; alignment as above. Belongs to
        /// the thread's current bulk group.
        BulkS2G "cp.async.bulk.s2g" (dst: MemW Global, src: MemR Shared, bytes: R U32, policy: Ro U64) Sm90 Async Proxy Units;
        /// Copies `bytes` from this block's shared memory to another's of the cluster, completing
        /// on the mbarrier `bar` there.
        BulkS2C "cp.async.bulk.s2c" (dst: MemW Cluster, src: MemR Shared, bytes: R U32, bar: MemRw BarCluster) Sm90 Async Proxy Units;
        /// Each element of `bytes` at `dst` in global memory becomes `op(element, v)` with the
        /// element v at the same place in shared memory, async proxy; alignment as above. Each by
        /// itself is a relaxed atomic operation of the device, in any order; no race with others of
        /// the async proxy. Operations and types: `add` u32 s32 u64 f16 bf16 f32 f64, `min max` u32
        /// s32 u64 s64 f16 bf16, `inc dec` u32, `and or xor` u32 u64. Sums of floats round to
        /// nearest; of `f32` subnormal operands and results become zero of their sign. Belongs to
        /// the thread's current bulk group.
        ReduceS2G "cp.reduce.async.bulk.s2g" <ty: Reduced> (dst: MemRw Global, src: MemR Shared, bytes: R U32, policy: Ro U64) { op: AtomOp } Sm90 Async Proxy Units;
        /// Reduces as `cp.reduce.async.bulk.s2g` does, to another block's shared memory, and
        /// completes on the mbarrier `bar` there. Operations and types: `add` u32 s32 u64, `min
        /// max` u32 s32, `inc dec` u32, `and or xor` u32.
        ReduceS2C "cp.reduce.async.bulk.s2c" <ty: Reduced> (dst: MemRw Cluster, src: MemR Shared, bytes: R U32, bar: MemRw BarCluster) { op: AtomOp } Sm90 Async Proxy Units;
        /// A hint: bring `bytes` (multiple of 16, address too) of global memory to L2.
        BulkPrefetch "cp.async.bulk.prefetch.l2" (src: MemAt Global, bytes: R U32) Sm90;
        /// Copies the box of the tensor map that starts at coordinates `at` (1 to 5, the first axis
        /// fastest, signed) to shared memory, in the map's swizzle; elements outside the tensor get
        /// the map's fill and count as bytes. Coordinates may be negative; the first, in bytes, is
        /// a multiple of 16. With a swizzle, rows of the box lie its span apart, however narrow
        /// they are. `dst` is aligned to 128 bytes (to the swizzle's period for the pattern to
        /// start there). Completion and `multicast` as `cp.async.bulk.g2s`; the whole box's bytes
        /// are counted.
        TensorLoad "cp.async.bulk.tensor.load" (dst: MemW OnChip, map: MemAt Map, at: Rs S32, bar: MemRw BarOnChip, multicast: Ro U16, policy: Ro U64) Sm90 Async Proxy Boxes;
        /// Copies shared memory to the box of the tensor map at the non-negative coordinates `at`;
        /// elements outside the tensor are not written, except those past a row's end in the same
        /// 16 bytes as its last. The rest as `cp.async.bulk.tensor.load`. Belongs to the thread's
        /// current bulk group.
        TensorStore "cp.async.bulk.tensor.store" (map: MemAt Map, at: Rs S32, src: MemR Shared, policy: Ro U64) Sm90 Async Proxy Boxes;
        /// Each element of the box of the tensor map that lies in the tensor becomes
        /// `op(element, v)` with the element v of the box in shared memory. Coordinates and `src`
        /// as `cp.async.bulk.tensor.store`; operations, by the map's type, and order as
        /// `cp.reduce.async.bulk.s2g`.
        TensorReduce "cp.reduce.async.bulk.tensor" (map: MemAt Map, at: Rs S32, src: MemR Shared, policy: Ro U64) { op: AtomOp } Sm90 Async Proxy Boxes;
        /// A hint: bring the box of the tensor map at the coordinates to L2.
        BoxPrefetch "cp.async.bulk.prefetch.tensor" (map: MemAt Map, at: Rs S32, policy: Ro U64) Sm90;
        /// A hint: the tensor map will be used.
        TensorPrefetch "prefetch.tensormap" (map: MemAt Map) Sm90;
        /// Closes the thread's current bulk group (which may be empty) and begins the next.
        BulkCommit "cp.async.bulk.commit_group" () Sm90 Orders;
        /// Waits until at most the `pending` youngest closed bulk groups of this thread are
        /// unfinished, or, with `read`, have sources left to read.
        BulkWait "cp.async.bulk.wait_group" () { pending: Pending, done: BulkDone } Sm90 Orders;
    }
}
