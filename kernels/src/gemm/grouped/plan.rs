//! From a grouped product to a launch.

use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::TrialElement;
use tilewright_layout::swizzle::canonical::Major;

use super::config::GroupedConfig;
use super::hopper::weight_parts;
use super::problem::{CustomGrouped, GroupedProblem};
use super::schedule::GroupTiling;
use super::store::RowStore;
use super::table::{GroupedShape, record_warps};
use crate::epilogue::SumScale;
use crate::gemm::WarpShape;
use crate::gemm::finish::GemmOutput;
use crate::gemm::plan::{Argument, GemmDevice, GemmRefusal, PlannedLaunch, least_stages, map};
use crate::gemm::problem::OperandLayout;
use crate::mma::InputType;

/// A buffer that a launch of a grouped product names; see [`GroupedProblem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupedBuffer {
    /// The rows.
    A,
    /// The weights of all groups.
    B,
    /// The first row of each group, and the end of the last.
    Offsets,
    /// A number for each row.
    Order,
    /// The result.
    C,
    /// The scale of A, one f32; of operands of 8 bits those of blocks.
    AScale,
    /// The scale of B, one f32; of operands of 8 bits those of blocks.
    BScale,
    /// A number per row of weights.
    Bias,
    /// The residual, added last.
    Residual,
}

/// Tiles and tuning of a grouped product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupedChoice {
    /// By tensor maps and `wgmma`.
    Hopper {
        /// The tiles.
        shape: GroupedShape,
        /// Stages of the ring, at most; as many as fit shared memory.
        stages: u32,
        /// Blocks of a cluster, 1 or 2, which share weights, or rows where tiles have more rows than
        /// columns.
        cluster: u32,
        /// Rows of clusters' tiles of a group that are computed together.
        band: u32,
    },
    /// By `cp.async` and `mma.sync`, from sm_80 on.
    Warps {
        /// The tiles.
        shape: WarpShape,
        /// Stages of the ring.
        stages: u32,
        /// The kernel's target.
        arch: Arch,
    },
}

/// Shared memory of a block on sm_90a in bytes, less what barriers take.
const SHARED: u32 = 232_448 - 512;
/// Rows of a group from which on its tiles have 128 rows.
const MANY_ROWS: u32 = 96;
/// Rows of a group from which on clusters share operands.
const CLUSTER_ROWS: u32 = 1024;

/// Chooses tiles by the rows that a group has if all have as many. Where rows are few, tiles have
/// fewer columns until there is one for each multiprocessor.
///
/// ```
/// use half::bf16;
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::gemm::grouped::{GroupedChoice, GroupedProblem, GroupedShape, choose};
/// // 64 tokens, 8 of 128 experts each: four rows an expert.
/// let few = choose::<bf16>(&GroupedProblem::new(128, 64 * 8, 1536, 2048), Arch::Sm90a, 132);
/// assert!(matches!(few, GroupedChoice::Hopper { shape: GroupedShape::M64N256, cluster: 1, .. }));
/// let one = choose::<bf16>(&GroupedProblem::new(1, 64, 7168, 16384), Arch::Sm90a, 132);
/// assert!(matches!(one, GroupedChoice::Hopper { shape: GroupedShape::M64N64, .. }));
/// ```
pub fn choose<F: InputType>(problem: &GroupedProblem, arch: Arch, multiprocessors: u32) -> GroupedChoice {
    let average = problem.rows / problem.groups.max(1);
    if arch != Arch::Sm90a {
        let many = average >= MANY_ROWS && problem.b_rows() >= 128;
        let shape = if many { WarpShape::M128N128 } else { WarpShape::M64N64 };
        return GroupedChoice::Warps { shape, stages: 3, arch };
    }
    let wide = problem.b_rows() > 128;
    let few = [GroupedShape::M64N256, GroupedShape::M64N128];
    let fills = |shape: &GroupedShape| {
        let [_, columns] = shape.tile();
        problem.b_rows().div_ceil(columns).saturating_mul(problem.groups) >= multiprocessors
    };
    let shape = match (average >= MANY_ROWS, wide) {
        (true, true) if F::BITS > 8 => GroupedShape::M128N256,
        // Gathered rows leave those that multiply fewer registers.
        (true, true) if problem.gather.is_none() && !problem.epilogue.gated => match average {
            CLUSTER_ROWS.. => GroupedShape::M256N128,
            _ => GroupedShape::M128N192,
        },
        (true, _) => GroupedShape::M128N128,
        (false, _) => few.into_iter().find(fills).unwrap_or(GroupedShape::M64N64),
    };
    let cluster = if average >= CLUSTER_ROWS { 2 } else { 1 };
    GroupedChoice::Hopper { shape, stages: 8, cluster, band: 8 }
}

