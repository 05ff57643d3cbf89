//! The standalone kernel.

use super::device::{Room, Task, consume, produce};
use super::tiles::{Plan, ROWS, Weights};
use crate::ring::{Ring, start};
use half::bf16;
use tilewright_codegen::build::{Builder, Val, block, record};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_layout::LayoutError;

/// What becomes of a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epilogue {
    /// Adds bias\[row\], `bf16`.
    pub bias: bool,
    /// Adds residual\[vector, row\], of the result's type.
    pub residual: bool,
    /// The result is f32, else `bf16`.
    pub wide: bool,
}

/// `y[m, n] = Σ_k x[m, k] · w[n, k] (+ bias[n]) (+ residual[m, n])`, for a grid of any number of blocks, best one for
/// each multiprocessor.
///
/// Parameters: n, w as [`relay`](super::relay) lays it out, x\[batch, k\], y\[batch, n\], then bias\[n\] and
/// residual\[batch, n\] where the epilogue has them. Weights are fetched before the grids before this one have ended;
/// nothing else is touched until then.
///
/// # Errors
/// [`LayoutError`] where a stage is too large to count, which no plan is.
pub fn gemv(arch: Arch, plan: &Plan, epilogue: Epilogue) -> Result<Kernel, LayoutError> {
    let stage = (plan.stage()?,);
    Ok(record("gemv", arch, block(plan.threads()).min_blocks(1), |k| {
        let n = k.param::<u32>("n");
        let (weights, x, y) = (k.global::<bf16>("w"), k.global::<bf16>("x"), k.global::<bf16>("y"));
        let bias = epilogue.bias.then(|| k.global::<bf16>("bias"));
        let residual = epilogue.residual.then(|| k.global::<bf16>("residual"));

        let ring = start(k, Ring::bulk::<Weights>(k, stage, plan.ring()));
        k.grid_launch();
        let (mut producer, mut consumer) = ring.split();
        let room = Room::new(k, plan);
        let (first, count) = share(k, (n + (ROWS - 1)) / ROWS);
        let task = Task { weights, x, first, count };
        let store = |[m, row]: [Val<'_, u32>; 2], sum: Val<'_, f32>| {
            k.when(row.lt(n), || {
                let at = m * n + row;
                let sum = bias.map_or(sum, |bias| sum + bias.at(row).load().cast::<f32>());
                let sum = match residual {
                    Some(residual) if epilogue.wide => sum + residual.cast::<f32>().at(at).load(),
                    Some(residual) => sum + residual.at(at).load().cast::<f32>(),
                    None => sum,
                };
                if epilogue.wide { y.cast::<f32>().at(at).store(sum) } else { y.at(at).store(sum.cast::<bf16>()) }
            });
        };
        let multiply = || {
            k.grid_wait();
            consume(k, plan, &mut consumer, room, task, store);
        };
        k.if_else(k.warp().lt(plan.warps), multiply, || {
            k.when(k.lane().eq(0), || produce(k, plan, &mut producer, task));
        });
    }))
}

/// This block's part of so many tiles, whose product with the blocks has 32 bits: parts differ by one tile at most.
fn share<'k>(k: &'k Builder, tiles: Val<'k, u32>) -> (Val<'k, u32>, Val<'k, u32>) {
    let bound = |block: Val<'k, u32>| block * tiles / k.blocks();
    let (first, end) = (bound(k.block_id()), bound(k.block_id() + 1));
    (first, end - first)
}
