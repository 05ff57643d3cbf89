//! Chooses the tiles for a problem: estimates the time of each row of the table and takes the
//! least.
//!
//! A product takes as long as its slowest multiprocessor multiplies, or as its bytes take to come,
//! plus what it costs to begin and, where the contraction is split, to add the shares up. The rates
//! are an H100's; where another device has other ones, the order of the rows is mostly the same.

use super::hopper::HopperConfig;
use super::problem::GemmProblem;
use super::table::{HopperShape, WarpShape};
use crate::mma::{InputType, Width};
use tilewright_codegen::ir::Arch;
use tilewright_layout::view::Along;

/// Tiles, tuning and splits of a product on sm_90a.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HopperChoice {
    /// The tiles.
    pub shape: HopperShape,
    /// Stages, cluster, raster.
    pub config: HopperConfig,
    /// Shares of the contraction.
    pub splits: u32,
}

/// Tiles and splits of a product over `mma.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WarpChoice {
    /// The tiles.
    pub shape: WarpShape,
    /// Stages of the ring.
    pub stages: u32,
    /// Rows of tiles that are computed together.
    pub group: u32,
    /// Shares of the contraction.
    pub splits: u32,
    /// The kernel's target, from sm_80 on.
    pub arch: Arch,
    /// Elements that the addresses of A and B are multiples of.
    pub aligned: [u32; 2],
    /// Whether the sums of each stage are added to sums in f32.
    pub two_level: bool,
}

/// Multiply-adds of operands of 16 bits that a multiprocessor makes in a cycle: 989 TFLOP/s / 2 /
/// 132 / 1.83 GHz.
const MULTIPLIES: f64 = 2048.0;
/// Bytes a cycle that a multiprocessor's share of memory brings: 3.155 TB/s over 132, at 1.83 GHz.
const BYTES: f64 = 13.0;
/// Cycles before the first stage has arrived and after the last store.
const BEGIN: f64 = 6000.0;
/// Cycles that a second launch costs.
const LAUNCH: f64 = 4000.0;
/// The multiprocessors, of 132, that must fetch to draw the whole bandwidth.
const FETCHING: f64 = 0.75;
/// Shared memory of a block, bytes, less what barriers and alignment take.
const SHARED: u32 = 232_448 - 1024;
/// Steps of the contraction that a share has at least.
const LEAST_STEPS: u32 = 4;
/// Shares at most.
pub(super) const MOST_SPLITS: u32 = 16;

/// The share of peak that a shape's main loop reaches, as measured.
const fn efficiency(shape: HopperShape) -> f64 {
    match shape {
        HopperShape::M128N256 => 0.96,
        HopperShape::M128N224 => 0.93,
        HopperShape::M128N192 => 0.92,
        HopperShape::M256N128 => 0.94,
        HopperShape::M128N128 => 0.80,
        HopperShape::M128N112 => 0.75,
        HopperShape::M64N128 => 0.50,
    }
}

/// Estimates the cycles of a shape on a number of multiprocessors.
fn cycles<F: InputType>(problem: &GemmProblem, shape: HopperShape, splits: u32, multiprocessors: u32) -> f64 {
    let [m, n] = shape.tile();
    let k = F::Width::DEPTH;
    let bytes = F::BITS as f64 / 8.0;
    let steps = problem.k.div_ceil(k).div_ceil(splits);
    let tiles = f64::from(problem.m.div_ceil(m) * splits) * f64::from(problem.b_rows().div_ceil(n));
    let waves = (tiles / f64::from(multiprocessors)).ceil();
    let multiply = waves * f64::from(steps) * f64::from(m * n * k) * bytes / 2.0 / (MULTIPLIES * efficiency(shape));
    let elements = |rows: u32, columns: u32| f64::from(rows) * f64::from(columns);
    let result = elements(problem.m, problem.b_rows());
    let operands = elements(problem.m, problem.k) + elements(problem.b_rows(), problem.k);
    let busy = (tiles / f64::from(multiprocessors) / FETCHING).min(1.0);
    let bring = (bytes * operands + 2.0 * result) / (BYTES * f64::from(multiprocessors) * busy);
    let add_up = match splits {
        1 => 0.0,
        _ => LAUNCH + 8.0 * f64::from(splits) * result / (BYTES * f64::from(multiprocessors)),
    };
    // Hidden work still costs a little: ties go to the shape with less of it.
    BEGIN + multiply.max(bring) + 0.1 * multiply.min(bring) + add_up
}

/// Estimates the cycles of a choice on sm_90a with a number of multiprocessors; infinite where its
/// stages do not fit shared memory. Each stage fewer than fit costs one part in a hundred.
///
/// ```
/// use half::bf16;
/// use tilewright_kernels::gemm::{HopperChoice, GemmProblem, HopperShape, choose, predict};
/// let problem = GemmProblem::new(4096, 4096, 4096);
/// let best = choose::<bf16>(&problem, 132);
/// let other = HopperChoice { shape: HopperShape::M64N128, ..best };
/// assert!(predict::<bf16>(&problem, &best, 132) < predict::<bf16>(&problem, &other, 132));
/// ```
pub fn predict<F: InputType>(problem: &GemmProblem, choice: &HopperChoice, multiprocessors: u32) -> f64 {
    let most = most_stages(choice.shape);
    match choice.config.stages {
        2.. if choice.config.stages <= most => {
            let fewer = f64::from(most - choice.config.stages) / 100.0;
            cycles::<F>(problem, choice.shape, choice.splits, multiprocessors) * (1.0 + fewer)
        }
        _ => f64::INFINITY,
    }
}

