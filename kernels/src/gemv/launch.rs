//! The standalone kernel.

use super::Strip;
use super::device::{GemvInputs, GemvTask, fetch_vectors, fetch_weights, multiply, room};
use super::tiles::{ActivationRing, GemvPlan, WeightRing};
use crate::ring::{Ring, start};
use half::bf16;
use tilewright_codegen::build::{Builder, Val, block, record};
use tilewright_codegen::ir::{Arch, Kernel, Ty};

/// The epilogue of a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epilogue {
    /// Adds bias\[row\], `bf16`.
    pub bias: bool,
    /// Adds residual\[vector, row\], of the result's type.
    pub residual: bool,
    /// The result is f32, else `bf16`.
    pub wide: bool,
}

/// `y[m, n] = Σ_k x[m, k] · w[n, k] (+ bias[n]) (+ residual[m, n])`, for a grid of any number of
/// blocks, best one for each multiprocessor.
///
/// Parameters: n, w as [`pack`](super::pack) orders it, x\[batch, [`GemvPlan::x_pitch`]\] with
/// zeros beyond k, y\[batch, n\], then bias\[n\] and residual\[batch, n\] where the epilogue has
/// them. Weights are fetched before the grids before this one have ended; nothing else is touched
/// until then.
pub fn gemv(arch: Arch, plan: &GemvPlan, epilogue: Epilogue) -> Kernel {
    let stage = (plan.stage(),);
    let x_stage = (plan.x_stage(),);
    let warps = plan.strip.warps();
    let name = format!("gemv_b{}_k{}", plan.batch, plan.strip.k());
    record(&name, arch, block(plan.threads()).min_blocks(1), |k| {
        let n = k.param::<u32>("n");
        let of_result = [if epilogue.wide { Ty::F32 } else { Ty::BF16 }];
        let weights = k.global::<bf16>("w");
        let x = k.global::<bf16>("x");
        let y = k.global_of("y", &of_result);
        let bias = epilogue.bias.then(|| k.global::<bf16>("bias"));
        let residual = epilogue.residual.then(|| k.global_of("residual", &of_result));

        let rings =
            (Ring::bulk::<WeightRing>(k, stage, plan.ring()), Ring::bulk::<ActivationRing>(k, x_stage, plan.x_ring()));
        let (weights_ring, vectors_ring) = start(k, rings);
        k.grid_launch();
        let (mut fill_weights, weights_full) = weights_ring.split();
        let (mut fill_vectors, vectors_full) = vectors_ring.split();
        let mut inputs = GemvInputs { weights: weights_full, vectors: vectors_full };
        let room = room(k, plan);
        let (first, count) = share(k, (n + (Strip::ROWS - 1)) / Strip::ROWS);
        let task = GemvTask { weights, x, first, count };
        let store = |[m, row]: [Val<'_, u32>; 2], sum: Val<'_, f32>| {
            k.when(row.lt(n), || {
                let at = m * n + row;
                let sum = bias.map_or(sum, |bias| sum + bias.at(row).load().cast::<f32>());
                let sum = match residual {
                    Some(residual) if epilogue.wide => sum + residual.cast::<f32>().at(at).load(),
                    Some(residual) => sum + residual.cast::<bf16>().at(at).load().cast::<f32>(),
                    None => sum,
                };
                if epilogue.wide {
                    y.cast::<f32>().at(at).store(sum);
                } else {
                    y.cast::<bf16>().at(at).store(sum.cast::<bf16>());
                }
            });
        };
        k.moving().roles(vec![
            (warps, Box::new(|| multiply(k, plan, &mut inputs, room, task, store))),
            (
                warps + 1,
                Box::new(|| k.moving().when(k.lane().eq(0), || fetch_weights(k, plan, &mut fill_weights, task))),
            ),
            (
                warps + 2,
                Box::new(|| {
                    // Everything that earlier grids wrote comes in here, or after it.
                    k.grid_wait();
                    k.moving().when(k.lane().eq(0), || fetch_vectors(k, plan, &mut fill_vectors, task));
                }),
            ),
        ]);
    })
}

/// This block's part of `strips` strips, whose product with the blocks has 32 bits: parts differ by
/// one strip at most.
fn share<'k>(k: &'k Builder, strips: Val<'k, u32>) -> (Val<'k, u32>, Val<'k, u32>) {
    let bound = |block: Val<'k, u32>| block * strips / k.blocks();
    let first = bound(k.block_id());
    let end = bound(k.block_id() + 1);
    (first, end - first)
}
