//! Properties that all product tiles share: their activations, and the plan of the product.

use tilewright_kernels::gemv::activations::AOperand;
use tilewright_kernels::gemv::task::{ProductLimits, ProductPlan, Waits};
use tilewright_kernels::weights::Strip;

use super::input::InputCode;
use crate::vm::device::{Planner, SharedBytes, Taken};

/// The properties that all product tiles share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileCode {
    /// Activations.
    pub input: InputCode,
    /// The plan of the product.
    pub product: ProductPlan,
}

impl TileCode {
    /// The product of a task.
    pub(super) fn new(plan: &Planner, strip: Strip, rows: u32, input: InputCode, waits: Waits) -> TileCode {
        let gathers = matches!(input, InputCode::Ordered { .. });
        let product = ProductPlan::new(strip, input.packing(rows), gathers, waits, &limits(plan));
        TileCode { input, product }
    }

    /// The product of a part of a cut sum.
    pub(super) fn of_part(self, plan: &Planner) -> TileCode {
        TileCode { product: self.product.of_part(&limits(plan)), ..self }
    }

    /// Columns of its activations, if the tile can poll them without waiting for a semaphore.
    pub(super) fn polled_columns(&self) -> Option<u32> {
        let is_copied = self.product.a_operand == AOperand::Shared;
        (is_copied && self.input.is_packets()).then_some(self.product.strip.k())
    }

    /// The stages of its strips, in the order in which it multiplies them.
    pub(super) fn taken(&self) -> Taken {
        match self.product.a_operand {
            AOperand::Reloaded { group } => Taken::Groups(group),
            AOperand::Phases { stages, .. } => Taken::Phases(stages),
            AOperand::Shared | AOperand::Registers => Taken::Strips,
        }
    }

    /// Shared memory, where a strip of features has `streams` strips of weights.
    pub(super) fn shared(&self, warps: u32, streams: u32) -> SharedBytes {
        SharedBytes { sums: self.product.sums_bytes(warps, streams), operand: self.product.operand_bytes() }
    }
}

/// The limits that a target and its options set.
fn limits(plan: &Planner) -> ProductLimits {
    let options = plan.options();
    ProductLimits {
        shared_bytes: plan.target().shared_bytes_per_block as u32,
        stage_bytes: options.stage_bytes,
        activation_rows: options.thresholds.activation_rows,
        activation_registers: options.activation_registers,
        registers_beside_prefetch: options.thresholds.registers_beside_prefetch,
        paired_rows: options.thresholds.paired_rows,
    }
}
