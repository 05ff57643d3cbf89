//! A warp's blocks of a row, wherever they come from: pages, stages of the ring, chosen blocks.

use tilewright_codegen::build::Val;

use super::TokenSelection;
use super::queries::{CurrentTokenWords, QueryWords};
use crate::attention::split::pass::{AttentionPass, Running};
use crate::gemv::task::LinearScratch;
use crate::kv::{BLOCK, Issued, KvBuffer, StageTiles, Streamed, TileSpan, TokenBlock, TokenRow};
use crate::ring::Stages;

/// A block that is there, or arrives when it is read.
pub(super) struct Brought<'b, 'k> {
    /// Its keys and values.
    pub block: TokenBlock<'k>,
    /// The position of its first token, if a function of scores asks for it.
    pub first: Option<Val<'k, u32>>,
    /// The number of its first tokens that a window hides, if there is a window.
    pub hidden: Option<Val<'k, u32>>,
    /// The last of its tokens, where it is not whole.
    pub last: Option<Val<'k, u32>>,
    /// An action after the last use of its keys, before its values are used.
    pub then: Box<dyn FnOnce() + 'b>,
}

/// The state of a warp in a pass.
#[derive(Clone, Copy)]
pub(super) struct WarpState<'s, 'k> {
    /// Queries of the pass.
    pub queries: &'s QueryWords<'k>,
    /// Maximum, sum and output that the warp carries from block to block.
    pub running: &'s Running<'k>,
}

impl<'b, 'k> Brought<'b, 'k> {
    fn new(block: &TokenBlock<'k>, last: Option<Val<'k, u32>>) -> Brought<'b, 'k> {
        Brought { block: block.clone(), first: None, hidden: None, last, then: Box::new(|| ()) }
    }
}

