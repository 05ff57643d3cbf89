//! Attention of one kv head's queries over a split of the tokens: from the ring what the step
//! before left, straight from the pages what this step writes.
//!
//! A warp takes blocks of 16 tokens and keeps its own running maximum; the warps' results are
//! merged at the end. Scores are `q·kᵀ` with queries as the A operand (rows 0 to 7: heads, rows 8
//! to 15: what their type rounds off them) and keys as B, a run of a token for each lane: sixteen
//! bytes, or eight of short rows of codes. The output is taken transposed, `vᵀ·pᵀ`: scores leave
//! the first MMA in the registers in which the second wants p as its B operand, and v needs no more
//! than its tokens paired by byte permutations. Nothing of K or V is moved in shared memory. Codes
//! become f16 in registers (`lanes`); the scale of keys is part of the queries' factor, that of
//! values is multiplied into the merged result.

use crate::attention::scores::{SeenEnd, SeenTokens};
use crate::attention::{ScoreFunction, ScorePlace};
use tilewright_codegen::build::Val;

use super::blocks::{Brought, WarpState};
use super::merge::SplitPart;
use crate::attention::merge::WarpParts;
use crate::attention::softmax::{Rescaling, RowUpdate};
use crate::attention::split::SplitAttention;
use crate::attention::split::pass::{AttentionPass, Running};
use crate::attention::split::problem::TOGETHER;
use crate::gemv::task::LinearScratch;
use crate::kv::{KvLanes, TokenBlock};
use crate::ring::Stages;
use crate::warps::ConsumerWarps;

/// Computes the split of every row, and merges the splits of those that it arrives last at. `ring`
/// has the stages of the tokens that are streamed, row by row.
///
/// Thread 0 calls `counted` once all splits of the task are counted: what is still to come are
/// stores of merged results.
pub fn attention<'k>(
    consumers: ConsumerWarps<'k>,
    scratch: LinearScratch<'k>,
    ring: &dyn Stages<'k>,
    work: SplitAttention<'_, 'k>,
    counted: impl FnOnce(),
) {
    let k = consumers.k;
    if let Err(error) = work.check() {
        return k.refuse(&error);
    }
    k.for_(0u32, work.rows, |row| {
        let row = work.first_row + row;
        let SplitPart { begin, end, single, is_last, first_seen, row_tokens: tokens, .. } = work.part(row);
        let streamed = work.streamed.map(|streamed| (streamed, streamed.tokens([begin, end], row)));
        for first in (0..work.heads.group()).step_by(TOGETHER as usize) {
            let count = (work.heads.group() - first).min(TOGETHER);
            let first = work.kv_head * work.heads.group() + first;
            let pass = AttentionPass {
                consumers,
                work,
                row,
                begin,
                end,
                tokens,
                is_last,
                first_seen,
                single,
                first,
                count,
                streamed,
            };
            k.if_else(begin.lt(end), || pass.run(scratch, ring), || pass.idle(scratch));
        }
    });
    work.arrive(consumers, scratch, counted);
}

