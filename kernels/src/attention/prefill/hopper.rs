//! A prefill block on sm_90a: warp 0 of the first warpgroup fetches tiles, the other warpgroups
//! multiply.
//!
//! A warpgroup has 64 rows. While its softmax runs, the matrix unit works for another one:
//! ping-pong named barriers pass the order to issue from warpgroup to warpgroup. Within a warpgroup
//! the scores of the next tile are multiplied together with the weights of this one. Tiles come
//! last first, so that masks come first.

use half::bf16;
use tilewright_codegen::build::{
    Bf16x2, Builder, Bulk, Global, Mbarrier, Param, Ptr, RegArray, Shared, TensorMap, Val,
};
use tilewright_layout::{Layout, Swizzled};

use super::schedule::{QueryRows, RowLogs};
use crate::attention::mask::{AttentionMask, MaskedTiles, TileVisibility, VisibleTiles};
use crate::attention::scores::ScoreFunction;
use crate::attention::softmax::{Rescaling, Softmax, a_fragment};
use crate::kv::{
    Arrived, FoundTiles, Issued, KConfig, KvBuffer, KvFamily, KvThreads, KvView, OwnRing, RowArrangement, TileForm,
    Tma, TmaBuffer, VConfig, VECTOR,
};
use crate::mma::{Accumulator, InputType, SharedOperand, warpgroup_atom};
use crate::tile::{LayoutTensor, RegisterTensor};

/// Rows of a warpgroup.
pub const ROWS: u32 = 64;

