//! The standalone kernel.

use super::device::{GemvInputs, GemvTask, fetch_vectors, fetch_weights, multiply, room};
use super::tiles::{ActivationRing, GemvPlan, WeightRing};
use super::{CustomGemvEpilogue, GemvEpilogue};
use crate::epilogue::{CustomEpilogue, Epilogue, GateSums, ResultOperands, ResultPlace};
use crate::ring::{Ring, start};
use crate::weights::Strip;
use half::bf16;
use tilewright_codegen::build::{Builder, Global, Ptr, Val, block, record};
use tilewright_codegen::ir::{Arch, Kernel, Ty};

/// `y[m, n] = Σ_k x[m, k] · w[n, k]` with an epilogue, for a grid of any number of blocks, best one
/// for each multiprocessor.
///
/// Parameters: n, w as [`pack`](crate::weights::pack) orders it, x\[batch, [`GemvPlan::x_pitch`]\] with
/// zeros beyond k, y\[batch, n\], then bias\[n\] (bf16) and residual\[batch, n\] (of the result's
/// type) if the epilogue has them, then those of a custom epilogue. Weights are fetched before the
/// previous grids end; nothing else is touched until then. Gates, a scale, and results that are not
/// stored row by row are refused.
pub fn gemv<'f>(arch: Arch, plan: &GemvPlan, finish: impl Into<CustomGemvEpilogue<'f>>) -> Kernel {
    let CustomGemvEpilogue { epilogue: finish, custom } = finish.into();
    let GemvEpilogue { epilogue, wide, .. } = finish;
    let stage = (plan.stage(),);
    let x_stage = (plan.x_stage(),);
    let warps = plan.strip.warps();
    let name = format!("gemv_b{}_k{}", plan.batch, plan.strip.k());
    record(&name, arch, block(plan.threads()).min_blocks(1), |k| {
        if finish != (GemvEpilogue { wide, ..Epilogue { scale: None, gated: false, ..epilogue }.into() }) {
            return k.refuse(
                &"this product scales no sums, has no gates, and stores results row by row: take gemv::hopper",
            );
        }
        let n = k.param::<u32>("n");
        let of_result = [if wide { Ty::F32 } else { Ty::BF16 }];
        let weights = k.global::<bf16>("w");
        let x = k.global::<bf16>("x");
        let y = k.global_of("y", &of_result);
        let bias = epilogue.bias.then(|| k.global::<bf16>("bias"));
        let residual = epilogue.residual.then(|| k.global_of("residual", &of_result));

        let custom = custom.map(|CustomEpilogue(declare)| declare(k, [k.lit(plan.batch), n]));

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
        let finish_all = || {
            multiply(k, plan, &mut inputs, room, task, |[m, row], sum| {
                k.when(row.lt(n), || {
                    let at = m * n + row;
                    let operands = GemvOperands { bias, residual, wide, row, at };
                    let [result] = epilogue.functions.apply(operands.affine(GateSums::Gate, [sum]), None, &operands);
                    let place = ResultPlace { row: m, column: row };
                    let result = custom.as_ref().map_or(result, |custom| custom(place, result));
                    if wide {
                        y.cast::<f32>().at(at).store(result);
                    } else {
                        y.cast::<bf16>().at(at).store(result.cast::<bf16>());
                    }
                });
            });
        };
        k.moving().roles(vec![
            (warps, Box::new(finish_all)),
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

/// The operands of a result, loaded where they are needed.
struct GemvOperands<'k> {
    bias: Option<Ptr<'k, Global, bf16>>,
    residual: Option<Ptr<'k, Global, u8>>,
    /// Whether the residual is f32.
    wide: bool,
    /// The row of the weights, and the place among the results.
    row: Val<'k, u32>,
    at: Val<'k, u32>,
}

impl<'k> ResultOperands<'k, 1> for GemvOperands<'k> {
    fn scale(&self) -> Option<Val<'k, f32>> {
        None
    }

    #[track_caller]
    fn bias(&self, _: GateSums) -> Option<[Val<'k, f32>; 1]> {
        self.bias.map(|bias| [bias.at(self.row).load().cast::<f32>()])
    }

    #[track_caller]
    fn residual(&self) -> Option<[Val<'k, f32>; 1]> {
        self.residual.map(|residual| match self.wide {
            true => [residual.cast::<f32>().at(self.at).load()],
            false => [residual.cast::<bf16>().at(self.at).load().cast::<f32>()],
        })
    }
}

/// The part of `strips` strips for this block; the product of strips and blocks has 32 bits. Parts
/// differ by one strip at most.
fn share<'k>(k: &'k Builder, strips: Val<'k, u32>) -> (Val<'k, u32>, Val<'k, u32>) {
    let bound = |block: Val<'k, u32>| block * strips / k.blocks();
    let first = bound(k.block_id());
    let end = bound(k.block_id() + 1);
    (first, end - first)
}
