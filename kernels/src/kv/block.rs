//! A block of tokens of a head in the registers of a warp, wherever it lies: keys as the first MMA
//! takes them, values as the second.

use tilewright_codegen::build::{Builder, Ptr, RegArray, SpaceOf, Val};

use super::{KvLanes, TokenRow};

/// Tokens of a block: whole blocks come by stages.
pub(crate) const BLOCK: u32 = 16;

/// Maps a token of a block to its row.
pub(crate) type TokenRows<'f, 'k> = &'f dyn Fn(Val<'k, u32>) -> TokenRow<'k>;

/// A lane's run of a token's row, from dimension `start + offset` on.
#[derive(Clone, Copy)]
struct TokenRun<'k, S: SpaceOf> {
    /// Words of the pool, or of the stage, that has the row.
    pool: Ptr<'k, S, u32>,
    /// Place of the row.
    row: TokenRow<'k>,
    /// First dimension that the lanes cover together.
    start: u32,
    /// Dimensions that the lanes cover together.
    width: u32,
    /// Dimensions from `start` to the lane's own.
    offset: Val<'k, u32>,
}

/// A lane's keys and values of a block.
#[derive(Clone)]
pub struct TokenBlock<'k> {
    lanes: KvLanes,
    /// The words of keys by half of the tokens, then by run of dimensions.
    pub(crate) keys: [Vec<RegArray<'k, u32>>; 2],
    /// The words of values by 64 dimensions, then by token.
    pub(crate) values: Vec<[RegArray<'k, u32>; 4]>,
}

impl<'k> TokenBlock<'k> {
    /// A block without tokens, which has no registers.
    pub(crate) fn none(lanes: KvLanes) -> TokenBlock<'k> {
        TokenBlock { lanes, keys: [Vec::new(), Vec::new()], values: Vec::new() }
    }

    /// Registers for a block; zeros, which stay beyond the last dimension.
    pub(crate) fn new(k: &'k Builder, lanes: KvLanes) -> TokenBlock<'k> {
        let words = || k.regs(lanes.words(), 0u32);
        TokenBlock {
            lanes,
            keys: [0, 1].map(|_| (0..lanes.runs()).map(|_| words()).collect()),
            values: (0..lanes.rows()).map(|_| std::array::from_fn(|_| words())).collect(),
        }
    }

    /// Loads a block of tokens, whose rows lie so in keys and values.
    pub(crate) fn load<S: SpaceOf>(&self, [keys, values]: [Ptr<'k, S, u32>; 2], row: TokenRows<'_, 'k>) {
        self.load_keys(keys, row);
        self.load_values(values, row);
    }

    /// Loads the keys.
    pub(crate) fn load_keys<S: SpaceOf>(&self, keys: Ptr<'k, S, u32>, row: TokenRows<'_, 'k>) {
        let lanes = self.lanes;
        let lane = keys.builder().lane();
        let group = lane / 4;
        let column = lane % 4;
        let run = lanes.run;
        let width = lanes.width();
        for (half, to) in [0u32, 8].into_iter().zip(&self.keys) {
            let key = row(group + half);
            let of_run = |at| TokenRun { pool: keys, row: key, start: width * at, width, offset: column * run };
            to.iter().zip(0..).for_each(|(to, at)| self.words(to, of_run(at)));
        }
    }

    /// Loads the values.
    pub(crate) fn load_values<S: SpaceOf>(&self, values: Ptr<'k, S, u32>, row: TokenRows<'_, 'k>) {
        let lanes = self.lanes;
        let lane = values.builder().lane();
        let group = lane / 4;
        let column = lane % 4;
        let run = lanes.run;
        let height = lanes.height();
        let tokens = [0u32, 1, 8, 9].map(|of| row(column * 2 + of));
        for (to, at) in self.values.iter().zip(0..) {
            to.iter().zip(tokens).for_each(|(to, token)| {
                let pool = values;
                let row = token;
                self.words(to, TokenRun { pool, row, start: height * at, width: height, offset: group * run });
            });
        }
    }

    /// Loads a run of a token's row; beyond the last dimension nothing.
    fn words<S: SpaceOf>(
        &self,
        words: &RegArray<'k, u32>,
        TokenRun { pool, row, start, width, offset }: TokenRun<'k, S>,
    ) {
        let lanes = self.lanes;
        lanes.guarded(start, width, offset, |at| {
            let from = pool.at(row.at(at) / lanes.per_word());
            let loaded: Vec<Val<u32>> = match lanes.words() {
                2 => from.load_vec::<2>().into(),
                _ => from.load_vec::<4>().into(),
            };
            loaded.into_iter().zip(0..).for_each(|(word, i)| words.set(i, word));
        });
    }
}
