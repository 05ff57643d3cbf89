//! Arithmetic of single elements on a device.

use std::f32::consts::LOG2_E;

use tilewright_codegen::build::Val;
use tilewright_codegen::ir::attr::Cmp;
use tilewright_graph::rows::{Comparison, Reduce};

pub(super) fn exp(x: Val<'_, f32>) -> Val<'_, f32> {
    (x * LOG2_E).ex2()
}

pub(super) fn cmp(comparison: Comparison) -> Cmp {
    match comparison {
        Comparison::Equal => Cmp::Eq,
        Comparison::NotEqual => Cmp::Neu,
        Comparison::Greater => Cmp::Gt,
        Comparison::GreaterEqual => Cmp::Ge,
        Comparison::Less => Cmp::Lt,
        Comparison::LessEqual => Cmp::Le,
    }
}

pub(super) fn squared(reduce: Reduce, x: Val<'_, f32>) -> Val<'_, f32> {
    if reduce == Reduce::L2Norm { x * x } else { x }
}

/// Joins two partial results; a maximum passes over NaN.
pub(super) fn join<'k>(reduce: Reduce, a: Val<'k, f32>, b: Val<'k, f32>) -> Val<'k, f32> {
    match reduce {
        Reduce::Sum | Reduce::Mean | Reduce::L2Norm => a + b,
        Reduce::Max => a.max(b),
        Reduce::Min => a.min(b),
    }
}

/// A result from the partial results of `count` elements.
pub(super) fn finish(reduce: Reduce, count: u32, all: Val<'_, f32>) -> Val<'_, f32> {
    match reduce {
        // A NaN without other elements is skipped too: the result is ∓∞.
        Reduce::Max => all.max(f32::NEG_INFINITY),
        Reduce::Min => all.min(f32::INFINITY),
        Reduce::Sum => all,
        Reduce::Mean if count.is_power_of_two() => all * (1.0 / count as f32),
        Reduce::Mean => all.div_rn(count as f32),
        Reduce::L2Norm => all.sqrt(),
    }
}