/// Stages that fit shared memory.
fn most_stages(shape: HopperShape) -> u32 {
    let (stage, staged) = shape.bytes();
    ((SHARED - staged) / stage).min(8)
}

/// Chooses how a product is computed on sm_90a with a number of multiprocessors.
///
/// ```
/// use half::bf16;
/// use tilewright_kernels::gemm::{GemmProblem, HopperShape, choose};
/// assert_eq!(choose::<bf16>(&GemmProblem::new(8192, 8192, 8192), 132).shape, HopperShape::M128N256);
/// assert_eq!(choose::<bf16>(&GemmProblem::new(128, 14336, 4096), 132).shape, HopperShape::M128N112);
/// ```
pub fn choose<F: InputType>(problem: &GemmProblem, multiprocessors: u32) -> HopperChoice {
    choose_within::<F>(problem, multiprocessors, MOST_SPLITS)
}

/// As [`choose`], with at most `most_splits` shares of the contraction.
pub(super) fn choose_within<F: InputType>(
    problem: &GemmProblem,
    multiprocessors: u32,
    most_splits: u32,
) -> HopperChoice {
    let mut best = (f64::INFINITY, HopperShape::M128N128, 1);
    let two_level = problem.two_level::<F>();
    for &shape in HopperShape::ALL.iter().filter(|shape| !two_level || shape.holds_two_levels()) {
        let halves = problem.epilogue.gated && !(shape.tile()[1] / 2).is_multiple_of(shape.staged());
        let steps = problem.k.div_ceil(F::Width::DEPTH);
        let possible = |splits: &u32| *splits == 1 || (splits - 1) * steps.div_ceil(*splits) < steps;
        for splits in (1..=most_splits.min(steps / LEAST_STEPS).max(1)).filter(possible) {
            let time = cycles::<F>(problem, shape, splits, multiprocessors);
            if time < best.0 && (splits > 1 || !halves) {
                best = (time, shape, splits);
            }
        }
    }
    let (_, shape, splits) = best;
    let tall = problem.m.div_ceil(shape.tile()[0]) >= 8;
    let (cluster, group) = if tall { (2, 8) } else { (1, 8) };
    let config = HopperConfig { stages: most_stages(shape), cluster, along: Along::Rows, group, two_level };
    HopperChoice { shape, config, splits }
}

/// The tiles over `mma.sync`, and the shares of the contraction.
///
/// ```
/// use half::bf16;
/// use tilewright_kernels::gemm::{GemmProblem, WarpShape, choose_warps};
/// assert_eq!(choose_warps::<bf16>(&GemmProblem::new(4096, 4096, 4096), 108), (WarpShape::M128N128, 1));
/// assert_eq!(choose_warps::<bf16>(&GemmProblem::new(64, 64, 4096), 108), (WarpShape::M64N64, 16));
/// ```
pub fn choose_warps<F: InputType>(problem: &GemmProblem, multiprocessors: u32) -> (WarpShape, u32) {
    let tiles = |shape: WarpShape| {
        let [m, n] = shape.tile();
        problem.m.div_ceil(m) * problem.b_rows().div_ceil(n)
    };
    let large = tiles(WarpShape::M128N128) >= multiprocessors && !problem.transposes_bytes::<F>();
    let shape = if large { WarpShape::M128N128 } else { WarpShape::M64N64 };
    let steps = problem.k.div_ceil(F::Width::DEPTH);
    let wanted = (multiprocessors / tiles(shape)).min(steps / LEAST_STEPS).clamp(1, MOST_SPLITS);
    let possible = |splits: &u32| (splits - 1) * steps.div_ceil(*splits) < steps;
    (shape, (1..=wanted).rev().find(possible).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::{HopperShape, choose};
    use crate::activation::Activation;
    use crate::gemm::{Epilogue, GemmProblem};
    use half::bf16;

    #[test]
    fn the_measured_best_is_chosen() {
        let best = [
            ([8192, 8192, 8192], HopperShape::M128N256, 2),
            ([4096, 4096, 4096], HopperShape::M128N256, 2),
            ([4096, 14336, 4096], HopperShape::M128N256, 2),
            ([512, 14336, 4096], HopperShape::M128N224, 1),
            ([128, 14336, 4096], HopperShape::M128N112, 1),
        ];
        for ([m, n, k], shape, cluster) in best {
            let choice = choose::<bf16>(&GemmProblem::new(m, n, k), 132);
            assert_eq!((choice.shape, choice.config.cluster, choice.splits), (shape, cluster, 1), "{m}x{n}x{k}");
            assert!(choice.config.stages >= 4, "{m}x{n}x{k}: {} stages", choice.config.stages);
        }
    }

    #[test]
    fn a_long_contraction_of_a_small_result_is_split() {
        assert!(choose::<bf16>(&GemmProblem::new(128, 512, 16384), 132).splits > 4);
        assert_eq!(choose::<bf16>(&GemmProblem::new(128, 512, 64), 132).splits, 1, "one step cannot be shared");
    }

    #[test]
    fn a_gate_takes_tiles_that_halve() {
        let gated = Epilogue::gate(Activation::Silu);
        for (m, n, k) in [(512, 14336, 4096), (128, 14336, 4096), (1, 8, 8), (8192, 8192, 8192)] {
            let choice = choose::<bf16>(&GemmProblem::new(m, n, k).epilogue(gated), 132);
            let half = choice.shape.tile()[1] / 2;
            assert!(choice.splits > 1 || half.is_multiple_of(choice.shape.staged()), "{m}x{n}x{k}: {choice:?}");
        }
    }
}
