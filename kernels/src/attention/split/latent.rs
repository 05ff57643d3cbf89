//! Attention of many heads to one key of a token, whose first dimensions are its value.
//!
//! Multi-head latent attention with absorbed products (DeepSeek-V2, 2024) decodes so: a token's row
//! of 576 numbers is read once, and serves all heads as key and as value. A tile of 16 tokens lies
//! in shared memory. Warps share the dimensions of the scores, and add them up there; then each has
//! the whole weights of a tile, and multiplies them with columns of the values of its own:
//!
//! | step | a warp's part | operands |
//! |---|---|---|
//! | scores, 16 heads × 16 tokens | every n-th 16 dimensions | queries and keys by `ldmatrix` |
//! | weights | all | sums of the warps' scores |
//! | results, 16 heads × columns | consecutive columns | weights from registers, values by `ldmatrix`, transposed |
//!
//! Queries and weights are multiplied in two parts of bf16 where they are
//! [exact](LatentForm::exact).

use half::bf16;
use std::f32::consts::LOG2_E;
use tilewright_codegen::build::{Ptr, Shared, Val, Var};

use super::merge::SplitPart;
use super::{HeadCounts, SplitAttention};
use crate::attention::AttentionError;
use crate::attention::merge::PartialAttention;
use crate::attention::scores::ScoreModifier;
use crate::attention::warp::{WarpA, sums};
use crate::gemv::task::LinearScratch;
use crate::kv::PoolArray;
use crate::mma::{Accumulator, PitchedRows};
use crate::tile::{RegisterTensor, narrow};
use crate::warps::ConsumerWarps;

/// Tokens of a tile, and heads of one: the m16 and the k16 of the MMA.
const TILE: u32 = 16;
/// Elements between rows of a tile, so that `ldmatrix` meets no bank twice.
const PAD: u32 = 8;
/// Numbers of the scores of a tile.
const SCORES: u32 = TILE * TILE;

/// How heads attend to latent vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LatentForm {
    /// Dimensions of a key, a multiple of 16.
    pub key: u32,
    /// Tiles of 16 heads that one pass over the tokens serves.
    pub tiles: u32,
    /// Whether what bf16 rounds off queries and weights is multiplied, too.
    pub exact: bool,
}

impl LatentForm {
    /// Parts of a number.
    const fn parts(self) -> u32 {
        if self.exact { 2 } else { 1 }
    }

    /// Elements of a row of a tile.
    const fn pitch(self) -> u32 {
        self.key + PAD
    }

    /// Warps that have scores.
    fn scoring(self, warps: u32) -> u32 {
        warps.min(self.key / TILE)
    }

    /// Bytes of shared memory for queries, a tile of tokens, and the warps' scores.
    ///
    /// ```
    /// use tilewright_kernels::attention::split::LatentForm;
    /// let form = LatentForm { key: 576, tiles: 1, exact: false };
    /// assert_eq!(form.scratch_bytes(8), 2 * 16 * 584 * 2 + 8 * 256 * 4);
    /// ```
    pub fn scratch_bytes(self, warps: u32) -> u32 {
        let rows = (self.parts() * self.tiles + 1) * TILE;
        rows * self.pitch() * 2 + self.tiles * self.scoring(warps) * SCORES * 4
    }

    /// Checks the extents.
    fn check(self, heads: HeadCounts) -> Result<(), AttentionError> {
        let value = heads.dim;
        let fits = self.key.is_multiple_of(TILE) && value.is_multiple_of(TILE) && (TILE..=self.key).contains(&value);
        if fits && self.tiles > 0 { Ok(()) } else { Err(AttentionError::Latent { key: self.key, value }) }
    }
}

