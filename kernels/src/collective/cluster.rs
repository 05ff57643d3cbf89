//! Collectives of a cluster: each block, then the blocks through distributed shared memory.

use core::panic::Location;

use tilewright_codegen::build::Builder;

use super::block::Block;
use super::item::Item;

/// The threads of a cluster's blocks, for collectives among them. Needs sm_90 and a kernel whose
/// launch bounds have clusters.
#[derive(Clone, Copy)]
pub struct Cluster<'k> {
    k: &'k Builder,
}

impl<'k> Cluster<'k> {
    /// All threads of the cluster.
    pub fn new(k: &'k Builder) -> Cluster<'k> {
        Cluster { k }
    }

    /// The number of blocks of a cluster.
    pub fn blocks(self) -> u32 {
        self.k.launch().cluster.iter().product()
    }

    /// Combines the items of all threads of the cluster, and gives the result in every thread. `op`
    /// is associative and commutative.
    ///
    /// Each block leaves its result in its shared memory, and every thread reads those of all
    /// blocks in the order of their ranks. The second of its two barriers keeps the memory of a
    /// block until others have read it; the call may be executed again at once.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::collective::Cluster;
    /// // Rows of 1024 numbers, four blocks of 256 threads a row: each number over its row's sum.
    /// let kernel = record("normalize", Arch::Sm90a, block(256).cluster(4), |k| {
    ///     let x = k.global::<f32>("x").at(k.block_id() * 256 + k.tid());
    ///     let value = x.load();
    ///     x.store(value / Cluster::new(k).reduce(value, |a, b| a + b));
    /// });
    /// # tilewright_codegen::verify::verify(kernel)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn reduce<I: Item<'k>>(self, item: I, op: impl Fn(I, I) -> I) -> I {
        let k = self.k;
        let block = Block::new(k);
        k.on_behalf(Location::caller(), || {
            let mine = block.reduce(item, &op);
            let shared = I::shared(k, "cluster_reduce", 1);
            k.when(k.tid().eq(0), || mine.store(shared, k.lit(0)));
            k.cluster_sync();
            let of = |rank: u32| I::load_on(shared, k.lit(rank), k.lit(0));
            let all = (1..self.blocks()).fold(of(0), |all, rank| op(all, of(rank)));
            k.cluster_sync();
            all
        })
    }
}
