//! The choice of experts for the rows of a step.

use tilewright_codegen::build::{Global, Ptr, Shared, Val};
use tilewright_codegen::ir::attr::{AtomOp, RedOrder, Scope};

use super::table::{RouteShape, RouteTable, SET_BITS};
use crate::route::{RouterKind, Scores};
use crate::tile::Array;
use crate::warps::ConsumerWarps;

/// Lanes of a warp, and experts of a word of bits.
const LANES: u32 = 32;

/// The choice of experts for all rows of a step.
#[derive(Clone, Copy)]
pub struct RouteTask<'k> {
    /// The router's logits, `[rows, experts]`.
    pub logits: Array<'k>,
    /// Where the choice goes.
    pub table: RouteTable<'k>,
    /// From logits to weights.
    pub routing: RouterKind,
    /// A number for each expert, f32, where the function is corrected.
    pub correction: Option<Ptr<'k, Global, f32>>,
}

impl RouteShape {
    /// Bytes of shared memory that [`route`] needs.
    pub const fn shared_bytes(self) -> u32 {
        4 * (self.rows * self.experts + self.words() + self.rows * self.set_words())
    }

    /// Words that have a bit for each expert.
    const fn words(self) -> u32 {
        self.experts.div_ceil(LANES)
    }
}

/// Chooses experts for every row: a warp for each row finds the largest logits one after the other,
/// then each expert that some row has chosen gets a slot. `scratch` has
/// [`RouteShape::shared_bytes`] bytes. `announce` comes, in one thread, when the logits are read and
/// before anything is stored.
pub fn route<'k>(
    consumers: ConsumerWarps<'k>,
    scratch: Ptr<'k, Shared, f32>,
    task: RouteTask<'k>,
    announce: &dyn Fn(),
) {
    let k = consumers.k;
    let RouteTable { at: table, shape } = task.table;
    let RouteShape { rows, experts, .. } = shape;
    let used = scratch.at(rows * experts).cast::<u32>();
    k.for_step(k.warp(), rows, consumers.warps, |row| task.choose(row, scratch.at(row * experts)));
    consumers.sync();
    k.when(k.tid().eq(0), announce);
    // Experts of a word of bits: one for each lane.
    let each_word = |work: &dyn Fn(Val<'k, u32>, Val<'k, u32>)| {
        k.for_step(k.warp(), shape.words(), consumers.warps, |word| work(word, word * LANES + k.lane()));
    };
    each_word(&|word, expert| {
        let weight = k.var(0.0f32);
        k.when(expert.lt(experts), || {
            let most = (0..rows).map(|row| scratch.at(expert + row * experts).load());
            weight.set(most.fold(k.lit(0.0f32), |most, weight| most.max(weight)));
        });
        let bits = weight.get().gt(0.0).ballot();
        k.when(k.lane().eq(0), || used.at(word).store(bits));
    });
    let sets = scratch.at(rows * experts + shape.words()).cast::<u32>();
    consumers.each(rows * shape.set_words(), |word| sets.at(word).store(0u32));
    consumers.sync();
    let counts: Vec<Val<u32>> = (0..shape.words()).map(|word| used.at(word).load().popc()).collect();
    each_word(&|word, expert| {
        let before = (0u32..)
            .zip(&counts)
            .fold(k.lit(0u32), |sum, (other, &count)| sum + (k.lit(other)).lt(word).select(count, 0u32));
        let bits = used.at(word).load();
        let mine = k.lit(1u32) << k.lane();
        let slot = before + (bits & (mine - 1)).popc();
        k.when((bits & mine).ne(0), || {
            let at = task.table.place(slot, k.lit(0));
            table.store_run(at - 1, [expert.cast::<f32>()]);
            for row in 0..rows {
                let weight = scratch.at(expert + row * experts).load();
                table.store_run(at + row, [weight]);
                let set = sets.at(slot / SET_BITS + row * shape.set_words());
                k.when(weight.gt(0.0), || set.red(AtomOp::Or, mine_of(slot), RedOrder::Relaxed(Scope::Cta)));
            }
        });
    });
    let all = counts.into_iter().fold(k.lit(0u32), |sum, count| sum + count);
    consumers.sync();
    consumers.each(rows * shape.set_words(), |word| {
        table.store_run(word + shape.sets_at(), [sets.at(word).load().cast::<f32>()]);
    });
    k.when(k.tid().eq(0), || {
        table.store_run(k.lit(0), [all.max(1u32).cast::<f32>()]);
        // Where no row has chosen any, a slot of the first expert without weight.
        k.when(all.eq(0), || {
            let at = task.table.place(k.lit(0), k.lit(0));
            (0..=rows).for_each(|place| table.store_run(at - 1 + place, [k.lit(0.0f32)]));
        });
    });
}

/// The bit of a slot in its number of a set.
fn mine_of(slot: Val<'_, u32>) -> Val<'_, u32> {
    slot.builder().lit(1u32) << (slot % SET_BITS)
}

impl<'k> RouteTask<'k> {
    /// Stores the weight of every expert for a row, of those that are not chosen 0; by a warp.
    fn choose(self, row: Val<'k, u32>, weights: Ptr<'k, Shared, f32>) {
        let k = row.builder();
        let RouteShape { experts, chosen, .. } = self.table.shape;
        let mine: Vec<Val<u32>> = (0..experts.div_ceil(LANES)).map(|round| k.lane() + round * LANES).collect();
        let places: Vec<_> = mine.iter().map(|&expert| row * experts + expert.min(experts - 1)).collect();
        let logits = self.logits.each(&places);
        let scores = Scores::new(k, experts, |i, _| logits[i as usize]);
        mine.iter().for_each(|&expert| k.when(expert.lt(experts), || weights.at(expert).store(0.0f32)));
        let (expert, weight) = scores.chosen(self.routing, chosen, self.correction);
        k.sync_warp();
        // A weight that is no number counts as none.
        k.when(k.lane().lt(chosen), || weights.at(expert).store(weight.gt(0.0).select(weight, 0.0f32)));
    }
}
