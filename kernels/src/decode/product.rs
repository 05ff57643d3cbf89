//! Units from the ring times activations, and the sums of the warps' shares.

use tilewright_codegen::build::{Ptr, RegArray, Shared, Val};
use tilewright_codegen::ir::MmaAtom;

use super::array::zero;
use super::operand::{Fragment, Lane, parts};
use super::{Float, Held, Team, Unit};

/// Activations as the MMA's A operand.
pub(super) enum Activations<'k> {
    /// In shared memory.
    Shared(Lane<'k>),
    /// In registers.
    Held(Held<'k>),
}

impl<'k> Activations<'k> {
    /// This lane's words of a chunk: its number, and its place among those of this warp.
    fn fragment(&self, chunk: Val<'k, u32>, place: u32) -> Fragment<'k> {
        match self {
            Activations::Shared(lane) => lane.chunk(chunk),
            Activations::Held(held) => held.fragment(place),
        }
    }
}

/// Where weights come from, stage by stage: a reader of the ring.
pub trait Weights<'k> {
    /// Waits for the next stage, lets a warp read it, and gives it back.
    fn stage(&self, read: &dyn Fn(Ptr<'k, Shared, u32>));
}

/// Accumulators that take turns: a chain of MMAs on one would wait for each.
const CHAINS: u32 = 4;

/// Sums in shared memory, f32 `[warps, units, rows, 8]`: each warp's share of each output of a group of units.
#[derive(Clone, Copy)]
pub struct Sums<'k> {
    at: Ptr<'k, Shared, f32>,
    rows: u32,
    parts: u32,
    units: u32,
    warps: u32,
}

impl<'k> Sums<'k> {
    /// Sums of the products of rows that come from elements of that type, for as many units as fit into `bytes` bytes, 1 at least and 64 at most.
    pub fn new(at: Ptr<'k, Shared, f32>, bytes: u32, rows: u32, float: Float, warps: u32) -> Sums<'k> {
        let units = (bytes / (warps * rows * Unit::ROWS * 4)).clamp(1, 64);
        Sums { at, rows, parts: parts(rows, float), units, warps }
    }

    /// Units of a group.
    pub fn units(self) -> u32 {
        self.units
    }

    /// Outputs of so many units.
    pub(super) fn outputs(self, units: u32) -> u32 {
        units * self.rows * Unit::ROWS
    }

    /// The sum of the warps' shares of output `(unit · rows + row) · 8 + feature`.
    #[track_caller]
    pub(super) fn total(self, team: Team<'k>, output: Val<'k, u32>) -> Val<'k, f32> {
        let shares = self.at.at(output);
        (0..self.warps).fold(zero(team.k), |sum, warp| sum + shares.at(warp * self.outputs(self.units)).load())
    }

    /// Stores this lane's part of a unit's products.
    fn store(self, team: Team<'k>, slot: Val<'k, u32>, [a, b, c, d]: [Val<'k, f32>; 4]) {
        let k = team.k;
        let (group, feature) = (k.lane() / 4, k.lane() % 4 * 2);
        let unit = self.at.at((k.warp() * self.units + slot) * (self.rows * Unit::ROWS) + feature);
        // Rows in two parts: the low part is four rows further down.
        let (a, b) = if self.parts == 2 { (a + a.shfl_bfly(16), b + b.shfl_bfly(16)) } else { (a, b) };
        k.when(group.lt(self.rows), || unit.at(group * 8).store_vec([a, b]));
        if self.rows > 8 {
            k.when((group + 8).lt(self.rows), || unit.at(group * 8 + 64).store_vec([c, d]));
        }
    }
}

/// The next unit of the ring times the operand, into slot `slot` of the sums.
pub(super) fn product<'k>(
    team: Team<'k>,
    unit: Unit,
    weights: &dyn Weights<'k>,
    x: &Activations<'k>,
    sums: Sums<'k>,
    slot: Val<'k, u32>,
) {
    let k = team.k;
    let chains: Vec<RegArray<f32>> = (0..CHAINS).map(|_| k.regs(4, 0.0f32)).collect();
    let mine = k.warp() * unit.per_warp();
    for stage in 0..unit.stages() {
        let first = mine + stage * team.warps * unit.per_warp();
        weights.stage(&|weights| {
            let weights = weights.at(mine * 128 + k.lane() * 4);
            for chunk in 0..unit.per_warp() {
                let w: [Val<u32>; 4] = weights.at(chunk * 128).load_vec();
                let x = x.fragment(first + chunk, stage * unit.per_warp() + chunk);
                let high = x.high.unwrap_or([k.lit(0u32); 4]);
                for half in 0..2 {
                    let (at, chain) = (2 * half, &chains[(2 * chunk + half as u32) as usize % CHAINS as usize]);
                    let a = [x.low[at], high[at], x.low[at + 1], high[at + 1]];
                    chain.mma(MmaAtom::M16N8K16_F32_BF16_BF16, &a, &w[at..at + 2]);
                }
            }
        });
    }
    sums.store(
        team,
        slot,
        std::array::from_fn(|i| chains.iter().skip(1).fold(chains[0].get(i as u32), |sum, c| sum + c.get(i as u32))),
    );
}
