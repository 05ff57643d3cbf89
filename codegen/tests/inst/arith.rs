//! Cases of the family `arith`: every instruction once at least.

use crate::case::{Case, binary, keep, mine, out, unary};
use half::{bf16, f16};
use tilewright_codegen::build::{Bf16x2, Builder, F16x2};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ir::attr::Cmp;

/// Every number type through one expression.
macro_rules! numbers {
    ($k:expr, $f:expr) => {{
        binary::<u16, _>($k, "u16", $f);
        binary::<i16, _>($k, "s16", $f);
        binary::<u32, _>($k, "u32", $f);
        binary::<i32, _>($k, "s32", $f);
        binary::<u64, _>($k, "u64", $f);
        binary::<i64, _>($k, "s64", $f);
        binary::<f16, _>($k, "f16", $f);
        binary::<bf16, _>($k, "bf16", $f);
        binary::<F16x2, _>($k, "f16x2", $f);
        binary::<Bf16x2, _>($k, "bf16x2", $f);
        binary::<f32, _>($k, "f32", $f);
        binary::<f64, _>($k, "f64", $f);
    }};
}

macro_rules! integers {
    ($k:expr, $f:expr) => {{
        binary::<u16, _>($k, "u16", $f);
        binary::<i16, _>($k, "s16", $f);
        binary::<u32, _>($k, "u32", $f);
        binary::<i32, _>($k, "s32", $f);
        binary::<u64, _>($k, "u64", $f);
        binary::<i64, _>($k, "s64", $f);
    }};
}

macro_rules! floats {
    ($k:expr, $f:expr) => {{
        binary::<f16, _>($k, "f16", $f);
        binary::<bf16, _>($k, "bf16", $f);
        binary::<F16x2, _>($k, "f16x2", $f);
        binary::<Bf16x2, _>($k, "bf16x2", $f);
        binary::<f32, _>($k, "f32", $f);
        binary::<f64, _>($k, "f64", $f);
    }};
}

macro_rules! signed {
    ($k:expr, $f:expr) => {{
        unary::<i16, _>($k, "s16", $f);
        unary::<i32, _>($k, "s32", $f);
        unary::<i64, _>($k, "s64", $f);
        unary::<f16, _>($k, "f16", $f);
        unary::<bf16, _>($k, "bf16", $f);
        unary::<F16x2, _>($k, "f16x2", $f);
        unary::<Bf16x2, _>($k, "bf16x2", $f);
        unary::<f32, _>($k, "f32", $f);
        unary::<f64, _>($k, "f64", $f);
    }};
}

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("add", |k| numbers!(k, |x, y| x + y)),
        Case::new("sub", |k| numbers!(k, |x, y| x - y)),
        Case::new("mul", |k| numbers!(k, |x, y| x * y)),
        Case::new("mul_hi", |k| integers!(k, |x, y| x.mul_hi(y))),
        Case::new("mul_wide", |k| {
            binary::<u16, _>(k, "u16", |x, y| x.mul_wide(y));
            binary::<i16, _>(k, "s16", |x, y| x.mul_wide(y));
            binary::<u32, _>(k, "u32", |x, y| x.mul_wide(y));
            binary::<i32, _>(k, "s32", |x, y| x.mul_wide(y));
        }),
        Case::new("mad", |k| integers!(k, |x, y| x.mad(y, x))),
        Case::new("fma", |k| floats!(k, |x, y| x.fma(y, x))),
        Case::new("div", |k| integers!(k, |x, y| x / y)),
        Case::new("rem", |k| integers!(k, |x, y| x % y)),
        Case::new("div_rn", |k| {
            binary::<f32, _>(k, "f32", |x, y| x.div_rn(y));
            binary::<f64, _>(k, "f64", |x, y| x.div_rn(y));
        }),
        Case::new("sqrt_rn", |k| {
            unary::<f32, _>(k, "f32", |x| x.sqrt());
            unary::<f64, _>(k, "f64", |x| x.sqrt());
        }),
        Case::new("rcp_rn", |k| {
            unary::<f32, _>(k, "f32", |x| x.recip());
            unary::<f64, _>(k, "f64", |x| x.recip());
        }),
        Case::new("approximations", |k| {
            binary::<f32, _>(k, "div", |x, y| x.div_approx(y));
            unary::<f32, _>(k, "sqrt", |x| x.sqrt_approx());
            unary::<f32, _>(k, "rcp", |x| x.recip_approx());
            unary::<f32, _>(k, "rsqrt", |x| x.rsqrt());
            unary::<f32, _>(k, "lg2", |x| x.lg2());
            unary::<f32, _>(k, "sin", |x| x.sin());
            unary::<f32, _>(k, "cos", |x| x.cos());
        }),
        Case::new("ex2_tanh", |k| {
            unary::<f32, _>(k, "ex2", |x| x.ex2());
            unary::<f16, _>(k, "ex2h", |x| x.ex2());
            unary::<F16x2, _>(k, "ex2h2", |x| x.ex2());
            unary::<f32, _>(k, "tanh", |x| x.tanh());
            unary::<f16, _>(k, "tanhh", |x| x.tanh());
            unary::<F16x2, _>(k, "tanhh2", |x| x.tanh());
        }),
        Case::new("ex2_tanh_bf16", |k| {
            unary::<bf16, _>(k, "ex2b", |x| x.ex2());
            unary::<Bf16x2, _>(k, "ex2b2", |x| x.ex2());
            unary::<bf16, _>(k, "tanhb", |x| x.tanh());
            unary::<Bf16x2, _>(k, "tanhb2", |x| x.tanh());
        })
        .since(Arch::Sm90a),
        Case::new("min", |k| numbers!(k, |x, y| x.min(y))),
        Case::new("max", |k| numbers!(k, |x, y| x.max(y))),
        Case::new("neg", |k| signed!(k, |x| -x)),
        Case::new("abs", |k| signed!(k, |x| x.abs())),
        Case::new("dp4a", |k| {
            binary::<u32, _>(k, "u32", |x, y| x.dp4a(y, x));
            binary::<i32, _>(k, "s32", |x, y| x.dp4a(y, x));
        }),
        Case::new("setp", setp),
        Case::new("setp_bf16", |k| {
            keep(k, "out", mine::<bf16>(k, "x").lt(mine::<bf16>(k, "y")));
        })
        .since(Arch::Sm90a),
        Case::new("select", select),
        Case::new("constants", constants),
    ]
}

