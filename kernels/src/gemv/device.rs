//! The kernel on a block: one warp fetches weights, one fetches activations, the others multiply.

use super::product::{Chains, Fragment, multiply as multiply_tiles};
use super::tiles::{ActivationRing, GemvPlan, WeightRing};
use crate::mma::Accumulator;
use crate::ring::{BulkSource, ByBulk, Consumer, Producer, StageTile, StageView, in_pieces};
use crate::tile::{Index, place};
use crate::warps::sum_of_warps;
use crate::weights::weight_tile::DEPTH;
use crate::weights::{LaneCodes, Octets, Strip, WarpTile};
use half::bf16;
use tilewright_codegen::build::{Builder, Bulk, Global, Ptr, Shared, Val, Var};
use tilewright_codegen::ir::attr::Eviction;
use tilewright_layout::Layout;
use tilewright_layout::typed::StaticLayout;

/// The contents of a stage of either ring.
pub type GemvStage = (StageTile<bf16, Layout>,);

/// The work of a block: strips `first` to `first + count` of weights as [`Strip::layout`] has them.
#[derive(Clone, Copy)]
pub struct GemvTask<'k> {
    /// The weights, from strip 0 on.
    pub weights: Ptr<'k, Global, bf16>,
    /// The vectors, [`GemvPlan::x_pitch`] apart.
    pub x: Ptr<'k, Global, bf16>,
    /// The first strip.
    pub first: Val<'k, u32>,
    /// Number of strips.
    pub count: Val<'k, u32>,
}

/// The strips of a task in groups: `body` takes a group's first strip, counted from the task's, and
/// its size.
fn groups<'k>(k: &'k Builder, plan: &GemvPlan, task: GemvTask<'k>, body: impl FnOnce(Val<'k, u32>, Val<'k, u32>)) {
    k.moving().for_step(0, task.count, plan.group, |start| body(start, (task.count - start).min(plan.group)));
}

/// Fetches weights, by one thread: of each group stage 0 of every strip, then stage 1 of every
/// strip, and so on.
pub fn fetch_weights<'k>(
    k: &'k Builder,
    plan: &GemvPlan,
    ring: &mut Producer<'k, WeightRing, GemvStage, ByBulk>,
    task: GemvTask<'k>,
) {
    let how = Bulk::default().policy(k.policy(Eviction::First));
    let strip = plan.strip;
    let elements = plan.strip.bytes() / 2;
    groups(k, plan, task, |start, strips| {
        let group = task.weights.at((task.first + start).mul_wide(elements));
        k.moving().for_(0, strip.stages(), |s| {
            k.moving().for_(0, strips, |u| {
                let from = group.at(u.mul_wide(elements)).at(s * (strip.stage_bytes() / 2));
                ring.acquire().fill((BulkSource::from(from).how(how),)).commit();
            });
        });
    });
}

/// Fetches activations, by one thread: for each group all of k.
pub fn fetch_vectors<'k>(
    k: &'k Builder,
    plan: &GemvPlan,
    ring: &mut Producer<'k, ActivationRing, GemvStage, ByBulk>,
    task: GemvTask<'k>,
) {
    let strip = plan.strip;
    groups(k, plan, task, |_, _| {
        k.moving().for_(0, strip.stages(), |s| {
            let column = s * strip.stage_k();
            // The last stage may run over the end of the vectors.
            let length = match strip.padded_k() - plan.x_pitch() {
                0 => k.lit(strip.stage_k()),
                _ => (k.lit(plan.x_pitch()) - column).min(strip.stage_k()),
            };
            let from = task.x.at(column).cast::<u8>();
            let bytes = length * 2;
            let rows = in_pieces(bytes * plan.batch, Bulk::default(), |to| {
                let place = |m: Val<'k, u32>| to.at(m * (2 * plan.x_stage_pitch()));
                k.for_(0, plan.batch, |m| place(m).bring(from.at(m.mul_wide(2 * plan.x_pitch())), bytes));
            });
            ring.acquire().fill((rows,)).commit();
        });
    });
}

/// The ends of the rings where stages are read.
pub struct GemvInputs<'k> {
    /// Weights.
    pub weights: Consumer<'k, WeightRing, GemvStage>,
    /// Activations.
    pub vectors: Consumer<'k, ActivationRing, GemvStage>,
}

/// Allocates memory for the warps' sums of two strips.
pub fn room<'k>(k: &'k Builder, plan: &GemvPlan) -> Ptr<'k, Shared, f32> {
    k.shared_aligned("sums", 2 * plan.strip.warps() * plan.warp_sums(), 128)
}

