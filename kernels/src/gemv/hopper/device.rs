//! The kernel on a block: one warp fetches weights, one fetches activations, warpgroups multiply.

use half::bf16;
use tilewright_codegen::build::{Builder, Bulk, Param, Ptr, Shared, TensorMap, Val};
use tilewright_codegen::ir::attr::Eviction;
use tilewright_layout::{Layout, Swizzled};

use super::codes::{CodeLane, CodeStage, StepOperand};
use super::exchange::Exchange;
use super::finish::HopperResults;
use super::runs::ResultRuns;
use super::tiles::{ActivationRing, HopperPlan, WeightRing};
use crate::gemv::hopper::share::{BlockShare, BlockTile};
use crate::mma::{Accumulator, SharedOperand, warpgroup_atom};
use crate::ring::{
    ByBulk, Consumer, Deferred, Empty, Filled, Full, Pieces, Producer, Ring, StageTile, Unready, in_pieces,
};
use crate::tile::{Index, LayoutTensor};
use crate::warps::ConsumerWarps;
use crate::weights::weight_tile::DEPTH;

/// The layout of a stage of either ring.
type HopperStage = (StageTile<bf16, Swizzled>,);

/// Tensor maps of weights: of bf16 or codes, and of codes' factors.
#[derive(Clone, Copy)]
pub(super) struct WeightMaps<'k> {
    pub weights: Ptr<'k, Param, TensorMap>,
    pub factors: Option<Ptr<'k, Param, TensorMap>>,
}

/// The ends of the rings where stages are read.
pub(super) struct HopperInputs<'k> {
    pub weights: Consumer<'k, WeightRing, HopperStage>,
    pub vectors: Deferred<'k, ActivationRing, HopperStage>,
}

impl<'a, 'k> BlockShare<'a, 'k> {
    pub(super) fn new(k: &'k Builder, plan: &'a HopperPlan) -> Self {
        let multicast = plan.tuning.multicast;
        let rank = if plan.tuning.cluster() > 1 { k.cluster_rank() } else { k.lit(0) };
        BlockShare { k, plan, member: rank % multicast, split: rank / multicast }
    }

