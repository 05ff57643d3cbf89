//! Candidates whose fields come through the ring: how warps share the blocks of a stage.

use tilewright_codegen::build::Val;
use tilewright_megakernel::vm::device::WeightStages;

use super::amount::Candidates;
use super::groups::Each;
use super::kept::{Lies, OfRow};
use super::registers::ROUNDS;
use super::stage::BlockStage;
use super::values::BlockValues;

impl BlockStage {
    /// Shows the candidates of a row as they come: sixteen to a warp, by turns over all stages.
    /// `then` gets the place of its candidate among those whose scores are kept, `flush` the blocks
    /// of the sequence that these are: where the first of them would be, where they begin and end.
    ///
    /// A stage is given back after a fence that waits for the warp's stores to global memory:
    /// between stages there are none.
    pub fn each<'k, 'p, 'r>(
        &'r self,
        of_row: OfRow<'k, 'p, 'r>,
        of: Candidates<'k>,
        values: &BlockValues<'k, 'r>,
        ring: &dyn WeightStages<'k>,
        then: Each<'k, 'p, 'r, '_>,
        flush: &dyn Fn(Val<'k, u32>, [Val<'k, u32>; 2]),
    ) {
        let k = of_row.call.builder();
        let consumers = of_row.call.consumers();
        let spread = of_row.recipe.spread;
        let run = self.run(of);
        let warps = consumers.warps;
        let of_tile = spread.groups() * ROUNDS as u32;
        let kept = self.kept_stages();
        let group = k.lane() / spread.lanes;
        k.for_step(0u32, run.stages, kept, |from| {
            let (origin, _) = run.stage(from);
            k.for_(from, run.stages.min(from + kept), |at| {
                let (first, [begin, end]) = run.stage(at);
                let tiles = run.blocks.div_ceil(of_tile);
                let turn = (k.warp() + warps - at * tiles % warps) % warps;
                ring.stage_if((turn * of_tile).lt(end - first), &|there| {
                    k.for_step(turn * of_tile, end - first, warps * of_tile, |tile| {
                        let number = |round: usize| first + tile + (group + round as u32 * spread.groups());
                        let numbers: Vec<_> = (0..ROUNDS).map(number).collect();
                        // A lane without a candidate reads another one.
                        let block = |&number: &Val<'k, u32>| {
                            let block = number.max(begin).min(end - 1);
                            of_row.block(block, block - of.origin, Lies::Stage(self, there, block - first))
                        };
                        let blocks: Vec<_> = numbers.iter().map(block).collect();
                        let mut all: Vec<_> = blocks.iter().map(|block| values.of_block(block)).collect();
                        BlockValues::multiply(&mut all, None, &|_, _, _| Vec::new());
                        for ((values, &block), &number) in all.into_iter().zip(&blocks).zip(&numbers) {
                            then(values, block, number - origin, number.ge(begin) & number.lt(end));
                        }
                    });
                });
            });
            consumers.sync();
            let [begin, end] = run.candidates;
            flush(origin, [origin.max(begin), (origin + kept * run.blocks).min(end)]);
            // What comes next finds the shared memory free.
            consumers.sync();
        });
    }
}