/// Multiplies, by the first [`Strip::warps`] warps. `epilogue` takes a sum's vector and row, and
/// the sum.
pub fn multiply<'k>(
    k: &'k Builder,
    plan: &GemvPlan,
    inputs: &mut GemvInputs<'k>,
    room: Ptr<'k, Shared, f32>,
    task: GemvTask<'k>,
    epilogue: impl Fn([Val<'k, u32>; 2], Val<'k, f32>),
) {
    let strip = plan.strip;
    let atoms = plan.atoms();
    let side = k.var(0u32);
    groups(k, plan, task, |start, strips| {
        let acc = Accumulator::warp::<bf16>(k, plan.group * atoms, 1);
        let sums = |u: u32| Chains::of(acc.rows_of_atoms(u * atoms, atoms), 1);
        k.moving().for_(0, strip.stages(), |s| {
            let vectors = inputs.vectors.wait();
            let (x,) = vectors.tiles();
            let tiles = tiles(k, strip, s);
            let load = |tile: &WarpTile<'k>| fragments(k, plan, tile.tile, x);
            let kept: Vec<_> = tiles.iter().filter(|_| plan.x_in_registers()).map(load).collect();
            for u in 0..plan.group {
                k.moving().when(strips.gt(u), || {
                    let weights = inputs.weights.wait();
                    let (w,) = weights.tiles();
                    let packed: Vec<LaneCodes> = tiles.iter().map(|tile| tile.load(strip, w.base())).collect();
                    let meets = |i: u32| kept.get(i as usize).cloned().unwrap_or_else(|| load(&tiles[i as usize]));
                    multiply_tiles(k, packed.into_iter(), meets, sums(u));
                    // After the products: the fence of a release waits for what was read, which
                    // they have waited for.
                    weights.release();
                });
            }
            vectors.release();
        });
        for u in 0..plan.group {
            k.when(strips.gt(u), || {
                add_warps(k, plan, room, sums(u), side, |[m, row], sum| {
                    epilogue([m, (task.first + start + u) * Strip::ROWS + row], sum);
                });
            });
        }
    });
}

/// The tiles of stage `s` of this warp: warps take one each, round after round.
fn tiles<'k>(k: &'k Builder, strip: Strip, s: Val<'k, u32>) -> Vec<WarpTile<'k>> {
    let warps = strip.warps();
    let stage_tiles = strip.stage_tiles();
    let padded = strip.stages() * stage_tiles > strip.tiles();
    let of_round = |round: u32| {
        let tile = WarpTile::number(k, strip, round);
        let whole = stage_tiles - round * warps >= warps;
        if whole && !padded {
            return WarpTile { tile, exists: None };
        }
        // Warps without a tile load the last one again, and do not use it: beyond the end of k is
        // nothing.
        let tiles = match padded {
            true => (k.lit(strip.tiles()) - s * stage_tiles).min(stage_tiles),
            false => k.lit(stage_tiles),
        };
        let number = tile.get(k);
        WarpTile { tile: Index::below(number.min(tiles - 1), stage_tiles), exists: Some(number.lt(tiles)) }
    };
    (0..strip.per_warp()).map(of_round).collect()
}

/// The activations that meet this lane's weights of a tile. Vectors beyond the batch repeat the
/// last one: no result looks at their sums.
fn fragments<'k>(
    k: &'k Builder,
    plan: &GemvPlan,
    tile: Index<'k>,
    x: StageView<'k, bf16, Layout>,
) -> Vec<Fragment<'k>> {
    const LANES: Layout = Octets::LAYOUT.right_inverse();
    let place = place(&LANES, Index::lane(k));
    let vector = place % Strip::ROWS;
    let inside = place / Strip::ROWS * 8;
    let eight = |first: u32| {
        let vector = vector + first;
        let whole = first + 8 <= plan.batch;
        let vector = if whole { vector } else { Index::below(vector.get(k).min(plan.batch - 1), plan.batch) };
        x.at([vector, tile * DEPTH + inside]).cast().load_vec()
    };
    let eights: Vec<[Val<u32>; 4]> = (0..plan.batch).step_by(8).map(eight).collect();
    eights.chunks(2).map(|eights| Fragment { low: eights[0], high: eights.get(1).copied() }).collect()
}

/// Adds the warps' sums of a strip: `each` takes vector and row, and their sum.
fn add_warps<'k>(
    k: &'k Builder,
    plan: &GemvPlan,
    room: Ptr<'k, Shared, f32>,
    sums: Chains<'k>,
    side: Var<'k, u32>,
    each: impl Fn([Val<'k, u32>; 2], Val<'k, f32>),
) {
    let own = plan.warp_sums();
    let warps = plan.strip.warps();
    let threads = warps * 32;
    let room = room.at(side.get() * (warps * own));
    // The accumulator's fragment: lane 4·m + n/2 holds rows n and n + 1 of vector m.
    let mine = room.at(k.warp() * own + k.lane() * 2);
    for eight in 0..plan.batch.div_ceil(8) {
        mine.at(eight * 64).store_vec([0, 1].map(|i| sums.get(eight * 2 + i)));
    }
    k.bar_sync(1, threads);
    for first in (0..plan.sums()).step_by(threads as usize) {
        let at = k.tid() + first;
        k.when(at.lt(plan.sums()), || {
            let sum = sum_of_warps(room.at(at), warps, own);
            each([at / Strip::ROWS, at % Strip::ROWS], sum);
        });
    }
    side.set(side.get() ^ 1);
}
