use crate::case::{Case, out};
use crate::sync::initialised;
use half::bf16;
use tilewright_codegen::build::{Bulk, block};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ir::attr::{CpBytes, CpCache, Eviction, NoInc, ProxyFence};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("cp_async", |k| {
            let (x, s) = (k.global::<u32>("x"), k.shared::<u32>("s", 32 * 4));
            let (from, to) = (x.at(k.tid() * 4), s.at(k.tid() * 4));
            to.cp_async(from);
            to.cp_async_as(from, CpBytes::B16, CpCache::Ca, Some(k.param::<u32>("n")));
            k.cp_async_commit();
            to.cp_async_as(from, CpBytes::B8, CpCache::Ca, None);
            to.cp_async_as(from, CpBytes::B4, CpCache::Ca, None);
            k.cp_async_commit();
            k.cp_async_wait(1);
            k.cp_async_wait(0);
            out::<u32>(k, "out").store(s.at(k.tid()).load());
        }),
        Case::new("cp_async_mbarrier", |k| {
            let (x, s) = (k.global::<u32>("x"), k.shared::<u32>("s", 32 * 4));
            let bar = initialised(k, 32);
            s.at(k.tid() * 4).cp_async(x.at(k.tid() * 4));
            bar.arrive_after_cp_async(k, NoInc::Yes);
            bar.wait(0);
            bar.arrive_after_cp_async(k, NoInc::No);
            bar.arrive();
            bar.wait(1);
        }),
        Case::new("bulk", |k| {
            let (x, s) = (k.global::<u32>("x"), k.shared_aligned::<u32>("s", 256, 128));
            let bar = initialised(k, 1);
            k.when(k.tid().eq(0), || {
                x.bulk_prefetch(1024);
                bar.arrive_expect_tx(2048);
                s.bulk_load(x, 1024, bar, Bulk::default());
                s.bulk_load(x, 1024, bar, Bulk::default().policy(k.policy(Eviction::First)));
                bar.wait(0);
                k.fence_proxy_async(ProxyFence::Shared);
                s.bulk_store(x, 1024);
                k.bulk_commit();
                k.bulk_wait_read(0);
                k.bulk_wait(0);
            });
        })
        .since(Arch::Sm90a),
        Case::new("bulk_cluster", |k| {
            let (x, s) = (k.global::<u32>("x"), k.shared_aligned::<u32>("s", 256, 128));
            let bar = initialised(k, 1);
            k.cluster_sync();
            k.when(k.tid().eq(0), || {
                bar.arrive_expect_tx(2048);
                let mask = k.lit(3u16);
                k.when(k.cluster_rank().eq(0), || s.bulk_load(x, 512, bar, Bulk::default().multicast(mask)));
                s.at(128).bulk_send(s.on(1), 512, bar.on(1));
                bar.wait(0);
            });
            k.cluster_sync();
        })
        .launch(block(32).cluster(2))
        .since(Arch::Sm90a),
        Case::new("tensor", |k| {
            let (a, s) = (k.tensor_map("a"), k.shared_aligned::<bf16>("s", 64 * 64, 1024));
            let bar = initialised(k, 1);
            let (i, j) = (k.block_id().cast::<i32>() * 64, k.lit(0i32));
            k.when(k.tid().eq(0), || {
                a.prefetch_map();
                bar.arrive_expect_tx(3 * 8192);
                s.tensor_load(a, &[j, i], bar, Bulk::default());
                s.tensor_load(a, &[j, i, j], bar, Bulk::default().policy(k.policy(Eviction::Last)));
                s.tensor_load(a, &[j, i, j, j], bar, Bulk::default().multicast(k.lit(1u16)));
                bar.wait(0);
                s.tensor_store(a, &[j, i]);
                s.tensor_store(a, &[j, i, j]);
                s.tensor_store(k.global::<u8>("map").cast(), &[j, i, j, j]);
                k.bulk_commit();
                k.bulk_wait(0);
            });
        })
        .since(Arch::Sm90a),
    ]
}