impl<'k> AttentionPass<'_, 'k> {
    /// Processes a warp's blocks of a span, one after the other, as `bring` provides them.
    fn blocks<'b>(
        self,
        TileSpan { first, end, step }: TileSpan<'k>,
        state: WarpState<'_, 'k>,
        bring: impl FnOnce(Val<'k, u32>) -> Brought<'b, 'k>,
    ) {
        self.consumers.k.moving().for_step(first, end, step, |at| self.block(bring(at), state));
    }

    /// Processes all tokens of the split: those that are not streamed, from the pages, and the
    /// streamed ones, which come first if the current token is waited for.
    pub fn all(self, scratch: LinearScratch<'k>, ring: &dyn Stages<'k>) -> Running<'k> {
        let k = self.consumers.k;
        let paged = self.streamed.map_or(self.begin, |(_, [_, end])| end);
        // Blocks that the window hides are not read.
        let paged = self.first_seen.map_or(paged, |seen| paged.max(seen & !(BLOCK - 1)));
        let blocks = (self.end - paged + (BLOCK - 1)) / BLOCK;
        // From the last warp on: the first have the streamed blocks that are left over.
        let first = (self.consumers.warps - 1) - k.warp();
        let has_newest = |block: Val<'k, u32>| self.is_last & (block + 1).eq(blocks);
        let last = |block: Val<'k, u32>| self.end - paged - block * BLOCK - 1;
        let bring = |block: Val<'k, u32>, loaded: &TokenBlock<'k>| {
            let start = paged + block * BLOCK;
            let last = last(block);
            if self.work.newest.is_none() {
                return self.load_pages(start, last, loaded);
            }
            let in_pages = has_newest(block).select(last, last + 1);
            k.when(in_pages.gt(0), || self.load_pages(start, in_pages - 1, loaded));
        };
        // On its way while the queries come.
        let loaded = self.unloaded();
        k.when(first.lt(blocks), || bring(first, &loaded));
        let queries = self.queries(scratch);
        let running = self.running();
        let state = WarpState { queries: &queries, running: &running };
        let from_pages = |newest: Option<CurrentTokenWords<'k>>| {
            let span = TileSpan { first, end: blocks, step: self.consumers.warps };
            self.blocks(span, state, |block| {
                k.when(block.ne(first), || bring(block, &loaded));
                if let Some(newest) = &newest {
                    k.when(has_newest(block), || newest.put(self, last(block), &loaded));
                }
                let start = || paged + block * BLOCK;
                Brought {
                    first: self.first(start),
                    hidden: self.hidden(start),
                    ..Brought::new(&loaded, Some(last(block)))
                }
            });
        };
        let from_ring = || {
            if let Some((streamed, tokens)) = self.streamed {
                self.stages(ring, streamed, tokens, state);
            }
        };
        match self.work.newest {
            None => {
                from_pages(None);
                from_ring();
            }
            Some(newest) => {
                let mine = self.is_last & blocks.gt(0) & ((blocks - 1) % self.consumers.warps).eq(first);
                from_pages(Some(self.arriving(newest, mine, from_ring)));
            }
        }
        running
    }

    /// Processes the selected blocks of the split, in the order in which [`all`](Pass::all)
    /// processes those of a row that it sees whole. The load of a warp's next block starts as soon
    /// as the scores of one are computed, and so does the lookup of the following one.
    pub fn chosen(self, scratch: LinearScratch<'k>, selected: TokenSelection<'k>) -> Running<'k> {
        let k = self.consumers.k;
        let running = self.running();
        let turns = selected.turns(self.consumers, self.work.keys, self.row, [self.begin, self.end]);
        let place = |turn: Val<'k, u32>| {
            self.work.keys.token(self.work.kv_head, self.row, turns.start(turn.min(turns.count - 1)))
        };
        let last = |turn: Val<'k, u32>| self.end - turns.start(turn) - 1;
        let [keys, values] = [self.work.keys, self.work.values].map(|pages| pages.pool.words(k.lit(0)));
        // Values come to other registers than those that are computed with.
        let loaded = self.unloaded();
        let coming = self.unloaded();
        let ahead = k.var(0u32);
        let bring = |turn: Val<'k, u32>, at: Val<'k, u32>| {
            let last = last(turn);
            let row = |token: Val<'k, u32>| self.token(at, token.min(last));
            loaded.load_keys(keys, &row);
            coming.load_values(values, &row);
        };
        k.when(turns.count.gt(0), || {
            ahead.set(place(k.lit(1)));
            bring(k.lit(0), place(k.lit(0)));
        });
        let queries = self.queries(scratch);
        let span = TileSpan { first: k.lit(0u32), end: turns.count, step: 1 };
        let bring = &bring;
        let arrive = &|| {
            for (to, from) in loaded.values.iter().flatten().zip(coming.values.iter().flatten()) {
                (0..self.lanes().words()).for_each(|word| to.set(word, from.get(word)));
            }
        };
        self.blocks(span, WarpState { queries: &queries, running: &running }, |turn| {
            let next = turn + 1;
            let at = ahead.get();
            ahead.set(place(turn + 2));
            let then = move || {
                arrive();
                k.when(next.lt(turns.count), || bring(next, at));
            };
            Brought { then: Box::new(then), ..Brought::new(&loaded, Some(last(turn))) }
        });
        running
    }

    /// The blocks that come through the ring.
    fn stages(
        self,
        ring: &dyn Stages<'k>,
        streamed: Streamed<'k>,
        tokens: [Val<'k, u32>; 2],
        state: WarpState<'_, 'k>,
    ) {
        let k = self.consumers.k;
        let stage = streamed.stage;
        let warps = self.consumers.warps;
        let tiles = StageTiles::new(k, ring, stage, self.work.keys);
        k.for_(0u32, streamed.stages(tokens), |at| {
            let blocks = streamed.count(tokens, at) / BLOCK;
            // Blocks are dealt to the warps in turn, over all stages.
            let first = (k.warp() + warps - at * stage.blocks() % warps) % warps;
            let arrived = tiles.copy_to_shared(Issued::by_another(), at);
            self.blocks(TileSpan { first, end: blocks, step: warps }, state, |block| {
                tiles.load_from_shared(&arrived, block);
                let start = || tokens[0] + at * stage.tokens() + block * BLOCK;
                Brought {
                    first: self.first(start),
                    hidden: self.hidden(start),
                    ..Brought::new(&tiles.get_mma_tile(), None)
                }
            });
            tiles.release(arrived);
        });
    }

    /// The position of a block's first token, if a function of scores asks for it.
    fn first(self, start: impl FnOnce() -> Val<'k, u32>) -> Option<Val<'k, u32>> {
        self.work.custom.map(|_| start())
    }

    /// The number of tokens from `start` on that the window hides, if there is a window.
    fn hidden(self, start: impl FnOnce() -> Val<'k, u32>) -> Option<Val<'k, u32>> {
        self.first_seen.map(|seen| {
            let start = start();
            seen.max(start) - start
        })
    }

    /// Registers for a block.
    fn unloaded(self) -> TokenBlock<'k> {
        TokenBlock::new(self.consumers.k, self.lanes())
    }

    /// The row of a token of a block that begins there, in elements.
    fn token(self, first: Val<'k, u32>, token: Val<'k, u32>) -> TokenRow<'k> {
        TokenRow::of_block(first, self.lanes(), token)
    }

    /// Loads the block that begins with a token from the pages. Tokens beyond the last repeat it;
    /// their weights will be zero.
    fn load_pages(self, start: Val<'k, u32>, last: Val<'k, u32>, to: &TokenBlock<'k>) {
        // Both pools have a token at the same place, and pages are whole blocks.
        let first = self.work.keys.token(self.work.kv_head, self.row, start);
        let row = |token: Val<'k, u32>| self.token(first, token.min(last));
        to.load([self.work.keys, self.work.values].map(|pages| pages.pool.words(self.consumers.k.lit(0))), &row)
    }
}
