//! The kernel on a block: one warp fetches weights, one fetches activations, the others multiply.

use super::tiles::{Octets, Plan, ROWS, Vectors, Weights};
use crate::mma::Accumulator;
use crate::ring::{BulkSource, ByBulk, Consumer, Producer, Source, StageTile, View};
use crate::tile::{Index, place};
use half::bf16;
use tilewright_codegen::build::{Builder, Bulk, Global, Mbarrier, Ptr, Shared, Val, Var};
use tilewright_codegen::ir::attr::Eviction;
use tilewright_layout::Layout;
use tilewright_layout::typed::StaticLayout;

/// What a stage of either ring holds.
pub type Stage = (StageTile<bf16, Layout>,);

/// What a block computes: tiles `first` to `first + count` of weights as [`Plan::weights`] lays them out.
#[derive(Clone, Copy)]
pub struct Task<'k> {
    /// The weights, from tile 0 on.
    pub weights: Ptr<'k, Global, bf16>,
    /// The vectors, [`Plan::x_pitch`] apart.
    pub x: Ptr<'k, Global, bf16>,
    /// The first tile.
    pub first: Val<'k, u32>,
    /// Number of tiles.
    pub count: Val<'k, u32>,
}

/// The tiles of a task in groups: `body` takes a group's first tile, counted from the task's, and its size.
fn groups<'k>(k: &'k Builder, plan: &Plan, task: Task<'k>, body: impl FnOnce(Val<'k, u32>, Val<'k, u32>)) {
    k.for_step(0, task.count, plan.group, |start| body(start, (task.count - start).min(plan.group)));
}

/// Fetches weights, by one thread: of each group stage 0 of every tile, then stage 1 of every tile, and so on.
pub fn fetch_weights<'k>(k: &'k Builder, plan: &Plan, ring: &mut Producer<'k, Weights, Stage, ByBulk>, task: Task<'k>) {
    let how = Bulk::default().policy(k.policy(Eviction::First));
    groups(k, plan, task, |start, tiles| {
        let group = task.weights.at((task.first + start).mul_wide(plan.tile_elements()));
        k.for_(0, plan.tile_stages, |s| {
            k.for_(0, tiles, |t| {
                let from = group.at(t.mul_wide(plan.tile_elements())).at(s * plan.stage_elements());
                ring.acquire().fill((BulkSource::from(from).how(how),)).commit();
            });
        });
    });
}

/// Fetches activations, by one thread: for each group all of k.
pub fn fetch_vectors<'k>(k: &'k Builder, plan: &Plan, ring: &mut Producer<'k, Vectors, Stage, ByBulk>, task: Task<'k>) {
    groups(k, plan, task, |_, _| {
        k.for_(0, plan.tile_stages, |s| {
            let column = s * plan.stage_k();
            // The last stage may run over the end of the vectors.
            let length = match plan.tile_stages * plan.stage_k() - plan.x_pitch() {
                0 => k.lit(plan.stage_k()),
                _ => (k.lit(plan.x_pitch()) - column).min(plan.stage_k()),
            };
            ring.acquire().fill((Rows { k, plan: *plan, from: task.x.at(column), bytes: length * 2 },)).commit();
        });
    });
}

/// So many bytes of each vector.
struct Rows<'k> {
    k: &'k Builder,
    plan: Plan,
    from: Ptr<'k, Global, bf16>,
    bytes: Val<'k, u32>,
}

impl<'k> Source<'k, bf16, Layout> for Rows<'k> {
    fn bytes(&self, _: &'k Builder, _: u32) -> Val<'k, u32> {
        self.bytes * self.plan.batch
    }

    fn load(self, to: View<'k, bf16, Layout>, _: u32, bar: Mbarrier<'k, Shared>) {
        self.k.for_(0, self.plan.batch, |m| {
            let from = self.from.at(m.mul_wide(self.plan.x_pitch()));
            to.at([m.into(), 0.into()]).bulk_load(from, self.bytes, bar, Bulk::default());
        });
    }
}

/// The ends of the rings where stages are read.
pub struct Inputs<'k> {
    /// Weights.
    pub weights: Consumer<'k, Weights, Stage>,
    /// Activations.
    pub vectors: Consumer<'k, Vectors, Stage>,
}

/// Room for the warps' sums of two tiles.
pub fn room<'k>(k: &'k Builder, plan: &Plan) -> Ptr<'k, Shared, f32> {
    k.shared_aligned("sums", 2 * plan.warps * plan.warp_sums(), 128)
}

/// Multiplies, by the first [`Plan::warps`] warps. `epilogue` takes a sum's vector and row, and the sum.
pub fn multiply<'k>(
    k: &'k Builder,
    plan: &Plan,
    inputs: &mut Inputs<'k>,
    room: Ptr<'k, Shared, f32>,
    task: Task<'k>,
    epilogue: impl Fn([Val<'k, u32>; 2], Val<'k, f32>),
) {
    let (atoms, side) = (plan.m_tiles(), k.var(0u32));
    groups(k, plan, task, |start, tiles| {
        let acc = Accumulator::warp::<bf16>(k, plan.group * atoms, 1);
        k.for_(0, plan.tile_stages, |s| {
            let vectors = inputs.vectors.wait();
            let ((x,), rounds) = (vectors.tiles(), rounds(k, plan, s));
            let kept: Vec<_> =
                rounds.iter().filter(|_| plan.x_in_registers()).map(|round| round.vectors(k, plan, x)).collect();
            for t in 0..plan.group {
                k.when(tiles.gt(t), || {
                    let weights = inputs.weights.wait();
                    let (w,) = weights.tiles();
                    let loaded: Vec<_> = rounds.iter().map(|round| round.weights(k, w)).collect();
                    for (i, (round, w)) in rounds.iter().zip(loaded).enumerate() {
                        round.mine(k, || {
                            let x = kept.get(i).cloned().unwrap_or_else(|| round.vectors(k, plan, x));
                            accumulate(k, acc.rows_of_atoms(t * atoms, atoms), &x, w);
                        });
                    }
                    // Behind the products: the fence of a release waits for what was read, which they have waited for.
                    weights.release();
                });
            }
            vectors.release();
        });
        for t in 0..plan.group {
            k.when(tiles.gt(t), || {
                add_warps(k, plan, room, acc.rows_of_atoms(t * atoms, atoms), side, |[m, row], sum| {
                    epilogue([m, (task.first + start + t) * ROWS + row], sum);
                });
            });
        }
    });
}

