//! Stages of codes ahead of their products: a lane's words of the next stage come from shared memory while those of this one are multiplied.
//!
//! A stage is waited for, read and given back by all warps at the same time. Were it read where it is multiplied, the pipe that takes codes out of
//! words would stand still meanwhile.

use core::cell::RefCell;

use tilewright_codegen::build::{Val, Var};

use super::sums::{Operands, Sums, Weights, chains, code_tiles, store};
use crate::gemv::product::{Chains, CodeTile, multiply_codes};
use crate::gemv::{Codes, Unit};
use crate::warps::ConsumerWarps;

/// Tiles of a warp that are under way together, where units are that small.
const TILES: u32 = 4;

/// Units of codes, each times the same operand.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'a, 'k> {
    pub team: ConsumerWarps<'k>,
    pub unit: Unit,
    pub codes: Codes,
    pub weights: &'a dyn Weights<'k>,
    pub operands: Operands<'a, 'k>,
    pub sums: Sums<'k>,
}

/// A lane's words of the stages that come next.
struct Words<'k> {
    words: Vec<Var<'k, u32>>,
    /// Tiles of these words, unit by unit.
    tiles: Vec<Vec<CodeTile<'k>>>,
}

impl<'k> Words<'k> {
    fn new(tiles: Vec<Vec<CodeTile<'k>>>) -> Words<'k> {
        let words = RefCell::new(Vec::new());
        let keep = |word: Val<'k, u32>| {
            words.borrow_mut().push(word.builder().var(word));
            word
        };
        tiles.iter().flatten().for_each(|tile| drop(tile.map(&keep)));
        Words { words: words.into_inner(), tiles }
    }

    fn get(&self) -> Vec<Vec<CodeTile<'k>>> {
        let words = RefCell::new(self.words.iter());
        let kept = |word: Val<'k, u32>| words.borrow_mut().next().map_or(word, |kept| kept.get());
        self.tiles.iter().map(|tiles| tiles.iter().map(|tile| tile.map(&kept)).collect()).collect()
    }

    fn set(&self, tiles: &[Vec<CodeTile<'k>>]) {
        let words = RefCell::new(self.words.iter());
        let set = |word: Val<'k, u32>| {
            words.borrow_mut().next().into_iter().for_each(|kept| kept.set(word));
            word
        };
        tiles.iter().flatten().for_each(|tile| drop(tile.map(&set)));
    }
}

impl<'k> Ahead<'_, 'k> {
    /// Units whose products are under way together.
    pub fn together(unit: Unit) -> u32 {
        if unit.stages() == 1 && 2 * unit.per_warp() <= TILES { 2 } else { 1 }
    }

    /// The products of units, which are the next of the ring, into the slots `first..last` of the sums: a multiple of [`Ahead::together`].
    pub fn products(self, [first, last]: [Val<'k, u32>; 2]) {
        let (k, together) = (self.team.k, Ahead::together(self.unit));
        k.when(first.lt(last), || {
            let words = Words::new(self.next(&|| ()));
            let last = last - together;
            k.for_step(first, last, together, |slot| self.units(&words, slot, true));
            self.units(&words, last, false);
        });
    }

    /// The tiles of the next stages, which come while something else is done.
    fn next(self, meanwhile: &dyn Fn()) -> Vec<Vec<CodeTile<'k>>> {
        let loaded = RefCell::new(Vec::new());
        self.weights.words(Ahead::together(self.unit), &|stages| {
            let tiles = |&stage| code_tiles(self.team.k, (self.unit, self.codes), self.operands.side, stage).collect();
            let tiles: Vec<Vec<CodeTile>> = stages.iter().map(tiles).collect();
            let words = tiles.iter().flatten().flat_map(CodeTile::loads).collect();
            *loaded.borrow_mut() = tiles;
            meanwhile();
            words
        });
        loaded.into_inner()
    }

    /// The products of the units that are under way together, whose first stages are in `words`; `more`: whether there are units behind.
    fn units(self, words: &Words<'k>, slot: Val<'k, u32>, more: bool) {
        let Ahead { team, unit, codes, operands, sums, .. } = self;
        let all: Vec<_> = (0..Ahead::together(unit)).map(|_| Chains::new(team.k, 1, chains(unit))).collect();
        for stage in 0..unit.stages() {
            let tiles = words.get();
            let multiply = || {
                for (tiles, chains) in tiles.iter().zip(&all) {
                    operands.meet(team, unit, stage, |meeting| {
                        multiply_codes(team.k, (unit, codes), tiles.iter().cloned(), &meeting, *chains);
                    });
                }
            };
            if more || stage + 1 < unit.stages() {
                words.set(&self.next(&multiply));
            } else {
                multiply();
            }
        }
        let slots = (0u32..).map(|number| slot + number);
        slots.zip(all).for_each(|(slot, chains)| store(team, unit, operands, (sums, slot), chains));
    }
}
