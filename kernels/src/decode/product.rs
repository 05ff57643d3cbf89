//! Units from the ring times activations, and the sums of the warps' shares.

use half::bf16;
use tilewright_codegen::build::{Ptr, Shared, Val};

use super::array::zero;
use super::operand::Lane;
use super::packing::{Fragment, Packing};
use super::source::Source;
use super::{ConsumerWarps, HeldStage, Unit};
use crate::mma::Accumulator;

/// Activations as the MMA's A operand.
pub(super) enum Activations<'k> {
    /// In shared memory.
    Copied(Lane<'k>),
    /// In registers: the fragments of this warp's chunks, stage by stage.
    Held(Vec<Vec<Fragment<'k>>>),
    /// Where they lie.
    Streamed(Box<Source<'k>>),
}

/// Where weights come from, stage by stage: a reader of the ring.
pub trait Weights<'k> {
    /// Waits for the next stage, lets a warp read it, and gives it back.
    fn stage(&self, read: &dyn Fn(Ptr<'k, Shared, u32>));

    /// The task's first stages, so far as they have been taken out of the ring already: where its activations are copied.
    fn held(&self) -> &[HeldStage<'k>] {
        &[]
    }
}

/// Accumulators that take turns: a chain of MMAs on one would wait for each.
const CHAINS: usize = 4;

/// Sums in shared memory, f32 `[warps, units, rows, 8]`: each warp's share of each output of a group of units.
#[derive(Clone, Copy)]
pub struct Sums<'k> {
    at: Ptr<'k, Shared, f32>,
    packing: Packing,
    units: u32,
    warps: u32,
}

impl<'k> Sums<'k> {
    /// Sums of the products of those rows, for as many units as fit into `bytes` bytes, 1 at least and 64 at most.
    pub fn new(at: Ptr<'k, Shared, f32>, bytes: u32, packing: Packing, warps: u32) -> Sums<'k> {
        let units = (bytes / Sums::bytes(packing.rows(), warps)).clamp(1, 64);
        Sums { at, packing, units, warps }
    }

    /// Bytes of a unit's sums.
    pub fn bytes(rows: u32, warps: u32) -> u32 {
        warps * rows * Unit::ROWS * 4
    }

    /// Units of a group.
    pub fn units(self) -> u32 {
        self.units
    }

    /// Outputs of so many units.
    pub(super) fn outputs(self, units: u32) -> u32 {
        units * self.packing.rows() * Unit::ROWS
    }

    /// The sum of the warps' shares of output `(unit · rows + row) · 8 + feature`.
    #[track_caller]
    pub(super) fn total(self, team: ConsumerWarps<'k>, output: Val<'k, u32>) -> Val<'k, f32> {
        let shares = self.at.at(output);
        (0..self.warps).fold(zero(team.k), |sum, warp| sum + shares.at(warp * self.outputs(self.units)).load())
    }

    /// Lets `put` have the places of this lane's part of a unit's products, and what goes there.
    fn place(
        self,
        team: ConsumerWarps<'k>,
        slot: Val<'k, u32>,
        products: [Val<'k, f32>; 4],
        put: impl Fn(Ptr<'k, Shared, f32>, [Val<'k, f32>; 2]),
    ) {
        let k = team.k;
        let (rows, group, feature) = (self.packing.rows(), k.lane() / 4, k.lane() % 4 * 2);
        let unit = self.at.at((k.warp() * self.units + slot) * (rows * Unit::ROWS) + feature);
        let (first, second) = self.packing.totals(products);
        k.when(group.lt(rows), || put(unit.at(group * 8), first));
        if let Some(second) = second {
            k.when((group + 8).lt(rows), || put(unit.at(group * 8 + 64), second));
        }
    }
}

/// The next unit of the ring times the operand, into slot `slot` of the sums. `fragments` gives those of a chunk: its
/// number, and its place among those of this warp. The unit's first stages may be held in registers.
pub(super) fn product<'k>(
    team: ConsumerWarps<'k>,
    unit: Unit,
    (weights, held): (&dyn Weights<'k>, &[HeldStage<'k>]),
    fragments: impl Fn(Val<'k, u32>, u32) -> Vec<Fragment<'k>>,
    sums: Sums<'k>,
    slot: Val<'k, u32>,
) {
    let chains = Chains::new(team);
    for stage in 0..unit.stages() {
        let round = stage * unit.per_warp();
        let first = unit.chunk(team.k.warp(), team.k.lit(round));
        let stage = held.get(stage as usize).map_or(Stage::Next(weights), |held| Stage::Held(held, weights));
        chains.multiply(team, unit, stage, round, |chunk| fragments(first + chunk * team.warps, round + chunk));
    }
    sums.place(team, slot, chains.sum(), |at, sums| at.store_vec(sums));
}

/// The next `units` units of the ring, which come in the order of a group, times activations that are loaded stage by stage.
pub(super) fn products<'k>(source: &Source<'k>, weights: &dyn Weights<'k>, sums: Sums<'k>, units: Val<'k, u32>) {
    let Source { team, unit, .. } = *source;
    let k = team.k;
    // A lane alone reads and writes its part of the sums until the team meets.
    k.for_(0u32, units, |slot| {
        sums.place(team, slot, [zero(k); 4], |at, zeros| at.store_vec(zeros));
    });
    source.clear_squares();
    k.for_(0u32, unit.stages(), |stage| {
        let fragments = source.fragments(&source.columns(stage));
        k.for_(0u32, units, |slot| {
            let chains = Chains::new(team);
            chains.multiply(team, unit, Stage::Next(weights), 0, |chunk| fragments[chunk as usize].clone());
            sums.place(team, slot, chains.sum(), |at, [a, b]| {
                let [x, y]: [Val<f32>; 2] = at.load_vec();
                at.store_vec([a + x, b + y]);
            });
        });
    });
}

