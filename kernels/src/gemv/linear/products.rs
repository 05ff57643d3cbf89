//! Strips from the ring times activations.

use core::cell::RefCell;

use tilewright_codegen::build::{Builder, Ptr, Shared, Val};

use super::side::side;
use super::sums::SharedSums;
use super::zero_points::ZeroPoints;
use crate::gemv::activations::{AOperand, Packing};
use crate::gemv::product::{Chains, Fragment, ProductOperands, lowered, multiply, multiply_codes};
use crate::gemv::slots::PassSlots;
use crate::warps::ConsumerWarps;
use crate::weights::{CodeTile, Codes, PrefetchedStage, Strip, Terms, WarpTile, WeightSide, WeightStages};

/// What the weights of a task meet.
#[derive(Clone, Copy)]
pub(super) struct TaskOperands<'a, 'k> {
    /// Which operand the weights are.
    pub side: WeightSide,
    /// The type in which codes meet activations.
    pub terms: Terms,
    /// The fragments of a step, or of it and the next where instructions take two: its number, and
    /// the place among those of a warp.
    pub fragments: &'a dyn Fn(Val<'k, u32>, u32) -> Vec<Fragment<'k>>,
    /// What sums of codes begin with.
    pub zero_points: Option<&'a ZeroPoints<'k>>,
}

/// Accumulators of a strip of bf16 that take turns.
const CHAINS: u32 = 4;

/// Accumulators of a strip that take turns: of quantised weights those of a group do.
pub(super) fn chains(strip: Strip) -> u32 {
    if strip.codes().is_some() { 1 } else { CHAINS }
}

/// The products of a ring's strips with activations: what they are made of, and where they go.
#[derive(Clone, Copy)]
pub(super) struct Products<'a, 'k> {
    /// Warps that multiply.
    pub consumers: ConsumerWarps<'k>,
    /// Shape of a strip.
    pub strip: Strip,
    /// Source of the strips, stage by stage.
    pub weights: &'a dyn WeightStages<'k>,
    /// Activations that strips are multiplied with.
    pub operands: TaskOperands<'a, 'k>,
    /// Shared memory that receives the products.
    pub sums: SharedSums<'k>,
    /// The slots that a strip has stages of, where some may be missing.
    pub slots: Option<PassSlots<'k>>,
}

