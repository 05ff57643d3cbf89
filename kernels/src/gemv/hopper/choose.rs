//! Chooses the tiles for a shape: estimates the time of each setting and takes the least.
//!
//! # The arithmetic
//! With N columns (the batch in eights) and tiles of R rows of weights, C blocks that share
//! activations and S shares of k:
//!
//! * Memory brings each weight once: `2·n·k` bytes at 4.6 TB/s (H200).
//! * L2 gives the multiprocessors the weights, and to every group of C tiles the activations:
//!   `2·n·k·(1 + N/(R·C))` bytes at 11 TB/s together (6144 × 4096 in tiles of 48 rows and 64
//!   vectors took 117 MB in 12 µs). So memory is the bound where `N/(R·C)` is below 1.4; a fiftieth
//!   of L2's time is added nevertheless.
//! * To one multiprocessor come 35.5 bytes of weights a nanosecond at most, whatever else it takes
//!   in (28672 × 4096 on 112, 6144 × 4096 on 96 multiprocessors). So tiles have as many strips as
//!   make about as many blocks as there are multiprocessors.
//! * A multiprocessor takes in `1 + N/R` bytes for each byte of weights, 80 bytes a nanosecond at
//!   most, and no more than its rings hold in 1.5 µs.
//! * Shares of k make enough blocks of few rows. Blocks exchange their sums inside a cluster:
//!   `4·R·N·(S − 1)/S` bytes at 25 bytes a nanosecond, and 1 µs of staging and waiting. Through L2
//!   and a second launch it would be `8·S·n·N` bytes and 2 µs more. Where the ring is empty after a
//!   block's one tile, sums are staged in its memory.
//! * `wgmma` of N columns takes N/2 cycles. A warpgroup loads a stage's weights, multiplies and
//!   frees it before it begins the next: 400 cycles in addition to the products. Several warpgroups
//!   take turns.
//!
//! For 64 vectors on 132 multiprocessors (R × k of a stage and how many stages of weights, C, S;
//! bytes through L2 over those of weights; microseconds by memory and by the estimate, without what
//! a launch costs):
//!
//! | n × k | tile, stages | C | S | blocks | L2 | memory | estimate |
//! |---|---|---|---|---|---|---|---|
//! | 4096 × 4096 | 64 × 128, 8 | 1 | 2 | 128 | 2.00 | 7.3 | 8.9 |
//! | 14336 × 4096 | 112 × 128, 4 | 1 | 1 | 128 | 1.57 | 25.5 | 26.2 |
//! | 4096 × 14336 | 64 × 128, 8 | 2 | 2 | 128 | 1.50 | 25.5 | 27.7 |
//! | 128256 × 4096 | 248 × 64, 4 | 2 | 1 | 132 | 1.13 | 228.4 | 234.0 |
//! | 8192 × 2048 | 64 × 128, 8 | 1 | 1 | 128 | 2.00 | 7.3 | 7.5 |
//! | 2048 × 8192 | 64 × 128, 8 | 1 | 4 | 128 | 2.00 | 7.3 | 9.2 |
//! | 128256 × 2048 | 248 × 64, 4 | 2 | 1 | 132 | 1.13 | 114.2 | 117.1 |

use super::choose_codes::{choose_codes, predict_codes};
use super::costs::IN_FLIGHT;
use super::{HopperPlan, HopperTuning, WeightRows};
use crate::gemv::hopper::costs::{CYCLES, EXCHANGE, INGRESS, LEAST, MEET, MEMORY};
use crate::weights::Strip;
use crate::weights::weight_tile::DEPTH;

/// Bytes that L2 gives all multiprocessors in a microsecond.
const L2: f64 = 11e6;
/// The part of L2's own time that comes to memory's.
const SHARE_OF_L2: f64 = 0.02;
/// Bytes of weights that come to a multiprocessor in a microsecond, whatever else it takes in.
const WEIGHTS: f64 = 35.5e3;
/// Microseconds from asking for a stage to its arrival while memory is busy.
const LATENCY: f64 = 1.5;
/// Cycles of a stage in addition to its products.
const CHAIN: f64 = 400.0;
/// The number of stages below which each missing stage adds this share to the time.
const STAGES: (u32, f64) = (4, 0.02);
/// Strips of a tile of which any number is tried where blocks have several.
const LARGE: u32 = 24;
/// Microseconds that each doubling of a cluster costs where it gains nothing.
const CLUSTER: f64 = 0.1;

/// Bytes on their way to a block that keep memory busy: of larger stages fewer are.
const BYTES_IN_FLIGHT: u32 = 48 << 10;

