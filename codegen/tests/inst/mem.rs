//! Cases of the family `mem`: every instruction once at least.

use crate::case::{Case, out};
use half::bf16;
use tilewright_codegen::build::{Bf16x2, Builder, F16x2, Load, Scalar, Store, block};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ir::attr::{
    AtomOp, AtomOrder, Eviction, LdCache, LdOrder, Prefetch, RedOrder, Scope, StCache, StOrder,
};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("vectors", |k| {
            copy::<u8, 4>(k, "u8");
            copy::<i8, 2>(k, "s8");
            copy::<u16, 4>(k, "u16");
            copy::<bf16, 8>(k, "bf16");
            copy::<f32, 4>(k, "f32");
            copy::<F16x2, 2>(k, "f16x2");
            copy::<f64, 2>(k, "f64");
            copy::<u64, 1>(k, "u64");
        }),
        Case::new("vectors_shared", |k| {
            let s = k.shared::<bf16>("s", 32 * 8);
            let x = k.global::<bf16>("x");
            s.at(k.tid() * 8).store_vec(x.at(k.tid() * 8).load_vec::<8>());
            k.sync_warp();
            x.at(k.tid() * 8).store_vec(s.at(k.tid() * 8).load_vec::<8>());
        }),
        Case::new("load_hints", |k| {
            let x = k.global::<u32>("x");
            for (i, &cache) in LdCache::ALL.iter().enumerate() {
                let [v] = x.at(k.tid()).at(i * 32).load_as(Load::WEAK.cache(cache));
                out::<u32>(k, cache.name()).store(v);
            }
            for (i, &size) in Prefetch::ALL.iter().enumerate() {
                let how = Load::WEAK.cache(LdCache::NcNoAllocate).prefetch(size);
                let v = x.at(k.tid() * 4).at(i * 128).load_as::<4>(how);
                // Cache operators have names of their own, and each list has one without.
                k.global::<u32>(&format!("vector {}", size.name())).at(k.tid() * 4).store_vec(v);
            }
        }),
        Case::new("policies", |k| {
            let x = k.global::<u32>("x");
            let y = k.global::<u32>("y");
            for (i, &eviction) in Eviction::ALL.iter().enumerate() {
                let policy = k.policy(eviction);
                let v = x.at(k.tid()).at(i).load_as::<1>(Load::WEAK.policy(policy));
                y.at(k.tid()).at(i).store_as(v, Store::WEAK.policy(policy));
            }
        }),
        Case::new("store_hints", |k| {
            for &cache in StCache::ALL {
                out::<u32>(k, cache.name()).store_as([k.tid()], Store::WEAK.cache(cache));
            }
        }),
        Case::new("orders", |k| {
            let x = k.global::<u32>("x").at(k.tid());
            let s = k.shared::<u64>("s", 32).at(k.tid());
            for order in [LdOrder::Volatile, LdOrder::Relaxed(Scope::Gpu), LdOrder::Acquire(Scope::Sys)] {
                let [v] = x.load_as(Load::WEAK.order(order));
                s.store_relaxed(v.cast::<u64>(), Scope::Cta);
            }
            let v = s.load_acquire(Scope::Cta).cast::<u32>();
            for order in [StOrder::Volatile, StOrder::Relaxed(Scope::Sys), StOrder::Release(Scope::Gpu)] {
                x.store_as([v], Store::WEAK.order(order));
            }
            let words = x.load_as::<1>(Load::WEAK.order(LdOrder::Relaxed(Scope::Cta)));
            x.store_as(words, Store::WEAK);
        }),
        Case::new("orders_cluster", |k| {
            let x = k.global::<u32>("x").at(k.tid());
            let v = x.load_acquire(Scope::Cluster);
            x.store_release(v + 1, Scope::Cluster);
        })
        .since(Arch::Sm90a),
        Case::new("atom", atom),
        Case::new("atom_pairs", |k| {
            let x = k.global::<F16x2>("x").at(k.tid());
            let old = x.atom(AtomOp::Add, x.load(), AtomOrder::Relaxed(Scope::Gpu));
            x.red(AtomOp::Add, old, RedOrder::Relaxed(Scope::Gpu));
        }),
        Case::new("atom_bf16x2", |k| {
            let x = k.global::<Bf16x2>("x").at(k.tid());
            x.red(AtomOp::Add, x.load(), RedOrder::Relaxed(Scope::Gpu));
        })
        .since(Arch::Sm90a),
        Case::new("cas", |k| {
            let x = k.global::<u32>("x");
            let s = k.shared::<u64>("s", 32).at(k.tid());
            let old = x.at(k.tid()).compare_swap(0, k.tid(), AtomOrder::AcqRel(Scope::Gpu));
            s.store(7);
            out::<u64>(k, "out").store(s.compare_swap(7, old.cast::<u64>(), AtomOrder::Relaxed(Scope::Cta)));
        }),
        Case::new("atom_shared", atom_shared),
        Case::new("red", |k| {
            let n = k.global::<u32>("n");
            n.red(AtomOp::Add, 1, RedOrder::Release(Scope::Gpu));
            n.at(1).red(AtomOp::Max, k.tid(), RedOrder::Relaxed(Scope::Sys));
            n.at(2).red(AtomOp::Or, k.tid(), RedOrder::Relaxed(Scope::Gpu));
            n.at(3).red(AtomOp::Inc, 31, RedOrder::Relaxed(Scope::Gpu));
            k.global::<f32>("f").red(AtomOp::Add, 0.5, RedOrder::Relaxed(Scope::Gpu));
            k.shared::<u32>("s", 1).red(AtomOp::Xor, 1, RedOrder::Relaxed(Scope::Cta));
        }),
        Case::new("remote", |k| {
            let far = k.shared::<u32>("s", 32).on(0).at(k.tid());
            far.store(k.tid());
            far.red(AtomOp::Add, 1, RedOrder::Relaxed(Scope::Cluster));
            let old = far.atom(AtomOp::Add, 1, AtomOrder::Relaxed(Scope::Cluster));
            out::<u32>(k, "out").store(old + far.load());
        })
        .launch(block(32).cluster(2))
        .since(Arch::Sm90a),
        Case::new("prefetch", |k| k.global::<u32>("x").at(k.tid()).prefetch()),
    ]
}

