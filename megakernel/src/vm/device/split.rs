//! The forms of split activations that products of a target can read.
//!
//! From three rows on, every block reads the activations of a level whole. The tasks that write
//! them therefore store split activations for the readers' operand
//! ([`Scaled`](tilewright_kernels::gemv::activations::Scaled)). A residual stream that is
//! normalised has sums of squares with them, and the f32 rows that the next addition needs; other
//! activations have no rows.
//!
//! Split activations are in memory of the device's own, not in a buffer of the program; the
//! validator proved the order of the buffer's accesses.

use tilewright_kernels::gemv::activations::{AOperand, Packing, ScaledForm};
use tilewright_kernels::tile::Float;

use super::Planner;
use crate::edges::{Activations, SplitActivations, SplitForms};
use crate::ops::SplitRead;

impl SplitForms for Planner<'_> {
    fn form(&self, read: &SplitRead, of: Activations) -> Option<SplitActivations> {
        let Activations { k, rows: all, float } = of;
        let strip = self.strip(k, &read.weights).ok()?;
        let exact = match (float, read.norm) {
            (Float::F32, _) => Float::F32,
            (Float::Bf16, None) => Float::Bf16,
            (Float::Bf16, Some(_)) | (Float::F16, _) => return None,
        };
        let packing = Packing::of(read.rows, exact);
        // Kernels of bf16 weights that reload activations with each stage have no registers left.
        let stages = read.along.map_or(strip.stages(), |along| (along.len() as u32).div_ceil(strip.stage_k()));
        let part = strip.part(0, stages);
        let most = self.options.activation_registers;
        let held = AOperand::registers(part, packing) <= most || AOperand::phase(part, packing, most).is_some();
        let form = ScaledForm::of(strip, packing, all).filter(|_| held || self.quantised)?;
        let form =
            if held && read.rows >= self.options.thresholds.activation_rows { form.in_pairs(packing) } else { form };
        let form = if read.norm.is_some() { form } else { form.without_norm() };
        let ordered = self.has_order(&read.weights).ok()?;
        let form = if ordered { form.in_order() } else { form };
        Some(SplitActivations { form, weight: read.norm, order: ordered.then(|| read.weights.clone()) })
    }
}
