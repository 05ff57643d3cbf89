//! Ops across the blocks of a row: every group of lanes adds up its candidates, then the groups of
//! a warp, then the warps.

use tilewright_codegen::build::{Ptr, Shared, Val, Var};
use tilewright_graph::graph::ValueId;
use tilewright_graph::op::Op;
use tilewright_graph::rows::{Reduce, RowOp};

use super::amount::Candidates;
use super::groups::each;
use super::kept::OfRow;
use super::lanes::LaneRow;
use super::numbers::join;
use super::recipe::PassRecipe;
use super::spread::WARP;
use super::values::{BlockValues, Gathered};

/// Shared memory for the warps' parts.
pub(super) fn shared_bytes(recipe: &PassRecipe, warps: u32) -> u32 {
    let elements = |id: ValueId| {
        let [d0, d1] = recipe.extents(recipe.graph().operands(id)[0]);
        (d0 * d1) as u32
    };
    4 * warps * recipe.across().into_iter().map(elements).max().unwrap_or(0)
}

/// Lets an op across blocks see all candidates.
pub(super) fn gather<'k, 'r>(
    values: &mut BlockValues<'k, 'r>,
    id: ValueId,
    of_row: OfRow<'k, '_, 'r>,
    of: Candidates<'k>,
) {
    let Op::OverBlocks { over: op, .. } = of_row.recipe.graph().op(id) else { return };
    let pass = CandidateSweep { id, of_row, of };
    let gathered = match op {
        &RowOp::Reduce(reduce) => {
            let count = of.count.cast::<f32>();
            let finish = |x: Val<'k, f32>| match reduce {
                Reduce::Sum | Reduce::Max | Reduce::Min => x,
                Reduce::Mean => x.div_rn(count),
                Reduce::L2Norm => x.sqrt(),
            };
            Gathered::Value(pass.run(values, reduce, None, finish))
        }
        RowOp::Softmax(_) => {
            let largest = pass.run(values, Reduce::Max, None, |x| x);
            let sums = pass.run(values, Reduce::Sum, Some(&largest), |x| x);
            Gathered::Softmax(largest, sums)
        }
        RowOp::Normalize(tilewright_graph::rows::Norm::L1) => {
            Gathered::Norm(pass.run(values, Reduce::Sum, None, |x| x))
        }
        RowOp::Normalize(tilewright_graph::rows::Norm::L2) => {
            Gathered::Norm(pass.run(values, Reduce::Sum, None, Val::sqrt))
        }
        // Looks at blocks nearby only.
        RowOp::Conv1d(_) => return,
    };
    values.gather(id, gathered);
}

/// A pass over all candidates.
#[derive(Clone, Copy)]
struct CandidateSweep<'k, 'p, 'r> {
    id: ValueId,
    of_row: OfRow<'k, 'p, 'r>,
    of: Candidates<'k>,
}

impl<'k> CandidateSweep<'k, '_, '_> {
    /// Reduces the candidates' values, element by element, and returns the result in every lane
    /// that holds the element.
    fn run(
        self,
        values: &BlockValues<'k, '_>,
        reduce: Reduce,
        largest: Option<&[LaneRow<'k>]>,
        finish: impl Fn(Val<'k, f32>) -> Val<'k, f32>,
    ) -> Vec<LaneRow<'k>> {
        let CandidateSweep { id, of_row, of } = self;
        let k = of_row.call.builder();
        let recipe = of_row.recipe;
        let consumers = of_row.call.consumers();
        let operand = recipe.graph().operands(id)[0];
        let [d0, d1] = recipe.extents(operand);
        let held = recipe.spread.held(d1);
        let spread = recipe.spread;
        // A mean and a norm are sums until the end.
        let (joined, identity) = match reduce {
            Reduce::Sum | Reduce::Mean | Reduce::L2Norm => (Reduce::Sum, 0.0f32),
            Reduce::Max => (Reduce::Max, f32::NEG_INFINITY),
            Reduce::Min => (Reduce::Min, f32::INFINITY),
        };
        let sums: Vec<Vec<Var<'k, f32>>> = (0..d0).map(|_| (0..held).map(|_| k.var(identity)).collect()).collect();
        each(of_row, of, values, &|mut values, _, _, is_there| {
            for (sums, terms) in sums.iter().zip(values.terms(id, largest)) {
                for (sum, term) in sums.iter().zip(terms) {
                    sum.set(join(joined, sum.get(), is_there.select(term, identity)));
                }
            }
        });
        let parts: Ptr<'k, Shared, f32> = of_row.call.scratch().operand.cast();
        let pitch = (d0 * d1) as u32;
        let place = |at: usize, e: u32| of_row.element(d1 as u32, at as u32, e);
        // All reads of what was gathered before are complete.
        consumers.sync();
        for (at, sums) in sums.iter().enumerate() {
            for (sum, e) in sums.iter().zip(0u32..) {
                let mut all = sum.get();
                for bit in spread.lanes.ilog2()..WARP.ilog2() {
                    all = join(joined, all, all.shfl_bfly(1u32 << bit));
                }
                k.when(k.lane().lt(of_row.holders(d1 as u32)), || parts.at(k.warp() * pitch + place(at, e)).store(all));
            }
        }
        consumers.sync();
        let of_warps = |at: usize, e: u32| {
            let part = |warp: u32| parts.at(place(at, e) + warp * pitch).load();
            finish((1..consumers.warps).fold(part(0), |all, warp| join(joined, all, part(warp))))
        };
        (0..d0).map(|at| (0..held).map(|e| of_warps(at, e)).collect()).collect()
    }
}
