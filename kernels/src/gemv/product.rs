//! Products of packed weights with activations: what every matrix-vector product does with a stage
//! of weights.
//!
//! A warp takes [tiles](crate::weights::WarpTile) of a stage in turn, a lane eight elements of
//! each. They are multiplied with a [`Fragment`] from any source: shared memory or registers. Slots
//! of the contraction hold the same k on both sides.

use half::{bf16, f16};
use tilewright_codegen::build::{Builder, Val};

use crate::mma::Accumulator;
use crate::weights::{CodeTile, Codes, Factors, LaneCodes, Strip, Terms, WeightSide, convert};

/// A lane's activations that meet a tile: eight of a vector of the first eight and, where there are
/// any, eight of a vector of the second.
#[derive(Clone, Copy)]
pub struct Fragment<'k> {
    /// The words of the MMA's rows 0 to 7.
    pub low: [Val<'k, u32>; 4],
    /// The words of its rows 8 to 15; zeros if there are none.
    pub high: Option<[Val<'k, u32>; 4]>,
}

impl<'k> Fragment<'k> {
    /// The fragment whose quads are words as an instruction takes them: of the first vector and the
    /// second in turn.
    pub(super) fn of_pairs(self) -> Fragment<'k> {
        let Some(high) = self.high else { return self };
        let a = self.low;
        let b = high;
        Fragment { low: [a[0], a[2], b[0], b[2]], high: Some([a[1], a[3], b[1], b[3]]) }
    }
}

/// Multiplies tiles of bf16: tile number `round` of `tiles` with `fragments(round)`. Where the
/// tiles are loaded before, they are in flight together. A tile that does not exist adds nothing.
pub fn multiply<'k>(
    k: &'k Builder,
    tiles: impl Iterator<Item = LaneCodes<'k>>,
    fragments: impl Fn(u32) -> Vec<Fragment<'k>>,
    sums: Chains<'k>,
) {
    for (round, tile) in (0..).zip(tiles) {
        let products = || instructions(k, Terms::Bf16, tile.codes(), &fragments(round), 2 * round, sums);
        match tile.exists {
            Some(exists) => k.when(exists, products),
            None => products(),
        }
    }
}

/// The instructions of a step, whose number in turn is `first`.
fn instructions<'k>(
    k: &'k Builder,
    terms: Terms,
    w: [Val<'k, u32>; 4],
    fragments: &[Fragment<'k>],
    first: u32,
    sums: Chains<'k>,
) {
    for (number, x) in (0..).zip(fragments) {
        let high = x.high.unwrap_or([k.lit(0u32); 4]);
        for step in 0..2 {
            let i = 2 * step as usize;
            let a = [x.low[i], high[i], x.low[i + 1], high[i + 1]];
            one(terms, a, [w[i], w[i + 1]], sums.at(first + step, number));
        }
    }
}

/// Tiles of codes whose sums are under way together, where these are one atom each: of two, and of
/// groups of half steps, there are registers for one tile.
const TOGETHER: usize = 4;

/// The operands of a product of codes with activations.
pub struct ProductOperands<'a, 'k> {
    /// The operand that holds the weights.
    pub side: WeightSide,
    /// The type in which they meet activations.
    pub terms: Terms,
    /// The fragments of the steps that an instruction takes together, by their number among those
    /// of the warp.
    pub fragments: &'a dyn Fn(u32) -> Vec<Fragment<'k>>,
    /// The initial sums of a part of a tile, by the tile's number in the warp, the part's and the
    /// atom's: the product of the zeros, or of ones where each group has its own zero. `None`:
    /// zero.
    pub zero_points: &'a dyn Fn(u32, u32, u32) -> Option<[Val<'k, f32>; 4]>,
}