impl<'k> Products<'_, 'k> {
    /// Multiplies the next strip of the ring, into slot `slot` of the sums. The strip's first
    /// stages may be prefetched into registers.
    pub fn strip(self, prefetched: &[PrefetchedStage<'k>], slot: Val<'k, u32>) {
        let Products { consumers, strip, weights, operands, .. } = self;
        let chains = Chains::new(consumers.k, 1, chains(strip));
        for stage in 0..strip.stages() {
            let multiply = || {
                let from = prefetched.get(stage as usize).map_or(WeightStage::Next(weights), WeightStage::Prefetched);
                operands.meet(consumers, strip, stage, |meeting| {
                    from.multiply(consumers, strip, meeting, chains.after_tiles(stage * strip.per_warp()))
                });
            };
            match self.slots.map(|slots| (stage / slots.stages, slots.here)) {
                Some((slot, here)) if slot > 0 => consumers.k.when(here.gt(slot), multiply),
                Some(_) | None => multiply(),
            }
        }
        self.store(slot, chains);
    }

    /// Multiplies the next `count` strips of the ring, of a single stage each, into slot `slot` of
    /// the sums and the following ones: all are under way together. The sums are those that
    /// [`Products::strip`] makes.
    pub fn several(self, slot: Val<'k, u32>, count: u32) {
        let Products { consumers, strip, weights, operands, .. } = self;
        let Some(codes) = strip.codes() else { return };
        let all: Vec<_> = (0..count).map(|next| (slot + next, Chains::new(consumers.k, 1, chains(strip)))).collect();
        weights.several(count, &|stages| {
            let tiles = |&stage| code_tiles(consumers.k, strip, codes, operands.side, stage).collect::<Vec<_>>();
            let tiles: Vec<_> = stages.iter().map(tiles).collect();
            for (tiles, &(_, chains)) in tiles.into_iter().zip(&all) {
                operands.meet(consumers, strip, 0, |meeting| {
                    multiply_codes(consumers.k, strip, codes, tiles.into_iter(), &meeting, chains);
                });
            }
        });
        all.into_iter().for_each(|(slot, chains)| self.store(slot, chains));
    }

    /// Stores a strip's products, which are in `chains`, into a slot of the sums.
    pub fn store(self, slot: Val<'k, u32>, chains: Chains<'k>) {
        let Products { consumers, strip, operands: TaskOperands { side, terms, .. }, sums, .. } = self;
        let products = lowered(strip, side, terms, chains);
        match side {
            WeightSide::A => sums.store_features(consumers, slot, products),
            WeightSide::B | WeightSide::Half | WeightSide::Pair => {
                sums.place(consumers, slot, products, |at, sums| at.store_vec(sums))
            }
        }
    }

    /// Multiplies the next `strips` strips of the ring, two by two.
    pub fn pairs(self, strips: Val<'k, u32>) {
        let k = self.consumers.k;
        let last = strips - strips % 2;
        k.for_step(0u32, last, 2, |slot| self.pair(slot, true));
        k.when(last.lt(strips), || self.pair(last, false));
    }

    /// Multiplies the next strip of the ring and, where `second` says so, the following one, into
    /// slot `slot` of the sums and the next. Single stages are released together; of several those
    /// of the first strip wait in registers. A strip's sums are the same whether there is another.
    fn pair(self, slot: Val<'k, u32>, second: bool) {
        let Products { consumers, strip, weights, operands, sums, .. } = self;
        let k = consumers.k;
        let side = operands.side;
        let terms = operands.terms;
        let Some(codes) = strip.codes() else { return };
        let load = |stage| code_tiles(k, strip, codes, side, stage);
        let eights = sums.packing().halves().len() as u32;
        let chains = Chains::new(k, eights, 1);
        let multiply = |number: u32, tiles: &mut dyn Iterator<Item = CodeTile<'k>>| {
            let before = number * strip.per_warp();
            let tile = |round: u32| strip.tile(k.warp(), k.lit(before + round));
            let of_step = |step: u32| (operands.fragments)(tile(step / strip.steps()), before * strip.steps() + step);
            let zero_points = |round: u32, part: u32, atom: u32| {
                operands.zero_points.map(|sums| sums.load(before + round, strip.parts(side), tile(round), part, atom))
            };
            let meeting = ProductOperands { side, terms, fragments: &of_step, zero_points: &zero_points };
            multiply_codes(k, strip, codes, tiles, &meeting, chains);
        };
        let both = |(first, next): (CodeTile<'k>, CodeTile<'k>)| first.beside(&next);
        let twice = |first: CodeTile<'k>| first.beside(&first);
        if strip.stages() == 1 {
            if second {
                weights.several(2, &|stages| multiply(0, &mut load(stages[0]).zip(load(stages[1])).map(both)));
            } else {
                weights.stage(&|first| multiply(0, &mut load(first).map(twice)));
            }
        } else {
            let loaded: Vec<RefCell<Vec<CodeTile>>> = (0..strip.stages()).map(|_| RefCell::default()).collect();
            loaded.iter().for_each(|tiles| weights.stage(&|stage| tiles.borrow_mut().extend(load(stage))));
            for (number, first) in (0u32..).zip(&loaded) {
                let first = first.borrow();
                let first = first.iter().cloned();
                if second {
                    weights.stage(&|next| multiply(number, &mut first.clone().zip(load(next)).map(both)));
                } else {
                    multiply(number, &mut first.map(twice));
                }
            }
        }
        for eight in 0..eights {
            sums.store_pair(
                consumers,
                [slot, k.lit(eight * 8)],
                lowered(strip, side, terms, chains.atom(eight)),
                second,
            );
        }
    }
}

/// Parts of tiles of codes of a warp that are under way together, where strips are of a single
/// stage.
const PARTS: u32 = 8;

/// Whether two strips of a task may come as one stage, one after the other: codes of a single stage
/// each, which are read two or four at a time ([`WeightStages::several`]), from the task's first
/// on; of an odd number the last comes alone.
pub fn in_pairs(strip: Strip, packing: Packing, a_operand: AOperand) -> bool {
    let both = match side(strip, packing.meeting(strip), a_operand) {
        WeightSide::A => turns(strip, 2).next() == Some(2),
        WeightSide::Pair => true,
        WeightSide::B | WeightSide::Half => false,
    };
    both && strip.stages() == 1
}