    /// The first group of tiles of this block.
    fn first_group(self) -> Val<'k, u32> {
        self.k.block_id() / self.plan.tuning.cluster()
    }

    /// The tile of a group for this block: tiles of the same rows follow each other.
    fn place(self, group: Val<'k, u32>) -> BlockTile<'k> {
        let plan = self.plan;
        let multicast = self.plan.tuning.multicast;
        match plan.vector_tiles() {
            1 => BlockTile { rows: group * multicast + self.member, vector: None },
            tiles => BlockTile {
                rows: group / tiles * multicast + self.member,
                vector: Some(group % tiles * plan.of_tile()),
            },
        }
    }

    /// The tiles of this block, one after the other. Where k is shared there is one.
    fn each_tile(self, body: impl FnOnce(BlockTile<'k>)) {
        let k = self.k;
        let plan = self.plan;
        let cluster = plan.tuning.cluster();
        if plan.tuning.splits > 1 {
            return body(self.place(self.first_group()));
        }
        let next = k.var(self.first_group());
        k.moving().while_(
            || next.get().lt(plan.all_groups()),
            || {
                let group = next.get();
                body(self.place(group));
                next.set(group + k.blocks() / cluster);
            },
        );
    }

    /// The chunks of this block's share of k.
    fn chunks(self) -> [Val<'k, u32>; 2] {
        let chunks = self.plan.chunks();
        let splits = self.plan.tuning.splits;
        [self.split, self.split + 1].map(|split| split * chunks / splits)
    }

    /// The ring of weights, whose first stages one thread issues before the block meets: that of
    /// `fetch_weights`.
    pub(super) fn weights(
        self,
        thread: u32,
        maps: WeightMaps<'k>,
    ) -> Unready<Ring<'k, WeightRing, HopperStage, ByBulk>> {
        let plan = self.plan;
        Ring::begun::<WeightRing>(self.k, (plan.stage(),), plan.ring(), [thread, plan.begun()], |stage, to| {
            self.bring_weights(to, maps, [self.place(self.first_group()).rows, self.chunks()[0] + stage])
        })
    }

    /// Fetches the following weights, by that thread.
    pub(super) fn fetch_weights(self, ring: &mut Producer<'k, WeightRing, HopperStage, ByBulk>, maps: WeightMaps<'k>) {
        let k = self.k;
        let [begin, end] = self.chunks();
        let next = k.var(begin + self.plan.begun());
        self.each_tile(|tile| {
            k.moving()
                .for_(next.get(), end, |chunk| self.bring_weights(ring.acquire(), maps, [tile.rows, chunk]).commit());
            next.set(begin);
        });
    }

    fn bring_weights(
        self,
        to: Empty<'k, WeightRing, HopperStage, ByBulk>,
        WeightMaps { weights: map, factors }: WeightMaps<'k>,
        [tile, chunk]: [Val<'k, u32>; 2],
    ) -> Filled<'k, WeightRing, HopperStage, ByBulk> {
        let k = self.k;
        let plan = self.plan;
        // Weights that several tiles of vectors read are read again.
        let first = Bulk::default().policy(k.policy(Eviction::First));
        let how = if plan.vector_tiles() > 1 { Bulk::default() } else { first };
        if let (Some(codes), Some(factors)) = (CodeStage::of(plan), factors) {
            let at = [tile * plan.strips(), chunk];
            let bring = |to: Pieces<'k>| codes.bring(to, [map, factors], plan.strip, at);
            return to.fill((in_pieces(k.lit(codes.brought()), how, bring),));
        }
        let at = [k.lit(0), (chunk * plan.stage_lines()).cast(), (tile * plan.strips()).cast()];
        to.fill((in_pieces(k.lit(plan.stage_bytes()), how, |to: Pieces<'k>| to.bring_box(map, &at)),))
    }

    /// Fetches activations, by one thread: its share of the vectors, for all blocks of its group.
    pub(super) fn fetch_vectors(
        self,
        ring: &mut Producer<'k, ActivationRing, HopperStage, ByBulk>,
        map: Ptr<'k, Param, TensorMap>,
    ) {
        let k = self.k;
        let plan = self.plan;
        let multicast = plan.tuning.multicast;
        let parts = plan.x_parts();
        let [begin, end] = self.chunks().map(|chunk| if parts > 1 { chunk * parts } else { chunk });
        let everyone = (k.lit((1u32 << multicast) - 1) << (self.split * multicast)).cast::<u16>();
        let how = if multicast > 1 { Bulk::default().multicast(everyone) } else { Bulk::default() };
        self.each_tile(|tile| {
            k.moving().for_(begin, end, |chunk| {
                let bring = |to: Pieces<'k>| {
                    let vector = self.member * plan.fetched();
                    for panel in 0..plan.panels() {
                        let column = (chunk * plan.panels() + panel) * (plan.x_stage_k() / plan.panels());
                        let to = to.at(vector * plan.panel_bytes(1)).at(panel * plan.panel_bytes(plan.columns()));
                        let vector = tile.vector.map_or(vector, |first| first + vector);
                        to.bring_box(map, &[column.cast(), vector.cast()]);
                    }
                };
                ring.acquire().fill((in_pieces(k.lit(plan.x_stage_bytes()), how, bring),)).commit();
            });
        });
    }

    /// Multiplies, by the warpgroups, and stores results: of blocks that share k each those of some
    /// rows, after an exchange of sums.
    pub(super) fn multiply(
        self,
        inputs: &mut HopperInputs<'k>,
        room: Ptr<'k, Shared, f32>,
        exchange: Option<Exchange<'k>>,
        results: &HopperResults<'k>,
    ) {
        // Runs of four are whole and aligned, or nothing is known of any.
        if self.plan.results.results().is_multiple_of(4) {
            self.multiply_runs::<4>(inputs, room, exchange, results);
        } else {
            self.multiply_runs::<1>(inputs, room, exchange, results);
        }
    }

    fn multiply_runs<const RUN: usize>(
        self,
        inputs: &mut HopperInputs<'k>,
        room: Ptr<'k, Shared, f32>,
        exchange: Option<Exchange<'k>>,
        results: &HopperResults<'k>,
    ) {
        let k = self.k;
        let plan = self.plan;
        let [begin, end] = self.chunks();
        let consumers = ConsumerWarps::new(k, plan.tuning.warpgroups * 4);
        let group = Index::below(k.warp() / 4, plan.tuning.warpgroups);
        let thread = Index::below(k.tid() % 128, 128);
        let sums = Accumulator::<f32>::unset(k, warpgroup_atom::<bf16>(plan.columns()).1, 1, 1);
        // A warp without rows of its own multiplies the tile's last ones again, and keeps nothing
        // of it; a warp with eight also those above, which it does not keep.
        let warps = plan.rows() / 16;
        let last = plan.strips() - 2;
        let (from, row) = match plan.has_rows_for_all() {
            true => (thread, group * 64),
            false => (Index::below(k.lane(), 32), Index::below((k.warp() * 2).min(last), last + 1) * 8),
        };
        results.prepare(consumers);
        if exchange.is_some() {
            k.grid_wait();
        }
        let staged = plan.staged() as usize;
        self.each_tile(|tile| {
            // Operands of heads, and of the few rows that are a block's of an exchange, come while
            // the first stages do.
            let is_early = exchange.is_some() || results.asks_by_vector();
            let ask = |first: u32| {
                is_early.then(|| ResultRuns::<RUN>::of(self, tile, first, results).ask(consumers)).flatten()
            };
            let asked: Vec<_> = (0..plan.columns()).step_by(staged).map(ask).collect();
            // One stage; the group of the stage before may be in flight where its weights have
            // registers of their own.
            let step = |inputs: &mut HopperInputs<'k>, keep: Val<'k, bool>, in_flight: bool| {
                let weights = inputs.weights.wait();
                let (w,) = weights.tiles();
                let a = sums.load_a::<bf16, _>(from, w, row, plan.stage_k() / 16);
                // The products have their weights in registers.
                Self::meet_vectors(inputs, &a, sums, keep, in_flight, || weights.release());
            };
            if let Some(codes) = CodeStage::of(plan) {
                k.moving().for_(begin, end, |chunk| {
                    self.multiply_codes(inputs, codes, sums, chunk.ne(begin), [from, row]);
                });
            } else if plan.overlaps() {
                k.moving().for_step(begin, end, 2, |chunk| {
                    step(inputs, chunk.ne(begin), true);
                    step(inputs, k.lit(true), true);
                });
            } else {
                k.moving().for_(begin, end, |chunk| step(inputs, chunk.ne(begin), false));
            }
            if plan.overlaps() {
                k.wgmma_wait(0);
                // Behind a share of k nothing comes.
                if plan.tuning.splits == 1 {
                    inputs.vectors.release_last();
                }
            }
            if plan.sums_in_ring() {
                consumers.sync();
            }
            for (first, asked) in (0..plan.columns()).step_by(staged).zip(asked) {
                let stage = |above: u32| self.stage(sums, [group * 64, first.into()], thread, above, room);
                if plan.has_rows_for_all() {
                    stage(0)
                } else {
                    k.when(k.warp().lt(warps), || stage(0));
                }
                if !plan.rows().is_multiple_of(16) {
                    k.when(k.warp().eq(warps), || stage(8));
                }
                let runs = ResultRuns::<RUN>::of(self, tile, first, results);
                if let Some(exchange) = exchange {
                    runs.store(consumers, &exchange.swap(self, consumers, room), asked);
                    continue;
                }
                consumers.sync();
                match results.bests() {
                    Some(bests) => {
                        let columns = plan.staged().min(plan.batch.saturating_sub(first));
                        bests.store::<RUN>(consumers, plan, room, [tile.rows, k.lit(first)], columns);
                    }
                    None => runs.store(consumers, &[room], asked),
                }
                consumers.sync();
            }
        });
    }

    /// A stage of codes: its weights become the operand of one stage of activations after the
    /// other, while the one before is multiplied.
    fn multiply_codes(
        self,
        inputs: &mut HopperInputs<'k>,
        codes: CodeStage,
        sums: Accumulator<'k, f32>,
        keep: Val<'k, bool>,
        [thread, row]: [Index<'k>; 2],
    ) {
        let k = self.k;
        let plan = self.plan;
        let mut weights = Some(inputs.weights.wait());
        let lane = weights.as_ref().map(|weights| CodeLane::new(codes, weights.tiles().0.base().cast(), [thread, row]));
        let steps = plan.x_stage_k() / DEPTH;
        let parts = plan.x_parts();
        for part in 0..parts {
            let a = lane.map_or(Vec::new(), |lane| lane.operands(part * steps, steps));
            let keep = if part == 0 { keep } else { k.lit(true) };
            let begun = weights.take_if(|_| part + 1 == parts);
            Self::meet_vectors(inputs, &a, sums, keep, plan.overlaps(), || begun.into_iter().for_each(Full::release));
        }
    }

    /// Multiplies an operand with the next stage of activations; `begun` is called after the
    /// products have begun. Their group may be in flight when this returns, or else none.
    fn meet_vectors(
        inputs: &mut HopperInputs<'k>,
        a: &[Vec<StepOperand<'k>>],
        sums: Accumulator<'k, f32>,
        keep: Val<'k, bool>,
        in_flight: bool,
        begun: impl FnOnce(),
    ) {
        let k = keep.builder();
        let vectors = inputs.vectors.wait();
        let (x,) = vectors.tiles();
        let x = match SharedOperand::by_value(x) {
            Ok(x) => x,
            Err(error) => return k.refuse(&error),
        };
        k.wgmma_fence();
        sums.wgmma_registers::<bf16, _>(a, x, keep);
        k.wgmma_commit();
        begun();
        if in_flight {
            k.wgmma_wait(1);
            vectors.release_previous();
        } else {
            k.wgmma_wait(0);
            vectors.release();
        }
    }

    /// Stages sums of columns from `first` on, column after column, those of each block that
    /// finishes some apart; without those of each warp's first `above` rows, which begin `above`
    /// rows above the warp's own.
    fn stage(
        self,
        sums: Accumulator<'k, f32>,
        [row, first]: [Index<'k>; 2],
        thread: Index<'k>,
        above: u32,
        room: Ptr<'k, Shared, f32>,
    ) {
        let plan = self.plan;
        let leaf = |extent: u32, stride: u32| Layout::constant(Layout::leaf(extent.into(), stride.into()));
        let splits = plan.tuning.splits;
        let rows = [leaf(plan.rows() / splits, 1), leaf(splits, plan.part())];
        let layout = [leaf(plan.staged(), plan.sums_pitch()), Layout::constant(Layout::tuple(&rows))];
        let staged = LayoutTensor::new(room, Layout::constant(Layout::tuple(&layout)));
        let first = first.constant();
        for pair in sums.pairs(thread) {
            let column = pair.column.constant();
            let Some(down) = pair.row.constant().checked_sub(above) else { continue };
            if (first..first + plan.staged()).contains(&column) {
                for i in 0..2 {
                    let at = [pair.column.variable() + (column - first + i), row + (pair.row.variable() + down)];
                    staged.at(at).store(sums.get(pair.first + i));
                }
            }
        }
    }
}