impl<'k> AttentionPass<'_, 'k> {
    /// The distribution of keys and values over lanes.
    pub(super) fn lanes(self) -> KvLanes {
        KvLanes::of(self.work.keys)
    }

    /// Processes the tokens and stores their result. The next pass synchronises on its queries
    /// before the warps' results overwrite this memory.
    fn run(self, scratch: LinearScratch<'k>, ring: &dyn Stages<'k>) {
        let running = match self.work.selected {
            None => self.all(scratch, ring),
            Some(selected) => self.chosen(scratch, selected),
        };
        let parts = self.work.heads.parts(self.consumers, self.count, scratch.operand.cast());
        running.store(self, &parts);
        self.consumers.sync();
        self.merge(&parts);
    }

    /// Zeros as an idle row's result, by the first split, after it has polled the packets of the
    /// current token as other rows do.
    fn idle(self, scratch: LinearScratch<'k>) {
        let AttentionPass { consumers, work, .. } = self;
        consumers.k.when(work.split.eq(0), || {
            if let Some(newest) = work.newest {
                self.queries(scratch);
                self.arriving(newest, consumers.k.lit(true), || ());
                consumers.sync();
            }
            work.store_idle(consumers, self.row, self.first, self.count);
        });
    }

    /// Merges the warps' parts and stores them, two elements for each thread.
    fn merge(self, parts: &WarpParts<'k>) {
        let dim = parts.dim;
        self.consumers.each(self.count * dim / 2, |pair| {
            let head = pair / (dim / 2);
            let d = pair % (dim / 2) * 2;
            let mut whole = parts.merged(head, d);
            if let Some(scale) = self.scale_of(self.work.values) {
                whole.acc = whole.acc.map(|sum| sum * scale);
            }
            self.work.store_pair(self.single, [self.row, self.first + head], d, whole);
        });
    }

    /// The state of a warp before its first block. The maximum starts at the least finite number: a
    /// row whose scores are all −∞ then gets weights of `2^(−∞ − MIN)` = 0 instead of NaN.
    pub fn running(self) -> Running<'k> {
        let k = self.consumers.k;
        Running {
            most: k.var(f32::MIN),
            sum: k.var(0.0f32),
            out: (0..self.lanes().rows() * self.lanes().run / 2).map(|_| self.lanes().sums(k)).collect(),
        }
    }

    /// Processes a block.
    pub(super) fn block(
        self,
        Brought { block, first, hidden, last, then }: Brought<'_, 'k>,
        WarpState { queries, running }: WarpState<'_, 'k>,
    ) {
        let k = self.consumers.k;
        let column = self.consumers.k.lane() % 4;
        let lanes = self.lanes();
        let TokenBlock { keys, values, .. } = &block;
        let function = ScoreFunction::constant(k, self.work.modifier).with(k, self.work.custom);
        let head = first.map(|_| self.first + (k.lane() / 4).min(self.count - 1));
        let seen = SeenTokens { first: hidden, end: last.map(SeenEnd::With) };
        let mut scores = Vec::new();
        for (half, keys) in [0u32, 8].into_iter().zip(keys) {
            let acc = lanes.sums(k);
            for ([high, low], run) in queries.iter().zip(keys) {
                for at in (0..high.len()).step_by(2) {
                    let key = [lanes.key(run, at as u32), lanes.key(run, at as u32 + 1)];
                    let query = [high[at], low[at], high[at + 1], low[at + 1]];
                    lanes.mma(&acc, query, key);
                }
            }
            for i in 0..2u32 {
                let place = || match first.zip(head) {
                    Some((first, head)) => ScorePlace {
                        sequence: self.row,
                        head,
                        query: self.tokens - 1,
                        token: first + (column * 2 + (half + i)),
                        tokens: self.tokens,
                    },
                    None => unreachable!("a block has a first token where there is a function of scores"),
                };
                let score = function.apply_at(place, acc.get(i) + acc.get(i + 2));
                scores.push(seen.mask(|| column * 2 + (half + i), || score));
            }
        }
        then();
        let row = RowUpdate { scale: function.softmax_scale(), rescaling: Rescaling::EveryTile, masked: false };
        let over_lanes =
            |most: Val<'k, f32>| [1u32, 2].into_iter().fold(most, |most, bits| most.max(most.shfl_bfly(bits)));
        let mut p = Vec::new();
        let updated =
            row.update([running.most.get(), running.sum.get()], &scores, over_lanes, |_, weight| p.push(weight));
        running.most.set(updated.max);
        running.sum.set(updated.sum);

        let (p0, rest0) = lanes.narrow(p[0], p[1]);
        let (p1, rest1) = lanes.narrow(p[2], p[3]);
        let rest = lanes.multiplies_rest().then(|| [rest0, rest1].map(|[a, b]| lanes.narrow(a, b).0));
        let factors = [0u32, 4].map(|next| updated.factor.shfl_idx(column * 8 + next));
        for (values, out) in values.iter().zip(running.out.chunks(lanes.run as usize / 2)) {
            for (pair, out) in out.iter().enumerate() {
                (0..4).for_each(|i| out.registers().set(i, out.get(i) * factors[i as usize % 2]));
                let values = lanes.values(values, pair as u32);
                lanes.mma(out, values, [p0, p1]);
                rest.into_iter().for_each(|rest| lanes.mma(out, values, rest));
            }
        }
    }
}
