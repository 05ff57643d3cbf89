//! Invalid twins of the rules in `verify/mem`.

use crate::{edited, twins};
use half::bf16;
use insta::assert_snapshot;
use tilewright_codegen::build::{Bf16x2, F16x2, Load, Store, block};
use tilewright_codegen::ir::attr::{
    AtomOp, AtomOrder, Eviction, LdCache, LdOrder, Prefetch, RedOrder, Scope, StCache, StOrder,
};
use tilewright_codegen::ir::{Arch, Inst, MemOp, StmtKind};

#[test]
fn a_vector_is_one_that_memory_has() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let x = k.global::<f32>("x");
        if fault {
            x.store_vec(x.load_vec::<3>());
            _ = x.load_vec::<8>();
            _ = x.cast::<u8>().load_vec::<8>();
        }
        x.store_vec(x.load_vec::<4>());
    });
    assert_snapshot!(said, @"
    `v1, v2, v3 = ld.f32 global[v0]`: a vector of 3 × f32 cannot be accessed at once: 1, 2, 4 or 8 elements, at most 16 bytes, 8-bit elements at most 4
    `st.f32 global[v0], {v1, v2, v3}`: a vector of 3 × f32 cannot be accessed at once: 1, 2, 4 or 8 elements, at most 16 bytes, 8-bit elements at most 4
    `v4, v5, v6, v7, v8, v9, v10, v11 = ld.f32 global[v0]`: a vector of 8 × f32 cannot be accessed at once: 1, 2, 4 or 8 elements, at most 16 bytes, 8-bit elements at most 4
    `v12, v13, v14, v15, v16, v17, v18, v19 = ld.u8 global[v0]`: a vector of 8 × u8 cannot be accessed at once: 1, 2, 4 or 8 elements, at most 16 bytes, 8-bit elements at most 4
    ");
}

#[test]
fn hints_are_for_weak_global_accesses() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let x = k.global::<u32>("x");
        let s = k.shared::<u32>("s", 32);
        let weak = Load::WEAK.cache(LdCache::Cg).prefetch(Prefetch::B128);
        let [v] = x.load_as(weak);
        x.store_as([v], Store::WEAK.cache(StCache::Cs));
        if fault {
            let [v] = s.load_as(weak);
            _ = x.load_as::<1>(weak.order(LdOrder::Acquire(Scope::Gpu)));
            s.store_as([v], Store::WEAK.cache(StCache::Cs));
            x.store_as([v], Store::WEAK.cache(StCache::Cs).order(StOrder::Release(Scope::Gpu)));
            _ = k.param_bytes("p", 8, 8).cast::<u32>().load_acquire(Scope::Gpu);
        }
    });
    assert_snapshot!(said, @"
    `v3 = ld.cg.l2_128b.u32 shared[v1]`: hints of a load are for global memory: leave them out
    `v3 = ld.cg.l2_128b.u32 shared[v1]`: prefetch sizes and policies are for global memory: leave them out
    `v4 = ld.acquire.gpu.cg.l2_128b.u32 global[v0]`: a load with an order takes no hint: leave the hint out
    `st.cs.u32 shared[v1], {v3}`: hints of a store are for global memory: leave them out
    `st.release.gpu.cs.u32 global[v0], {v3}`: a store with an order takes no hint: leave the hint out
    `v6 = ld.acquire.gpu.u32 param[v5]`: parameters do not change: load them weakly
    ");
}

#[test]
fn ordered_accesses_are_whole_words() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        if fault {
            _ = k.global::<bf16>("x").load_relaxed(Scope::Gpu);
            _ = k.global::<u32>("y").load_relaxed(Scope::Cluster);
        }
    });
    assert_snapshot!(said, @"
    `v1 = ld.relaxed.gpu.bf16 global[v0]`: an access with an order has 32 or 64 bits: widen the element
    `v3 = ld.relaxed.cluster.u32 global[v2]`: cluster scope is not on sm_80: it needs sm_90 and later; record another instruction for this target
    ");
}

