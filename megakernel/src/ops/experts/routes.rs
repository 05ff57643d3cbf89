//! The table of routes, as the oracles read it.

use tilewright_kernels::experts::RouteShape;

use crate::oracle::{Context, Done};
use crate::program::{BufferId, Check, OperandError, Operands};
use tilewright_layout::DType;

/// The expert of a slot, and its weight for each row of the batch.
pub(super) struct Slot {
    pub expert: usize,
    pub weights: Vec<f32>,
}

impl Slot {
    /// The rows that have chosen it.
    pub fn rows(&self) -> Vec<usize> {
        (0..self.weights.len()).filter(|&row| self.weights[row] > 0.0).collect()
    }
}

/// Checks the table of a step of `rows` rows; gives its slots.
pub(super) fn slots(ops: &Operands, routes: BufferId, rows: usize) -> Check<usize> {
    let [height, _] = ops.shape("routes", routes)?;
    let width = RouteShape { rows: rows as u32, experts: 1, chosen: 1 }.width();
    ops.exactly("routes", routes, DType::F32, [height, width as usize])?;
    match height.checked_sub(1) {
        Some(slots) if slots > 0 => Ok(slots),
        Some(_) | None => {
            Err(OperandError::Extent { operand: "routes", buffer: routes, dim: 0, found: height, expected: 2 })
        }
    }
}

/// The slots in use.
pub(super) fn used(on: &Context, routes: BufferId, rows: usize) -> Done<Vec<Slot>> {
    let [height, width] = on.shape(routes)?;
    let all = on.read(routes, 0, height * width)?;
    let count = (all[0] as usize).min(height - 1);
    let slot = |row: &[f32]| Slot { expert: row[0] as usize, weights: row[1..=rows].to_vec() };
    Ok(all[width..].chunks_exact(width).take(count).map(slot).collect())
}
