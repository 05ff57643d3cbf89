//! Cases of the family `copy`: every instruction once at least.

use crate::case::{Case, out};
use crate::sync::initialised;
use half::{bf16, f16};
use tilewright_codegen::build::{Builder, Bulk, Scalar, block};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ir::attr::AtomOp::{self, Add, And, Dec, Inc, Max, Min, Or, Xor};
use tilewright_codegen::ir::attr::{CpBytes, CpCache, Eviction, NoInc, ProxyFence};

pub fn cases() -> Vec<Case> {
    copies().into_iter().chain(tensors()).chain(reductions()).collect()
}

fn copies() -> Vec<Case> {
    vec![
        Case::new("cp_async", |k| {
            let x = k.global::<u32>("x");
            let s = k.shared::<u32>("s", 32 * 4);
            let from = x.at(k.tid() * 4);
            let to = s.at(k.tid() * 4);
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
            let x = k.global::<u32>("x");
            let s = k.shared::<u32>("s", 32 * 4);
            let bar = initialised(k, 32);
            s.at(k.tid() * 4).cp_async(x.at(k.tid() * 4));
            bar.arrive_after_cp_async(k, NoInc::Yes);
            bar.wait(0);
            bar.arrive_after_cp_async(k, NoInc::No);
            bar.arrive();
            bar.wait(1);
        }),
        Case::new("bulk", |k| {
            let x = k.global::<u32>("x");
            let s = k.shared_aligned::<u32>("s", 256, 128);
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
            let x = k.global::<u32>("x");
            let s = k.shared_aligned::<u32>("s", 256, 128);
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
    ]
}

fn tensors() -> Vec<Case> {
    vec![
        Case::new("tensor", |k| {
            let a = k.tensor_map("a");
            let s = k.shared_aligned::<bf16>("s", 64 * 64, 1024);
            let bar = initialised(k, 1);
            let i = k.block_id().cast::<i32>() * 64;
            let j = k.lit(0i32);
            k.when(k.tid().eq(0), || {
                a.prefetch_map();
                bar.arrive_expect_tx(3 * 8192);
                s.tensor_load(a, &[j, i], bar, Bulk::default());
                s.tensor_load(a, &[j, i, j], bar, Bulk::default().policy(k.policy(Eviction::Last)));
                s.tensor_load(a, &[j, i, j, j], bar, Bulk::default().multicast(k.lit(1u16)));
                a.prefetch_box(&[j]);
                a.prefetch_box(&[j, i, j, j, j]);
                bar.wait(0);
                s.tensor_store(a, &[j, i]);
                s.tensor_store(a, &[j, i, j]);
                s.tensor_store(k.global::<u8>("map").cast(), &[j, i, j, j]);
                k.bulk_commit();
                k.bulk_wait(0);
            });
        })
        .since(Arch::Sm90a),
        Case::new("tensor_of_one_or_five_axes", |k| {
            let a = k.tensor_map("a");
            let s = k.shared_aligned::<bf16>("s", 64 * 64, 1024);
            let bar = initialised(k, 1);
            let j = k.lit(0i32);
            k.when(k.tid().eq(0), || {
                bar.arrive_expect_tx(2 * 8192);
                s.tensor_load(a, &[j], bar, Bulk::default());
                s.tensor_load(a, &[j; 5], bar, Bulk::default());
                bar.wait(0);
                s.tensor_store(a, &[j]);
                s.tensor_store(a, &[j; 5]);
                for op in [Add, Min, Max, Inc, Dec, And, Or] {
                    s.tensor_reduce(op, a, &[j; 2]);
                }
                s.tensor_reduce(Xor, a, &[j]);
                k.bulk_commit();
                k.bulk_wait(0);
            });
        })
        .since(Arch::Sm90a),
    ]
}

fn reductions() -> Vec<Case> {
    vec![
        Case::new("reduce", |k| {
            reduce::<u32>(k, &[Add, Min, Max, Inc, Dec, And, Or, Xor]);
            reduce::<i32>(k, &[Add, Min, Max]);
            reduce::<u64>(k, &[Add, Min, Max, And, Or, Xor]);
            reduce::<i64>(k, &[Min, Max]);
            reduce::<f16>(k, &[Add, Min, Max]);
            reduce::<bf16>(k, &[Add, Min, Max]);
            reduce::<f32>(k, &[Add]);
            reduce::<f64>(k, &[Add]);
        })
        .since(Arch::Sm90a),
        Case::new("reduce_cluster", |k| {
            let s = k.shared_aligned::<u32>("s", 256, 128);
            let bar = initialised(k, 1);
            let other = k.cluster_rank() ^ 1;
            s.at(k.tid() * 8).store_vec([k.tid(); 4]);
            s.at(k.tid() * 8 + 4).store_vec([k.tid(); 4]);
            k.fence_proxy_async(ProxyFence::Shared);
            k.cluster_sync();
            k.when(k.tid().eq(0), || {
                let ops = [Add, Min, Max, Inc, Dec, And, Or, Xor];
                bar.arrive_expect_tx(16 * 12);
                for (i, op) in (0..).zip(ops) {
                    s.at(4 * i).bulk_reduce_send(op, s.at(128 + 4 * i).on(other), 16, bar.on(other));
                }
                for (i, op) in (0..).zip([Add, Min, Max]) {
                    let from = s.cast::<i32>().at(4 * i);
                    let to = s.cast::<i32>().at(160 + 4 * i);
                    from.bulk_reduce_send(op, to.on(other), 16, bar.on(other));
                }
                let from = s.cast::<u64>();
                let to = s.cast::<u64>().at(96);
                from.bulk_reduce_send(Add, to.on(other), 16, bar.on(other));
            });
            bar.wait(0);
            out::<u32>(k, "out").at(k.cluster_rank() * 32).store(s.at(k.tid() + 128).load());
            k.cluster_sync();
        })
        .launch(block(32).cluster(2))
        .since(Arch::Sm90a),
    ]
}

/// Each operation on a run of 16 bytes of its own.
fn reduce<T: Scalar>(k: &Builder, ops: &[AtomOp]) {
    let sums = k.global::<T>(&format!("sums_{}", T::TY));
    let x = k.global::<T>(&format!("x_{}", T::TY));
    let own = k.shared_aligned::<T>("own", 512 / T::TY.bytes(), 16);
    own.cast::<u32>().at(k.tid() * 4).store_vec(x.cast::<u32>().at(k.tid() * 4).load_vec::<4>());
    k.fence_proxy_async(ProxyFence::Shared);
    k.sync_warp();
    k.when(k.tid().eq(0), || {
        for (i, &op) in (0..).zip(ops) {
            own.at_byte(16 * i).bulk_reduce(op, sums.at_byte(16 * i), 16);
        }
        k.bulk_commit();
        k.bulk_wait(0);
    });
}
