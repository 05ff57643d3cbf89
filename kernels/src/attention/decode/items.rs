//! Blocks that stay: each goes through shares of heads, and issues the keys and values of the next
//! before it is done with one.

use half::bf16;
use tilewright_codegen::build::{Builder, Global, Ptr, Val, Var};

use super::combine::{Splits, warp_parts};
use super::device::{HeadScores, ScoredTile, SequenceTokens, queries, share, warps};
use crate::attention::ScoreFunction;
use crate::attention::warp::{WarpQueries, attend_by};
use crate::kv::{
    Issued, IssuedAhead, KConfig, KvFamily, KvRings, KvThreads, KvView, OwnRing, TileSpan, VConfig, stream_issuing,
};
use crate::mma::Accumulator;
use crate::pdl::wait_for_previous;

/// The work of a persistent launch: shares of heads of sequences, numbered, shares first.
pub struct Items<'k, 'a> {
    /// The number of blocks that share a head.
    pub splits: Val<'k, u32>,
    /// Key/value heads.
    pub heads: Val<'k, u32>,
    /// Sequences; those without tokens are left out.
    pub sequences: Val<'k, u32>,
    /// The score function applied to products of queries and keys.
    pub scores: ScoreFunction<'a, 'k>,
    /// The location of the rows of a sequence and head, and the number of tokens.
    pub place: &'a dyn Fn(Val<'k, u32>, Val<'k, u32>) -> KvView<'k>,
    /// Queries of a sequence and head, by number, `[group, columns of a key]`.
    pub query: &'a dyn Fn(Val<'k, u32>) -> Ptr<'k, Global, bf16>,
    /// The memory in which the shares of a sequence and head are merged, by number.
    pub meet: &'a dyn Fn(Val<'k, u32>) -> Splits<'k>,
}

/// An item.
struct Item<'k> {
    split: Val<'k, u32>,
    /// The number of its sequence and head.
    line: Val<'k, u32>,
    place: KvView<'k>,
    span: TileSpan<'k>,
}

impl<'k> Items<'k, '_> {
    fn count(&self) -> Val<'k, u32> {
        self.splits * self.heads * self.sequences
    }

    /// The tiles of this warp of an item.
    fn at(&self, k: &'k Builder, number: Val<'k, u32>, [step, tile]: [u32; 2]) -> Item<'k> {
        let split = number % self.splits;
        let line = number / self.splits;
        let place = (self.place)(line / self.heads, line % self.heads);
        let seen = SequenceTokens::of(place, self.scores);
        Item { split, line, place, span: share(k, seen, [split, self.splits], [step, tile]) }
    }
}

/// The tile that is issued next, of this warp's tiles of all items of its block.
struct TileCursor<'k, 'a> {
    k: &'k Builder,
    items: &'a Items<'k, 'a>,
    shape: [u32; 2],
    item: Var<'k, u32>,
    sequence: Var<'k, u32>,
    head: Var<'k, u32>,
    tile: Var<'k, u32>,
    end: Var<'k, u32>,
}

impl<'k, 'a> TileCursor<'k, 'a> {
    fn new(k: &'k Builder, items: &'a Items<'k, 'a>, shape: [u32; 2]) -> TileCursor<'k, 'a> {
        let [sequence, head, tile, end] = [0u32; 4].map(|zero| k.var(zero));
        let cursor = TileCursor { k, items, shape, item: k.var(k.block_id()), sequence, head, tile, end };
        cursor.enter();
        cursor.skip();
        cursor
    }

    /// Goes to the first tile of the item.
    fn enter(&self) {
        let number = self.item.get();
        self.k.when(number.lt(self.items.count()), || {
            let Item { line, span, .. } = self.items.at(self.k, number, self.shape);
            self.sequence.set(line / self.items.heads);
            self.head.set(line % self.items.heads);
            self.tile.set(span.first);
            self.end.set(span.end);
        });
    }

    /// Goes on to an item that has a tile for this warp.
    fn skip(&self) {
        let is_empty = || self.tile.get().ge(self.end.get()) & self.item.get().lt(self.items.count());
        self.k.while_(is_empty, || {
            self.item.set(self.item.get() + self.k.blocks());
            self.enter();
        });
    }

    fn advance(&self) {
        self.tile.set(self.tile.get() + self.shape[0]);
        self.skip();
    }

    /// The location of the tile's rows, its number, and whether it exists.
    fn next(&self) -> (KvView<'k>, Val<'k, u32>, Val<'k, bool>) {
        let place = (self.items.place)(self.sequence.get(), self.head.get());
        (place, self.tile.get(), self.item.get().lt(self.items.count()))
    }
}