/// How many strips are multiplied together, most first: of a single stage, and no more stages than
/// there may be.
pub(super) fn turns(strip: Strip, stages: u32) -> impl Iterator<Item = u32> {
    let most =
        if strip.stages() == 1 { (PARTS / (strip.per_warp() * strip.parts(WeightSide::A))).min(stages) } else { 1 };
    [4, 2, 1].into_iter().filter(move |&strips| strips <= most.max(1))
}

/// This warp's tiles of codes of a stage, each loaded as it is come to.
pub(super) fn code_tiles<'k>(
    k: &'k Builder,
    strip: Strip,
    codes: Codes,
    side: WeightSide,
    stage: Ptr<'k, Shared, u32>,
) -> impl Iterator<Item = CodeTile<'k>> {
    WarpTile::of_whole_rounds(k, strip).map(move |tile| tile.load_codes(strip, codes, side, stage.cast()))
}

impl<'k> TaskOperands<'_, 'k> {
    /// How a strip's weights from a stage on meet them.
    pub(super) fn meet(
        self,
        consumers: ConsumerWarps<'k>,
        strip: Strip,
        stage: u32,
        multiply: impl FnOnce(ProductOperands<'_, 'k>),
    ) {
        let side = self.side;
        let before = stage * strip.per_warp();
        let first = strip.tile(consumers.k.warp(), consumers.k.lit(before));
        let of_step = |number: u32| match strip.steps() {
            1 => (self.fragments)(first + number * consumers.warps, before + number),
            steps => {
                let meets = steps / side.steps();
                let tile = first + number / meets * consumers.warps;
                (self.fragments)(tile * steps + number % meets * side.steps(), before * meets + number)
            }
        };
        let parts = strip.parts(side);
        let zero_points = |round: u32, part: u32, _: u32| {
            self.zero_points.map(|sums| sums.load(before + round, parts, first + round * consumers.warps, part, 0))
        };
        multiply(ProductOperands { side, terms: self.terms, fragments: &of_step, zero_points: &zero_points });
    }
}

/// A stage of weights.
pub(super) enum WeightStage<'w, 'k> {
    /// The ring's next.
    Next(&'w dyn WeightStages<'k>),
    /// In registers.
    Prefetched(&'w PrefetchedStage<'k>),
}

impl<'k> WeightStage<'_, 'k> {
    /// Adds its products.
    pub fn multiply(
        self,
        consumers: ConsumerWarps<'k>,
        strip: Strip,
        meeting: ProductOperands<'_, 'k>,
        chains: Chains<'k>,
    ) {
        let side = meeting.side;
        match self {
            WeightStage::Next(weights) => weights.stage(&|stage| {
                if let Some(codes) = strip.codes() {
                    let tiles = code_tiles(consumers.k, strip, codes, side, stage);
                    return multiply_codes(consumers.k, strip, codes, tiles, &meeting, chains);
                }
                let tiles = WarpTile::of_whole_rounds(consumers.k, strip).map(|tile| tile.load(strip, stage.cast()));
                multiply(consumers.k, tiles, meeting.fragments, chains);
            }),
            WeightStage::Prefetched(prefetched) => match strip.codes() {
                None => multiply(consumers.k, prefetched.tiles(strip), meeting.fragments, chains),
                Some(codes) => {
                    let tiles = prefetched.code_tiles(strip, codes, side);
                    multiply_codes(consumers.k, strip, codes, tiles, &meeting, chains);
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::in_pairs;
    use crate::gemv::activations::{AOperand, Packing};
    use crate::quant::Code;
    use crate::tile::Float;
    use crate::weights::{Codes, Strip};

    #[test]
    fn strips_of_a_single_stage_come_in_pairs() {
        let codes = Codes::new(Code::U4, Some(128), false, Float::Bf16).unwrap();
        let strip = |k| Strip::of_codes(k, 8, 16384, codes).unwrap();
        let row = Packing::of(1, Float::F32);
        let eight = Packing::of(8, Float::F32);
        assert!(in_pairs(strip(2048), row, AOperand::Shared));
        assert!(in_pairs(strip(2048), eight, AOperand::Registers));
        assert!(!in_pairs(strip(8192), row, AOperand::Shared));
    }
}
