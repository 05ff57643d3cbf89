//! Clusters: distributed shared memory, the cluster's barrier.

use super::{Io, Plant};
use tilewright_codegen::build::block;
use tilewright_codegen::ir::attr::ClusterArriveOrder;

fn pair(name: &'static str, build: fn(&Io<'_>, bool), expect: &'static str) -> Plant {
    Plant { name, shape: block(32).cluster(2), blocks: 2, devices: 1, build, expect }
}

pub fn plants() -> Vec<Plant> {
    vec![
        pair("neighbour_not_waited_for", |io, wrong| neighbour(io, wrong, false, false), "race"),
        pair("neighbour_relaxed", |io, wrong| neighbour(io, false, wrong, false), "race"),
        pair("neighbour_gone", |io, wrong| neighbour(io, false, false, wrong), "block gone"),
        pair("rank_beyond_cluster", rank_beyond_cluster, "bad operand"),
        pair("cluster_wait_alone", cluster_wait_alone, "cluster barrier"),
        pair("remote_arrive_missing", remote_arrive_missing, "deadlock"),
        pair("remote_arrive_async", remote_arrive_async, "race"),
    ]
}

fn neighbour(io: &Io<'_>, no_barrier: bool, relaxed: bool, no_end: bool) {
    let k = io.k;
    let tile = k.shared::<f32>("tile", 32);
    tile.at(k.tid()).store(0.0f32);
    k.cluster_sync();
    tile.at(k.tid()).store(io.x.at(k.tid()).load());
    if !no_barrier {
        let order = if relaxed { ClusterArriveOrder::Relaxed } else { ClusterArriveOrder::Release };
        k.cluster_arrive(order);
        k.cluster_wait();
    }
    let other = tile.at(k.tid()).on(k.cluster_rank() ^ 1);
    io.out.at(k.tid() + k.cluster_rank() * 32).store(other.load());
    if !no_end {
        k.cluster_sync();
    }
}

fn rank_beyond_cluster(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared::<f32>("tile", 32);
    tile.at(k.tid()).store(1.0f32);
    k.cluster_sync();
    let rank = k.cluster_rank() + 1;
    let other = tile.at(k.tid()).on(if wrong { rank } else { rank & 1 });
    io.out.at(k.tid() + k.cluster_rank() * 32).store(other.load());
    k.cluster_sync();
}

fn cluster_wait_alone(io: &Io<'_>, wrong: bool) {
    if !wrong {
        io.k.cluster_arrive(ClusterArriveOrder::Release);
    }
    io.k.cluster_wait();
}

fn remote_arrive_missing(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let ready = k.mbarriers("ready", 1);
    k.when(k.tid().eq(0), || {
        ready.init(1);
        k.fence_mbarrier_init();
    });
    k.cluster_sync();
    let rank = k.cluster_rank() ^ u32::from(!wrong);
    k.when(k.tid().eq(0) & k.cluster_rank().eq(0), || ready.on(rank).arrive());
    k.when(k.cluster_rank().eq(1), || {
        ready.wait_at(0, tilewright_codegen::ir::attr::BarScope::Cluster);
    });
    k.cluster_sync();
}

/// A store to the neighbour's memory is not ordered by an arrival that speaks for the async proxy
/// alone.
fn remote_arrive_async(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let ready = k.mbarriers("ready", 1);
    let tile = k.shared::<f32>("tile", 32);
    k.when(k.tid().eq(0), || {
        ready.init(32);
        k.fence_mbarrier_init();
    });
    k.cluster_sync();
    let rank = k.cluster_rank() ^ 1;
    tile.at(k.tid()).on(rank).store(io.x.at(k.tid()).load());
    if wrong {
        ready.on(rank).arrive_async()
    } else {
        ready.on(rank).arrive()
    }
    ready.wait_at(0, tilewright_codegen::ir::attr::BarScope::Cluster);
    io.out.at(k.tid() + k.cluster_rank() * 32).store(tile.at(k.tid()).load());
    k.cluster_sync();
}
