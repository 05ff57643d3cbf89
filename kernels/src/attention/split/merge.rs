//! The merge of attention's splits: by the last-arriving block, as in stream-K, or by the first,
//! which looks for the packets of the others.
//!
//! A split that has all tokens of its row stores the row's result at once. If there are several
//! splits, each stores its partial result and increments the counter of its row and kv head. The
//! last split to arrive merges them, so that a reader of attention's result loads one vector. With
//! `M = max m_s` and `w_s = exp(m_s − M)` the result is `x = Σ w_s·acc_s / Σ w_s·l_s`, and 0 for an
//! idle row, which the first split stores.
//!
//! Where what they store are packets, the first split waits for those of the others: nothing is
//! counted, released or met for. That wants every split of a step on a block that has no other
//! before it ([`SplitSignal::Packets`]).
//!
//! Arrivals only grow, by the least power of two that is not less than the number of splits for
//! every merge: the last split that has tokens counts for those that have none, which do not count
//! themselves. So it makes no difference where a count begins, if all begin at a multiple, and none
//! is zeroed.

use std::ops::Range;

use tilewright_codegen::build::{Global, Load, Ptr, RegArray, Store, Val};
use tilewright_codegen::ir::attr::{AtomOp, AtomOrder, Scope};

use super::{HeadCounts, Shares, SplitAttention};
use crate::attention::merge::PartialAttention;
use crate::attention::scores::load_sink;
use crate::attention::split::{Merged, SplitSignal};
use crate::gemv::task::LinearScratch;
use crate::tile::{AccessMode, Array, Float};
use crate::warps::ConsumerWarps;

/// Splits whose loads are in flight together; of packets half as many, which are looked at until
/// all are there.
const TOGETHER: u32 = 16;

/// A split's part of a row.
#[derive(Clone, Copy)]
pub(super) struct SplitPart<'k> {
    /// First token.
    pub begin: Val<'k, u32>,
    /// The exclusive end of its tokens.
    pub end: Val<'k, u32>,
    /// Whether no other split has tokens.
    pub single: Val<'k, bool>,
    /// Whether later splits have none.
    pub is_last: Val<'k, bool>,
    /// The first token that the row sees, where a window hides others.
    pub first_seen: Option<Val<'k, u32>>,
    /// Tokens of the row.
    pub row_tokens: Val<'k, u32>,
    /// Tokens of a split.
    share: Val<'k, u32>,
    /// Tokens of all splits.
    tokens: Val<'k, u32>,
}

impl<'k> SplitPart<'k> {
    /// Whether a split has tokens; `None`: it has, where several are merged.
    fn has_tokens(self, split: u32) -> Option<Val<'k, bool>> {
        (split > 1).then(|| (self.share * split).lt(self.tokens))
    }
}

/// A split, and whether it has tokens, where that is not known.
type Candidate<'k> = (Val<'k, u32>, Option<Val<'k, bool>>);