#[test]
fn an_atomic_operation_has_its_types() {
    let relaxed = AtomOrder::Relaxed(Scope::Gpu);
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let u = k.global::<u32>("u");
        let i = k.global::<i32>("i");
        let f = k.global::<f32>("f");
        _ = (u.atom(AtomOp::Inc, 1, relaxed), f.atom(AtomOp::Add, 1.0, relaxed));
        if fault {
            _ = f.atom(AtomOp::Max, 1.0, relaxed);
            _ = i.atom(AtomOp::Inc, 1, relaxed);
            _ = i.atom(AtomOp::Or, 1, relaxed);
            u.red(AtomOp::Exch, 1, RedOrder::Relaxed(Scope::Gpu));
            let pair = k.global::<Bf16x2>("p");
            pair.red(AtomOp::Add, pair.load(), RedOrder::Relaxed(Scope::Gpu));
            let pair = k.shared::<F16x2>("q", 1);
            pair.red(AtomOp::Add, pair.load(), RedOrder::Relaxed(Scope::Cta));
        }
    });
    assert_snapshot!(said, @"
    `v5 = atom.max.relaxed.gpu.f32 global[v2], 1.0`: type f32 is not legal here: the instruction takes u32, s32 or u64 for min and max
    `v6 = atom.inc.relaxed.gpu.s32 global[v1], 1`: type s32 is not legal here: the instruction takes u32 for inc and dec
    `v7 = atom.or.relaxed.gpu.s32 global[v1], 1`: type s32 is not legal here: the instruction takes u32 or u64 for this operation
    `red.exch.relaxed.gpu.u32 global[v0], 1`: red has no exch: store, or use atom
    `red.add.relaxed.gpu.bf16x2 global[v8], v9`: an atomic on bf16x2 is not on sm_80: it needs sm_90 and later; record another instruction for this target
    `red.add.relaxed.cta.f16x2 shared[v10], v11`: atomics on pairs are for global memory
    ");
}

#[test]
fn a_known_place_is_aligned() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let s = k.shared::<u32>("s", 32);
        _ = s.at(if fault { 3 } else { 4 }).load_vec::<4>();
    });
    assert_snapshot!(said, @"`v1, v2, v3, v4 = ld.u32 shared[v0+12]`: address is 12 bytes into shared memory: an access of 16 bytes needs a multiple of 16");
}

#[test]
fn a_known_place_lies_in_its_allocation() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let s = k.shared::<u32>("s", 32);
        s.at(if fault { 32 } else { 31 }).store(1);
    });
    assert_snapshot!(said, @"`st.u32 shared[v0+128], {1}`: access to bytes 128..132 of `s`, which has 128: shorten the access or enlarge the allocation");
}

#[test]
fn mbarriers_are_not_data() {
    let said = edited(
        Arch::Sm80,
        block(32),
        |k| {
            let bar = k.mbarriers("bar", 1);
            let s = k.shared::<u32>("s", 1);
            bar.init(1);
            s.store(1);
        },
        |kernel| {
            let bar = kernel.values.iter().position(|_| true);
            assert!(bar.is_some());
            let mut swap = None;
            for stmt in &mut kernel.body {
                match &mut stmt.op {
                    StmtKind::Inst(Inst::Sync(tilewright_codegen::ir::SyncOp::MbarInit { bar, .. })) => {
                        swap = Some(*bar)
                    }
                    StmtKind::Inst(Inst::Mem(MemOp::St { at, .. })) => *at = swap.unwrap(),
                    _ => {}
                }
            }
        },
    );
    assert_snapshot!(said, @"`st.u32 shared[v0], {1}`: `bar` holds mbarriers: access it by mbarrier instructions alone");
}

#[test]
fn a_volatile_access_takes_no_policy() {
    let said = twins(Arch::Sm90a, block(32), |k, fault| {
        let x = k.global::<u32>("x");
        let policy = k.policy(Eviction::First);
        let load = Load::WEAK.policy(policy);
        let store = Store::WEAK.policy(policy);
        let [v] = x.load_as(load);
        x.store_as([v], store);
        if fault {
            let [v] = x.load_as(load.order(LdOrder::Volatile));
            x.store_as([v], store.order(StOrder::Volatile));
        }
    });
    assert_snapshot!(said, @"
    `v3 = ld.volatile.u32 global[v0], policy v1`: a volatile access takes no policy: leave it out, or load relaxed
    `st.volatile.u32 global[v0], {v3}, policy v1`: a volatile access takes no policy: leave it out, or store relaxed
    ");
}
