//! Zero-point accumulators: the initial sums of codes, which are the product of the activations
//! with the zero points of their groups.
//!
//! `Σ (c − z)·x = Σ c·x − z·Σ x`. The second sum is of the activations alone, so each warp makes it
//! once for the tiles that it multiplies, by the same instruction with a constant in place of the
//! codes: it stands in the registers where the sums of codes will be. Where zeros are a group's
//! own, the constant is 1.

use tilewright_codegen::build::{Builder, Ptr, Shared, Val};

use super::fragments::ActivationFragments;
use super::operand::of_two_steps;
use super::pass::StripPass;
use super::shared_bytes::ZERO_POINT_WORDS;
use crate::gemv::activations::Packing;
use crate::gemv::product::{Chains, Fragment, code_instructions, halved_instructions};
use crate::warps::ConsumerWarps;
use crate::weights::{Codes, Strip, Terms, WeightSide, convert};

/// Tiles whose products of zeros are on their way together.
const TILES_TOGETHER: u32 = 4;

/// Products of zeros, f32 `[tiles, parts, 16]`. Of weights as the A operand lanes 0 to 3 bring four
/// each (of two strips two each), as the B operand lanes 4·l two each: others have the same.
#[derive(Clone, Copy)]
pub(super) struct SharedZeroPoints<'k> {
    at: Ptr<'k, Shared, f32>,
    strip: Strip,
    codes: Codes,
    side: WeightSide,
    terms: Terms,
}

