//! The merges: of a block's warps in shared memory (`WarpParts`), of the blocks of a head by the
//! block that is done last.
//!
//! A part is a partial result of each query head.

use half::bf16;
use tilewright_codegen::build::{Bf16x2, Builder, Global, Ptr, RegArray, Shared, Val};
use tilewright_codegen::ir::attr::{AtomOp, AtomOrder, Scope};

use crate::attention::merge::{PartialAttention, WarpParts};
use crate::attention::scores::load_sink;
use crate::attention::softmax::Softmax;

/// Parts that are looked at together: their loads are in flight at once.
const TOGETHER: u32 = 8;

/// The parts of `warps` warps of `[depth, group]` query heads in the memory given, if its bytes are
/// enough.
pub(super) fn warp_parts<'k>(
    k: &'k Builder,
    warps: u32,
    [depth, group]: [u32; 2],
    free: Ptr<'k, Shared, f32>,
    bytes: u32,
) -> WarpParts<'k> {
    // Eight rows of the MMA a warp, and eight floats more than columns, so that lines begin in
    // other banks.
    let parts =
        WarpParts { k, memory: free, warps, heads: group, lines: group.div_ceil(8) * 8, dim: depth, pitch: depth + 8 };
    let memory = if parts.bytes() <= bytes { free } else { k.shared_aligned("parts", parts.bytes() / 4, 16) };
    WarpParts { memory, ..parts }
}

/// Stores the part of this warp.
fn write<'k>(parts: &WarpParts<'k>, softmax: Softmax<'k>, acc: RegArray<'k, f32>) {
    let k = parts.k;
    let lane = parts.k.lane();
    for half in 0..softmax.rows() {
        let line = parts.line(k.warp(), lane / 4 + 8 * half);
        let stats = [softmax.scaled_max(half), softmax.total(half)];
        for n in 0..parts.dim / 8 {
            let first = 4 * n + 2 * half;
            line.at(lane % 4 * 2).at(8 * n).store_vec([acc.get(first), acc.get(first + 1)]);
        }
        k.when((lane % 4).eq(0), || parts.store_stats(line, stats));
    }
}

/// The memory in which the blocks of a head merge their partial results.
#[derive(Clone, Copy)]
pub struct Splits<'k> {
    /// The number of blocks that share a head.
    pub count: Val<'k, u32>,
    /// Weighted sums of this head, `[splits, group, columns of a value]`.
    pub acc: Ptr<'k, Global, f32>,
    /// Maximum and sum of this head, `[splits, group, 2]`.
    pub stats: Ptr<'k, Global, f32>,
    /// Blocks of this head that are done: 0 before and after a launch.
    pub done: Ptr<'k, Global, u32>,
    /// Logits of the head's query heads that take part in their softmax, `[group]`, if there are any.
    pub sinks: Option<Ptr<'k, Global, f32>>,
    /// The result, `[group, columns of a value]`.
    pub out: Ptr<'k, Global, bf16>,
    /// The log-sum-exp of each query head, `[group]`, if it is stored.
    pub lse: Option<Ptr<'k, Global, f32>>,
}

impl<'k> Splits<'k> {
    /// Merges the warps' parts, and stores the result, or this block's part of it.
    pub(super) fn finish(
        &self,
        k: &'k Builder,
        warps: &WarpParts<'k>,
        softmax: Softmax<'k>,
        acc: RegArray<'k, f32>,
        split: Val<'k, u32>,
    ) {
        k.barrier();
        write(warps, softmax, acc);
        k.barrier();
        k.if_else(
            self.count.eq(1),
            || each_vector(warps, |row, column| self.store(warps, row, column, warps.merged(row, column))),
            || {
                each_vector(warps, |row, column| self.store_part(warps, split, row, column));
                self.merge_if_last(k, warps);
            },
        );
    }

