//! Asynchronous copies.

use super::ptr::{Cluster, Global, OnChip, Ptr, Shared, SpaceOf};
use super::sync::Mbarrier;
use super::value::TensorMap;
use super::{Builder, IntoVal, Scalar, Val};
use crate::ir::attr::{AtomOp, BulkDone, CpBytes, CpCache, NoInc, Pending};
use crate::ir::{CopyOp, Operand};

/// The receivers of a bulk load, and its L2 policy.
#[derive(Clone, Copy, Default)]
pub struct Bulk<'k> {
    multicast: Option<Val<'k, u16>>,
    policy: Option<Val<'k, u64>>,
}

impl<'k> Bulk<'k> {
    /// Sends the copy to every block whose rank is in the mask.
    pub fn multicast(self, mask: Val<'k, u16>) -> Bulk<'k> {
        Bulk { multicast: Some(mask), ..self }
    }

    /// Sets an access policy.
    pub fn policy(self, policy: Val<'k, u64>) -> Bulk<'k> {
        Bulk { policy: Some(policy), ..self }
    }

    fn parts(self) -> (Option<Operand>, Option<Operand>) {
        (self.multicast.map(|m| m.op), self.policy.map(|p| p.op))
    }
}

impl<'k, T> Ptr<'k, Shared, T> {
    /// Copies 16 bytes from global memory, asynchronously, past level one.
    #[track_caller]
    pub fn cp_async(self, src: Ptr<'k, Global, T>) {
        self.cp_async_as(src, CpBytes::B16, CpCache::Cg, None);
    }

    /// Copies 4, 8 or 16 bytes from global memory, asynchronously; of them only `filled` are read,
    /// the rest is zeroed.
    #[track_caller]
    pub fn cp_async_as(self, src: Ptr<'k, Global, T>, bytes: CpBytes, cache: CpCache, filled: Option<Val<'k, u32>>) {
        let dst = self.addr();
        let src = src.addr();
        let filled = filled.map(|n| n.op);
        self.k.emit(CopyOp::CpAsync { dst, src, filled, bytes, cache });
    }

    /// Copies `bytes` to global memory, in the current bulk group.
    #[track_caller]
    pub fn bulk_store(self, dst: Ptr<'k, Global, T>, bytes: impl IntoVal<'k, u32>) {
        let dst = dst.addr();
        let src = self.addr();
        let bytes = bytes.val(self.k).op;
        self.k.emit(CopyOp::BulkS2G { dst, src, bytes, policy: None });
    }

    /// Copies `bytes` to another block's shared memory, completing on an mbarrier there.
    #[track_caller]
    pub fn bulk_send(self, dst: Ptr<'k, Cluster, T>, bytes: impl IntoVal<'k, u32>, bar: Mbarrier<'k, Cluster>) {
        let dst = dst.addr();
        let src = self.addr();
        let bytes = bytes.val(self.k).op;
        let bar = bar.addr();
        self.k.emit(CopyOp::BulkS2C { dst, src, bytes, bar });
    }

    /// Combines elements of global memory with the elements from this address on, each in one
    /// atomic step, in the current bulk group: `bytes` of them.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::{Arch, attr::{AtomOp, ProxyFence}}, verify::verify};
    /// # let kernel = record("sample", Arch::Sm90a, block(32), |k| {
    /// let sums = k.global::<f32>("sums");
    /// let own = k.shared::<f32>("own", 32);
    /// own.at(k.tid()).store(1.0);
    /// k.fence_proxy_async(ProxyFence::Shared);
    /// k.sync_warp();
    /// k.when(k.tid().eq(0), || {
    ///     own.bulk_reduce(AtomOp::Add, sums, 128);
    ///     k.bulk_commit();
    ///     k.bulk_wait(0);
    /// });
    /// # });
    /// # verify(kernel).unwrap();
    /// ```
    #[track_caller]
    pub fn bulk_reduce(self, op: AtomOp, dst: Ptr<'k, Global, T>, bytes: impl IntoVal<'k, u32>)
    where
        T: Scalar,
    {
        let dst = dst.addr();
        let src = self.addr();
        let bytes = bytes.val(self.k).op;
        self.k.emit(CopyOp::ReduceS2G { ty: T::TY, dst, src, bytes, policy: None, op });
    }

    /// Reduces as [`Ptr::bulk_reduce`] does, to another block's shared memory, and completes on an
    /// mbarrier there.
    #[track_caller]
    pub fn bulk_reduce_send(
        self,
        op: AtomOp,
        dst: Ptr<'k, Cluster, T>,
        bytes: impl IntoVal<'k, u32>,
        bar: Mbarrier<'k, Cluster>,
    ) where
        T: Scalar,
    {
        let dst = dst.addr();
        let src = self.addr();
        let bytes = bytes.val(self.k).op;
        let bar = bar.addr();
        self.k.emit(CopyOp::ReduceS2C { ty: T::TY, dst, src, bytes, bar, op });
    }

    /// Combines the elements of the tensor map's box at the coordinates with those from this
    /// address on, by the map's type, each in one atomic step, in the current bulk group.
    #[track_caller]
    pub fn tensor_reduce<M: SpaceOf>(self, op: AtomOp, map: Ptr<'k, M, TensorMap>, at: &[Val<'k, i32>]) {
        let map = map.addr();
        let src = self.addr();
        let at = at.iter().map(|v| v.op).collect();
        self.k.emit(CopyOp::TensorReduce { map, at, src, policy: None, op });
    }

    /// Copies to the box of the tensor map at the coordinates (1 to 5, the first axis fastest), in
    /// the current bulk group.
    #[track_caller]
    pub fn tensor_store<M: SpaceOf>(self, map: Ptr<'k, M, TensorMap>, at: &[Val<'k, i32>]) {
        let map = map.addr();
        let src = self.addr();
        let at = at.iter().map(|v| v.op).collect();
        self.k.emit(CopyOp::TensorStore { map, at, src, policy: None });
    }
}

