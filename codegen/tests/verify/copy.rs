//! Invalid twins of the rules in `verify/copy`.

use crate::{edited, twins};
use half::bf16;
use insta::assert_snapshot;
use tilewright_codegen::build::{Bulk, block};
use tilewright_codegen::ir::attr::{AtomOp, CpBytes, CpCache};
use tilewright_codegen::ir::{Arch, CopyOp, Inst, StmtKind};

#[test]
fn cp_async_copies_what_it_can() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let x = k.global::<u32>("x");
        let s = k.shared::<u32>("s", 4);
        s.cp_async_as(x, CpBytes::B16, CpCache::Cg, Some(k.lit(if fault { 17 } else { 12 })));
        s.cp_async_as(x, CpBytes::B8, if fault { CpCache::Cg } else { CpCache::Ca }, None);
    });
    assert_snapshot!(said, @"
    `cp.async.16.cg shared[v1], global[v0], filled 17`: cp.async reads at most the bytes that it copies: lower `filled`
    `cp.async.8.cg shared[v1], global[v0]`: cp.async past level one copies 16 bytes: use ca for 4 and 8
    ");
}

#[test]
fn a_bulk_copy_moves_sixteens_to_blocks_of_the_cluster() {
    let said = twins(Arch::Sm90a, block(32).cluster(2), |k, fault| {
        let x = k.global::<u32>("x");
        let s = k.shared_aligned::<u32>("s", 64, 128);
        let bar = k.mbarriers("bar", 1);
        bar.init(1);
        let mask = k.lit(if fault { 0b100u16 } else { 0b11 });
        s.bulk_load(x, if fault { 8 } else { 256 }, bar, Bulk::default().multicast(mask));
        s.bulk_store(x, if fault { 0 } else { 256 });
    });
    assert_snapshot!(said, @"
    `cp.async.bulk.g2s shared[v1], global[v0], 8, shared[v2], multicast 4`: a bulk copy moves a multiple of 16 bytes above zero: round the size up
    `cp.async.bulk.g2s shared[v1], global[v0], 8, shared[v2], multicast 4`: the multicast mask names a block that the cluster does not have, or none
    `cp.async.bulk.s2g global[v0], shared[v1], 0`: a bulk copy moves a multiple of 16 bytes above zero: round the size up
    ");
}

#[test]
fn a_bulk_copy_stays_in_its_allocation() {
    let said = twins(Arch::Sm90a, block(32), |k, fault| {
        let x = k.global::<u32>("x");
        let s = k.shared_aligned::<u32>("s", 64, 128);
        let bar = k.mbarriers("bar", 1);
        bar.init(1);
        s.at(if fault { 4 } else { 0 }).bulk_load(x, 256, bar, Bulk::default());
    });
    assert_snapshot!(said, @"`cp.async.bulk.g2s shared[v1+16], global[v0], 256, shared[v2]`: access to bytes 16..272 of `s`, which has 256: shorten the access or enlarge the allocation");
}

#[test]
fn a_tensor_copy_has_coordinates_and_an_aligned_box() {
    let said = twins(Arch::Sm90a, block(32), |k, fault| {
        let map = k.tensor_map("a");
        let s = k.shared_aligned::<bf16>("s", 64 * 64, 1024);
        let bar = k.mbarriers("bar", 1);
        bar.init(1);
        let at = [k.lit(0i32); 6];
        s.at(if fault { 8 } else { 64 }).tensor_load(map, &at[..2], bar, Bulk::default());
        s.tensor_load(map, if fault { &at } else { &at[..5] }, bar, Bulk::default());
        s.tensor_store(map, if fault { &at[..0] } else { &at[..1] });
        s.tensor_reduce(AtomOp::Add, map, if fault { &at } else { &at[..5] });
        map.prefetch_box(if fault { &at } else { &at[..5] });
    });
    assert_snapshot!(said, @"
    `cp.async.bulk.tensor.load shared[v1+16], param[v0], {0, 0}, shared[v2]`: address is 16 bytes into shared memory: an access of 128 bytes needs a multiple of 128
    `cp.async.bulk.tensor.load shared[v1], param[v0], {0, 0, 0, 0, 0, 0}, shared[v2]`: a tensor copy has 1 to 5 coordinates
    `cp.async.bulk.tensor.store param[v0], {}, shared[v1]`: a tensor copy has 1 to 5 coordinates
    `cp.reduce.async.bulk.tensor.add param[v0], {0, 0, 0, 0, 0, 0}, shared[v1]`: a tensor copy has 1 to 5 coordinates
    `cp.async.bulk.prefetch.tensor param[v0], {0, 0, 0, 0, 0, 0}`: a tensor copy has 1 to 5 coordinates
    ");
}

#[test]
fn a_reduction_exists_for_its_type_and_place() {
    let said = twins(Arch::Sm90a, block(32).cluster(2), |k, fault| {
        let x = k.global::<f32>("x");
        let s = k.shared_aligned::<f32>("s", 64, 128);
        let bar = k.mbarriers("bar", 1);
        bar.init(1);
        let words = s.cast::<u32>();
        let doubles = s.cast::<u64>();
        s.bulk_reduce(if fault { AtomOp::Max } else { AtomOp::Add }, x, 64);
        words.bulk_reduce(if fault { AtomOp::Exch } else { AtomOp::Xor }, x.cast(), if fault { 24 } else { 16 });
        if fault {
            s.bulk_reduce_send(AtomOp::Add, s.on(1), 16, bar.on(1));
        }
        doubles.bulk_reduce_send(if fault { AtomOp::Xor } else { AtomOp::Add }, doubles.on(1), 16, bar.on(1));
        s.tensor_reduce(if fault { AtomOp::Exch } else { AtomOp::Min }, k.tensor_map("a"), &[k.lit(0i32)]);
    });
    assert_snapshot!(said, @"
    `cp.reduce.async.bulk.s2g.max.f32 global[v0], shared[v1], 64`: type f32 is not legal here: the instruction takes u32, s32, u64, s64, f16, bf16 for max in global memory
    `cp.reduce.async.bulk.s2g.exch.u32 global[v0], shared[v1], 24`: a bulk copy moves a multiple of 16 bytes above zero: round the size up
    `cp.reduce.async.bulk.s2g.exch.u32 global[v0], shared[v1], 24`: type u32 is not legal here: the instruction takes no type for exch in global memory
    `cp.reduce.async.bulk.s2c.add.f32 cluster[v3], shared[v1], 16, cluster[v4]`: type f32 is not legal here: the instruction takes u32, s32, u64 for add in the cluster's shared memory
    `cp.reduce.async.bulk.s2c.xor.u64 cluster[v3], shared[v1], 16, cluster[v4]`: type u64 is not legal here: the instruction takes u32 for xor in the cluster's shared memory
    `cp.reduce.async.bulk.tensor.exch param[v5], {0}, shared[v1]`: a reduction has no exch: copy, or use atom
    ");
}

#[test]
fn a_load_completes_where_it_writes() {
    let said = edited(
        Arch::Sm90a,
        block(32).cluster(2),
        |k| {
            let x = k.global::<u32>("x");
            let s = k.shared_aligned::<u32>("s", 64, 128);
            let bar = k.mbarriers("bar", 1);
            bar.init(1);
            s.on(1).bulk_load(x, 256, bar.on(1), Bulk::default());
            bar.arrive();
        },
        |kernel| {
            let mut own = None;
            for stmt in kernel.body.iter_mut().rev() {
                match &mut stmt.op {
                    StmtKind::Inst(Inst::Sync(tilewright_codegen::ir::SyncOp::MbarArrive { bar, .. })) => {
                        own = Some(*bar)
                    }
                    StmtKind::Inst(Inst::Copy(CopyOp::BulkG2S { bar, .. })) => *bar = own.unwrap(),
                    _ => {}
                }
            }
        },
    );
    assert_snapshot!(said, @"`cp.async.bulk.g2s cluster[v3], global[v0], 256, shared[v2]`: a load completes on an mbarrier of the block that it writes to: name both in shared, or both in cluster");
}
