//! Invalid twins of the rules in `verify/flight`.

use crate::twins;
use insta::assert_snapshot;
use tilewright_codegen::build::{Builder, RegArray, WgmmaOperands, block};
use tilewright_codegen::ir::{Arch, WgmmaAtom, WgmmaKind};

fn atom() -> WgmmaAtom {
    WgmmaAtom::new(8, WgmmaKind::F32_BF16_BF16).unwrap()
}

fn multiply<'k>(k: &'k Builder, acc: RegArray<'k, f32>) {
    acc.wgmma(atom(), k.lit(0u64), k.lit(0u64), true, WgmmaOperands::K_MAJOR);
}

fn said(build: impl Fn(&Builder, bool)) -> String {
    twins(Arch::Sm90a, block(128), build)
}

#[test]
fn registers_are_fenced_before_they_are_used() {
    let said = said(|k, fault| {
        let acc = k.regs(4, 0.0f32);
        if !fault {
            k.wgmma_fence();
        }
        multiply(k, acc);
        k.wgmma_commit();
        k.wgmma_wait(0);
    });
    assert_snapshot!(said, @"`wgmma.ss.M64N8K16_F32_BF16_BF16.k.k r0[0..4], 0, 0, true`: registers r0[0..4] were touched since the last wgmma.fence: put a wgmma.fence before this wgmma");
}

#[test]
fn a_loop_fences_what_its_body_touched() {
    let said = said(|k, fault| {
        let acc = k.regs(4, 0.0f32);
        k.wgmma_fence();
        k.for_(0, k.param::<u32>("n"), |_| {
            if !fault {
                k.wgmma_fence();
            }
            multiply(k, acc);
            k.wgmma_commit();
            k.wgmma_wait(0);
            acc.set(0, acc.get(0) * 0.5);
        });
    });
    assert_snapshot!(said, @"`wgmma.ss.M64N8K16_F32_BF16_BF16.k.k r0[0..4], 0, 0, true`: registers r0[0..4] were touched since the last wgmma.fence: put a wgmma.fence before this wgmma");
}

#[test]
fn fragments_of_a_are_fenced_too() {
    let said = said(|k, fault| {
        let acc = k.regs(4, 0.0f32);
        let x = k.global::<u32>("x");
        let before = std::array::from_fn::<_, 4, _>(|i| x.at(i).load());
        k.wgmma_fence();
        let a = if fault { std::array::from_fn::<_, 4, _>(|i| x.at(i).load()) } else { before };
        acc.wgmma_rs(atom(), &a, k.lit(0u64), true, WgmmaOperands::K_MAJOR);
        k.wgmma_commit();
        k.wgmma_wait(0);
    });
    assert_snapshot!(said, @"`wgmma.rs.M64N8K16_F32_BF16_BF16.k r0[0..4], {v5, v6, v7, v8}, 0, true`: registers v5 were touched since the last wgmma.fence: put a wgmma.fence before this wgmma");
}

#[test]
fn registers_in_flight_are_not_touched() {
    let said = said(|k, fault| {
        let acc = k.regs(4, 0.0f32);
        let out = k.global::<f32>("out");
        k.wgmma_fence();
        multiply(k, acc);
        k.wgmma_commit();
        k.wgmma_wait(u32::from(fault));
        out.store(acc.get(3));
        k.wgmma_wait(0);
    });
    assert_snapshot!(said, @"`v1 = get.f32 r0[3]`: registers r0[3] belong to a wgmma in flight: commit its group and wait for it first, else the compiler serialises");
}

#[test]
fn another_group_may_stay_in_flight() {
    let said = said(|k, fault| {
        let first = k.regs(4, 0.0f32);
        let second = k.regs(4, 0.0f32);
        let out = k.global::<f32>("out");
        k.wgmma_fence();
        multiply(k, first);
        k.wgmma_commit();
        multiply(k, second);
        k.wgmma_commit();
        k.wgmma_wait(1);
        out.store(if fault { second.get(0) } else { first.get(0) });
        k.wgmma_wait(0);
    });
    assert_snapshot!(said, @"`v1 = get.f32 r1[0]`: registers r1[0] belong to a wgmma in flight: commit its group and wait for it first, else the compiler serialises");
}

#[test]
fn a_kernel_does_not_end_in_flight() {
    let said = said(|k, fault| {
        let acc = k.regs(4, 0.0f32);
        k.wgmma_fence();
        multiply(k, acc);
        k.wgmma_commit();
        if !fault {
            k.wgmma_wait(0);
        }
    });
    assert_snapshot!(said, @"the kernel ends while wgmma groups are in flight: commit and wait for 0 pending before the end");
}