fn copy<T: Scalar, const N: usize>(k: &Builder, name: &str) {
    let x = k.global::<T>(&format!("x_{name}"));
    let y = k.global::<T>(&format!("y_{name}"));
    let i = k.tid() * N as u32;
    y.at(i).store_vec(x.at(i).load_vec::<N>());
}

/// In loops, followed by a vote: the instructions of an operation may make lanes diverge.
fn atom_shared(k: &Builder) {
    let s = k.shared::<f32>("s", 32).at(k.tid());
    let t = k.shared::<u64>("t", 32).at(k.tid());
    s.store(1.0);
    t.store(7);
    let votes = k.var(0u32);
    k.for_(0, 5, |i| {
        s.atom(AtomOp::Add, 0.5, AtomOrder::Relaxed(Scope::Cta));
        votes.set(votes.get() + (k.tid() + i).lt(20).ballot());
    });
    k.for_(0, k.param::<u32>("n"), |i| {
        t.red(AtomOp::Max, i.cast::<u64>(), RedOrder::Relaxed(Scope::Cta));
        votes.set(votes.get() + (k.tid() + i).ge(20).ballot());
    });
    out::<u32>(k, "out").store(votes);
    out::<f32>(k, "float").store(s.load());
    out::<u64>(k, "long").store(t.load());
}

fn atom(k: &Builder) {
    let order = AtomOrder::Relaxed(Scope::Gpu);
    let u = k.global::<u32>("u");
    let s = k.global::<i32>("s");
    let w = k.global::<u64>("w");
    for (i, &op) in AtomOp::ALL.iter().enumerate() {
        let old = u.at(i).atom(op, k.tid(), order);
        out::<u32>(k, op.name()).store(old);
    }
    for (i, op) in [AtomOp::Add, AtomOp::Min, AtomOp::Max].into_iter().enumerate() {
        let old = s.at(i).atom(op, -1, AtomOrder::Acquire(Scope::Sys));
        out::<i32>(k, &format!("s_{}", op.name())).store(old);
        let old = w.at(i).atom(op, 5, AtomOrder::Release(Scope::Cta));
        out::<u64>(k, &format!("w_{}", op.name())).store(old);
    }
    for (i, op) in [AtomOp::And, AtomOp::Exch].into_iter().enumerate() {
        let old = w.at(i).atom(op, 5, AtomOrder::AcqRel(Scope::Gpu));
        out::<u64>(k, &format!("w_{}", op.name())).store(old);
    }
    out::<f32>(k, "f_add").store(k.global::<f32>("f").atom(AtomOp::Add, 1.0, order));
}