    fn store_part(&self, warps: &WarpParts<'k>, split: Val<'k, u32>, row: Val<'k, u32>, column: Val<'k, u32>) {
        let part: PartialAttention<4> = warps.merged(row, column);
        let line = split * warps.heads + row;
        self.acc.at(line * warps.dim + column).store_vec(part.acc);
        warps.k.when(column.eq(0), || self.stats.at(line * 2).store_vec([part.max, part.sum]));
    }

    /// The block whose arrival is the last sees all parts: each block's stores come before its
    /// barrier, that before the release of its first thread, and the last arrival acquires them
    /// all.
    fn merge_if_last(&self, k: &'k Builder, warps: &WarpParts<'k>) {
        let last = k.shared::<u32>("last", 1);
        k.barrier();
        k.when(k.tid().eq(0), || {
            let before = self.done.atom(AtomOp::Inc, self.count - 1, AtomOrder::AcqRel(Scope::Gpu));
            last.store(before.eq(self.count - 1).select::<u32>(1u32, 0u32));
        });
        k.barrier();
        k.when(last.load().eq(1), || {
            each_vector(warps, |row, column| {
                let whole = self.read_all(k, warps, row, column);
                self.store(warps, row, column, whole);
            });
        });
    }

    fn read_all(
        &self,
        k: &'k Builder,
        warps: &WarpParts<'k>,
        row: Val<'k, u32>,
        column: Val<'k, u32>,
    ) -> PartialAttention<'k, 4> {
        let max = k.var(f32::NEG_INFINITY);
        let sum = k.var(0.0f32);
        let acc = k.regs(4, 0.0f32);
        let whole = || PartialAttention { max: max.get(), sum: sum.get(), acc: [0, 1, 2, 3].map(|i| acc.get(i)) };
        k.for_step(0, self.count, TOGETHER, |first: Val<'k, u32>| {
            let mut parts = vec![whole()];
            for number in 0..TOGETHER {
                let split = first + number;
                let line = split.min(self.count - 1) * warps.heads + row;
                let [max, sum] = self.stats.at(line * 2).load_vec::<2>();
                let max = split.lt(self.count).select::<f32>(max, f32::NEG_INFINITY);
                parts.push(PartialAttention { max, sum, acc: self.acc.at(line * warps.dim + column).load_vec::<4>() });
            }
            let merged = PartialAttention::merge(&parts);
            max.set(merged.max);
            sum.set(merged.sum);
            (0..4).zip(merged.acc).for_each(|(i, value)| acc.set(i, value));
        });
        whole()
    }

    fn store(&self, warps: &WarpParts<'k>, row: Val<'k, u32>, column: Val<'k, u32>, whole: PartialAttention<'k, 4>) {
        let whole = whole.with_sink(self.sinks.map(|sinks| load_sink(sinks.at(row))));
        let inverse = whole.sum.gt(0.0).select::<f32>(whole.sum.recip_approx(), 0.0f32);
        let [a, b, c, d] = whole.acc.map(|value| value * inverse);
        let pairs: [Val<'k, Bf16x2>; 2] = [a.pair(b), c.pair(d)];
        self.out.at(row * warps.dim + column).cast::<Bf16x2>().store_vec(pairs);
        if let Some(lse) = self.lse {
            warps.k.when(column.eq(0), || lse.at(row).store(whole.log_sum_exp()));
        }
    }
}

/// Calls `each` for every four columns of each query head, distributed over the threads.
fn each_vector<'k>(warps: &WarpParts<'k>, each: impl Fn(Val<'k, u32>, Val<'k, u32>)) {
    let k = warps.k;
    let in_row = warps.dim / 4;
    let all = warps.heads * in_row;
    let threads = warps.k.threads();
    for first in (0..all).step_by(threads as usize) {
        let number = k.tid() + first;
        let inside = if first + threads <= all { k.lit(true) } else { number.lt(all) };
        k.when(inside, || each(number / in_row, number % in_row * 4));
    }
}