/// The item that a block computes: of the first one all but its queries is known before the launch
/// before this one has ended.
struct Current<'k, 'a> {
    k: &'k Builder,
    items: &'a Items<'k, 'a>,
    shape: [u32; 2],
    number: Var<'k, u32>,
    split: Var<'k, u32>,
    sequence: Var<'k, u32>,
    head: Var<'k, u32>,
    tokens: Var<'k, u32>,
    span: [Var<'k, u32>; 2],
}

impl<'k, 'a> Current<'k, 'a> {
    fn new(k: &'k Builder, items: &'a Items<'k, 'a>, shape: [u32; 2]) -> Current<'k, 'a> {
        let [split, sequence, head, tokens, first, end] = [0u32; 6].map(|zero| k.var(zero));
        let number = k.var(k.block_id());
        let span = [first, end];
        let current = Current { k, items, shape, number, split, sequence, head, tokens, span };
        current.enter();
        current
    }

    fn is_one(&self) -> Val<'k, bool> {
        self.number.get().lt(self.items.count())
    }

    fn enter(&self) {
        self.k.when(self.is_one(), || {
            let Item { split, line, place, span } = self.items.at(self.k, self.number.get(), self.shape);
            self.split.set(split);
            self.sequence.set(line / self.items.heads);
            self.head.set(line % self.items.heads);
            self.tokens.set(place.tokens);
            self.span[0].set(span.first);
            self.span[1].set(span.end);
        });
    }

    fn item(&self) -> Item<'k> {
        let sequence = self.sequence.get();
        let head = self.head.get();
        let [first, end] = self.span.map(|var| var.get());
        Item {
            split: self.split.get(),
            line: sequence * self.items.heads + head,
            place: KvView { tokens: self.tokens.get(), ..(self.items.place)(sequence, head) },
            span: TileSpan { first, end, step: self.shape[0] },
        }
    }

    fn advance(&self) {
        self.number.set(self.number.get() + self.k.blocks());
        self.enter();
    }
}

/// Computes the attention of one block, in tiles of `TILE` tokens, for keys of `D` and values of `V`
/// columns.
pub fn attend_items<'k, F: KvFamily, const D: u32, const V: u32, const TILE: u32>(
    k: &'k Builder,
    inputs: [F::Input<'k>; 2],
    items: &Items<'k, '_>,
    group: u32,
) {
    let team = KvThreads::Warps(warps(D));
    let shape = [warps(D), TILE];
    let none = (items.place)(k.lit(0u32), k.lit(0u32));
    let keys = F::open::<KConfig<TILE, D, TILE>>(k, "keys", inputs[0], none, team);
    let of_values = |place: KvView<'k>| place.of_columns([D, V]);
    let values = F::open::<VConfig<TILE, TILE, TILE, V>>(k, "values", inputs[1], of_values(none), team);
    F::begin(k);
    // The rings are full of what comes next when an item's warps merge.
    let parts = warp_parts(k, warps(D), [V, group], keys.memory().cast(), 0);
    let cursor = TileCursor::new(k, items, shape);
    let issue_keys = || {
        let (place, tile, is_one) = cursor.next();
        let _: Issued = keys.load_at(&place, tile, is_one);
    };
    let issue_values = || {
        let (place, tile, is_one) = cursor.next();
        let _: Issued = values.load_at(&of_values(place), tile, is_one);
        cursor.advance();
    };
    for _ in 0..keys.ahead() {
        // The launch before this one appends to a sequence's last tile.
        let (place, tile, is_one) = cursor.next();
        k.when(is_one & ((tile + 1) * TILE).ge(place.tokens), || wait_for_previous(k));
        issue_keys();
        issue_values();
    }
    let current = Current::new(k, items, shape);
    wait_for_previous(k);
    k.while_(
        || current.is_one(),
        || {
            let Item { split, line, place, span } = current.item();
            k.when(place.tokens.gt(0), || {
                let (query, rows) = queries(k, (items.query)(line), [D, group]);
                let softmax_scale = items.scores.softmax_scale();
                let queries = WarpQueries { fragments: &query, rows, softmax_scale };
                let rings = KvRings { keys: &keys, values: &values };
                let seen = SequenceTokens::of(place, items.scores);
                let of = || [line / items.heads, line % items.heads];
                let head = HeadScores { function: items.scores, group, seen, of: &of };
                let modify = |number: Val<'k, u32>, acc: Accumulator<'k, f32>| {
                    head.modify(k, ScoredTile { number, whole: None, tokens: TILE }, acc);
                };
                let (softmax, acc) = attend_by(k, rings, queries, &modify, |scores, outputs| {
                    let ahead = IssuedAhead { span, place, issue_keys: &issue_keys, issue_values: &issue_values };
                    stream_issuing(k, rings, &ahead, scores, outputs);
                });
                (items.meet)(line).finish(k, &parts, softmax, acc.registers(), split);
            });
            current.advance();
        },
    );
}