/// The work of one block.
#[derive(Clone, Copy)]
pub struct HopperPrefillTask<'f, 'k> {
    /// Queries, a tensor map of boxes of a panel by 64 rows.
    pub queries: Ptr<'k, Param, TensorMap>,
    /// The row and plane of the tile's first query in that map.
    pub corner: [Val<'k, i32>; 2],
    /// Keys and values.
    pub inputs: [Ptr<'k, Param, TensorMap>; 2],
    /// Their location.
    pub place: KvView<'k>,
    /// The rows of the block.
    pub rows: QueryRows<'k>,
    /// The score function applied to products of queries and keys.
    pub scores: ScoreFunction<'f, 'k>,
    /// The result of the first query of the tile.
    pub out: Ptr<'k, Global, bf16>,
    /// Elements from query to query of the result.
    pub out_stride: Val<'k, u32>,
    /// The log-sum-exp of the rows, if it is stored.
    pub lse: Option<RowLogs<'k>>,
    /// Whether a query sees only tokens up to its own.
    pub causal: bool,
    /// The policy for updates of the running maximum.
    pub rescaling: Rescaling,
    /// Whether named barriers let one warpgroup issue at a time (ping-pong).
    pub ping_pong: bool,
}

/// Columns of a key and of a value, which has no more, keys of a tile, stages of the rings, warpgroups
/// that multiply.
pub struct PrefillShape<const D: u32, const V: u32, const BN: u32, const STAGES: u32, const GROUPS: u32>;

/// Weights of 64 rows and sixteen tokens.
type AttentionWeights<'k> = RegisterTensor<'k, Bf16x2, <bf16 as InputType>::WarpgroupA>;
type KeyBuffer<'k, const D: u32, const BN: u32> = TmaBuffer<'k, KConfig<BN, D, BN>>;
type ValueBuffer<'k, const D: u32, const BN: u32> = TmaBuffer<'k, VConfig<BN, BN, BN, D>>;

/// Registers of a thread: of those that fetch, of those that multiply. A mask of one's own is asked
/// by both; those that fetch look up pages as well, if those that multiply leave them registers.
const fn registers(groups: u32, masked: bool, paged: bool, depth: u32) -> [u32; 2] {
    match (groups, masked) {
        (3, _) => [32, 160],
        (_, false) => [24, 240],
        (_, true) if depth <= 128 && paged => [56, 224],
        (_, true) => [40, 232],
    }
}

impl<const D: u32, const V: u32, const BN: u32, const STAGES: u32, const GROUPS: u32>
    PrefillShape<D, V, BN, STAGES, GROUPS>
{
    const QUERY: TileForm = TileForm { rows: ROWS, columns: D, form: RowArrangement::Swizzled };

    /// Rows of a block.
    pub const BLOCK_ROWS: u32 = ROWS * GROUPS;

    /// The attention of one block.
    pub fn attend<'k>(k: &'k Builder, task: &HopperPrefillTask<'_, 'k>) {
        let team = KvThreads::Apart { first: 4, users: 4 * GROUPS };
        let queries = k.shared_aligned::<bf16>("queries", GROUPS * Self::QUERY.elements(), 1024);
        let queries_full = k.mbarriers("queries_full", 1);
        let keys = Tma::<STAGES>::open::<KConfig<BN, D, BN>>(k, "keys", task.inputs[0], task.place, team);
        let place = task.place.of_columns([D, V]);
        let values = Tma::<STAGES>::open::<VConfig<BN, BN, BN, V>>(k, "values", task.inputs[1], place, team);
        k.when(k.tid().eq(0), || queries_full.init(1));
        Tma::<STAGES>::begin(k);

        let tiles = (task.rows.end(Self::BLOCK_ROWS, task.causal) + (BN - 1)) / BN;
        let tiles = SeenTiles { first: task.rows.first_tile(BN), end: tiles };
        let [few, many] = registers(GROUPS, task.scores.mask().is_some(), task.place.pages.is_some(), D);
        let bring = |tile| {
            let wanted = k.lit(true);
            let _: [Issued; 2] = [keys.load_from_dram(tile, wanted), values.load_from_dram(tile, wanted)];
        };
        let fetch_masked = |mask: &AttentionMask<'k>| {
            k.registers_down(few);
            k.when(k.warp().eq(0), || {
                let number = |place| tiles.end - 1 - place;
                let ask = |tile| TileVisibility { all: k.lit(false), ..Self::ask(task, mask, None, tile) };
                let visible =
                    VisibleTiles::new(k, MaskedTiles { count: tiles.before(tiles.end), number: &number, ask: &ask });
                let is_first = k.lane().eq(0);
                k.when(visible.exists() & is_first, || Self::fetch_queries(k, task, queries, queries_full));
                k.while_(
                    || visible.exists(),
                    || {
                        let tile = visible.take();
                        k.when(is_first, || bring(tile));
                    },
                );
            });
        };
        let fetch = || {
            if let Some(mask) = task.scores.mask() {
                return fetch_masked(mask);
            }
            k.registers_down(few);
            k.when(k.tid().eq(0), || {
                k.when(tiles.exist(), || Self::fetch_queries(k, task, queries, queries_full));
                k.for_(0, tiles.before(tiles.end), |turn: Val<'k, u32>| bring(tiles.end - 1 - turn));
            });
        };
        let multiply = || {
            k.registers_up(many);
            // With uniform descriptors heads of 256 columns spill.
            let group = if D > 192 { k.warp() / 4 } else { k.warpgroup() } - 1;
            let consumer = Consumer::<D, V, BN, GROUPS> {
                k,
                task,
                group,
                query: queries.at(group * Self::QUERY.elements()),
                keys: &keys,
                values: &values,
                scores: sums(k, BN),
                weights: k.regs(BN / 4, k.lit(0u32).bits::<Bf16x2>()),
                acc: zeros(k, V),
                softmax: Softmax::new(k, warpgroup_atom::<bf16>(BN).1, 2, task.scores.softmax_scale(), task.rescaling),
            };
            if let Some(mask) = task.scores.mask() {
                let number = |place| tiles.end - 1 - place;
                let ask = |tile| Self::ask(task, mask, Some(group), tile);
                let visible =
                    VisibleTiles::new(k, MaskedTiles { count: tiles.before(tiles.end), number: &number, ask: &ask });
                k.when(visible.exists(), || {
                    queries_full.wait(0);
                    consumer.run_visible(visible);
                });
            } else {
                k.when(tiles.exist(), || {
                    queries_full.wait(0);
                    consumer.run(tiles);
                });
            }
            consumer.store(queries);
        };
        k.if_else(k.warp().lt(4), fetch, multiply);
    }

    /// What is seen of a tile: whether some query of the block sees some of it, and whether every
    /// query of a warpgroup sees all.
    fn ask<'k>(
        task: &HopperPrefillTask<'_, 'k>,
        mask: &AttentionMask<'k>,
        group: Option<Val<'k, u32>>,
        tile: Val<'k, u32>,
    ) -> TileVisibility<'k> {
        let rows = task.rows;
        let block = (mask.tile)(rows.tile_place(rows.first, Self::BLOCK_ROWS, tile, BN));
        group.map_or(block, |group| {
            let mine = (mask.tile)(rows.tile_place(rows.first + group * ROWS, ROWS, tile, BN));
            TileVisibility { all: mine.all, ..block }
        })
    }

    fn fetch_queries<'k>(
        k: &'k Builder,
        task: &HopperPrefillTask<'_, 'k>,
        queries: Ptr<'k, Shared, bf16>,
        full: Mbarrier<'k, Shared>,
    ) {
        let [row, plane] = task.corner;
        full.arrive_expect_tx(GROUPS * Self::QUERY.elements() * 2);
        for group in 0..GROUPS {
            for panel in 0..Self::QUERY.panel_count() {
                let width = Self::QUERY.width();
                let to = queries.at(group * Self::QUERY.elements() + panel * ROWS * width);
                let column = k.lit((panel * width) as i32);
                to.tensor_load(task.queries, &[column, row + (group * ROWS) as i32, plane], full, Bulk::default());
            }
        }
    }
}

