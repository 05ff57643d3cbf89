//! Register prefetch of codes: a lane's words of the next stage are loaded from shared memory while
//! those of this one are multiplied.
//!
//! A stage is waited for, read and released by all warps at the same time. Were it read where it is
//! multiplied, the pipe that takes codes out of words would stand still meanwhile.

use core::cell::RefCell;

use tilewright_codegen::build::{Val, Var};

use super::products::{Products, chains, code_tiles};
use crate::gemv::product::{Chains, multiply_codes};
use crate::weights::{CodeTile, Codes, Strip};

/// Strips of codes, each times the same operand.
#[derive(Clone, Copy)]
pub(super) struct CodePrefetch<'a, 'k> {
    /// Products of the strips.
    pub of: Products<'a, 'k>,
    /// Form of the codes.
    pub codes: Codes,
}

/// A lane's words of the stages that come next.
struct PrefetchedWords<'k> {
    words: Vec<Var<'k, u32>>,
    /// Tiles of these words.
    tiles: Vec<CodeTile<'k>>,
}

/// Tiles of what `word` gives for each of these tiles' words, always in the same order.
fn each_word<'k>(tiles: &[CodeTile<'k>], word: &mut dyn FnMut(Val<'k, u32>) -> Val<'k, u32>) -> Vec<CodeTile<'k>> {
    tiles.iter().map(|tile| tile.map(word)).collect()
}

impl<'k> PrefetchedWords<'k> {
    fn new(tiles: Vec<CodeTile<'k>>) -> PrefetchedWords<'k> {
        let mut words = Vec::new();
        let tiles = each_word(&tiles, &mut |word| {
            words.push(word.builder().var(word));
            word
        });
        PrefetchedWords { words, tiles }
    }

    fn get(&self) -> Vec<CodeTile<'k>> {
        let mut words = self.words.iter();
        each_word(&self.tiles, &mut |word| words.next().map_or(word, |kept| kept.get()))
    }

    fn set(&self, tiles: &[CodeTile<'k>]) {
        let mut words = self.words.iter();
        each_word(tiles, &mut |word| {
            words.next().into_iter().for_each(|kept| kept.set(word));
            word
        });
    }
}

impl<'k> CodePrefetch<'_, 'k> {
    /// Whether a strip's words are prefetched: its codes have 4 bits, it has `most` stages at
    /// most, and a warp more than two tiles of one.
    pub fn is_for(strip: Strip, most: u32) -> bool {
        let four_bits = strip.codes().is_some_and(|codes| codes.code.bits() == 4);
        four_bits && strip.stages() <= most && strip.per_warp() > 2
    }

    /// The products of strips, which are the next of the ring, into the slots `first..last` of the
    /// sums.
    pub fn products(self, [first, last]: [Val<'k, u32>; 2]) {
        let k = self.of.consumers.k;
        k.when(first.lt(last), || {
            let words = PrefetchedWords::new(self.next(&|| ()));
            let last = last - 1;
            k.for_(first, last, |slot| self.strip(&words, slot, true));
            self.strip(&words, last, false);
        });
    }

    /// The tiles of the next stage, which come while something else is done.
    fn next(self, meanwhile: &dyn Fn()) -> Vec<CodeTile<'k>> {
        let loaded = RefCell::new(Vec::new());
        let Products { consumers, strip, weights, operands, .. } = self.of;
        weights.stage(&|stage| {
            let tiles = code_tiles(consumers.k, strip, self.codes, operands.side, stage);
            *loaded.borrow_mut() = tiles.collect();
            meanwhile();
        });
        loaded.into_inner()
    }

    /// The products of a strip whose first stage is in `words`; `more`: whether there are further
    /// strips.
    fn strip(self, words: &PrefetchedWords<'k>, slot: Val<'k, u32>, more: bool) {
        let Products { consumers, strip, operands, .. } = self.of;
        let chains = Chains::new(consumers.k, 1, chains(strip));
        for stage in 0..strip.stages() {
            let tiles = words.get();
            let multiply = || {
                operands.meet(consumers, strip, stage, |meeting| {
                    multiply_codes(consumers.k, strip, self.codes, tiles.iter().cloned(), &meeting, chains);
                });
            };
            if more || stage + 1 < strip.stages() {
                words.set(&self.next(&multiply));
            } else {
                multiply();
            }
        }
        self.of.store(slot, chains);
    }
}
