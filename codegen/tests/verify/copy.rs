use crate::{edited, twins};
use half::bf16;
use insta::assert_snapshot;
use tilewright_codegen::build::{Bulk, block};
use tilewright_codegen::ir::attr::{CpBytes, CpCache};
use tilewright_codegen::ir::{Arch, CopyOp, Inst, Op};

#[test]
fn cp_async_copies_what_it_can() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let (x, s) = (k.global::<u32>("x"), k.shared::<u32>("s", 4));
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
        let (x, s, bar) = (k.global::<u32>("x"), k.shared_aligned::<u32>("s", 64, 128), k.mbarriers("bar", 1));
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
        let (x, s, bar) = (k.global::<u32>("x"), k.shared_aligned::<u32>("s", 64, 128), k.mbarriers("bar", 1));
        bar.init(1);
        s.at(if fault { 4 } else { 0 }).bulk_load(x, 256, bar, Bulk::default());
    });
    assert_snapshot!(said, @"`cp.async.bulk.g2s shared[v1+16], global[v0], 256, shared[v2]`: access to bytes 16..272 of `s`, which has 256: shorten the access or enlarge the allocation");
}

#[test]
fn a_tensor_copy_has_coordinates_and_an_aligned_box() {
    let said = twins(Arch::Sm90a, block(32), |k, fault| {
        let (map, s, bar) = (k.tensor_map("a"), k.shared_aligned::<bf16>("s", 64 * 64, 1024), k.mbarriers("bar", 1));
        bar.init(1);
        let at = [k.lit(0i32); 5];
        s.at(if fault { 8 } else { 64 }).tensor_load(map, &at[..2], bar, Bulk::default());
        s.tensor_load(map, if fault { &at } else { &at[..4] }, bar, Bulk::default());
        s.tensor_store(map, if fault { &at[..1] } else { &at[..2] });
    });
    assert_snapshot!(said, @"
    `cp.async.bulk.tensor.load shared[v1+16], param[v0], {0, 0}, shared[v2]`: address is 16 bytes into shared memory: an access of 128 bytes needs a multiple of 128
    `cp.async.bulk.tensor.load shared[v1], param[v0], {0, 0, 0, 0, 0}, shared[v2]`: a tensor copy has 2, 3 or 4 coordinates
    `cp.async.bulk.tensor.store param[v0], {0}, shared[v1]`: a tensor copy has 2, 3 or 4 coordinates
    ");
}

#[test]
fn a_load_completes_where_it_writes() {
    let said = edited(
        Arch::Sm90a,
        block(32).cluster(2),
        |k| {
            let (x, s, bar) = (k.global::<u32>("x"), k.shared_aligned::<u32>("s", 64, 128), k.mbarriers("bar", 1));
            bar.init(1);
            s.on(1).bulk_load(x, 256, bar.on(1), Bulk::default());
            bar.arrive();
        },
        |kernel| {
            let mut own = None;
            for stmt in kernel.body.iter_mut().rev() {
                match &mut stmt.op {
                    Op::Inst(Inst::Sync(tilewright_codegen::ir::SyncOp::MbarArrive { bar, .. })) => own = Some(*bar),
                    Op::Inst(Inst::Copy(CopyOp::BulkG2S { bar, .. })) => *bar = own.unwrap(),
                    _ => {}
                }
            }
        },
    );
    assert_snapshot!(said, @"`cp.async.bulk.g2s cluster[v3], global[v0], 256, shared[v2]`: a load completes on an mbarrier of the block that it writes to: name both in shared, or both in cluster");
}