/// The launch of a grouped product, with [chosen](choose) tiles. Buffers are aligned to 16 bytes.
///
/// ```
/// use half::bf16;
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::activation::Activation;
/// use tilewright_kernels::epilogue::Epilogue;
/// use tilewright_kernels::gemm::GemmDevice;
/// use tilewright_kernels::gemm::grouped::{GroupedProblem, plan};
///
/// let target = GemmDevice { arch: Arch::Sm90a, multiprocessors: 132, aligned: 256, partials: true };
/// // 2048 tokens, 8 of 128 experts each. Gate and up read tokens by the order; down writes each
/// // result to its token and choice.
/// let rows = 2048 * 8;
/// let gate = Epilogue::gate(Activation::Silu);
/// let gate_up = plan::<bf16, bf16>(GroupedProblem::new(128, rows, 768, 2048).gather(8).epilogue(gate), target)?;
/// let down = plan::<bf16, bf16>(GroupedProblem::new(128, rows, 2048, 768).scatter(), target)?;
/// assert_eq!((gate_up.grid, down.grid), (132, 132));
/// # Ok::<(), tilewright_kernels::gemm::GemmRefusal>(())
/// ```
///
/// # Errors
/// [`GemmRefusal`], for what no kernel computes.
pub fn plan<'f, F: InputType<Stored: TrialElement, Sum = f32>, D: GemmOutput + TrialElement>(
    problem: impl Into<CustomGrouped<'f>>,
    target: GemmDevice,
) -> Result<PlannedLaunch<GroupedBuffer>, GemmRefusal> {
    let problem = problem.into();
    grouped_step::<F, D>(
        problem,
        choose::<F>(&problem.problem, target.arch, target.multiprocessors),
        target.multiprocessors,
    )
}

/// The launch of a grouped product with those tiles.
///
/// # Errors
/// [`GemmRefusal`].
pub fn grouped_step<'f, F: InputType<Stored: TrialElement, Sum = f32>, D: GemmOutput + TrialElement>(
    problem: impl Into<CustomGrouped<'f>>,
    choice: GroupedChoice,
    multiprocessors: u32,
) -> Result<PlannedLaunch<GroupedBuffer>, GemmRefusal> {
    let CustomGrouped { problem, steps } = problem.into();
    check::<F>(&problem)?;
    let config = GroupedConfig {
        groups: problem.groups,
        gather: problem.gather,
        scatter: problem.scatter,
        how: if problem.n.is_multiple_of(2) { RowStore::Pairs } else { RowStore::Elements },
        epilogue: problem.epilogue,
        stages: 0,
        cluster: 1,
        beside: false,
        band: 1,
    };
    let mut launch = match choice {
        GroupedChoice::Hopper { shape, stages, cluster, band } => {
            let most = Hopper { shape, stages };
            hopper::<F, D>(CustomGrouped { problem, steps }, most, GroupedConfig { cluster, band, ..config })?
        }
        GroupedChoice::Warps { shape, stages, arch } => {
            least_stages(stages)?;
            if F::BITS == 8 {
                return Err(GemmRefusal::Blocks { tiles: "tiles over mma.sync" });
            }
            let [m, n] = shape.tile();
            let config = GroupedConfig { stages, band: 8, ..config };
            let name = name::<F>(&problem, [m, n], "_warps");
            let columns = problem.b_rows().div_ceil(n);
            let mut arguments = vec![Argument::Pointer(GroupedBuffer::A), Argument::Pointer(GroupedBuffer::B)];
            arguments.extend(numbers::<F>(&problem, columns));
            PlannedLaunch {
                kernel: record_warps::<F, D>(shape, &name, arch, config, steps)?,
                grid: most_tiles(&problem, config.tiling(m), columns),
                arguments,
                custom: steps.is_some(),
            }
        }
    };
    // Over `mma.sync` several blocks share a multiprocessor.
    let blocks = match choice {
        GroupedChoice::Hopper { cluster, .. } => (multiprocessors / cluster.max(1)).max(1) * cluster,
        GroupedChoice::Warps { shape: WarpShape::M128N128, .. } => 2 * multiprocessors,
        GroupedChoice::Warps { shape: WarpShape::M64N64, .. } => 4 * multiprocessors,
    };
    launch.grid = launch.grid.min(blocks.max(1));
    Ok(launch)
}

/// A shape and its stages at most.
#[derive(Clone, Copy)]
struct Hopper {
    shape: GroupedShape,
    stages: u32,
}

