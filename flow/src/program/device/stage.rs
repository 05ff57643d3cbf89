//! Fields of candidates on their way through the ring: what a stage holds, and who fills it.
//!
//! Fields of earlier steps do not depend on this step: they are streamed before there are queries.

use std::mem::offset_of;

use tilewright_codegen::build::{Val, Var};
use tilewright_graph::op::Op;
use tilewright_kernels::kv::{PagedPool, PoolType};
use tilewright_kernels::tile::Float;
use tilewright_megakernel::vm::device::{KvPools, RingFeed};

use super::amount::Candidates;
use super::buffers::{FlowTaskFields, TaskBuffers};
use super::recipe::PassRecipe;

/// A stage of the ring that holds the rows `[blocks, dim]` of one field after the other, of
/// consecutive blocks of a sequence from the first block of a page on, or of a whole part of one,
/// as pools have them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BlockStage {
    /// The record fields of the fields' pools, and their access.
    fields: Vec<(usize, KvPools)>,
    blocks: u32,
    /// Blocks of a page.
    per_page: u32,
    /// Elements of a row.
    dim: u32,
}

/// Pages that are looked up together.
const TOGETHER: u32 = 8;
/// Scores that are kept in shared memory, in whole stages.
const KEPT: u32 = 2048;

/// Blocks of a row on their way: the first block of the first stage, and how many stages.
#[derive(Clone, Copy)]
pub(super) struct StagedBlocks<'k> {
    origin: Val<'k, u32>,
    pub stages: Val<'k, u32>,
    /// Where candidates begin and end.
    pub candidates: [Val<'k, u32>; 2],
    /// Blocks of a stage.
    pub blocks: u32,
}

impl<'k> StagedBlocks<'k> {
    /// The first block of a stage, and those of its blocks that are candidates.
    pub fn stage(self, at: Val<'k, u32>) -> (Val<'k, u32>, [Val<'k, u32>; 2]) {
        let first = self.origin + at * self.blocks;
        let [begin, end] = self.candidates;
        (first, [first.max(begin), (first + self.blocks).min(end)])
    }
}

impl BlockStage {
    /// A stage of `bytes` bytes for the operands of tensor cores, where nothing else is loaded of a
    /// block.
    pub fn new(recipe: &PassRecipe, kept: &TaskBuffers, stage_bytes: u32) -> Option<BlockStage> {
        let [linear] = recipe.linear() else { return None };
        if !recipe.of_block(&|id| id == linear.id).is_empty() || !recipe.across().is_empty() {
            return None;
        }
        let field = |&id: &_| match *recipe.graph().op(id) {
            Op::Load { from: source } => kept.pool_of(source),
            _ => None,
        };
        let fields: Vec<(usize, KvPools)> = linear.fields.iter().map(field).collect::<Option<_>>()?;
        let (_, KvPools { page_tokens: per_page, dim, .. }) = *fields.first()?;
        let is_like = |(_, pools): &(usize, KvPools)| {
            pools.of == PoolType::Float(Float::Bf16) && pools.dim == dim && pools.page_tokens == per_page
        };
        if !fields.iter().all(is_like) || dim != recipe.spread.dim {
            return None;
        }
        let most = stage_bytes / (fields.len() as u32 * dim * 2);
        let is_whole = |blocks: &u32| per_page.is_multiple_of(*blocks) || blocks.is_multiple_of(per_page);
        let blocks = (1..=most).rev().find(is_whole)?;
        Some(BlockStage { fields, blocks, per_page, dim })
    }

