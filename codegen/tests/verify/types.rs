//! Invalid twins of the rules in `verify/types`.

use crate::{edited, twins};
use insta::assert_snapshot;
use tilewright_codegen::build::{Builder, block};
use tilewright_codegen::ir::{
    Arch, ArithOp, Const, Inst, Kernel, MemOp, Operand, ParamId, Space, StmtKind, Ty, ValueId, ValueOp,
};

/// Changes the first instruction that `change` accepts.
fn first(kernel: &mut Kernel, mut change: impl FnMut(&mut Inst) -> bool) {
    let mut done = false;
    kernel.edit(&mut |block| {
        for stmt in block {
            if let StmtKind::Inst(inst) = &mut stmt.op
                && !done
            {
                done = change(inst);
            }
        }
    });
    assert!(done, "no such instruction");
}

fn sum(k: &Builder) {
    let x = k.global::<u32>("x").at(k.tid());
    x.store(x.load() + 1);
}

#[test]
fn an_operand_has_the_type_of_the_row() {
    let said = edited(Arch::Sm80, block(32), sum, |kernel| {
        first(kernel, |inst| match inst {
            Inst::Arith(ArithOp::Add { b, .. }) => {
                *b = Const::f32(1.0).into();
                true
            }
            _ => false,
        });
    });
    assert_snapshot!(said, @"`v5 = add.u32 v4, 1.0`: operand `b` is of type f32: the instruction takes u32");
}

#[test]
fn a_type_argument_is_of_the_class_of_the_row() {
    let said = edited(Arch::Sm80, block(32), sum, |kernel| {
        first(kernel, |inst| match inst {
            Inst::Arith(ArithOp::Add { ty, .. }) => {
                *ty = Ty::U8;
                true
            }
            _ => false,
        });
    });
    assert_snapshot!(said, @"
    `v5 = add.u8 v4, 1`: type u8 is not legal here: the instruction takes a number
    `v5 = add.u8 v4, 1`: operand `a` is of type u32: the instruction takes u8
    `v5 = add.u8 v4, 1`: operand `b` is of type u32: the instruction takes u8
    `v5 = add.u8 v4, 1`: operand `d` is of type u32: the instruction takes u8
    ");
}

#[test]
fn an_address_lies_in_a_space_of_the_row() {
    let said = edited(Arch::Sm80, block(32), sum, |kernel| {
        first(kernel, |inst| match inst {
            Inst::Mem(MemOp::St { at, .. }) => {
                at.base = Const::new(Ty::Ptr(Space::Param), 0).into();
                true
            }
            _ => false,
        });
    });
    assert_snapshot!(said, @"`st.u32 param[0], {v5}`: address `at` is in param: the instruction accesses global or shared or cluster");
}

#[test]
fn a_value_is_read_where_it_is_visible() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let x = k.global::<u32>("x");
        let inner = k.var(0u32);
        let mut escaped = None;
        k.moving().when(k.tid().eq(0), || {
            let value = x.load();
            inner.set(value);
            escaped = Some(value);
        });
        let value = escaped.filter(|_| fault).unwrap_or_else(|| inner.get());
        x.at(1).store(value);
    });
    assert_snapshot!(said, @"`st.u32 global[v0+4], {v3}`: value v3 (recorded at codegen/tests/verify/types.rs:84) is used outside the loop or branch that records it: keep it in a register (`k.var`), or carry it through the loop (`k.carry`)");
}

#[test]
fn a_parameter_has_a_name_of_its_own() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let (x, y) = (k.global::<u32>("x"), k.global::<u32>(if fault { "x" } else { "y" }));
        y.store(x.load());
    });
    assert_snapshot!(said, @"`v1 = param.global p1`: parameter `x` is declared twice: ask for it once and keep the value, or give the second another name");
}

#[test]
fn a_value_has_one_writer() {
    let said = edited(Arch::Sm80, block(32), sum, |kernel| {
        let again = kernel.body.iter().find(|s| matches!(s.op, StmtKind::Inst(Inst::Mem(MemOp::Ld { .. })))).cloned();
        let mut again = again.unwrap();
        again.id = tilewright_codegen::ir::StmtId(99);
        kernel.body.push(again);
    });
    assert_snapshot!(said, @"`v4 = ld.u32 global[v3]`: value v4 is written a second time: a value has one writer; use a register");
}

#[test]
fn a_name_exists() {
    let said = edited(Arch::Sm80, block(32), sum, |kernel| {
        first(kernel, |inst| match inst {
            Inst::Value(ValueOp::Param { param, .. }) => {
                *param = ParamId(3);
                true
            }
            _ => false,
        });
        first(kernel, |inst| match inst {
            Inst::Arith(ArithOp::Add { b, .. }) => {
                *b = Operand::Value(ValueId(99));
                true
            }
            _ => false,
        });
    });
    assert_snapshot!(said, @"
    `v0 = param.global p3`: scalar parameter p3 does not exist, or is of another kind
    `v5 = add.u32 v4, v99`: value v99 does not exist, or is of another kind
    `v5 = add.u32 v4, v99`: value v99 is read, and no statement writes it: write it before
    ");
}

#[test]
fn a_run_of_registers_lies_in_its_array() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let acc = k.regs(4, 0.0f32);
        acc.set(if fault { 4 } else { 3 }, 1.0);
    });
    assert_snapshot!(said, @"`set.f32 r0[4], 1.0`: registers r0[4] lie past the end of an array of 4: shorten the run");
}

#[test]
fn a_break_stands_in_a_loop() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let leave = || k.when(k.tid().eq(0), || k.break_());
        if fault { leave() } else { k.loop_(|| k.break_()) }
    });
    assert_snapshot!(said, @"`break`: break stands in no loop: remove it, or end the thread with exit");
}

#[test]
fn a_loop_steps_forward() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        k.for_step(0i32, 8, if fault { -1 } else { 1 }, |_| k.nanosleep(1));
    });
    assert_snapshot!(said, @"`for v0 in 0..8 step -1 {`: operand `step` must be a constant above zero");
}

#[test]
fn a_statement_has_a_number_of_its_own() {
    let said = edited(Arch::Sm80, block(32), |k| k.comment("twice"), |kernel| kernel.body.push(kernel.body[0].clone()));
    assert_snapshot!(said, @"`// twice`: statement #0 exists twice: give the copy a number of its own");
}