/// A warp's unit of a stage: warps take one each, round after round.
struct Round<'k> {
    unit: Index<'k>,
    /// Whether there is a unit for this warp, where not every warp has one.
    exists: Option<Val<'k, bool>>,
}

/// The rounds of stage `s`.
fn rounds<'k>(k: &'k Builder, plan: &Plan, s: Val<'k, u32>) -> Vec<Round<'k>> {
    let padded = plan.tile_stages * plan.stage_units > plan.units();
    let round = |first: u32| {
        let (unit, whole) = (Index::below(k.warp(), plan.warps) + first, plan.stage_units - first >= plan.warps);
        if whole && !padded {
            return Round { unit, exists: None };
        }
        // Warps without a unit load the last one again, and do not use it: behind the end of k is nothing.
        let units = match padded {
            true => (k.lit(plan.units()) - s * plan.stage_units).min(plan.stage_units),
            false => k.lit(plan.stage_units),
        };
        let number = unit.get(k);
        Round { unit: Index::below(number.min(units - 1), plan.stage_units), exists: Some(number.lt(units)) }
    };
    (0..plan.stage_units).step_by(plan.warps as usize).map(round).collect()
}

/// Row (or vector) of this lane's eight elements in a unit, and their first k.
fn octet<'k>(k: &'k Builder) -> (Index<'k>, Index<'k>) {
    const LANES: Layout = Octets::LAYOUT.right_inverse();
    let place = place(&LANES, Index::lane(k));
    (place % ROWS, place / ROWS * 8)
}

impl<'k> Round<'k> {
    /// This lane's eight weights.
    fn weights(&self, k: &'k Builder, w: View<'k, bf16, Layout>) -> [Val<'k, u32>; 4] {
        let (row, inside) = octet(k);
        w.at([row, self.unit * 32 + inside]).cast().load_vec()
    }

    /// The eight activations that they meet, of each eight vectors. Vectors beyond the batch are the last one again:
    /// nobody looks at their sums.
    fn vectors(&self, k: &'k Builder, plan: &Plan, x: View<'k, bf16, Layout>) -> Vec<[Val<'k, u32>; 4]> {
        let (row, inside) = octet(k);
        let eight = |first: u32| {
            let vector = row + first;
            let whole = first + 8 <= plan.batch;
            let vector = if whole { vector } else { Index::below(vector.get(k).min(plan.batch - 1), plan.batch) };
            x.at([vector, self.unit * 32 + inside]).cast().load_vec()
        };
        (0..plan.batch).step_by(8).map(eight).collect()
    }

    /// Does it where there is a unit.
    fn mine(&self, k: &'k Builder, work: impl FnOnce()) {
        match self.exists {
            Some(exists) => k.when(exists, work),
            None => work(),
        }
    }
}

/// Two matrix instructions for each sixteen vectors. Slots of the contraction hold the same k on both sides.
fn accumulate<'k>(k: &'k Builder, acc: Accumulator<'k, f32>, x: &[[Val<'k, u32>; 4]], w: [Val<'k, u32>; 4]) {
    for (m, eights) in x.chunks(2).enumerate() {
        let (low, high) = (eights[0], eights.get(1).copied().unwrap_or([k.lit(0u32); 4]));
        for i in [0, 2] {
            let a = [low[i], high[i], low[i + 1], high[i + 1]];
            acc.rows_of_atoms(m as u32, 1).mma::<bf16>(&[a.into()], &[[w[i], w[i + 1]].into()]);
        }
    }
}

/// Adds the warps' sums of a tile: `each` takes vector and row, and their sum.
fn add_warps<'k>(
    k: &'k Builder,
    plan: &Plan,
    room: Ptr<'k, Shared, f32>,
    acc: Accumulator<'k, f32>,
    side: Var<'k, u32>,
    each: impl Fn([Val<'k, u32>; 2], Val<'k, f32>),
) {
    let (own, threads) = (plan.warp_sums(), plan.warps * 32);
    let room = room.at(side.get() * (plan.warps * own));
    // The accumulator's fragment: lane 4·m + n/2 holds rows n and n + 1 of vector m.
    let mine = room.at(k.warp() * own + k.lane() * 2);
    for eight in 0..plan.batch.div_ceil(8) {
        mine.at(eight * 64).store_vec([0, 1].map(|i| acc.get(eight * 2 + i)));
    }
    k.bar_sync(1, threads);
    for first in (0..plan.sums()).step_by(threads as usize) {
        let at = k.tid() + first;
        k.when(at.lt(plan.sums()), || {
            let sum = (0..plan.warps).map(|warp| room.at(at).at(warp * own).load()).reduce(|a, b| a + b);
            each([at / ROWS, at % ROWS], sum.unwrap_or_else(|| k.lit(0.0f32)));
        });
    }
    side.set(side.get() ^ 1);
}
