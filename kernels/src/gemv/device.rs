//! The kernel on a block: one warp fetches weights, the others multiply.

use super::tiles::{Octets, Plan, ROWS, Weights};
use crate::ring::{ByBulk, Consumer, Contiguous, Producer, Tile, View};
use crate::tile::{Coord, LayoutTensor, place};
use half::bf16;
use tilewright_codegen::build::{Builder, Bulk, Global, Ptr, RegArray, Shared, Val, Var};
use tilewright_codegen::ir::MmaAtom;
use tilewright_codegen::ir::attr::Eviction;
use tilewright_layout::Layout;
use tilewright_layout::typed::StaticLayout;

/// The operands of a stage.
pub type Stage = (Tile<bf16, Layout>,);

/// What a block computes: tiles `first` to `first + count` of weights as [`Plan::weights`] lays them out.
#[derive(Clone, Copy)]
pub struct Task<'k> {
    /// The weights, from tile 0 on.
    pub weights: Ptr<'k, Global, bf16>,
    /// x\[batch, k\], row-major.
    pub x: Ptr<'k, Global, bf16>,
    /// The first tile.
    pub first: Val<'k, u32>,
    /// Number of tiles.
    pub count: Val<'k, u32>,
}

/// Shared memory of the consumers.
#[derive(Clone, Copy)]
pub struct Room<'k> {
    /// Activations of a pass: (vector, k) to offset.
    x: LayoutTensor<'k, bf16, Layout, Shared>,
    /// Each warp's sums of a tile, twice: (vector, row) of a warp is contiguous.
    parts: Ptr<'k, Shared, f32>,
    /// Sums of a group's tiles from pass to pass.
    sums: Ptr<'k, Shared, f32>,
}

impl<'k> Room<'k> {
    /// Allocates it.
    pub fn new(k: &'k Builder, plan: &Plan) -> Room<'k> {
        let x = k.shared_aligned("x", plan.batch * plan.x_stride(), 128);
        let parts = k.shared_aligned("parts", 2 * plan.warps * plan.warp_sums(), 128);
        let sums = k.shared("sums", if plan.passes > 1 { plan.group * plan.sums() } else { 4 });
        Room { x: LayoutTensor::new(x, plan.x()), parts, sums }
    }
}

/// The groups of a task's tiles and the passes over each: `body` takes the group's first tile, its tiles, the pass.
fn passes<'k>(
    k: &'k Builder,
    plan: &Plan,
    count: Val<'k, u32>,
    body: impl FnOnce(Val<'k, u32>, Val<'k, u32>, Val<'k, u32>),
) {
    if plan.passes == 1 {
        return body(k.lit(0u32), count, k.lit(0u32));
    }
    k.for_step(0, count, plan.group, |start| {
        k.for_(0, plan.passes, |pass| body(start, (count - start).min(plan.group), pass));
    });
}

/// The producer's side, for one thread: every stage of every tile, in the order in which it is consumed.
pub fn produce<'k>(k: &'k Builder, plan: &Plan, ring: &mut Producer<'k, Weights, Stage, ByBulk>, task: Task<'k>) {
    let stage = plan.stage_elements();
    let how = Bulk::default().policy(k.policy(Eviction::First));
    passes(k, plan, task.count, |start, tiles, pass| {
        k.for_(0, tiles, |t| {
            let tile = task.weights.at((task.first + start + t).mul_wide(plan.tile_elements()));
            let from = tile.at(pass * (plan.pass_stages * stage));
            k.for_(0, plan.pass_stages, |s| {
                ring.acquire().fill((Contiguous::from(from.at(s * stage)).how(how),)).commit();
            });
        });
    });
}

