//! Products of packed weights with activations: what every matrix-vector product does with a stage of weights.
//!
//! A warp takes tiles of a stage in turn, a lane eight elements of each. What they meet is a [`Fragment`], wherever it comes
//! from: shared memory or registers. Slots of the contraction hold the same k on both sides.

use half::bf16;
use tilewright_codegen::build::{Builder, Ptr, Shared, Val};

use super::codes::{Codes, Factors};
use super::{Unit, convert};
use crate::mma::Accumulator;
use crate::quant::Code;
use crate::tile::{Index, LayoutTensor};

/// A lane's activations that meet a tile: eight of a vector of the first eight and, where there are any, eight of a vector of
/// the second.
#[derive(Clone, Copy)]
pub struct Fragment<'k> {
    /// Of the MMA's rows 0 to 7.
    pub low: [Val<'k, u32>; 4],
    /// Of its rows 8 to 15, zeros where there are none.
    pub high: Option<[Val<'k, u32>; 4]>,
}

/// A tile of a stage that a warp multiplies.
#[derive(Clone, Copy)]
pub struct WarpTile<'k> {
    /// Which.
    pub tile: Index<'k>,
    /// Whether there is such a tile, where not every warp has one.
    pub exists: Option<Val<'k, bool>>,
}

/// A lane's eight weights of a tile, as they are packed.
#[derive(Clone, Copy)]
pub struct Packed<'k> {
    codes: [Val<'k, u32>; 4],
    exists: Option<Val<'k, bool>>,
}