/// Sums of a warpgroup's rows and `columns` columns, not set yet.
#[track_caller]
fn sums(k: &Builder, columns: u32) -> Accumulator<'_, f32> {
    Accumulator::unset(k, warpgroup_atom::<bf16>(columns).1, 1, 1)
}

#[track_caller]
fn zeros(k: &Builder, columns: u32) -> Accumulator<'_, f32> {
    let sums = sums(k, columns);
    sums.clear(k);
    sums
}

/// A tile of bf16 as an operand of `wgmma`, by its layout (mn, k).
#[track_caller]
fn operand<'k>(base: Ptr<'k, Shared, bf16>, layout: Swizzled) -> SharedOperand<'k> {
    match SharedOperand::by_value(LayoutTensor::new(base, layout)) {
        Ok(operand) => operand,
        Err(error) => unreachable!("panels are what wgmma reads: {error}"),
    }
}

/// The layout with its two modes exchanged: rows are contracted.
fn transposed(layout: Swizzled) -> Swizzled {
    Swizzled::new(layout.swizzle(), 0, Layout::constant(layout.layout().select(&[1, 0])))
}

/// The tiles that some query of a block sees.
#[derive(Clone, Copy)]
struct SeenTiles<'k> {
    /// The first one, where a window hides others; else it is tile 0.
    first: Option<Val<'k, u32>>,
    /// The exclusive end.
    end: Val<'k, u32>,
}

impl<'k> SeenTiles<'k> {
    /// Whether there are any.
    fn exist(self) -> Val<'k, bool> {
        self.first.map_or_else(|| self.end.gt(0), |first| self.end.gt(first))
    }

    /// The number of these tiles before tile `tile`.
    fn before(self, tile: Val<'k, u32>) -> Val<'k, u32> {
        self.first.map_or(tile, |first| tile - first)
    }
}

/// A warpgroup that multiplies.
struct Consumer<'a, 'k, const D: u32, const V: u32, const BN: u32, const GROUPS: u32> {
    k: &'k Builder,
    task: &'a HopperPrefillTask<'a, 'k>,
    group: Val<'k, u32>,
    query: Ptr<'k, Shared, bf16>,
    keys: &'a KeyBuffer<'k, D, BN>,
    values: &'a ValueBuffer<'k, V, BN>,
    scores: Accumulator<'k, f32>,
    weights: RegArray<'k, Bf16x2>,
    acc: Accumulator<'k, f32>,
    softmax: Softmax<'k>,
}

