use crate::case::{Case, keep};
use tilewright_codegen::build::{Builder, block};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ir::attr::{BarScope, ClusterArriveOrder, ProxyFence, Scope};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("bar", |k| {
            k.barrier();
            k.if_else(k.warp().lt(1), || k.bar_sync(1, 128), || k.bar_arrive(1, 128));
        })
        .launch(block(128)),
        Case::new("fence", |k| {
            for scope in [Scope::Cta, Scope::Gpu, Scope::Sys] {
                k.fence(scope);
                k.fence_sc(scope);
            }
        }),
        Case::new("fence_cluster", |k| k.fence(Scope::Cluster)).since(Arch::Sm90a),
        Case::new("fence_proxy", |k| {
            ProxyFence::ALL.iter().for_each(|&space| k.fence_proxy_async(space));
            k.fence_mbarrier_init();
        })
        .since(Arch::Sm90a),
        Case::new("mbarrier", |k| {
            let bar = initialised(k, 32);
            bar.arrive();
            keep(k, "seen", bar.test_wait(0, BarScope::Cta));
            bar.wait(0);
            k.sync_warp();
            k.when(k.tid().eq(0), || bar.inval());
        }),
        Case::new("mbarrier_tx", |k| {
            let bar = initialised(k, 32);
            bar.expect_tx(0);
            bar.arrive_expect_tx(0);
            bar.wait(0);
            keep(k, "seen", bar.try_wait(0, BarScope::Cluster));
        })
        .since(Arch::Sm90a),
        Case::new("mbarrier_remote", |k| {
            let bar = initialised(k, 32);
            k.cluster_sync();
            let far = bar.on(k.cluster_rank() ^ 1);
            far.expect_tx(0);
            far.arrive_expect_tx(0);
            bar.wait_at(0, BarScope::Cluster);
            k.cluster_sync();
            far.arrive();
            keep(k, "seen", bar.test_wait(1, BarScope::Cluster));
        })
        .launch(block(32).cluster(2))
        .since(Arch::Sm90a),
        Case::new("cluster", |k| {
            k.cluster_arrive(ClusterArriveOrder::Relaxed);
            k.cluster_wait();
            k.cluster_sync();
        })
        .launch(block(64).cluster(2))
        .since(Arch::Sm90a),
        Case::new("grid", |k| {
            k.grid_launch();
            k.grid_wait();
        })
        .since(Arch::Sm90a),
    ]
}

/// An mbarrier of the block, ready for all threads.
pub fn initialised(
    k: &Builder,
    count: u32,
) -> tilewright_codegen::build::Mbarrier<'_, tilewright_codegen::build::Shared> {
    let bar = k.mbarriers("bar", 1);
    k.when(k.tid().eq(0), || bar.init(count));
    k.barrier();
    bar
}