/// Estimates the microseconds of a plan on a number of multiprocessors; infinite where blocks that
/// meet are not resident together.
///
/// ```
/// use tilewright_kernels::weights::Strip;
/// use tilewright_kernels::gemv::hopper;
/// let strip = Strip::new(4096, 8, 16384)?;
/// let best = hopper::choose(64, 14336, strip, 132, 8);
/// let time = |tuning| hopper::HopperPlan::new(64, 14336, strip, tuning).map(|plan| hopper::predict(&plan, 132));
/// // Tiles of 128 rows make 112 blocks.
/// assert!(time(best)? < time(hopper::HopperTuning { warpgroups: 2, strips: 16, ..best })?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn predict(plan: &HopperPlan, multiprocessors: u32) -> f64 {
    if plan.strip.codes().is_some() {
        return predict_codes(plan, multiprocessors);
    }
    let HopperTuning { warpgroups, stages, multicast, splits, .. } = plan.tuning;
    let cluster = plan.tuning.cluster();
    let groups = plan.groups();
    let resident = multiprocessors / cluster;
    if resident == 0 || (splits > 1 && groups > resident) {
        return f64::INFINITY;
    }
    let [n, k, columns, rows] = [plan.n, plan.strip.padded_k(), plan.columns(), plan.rows()].map(f64::from);
    let weights = 2.0 * n * k;
    let taken_in = 1.0 + columns / rows;
    let together = MEMORY.min(L2 / (1.0 + columns / (rows * f64::from(multicast))));
    let held = f64::from(stages * plan.stage_bytes() + plan.x_stages() * plan.x_stage_bytes());
    let steps = f64::from(plan.stage_k() / 16) * columns / 2.0;
    let multiplied = f64::from(plan.stage_bytes()) * CYCLES / (steps * f64::from(warpgroups)).max(CHAIN + steps);
    let alone = (INGRESS.min(held / LATENCY) / taken_in).min(multiplied).min(WEIGHTS);
    // Groups of tiles go through the multiprocessors round by round, the last round with fewer
    // blocks.
    let group = weights / f64::from(groups);
    let round = |groups: u32| f64::from(groups) * group / together.min(alone * f64::from(groups * cluster));
    let stream = f64::from(groups / resident) * round(resident)
        + if groups.is_multiple_of(resident) { 0.0 } else { round(groups % resident) };
    let shares = f64::from(splits);
    let exchange = if splits > 1 { MEET + 4.0 * rows * columns * (shares - 1.0) / shares / EXCHANGE } else { 0.0 };
    let of_l2 = SHARE_OF_L2 * weights * (1.0 + columns / (rows * f64::from(multicast))) / L2;
    let fewer = f64::from(STAGES.0.saturating_sub(stages)) * STAGES.1;
    stream * (1.0 + fewer) + of_l2 + exchange + CLUSTER * f64::from(cluster).log2()
}

/// The settings for a batch and rows (a number, or their kind), packed as `strip` says, on a number
/// of multiprocessors, with at most that many blocks to a cluster: 8 everywhere, fewer where a
/// device has not got as many clusters of them as its multiprocessors would make.
///
/// ```
/// use tilewright_kernels::weights::Strip;
/// use tilewright_kernels::gemv::hopper;
/// let strip = Strip::new(2048, 8, 16384)?;
/// let best = hopper::choose(64, 8192, strip, 132, 8);
/// assert!(hopper::HopperPlan::new(64, 8192, strip, best).is_ok());
/// # Ok::<(), tilewright_kernels::weights::StripError>(())
/// ```
pub fn choose(
    batch: u32,
    rows: impl Into<WeightRows>,
    strip: Strip,
    multiprocessors: u32,
    most_blocks: u32,
) -> HopperTuning {
    choose_for(batch, rows, strip, [multiprocessors, most_blocks], |_| true).unwrap_or(LEAST)
}

/// Chooses among plans that fit; `None` where no plan does.
///
/// ```
/// use tilewright_kernels::gemv::{Epilogue, GemvEpilogue};
/// use tilewright_kernels::weights::Strip;
/// use tilewright_kernels::gemv::hopper::{HopperPlan, choose_for};
/// use tilewright_kernels::tile::Float;
/// // A norm begins where the rows of a block are whole slots.
/// let adds = Epilogue { residual: true, ..Epilogue::default() };
/// let begins = GemvEpilogue { wide: true, normed: Some(Float::F32), ..adds.into() };
/// let strip = Strip::new(2048, 8, 16384)?;
/// let tuning = choose_for(64, 2048, strip, [132, 2], |plan| begins.check(plan).is_ok()).expect("there is one");
/// assert_eq!((tuning.strips * 8 / tuning.splits) % 32, 0);
/// # Ok::<(), tilewright_kernels::weights::StripError>(())
/// ```
pub fn choose_for(
    batch: u32,
    rows: impl Into<WeightRows>,
    strip: Strip,
    [multiprocessors, most_blocks]: [u32; 2],
    fits: impl Fn(&HopperPlan) -> bool,
) -> Option<HopperTuning> {
    let rows = rows.into();
    if strip.codes().is_some() {
        return choose_codes(batch, rows, strip, [multiprocessors, most_blocks], fits);
    }
    let mut best: Option<(f64, HopperTuning)> = None;
    for strips in (2u32..=32).rev() {
        for stage_tiles in [4, 2] {
            for multicast in [1, 2] {
                for splits in [1, 2, 4, 8] {
                    let warpgroups = strips.div_ceil(8);
                    let stage_bytes = strips * Strip::ROWS * stage_tiles * DEPTH * 2;
                    let in_flight = BYTES_IN_FLIGHT.div_ceil(stage_bytes).clamp(IN_FLIGHT[1], IN_FLIGHT[0]);
                    let tuning =
                        HopperTuning { warpgroups, strips, stage_tiles, in_flight, multicast, splits, ..LEAST };
                    if tuning.cluster() > most_blocks {
                        continue;
                    }
                    let Ok(plan) = HopperPlan::new(batch, rows, strip, tuning) else { continue };
                    let time = predict(&plan, multiprocessors);
                    // Small tiles leave less idle in the last round, and large tiles read less from
                    // L2. With an odd number of strips, a warp multiplies rows of another: with
                    // several rounds, a fuller last round is worth that.
                    let goes = match plan.groups() * plan.tuning.cluster() > multiprocessors {
                        true => strips >= LARGE || strips % 8 == 0,
                        false => strips % 2 == 0,
                    };
                    if !goes {
                        continue;
                    }
                    if best.is_none_or(|(least, _)| time < least) && time.is_finite() && fits(&plan) {
                        best = Some((time, plan.tuning));
                    }
                }
            }
        }
    }
    best.map(|(_, tuning)| tuning)
}
