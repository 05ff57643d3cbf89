//! Ops on boxes of equal extents: add, silu·mul.

use serde::{Deserialize, Serialize};
use tilewright_kernels::activation::Activation;
use tilewright_kernels::naive;

use crate::ops::{Check, Footprint, Operands, TaskOp, same_extents};
use crate::oracle::{Context, Done};
use crate::program::Region;

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

impl TaskOp for Add {
    fn name() -> &'static str {
        "add"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        binary(
            ops,
            [ElementwiseOperand { name: "a", region: &self.a }, ElementwiseOperand { name: "b", region: &self.b }],
            &self.out,
        )
    }

    fn oracle(&self, on: &Context) -> Done {
        each(on, &self.a, &self.b, &self.out, naive::add)
    }
}

/// `out = silu(gate) · up` with `silu(x) = x / (1 + exp(-x))`, in f32, converted on store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiluMul {
    /// The input of the SiLU.
    pub gate: Region,
    /// The factor; the same extents.
    pub up: Region,
    /// The product; the same extents. It may be `gate` or `up` itself.
    pub out: Region,
}

impl TaskOp for SiluMul {
    fn name() -> &'static str {
        "silu_mul"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        binary(
            ops,
            [
                ElementwiseOperand { name: "gate", region: &self.gate },
                ElementwiseOperand { name: "up", region: &self.up },
            ],
            &self.out,
        )
    }

    fn oracle(&self, on: &Context) -> Done {
        each(on, &self.gate, &self.up, &self.out, |gate, up| naive::gated(Activation::Silu, gate, up))
    }
}

/// An operand of an elementwise op.
struct ElementwiseOperand<'r> {
    name: &'static str,
    region: &'r Region,
}

fn binary(ops: &Operands, read: [ElementwiseOperand<'_>; 2], out: &Region) -> Check<Footprint> {
    for ElementwiseOperand { name, region } in &read {
        ops.float_region(name, region)?;
    }
    ops.float_region("out", out)?;
    for ElementwiseOperand { name, region } in &read {
        same_extents(name, region, "out", out)?;
    }
    let read = read.map(|operand| *operand.region);
    Ok(Footprint::new(read.to_vec(), vec![*out]).updating(read))
}

fn each(on: &Context, a: &Region, b: &Region, out: &Region, f: fn(&[f32], &[f32]) -> Vec<f32>) -> Done {
    for ((at_a, at_b), at) in on.runs(a)?.into_iter().zip(on.runs(b)?).zip(on.runs(out)?) {
        let a = on.read(a.buffer, at_a.0, at_a.1)?;
        let b = on.read(b.buffer, at_b.0, at_b.1)?;
        on.write(out.buffer, at.0, &f(&a, &b))?;
    }
    Ok(())
}