/// A split's `m`, `l` and two sums as they are merged.
fn partial<'k>([max, sum]: [Val<'k, f32>; 2], acc: [Val<'k, f32>; 2]) -> PartialAttention<'k, 2> {
    PartialAttention { max: max * std::f32::consts::LOG2_E, sum, acc }
}

impl Float {
    /// The type in which attention hands its result to a product of `rows` rows: of few rows
    /// without loss, of more in half the bytes, since every block reads all of them.
    ///
    /// ```
    /// use tilewright_kernels::tile::Float;
    /// assert_eq!((Float::enough_for(4), Float::enough_for(5)), (Float::F32, Float::Bf16));
    /// ```
    pub fn enough_for(rows: u32) -> Float {
        if rows <= 4 { Float::F32 } else { Float::Bf16 }
    }
}

impl<'k> Merged<'k> {
    /// Words of the place of a count: a line of L2 each.
    pub const ARRIVAL: u32 = 32;

    /// Bytes of the packets of `vectors` vectors of `dim` elements.
    ///
    /// ```
    /// use tilewright_kernels::attention::split::Merged;
    /// // Eight heads of 64 in four splits; a packet has 8 bytes.
    /// assert_eq!(Merged::packet_bytes(8 * 4, 64), 32 * 66 * 8);
    /// ```
    pub fn packet_bytes(vectors: u32, dim: u32) -> u64 {
        u64::from(vectors) * u64::from(dim + 2) * 8
    }
}

impl<'k> SplitAttention<'_, 'k> {
    /// The split's part of a row.
    pub(super) fn part(self, row: Val<'k, u32>) -> SplitPart<'k> {
        let pages = self.keys;
        let shares = match self.selected {
            None => Shares::of_row(pages, row, self.heads.splits, self.modifier.window),
            Some(selected) => selected.shares(pages, row, self.heads.splits),
        };
        let share = shares.each * pages.page_tokens;
        let tokens = shares.split_tokens(pages.page_tokens);
        let [begin, end] = shares.tokens_of(self.split, pages.page_tokens);
        let first_seen = shares.hidden.map(|hidden| hidden.tokens);
        SplitPart {
            begin,
            end,
            single: tokens.le(share),
            is_last: end.eq(shares.tokens),
            first_seen,
            row_tokens: shares.tokens,
            share,
            tokens,
        }
    }

    /// Merges the splits of rows that have several: those of which it is the last, after a barrier
    /// of the consumer warps that all partial results are stored before; or all, by the first, once their
    /// packets are there.
    pub(super) fn arrive(self, consumers: ConsumerWarps<'k>, scratch: LinearScratch<'k>, counted: impl FnOnce()) {
        match self.merged.parts {
            SplitSignal::Counted(arrivals) => {
                consumers.sync();
                self.count(consumers, scratch, arrivals, counted);
            }
            SplitSignal::Packets(_) => {
                consumers.k.moving().when(consumers.k.tid().eq(0), counted);
                consumers.k.when(self.split.eq(0), || {
                    self.merge(consumers, |row| {
                        let SplitPart { begin, end, single, .. } = self.part(self.first_row + row);
                        begin.lt(end) & !single
                    });
                });
            }
        }
    }

    /// Counts the split where it is one of several, and merges those of rows that it is the last
    /// of.
    fn count(
        self,
        consumers: ConsumerWarps<'k>,
        scratch: LinearScratch<'k>,
        arrivals: Ptr<'k, Global, u32>,
        counted: impl FnOnce(),
    ) {
        let k = consumers.k;
        let all = self.heads.splits.next_power_of_two();
        let complete = scratch.best.cast::<u32>();
        k.when(k.tid().lt(self.rows), || {
            let row = self.first_row + k.tid();
            let last = k.var(0u32);
            let part = self.part(row);
            k.when(part.begin.lt(part.end) & !part.single, || {
                let count = part.is_last.select(k.lit(all) - self.split, 1u32);
                let at = (row * self.heads.kv_heads + self.kv_head) * Merged::ARRIVAL;
                let before = arrivals.at(at).atom(AtomOp::Add, count, AtomOrder::AcqRel(Scope::Gpu));
                last.set(((before + count) & (all - 1)).eq(0).select(1u32, 0u32));
            });
            complete.at(k.tid()).store(last.get());
        });
        k.moving().when(k.tid().eq(0), counted);
        consumers.sync();
        self.merge(consumers, |row| complete.at(row).load().ne(0));
    }

    /// Merges the splits of rows, counted from the task's first, that are `complete`, two elements
    /// for each thread.
    fn merge(self, consumers: ConsumerWarps<'k>, complete: impl Fn(Val<'k, u32>) -> Val<'k, bool>) {
        let pairs = self.heads.group() * self.heads.dim / 2;
        consumers.each(self.rows * pairs, |item| {
            let row = item / pairs;
            consumers.k.when(complete(row), || self.merge_pair(self.first_row + row, item % pairs * 2));
        });
    }

    /// The start of the flagged words for a split of a head of a row.
    fn packet(self, head: Val<'k, u32>, split: Val<'k, u32>) -> Val<'k, u32> {
        (head * self.heads.splits + split) * (self.heads.dim + 2)
    }

    /// The load and store instructions for partial results. If the result is flagged words, no
    /// release separates the merge from the stores that overwrite the partial results.
    fn partials(self) -> (Load<'k>, Store<'k>) {
        if self.merged.out.is_packets() { AccessMode::Relaxed.how() } else { AccessMode::Weak.how() }
    }

    /// Merges the splits of two elements of the group.
    fn merge_pair(self, row: Val<'k, u32>, element: Val<'k, u32>) {
        let HeadCounts { dim, splits, .. } = self.heads;
        let head_of_row = self.kv_head * self.heads.group() + element / dim;
        let head = row * self.heads.heads + head_of_row;
        let d = element % dim;
        let part = self.part(row);
        let mut whole = Vec::new();
        let together = if let SplitSignal::Packets(_) = self.merged.parts { TOGETHER / 2 } else { TOGETHER };
        for first in (0..splits).step_by(together as usize) {
            let some = first..splits.min(first + together);
            whole.extend(match self.merged.parts {
                SplitSignal::Counted(_) => self.stored(part, [head, d], some),
                SplitSignal::Packets(packets) => self.arrived(packets, part, [head, d], some),
            });
            whole = vec![PartialAttention::merge(&whole)];
        }
        self.store_merged([row, head_of_row * dim + d], self.normalised(whole[0], head_of_row));
    }

    /// Loads two elements of some splits of a head of a row, all in flight together, as stored.
    fn stored(
        self,
        part: SplitPart<'k>,
        [head, d]: [Val<'k, u32>; 2],
        some: Range<u32>,
    ) -> Vec<PartialAttention<'k, 2>> {
        let HeadCounts { dim, splits, .. } = self.heads;
        let k = head.builder();
        let how = self.partials().0;
        let stats = self.stats.at(head * (splits * 2));
        let acc = self.acc.at(head * (splits * dim) + d);
        let load = |split: u32| {
            let loaded = k.regs(4, 0.0f32);
            loaded.set(0, f32::NEG_INFINITY);
            let load = || {
                let stats: [Val<f32>; 2] = stats.at(split * 2).load_as(how);
                let acc: [Val<f32>; 2] = acc.at(split * dim).load_as(how);
                stats.into_iter().chain(acc).zip(0u32..).for_each(|(value, i)| loaded.set(i, value));
            };
            match part.has_tokens(split) {
                None => load(),
                Some(has) => k.when(has, load),
            }
            loaded
        };
        let loaded: Vec<RegArray<f32>> = some.map(load).collect();
        let partial = |part: &RegArray<'k, f32>| partial([part.get(0), part.get(1)], [part.get(2), part.get(3)]);
        loaded.iter().map(partial).collect()
    }

    /// Loads two elements of some splits of a head of a row, polled until their flagged words have
    /// arrived. Splits without tokens poll the first split's words and are left out.
    fn arrived(
        self,
        packets: Array<'k>,
        part: SplitPart<'k>,
        [head, d]: [Val<'k, u32>; 2],
        some: Range<u32>,
    ) -> Vec<PartialAttention<'k, 2>> {
        let k = head.builder();
        let has: Vec<Candidate> = some.map(|split| (k.lit(split), part.has_tokens(split))).collect();
        let place = |&(split, has): &Candidate<'k>| {
            let start = self.packet(head, has.map_or(split, |has| has.select(split, 0u32)));
            [start, start + 2 + d]
        };
        let loaded: Vec<[Val<f32>; 2]> = packets.gather(&has.iter().flat_map(place).collect::<Vec<_>>());
        let of = |(of, &(_, has)): (&[[Val<'k, f32>; 2]], &Candidate<'k>)| {
            let or = |x: Val<'k, f32>, none: f32| has.map_or(x, |has| has.select(x, none));
            partial([or(of[0][0], f32::NEG_INFINITY), or(of[0][1], 0.0)], of[1].map(|x| or(x, 0.0)))
        };
        loaded.chunks(2).zip(&has).map(of).collect()
    }

    /// The result of all tokens of a query head, with its sink.
    #[track_caller]
    fn normalised(self, whole: PartialAttention<'k, 2>, head: Val<'k, u32>) -> [Val<'k, f32>; 2] {
        whole.with_sink(self.sinks.map(|sinks| load_sink(sinks.at(head)))).normalised()
    }

    /// Stores two elements of the result of a row.
    #[track_caller]
    fn store_merged(self, place: [Val<'k, u32>; 2], pair: [Val<'k, f32>; 2]) {
        self.merged.out.store2(place, self.heads.heads * self.heads.dim, pair);
    }

    /// Stores two elements of a split's sums and, with a head's first, its `m` and `l`: as the
    /// row's result where it is the single split.
    pub(super) fn store_pair(
        self,
        single: Val<'k, bool>,
        [row, head_of_row]: [Val<'k, u32>; 2],
        d: Val<'k, u32>,
        whole: PartialAttention<'k, 2>,
    ) {
        let k = row.builder();
        let dim = self.heads.dim;
        let head = row * self.heads.heads + head_of_row;
        let result = || self.store_merged([row, head_of_row * dim + d], self.normalised(whole, head_of_row));
        if let SplitSignal::Packets(parts) = self.merged.parts {
            return k.if_else(single, result, || {
                let start = self.packet(head, self.split);
                parts.store_run(start + 2 + d, whole.acc);
                k.when(d.eq(0), || parts.store_run(start, [whole.max * std::f32::consts::LN_2, whole.sum]));
            });
        }
        k.if_else(single, result, || {
            let place = head * self.heads.splits + self.split;
            let (_, how) = self.partials();
            self.acc.at(place * dim + d).store_as(whole.acc, how);
            k.when(d.eq(0), || self.stats.at(place * 2).store_as([whole.max * std::f32::consts::LN_2, whole.sum], how));
        });
    }

    /// Zeros as an idle row's result.
    pub(super) fn store_idle(self, consumers: ConsumerWarps<'k>, row: Val<'k, u32>, first: Val<'k, u32>, heads: u32) {
        let zero = consumers.k.lit(0.0f32);
        let dim = self.heads.dim;
        consumers.each(heads * dim / 2, |pair| self.store_merged([row, first * dim + pair * 2], [zero; 2]));
    }
}
