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

/// The extents of a choice of `chosen` of `experts` experts for each of `rows` rows.
pub(super) fn shape(rows: usize, experts: usize, chosen: usize) -> Check<RouteShape> {
    let most = RouteShape::EXPERTS as usize;
    if !(1..=most).contains(&experts) {
        return Err(OperandError::Index { name: "experts", found: experts, limit: most + 1 });
    }
    let most = experts.min(RouteShape::CHOSEN as usize);
    if !(1..=most).contains(&chosen) {
        return Err(OperandError::Index { name: "chosen", found: chosen, limit: most + 1 });
    }
    Ok(RouteShape { rows: rows as u32, experts: experts as u32, chosen: chosen as u32 })
}

/// Checks the table of a choice; gives its slots.
pub(super) fn slots(ops: &Operands, routes: BufferId, shape: RouteShape) -> Check<usize> {
    ops.exactly("routes", routes, DType::F32, shape.table().map(|extent| extent as usize))?;
    Ok(shape.slots() as usize)
}

/// How many experts rows choose that choose uniformly.
pub(super) fn expected(shape: RouteShape) -> f64 {
    f64::from(shape.experts) * shape.share()
}

/// The slots in use.
pub(super) fn used(on: &Context, routes: BufferId, rows: usize) -> Done<Vec<Slot>> {
    let [height, width] = on.shape(routes)?;
    let all = on.read(routes, 0, height * width)?;
    let count = (all[0] as usize).min(height - 1);
    let slot = |row: &[f32]| Slot { expert: row[0] as usize, weights: row[1..=rows].to_vec() };
    Ok(all[width..].chunks_exact(width).take(count).map(slot).collect())
}