/// Computes the split of every row, and merges the splits of those that it arrives last at, as
/// [`attention`](super::attention) does. `work.heads` has the dimensions of values, `work.keys` those
/// of keys, bf16; `work.values` is not read. Scores have no modifier. `scratch.operand` has
/// [`LatentForm::scratch_bytes`] bytes.
pub fn latent_attention<'k>(
    consumers: ConsumerWarps<'k>,
    scratch: LinearScratch<'k>,
    work: SplitAttention<'_, 'k>,
    form: LatentForm,
    counted: impl FnOnce(),
) {
    let k = consumers.k;
    let PoolArray::Float(_) = work.keys.pool else {
        return k.refuse(&AttentionError::Latent { key: form.key, value: work.heads.dim });
    };
    if let Err(error) = form.check(work.heads) {
        return k.refuse(&error);
    }
    if work.modifier != ScoreModifier::NONE {
        return k.refuse(&AttentionError::LatentModifier);
    }
    let group = work.heads.group();
    k.for_(0u32, work.rows, |row| {
        let row = work.first_row + row;
        let SplitPart { begin, end, single, .. } = work.part(row);
        for before in (0..group).step_by((form.tiles * TILE) as usize) {
            let count = (group - before).min(form.tiles * TILE);
            let first = work.kv_head * group + before;
            let tiles = count.div_ceil(TILE);
            let pass = LatentPass { consumers, work, form, tiles, row, begin, end, single, first, count };
            let idle = || k.when(work.split.eq(0), || work.store_idle(consumers, row, first, count));
            k.if_else(begin.lt(end), || pass.run(scratch), idle);
        }
    });
    work.arrive(consumers, scratch, counted);
}

/// A pass over the tokens for some tiles of heads.
#[derive(Clone, Copy)]
struct LatentPass<'f, 'k> {
    consumers: ConsumerWarps<'k>,
    work: SplitAttention<'f, 'k>,
    form: LatentForm,
    /// Tiles of heads.
    tiles: u32,
    row: Val<'k, u32>,
    begin: Val<'k, u32>,
    end: Val<'k, u32>,
    single: Val<'k, bool>,
    /// The first query head, and how many there are.
    first: Val<'k, u32>,
    count: u32,
}

/// Where a pass keeps queries, tokens and scores.
#[derive(Clone, Copy)]
struct LatentMemory<'k> {
    /// Parts of queries: rows of all tiles of heads, then what is rounded off them.
    queries: Ptr<'k, Shared, bf16>,
    tokens: Ptr<'k, Shared, bf16>,
    /// Scores of each tile of heads and warp.
    scores: Ptr<'k, Shared, f32>,
}

