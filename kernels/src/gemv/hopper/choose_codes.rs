//! Chooses the tiles for weights of codes, which are bound by tensor cores and by conversion
//! instructions rather than by memory.
//!
//! With N columns of a tile, W warpgroups, and 64 of k, which are four steps of 16:
//!
//! * `wgmma` takes N/2 cycles a step; warpgroups take turns.
//! * Shared memory gives 128 bytes a cycle: each warpgroup reads N columns of activations (N
//!   cycles) and its codes (64, since a quad's lanes read what all of them need), and both come in
//!   (N and 16·W).
//! * A step's operand is four pairs of codes for each thread. A warp of each warpgroup shares a
//!   scheduler, so W of them wait for each other there.
//! * A warpgroup widens a stage of activations' operand while the one before is multiplied. Where
//!   it has no registers for that it widens, waits, multiplies, and then begins the next. Barriers
//!   and loads are a chain beside, whatever k a stage has.
//! * A tile's sums are staged by 32 columns at a time, and stored.
//!
//! Measured on an H200, codes of 4 bits with scales of bf16, µs (tile, k of a stage of
//! activations):
//!
//! | vectors × n × k | tile, k | | others |
//! |---|---|---|---|
//! | 64 × 28672 × 4096 | 256 × 64, 64 | 35.9 | 128 × 64, 128: 38.0; 128 × 64, 64: 42.8 |
//! | 64 × 4096 × 14336 | 64 × 64, 128, two shares | 18.8 | with k of 64: 34.0 |
//! | 512 × 14336 × 4096 | 128 × 256, 64 | 81.3 | 128 × 128, 128: 97; 192 × 104, 64: 108 |
//! | 512 × 4096 × 14336 | 128 × 128, 128 | 85.3 | with k of 64: 92 to 96; 128 × 256, 64: 131 |
//! | 4096 × 14336 × 4096 | 128 × 256, 64 | 700 | 192 × 160, 64: 749; 192 × 128, 64: 842 |

use super::{HopperPlan, HopperTuning, WeightRows};
use crate::gemv::hopper::costs::{CYCLES, EXCHANGE, INGRESS, LEAST, MEET, MEMORY};
use crate::weights::Strip;

/// Instructions of a warp that make the operand of a step: of codes of 4 bits with scales of bf16,
/// and of others.
const WIDEN: [f64; 2] = [28.0, 44.0];
/// Cycles of a stage in addition to its instructions and products: barriers, loads and, if products
/// are waited for, their end.
const CHAIN: [f64; 2] = [300.0, 400.0];
/// Cycles of 32 columns of a tile's sums, from the first that is staged to the last that is stored.
const STORE: f64 = 450.0;
/// Additional cycles of a tile.
const TILE: f64 = 1500.0;
/// Cycles of shared memory in which a warpgroup reads codes of 64 of k, and in which they come.
const READ: [f64; 2] = [64.0, 16.0];
/// The ratio of shared-memory time to the time of its bytes.
const BUSY: f64 = 1.2;
/// The ratio of the time of three warpgroups to this estimate.
const THREE: f64 = 1.1;

/// Estimates the microseconds of a plan on a number of multiprocessors; infinite where blocks that
/// meet are not resident together.
pub(super) fn predict_codes(plan: &HopperPlan, multiprocessors: u32) -> f64 {
    let HopperTuning { warpgroups, splits, multicast, .. } = plan.tuning;
    let groups = plan.all_groups();
    let resident = multiprocessors / plan.tuning.cluster();
    if resident == 0 || (splits > 1 && groups > resident) {
        return f64::INFINITY;
    }
    let [warpgroups, columns, rows] = [warpgroups, plan.columns(), plan.rows()].map(f64::from);
    let cheap = plan.strip.codes().is_some_and(|codes| codes.is_widened_in_pairs());
    // Of a stage of activations.
    let lines = f64::from(plan.x_stage_k() / 64);
    let widen = 4.0 * lines * if cheap { WIDEN[0] } else { WIDEN[1] };
    let multiply = 2.0 * lines * columns;
    let shared = BUSY * lines * (warpgroups * (READ[0] + READ[1] + columns) + columns);
    let bytes = f64::from(plan.stage_bytes()) / f64::from(plan.x_parts()) + f64::from(plan.x_stage_bytes());
    let arrive = bytes / INGRESS * CYCLES;
    let alone = warpgroups * widen + if plan.overlaps() { CHAIN[0] } else { multiply + CHAIN[1] };
    let stage = (warpgroups * multiply).max(alone).max(shared).max(arrive);
    let stage = stage * if plan.tuning.warpgroups == 3 { THREE } else { 1.0 };
    let stages = f64::from((plan.chunks() * plan.x_parts()).div_ceil(splits));
    let tile = stages * stage + (columns / 32.0).ceil() * STORE / f64::from(splits) + TILE;
    let rounds = groups.div_ceil(resident);
    let multiplied = f64::from(rounds) * tile / CYCLES;
    let memory = f64::from(plan.strip.bytes()) * f64::from(plan.n.div_ceil(Strip::ROWS)) / MEMORY;
    let shares = f64::from(splits);
    let exchange = if splits > 1 { MEET + 4.0 * rows * columns * (shares - 1.0) / shares / EXCHANGE } else { 0.0 };
    // Among equals, the candidate that reads less from L2.
    multiplied.max(memory) + exchange + multiplied * 0.02 * columns / (rows * f64::from(multicast))
}

/// Chooses the tuning for codes, as [`choose_for`](super::choose_for) does.
pub(super) fn choose_codes(
    batch: u32,
    rows: WeightRows,
    strip: Strip,
    [multiprocessors, most_blocks]: [u32; 2],
    fits: impl Fn(&HopperPlan) -> bool,
) -> Option<HopperTuning> {
    let mut best: Option<(f64, HopperTuning)> = None;
    let tiles = (1..=256 / 8).map(|eights| 8 * eights).filter(|&vectors| vectors < batch && vectors >= 64);
    let all = (batch <= 256).then_some(0);
    for vectors in all.into_iter().chain(tiles) {
        for strips in (2..=32).rev().step_by(2) {
            for multicast in [1, 2] {
                for splits in [1, 2, 4] {
                    let warpgroups = u32::div_ceil(strips, 8);
                    let tuning = HopperTuning { warpgroups, strips, stages: 8, multicast, splits, vectors, ..LEAST };
                    if tuning.cluster() > most_blocks {
                        continue;
                    }
                    for stage_tiles in [256, 128].map(|k| (k / strip.depth()).max(1)) {
                        let tuning = HopperTuning { stage_tiles, ..tuning };
                        let Ok(plan) = HopperPlan::new(batch, rows, strip, tuning) else { continue };
                        let time = predict_codes(&plan, multiprocessors);
                        if best.is_none_or(|(least, _)| time < least) && time.is_finite() && fits(&plan) {
                            best = Some((time, plan.tuning));
                        }
                    }
                }
            }
        }
    }
    best.map(|(_, tuning)| tuning)
}
