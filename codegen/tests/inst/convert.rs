use crate::case::{Case, binary, unary};
use half::{bf16, f16};
use tilewright_codegen::build::{Bf16x2, Builder, F16x2, Val};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ir::attr::{Clamp, Fp8, Relu, Round};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("cvt_integers", integers),
        Case::new("cvt_floats", floats),
        Case::new("cvt_bf16", |k| {
            unary::<i32, bf16>(k, "from_s32", |x| x.cast());
            unary::<bf16, u32>(k, "to_u32", |x| x.cast());
            unary::<bf16, f64>(k, "to_f64", |x| x.cast());
        })
        .since(Arch::Sm90a),
        Case::new("cvt_int", |k| {
            unary::<f32, _>(k, "near", |x| x.round(Round::Nearest));
            unary::<f32, _>(k, "zero", |x| x.round(Round::Zero));
            unary::<f64, _>(k, "down", |x| x.round(Round::Down));
            unary::<f64, _>(k, "up", |x| x.round(Round::Up));
        }),
        Case::new("bitcast", |k| {
            unary::<f32, u32>(k, "f32", |x| x.bits());
            unary::<u64, f64>(k, "f64", |x| x.bits());
            unary::<bf16, u16>(k, "bf16", |x| x.bits());
            unary::<u32, Bf16x2>(k, "bf16x2", |x| x.bits());
        }),
        Case::new("cvt_pair", |k| {
            binary::<f32, F16x2>(k, "f16", |x, y| x.pair(y));
            binary::<f32, Bf16x2>(k, "bf16", |x, y| x.pair(y));
            binary::<f32, Bf16x2>(k, "relu", |x, y| x.pair_as(y, Relu::Yes));
        }),
        Case::new("cvt_fp8", |k| {
            for &fp8 in Fp8::ALL {
                binary::<f32, u16>(k, fp8.name(), |x, y| x.pair_fp8(y, fp8));
                unary::<u16, F16x2>(k, &format!("from_{}", fp8.name()), |x| x.halves_of_fp8(fp8));
            }
        })
        .since(Arch::Sm89),
        Case::new("cvt_tf32", |k| unary::<f32, _>(k, "f32", |x| x.tf32())),
        Case::new("pack", |k| {
            binary::<u16, u32>(k, "u32", |x, y| k.join(x, y));
            binary::<u32, u64>(k, "u64", |x, y| k.join(x, y));
            binary::<f16, F16x2>(k, "f16x2", |x, y| k.join(x, y));
            binary::<bf16, Bf16x2>(k, "bf16x2", |x, y| k.join(x, y));
        }),
        Case::new("unpack", |k| {
            unary::<u32, u16>(k, "u32", |x| swap(x.split()));
            unary::<u64, u32>(k, "u64", |x| swap(x.split()));
            unary::<F16x2, f16>(k, "f16x2", |x| swap(x.split()));
        }),
    ]
}

/// The difference of the parts, so that both count.
fn swap<'k, T: tilewright_codegen::build::Number>((lo, hi): (Val<'k, T>, Val<'k, T>)) -> Val<'k, T> {
    hi - lo
}

fn integers(k: &Builder) {
    unary::<u8, u32>(k, "u8_u32", |x| x.cast());
    unary::<i8, i32>(k, "s8_s32", |x| x.cast());
    unary::<i32, i64>(k, "s32_s64", |x| x.cast());
    unary::<u64, u16>(k, "u64_u16", |x| x.cast());
    unary::<i32, u8>(k, "s32_u8", |x| x.cast());
    unary::<i32, i8>(k, "sat_s8", |x| x.cast_as(Round::Exact, Clamp::Sat));
    unary::<i32, u8>(k, "sat_u8", |x| x.cast_as(Round::Exact, Clamp::Sat));
    unary::<i64, i32>(k, "sat_s32", |x| x.cast_as(Round::Exact, Clamp::Sat));
}

fn floats(k: &Builder) {
    unary::<u32, f32>(k, "u32_f32", |x| x.cast());
    unary::<i64, f64>(k, "s64_f64", |x| x.cast());
    unary::<u8, f32>(k, "u8_f32", |x| x.cast());
    unary::<i32, f16>(k, "s32_f16", |x| x.cast());
    unary::<u64, f32>(k, "down", |x| x.cast_as(Round::Down, Clamp::No));
    unary::<f32, i32>(k, "f32_s32", |x| x.cast());
    unary::<f32, u64>(k, "f32_u64", |x| x.cast());
    unary::<f32, u8>(k, "f32_u8", |x| x.cast());
    unary::<f16, i16>(k, "f16_s16", |x| x.cast());
    unary::<f32, i32>(k, "near", |x| x.cast_as(Round::Nearest, Clamp::No));
    unary::<f32, i32>(k, "up", |x| x.cast_as(Round::Up, Clamp::No));
    unary::<f32, f64>(k, "f32_f64", |x| x.cast());
    unary::<f64, f32>(k, "f64_f32", |x| x.cast());
    unary::<f16, f32>(k, "f16_f32", |x| x.cast());
    unary::<f32, f16>(k, "f32_f16", |x| x.cast());
    unary::<f32, bf16>(k, "f32_bf16", |x| x.cast());
    unary::<f32, bf16>(k, "rz_bf16", |x| x.cast_as(Round::Zero, Clamp::No));
    unary::<bf16, f32>(k, "bf16_f32", |x| x.cast());
}