/// The consumers' side, for the first [`Plan::warps`] warps. `epilogue` takes a sum's vector and row, and the sum.
pub fn consume<'k>(
    k: &'k Builder,
    plan: &Plan,
    ring: &mut Consumer<'k, Weights, Stage>,
    room: Room<'k>,
    task: Task<'k>,
    epilogue: impl Fn([Val<'k, u32>; 2], Val<'k, f32>),
) {
    let side = k.var(0u32);
    passes(k, plan, task.count, |start, tiles, pass| {
        load_x(k, plan, room, task.x, pass);
        k.for_(0, tiles, |t| {
            let acc = k.regs(plan.chains() * plan.m_tiles() * 4, 0.0f32);
            k.for_(0, plan.pass_stages, |s| {
                let full = ring.wait();
                let (weights,) = full.tiles();
                let load = |round| load_unit(k, plan, room, weights, s, round);
                let mut loaded = Vec::new();
                for round in 0..plan.stage_units.div_ceil(plan.warps) {
                    // The last round may not have a unit for every warp.
                    match plan.stage_units - round * plan.warps {
                        rest if rest < plan.warps => {
                            k.when(k.warp().lt(rest), || multiply(k, plan, acc, round, &load(round)));
                        }
                        _ => loaded.push((round, load(round))),
                    }
                }
                full.release();
                loaded.iter().for_each(|(round, unit)| multiply(k, plan, acc, *round, unit));
            });
            gather(k, plan, room, acc, side, |element, sum| {
                let emit = |sum| epilogue([element / ROWS, (task.first + start + t) * ROWS + element % ROWS], sum);
                keep(k, plan, room.sums.at(t * plan.sums() + element), pass, sum, emit);
            });
        });
    });
}

/// Brings the activations of a pass, with zeros behind the end of k, and tells the other warps.
fn load_x<'k>(k: &'k Builder, plan: &Plan, room: Room<'k>, x: Ptr<'k, Global, bf16>, pass: Val<'k, u32>) {
    let width = plan.x_vector();
    let (row, threads) = (plan.pass_k() / width, plan.warps * 32);
    let total = plan.batch * row;
    // Some vectors at a time: their loads fly together.
    let step = total.div_ceil(threads).min(8);
    k.for_step(0, total, step * threads, |from| {
        let vectors: Vec<_> = (0..step).map(|i| from + k.tid() + i * threads).collect();
        for at in vectors {
            let (m, column) = (at / row, at % row * width);
            let (to, source) = (room.x.at([m.into(), column.into()]), pass * plan.pass_k() + column);
            let here = at.lt(total);
            k.when(here, || {
                let from = x.at(m * plan.k + source);
                k.if_else(
                    source.lt(plan.k),
                    || match width {
                        8 => to.cast::<u32>().store_vec(from.cast::<u32>().load_vec::<4>()),
                        4 => to.cast::<u32>().store_vec(from.cast::<u32>().load_vec::<2>()),
                        2 => to.cast::<u32>().store(from.cast::<u32>().load()),
                        _ => to.cast::<u16>().store(from.cast::<u16>().load()),
                    },
                    || match width {
                        8 => to.cast::<u32>().store_vec([k.lit(0u32); 4]),
                        4 => to.cast::<u32>().store_vec([k.lit(0u32); 2]),
                        2 => to.cast::<u32>().store(0u32),
                        _ => to.cast::<u16>().store(0u16),
                    },
                );
            });
        }
    });
    k.bar_sync(1, threads);
}

