//! A lane's keys and values: how many of a token it loads at a time, and the operands that it makes
//! of them.
//!
//! Of bf16 the words are operands as they lie, and what an operand rounds off a query or a weight
//! is multiplied too. Of e4m3 codes become f16, which holds every code: queries and weights have 11
//! bits then, of weights what is rounded off is left out.

use half::{bf16, f16};
use tilewright_codegen::build::{Builder, RegArray, Val};
use tilewright_codegen::ir::attr::Fp8;

use super::{PagedPool, PoolType};
use crate::kv::TokenRow;
use crate::mma::Accumulator;
use crate::tile::{narrow, narrow_f16};

/// The distribution of keys and values over lanes.
#[derive(Clone, Copy)]
pub(crate) struct KvLanes {
    /// Dimensions of a head.
    pub dim: u32,
    /// Dimensions of a token that a lane loads at a time.
    pub run: u32,
    /// Whether they are codes.
    codes: bool,
}

impl KvLanes {
    /// The lanes for a pool.
    pub fn of(pages: PagedPool<'_>) -> KvLanes {
        KvLanes { dim: pages.dim, run: pages.run(), codes: pages.pool.pool_type() == PoolType::E4m3 }
    }

    /// Dimensions of the runs of a column of lanes, of which the first MMA takes a token.
    pub fn width(self) -> u32 {
        4 * self.run
    }

    /// Runs of as many dimensions, in the order of the first MMA.
    pub fn runs(self) -> u32 {
        self.dim.div_ceil(self.width())
    }

    /// Dimensions of the runs of a row of lanes, of which the second MMA takes a token.
    pub fn height(self) -> u32 {
        8 * self.run
    }

    /// Runs of as many dimensions, in the order of the second.
    pub fn rows(self) -> u32 {
        self.dim.div_ceil(self.height())
    }

    /// Records `then` for the dimension `start + offset`, of lanes that cover `width` dimensions,
    /// where a head has it.
    pub fn guarded<'k>(self, start: u32, width: u32, offset: Val<'k, u32>, then: impl FnOnce(Val<'k, u32>)) {
        let at = offset + start;
        if start + width <= self.dim { then(at) } else { at.builder().moving().when(at.lt(self.dim), || then(at)) }
    }

    /// Elements of a word.
    pub fn per_word(self) -> u32 {
        if self.codes { 4 } else { 2 }
    }

    /// Words of a run.
    pub fn words(self) -> u32 {
        self.run / self.per_word()
    }

    /// Zeros for the sums of an MMA.
    pub fn sums<'k>(self, k: &'k Builder) -> Accumulator<'k, f32> {
        if self.codes { Accumulator::warp::<f16>(k, 1, 1) } else { Accumulator::warp::<bf16>(k, 1, 1) }
    }

    /// Multiplies.
    pub fn mma<'k>(self, sums: &Accumulator<'k, f32>, a: [Val<'k, u32>; 4], b: [Val<'k, u32>; 2]) {
        match self.codes {
            true => sums.mma::<f16>(&[a.into()], &[b.into()]),
            false => sums.mma::<bf16>(&[a.into()], &[b.into()]),
        }
    }

    /// Rounds two numbers to a word of an operand, and returns the remainders.
    pub fn narrow<'k>(self, a: Val<'k, f32>, b: Val<'k, f32>) -> (Val<'k, u32>, [Val<'k, f32>; 2]) {
        if self.codes { narrow_f16(a, b, |rest| rest) } else { narrow(a, b) }
    }

    /// Whether what the rounding left of weights is multiplied too.
    pub fn multiplies_rest(self) -> bool {
        !self.codes
    }

    /// The `pair`-th two dimensions of a run of keys.
    pub fn key<'k>(self, run: &RegArray<'k, u32>, pair: u32) -> Val<'k, u32> {
        match self.codes {
            true => widen(run.get(pair / 2))[pair as usize % 2],
            false => run.get(pair),
        }
    }

    /// The `pair`-th two dimensions of the values of four tokens, as rows of the A operand whose
    /// columns are tokens.
    pub fn values<'k>(self, tokens: &[RegArray<'k, u32>; 4], pair: u32) -> [Val<'k, u32>; 4] {
        if self.codes {
            // Bytes of two tokens next to each other, then two dimensions of them.
            let two = |at: usize| {
                let selector = if pair.is_multiple_of(2) { 0x5140 } else { 0x7362 };
                widen(tokens[at].get(pair / 2).prmt(tokens[at + 1].get(pair / 2), selector))
            };
            let [a, b] = two(0);
            let [c, d] = two(2);
            return [a, b, c, d];
        }
        let word = |at: usize| tokens[at].get(pair);
        let pair = |at: usize, selector: u32| word(at).prmt(word(at + 1), selector);
        [pair(0, 0x5410), pair(0, 0x7632), pair(2, 0x5410), pair(2, 0x7632)]
    }
}

/// The four codes of a word as words of two f16.
fn widen(codes: Val<'_, u32>) -> [Val<'_, u32>; 2] {
    let (low, high) = codes.split();
    [low, high].map(|two| two.halves_of_fp8(Fp8::E4M3).bits())
}

impl<'k> TokenRow<'k> {
    /// The row of a token of a block that begins there, in elements.
    pub fn of_block(first: Val<'k, u32>, lanes: KvLanes, token: Val<'k, u32>) -> TokenRow<'k> {
        TokenRow::new(first + token * lanes.dim, [lanes.dim, lanes.run], token)
    }
}
