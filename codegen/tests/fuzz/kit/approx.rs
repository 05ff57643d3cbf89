//! The bounds that rows flagged `Approx` state, checked against the exact result.

use half::{bf16, f16};
use tilewright_codegen::ir::Ty;

fn flush(value: f32) -> f64 {
    f64::from(if value.is_subnormal() { 0f32.copysign(value) } else { value })
}

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// The distance between neighbouring `f32` at a magnitude.
fn ulp(value: f64) -> f64 {
    let value = value.abs().clamp(f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX));
    2f64.powi(value.log2().floor() as i32 - 23)
}

/// Whether `found` is a result of the row for these operands.
pub fn within(row: &str, ty: Ty, args: &[u64], found: u64) -> bool {
    error(row, ty, args, found) <= 1.0
}

/// The error of `found` over the row's bound; where a rule says what is right, 0 or infinity.
pub fn error(row: &str, ty: Ty, args: &[u64], found: u64) -> f64 {
    match ty {
        Ty::F32 => single_error(row, args, single(found)),
        Ty::F16x2 | Ty::BF16x2 => {
            let part = if ty == Ty::F16x2 { Ty::F16 } else { Ty::BF16 };
            let half = |half: u32| error(row, part, &[args[0] >> (16 * half) & 0xffff], found >> (16 * half) & 0xffff);
            half(0).max(half(1))
        }
        _ => half_error(row, ty, args[0], found),
    }
}

/// The error where a rule decides.
fn rule(right: bool) -> f64 {
    if right { 0.0 } else { f64::INFINITY }
}

/// f16 and bf16: relative error (of `tanh` absolute), and half a unit of the result's own rounding
/// below the normal numbers.
fn half_error(row: &str, ty: Ty, arg: u64, found: u64) -> f64 {
    let value = |bits: u64| match ty {
        Ty::F16 => f16::from_bits(bits as u16).to_f64(),
        _ => bf16::from_bits(bits as u16).to_f64(),
    };
    let a = value(arg);
    let found = value(found);
    let (exact, bound) = match (row, ty) {
        ("ex2.approx", Ty::F16) => (a.exp2(), 2f64.powf(-9.9)),
        ("ex2.approx", _) => (a.exp2(), 2f64.powi(-7)),
        ("tanh.approx", Ty::F16) => (a.tanh(), 2f64.powf(-10.987)),
        ("tanh.approx", _) => (a.tanh(), 2f64.powf(-7.8)),
        _ => return f64::INFINITY,
    };
    let (least, most) = match ty {
        Ty::F16 => (2f64.powi(-24), 65504.0),
        // Results of `ex2` below the normal numbers become zero.
        _ => (2f64.powi(-126), f64::from(bf16::MAX)),
    };
    if exact.is_nan() || found.is_nan() {
        return rule(exact.is_nan() && found.is_nan());
    }
    if found.is_infinite() {
        return rule(exact * (1.0 + bound) > most);
    }
    let magnitude = if row == "tanh.approx" { 1.0 } else { exact.abs() };
    (found - exact).abs() / (bound * magnitude).max(least)
}

fn single_error(row: &str, args: &[u64], found: f32) -> f64 {
    let a = flush(single(args[0]));
    let exact = match row {
        "div.approx" if single(args[0]).is_subnormal() && flush(single(args[1])) == 0.0 => {
            return rule(found.is_nan() || found.is_infinite());
        }
        "div.approx" => return quotient(a, flush(single(args[1])), found),
        "sqrt.approx" => a.sqrt(),
        "rcp.approx" => 1.0 / a,
        "rsqrt.approx" => 1.0 / a.sqrt(),
        "ex2.approx" => a.exp2(),
        "lg2.approx" if a == 0.0 => f64::NEG_INFINITY,
        "lg2.approx" => a.log2(),
        "sin.approx" => a.sin(),
        "cos.approx" => a.cos(),
        "tanh.approx" => f64::from(single(args[0])).tanh(),
        _ => return f64::INFINITY,
    };
    let value = f64::from(found);
    let bound = match row {
        "sqrt.approx" => exact.abs() * 2f64.powi(-23),
        "rcp.approx" => ulp(exact),
        "rsqrt.approx" => exact.abs() * 2f64.powf(-22.9),
        "ex2.approx" => 2.06 * ulp(exact),
        "lg2.approx" if a > 0.5 && a < 2.0 => 2f64.powi(-22),
        "lg2.approx" => exact.abs() * 2f64.powi(-22),
        "sin.approx" if a.abs() <= core::f64::consts::TAU => 2f64.powf(-20.5),
        "cos.approx" if a.abs() <= core::f64::consts::TAU => 2f64.powf(-20.4),
        // Beyond, nothing is promised but a number between −1 and 1.
        "sin.approx" | "cos.approx" => {
            return rule(if a.is_finite() { value.abs() <= 1.0 } else { value.is_nan() });
        }
        _ => exact.abs() * 2f64.powi(-11),
    };
    close(exact, value, bound)
}

/// Within the bound, flushed, or beyond the largest number.
fn close(exact: f64, found: f64, bound: f64) -> f64 {
    if exact.is_nan() || found.is_nan() {
        return rule(exact.is_nan() && found.is_nan());
    }
    if exact.is_infinite() || found.is_infinite() {
        let largest = f64::from(f32::MAX);
        return rule(exact == found || exact.signum() == found.signum() && exact.abs() + bound > largest);
    }
    let tiny = f64::from(f32::MIN_POSITIVE);
    if exact == found || exact.abs() < tiny * (1.0 + 1e-6) && found == 0.0 {
        return 0.0;
    }
    (found - exact).abs() / bound
}

/// The hardware multiplies `a` by its reciprocal of `b`: an error of 1 ulp of the reciprocal is up
/// to 2 ulp of the product, whose own rounding adds a half. The PTX manual says 2 ulp; an H200
/// gives 2.0519 at 0x7f7f0ba4 / 0x507f51ff.
fn quotient(a: f64, b: f64, found: f32) -> f64 {
    let exact = a / b;
    let value = f64::from(found);
    if b.is_finite() && b.abs() > 2f64.powi(126) {
        return rule(if a.is_finite() { value == 0.0 } else { value.is_nan() });
    }
    close(exact, value, 2.5 * ulp(exact))
}