/// This lane's part of a unit: eight weights, and for each eight vectors the eight activations that they meet.
struct LoadedUnit<'k> {
    weights: [Val<'k, u32>; 4],
    x: Vec<[Val<'k, u32>; 4]>,
}

/// Loads this warp's unit of a round of stage `s`.
fn load_unit<'k>(
    k: &'k Builder,
    plan: &Plan,
    room: Room<'k>,
    weights: View<'k, bf16, Layout>,
    s: Val<'k, u32>,
    round: u32,
) -> LoadedUnit<'k> {
    const LANES: Layout = Octets::LAYOUT.right_inverse();
    let lane = place(&LANES, Coord::lane(k));
    let (row, octet) = (lane % ROWS, lane / ROWS);
    let unit = Coord::below(k.warp(), plan.warps) + round * plan.warps;
    let column = unit * 32 + octet * 8;
    let vector = |half: u32| {
        let m = row + half * 8;
        if half * 8 + 8 <= plan.batch { m } else { Coord::below(m.get(k).min(plan.batch - 1), plan.batch) }
    };
    let stage = Coord::below(s, plan.pass_stages) * (plan.stage_units * 32);
    let load_x = |half| room.x.at([vector(half), stage + column]).cast::<u32>().load_vec();
    LoadedUnit {
        weights: weights.at([row, column]).cast::<u32>().load_vec(),
        x: (0..plan.batch.div_ceil(8)).map(load_x).collect(),
    }
}

/// Two matrix instructions for each sixteen vectors. Slots of the contraction hold the same k on both sides.
fn multiply<'k>(k: &'k Builder, plan: &Plan, acc: RegArray<'k, f32>, round: u32, unit: &LoadedUnit<'k>) {
    let nothing = [k.lit(0u32); 4];
    for (m, halves) in unit.x.chunks(2).enumerate() {
        let (low, high) = (halves[0], halves.get(1).copied().unwrap_or(nothing));
        for step in 0..2 {
            let chain = (round * 2 + step) % plan.chains();
            let (i, acc) = (2 * step as usize, acc.run((chain * plan.m_tiles() + m as u32) * 4, 4));
            let a = [low[i], high[i], low[i + 1], high[i + 1]];
            acc.mma(MmaAtom::M16N8K16_F32_BF16_BF16, &a, &unit.weights[i..i + 2]);
        }
    }
}

/// Adds the warps' sums of a tile: `each` takes an element of (vector, row), row fastest, and its sum.
fn gather<'k>(
    k: &'k Builder,
    plan: &Plan,
    room: Room<'k>,
    acc: RegArray<'k, f32>,
    side: Var<'k, u32>,
    each: impl Fn(Val<'k, u32>, Val<'k, f32>),
) {
    let parts = room.parts.at(side.get() * (plan.warps * plan.warp_sums()));
    // The accumulator's fragment: lane 4·m + n/2 holds rows n and n + 1 of vector m.
    let mine = parts.at(k.warp() * plan.warp_sums() + k.lane() * 2);
    for half in 0..plan.batch.div_ceil(8) {
        let sum = |i: u32| {
            let of = |chain: u32| acc.get((chain * plan.m_tiles() + half / 2) * 4 + half % 2 * 2 + i);
            (1..plan.chains()).fold(of(0), |sum, chain| sum + of(chain))
        };
        mine.at(half * 64).store_vec([sum(0), sum(1)]);
    }
    k.bar_sync(1, plan.warps * 32);
    for first in (0..plan.sums()).step_by(plan.warps as usize * 32) {
        let element = k.tid() + first;
        k.when(element.lt(plan.sums()), || {
            let part = |warp: u32| parts.at(element).at(warp * plan.warp_sums()).load();
            each(element, (1..plan.warps).fold(part(0), |sum, warp| sum + part(warp)));
        });
    }
    side.set(side.get() ^ 1);
}

/// Adds a sum to what earlier passes kept; the last pass hands it on.
fn keep<'k>(
    k: &'k Builder,
    plan: &Plan,
    kept: Ptr<'k, Shared, f32>,
    pass: Val<'k, u32>,
    sum: Val<'k, f32>,
    emit: impl Fn(Val<'k, f32>),
) {
    if plan.passes == 1 {
        return emit(sum);
    }
    k.if_else(
        pass.eq(0),
        || kept.store(sum),
        || {
            let sum = kept.load() + sum;
            k.if_else(pass.eq(plan.passes - 1), || emit(sum), || kept.store(sum));
        },
    );
}