impl<'k, const D: u32, const V: u32, const BN: u32, const GROUPS: u32> Consumer<'_, 'k, D, V, BN, GROUPS> {
    const QUERY: TileForm = TileForm { rows: ROWS, columns: D, form: RowArrangement::Swizzled };
    const KEYS: TileForm = TileForm { rows: BN, columns: D, form: RowArrangement::Swizzled };
    const VALUES: TileForm = TileForm { columns: V, ..Self::KEYS };

    /// Goes through the tiles, at least one, the last first.
    fn run(&self, tiles: SeenTiles<'k>) {
        let k = self.k;
        self.ping_pong_begin();
        let last = tiles.end - 1;
        self.first_tile(last, None);
        k.for_(0, tiles.before(last), |turn: Val<'k, u32>| {
            let tile = last - 1 - turn;
            self.next_tile(tile, || tile + 1, None);
        });
        self.last_values(tiles.first.unwrap_or_else(|| k.lit(0u32)));
        self.ping_pong_end();
    }

    /// Goes through the tiles that a mask shows, at least one.
    fn run_visible(&self, visible: VisibleTiles<'_, 'k>) {
        let k = self.k;
        self.ping_pong_begin();
        let tile = k.var(visible.take());
        self.first_tile(tile.get(), Some(visible.is_whole()));
        k.while_(
            || visible.exists(),
            || {
                let before = tile.get();
                let next = visible.take();
                tile.set(next);
                self.next_tile(next, || before, Some(visible.is_whole()));
            },
        );
        self.last_values(tile.get());
        self.ping_pong_end();
    }

    /// The weights of the first tile.
    fn first_tile(&self, tile: Val<'k, u32>, whole: Option<Val<'k, bool>>) {
        let k = self.k;
        let key = self.keys.copy_to_shared(Issued::by_another(), tile);
        k.wgmma_fence();
        self.multiply_scores(&key);
        k.wgmma_wait(0);
        self.keys.release(key);
        self.modify(tile, whole);
        // Nothing was summed before.
        let _ = self.softmax.update(self.scores);
        self.pack();
    }

    /// The weights of a tile, and the weighted values of the one before it.
    fn next_tile(&self, tile: Val<'k, u32>, before: impl FnOnce() -> Val<'k, u32>, whole: Option<Val<'k, bool>>) {
        let k = self.k;
        let key = self.keys.copy_to_shared(Issued::by_another(), tile);
        let value = self.values.copy_to_shared(Issued::by_another(), before());
        let weights = self.a_fragments();
        self.ping_pong_sync();
        k.wgmma_fence();
        self.multiply_scores(&key);
        self.multiply_weights(&weights, &value);
        self.ping_pong_arrive();
        k.wgmma_wait(1);
        self.keys.release(key);
        self.modify(tile, whole);
        let rescale = self.softmax.update(self.scores);
        k.wgmma_wait(0);
        self.values.release(value);
        rescale.apply(self.acc);
        self.pack();
    }

    /// The weighted values of the last tile.
    fn last_values(&self, tile: Val<'k, u32>) {
        let k = self.k;
        let value = self.values.copy_to_shared(Issued::by_another(), tile);
        let weights = self.a_fragments();
        k.wgmma_fence();
        self.multiply_weights(&weights, &value);
        k.wgmma_wait(0);
        self.values.release(value);
    }

    /// `scores = Q·Kᵀ`, a group of its own.
    fn multiply_scores(&self, key: &Arrived<'k, KConfig<BN, D, BN>>) {
        let a = operand(self.query, Self::QUERY.layout());
        let b = operand(key.base(), Self::KEYS.layout());
        self.scores.wgmma::<bf16>(a, b, D / 16, false);
        self.k.wgmma_commit();
    }

    /// `acc += weights·V`, a group of its own.
    fn multiply_weights(&self, weights: &[Vec<AttentionWeights<'k>>], value: &Arrived<'k, VConfig<BN, BN, BN, V>>) {
        let b = operand(value.base(), transposed(Self::VALUES.layout()));
        self.acc.wgmma_registers::<bf16, _>(weights, b, true);
        self.k.wgmma_commit();
    }

    /// Scores become the A operands of the next product, in registers that the softmax leaves
    /// alone.
    fn pack(&self) {
        for step in 0..BN / 16 {
            let weights: AttentionWeights<'k> = a_fragment(self.k, self.scores, step, 2);
            for (i, &pair) in (0..).zip(weights.registers()) {
                self.weights.set(4 * step + i, pair);
            }
        }
    }

    fn a_fragments(&self) -> Vec<Vec<AttentionWeights<'k>>> {
        let weights = |step| RegisterTensor::from_registers(|register| self.weights.get(4 * step + register as u32));
        (0..BN / 16).map(|step| vec![weights(step)]).collect()
    }

    /// The row of the tile that register 0 of this thread holds.
    fn row(&self) -> Val<'k, u32> {
        self.group * ROWS + self.k.warp() % 4 * 16 + self.k.lane() / 4
    }

    /// Makes scores of a tile's products, −∞ for tokens that a row does not see; `whole`: a mask of
    /// one's own shows all of them.
    fn modify(&self, tile: Val<'k, u32>, whole: Option<Val<'k, bool>>) {
        let HopperPrefillTask { rows, causal, scores, .. } = *self.task;
        let row = |half| rows.place(rows.first + (self.row() + 8 * half));
        scores.apply_to(self.scores, 2, || rows.scores(&row, tile * BN));
        if let Some(whole) = whole {
            scores.mask_to(self.scores, 2, |_| whole, || rows.scores(&row, tile * BN));
        }
        let first = rows.first + self.group * ROWS;
        let is_edge = ((tile + 1) * BN).gt(rows.common(first, causal));
        let is_hidden = rows.window.and_then(|_| rows.is_hidden(tile * BN, first + (ROWS - 1)));
        self.k.when(is_hidden.map_or(is_edge, |hidden| is_edge | hidden), || {
            rows.mask(self.k, self.scores, rows.first + self.row(), tile * BN, causal);
        });
    }

    /// Rows leave by way of the query's memory, 16 bytes a thread; its first panels hold them.
    fn store(&self, queries: Ptr<'k, Shared, bf16>) {
        let k = self.k;
        let lane = self.k.lane();
        let warp = self.k.warp() % 4;
        let mine = queries.at(self.group * Self::QUERY.elements());
        let sink = || self.task.scores.sink(|| self.task.rows.head);
        let inverse = [self.softmax.factor(0, sink()), self.softmax.factor(1, sink())];
        if let Some(lse) = self.task.lse {
            for half in 0..2 {
                let row = self.row() + 8 * half;
                let value = self.softmax.log_sum_exp(half, sink());
                let is_first = (lane % 4).eq(0);
                let rows = self.task.rows;
                k.when(is_first & (rows.first + row).lt(rows.queries), || lse.store(row, value));
            }
        }
        let row = warp * 16 + lane / 8 % 2 * 8 + lane % 8;
        for pair in 0..V / 16 {
            let words = core::array::from_fn(|i| {
                let half = i % 2;
                let at = 4 * (2 * pair + i as u32 / 2) + 2 * (i as u32 % 2);
                let [a, b] = [self.acc.get(at), self.acc.get(at + 1)].map(|value| value * inverse[half]);
                a.pair::<Bf16x2>(b).bits::<u32>()
            });
            let to = Self::QUERY.vector(mine, [0, 2 * pair], row, lane / 16);
            to.stmatrix::<4>(words, tilewright_codegen::ir::attr::Trans::No);
        }
        // The group's own barrier: others may still multiply.
        k.sync_warp();
        let HopperPrefillTask { rows, out, out_stride, .. } = *self.task;
        let in_row = V / VECTOR;
        for index in 0..16 * in_row / 32 {
            let number = lane + 32 * index;
            let row = warp * 16 + number / in_row;
            let vector = number % in_row;
            let query = self.group * ROWS + row;
            k.when((rows.first + query).lt(rows.queries), || {
                let words = Self::read(mine, row, vector).cast::<u32>().load_vec::<4>();
                out.at(query.mul_wide(out_stride)).at(vector * VECTOR).cast::<u32>().store_vec::<4>(words);
            });
        }
    }

    fn read(tile: Ptr<'k, Shared, bf16>, row: Val<'k, u32>, vector: Val<'k, u32>) -> Ptr<'k, Shared, bf16> {
        let in_panel = Self::QUERY.width() / VECTOR;
        let panel = tile.at(vector / in_panel * (ROWS * Self::QUERY.width()));
        Self::QUERY.vector(panel, [0, 0], row, vector % in_panel)
    }

    /// Warpgroup 0 begins: the last one passes it the turn.
    fn ping_pong_begin(&self) {
        if !self.task.ping_pong {
            return;
        }
        self.k.when(self.group.eq(GROUPS - 1), || self.k.bar_arrive(PING_PONG, 256));
    }

    fn ping_pong_sync(&self) {
        if !self.task.ping_pong {
            return;
        }
        self.each_group(|group| self.k.bar_sync(PING_PONG + group, 256));
    }

    fn ping_pong_arrive(&self) {
        if !self.task.ping_pong {
            return;
        }
        self.each_group(|group| self.k.bar_arrive(PING_PONG + (group + 1) % GROUPS, 256));
    }

    /// The turn that was passed last is taken, so that barriers are left as they were found.
    fn ping_pong_end(&self) {
        if !self.task.ping_pong {
            return;
        }
        self.k.when(self.group.eq(0), || self.k.bar_sync(PING_PONG, 256));
    }

    fn each_group(&self, act: impl Fn(u32) + Copy) {
        for group in 0..GROUPS {
            self.k.when(self.group.eq(group), || act(group));
        }
    }
}

/// The first of the named barriers that pass the turn to issue.
const PING_PONG: u32 = 2;