impl<'k> WarpTile<'k> {
    /// The tiles of this warp in a stage that has as many for every warp.
    pub fn of_whole_rounds(k: &'k Builder, unit: Unit) -> impl Iterator<Item = WarpTile<'k>> {
        (0..unit.per_warp()).map(move |round| WarpTile { tile: WarpTile::number(k, unit, round), exists: None })
    }

    /// The tile of this warp in a round.
    pub fn number(k: &'k Builder, unit: Unit, round: u32) -> Index<'k> {
        Index::below(k.warp(), unit.warps()) + round * unit.warps()
    }

    /// Loads this lane's weights of the tile with their factors.
    #[track_caller]
    pub fn load_codes(self, unit: Unit, codes: Codes, stage: Ptr<'k, Shared, u8>) -> (Packed<'k>, Vec<Factors<'k>>) {
        (self.load(unit, stage.cast()), unit.factors(codes, stage.at(unit.scales_at()), self.tile))
    }

    /// Loads this lane's weights of the tile.
    #[track_caller]
    pub fn load(self, unit: Unit, stage: Ptr<'k, Shared, bf16>) -> Packed<'k> {
        let at = [Index::lane(stage.builder()), self.tile];
        let codes = LayoutTensor::new(stage, unit.stage_lanes()).at(at).cast().load_vec();
        Packed { codes, exists: self.exists }
    }
}

impl<'k> Packed<'k> {
    /// The weights of a tile that there is, as [`Packed::codes`] gives them.
    pub fn of(codes: [Val<'k, u32>; 4]) -> Packed<'k> {
        Packed { codes, exists: None }
    }

    /// The weights as they are packed: 16 bytes.
    pub fn codes(self) -> [Val<'k, u32>; 4] {
        self.codes
    }
}

/// Packed weights of a step of a tile as the B operands of two instructions. Weights of bf16 are packed as they are, and a
/// tile is a step.
fn operands<'k>(
    k: &'k Builder,
    packed: Packed<'k>,
    quantised: Option<(Code, Option<Val<'k, u32>>)>,
    step: u32,
) -> [Val<'k, u32>; 4] {
    match quantised {
        None => packed.codes,
        Some((code, addend)) => {
            let words = convert::words(code);
            convert::convert(k, code, &packed.codes[step as usize * words..][..words], addend)
        }
    }
}

/// Multiplies tiles of bf16: tile number `round` of `tiles` with `fragments(round)`. Where the tiles are loaded before, they are in
/// flight together. A tile that does not exist adds nothing.
pub fn multiply<'k>(
    k: &'k Builder,
    tiles: impl Iterator<Item = Packed<'k>>,
    fragments: impl Fn(u32) -> Vec<Fragment<'k>>,
    sums: Chains<'k>,
) {
    for (round, tile) in (0..).zip(tiles) {
        let products = || instructions(k, operands(k, tile, None, 0), &fragments(round), 2 * round, sums);
        match tile.exists {
            Some(exists) => k.when(exists, products),
            None => products(),
        }
    }
}

/// The instructions of a step, whose number in turn is `first`.
fn instructions<'k>(k: &'k Builder, w: [Val<'k, u32>; 4], fragments: &[Fragment<'k>], first: u32, sums: Chains<'k>) {
    for (number, x) in (0..).zip(fragments) {
        let high = x.high.unwrap_or([k.lit(0u32); 4]);
        for step in 0..2 {
            let i = 2 * step as usize;
            let a = [x.low[i], high[i], x.low[i + 1], high[i + 1]];
            sums.at(first + step, number).mma::<bf16>(&[a.into()], &[[w[i], w[i + 1]].into()]);
        }
    }
}

/// Sums of a group that take turns: a tile has four, and its warp three more tiles.
const GROUP_CHAINS: u32 = 2;

/// Multiplies tiles of codes with their factors: step `number` of the warp's steps with `fragments(number)`. The products of a
/// group, or of a tile where that is less, are summed by themselves, scaled, and added to `sums`, which is one chain.
pub fn multiply_codes<'k>(
    k: &'k Builder,
    (unit, codes): (Unit, Codes),
    tiles: impl Iterator<Item = (Packed<'k>, Vec<Factors<'k>>)>,
    fragments: impl Fn(u32) -> Vec<Fragment<'k>>,
    sums: Chains<'k>,
) {
    for (round, (tile, factors)) in (0..).zip(tiles) {
        for (run, factors) in (0..).zip(factors) {
            let group = Chains::new(k, sums.atoms, GROUP_CHAINS);
            for step in run * unit.run()..(run + 1) * unit.run() {
                let w = operands(k, tile, Some((codes.code, factors.addend)), step);
                instructions(k, w, &fragments(round * unit.steps() + step), 2 * step, group);
            }
            sums.add_scaled(group, factors.scales());
        }
    }
}

/// The sums of a unit: an atom for each sixteen vectors, in `chains` that take turns, since an instruction on an accumulator
/// waits for the one before.
#[derive(Clone, Copy)]
pub struct Chains<'k> {
    all: Accumulator<'k, f32>,
    atoms: u32,
    chains: u32,
    /// The step that the next tile begins with.
    first: u32,
}

impl<'k> Chains<'k> {
    /// Zeros for so many sixteens of vectors.
    pub fn new(k: &'k Builder, atoms: u32, chains: u32) -> Chains<'k> {
        Chains::of(Accumulator::warp::<bf16>(k, atoms * chains, 1), chains)
    }

    /// The sums that an accumulator has.
    pub fn of(all: Accumulator<'k, f32>, chains: u32) -> Chains<'k> {
        Chains { all, atoms: all.atoms()[0] / chains, chains, first: 0 }
    }

    /// The same behind so many tiles of the warp: whose turn it is does not depend on the stages.
    #[must_use]
    pub fn behind(self, tiles: u32) -> Chains<'k> {
        Chains { first: 2 * tiles, ..self }
    }

    fn chain(self, chain: u32) -> Accumulator<'k, f32> {
        self.all.rows_of_atoms(chain * self.atoms, self.atoms)
    }

    /// Where the product of a step with a fragment goes. Fragments beyond the atoms are more of the same vectors.
    fn at(self, step: u32, fragment: u32) -> Accumulator<'k, f32> {
        self.chain((self.first + step) % self.chains).rows_of_atoms(fragment % self.atoms, 1)
    }

    /// Adds what others have together, times the scales of the two features of each pair of registers.
    #[track_caller]
    fn add_scaled(self, group: Chains<'k>, scales: [Val<'k, f32>; 2]) {
        let own = self.chain(0).registers();
        for register in 0..own.len() {
            own.set(register, group.get(register).fma(scales[register as usize % 2], own.get(register)));
        }
    }

    /// What the chains have together: registers `4·atom` to `4·atom + 3` are those of its fragment.
    #[track_caller]
    pub fn get(self, register: u32) -> Val<'k, f32> {
        (1..self.chains).fold(self.chain(0).get(register), |sum, chain| sum + self.chain(chain).get(register))
    }
}
