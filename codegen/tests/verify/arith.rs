//! Invalid twins of the rules in `verify/arith`.

use crate::{edited, fresh_name, twins};
use half::{bf16, f16};
use insta::assert_snapshot;
use tilewright_codegen::build::{Bf16x2, Builder, F16x2, Scalar, Val, block};
use tilewright_codegen::ir::attr::{Clamp, Cmp, ReduxOp, Round, ShflMode, SpecialReg};
use tilewright_codegen::ir::{Arch, Const, Inst, StmtKind, Ty, ValueOp};

fn load<'k, T: Scalar>(k: &'k Builder) -> Val<'k, T> {
    k.global::<T>(&fresh_name()).at(k.tid()).load()
}

#[test]
fn nans_are_compared_in_floats() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        _ = load::<u32>(k).compare(if fault { Cmp::Ltu } else { Cmp::Lt }, 3);
    });
    assert_snapshot!(said, @"`v5 = setp.ltu.u32 v4, 3`: a comparison that knows NaNs is for floats: use eq, ne, lt, le, gt or ge");
}

#[test]
fn a_type_may_need_a_later_target() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        if fault {
            _ = load::<bf16>(k).lt(load::<bf16>(k));
            _ = load::<Bf16x2>(k).ex2();
            _ = load::<bf16>(k).tanh();
            _ = load::<bf16>(k).cast::<i32>();
            _ = k.special(SpecialReg::ClusterCtarank);
        } else {
            _ = load::<f16>(k).lt(load::<f16>(k));
            _ = load::<F16x2>(k).ex2();
        }
    });
    assert_snapshot!(said, @"
    `v8 = setp.lt.bf16 v4, v7`: setp.bf16 is not on sm_80: it needs sm_90 and later; record another instruction for this target
    `v13 = ex2.approx.bf16x2 v12`: ex2.approx.bf16 is not on sm_80: it needs sm_90 and later; record another instruction for this target
    `v17 = tanh.approx.bf16 v16`: tanh.approx.bf16 is not on sm_80: it needs sm_90 and later; record another instruction for this target
    `v21 = cvt.rz.s32.bf16 v20`: cvt between bf16 and a type other than f32 is not on sm_80: it needs sm_90 and later; record another instruction for this target
    `v22 = special.cluster_ctarank`: cluster_ctarank is not on sm_80: it needs sm_90 and later; record another instruction for this target
    ");
}

#[test]
fn a_conversion_names_a_rounding_where_it_rounds() {
    let said = twins(Arch::Sm90a, block(32), |k, fault| {
        let (exact, nearest) = if fault { (Round::Nearest, Round::Exact) } else { (Round::Exact, Round::Nearest) };
        _ = load::<u32>(k).cast_as::<u64>(exact, Clamp::No);
        _ = load::<f32>(k).cast_as::<f16>(nearest, Clamp::No);
        _ = load::<f32>(k).round(if fault { Round::Exact } else { Round::Up });
    });
    assert_snapshot!(said, @"
    `v5 = cvt.rn.u64.u32 v4`: a conversion names a rounding if and only if it rounds: rn, rz, rm or rp
    `v9 = cvt.f16.f32 v8`: a conversion names a rounding if and only if it rounds: rn, rz, rm or rp
    `v13 = cvt.int.f32 v12`: rounding to an integral value needs a direction: rn, rz, rm or rp
    ");
}

#[test]
fn some_conversions_do_not_exist() {
    let said = twins(Arch::Sm90a, block(32), |k, fault| {
        if fault {
            _ = load::<f16>(k).cast_as::<bf16>(Round::Exact, Clamp::No);
            _ = load::<f32>(k).cast_as::<bf16>(Round::Up, Clamp::No);
            _ = load::<f32>(k).cast_as::<i32>(Round::Zero, Clamp::Sat);
            _ = load::<f32>(k).bits::<u64>();
            _ = load::<u8>(k).cast::<bf16>();
            _ = load::<u8>(k).cast_as::<i16>(Round::Exact, Clamp::Sat);
        }
    });
    assert_snapshot!(said, @"
    `v5 = cvt.bf16.f16 v4`: f16 and bf16 do not convert to each other: convert through f32
    `v10 = cvt.rp.bf16.f32 v9`: f32 rounds to bf16 to nearest or toward zero: use rn or rz
    `v14 = cvt.rz.sat.s32.f32 v13`: sat is for integer to integer: floats clamp to the integer's range by themselves
    `v18 = bitcast.u64.f32 v17`: a bitcast keeps the width: use a conversion, pack or unpack
    `v23 = cvt.rn.bf16.u8 v22`: bf16 and 8-bit integers do not convert to each other: convert through 16 bits
    `v27 = cvt.sat.s16.u8 v26`: sat is for results that cannot hold every source value: leave it out
    ");
}

#[test]
fn a_shuffle_has_a_constant_segment() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        _ = load::<f32>(k).shfl(ShflMode::Bfly, 1, if fault { 12 } else { 16 }, u32::MAX);
    });
    assert_snapshot!(said, @"`v5 = shfl.bfly.f32 v4, 1, 12, 4294967295`: operand `width` must be a constant, a power of two from 1 to 32");
}

#[test]
fn bits_are_combined_unsigned() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        if fault { _ = load::<i32>(k).redux(ReduxOp::And) } else { _ = load::<u32>(k).redux(ReduxOp::And) }
    });
    assert_snapshot!(said, @"`v5 = redux.and.s32 v4, 4294967295`: redux combines bits of u32: use add, min or max for s32");
}

#[test]
fn an_address_has_the_width_of_its_space() {
    let said = edited(
        Arch::Sm80,
        block(32),
        |k| _ = k.shared::<u32>("s", 64).at(k.tid()).address32(),
        |kernel| {
            let mut narrow = Vec::new();
            for stmt in &mut kernel.body {
                match &mut stmt.op {
                    StmtKind::Inst(Inst::Value(ValueOp::PtrAdd { from, bytes, .. })) => {
                        (*from, *bytes) = (Ty::U64, Const::new(Ty::U64, 4).into());
                    }
                    StmtKind::Inst(Inst::Value(ValueOp::PtrBits { ty, d, .. })) => {
                        *ty = Ty::U64;
                        narrow.push(*d);
                    }
                    _ => {}
                }
            }
            narrow.into_iter().for_each(|value| kernel.values[value.index()] = Ty::U64);
        },
    );
    assert_snapshot!(said, @"
    `v3 = ptr_add.shared.u64 v0, 4`: type u64 is not legal here: the instruction takes an integer of 32 bits for an address in shared
    `v4 = ptr_bits.u64.shared v3`: type u64 is not legal here: the instruction takes an unsigned integer of 32 bits for an address in shared
    ");
}
