//! Ops on boxes of equal extents: copy, add, silu·mul; and the RMS norm of rows.

use serde::{Deserialize, Serialize};

use super::operand::{Check, Footprint, Operands, positive, same_extents};
use crate::program::{BufferId, OperandError, Region, Span};

/// `dst = src`, element by element, converted to `dst`'s dtype (round to nearest even).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copy {
    /// What is copied; floating point.
    pub src: Region,
    /// Where to; the same extents.
    pub dst: Region,
}

impl Copy {
    pub(super) fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        ops.float_region("src", &self.src)?;
        ops.float_region("dst", &self.dst)?;
        same_extents("src", &self.src, "dst", &self.dst)?;
        Ok(Footprint { reads: vec![self.src], writes: vec![self.dst] })
    }
}

/// `out = a + b`, in f32, converted on store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Add {
    /// First summand.
    pub a: Region,
    /// Second summand; the same extents.
    pub b: Region,
    /// The sum; the same extents. It may be `a` or `b` itself.
    pub out: Region,
}

impl Add {
    pub(super) fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        binary(ops, ("a", &self.a), ("b", &self.b), &self.out)
    }
}

/// `out = silu(gate) · up` with `silu(x) = x / (1 + exp(-x))`, in f32, converted on store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiluMul {
    /// What goes through the silu.
    pub gate: Region,
    /// The factor; the same extents.
    pub up: Region,
    /// The product; the same extents. It may be `gate` or `up` itself.
    pub out: Region,
}

impl SiluMul {
    pub(super) fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        binary(ops, ("gate", &self.gate), ("up", &self.up), &self.out)
    }
}

fn binary(
    ops: &Operands,
    (a_name, a): (&'static str, &Region),
    (b_name, b): (&'static str, &Region),
    out: &Region,
) -> Check<Footprint> {
    ops.float_region(a_name, a)?;
    ops.float_region(b_name, b)?;
    ops.float_region("out", out)?;
    same_extents(a_name, a, "out", out)?;
    same_extents(b_name, b, "out", out)?;
    Ok(Footprint { reads: vec![*a, *b], writes: vec![*out] })
}

/// `out[r, i] = x[r, i] · rsqrt(mean_i(x[r, i]²) + eps) · weight[i]`, in f32, converted on store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RmsNorm {
    /// Input, `[rows, hidden]`.
    pub x: BufferId,
    /// Scale of every column, `[hidden]`.
    pub weight: BufferId,
    /// Output, `[rows, hidden]`.
    pub out: BufferId,
    /// Rows that this task normalises.
    pub rows: Span,
    /// Added to the mean square.
    pub eps: f32,
}

impl RmsNorm {
    pub(super) fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [rows, hidden] = ops.floats("x", self.x)?;
        ops.floats_of("weight", self.weight, [hidden])?;
        ops.floats_of("out", self.out, [rows, hidden])?;
        super::operand::interval("rows", self.rows, rows)?;
        positive("eps", self.eps)?;
        if self.x == self.out {
            let (buffer, expected) = (self.out, "another buffer than `x`");
            return Err(OperandError::Aliased { operand: "out", buffer, expected });
        }
        let columns = Span::all(hidden);
        Ok(Footprint {
            reads: vec![Region::new(self.x, &[self.rows, columns]), Region::new(self.weight, &[columns])],
            writes: vec![Region::new(self.out, &[self.rows, columns])],
        })
    }
}