fn hopper<F: InputType<Stored: TrialElement, Sum = f32>, D: GemmOutput + TrialElement>(
    CustomGrouped { problem, steps }: CustomGrouped<'_>,
    Hopper { shape, stages }: Hopper,
    config: GroupedConfig,
) -> Result<PlannedLaunch<GroupedBuffer>, GemmRefusal> {
    let gathered = problem.gather.is_some();
    if !shape.fits(F::BITS, gathered) {
        return Err(GemmRefusal::Registers { tile: shape.tile(), bits: F::BITS, gathered });
    }
    let entry = shape.entry::<F, D>();
    let [m, n] = shape.tile();
    // Blocks share the larger operand of a tile. Gathered rows come by threads, which write to their
    // own block.
    let config = GroupedConfig { beside: m > n && !gathered, ..config };
    let cluster = config.cluster;
    if !matches!(cluster, 1 | 2) {
        return Err(GemmRefusal::Cluster { blocks: cluster, lines: n });
    }
    let part = n / entry.across / if problem.epilogue.gated { 2 } else { 1 };
    let is_staged = D::pack().is_some() && problem.n.is_multiple_of(8) && part.is_multiple_of(entry.staged);
    let how = if is_staged { RowStore::Staged } else { config.how };
    let [stage, staged] = entry.bytes;
    let tiling = config.tiling(m);
    let room = SHARED.saturating_sub(tiling.bytes() + if is_staged { staged } else { 0 });
    let stages = stages.min(room / stage);
    least_stages(stages)?;
    let config = GroupedConfig { stages, how, ..config };
    let dtype = <F::Stored as TrialElement>::DTYPE;
    let layout = OperandLayout { major: Major::K, stride: problem.k };
    let a = match problem.gather {
        Some(_) => Argument::Pointer(GroupedBuffer::A),
        None => map(GroupedBuffer::A, dtype, layout, [problem.rows, problem.k], entry.boxes[0], config.sharing()[0]),
    };
    let weights = [problem.groups * problem.b_rows(), problem.k];
    let parts = weight_parts(&config, entry.across);
    let mut arguments = vec![a, map(GroupedBuffer::B, dtype, layout, weights, entry.boxes[1], parts)];
    let columns = problem.b_rows().div_ceil(n * config.sharing()[0]);
    arguments.extend(numbers::<F>(&problem, columns));
    Ok(PlannedLaunch {
        kernel: (entry.record)(&name::<F>(&problem, [m, n], ""), config, steps),
        grid: cluster * most_tiles(&problem, tiling, columns),
        arguments,
        custom: steps.is_some(),
    })
}

/// The name of a kernel.
fn name<F: InputType>(problem: &GroupedProblem, [m, n]: [u32; 2], suffix: &str) -> String {
    let gather = if problem.gather.is_some() { "_gather" } else { "" };
    let scatter = if problem.scatter { "_scatter" } else { "" };
    format!("grouped_{}_{m}x{n}{gather}{scatter}{suffix}", F::NAME)
}

/// Tiles of the schedule, at most.
fn most_tiles(problem: &GroupedProblem, tiling: GroupTiling, columns: u32) -> u32 {
    tiling.most_row_tiles(problem.rows).saturating_mul(columns).max(1)
}

/// The arguments after both operands.
fn numbers<F: InputType>(problem: &GroupedProblem, columns: u32) -> Vec<Argument<GroupedBuffer>> {
    let mut arguments = vec![Argument::Pointer(GroupedBuffer::Offsets)];
    if problem.ordered() {
        arguments.push(Argument::Pointer(GroupedBuffer::Order));
    }
    arguments.extend([problem.rows, problem.n, problem.k, columns].map(Argument::Number));
    if F::BITS == 8 {
        arguments.extend([GroupedBuffer::AScale, GroupedBuffer::BScale].map(Argument::Pointer));
    }
    arguments.push(Argument::Pointer(GroupedBuffer::C));
    if problem.epilogue.scale.is_some() {
        arguments.extend([GroupedBuffer::AScale, GroupedBuffer::BScale].map(Argument::Pointer));
    }
    if problem.epilogue.bias {
        arguments.push(Argument::Pointer(GroupedBuffer::Bias));
    }
    if problem.epilogue.residual {
        arguments.extend([Argument::Pointer(GroupedBuffer::Residual), Argument::Number(problem.n)]);
    }
    arguments
}

/// Checks what holds for every kernel.
fn check<F: InputType>(problem: &GroupedProblem) -> Result<(), GemmRefusal> {
    let bounds = [
        ("the number of groups", problem.groups),
        ("the number of rows", problem.rows),
        ("N", problem.n),
        ("K", problem.k),
        ("the divisor of gathered rows", problem.gather.unwrap_or(1)),
    ];
    if let Some((what, found)) = bounds.into_iter().find(|(_, found)| *found < 1) {
        return Err(GemmRefusal::TooSmall { what, found, least: 1 });
    }
    let multiple = 128 / F::BITS as u32;
    if !problem.k.is_multiple_of(multiple) {
        return Err(GemmRefusal::Unaligned { what: "A", stride: problem.k, multiple });
    }
    let [rows, weights] = [problem.rows, problem.groups].map(u64::from);
    if rows * u64::from(problem.b_rows()) > u64::from(u32::MAX)
        || weights * u64::from(problem.b_rows()) > i32::MAX as u64
    {
        return Err(GemmRefusal::TooLarge { m: problem.rows.max(problem.groups), n: problem.b_rows() });
    }
    match problem.epilogue.scale {
        Some(SumScale::Norm) => return Err(GemmRefusal::NormScale),
        Some(SumScale::Rows) => return Err(GemmRefusal::GroupedRowScale),
        Some(SumScale::Operands) | None => {}
    }
    if F::BITS == 8 && problem.epilogue.scale.is_some() {
        return Err(GemmRefusal::Blocks { tiles: "products whose operands have one scale" });
    }
    Ok(())
}