    /// The offset of the row of a field for the block at a place of the stage, in elements.
    pub fn row<'k>(&self, field: usize, slot: Val<'k, u32>) -> Val<'k, u32> {
        let before = self.fields.iter().take_while(|(at, _)| *at != field).count() as u32;
        slot * self.dim + before * self.blocks * self.dim
    }

    fn row_bytes(&self) -> u32 {
        2 * self.dim
    }

    /// Blocks of a stage that lie in one page.
    fn piece(&self) -> u32 {
        self.blocks.min(self.per_page)
    }

    /// The stages of a row's candidates.
    pub fn run<'k>(&self, of: Candidates<'k>) -> StagedBlocks<'k> {
        let piece = self.piece();
        let end = of.origin + of.count;
        let origin = of.origin / piece * piece;
        // None where there are no candidates.
        let stages = of.count.min(1) * ((end - origin + (self.blocks - 1)) / self.blocks);
        StagedBlocks { origin, stages, candidates: [of.origin, end], blocks: self.blocks }
    }

    /// Fills the stages of a row's candidates.
    ///
    /// Few pages are looked up a stage ahead. Where they lie one after the other, each field is one
    /// copy, of a whole stage or not: one thread's instructions for it are few.
    pub fn fill<'k>(&self, feed: RingFeed<'k, '_>, place: [Val<'k, u32>; 2], of: Candidates<'k>) {
        let k = feed.builder();
        let run = self.run(of);
        let pools = self.pools(feed);
        let [row, kv_head] = place;
        let Some(&(any, _)) = pools.first() else { return };
        let count = self.blocks / self.piece();
        let ahead: Vec<Var<'k, i32>> = (0..count).take_while(|_| count <= TOGETHER).map(|_| k.var(0i32)).collect();
        // Entries after the row's last page are unused, and there are none after the table's end.
        let look_up = |at: Val<'k, u32>| {
            let page = run.stage(at).0 / self.per_page;
            k.when((page + count).le(any.table.width), || any.table.pages(row, page, &ahead));
        };
        if !ahead.is_empty() {
            look_up(k.lit(0u32));
        }
        let of_head = kv_head * any.pages;
        k.for_(0u32, run.stages, |at| {
            let (first, [begin, end]) = run.stage(at);
            let by_pieces = || {
                let all = || self.fill_all(feed, place, first);
                k.if_else((end - begin).eq(self.blocks), all, || self.fill_some(feed, place, first, [begin, end]));
            };
            match &ahead[..] {
                [] => by_pieces(),
                [page, others @ ..] => {
                    let page = page.get().cast::<u32>();
                    let apart = |(at, other): (u32, &Var<'k, i32>)| other.get().cast::<u32>() - page - at;
                    let apart = (1u32..).zip(others).map(apart).fold(k.lit(0u32), |all, apart| all | apart);
                    let is_run = apart.eq(0) & (first / self.per_page + count).le(any.table.width);
                    // Of several pages none is cut.
                    let skipped = if count > 1 { k.lit(0u32) } else { first % self.per_page };
                    let place = (of_head + page) * self.per_page + skipped;
                    look_up(at + 1);
                    k.if_else(is_run, || self.fill_run(feed, &pools, place, [begin - first, end - begin]), by_pieces);
                }
            }
            k.break_if(feed.stopped());
        });
    }

    /// Fills a stage with `count` blocks after those to skip, of consecutive pages from `place` on.
    fn fill_run<'k>(
        &self,
        feed: RingFeed<'k, '_>,
        pools: &[(PagedPool<'k>, u32)],
        place: Val<'k, u32>,
        [before, count]: [Val<'k, u32>; 2],
    ) {
        let from = (place + before) * self.dim;
        let bytes = count * self.row_bytes();
        feed.stage(bytes * pools.len() as u32, |to| {
            let to = to.at(before * self.row_bytes());
            pools.iter().for_each(|(pool, plane)| to.at(*plane).bring(pool.bytes_from(from), bytes));
        });
    }

    /// The pools of the fields, with where they lie in a stage, in bytes.
    fn pools<'k>(&self, feed: RingFeed<'k, '_>) -> Vec<(PagedPool<'k>, u32)> {
        let planes = (0..).step_by((self.blocks * self.row_bytes()) as usize);
        let pool = |&(field, pools): &(usize, KvPools)| feed.pages([field, offset_of!(FlowTaskFields, one)], pools);
        self.fields.iter().map(pool).zip(planes).collect()
    }

    /// Fills a stage with blocks that all are candidates.
    fn fill_all<'k>(&self, feed: RingFeed<'k, '_>, [row, kv_head]: [Val<'k, u32>; 2], first: Val<'k, u32>) {
        let k = feed.builder();
        let pools = self.pools(feed);
        let row_bytes = self.row_bytes();
        let piece = self.piece();
        let pieces = self.blocks / self.piece();
        let Some(&(any, _)) = pools.first() else { return };
        // Of several pages none is cut, and the whole part of one may begin within it.
        let page = first / self.per_page;
        let skipped = if pieces > 1 { k.lit(0u32) } else { first % self.per_page };
        let look_up = |from: u32| {
            let pages = from..(from + TOGETHER).min(pieces);
            let place = |at: u32| (kv_head * any.pages + any.table.page(row, page + at)) * self.per_page + skipped;
            pages.map(|at| (at, place(at))).collect::<Vec<_>>()
        };
        // On their way while the stage is waited for.
        let first_places = look_up(0);
        feed.stage(k.lit(self.blocks * row_bytes * pools.len() as u32), |to| {
            for from in (0..pieces).step_by(TOGETHER as usize) {
                let places = if from == 0 { first_places.clone() } else { look_up(from) };
                let bring = |at: u32, place: Val<'k, u32>, pages: u32| {
                    for (pool, plane) in &pools {
                        let to = to.at(plane + at * piece * row_bytes);
                        to.bring(pool.bytes_from(place * self.dim), k.lit(pages * piece * row_bytes));
                    }
                };
                // Pages that lie one after the other are one copy.
                let [(at, first), ref others @ ..] = places[..] else { continue };
                let is_run = others
                    .iter()
                    .fold(k.lit(true), |is_run, &(other, place)| is_run & place.eq(first + (other - at) * piece));
                let together = || bring(at, first, places.len() as u32);
                k.if_else(is_run, together, || places.iter().for_each(|&(at, place)| bring(at, place, 1)));
            }
        });
    }

    /// Fills a stage some of whose blocks are candidates.
    fn fill_some<'k>(
        &self,
        feed: RingFeed<'k, '_>,
        [row, kv_head]: [Val<'k, u32>; 2],
        first: Val<'k, u32>,
        [begin, end]: [Val<'k, u32>; 2],
    ) {
        let k = feed.builder();
        let pools = self.pools(feed);
        let row_bytes = self.row_bytes();
        let piece = self.piece();
        feed.stage((end - begin) * (row_bytes * pools.len() as u32), |to| {
            k.for_step(begin / piece * piece, end, piece, |block| {
                let begin = begin.max(block);
                let bytes = (end.min(block + piece) - begin) * row_bytes;
                for (pool, plane) in &pools {
                    let from = pool.bytes_from(pool.token(kv_head, row, begin));
                    to.at((begin - first) * row_bytes + *plane).bring(from, bytes);
                }
            });
        });
    }

    /// Stages whose scores are kept in shared memory until they are stored together.
    pub fn kept_stages(&self) -> u32 {
        (KEPT / self.blocks).max(1)
    }

    /// Bytes of the scores that are kept.
    pub fn kept_bytes(&self) -> u32 {
        4 * self.kept_stages() * self.blocks
    }
}