impl<'k, S: OnChip, T> Ptr<'k, S, T> {
    /// Copies `bytes` from global memory, completing on the mbarrier.
    #[track_caller]
    pub fn bulk_load(self, src: Ptr<'k, Global, T>, bytes: impl IntoVal<'k, u32>, bar: Mbarrier<'k, S>, how: Bulk<'k>) {
        let dst = self.addr();
        let src = src.addr();
        let bytes = bytes.val(self.k).op;
        let bar = bar.addr();
        let (multicast, policy) = how.parts();
        self.k.emit(CopyOp::BulkG2S { dst, src, bytes, bar, multicast, policy });
    }

    /// Copies the box of the tensor map at the coordinates (1 to 5, the first axis fastest),
    /// completing on the mbarrier.
    #[track_caller]
    pub fn tensor_load<M: SpaceOf>(
        self,
        map: Ptr<'k, M, TensorMap>,
        at: &[Val<'k, i32>],
        bar: Mbarrier<'k, S>,
        how: Bulk<'k>,
    ) {
        let dst = self.addr();
        let map = map.addr();
        let at = at.iter().map(|v| v.op).collect();
        let bar = bar.addr();
        let (multicast, policy) = how.parts();
        self.k.emit(CopyOp::TensorLoad { dst, map, at, bar, multicast, policy });
    }
}

impl<'k, S: SpaceOf> Ptr<'k, S, TensorMap> {
    /// Hints that the box at the coordinates will be read.
    #[track_caller]
    pub fn prefetch_box(self, at: &[Val<'k, i32>]) {
        let at = at.iter().map(|v| v.op).collect();
        self.k.emit(CopyOp::BoxPrefetch { map: self.addr(), at, policy: None });
    }

    /// Hints that the tensor map will be used.
    #[track_caller]
    pub fn prefetch_map(self) {
        self.k.emit(CopyOp::TensorPrefetch { map: self.addr() });
    }
}

impl<'k, T> Ptr<'k, Global, T> {
    /// Hints that `bytes` bytes will be read.
    #[track_caller]
    pub fn bulk_prefetch(self, bytes: impl IntoVal<'k, u32>) {
        let src = self.addr();
        let bytes = bytes.val(self.k).op;
        self.k.emit(CopyOp::BulkPrefetch { src, bytes });
    }
}

impl Mbarrier<'_, Shared> {
    /// Arrives once all earlier `cp_async` of this thread are complete.
    #[track_caller]
    pub fn arrive_after_cp_async(self, k: &Builder, noinc: NoInc) {
        k.emit(CopyOp::CpAsyncMbarArrive { bar: self.addr(), noinc });
    }
}

impl Builder {
    /// Closes the current `cp_async` group.
    #[track_caller]
    pub fn cp_async_commit(&self) {
        self.emit(CopyOp::CpAsyncCommit {});
    }

    /// Waits until at most `pending` `cp_async` groups are unfinished.
    #[track_caller]
    pub fn cp_async_wait(&self, pending: u32) {
        self.emit(CopyOp::CpAsyncWait { pending: Pending(pending) });
    }

    /// Closes the current bulk group.
    #[track_caller]
    pub fn bulk_commit(&self) {
        self.emit(CopyOp::BulkCommit {});
    }

    /// Waits until at most `pending` bulk groups are unfinished.
    #[track_caller]
    pub fn bulk_wait(&self, pending: u32) {
        self.emit(CopyOp::BulkWait { pending: Pending(pending), done: BulkDone::Full });
    }

    /// Waits until at most `pending` bulk groups have sources left to read.
    #[track_caller]
    pub fn bulk_wait_read(&self, pending: u32) {
        self.emit(CopyOp::BulkWait { pending: Pending(pending), done: BulkDone::Read });
    }
}
