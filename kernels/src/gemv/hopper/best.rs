//! The largest result of every vector and tile, in place of the results: what is left of logits of
//! which only the likeliest is asked for.

use tilewright_codegen::build::{Global, Ptr, Shared, Val};

use super::tiles::HopperPlan;
use crate::collective::ranked_key;
use crate::epilogue::{GateSums, LoadedOperands, ResultFunctions, ResultOperands};
use crate::sample::key::largest;
use crate::tile::Array;
use crate::warps::ConsumerWarps;

/// The destination of the largest results.
#[derive(Clone, Copy)]
pub(super) struct Bests<'k> {
    /// Keys of the largest result and its number, u64 `[batch, tiles]`; 0 of a tile without rows.
    pub keys: Ptr<'k, Global, u64>,
    /// The bias of the sums.
    pub bias: Option<Array<'k>>,
    /// The functions of the results.
    pub functions: ResultFunctions,
}

impl<'k> Bests<'k> {
    /// Stores the best of each vector of staged sums, of the vectors from `first` on; a warp for
    /// each.
    pub fn store<const RUN: usize>(
        self,
        consumers: ConsumerWarps<'k>,
        plan: &HopperPlan,
        room: Ptr<'k, Shared, f32>,
        [tile, first]: [Val<'k, u32>; 2],
        columns: u32,
    ) {
        let k = consumers.k;
        k.for_step(k.warp(), columns, consumers.warps, |column| {
            let sums = room.at(column * plan.sums_pitch());
            let best = largest(self.of_lane::<RUN>(plan, sums, tile * plan.rows()), 32);
            let at = (first + column) * plan.tiles() + tile;
            k.when(k.lane().eq(0), || self.keys.at(at).store(best));
        });
    }

    /// The best of this lane's rows of a tile that begins with row `from`; 0 where there are none.
    fn of_lane<const RUN: usize>(
        self,
        plan: &HopperPlan,
        sums: Ptr<'k, Shared, f32>,
        from: Val<'k, u32>,
    ) -> Val<'k, u64> {
        let k = from.builder();
        let runs = plan.rows() / RUN as u32;
        let mine = k.lane() * RUN as u32;
        // Rows of a lane ascend: the first of equals is kept. NaNs count as −∞, of which the first
        // has the lowest number.
        let value = k.var(f32::NEG_INFINITY);
        let number = k.var(from + mine);
        for start in (0..runs).step_by(32) {
            let row = mine + start * RUN as u32;
            let is_row = || row.lt(plan.rows()) & (from + row).lt(plan.n);
            let look = || {
                let run: [Val<f32>; RUN] = sums.at(row).load_vec();
                let bias = self.bias.map(|bias| match RUN {
                    4 => bias.load4(from + row).to_vec(),
                    _ => vec![bias.load(from + row)],
                });
                for (i, &sum) in run.iter().enumerate() {
                    let bias = [bias.as_ref().map(|bias| [bias[i]]), None];
                    let operands = LoadedOperands { scale: None, bias, residual: None };
                    let [sum] = self.functions.apply(operands.affine(GateSums::Gate, [sum]), None, &operands);
                    let is_larger = sum.gt(value.get());
                    value.set(is_larger.select(sum, value.get()));
                    number.set(is_larger.select(from + row + i as u32, number.get()));
                }
            };
            if plan.is_whole() && start + 32 <= runs { look() } else { k.when(is_row(), look) }
        }
        let has_rows = mine.lt(plan.rows()) & (from + mine).lt(plan.n);
        has_rows.select(ranked_key(value.get(), number.get()), k.lit(0u64))
    }
}