fn setp(k: &Builder) {
    let a = mine::<i32>(k, "a");
    let b = mine::<i32>(k, "b");
    let c = mine::<u64>(k, "c");
    let d = mine::<u64>(k, "d");
    keep(k, "s32", a.lt(b) ^ a.eq(b));
    keep(k, "u64", c.le(d) ^ c.ne(d) ^ c.gt(7) ^ c.ge(d));
    let x = mine::<f32>(k, "x");
    let y = mine::<f32>(k, "y");
    let mut odd = x.eq(y);
    for &cmp in Cmp::ALL {
        odd ^= x.compare(cmp, y);
    }
    keep(k, "f32", odd);
    keep(k, "f16", mine::<f16>(k, "h").lt(mine::<f16>(k, "g")));
    keep(k, "f64", mine::<f64>(k, "e").ge(1.5));
}

fn select(k: &Builder) {
    let p = mine::<u32>(k, "p").ne(0);
    binary::<u32, _>(k, "u32", |x, y| p.select(x, y));
    binary::<u64, _>(k, "u64", |x, y| p.select(x, y));
    binary::<f16, _>(k, "f16", |x, y| p.select(x, y));
    binary::<Bf16x2, _>(k, "bf16x2", |x, y| p.select(x, y));
    binary::<f32, _>(k, "f32", |x, y| p.select(x, 1.0f32) + p.select(0.5f32, y));
    let q = mine::<u32>(k, "q").eq(3);
    let both: tilewright_codegen::build::Val<'_, bool> = p.select(q, !q);
    keep(k, "pred", both);
}

/// Constants of every type, where PTX takes an immediate and where it does not.
fn constants(k: &Builder) {
    let half = f16::from_f32(1.5);
    let brain = bf16::from_f32(-2.0);
    unary::<f16, _>(k, "f16", |x| x * half);
    unary::<bf16, _>(k, "bf16", |x| x.fma(brain, brain));
    unary::<F16x2, _>(k, "f16x2", |x| x * F16x2(half, half));
    unary::<f32, _>(k, "f32", |x| 2.0 * x + f32::INFINITY);
    unary::<f64, _>(k, "f64", |x| x - 0.1);
    unary::<i16, _>(k, "s16", |x| x * -3);
    unary::<u64, _>(k, "u64", |x| x + u64::MAX);
    unary::<i64, _>(k, "s64", |x| x.min(i64::MIN));
    out::<u8>(k, "u8").store(200);
}
