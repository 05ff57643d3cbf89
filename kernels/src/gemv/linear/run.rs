//! A pass: activations, products group by group, the outputs of each group.

use tilewright_codegen::build::{Ptr, Shared, Val};

use super::code_prefetch::CodePrefetch;
use super::fragments::ActivationFragments;
use super::operand::{SharedActivations, of_two_steps};
use super::pass::StripPass;
use super::products::{Products, TaskOperands, turns};
use super::reloaded::{self, Reloading};
use super::shared_bytes::is_wide;
use super::source::ActivationSource;
use super::sums::{OutputCell, SharedSums};
use super::wide;
use super::zero_points::ZeroPoints;
use crate::gemv::activations::{AOperand, Loaded, Packing, Prologue};
use crate::gemv::announce::{Announce, Early};
use crate::gemv::product::Fragment;
use crate::warps::{Item, store_warp_sum};
use crate::weights::{Strip, WeightSide, WeightStages};

/// Most fragments of two steps that a lane keeps, 4 registers each.
const KEPT: u32 = 16;

/// The weights and activations of a pass.
#[derive(Clone, Copy)]
pub(in crate::gemv) struct PassWork<'a, 'k> {
    /// Source of the strips, stage by stage.
    pub weights: &'a dyn WeightStages<'k>,
    /// Activations.
    pub input: Prologue<'k>,
    /// First row of the activations.
    pub first_row: Val<'k, u32>,
    /// Strips of the output.
    pub strips: Val<'k, u32>,
    /// Action before the last results are stored.
    pub announce: Option<Announce<'a>>,
}

impl<'k> StripPass<'k> {
    /// Fills the operand, multiplies the strips in groups, and lets `finish` have the outputs of
    /// each group.
    ///
    /// `prepare` comes for each output before the product, and before activations that are copied:
    /// what it loads arrives meanwhile.
    pub fn run<P>(
        self,
        PassWork { weights, input, first_row, strips, announce }: PassWork<'_, 'k>,
        prepare: impl Fn(Val<'k, u32>, &OutputCell<'k>) -> P,
        finish: impl Fn(SharedSums<'k>, &OutputCell<'k>, &P),
    ) {
        let StripPass { consumers, scratch, rows, streams, .. } = self;
        let k = consumers.k;
        let packing = self.packing(input);
        let with_zero_points = |x: ActivationFragments<'k>| {
            let zero_points = self.zero_points(&x, packing);
            (x, zero_points)
        };
        let brought = self.bring(input, first_row).map(with_zero_points);
        let (sums, group) = self.group(packing);
        k.for_step(0u32, strips, group, |base| {
            k.when(base.gt(0), || consumers.sync());
            let here = (strips - base).min(group);
            let cell = |(number, item): (usize, Item<'k>)| {
                let at = item.at;
                let feature = at % Strip::ROWS;
                let row = at / Strip::ROWS % rows;
                let strip = at / (Strip::ROWS * rows);
                let inside = item.inside & strip.lt(here);
                let place = (strip * streams * rows + row) * Strip::ROWS + feature;
                let cell = OutputCell { number, strip, row, feature, inside, place };
                let prepared = prepare(base, &cell);
                (item, cell, prepared)
            };
            let cells: Vec<(Item, OutputCell, P)> =
                consumers.items(sums.outputs(group)).into_iter().enumerate().map(cell).collect();
            let announce = |at: Early| {
                if let Some(announce) = announce.filter(|announce| announce.at == at) {
                    k.when((base + group).ge(strips) & k.tid().eq(0), || (announce.say)());
                }
            };
            let announce_products = || announce(Early::Products);
            // What outputs need is asked for before activations that are copied: these are waited
            // for in any case.
            let mut copied = None;
            let (x, zero_points) = match &brought {
                Some(brought) => {
                    announce_products();
                    brought
                }
                None => {
                    // The sooner the better: readers hear of it a microsecond later.
                    let copy = || self.copy(input, first_row, &announce_products);
                    k.if_else(base.eq(0), copy, announce_products);
                    copied.insert(with_zero_points(self.copied(packing)))
                }
            };
            let each = |fragments: Fragments<'_, 'k>| {
                let side = self.side(packing);
                let terms = packing.terms();
                let zero_points = zero_points.as_ref();
                let operands = TaskOperands { side, terms, fragments, zero_points };
                let slots = self.slots;
                let products = Products { consumers, strip: self.strip, weights, operands, sums, slots };
                self.products(products, [base * streams, here * streams]);
            };
            match x {
                ActivationFragments::Shared(lane) => each(&|tile, _| lane.tile(tile)),
                ActivationFragments::TwoSteps(from) => each(&|step, _| of_two_steps(*from, step)),
                ActivationFragments::Registers(held) => each(&|_, place| held[place as usize].clone()),
                ActivationFragments::Reloaded(source) => {
                    let zero_points = match zero_points {
                        Some(ZeroPoints::Shared(zero_points)) => Some(*zero_points),
                        Some(ZeroPoints::Kept(_)) | None => None,
                    };
                    let strips = here * streams;
                    let room = scratch.operand.cast();
                    let work = Reloading { source, weights, sums, strips, room, zero_points };
                    match self.strip.codes().filter(|_| is_wide(self.strip, packing)) {
                        Some(codes) => wide::products(work, codes, sums.strips()),
                        None => reloaded::products(work),
                    }
                    source.store_squares(scratch.squares, None);
                    source.check_overflow(scratch.overflow);
                }
            }
            announce(Early::Sums);
            consumers.sync();
            for (item, cell, prepared) in &cells {
                item.by_warp(|| finish(sums, cell, prepared));
            }
        });
    }
}