/// The zero-point accumulators of a task's codes.
pub(super) enum ZeroPoints<'k> {
    /// In shared memory.
    Shared(SharedZeroPoints<'k>),
    /// In registers, part by part of this warp's tiles: of weights as the A operand every lane has
    /// its own where they are made.
    Kept(Vec<[Val<'k, f32>; 4]>),
}

/// Most parts of tiles whose products of zeros are kept in registers, four of a lane each.
const KEPT: usize = 8;

impl<'k> ZeroPoints<'k> {
    /// The zero-point accumulators of a part of this warp's tile `number`, which is tile `tile` of
    /// the strip, in the registers of an accumulator.
    pub fn load(&self, number: u32, parts: u32, tile: Val<'k, u32>, part: u32, atom: u32) -> [Val<'k, f32>; 4] {
        match self {
            ZeroPoints::Shared(zero_points) => zero_points.load(tile, part, atom),
            ZeroPoints::Kept(all) => all[(number * parts + part) as usize],
        }
    }
}

impl<'k> SharedZeroPoints<'k> {
    /// The products that lie there; `None` where codes have no zeros.
    pub fn new(at: Ptr<'k, Shared, u8>, strip: Strip, side: WeightSide, terms: Terms) -> Option<SharedZeroPoints<'k>> {
        let codes = strip.codes().filter(|codes| codes.code.is_integer())?;
        Some(SharedZeroPoints { at: at.cast(), strip, codes, side, terms })
    }

    /// The products of some tiles of this warp, part by part: of their steps' fragments, as
    /// instructions take them. All are on their way together.
    fn products(self, k: &'k Builder, tiles: &[(Val<'k, u32>, Vec<Vec<Fragment<'k>>>)]) -> Vec<Vec<Chains<'k>>> {
        let SharedZeroPoints { strip, codes, side, terms, .. } = self;
        let number = if codes.zeros { 1 } else { codes.code.middle() as u32 };
        let [even, odd] = convert::minus(codes.code, number).map(|bits| k.lit(bits));
        let together = if side == WeightSide::Pair { 2 } else { side.steps() };
        let w = vec![[even, odd, even, odd]; together as usize];
        let parts = strip.parts(side);
        let product = |fragments: &[Vec<Fragment<'k>>]| {
            let two = side == WeightSide::Pair && fragments.iter().flatten().any(|x| x.high.is_some());
            let sums = Chains::new(k, if two { 2 } else { 1 }, side.chains());
            fragments.iter().for_each(|x| code_instructions(k, side, terms, &w, x, sums));
            sums
        };
        let halves = |fragments: &Vec<Fragment<'k>>| {
            let sums = [0, 1].map(|_| Chains::new(k, 1, 1));
            halved_instructions(k, terms, w[0], fragments, sums);
            sums
        };
        let of_tile = |(_, fragments): &(Val<'k, u32>, Vec<Vec<Fragment<'k>>>)| {
            if strip.is_halved() {
                return fragments.iter().flat_map(halves).collect();
            }
            let each = fragments.len() / parts as usize;
            fragments.chunks(each).map(product).collect()
        };
        tiles.iter().map(of_tile).collect()
    }

    /// Makes those of some tiles of this warp, by all of its lanes. The products of all tiles are
    /// on their way before the first is stored.
    pub fn make(self, consumers: ConsumerWarps<'k>, tiles: &[(Val<'k, u32>, Vec<Vec<Fragment<'k>>>)]) {
        let k = consumers.k;
        let side = self.side;
        let places = |tile: Val<'k, u32>| move |part: u32| self.part(tile, part);
        let of_tile = |((tile, _), sums): (&(Val<'k, u32>, Vec<_>), Vec<Chains<'k>>)| {
            (0u32..).map(places(*tile)).zip(sums).collect::<Vec<_>>()
        };
        let made: Vec<_> = tiles.iter().zip(self.products(k, tiles)).flat_map(of_tile).collect();
        for (at, sums) in made {
            let [a, b, c, d] = sums.of_side(side);
            match side {
                WeightSide::A => {
                    k.when(k.lane().lt(4), || at.at(k.lane() * 4).store_vec([a, b, c, d]));
                }
                WeightSide::Pair => {
                    let stored = |atom: u32| {
                        let [a, b, ..] = sums.atom(atom).of_side(side);
                        at.at(k.lane() * 2 + atom * 8).store_vec([a, b]);
                    };
                    k.when(k.lane().lt(4), || (0..sums.atoms()).for_each(stored));
                }
                WeightSide::B => {
                    k.when((k.lane() % 4).eq(0), || at.at(k.lane() / 2).store_vec([a, c]));
                }
                WeightSide::Half => {
                    k.when((k.lane() % 4).eq(0), || at.at(k.lane() / 2).store(a + c));
                }
            }
        }
    }

    /// The zero-point accumulators of a part of a tile that this warp computed, in the registers of
    /// an accumulator.
    pub fn load(self, tile: Val<'k, u32>, part: u32, atom: u32) -> [Val<'k, f32>; 4] {
        let at = self.part(tile, part);
        let lane = tile.builder().lane();
        match self.side {
            WeightSide::A => at.at(lane % 4 * 4).load_vec(),
            WeightSide::Pair => {
                let [first, second] = at.at(lane % 4 * 2 + atom * 8).load_vec();
                [first, second, first, second]
            }
            WeightSide::B => {
                let [first, second] = at.at(lane / 4 * 2).load_vec();
                [first, first, second, second]
            }
            WeightSide::Half => {
                let sum = at.at(lane / 4 * 2).load();
                let none = tile.builder().lit(0.0f32);
                [sum, sum, none, none]
            }
        }
    }

    fn part(self, tile: Val<'k, u32>, part: u32) -> Ptr<'k, Shared, f32> {
        self.at.at(tile * (self.strip.parts(self.side) * ZERO_POINT_WORDS) + part * ZERO_POINT_WORDS)
    }
}

impl<'k> StripPass<'k> {
    /// The zero-point accumulators. If activations are in shared memory or registers, each warp
    /// computes them here for its own tiles.
    pub(super) fn zero_points(self, x: &ActivationFragments<'k>, packing: Packing) -> Option<ZeroPoints<'k>> {
        let (StripPass { consumers, scratch, strip, a_operand, .. }, k) = (self, self.consumers.k);
        strip.codes()?;
        let at = scratch.operand.cast::<u8>().at(a_operand.zero_points_at(strip, packing));
        let zero_points = SharedZeroPoints::new(at, strip, self.side(packing), packing.terms())?;
        let all = strip.stages() * strip.per_warp();
        let steps = strip.steps();
        let of_tile = |number: Val<'k, u32>, fragments: &dyn Fn(Val<'k, u32>) -> Vec<Vec<Fragment<'k>>>| {
            let tile = strip.tile(k.warp(), number);
            (tile, fragments(tile * steps))
        };
        let some = |fragments: &dyn Fn(Val<'k, u32>) -> Vec<Vec<Fragment<'k>>>| {
            let together = |first: Val<'k, u32>, count: u32| {
                let tiles: Vec<_> = (0..count).map(|number| of_tile(first + number, fragments)).collect();
                zero_points.make(consumers, &tiles);
            };
            let rest = all % TILES_TOGETHER;
            k.for_step(0u32, all - rest, TILES_TOGETHER, |first| together(first, TILES_TOGETHER));
            together(k.lit(all - rest), rest);
        };
        let of_registers = |held: &[Vec<Fragment<'k>>]| {
            let meets = steps / self.side(packing).steps();
            let tile = |number: u32| strip.tile(k.warp(), k.lit(number));
            let tiles = (0u32..).zip(held.chunks(meets as usize));
            tiles.map(|(number, fragments)| (tile(number), fragments.to_vec())).collect::<Vec<_>>()
        };
        match x {
            ActivationFragments::Shared(lane) => {
                some(&|first| (0..steps).map(|step| lane.tile(first + step)).collect())
            }
            ActivationFragments::TwoSteps(from) => {
                some(&|first| (0..steps).step_by(2).map(|step| of_two_steps(*from, first + step)).collect());
            }
            ActivationFragments::Registers(held) => {
                let tiles = of_registers(held);
                if zero_points.side == WeightSide::A && tiles.len() * strip.parts(WeightSide::A) as usize <= KEPT {
                    let sums = zero_points.products(k, &tiles).into_iter().flatten();
                    return Some(ZeroPoints::Kept(sums.map(|sums| sums.of_side(WeightSide::A)).collect()));
                }
                tiles.chunks(TILES_TOGETHER as usize).for_each(|tiles| zero_points.make(consumers, tiles));
            }
            ActivationFragments::Reloaded(_) => {}
        }
        k.sync_warp();
        Some(ZeroPoints::Shared(zero_points))
    }
}