/// A stage of weights.
enum Stage<'w, 'k> {
    /// The ring's next.
    Next(&'w dyn Weights<'k>),
    /// In registers, at the latest when it has been the ring's next.
    Held(&'w HeldStage<'k>, &'w dyn Weights<'k>),
}

/// Accumulators of a unit.
struct Chains<'k>(Vec<Accumulator<'k, f32>>);

impl<'k> Chains<'k> {
    fn new(team: ConsumerWarps<'k>) -> Chains<'k> {
        Chains((0..CHAINS).map(|_| Accumulator::warp::<bf16>(team.k, 1, 1)).collect())
    }

    /// Adds the products of a stage, whose first chunk of this warp is its `round`-th of the unit; `fragments` gives those of one
    /// of the stage's chunks of this warp.
    fn multiply(
        &self,
        team: ConsumerWarps<'k>,
        unit: Unit,
        stage: Stage<'_, 'k>,
        round: u32,
        fragments: impl Fn(u32) -> Vec<Fragment<'k>>,
    ) {
        let k = team.k;
        let multiply = |chunk: u32, w: [Val<'k, u32>; 4]| {
            for x in fragments(chunk) {
                let high = x.high.unwrap_or([k.lit(0u32); 4]);
                for half in 0..2usize {
                    let (at, chain) = (2 * half, &self.0[(2 * (round + chunk) as usize + half) % CHAINS]);
                    let a = [x.low[at], high[at], x.low[at + 1], high[at + 1]];
                    chain.mma::<bf16>(&[a.into()], &[[w[at], w[at + 1]].into()]);
                }
            }
        };
        match stage {
            Stage::Next(weights) => weights.stage(&|weights| {
                let weights = weights.at(k.warp() * 128 + k.lane() * 4);
                (0..unit.per_warp())
                    .for_each(|chunk| multiply(chunk, weights.at(chunk * (team.warps * 128)).load_vec()));
            }),
            Stage::Held(held, weights) => {
                held.bring(weights, unit.per_warp());
                (0..unit.per_warp()).for_each(|chunk| multiply(chunk, held.chunk(chunk)));
            }
        }
    }

    /// What the accumulators have together.
    fn sum(&self) -> [Val<'k, f32>; 4] {
        std::array::from_fn(|i| self.0.iter().skip(1).fold(self.0[0].get(i as u32), |sum, c| sum + c.get(i as u32)))
    }
}