impl<'k> StripPass<'k> {
    /// The sums of a group, and how many strips of the output it has.
    fn group(self, packing: Packing) -> (SharedSums<'k>, u32) {
        let sums = self.sums(packing);
        (sums, (sums.strips() / self.streams).max(1))
    }

    /// The most outputs of a group that a thread has.
    pub fn outputs(self, input: Prologue<'k>) -> usize {
        let (sums, group) = self.group(self.packing(input));
        self.consumers.items(sums.outputs(group)).len()
    }
}

/// The fragments of a tile: its number, and its place among those of a warp.
type Fragments<'f, 'k> = &'f dyn Fn(Val<'k, u32>, u32) -> Vec<Fragment<'k>>;

impl<'k> StripPass<'k> {
    /// The products of a group of `strips` strips, before which the task had `before`; its first
    /// stages may be prefetched.
    fn products(self, products: Products<'_, 'k>, [before, strips]: [Val<'k, u32>; 2]) {
        let Products { consumers, strip, weights, operands, .. } = products;
        let k = consumers.k;
        let prefetched: Vec<_> = weights.prefetched().chunks(strip.stages() as usize).collect();
        for (number, prefetched) in (0u32..).zip(&prefetched) {
            let slot = k.lit(number) - before;
            k.when(before.le(number) & slot.lt(strips), || products.strip(prefetched, slot));
        }
        if operands.side == WeightSide::Pair {
            return products.pairs(strips);
        }
        let prefetched = prefetched.len() as u32;
        let next = if prefetched == 0 { k.lit(0u32) } else { before.max(prefetched) - before };
        let one = |slot| products.strip(&[], slot);
        if operands.side != WeightSide::A {
            return k.for_(next, strips, one);
        }
        if let Some(codes) = strip.codes().filter(|_| CodePrefetch::is_for(strip, self.scratch.prefetched_word_stages))
        {
            return CodePrefetch { of: products, codes }.products([next, strips.max(next)]);
        }
        let first = k.var(next);
        for together in turns(strip, weights.most()) {
            let last = first.get() + (strips.max(first.get()) - first.get()) / together * together;
            k.for_step(first.get(), last, together, |slot| match together {
                1 => one(slot),
                _ => products.several(slot, together),
            });
            first.set(last);
        }
    }

    /// Activations that are read two steps at a time: few are kept in registers.
    fn two_steps(self, from: Ptr<'k, Shared, u32>) -> ActivationFragments<'k> {
        let StripPass { consumers, strip, .. } = self;
        let tiles = strip.stages() * strip.per_warp();
        let steps = strip.steps();
        if tiles * steps / 2 > KEPT {
            return ActivationFragments::TwoSteps(from);
        }
        let of_tile = |number: u32| {
            let first = strip.tile(consumers.k.warp(), consumers.k.lit(number)) * steps;
            (0..steps).step_by(2).map(move |step| of_two_steps(from, first + step))
        };
        ActivationFragments::Registers((0..tiles).flat_map(of_tile).collect())
    }

    /// Copies the activations to shared memory, for all groups. `there` comes as soon as all of
    /// them are there.
    fn copy(self, input: Prologue<'k>, first_row: Val<'k, u32>, there: &dyn Fn()) {
        let StripPass { consumers, scratch, strip, .. } = self;
        let x = SharedActivations::new(scratch.operand, strip, self.packing(input), scratch.overflow);
        let factors = self.load_squares(input, first_row);
        let squares = input.fill(consumers, strip, self.pitch, first_row, x);
        x.check_overflow();
        consumers.sync();
        there();
        // They are read after the products, so that no activations wait for them.
        (0u32..).zip(squares).for_each(|(row, sum)| store_warp_sum(scratch.squares.at(row * consumers.warps), sum));
        self.store_squares(input, first_row, factors);
        self.note_loaded();
    }

    /// The activations that were copied.
    fn copied(self, packing: Packing) -> ActivationFragments<'k> {
        let StripPass { consumers, scratch, strip, .. } = self;
        let x = SharedActivations::new(scratch.operand, strip, packing, scratch.overflow);
        match self.side(packing) {
            WeightSide::A => self.two_steps(x.two_steps(consumers)),
            WeightSide::B | WeightSide::Half | WeightSide::Pair => {
                let lane = x.lane(consumers);
                let tiles = strip.stages() * strip.per_warp();
                let registers = AOperand::registers(strip, packing);
                if strip.codes().is_some() || registers > scratch.copied_registers {
                    return ActivationFragments::Shared(lane);
                }
                let tile = |number| lane.tile(strip.tile(consumers.k.warp(), consumers.k.lit(number)));
                ActivationFragments::Registers((0..tiles).map(tile).collect())
            }
        }
    }

    /// Brings the activations as far as they go before the products, where they are not copied.
    fn bring(self, input: Prologue<'k>, first_row: Val<'k, u32>) -> Option<ActivationFragments<'k>> {
        let StripPass { consumers, scratch, strip, .. } = self;
        let reloads = match self.a_operand {
            AOperand::Shared => return None,
            AOperand::Registers | AOperand::Phases { .. } => false,
            AOperand::Reloaded { .. } => true,
        };
        let factors = self.load_squares(input, first_row);
        let source_of = |strip: Strip, input: Prologue<'k>| {
            ActivationSource::new(consumers, strip, self.packing(input), input, first_row, self.pitch)
        };
        let source = source_of(strip, input);
        let brought = if reloads {
            ActivationFragments::Reloaded(Box::new(source))
        } else if let Some(slots) = self.slots {
            let of_slot = |(input, chosen)| source_of(slots.part, input).of_rows(chosen);
            let sources: Vec<_> = slots.inputs(input).map(of_slot).collect();
            // The columns of a slot are those of every other.
            let stages = (0..slots.part.stages()).map(|stage| consumers.k.lit(stage));
            let columns: Vec<_> = sources
                .first()
                .map_or_else(Vec::new, |source| stages.flat_map(|stage| source.columns(stage)).collect());
            // Where rows have chosen all slots, the loads of these are in flight together.
            let asked: Vec<_> = sources.iter().map(|source| source.ask(&columns)).collect();
            let made = |(source, asked): (&ActivationSource<'k>, Option<_>)| match asked {
                Some(asked) => source.of_asked(asked),
                None => source.fragments(&columns),
            };
            let held = sources.iter().zip(asked).flat_map(made).collect();
            sources.iter().for_each(|source| source.check_overflow(scratch.overflow));
            ActivationFragments::Registers(held)
        } else {
            let stages = (0..strip.stages()).map(|stage| consumers.k.lit(stage));
            let held = source.fragments(&stages.flat_map(|stage| source.columns(stage)).collect::<Vec<_>>());
            source.store_squares(scratch.squares, self.accumulates_squares);
            source.check_overflow(scratch.overflow);
            ActivationFragments::Registers(held)
        };
        self.store_squares(input, first_row, factors);
        self.note_loaded();
        Some(brought)
    }

    /// Notes the time when activations are there, if it is wanted.
    fn note_loaded(self) {
        let k = self.consumers.k;
        if let Some(loaded) = self.scratch.loaded {
            k.when(k.tid().eq(0), || loaded.store(k.globaltimer()));
        }
    }
}

