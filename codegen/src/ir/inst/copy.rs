//! Asynchronous copies: `cp.async` by groups, bulk copies and tensor maps by mbarrier or by bulk group.
//!
//! An asynchronous copy reads its source and writes its destination at any time between its issue and its completion;
//! neither may be touched meanwhile in a way that would matter.

use super::*;
use crate::ir::attr::{BulkDone, CpBytes, CpCache, NoInc, Pending};

family! {
    /// Asynchronous copies.
    "copy" CopyOp {
        /// Copies `bytes` (4, 8 or 16) from global to shared memory, both aligned to `bytes`. With `filled`, only that
        /// many bytes are read (0 to `bytes`) and the rest is zeroed. Belongs to the thread's current cp.async group.
        /// Generic proxy. `cg` copies 16 bytes only. Visible to this thread once its group was waited for; to others
        /// after a barrier.
        CpAsync "cp.async" (dst: MemW Shared, src: MemR Global, filled: Ro U32) { bytes: CpBytes, cache: CpCache } Sm80 Async;
        /// Closes the thread's current cp.async group (which may be empty) and begins the next.
        CpAsyncCommit "cp.async.commit_group" () Sm80 Orders;
        /// Waits until at most the `pending` youngest closed groups of this thread are unfinished.
        CpAsyncWait "cp.async.wait_group" () { pending: Pending } Sm80 Orders;
        /// When all earlier `cp.async` of this thread are complete, arrives once at the mbarrier, on the thread's
        /// behalf.
        CpAsyncMbarArrive "cp.async.mbarrier.arrive" (bar: MemRw Shared) { noinc: NoInc } Sm80 Async Orders;
        /// Copies `bytes` from global memory to the block's shared memory (or, with an address of `Cluster` space, to
        /// another block's, whose mbarrier it then names), async proxy; addresses and `bytes` are multiples of 16,
        /// `bytes` > 0. On completion the bytes are visible, then counted off the pending bytes of `bar`. With
        /// `multicast`, a mask of ranks: the same bytes go to the same offset in each of these blocks of the cluster,
        /// each completing on the mbarrier at the offset of `bar` in its own block.
        BulkG2S "cp.async.bulk.g2s" (dst: MemW OnChip, src: MemR Global, bytes: R U32, bar: MemRw OnChip, multicast: Ro U16, policy: Ro U64) Sm90 Async Proxy;
        /// Copies `bytes` from shared to global memory, async proxy; alignment as above. Belongs to the thread's
        /// current bulk group.
        BulkS2G "cp.async.bulk.s2g" (dst: MemW Global, src: MemR Shared, bytes: R U32, policy: Ro U64) Sm90 Async Proxy;
        /// Copies `bytes` from this block's shared memory to another's of the cluster, completing on the mbarrier `bar`
        /// there.
        BulkS2C "cp.async.bulk.s2c" (dst: MemW Cluster, src: MemR Shared, bytes: R U32, bar: MemRw Cluster) Sm90 Async Proxy;
        /// A hint: bring `bytes` (multiple of 16, address too) of global memory to level two.
        BulkPrefetch "cp.async.bulk.prefetch.l2" (src: MemAt Global, bytes: R U32) Sm90;
        /// Copies the box of the tensor map whose first element has the coordinates `at` (2 to 4, the first axis
        /// fastest, signed) to shared memory, in the map's swizzle; elements outside the tensor are filled as the map
        /// says and count as bytes. Coordinates may be negative; the first, in bytes, is a multiple of 16. With a swizzle,
        /// rows of the box lie its span apart, however narrow they are. `dst` is aligned to 128 bytes (to the swizzle's
        /// period for the pattern to start there). Completion and `multicast` as `cp.async.bulk.g2s`; the whole box's
        /// bytes are counted.
        TensorLoad "cp.async.bulk.tensor.load" (dst: MemW OnChip, map: MemAt Map, at: Rs S32, bar: MemRw OnChip, multicast: Ro U16, policy: Ro U64) Sm90 Async Proxy;
        /// Copies shared memory to the box of the tensor map at the coordinates, none of which is negative; elements
        /// outside the tensor are not written, but for those behind the end of a row that lie in the same 16 bytes as its
        /// last. The rest as `cp.async.bulk.tensor.load`. Belongs to the thread's current bulk group.
        TensorStore "cp.async.bulk.tensor.store" (map: MemAt Map, at: Rs S32, src: MemR Shared, policy: Ro U64) Sm90 Async Proxy;
        /// A hint: the tensor map will be used.
        TensorPrefetch "prefetch.tensormap" (map: MemAt Map) Sm90;
        /// Closes the thread's current bulk group (which may be empty) and begins the next.
        BulkCommit "cp.async.bulk.commit_group" () Sm90 Orders;
        /// Waits until at most the `pending` youngest closed bulk groups of this thread are unfinished, or, with
        /// `read`, have sources left to read.
        BulkWait "cp.async.bulk.wait_group" () { pending: Pending, done: BulkDone } Sm90 Orders;
    }
}