/// Multiplies tiles of codes with their factors. The products of a group, or of a tile where that
/// is less, are summed by themselves, scaled, and added to `sums`, which is one chain, and of
/// [`WeightSide::Pair`] has an atom for each eight vectors; these are the product divided by
/// [`lowered`]'s factor.
pub fn multiply_codes<'k>(
    k: &'k Builder,
    strip: Strip,
    codes: Codes,
    tiles: impl Iterator<Item = CodeTile<'k>>,
    meeting: &ProductOperands<'_, 'k>,
    sums: Chains<'k>,
) {
    let ProductOperands { side, terms, .. } = *meeting;
    let meets = strip.steps() / side.steps();
    let parts = strip.parts(side);
    let mut tiles = (0u32..).zip(tiles);
    let atoms = sums.atoms;
    let halved = strip.is_halved();
    loop {
        let tiles: Vec<_> = tiles.by_ref().take(if atoms == 1 && !halved { TOGETHER } else { 1 }).collect();
        if tiles.is_empty() {
            return;
        }
        let begin = |round: u32, part: u32, factors: &[Factors<'k>]| {
            let sums = Chains::new(k, atoms, if halved { 1 } else { side.chains() });
            for atom in 0..atoms {
                let Some(start) = (meeting.zero_points)(round, part, atom) else { continue };
                let zeros = Chains::halves(part, parts, factors).map(Factors::zeros);
                for (register, start) in (0u32..).zip(start) {
                    let zero = zeros[register as usize / 2].map(|zeros| zeros[register as usize % 2]);
                    sums.chain(0).registers().set(4 * atom + register, zero.map_or(start, |zero| start * zero));
                }
            }
            sums
        };
        let begin = |(round, tile): &(u32, CodeTile<'k>)| -> Vec<Chains<'k>> {
            (0..parts).map(|part| begin(*round, part, &tile.factors)).collect()
        };
        let groups: Vec<Vec<Chains>> = tiles.iter().map(begin).collect();
        for meet in 0..meets {
            for ((round, tile), groups) in tiles.iter().zip(&groups) {
                let w = tile.numbers(codes.code, side, meet);
                let fragments = (meeting.fragments)(round * meets + meet);
                if let (true, &[w]) = (halved, &w[..]) {
                    let first = 2 * meet as usize;
                    halved_instructions(k, terms, w, &fragments, [groups[first], groups[first + 1]]);
                    continue;
                }
                code_instructions(k, side, terms, &w, &fragments, groups[(meet * parts / meets) as usize]);
            }
        }
        for ((_, tile), groups) in tiles.iter().zip(&groups) {
            for (part, &group) in (0u32..).zip(groups) {
                let scales = Chains::halves(part, parts, &tile.factors).map(Factors::scales);
                (0..atoms).for_each(|atom| sums.atom(atom).add_scaled(group.atom(atom).of_side(side), scales));
            }
        }
    }
}

/// The instructions of codes of one step with the fragments of it, or of two steps or two strips,
/// where codes are the A operand.
pub(super) fn code_instructions<'k>(
    k: &'k Builder,
    side: WeightSide,
    terms: Terms,
    w: &[[Val<'k, u32>; 4]],
    fragments: &[Fragment<'k>],
    sums: Chains<'k>,
) {
    let of_two = |x: [Val<'k, u32>; 4], sums: Chains<'k>| {
        for i in [0, 2] {
            one(terms, [w[0][i], w[1][i], w[0][i + 1], w[1][i + 1]], [x[i], x[i + 1]], sums.all);
        }
    };
    match side {
        WeightSide::A => fragments.iter().for_each(|x| of_two(x.low, sums)),
        WeightSide::Pair => {
            for x in fragments {
                (0..).zip([x.low].into_iter().chain(x.high)).for_each(|(atom, x)| of_two(x, sums.atom(atom)));
            }
        }
        WeightSide::B => w.iter().for_each(|&w| instructions(k, terms, w, fragments, 0, sums)),
        WeightSide::Half => {
            for (x, w) in fragments.iter().zip(w) {
                one(terms, x.low, [w[0], w[2]], sums.chain(0));
                one(terms, x.low, [w[1], w[3]], sums.chain(1));
            }
        }
    }
}

/// The instructions of a step whose halves are of groups of their own, codes being the B operand:
/// each has its sums.
pub(super) fn halved_instructions<'k>(
    k: &'k Builder,
    terms: Terms,
    w: [Val<'k, u32>; 4],
    fragments: &[Fragment<'k>],
    sums: [Chains<'k>; 2],
) {
    for (number, x) in (0..).zip(fragments) {
        let high = x.high.unwrap_or([k.lit(0u32); 4]);
        for (i, sums) in [0, 2].into_iter().zip(sums) {
            let a = [x.low[i], high[i], x.low[i + 1], high[i + 1]];
            one(terms, a, [w[i], w[i + 1]], sums.at(0, number));
        }
    }
}

/// An instruction.
fn one<'k>(terms: Terms, a: [Val<'k, u32>; 4], b: [Val<'k, u32>; 2], sums: Accumulator<'k, f32>) {
    match terms {
        Terms::Bf16 => sums.mma::<bf16>(&[a.into()], &[b.into()]),
        Terms::F16 | Terms::TwoF16 => sums.mma::<f16>(&[a.into()], &[b.into()]),
    }
}

/// Adds up `sums` of codes, divided by their power of two.
pub fn lowered<'k>(strip: Strip, side: WeightSide, terms: Terms, sums: Chains<'k>) -> [Val<'k, f32>; 4] {
    let all: [Val<f32>; 4] = std::array::from_fn(|register| {
        let sum = sums.get(register as u32);
        strip.codes().map_or(sum, |codes| sum * convert::lower(sum.builder().arch(), codes.code, terms))
    });
    match side {
        WeightSide::A | WeightSide::B | WeightSide::Pair => all,
        WeightSide::Half => std::array::from_fn(|register| all[register % 2] + all[register % 2 + 2]),
    }
}

/// The sums of a strip: an atom for each sixteen vectors, in `chains` that take turns, since an
/// instruction on an accumulator waits for the one before.
#[derive(Clone, Copy)]
pub struct Chains<'k> {
    all: Accumulator<'k, f32>,
    atoms: u32,
    chains: u32,
    /// The step that the next tile begins with.
    first: u32,
}

impl<'k> Chains<'k> {
    /// Zeros for a number of groups of sixteen vectors.
    pub fn new(k: &'k Builder, atoms: u32, chains: u32) -> Chains<'k> {
        Chains::of(Accumulator::warp::<bf16>(k, atoms * chains, 1), chains)
    }

    /// The sums that an accumulator has.
    pub fn of(all: Accumulator<'k, f32>, chains: u32) -> Chains<'k> {
        Chains { all, atoms: all.atoms()[0] / chains, chains, first: 0 }
    }

    /// The accumulators after a number of the warp's tiles: the order does not depend on the
    /// stages.
    #[must_use]
    pub fn after_tiles(self, tiles: u32) -> Chains<'k> {
        Chains { first: 2 * tiles, ..self }
    }

    /// Atoms.
    pub(super) fn atoms(self) -> u32 {
        self.atoms
    }

    /// The sums of an atom, where several have no chains that take turns.
    pub(super) fn atom(self, atom: u32) -> Chains<'k> {
        if self.atoms == 1 { self } else { Chains { all: self.all.rows_of_atoms(atom, 1), atoms: 1, ..self } }
    }

    fn chain(self, chain: u32) -> Accumulator<'k, f32> {
        self.all.rows_of_atoms(chain * self.atoms, self.atoms)
    }

    /// The accumulator of a step's product with a fragment. Fragments beyond the atoms are more of
    /// the same vectors.
    fn at(self, step: u32, fragment: u32) -> Accumulator<'k, f32> {
        self.chain((self.first + step) % self.chains).rows_of_atoms(fragment % self.atoms, 1)
    }

    /// The factors of the registers 0 and 1, and of 2 and 3, of a part of a tile.
    fn halves(part: u32, parts: u32, factors: &[Factors<'k>]) -> [Factors<'k>; 2] {
        let each = factors.len() / parts as usize;
        let first = part as usize * each;
        [factors[first], factors[first + each - 1]]
    }

    /// The four sums of a group that are looked at.
    pub(super) fn of_side(self, side: WeightSide) -> [Val<'k, f32>; 4] {
        std::array::from_fn(|register| {
            let register = register as u32;
            match side {
                WeightSide::A | WeightSide::B | WeightSide::Pair => self.get(register),
                WeightSide::Half => self.chain(register / 2).get(register),
            }
        })
    }

    /// Adds a group's sums, times the scales of the registers 0 and 1, and of 2 and 3.
    #[track_caller]
    fn add_scaled(self, group: [Val<'k, f32>; 4], scales: [[Val<'k, f32>; 2]; 2]) {
        let own = self.chain(0).registers();
        for (register, sum) in (0u32..).zip(group) {
            let scale = scales[register as usize / 2][register as usize % 2];
            own.set(register, sum.fma(scale, own.get(register)));
        }
    }

    /// The sum over the chains: registers `4·atom` to `4·atom + 3` are those of its fragment.
    #[track_caller]
    pub fn get(self, register: u32) -> Val<'k, f32> {
        (1..self.chains).fold(self.chain(0).get(register), |sum, chain| sum + self.chain(chain).get(register))
    }
}