/// What a warp carries from tile to tile, for a tile of heads: of the two rows of this lane the
/// largest score times log2 e and this lane's part of the sum; and the warp's columns.
struct LatentRunning<'k> {
    most: [Var<'k, f32>; 2],
    sum: [Var<'k, f32>; 2],
    /// Of sixteen columns each.
    out: Vec<Accumulator<'k, f32>>,
}

impl<'k> LatentPass<'_, 'k> {
    fn memory(self, scratch: LinearScratch<'k>) -> LatentMemory<'k> {
        let LatentPass { form, .. } = self;
        let rows = form.parts() * form.tiles * TILE;
        let tokens = scratch.operand.at(rows * form.pitch());
        let scores = scratch.operand.at((rows + TILE) * form.pitch()).cast();
        LatentMemory { queries: scratch.operand, tokens, scores }
    }

    /// Sixteens of columns of a warp.
    fn pairs(self) -> u32 {
        (self.work.heads.dim / 16).div_ceil(self.consumers.warps)
    }

    fn run(self, scratch: LinearScratch<'k>) {
        let LatentPass { consumers, .. } = self;
        let k = consumers.k;
        let memory = self.memory(scratch);
        // Earlier passes have ended with a barrier.
        self.bring_queries(memory);
        let running: Vec<LatentRunning<'k>> = (0..self.tiles)
            .map(|_| LatentRunning {
                most: [0, 1].map(|_| k.var(f32::MIN)),
                sum: [0, 1].map(|_| k.var(0.0f32)),
                out: (0..self.pairs()).map(|_| sums(k, 2 * 8)).collect(),
            })
            .collect();
        k.for_step(self.begin, self.end, TILE, |start| {
            self.bring_tokens(memory, start);
            consumers.sync();
            self.score(memory);
            consumers.sync();
            for (tile, running) in (0..).zip(&running) {
                self.add(memory, start, tile, running);
            }
            // The next tile of tokens lies where this one does.
            consumers.sync();
        });
        for (tile, running) in (0..).zip(&running) {
            self.store(tile, running);
        }
    }

    /// Queries times the scale and log2 e, two dimensions a thread; rows beyond the last head are 0.
    fn bring_queries(self, memory: LatentMemory<'k>) {
        let LatentPass { consumers, work, form, count, .. } = self;
        let half = form.key / 2;
        let q = work.q.from((self.row * work.heads.heads + self.first) * form.key);
        let factor = consumers.k.lit(work.scale * LOG2_E);
        let below = form.tiles * TILE * form.pitch();
        consumers.each(self.tiles * TILE * half, |pair| {
            let (head, d) = (pair / half, pair % half * 2);
            let [a, b] = q.load_run::<2>(head.min(count - 1) * form.key + d);
            let [a, b] = [a, b].map(|x| head.lt(count).select(x * factor, 0.0f32));
            let (word, [rest_a, rest_b]) = narrow(a, b);
            let at = memory.queries.at(head * form.pitch() + d);
            at.cast::<u32>().store(word);
            if form.exact {
                at.at(below).cast::<u32>().store(narrow(rest_a, rest_b).0);
            }
        });
    }

    /// A tile of tokens, eight dimensions a thread; those beyond the last are 0.
    fn bring_tokens(self, memory: LatentMemory<'k>, start: Val<'k, u32>) {
        let LatentPass { consumers, work, form, .. } = self;
        let k = consumers.k;
        let eights = form.key / 8;
        consumers.each(TILE * eights, |piece| {
            let (number, d) = (piece / eights, piece % eights * 8);
            let token = start + number;
            let there = token.min(self.end - 1);
            let place = work.keys.dimension(work.keys.token(k.lit(0), self.row, there), there, d);
            let words: [Val<u32>; 4] = work.keys.bytes_from(place).cast::<u32>().load_vec();
            let words = words.map(|word| token.lt(self.end).select(word, 0u32));
            memory.tokens.at(number * form.pitch() + d).cast::<u32>().store_vec(words);
        });
    }

    /// The warp's part of the scores of all heads.
    fn score(self, memory: LatentMemory<'k>) {
        let LatentPass { consumers, form, .. } = self;
        let k = consumers.k;
        let scoring = form.scoring(consumers.warps);
        let rows = |at| PitchedRows { at, pitch: form.pitch() };
        k.when(k.warp().lt(scoring), || {
            let scores: Vec<_> = (0..self.tiles).map(|_| sums(k, TILE)).collect();
            k.for_step(k.warp(), form.key / TILE, scoring, |step| {
                let keys = rows(memory.tokens).b(step * TILE);
                for (tile, scores) in (0..).zip(&scores) {
                    for part in 0..form.parts() {
                        let first = (part * form.tiles + tile) * TILE * form.pitch();
                        scores.mma::<bf16>(&[rows(memory.queries.at(first)).a(step * TILE)], &keys);
                    }
                }
            });
            let [row, column] = [k.lane() / 4, k.lane() % 4 * 2];
            for (tile, scores) in (0..).zip(&scores) {
                let to = memory.scores.at((k.warp() + tile * scoring) * SCORES + row * TILE + column);
                for (half, eight) in [(0u32, 0u32), (0, 1), (1, 0), (1, 1)] {
                    let pair = [0, 1].map(|i| scores.get(4 * eight + 2 * half + i));
                    to.at(8 * half * TILE + 8 * eight).store_vec(pair);
                }
            }
        });
    }

    /// Adds a tile of tokens to the results of a tile of heads.
    fn add(self, memory: LatentMemory<'k>, start: Val<'k, u32>, tile: u32, running: &LatentRunning<'k>) {
        let LatentPass { consumers, form, .. } = self;
        let k = consumers.k;
        let scoring = form.scoring(consumers.warps);
        let [row, column] = [k.lane() / 4, k.lane() % 4 * 2];
        let from = memory.scores.at(tile * scoring * SCORES).at(row * TILE + column);
        let mut weights = Vec::new();
        let mut factors = Vec::new();
        for half in 0..2u32 {
            let mut scores = Vec::new();
            for eight in 0..2u32 {
                let at = from.at(8 * half * TILE + 8 * eight);
                let pair = (0..scoring).fold([k.lit(0.0f32); 2], |[a, b], warp| {
                    let [x, y]: [Val<f32>; 2] = at.at(warp * SCORES).load_vec();
                    [a + x, b + y]
                });
                for (i, score) in (0u32..).zip(pair) {
                    let token = start + (column + (8 * eight + i));
                    scores.push(token.lt(self.end).select(score, f32::NEG_INFINITY));
                }
            }
            let most = scores.iter().fold(running.most[half as usize].get(), |most, &score| most.max(score));
            let most = [1u32, 2].into_iter().fold(most, |most, bits| most.max(most.shfl_bfly(bits)));
            let factor = (running.most[half as usize].get() - most).ex2();
            let of_row: Vec<_> = scores.into_iter().map(|score| (score - most).ex2()).collect();
            let sum = running.sum[half as usize].get() * factor;
            running.sum[half as usize].set(of_row.iter().fold(sum, |sum, &weight| sum + weight));
            running.most[half as usize].set(most);
            weights.push(of_row);
            factors.push(factor);
        }
        // Registers of the A operand: rows, then rows 8 on; then the columns 8 on of both.
        let mut parts = [Vec::new(), Vec::new()];
        for eight in 0..2 {
            for of_row in &weights {
                let (word, [rest_a, rest_b]) = narrow(of_row[2 * eight], of_row[2 * eight + 1]);
                parts[0].push(word);
                parts[1].push(narrow(rest_a, rest_b).0);
            }
        }
        let parts: Vec<WarpA<'k>> = parts
            .into_iter()
            .take(form.parts() as usize)
            .map(|words| RegisterTensor::from_registers(|i| words[i]))
            .collect();
        let tokens = PitchedRows { at: memory.tokens, pitch: form.pitch() };
        for (pair, out) in (0..).zip(&running.out) {
            self.columns(pair, &|first| {
                for at in 0..8 {
                    out.registers().set(at, out.get(at) * factors[(at % 4 / 2) as usize]);
                }
                let values = tokens.b_across(first);
                parts.iter().for_each(|weights| out.mma::<bf16>(std::slice::from_ref(weights), &values));
            });
        }
    }

    /// Calls `body` with the first column of the warp's `pair`-th sixteen, if there are such.
    fn columns(self, pair: u32, body: &dyn Fn(Val<'k, u32>)) {
        let LatentPass { consumers, work, .. } = self;
        let k = consumers.k;
        let first = (k.warp() * self.pairs() + pair) * 16;
        match self.pairs() * consumers.warps * 16 == work.heads.dim {
            true => body(first),
            false => k.when(first.lt(work.heads.dim), || body(first)),
        }
    }

    /// Stores the results of a tile of heads, two elements at a time.
    fn store(self, tile: u32, running: &LatentRunning<'k>) {
        let LatentPass { consumers, work, count, .. } = self;
        let k = consumers.k;
        for half in 0..2u32 {
            let sum = running.sum[half as usize].get();
            let sum = [1u32, 2].into_iter().fold(sum, |sum, bits| sum + sum.shfl_bfly(bits));
            let max = running.most[half as usize].get();
            let head = k.lane() / 4 + (tile * TILE + 8 * half);
            k.when(head.lt(count), || {
                for (pair, out) in (0..).zip(&running.out) {
                    self.columns(pair, &|first| {
                        for eight in 0..2 {
                            let acc = [0, 1].map(|i| out.get(4 * eight + 2 * half + i));
                            let whole = PartialAttention { max, sum, acc };
                            let column = first + (k.lane() % 4 * 2 + 8 * eight);
                            work.store_pair(self.single, [self.row, self.first + head], column, whole);
                        }
                    });
                }
            });
        }
    }
}