impl<'k> StripPass<'k> {
    /// Asks for the sums of squares that lie beside activations. Where there are phases it is done
    /// by [`StripPass::store_squares`], in the first.
    pub(super) fn load_squares(self, input: Prologue<'k>, first_row: Val<'k, u32>) -> Option<Loaded<'k>> {
        match (input, self.accumulates_squares) {
            (Prologue::Scaled { x, eps: Some(_) }, None) => Some(x.load_squares(self.consumers, self.rows, first_row)),
            (Prologue::Scaled { .. } | Prologue::Plain(_) | Prologue::RmsNorm { .. } | Prologue::Ordered(_), _) => None,
        }
    }

    /// Makes factors of rows of them for the epilogue, which follows a barrier of the consumer warps.
    pub(super) fn store_squares(self, input: Prologue<'k>, first_row: Val<'k, u32>, loaded: Option<Loaded<'k>>) {
        let StripPass { consumers, scratch, rows, .. } = self;
        let Prologue::Scaled { x, eps: Some(eps) } = input else { return };
        let store = |loaded| x.store_factors(consumers, rows, eps, loaded, scratch.squares);
        match (loaded, self.accumulates_squares) {
            (Some(loaded), _) => store(loaded),
            (None, Some(accumulates)) => {
                consumers.k.when(!accumulates, || store(x.load_squares(consumers, rows, first_row)))
            }
            (None, None) => {}
        }
    }
}
