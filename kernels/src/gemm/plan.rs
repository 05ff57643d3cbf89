//! From a problem to launches: which kernel, which grid, which arguments.

use super::choose::{HopperChoice, MOST_SPLITS, WarpChoice, choose_warps, choose_within};
use super::finish::GemmOutput;
use super::problem::{CustomProblem, GemmProblem, OperandLayout};
use super::store::{CustomStore, ResultStore};
use super::table::{HopperShape, WarpShape};
use super::{ampere, reduce};
use crate::epilogue::SumScale;
use crate::mma::{InputType, MissingAtom, Width};
use thiserror::Error;
use tilewright_codegen::build::record;
use tilewright_codegen::device::{Outside, Promotion, TensorShape, TileSwizzle};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::TrialElement;
use tilewright_layout::DType;
use tilewright_layout::swizzle::TensorBoxes;
use tilewright_layout::swizzle::canonical::{Major, SwizzleWidth};

/// A buffer that a launch names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GemmBuffer {
    /// The A operand.
    A,
    /// The B operand.
    B,
    /// The result.
    C,
    /// The scale of A: one f32, or one for each row ([`SumScale::Rows`]).
    AScale,
    /// The scale of B: one f32, or one for each row.
    BScale,
    /// A number per column of B.
    Bias,
    /// The residual, added last, with the result's extents and stride.
    Residual,
    /// Sums of the shares of the contraction, f32 or s32: splits × m × n.
    Partials,
}

/// An argument of a launch, whose buffers are named by `B`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument<B = GemmBuffer> {
    /// A tensor map over a buffer.
    Map(B, TensorShape),
    /// A buffer's address.
    Pointer(B),
    /// A number.
    Number(u32),
}

/// A kernel with its grid and arguments.
#[derive(Clone, Debug)]
pub struct PlannedLaunch<B = GemmBuffer> {
    /// The kernel, not yet verified.
    pub kernel: Kernel,
    /// Blocks.
    pub grid: u32,
    /// The arguments, in the order of the parameters.
    pub arguments: Vec<Argument<B>>,
    /// Whether the kernel ends with the custom epilogue; then the arguments of the parameters that
    /// this declares follow [`arguments`](PlannedLaunch::arguments).
    pub custom: bool,
}

/// Why a kernel cannot compute a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GemmRefusal {
    /// An extent of 0, or one that a stride does not span.
    #[error("{what} is {found}; at least {least} is needed")]
    TooSmall {
        /// The name of the number.
        what: &'static str,
        /// Its value.
        found: u32,
        /// The bound.
        least: u32,
    },
    /// Lines of an operand that no tensor map describes.
    #[error("lines of {what} are {stride} elements apart; a tensor map needs a multiple of {multiple}")]
    Unaligned {
        /// The matrix.
        what: &'static str,
        /// Elements from line to line.
        stride: u32,
        /// The bound.
        multiple: u32,
    },
    /// A cluster that no device has, or that does not share a tile's lines out in eights, as
    /// swizzles need.
    #[error(
        "{blocks} blocks of a cluster cannot share {lines} lines of a tile: 1, 2, 4 or 8 can, eights of lines each"
    )]
    Cluster {
        /// Blocks, or halves of a gated tile.
        blocks: u32,
        /// Lines of the tile that they share.
        lines: u32,
    },
    /// More elements of the result than 32 bits count.
    #[error("{m} by {n} elements are more than a kernel counts, 2^32 - 1")]
    TooLarge {
        /// Rows.
        m: u32,
        /// Columns.
        n: u32,
    },
    /// Tiles whose columns do not divide into halves that are staged.
    #[error("{shape:?} stages {staged} columns, which do not divide the half of its {columns} that a gate leaves")]
    GatedShape {
        /// The tiles.
        shape: HopperShape,
        /// Columns that are staged at a time.
        staged: u32,
        /// Columns of a tile.
        columns: u32,
    },
    /// Sums that a norm scales, which is the prologue of matrix-vector products alone.
    #[error("a matrix product takes activations after their norm: scale its sums by SumScale::Operands or not at all")]
    NormScale,
    /// A gated product over `mma.sync` without memory for its partial sums.
    #[error("a gated product over mma.sync leaves partial sums, and there is no memory for them")]
    GatedPartials,
    /// Scales of rows, which grouped products do not have.
    #[error("a grouped product has one scale for each operand: SumScale::Operands")]
    GroupedRowScale,
    /// An epilogue that does not go with the operands' order.
    #[error("a gated product takes B as [2N, K] with K contiguous")]
    GatedOrder,
    /// Operands whose contiguous index `wgmma` cannot contract across.
    #[error("{what} is not contiguous along K, and wgmma of {input} reads nothing else")]
    Order {
        /// The matrix.
        what: &'static str,
        /// The type of its operands.
        input: &'static str,
    },
    /// An architecture that cannot multiply such operands.
    #[error(transparent)]
    Atom(#[from] MissingAtom),
    /// Tiles whose sums a thread cannot hold twice.
    #[error(
        "the registers of {shape:?} do not hold its sums twice, as two-level accumulation in f32 needs; take other tiles"
    )]
    TwoLevel {
        /// The tiles.
        shape: HopperShape,
    },
    /// Tiles whose sums leave no registers for turning operands around.
    #[error("the registers of {shape:?} do not hold {input} operands that are not contiguous along K; take M64N64")]
    TransposedBytes {
        /// The tiles.
        shape: WarpShape,
        /// The type of its operands.
        input: &'static str,
    },
    /// Tiles that do not multiply operands of 8 bits by blocks.
    #[error(
        "{tiles} do not multiply operands of 8 bits by blocks; take tiles of sm_90a whose warpgroups have 128 columns"
    )]
    Blocks {
        /// The tiles.
        tiles: &'static str,
    },
    /// Tiles whose sums and operands are more than a thread's registers.
    #[error(
        "tiles of {}×{} have more sums than a thread has registers for, where operands have {bits} bits{}; take smaller tiles",
        tile[0],
        tile[1],
        if *gathered { " and rows are gathered" } else { "" }
    )]
    Registers {
        /// Rows and columns of a tile.
        tile: [u32; 2],
        /// Bits of an operand.
        bits: i64,
        /// Whether rows are gathered.
        gathered: bool,
    },
    /// More shares of the contraction than steps.
    #[error("{splits} shares of {steps} steps: every share needs a step")]
    Splits {
        /// Shares.
        splits: u32,
        /// Steps of the contraction.
        steps: u32,
    },
}

/// Checks what holds for every kernel.
fn check(problem: &GemmProblem) -> Result<(), GemmRefusal> {
    let line = |operand: OperandLayout, rows: u32| if operand.major == Major::K { problem.k } else { rows };
    let bounds = [
        ("M", problem.m, 1),
        ("N", problem.n, 1),
        ("K", problem.k, 1),
        ("the stride of A", problem.a.stride, line(problem.a, problem.m)),
        ("the stride of B", problem.b.stride, line(problem.b, problem.b_rows())),
        ("the stride of C", problem.c_stride, problem.n),
    ];
    match bounds.into_iter().find(|(_, found, least)| found < least) {
        Some((what, found, least)) => Err(GemmRefusal::TooSmall { what, found, least }),
        None if u64::from(problem.m) * u64::from(problem.b_rows()) > u64::from(u32::MAX) => {
            Err(GemmRefusal::TooLarge { m: problem.m, n: problem.b_rows() })
        }
        None if problem.epilogue.scale == Some(SumScale::Norm) => Err(GemmRefusal::NormScale),
        None => Ok(()),
    }
}

/// The launch that computes a product on sm_90a with those tiles, for buffers aligned to 16 bytes.
/// Where the contraction is split, it leaves partial sums, and the reduction makes the result of
/// them.
///
/// # Errors
/// [`GemmRefusal`].
pub fn hopper_step<'f, F: InputType<Stored: TrialElement>, D: GemmOutput + TrialElement>(
    problem: impl Into<CustomProblem<'f>>,
    choice: HopperChoice,
    multiprocessors: u32,
) -> Result<PlannedLaunch, GemmRefusal> {
    let CustomProblem { problem, custom } = problem.into();
    let problem = &problem;
    check(problem)?;
    let HopperChoice { shape, config, splits } = choice;
    least_stages(config.stages)?;
    let multiple = 128 / F::BITS as u32;
    for (what, OperandLayout { major, stride }) in [("A", problem.a), ("B", problem.b)] {
        if !stride.is_multiple_of(multiple) {
            return Err(GemmRefusal::Unaligned { what, stride, multiple });
        }
        if F::BITS == 8 && major != Major::K {
            return Err(GemmRefusal::Order { what, input: F::NAME });
        }
    }
    if config.two_level && !shape.holds_two_levels() {
        return Err(GemmRefusal::TwoLevel { shape });
    }
    if problem.epilogue.gated && problem.b.major != Major::K {
        return Err(GemmRefusal::GatedOrder);
    }
    let [tile_m, tile_n] = shape.tile();
    let tile_k = F::Width::DEPTH;
    shares(problem.k.div_ceil(tile_k), splits)?;
    let epilogue = problem.epilogue;
    let store = match splits {
        2.. => ResultStore::Partials,
        // A tensor map's store writes whole 16 bytes at the end of a row: what lies between two
        // rows would be lost.
        _ if [problem.c_stride, problem.n].iter().all(|n| n.is_multiple_of(8)) && D::pack().is_some() => {
            ResultStore::Tiles(epilogue)
        }
        _ => ResultStore::Elements(epilogue),
    };
    let columns = tile_n;
    let staged = shape.staged();
    if epilogue.gated && store == ResultStore::Tiles(epilogue) && !(columns / 2).is_multiple_of(staged) {
        return Err(GemmRefusal::GatedShape { shape, staged, columns });
    }
    let (record, facts) = shape.build::<F, D>([problem.a.major, problem.b.major]);
    let gated = epilogue.gated && store != ResultStore::Partials;
    let [down, across] = config.extents();
    let parts = if gated { down.max(2) } else { down };
    for (blocks, boxes) in [(across, facts.boxes[0]), (parts, facts.boxes[1])] {
        let lines = boxes.lines as u32;
        if !matches!(blocks, 1 | 2 | 4 | 8) || !lines.is_multiple_of(8 * blocks) {
            return Err(GemmRefusal::Cluster { blocks, lines });
        }
    }
    let rows = problem.m.div_ceil(tile_m * down);
    let width = if gated { tile_n / 2 } else { tile_n };
    // Partial sums of a gated product are those of all of B's rows; the gate is applied when they
    // are added up.
    let n = if store == ResultStore::Partials { problem.b_rows() } else { problem.n };
    let columns = n.div_ceil(width * across);
    let mut arguments = vec![
        map(
            GemmBuffer::A,
            <F::Stored as TrialElement>::DTYPE,
            problem.a,
            [problem.m, problem.k],
            facts.boxes[0],
            across,
        ),
        map(
            GemmBuffer::B,
            <F::Stored as TrialElement>::DTYPE,
            problem.b,
            [problem.b_rows(), problem.k],
            facts.boxes[1],
            parts,
        ),
    ];
    arguments.extend([problem.m, n, problem.k, rows, columns, splits].map(Argument::Number));
    arguments.extend(match store {
        ResultStore::Tiles(_) => {
            let c = OperandLayout { major: Major::K, stride: problem.c_stride };
            vec![map(GemmBuffer::C, D::DTYPE, c, [problem.m, problem.n], facts.boxes[2], 1)]
        }
        ResultStore::Elements(_) => vec![Argument::Pointer(GemmBuffer::C), Argument::Number(problem.c_stride)],
        ResultStore::Partials => vec![Argument::Pointer(GemmBuffer::Partials)],
    });
    let store = CustomStore { store, custom: custom.filter(|_| store != ResultStore::Partials) };
    if store.store != ResultStore::Partials {
        arguments.extend(epilogue_arguments(problem));
    }
    let clusters = (rows * columns * splits).min(multiprocessors / config.cluster).max(1);
    let name = format!("gemm_{}_{tile_m}x{tile_n}x{tile_k}", F::NAME);
    Ok(PlannedLaunch {
        kernel: record(&name, config, store),
        grid: clusters * config.cluster,
        arguments,
        custom: store.custom.is_some(),
    })
}

/// The launches that compute a product on sm_90a with those tiles: [`hopper_step`], followed by the
/// reduction where the contraction is split.
///
/// # Errors
/// [`GemmRefusal`].
pub fn hopper_steps<'f, F: InputType<Stored: TrialElement>, D: GemmOutput + TrialElement>(
    problem: impl Into<CustomProblem<'f>>,
    choice: HopperChoice,
    multiprocessors: u32,
) -> Result<Vec<PlannedLaunch>, GemmRefusal> {
    let problem = problem.into();
    with_reduction::<F, D>(hopper_step::<F, D>(problem, choice, multiprocessors)?, problem, choice.splits, Arch::Sm90a)
}

/// A step, followed by the reduction where it leaves partial sums.
fn with_reduction<F: InputType, D: GemmOutput>(
    step: PlannedLaunch,
    problem: CustomProblem<'_>,
    splits: u32,
    arch: Arch,
) -> Result<Vec<PlannedLaunch>, GemmRefusal> {
    let partial = step.arguments.contains(&Argument::Pointer(GemmBuffer::Partials));
    let reduction = partial.then(|| reduce_step::<F, D>(problem, splits, arch)).transpose()?;
    Ok([step].into_iter().chain(reduction).collect())
}

/// The launch that computes a product over `mma.sync`, whatever the strides. Where the contraction
/// is split or the epilogue gated, it leaves partial sums for [`reduce_step`].
///
/// # Errors
/// [`GemmRefusal`].
pub fn warp_step<'f, F: InputType<Stored: TrialElement>, D: GemmOutput + TrialElement>(
    problem: impl Into<CustomProblem<'f>>,
    choice: WarpChoice,
) -> Result<PlannedLaunch, GemmRefusal> {
    let CustomProblem { problem, custom } = problem.into();
    let problem = &problem;
    check(problem)?;
    let WarpChoice { shape, stages, group, splits, arch, aligned, two_level } = choice;
    least_stages(stages)?;
    if shape == WarpShape::M128N128 && problem.transposes_bytes::<F>() {
        return Err(GemmRefusal::TransposedBytes { shape, input: F::NAME });
    }
    let [tile_m, tile_n] = shape.tile();
    let tile_k = F::Width::DEPTH;
    shares(problem.k.div_ceil(tile_k), splits)?;
    let store = if splits > 1 || problem.epilogue.gated {
        ResultStore::Partials
    } else {
        ResultStore::Elements(problem.epilogue)
    };
    let n = problem.b_rows();
    let vector = |operand: OperandLayout, rows: u32, aligned: u32| {
        let line = if operand.major == Major::K { problem.k } else { rows };
        let widest = 128 / F::BITS as u32;
        1 << [line, operand.stride, aligned, widest].into_iter().map(u32::trailing_zeros).min().unwrap_or(0)
    };
    let vectors = [vector(problem.a, problem.m, aligned[0]), vector(problem.b, n, aligned[1])];
    let config = ampere::AmpereConfig { stages, group, majors: [problem.a.major, problem.b.major], vectors, two_level };
    let rows = problem.m.div_ceil(tile_m);
    let columns = n.div_ceil(tile_n);
    let mut arguments = vec![Argument::Pointer(GemmBuffer::A), Argument::Pointer(GemmBuffer::B)];
    let numbers = [problem.m, n, problem.k, problem.a.stride, problem.b.stride, rows, columns, splits];
    arguments.extend(numbers.map(Argument::Number));
    if store == ResultStore::Partials {
        arguments.push(Argument::Pointer(GemmBuffer::Partials));
    } else {
        arguments.extend([Argument::Pointer(GemmBuffer::C), Argument::Number(problem.c_stride)]);
        arguments.extend(epilogue_arguments(problem));
    }
    let store = CustomStore { store, custom: custom.filter(|_| store != ResultStore::Partials) };
    let name = format!("gemm_{}_{tile_m}x{tile_n}x{tile_k}_warps", F::NAME);
    Ok(PlannedLaunch {
        kernel: shape.record::<F, D>(&name, arch, config, store)?,
        grid: rows * columns * splits,
        arguments,
        custom: store.custom.is_some(),
    })
}

/// The launch that makes the result of partial sums.
///
/// # Errors
/// [`GemmRefusal`].
pub fn reduce_step<'f, F: InputType, D: GemmOutput>(
    problem: impl Into<CustomProblem<'f>>,
    splits: u32,
    arch: Arch,
) -> Result<PlannedLaunch, GemmRefusal> {
    let CustomProblem { problem, custom } = problem.into();
    let problem = &problem;
    check(problem)?;
    let epilogue = problem.epilogue;
    let kernel = record("gemm_reduce", arch, reduce::launch(), |k| reduce::reduce::<F::Sum, D>(k, epilogue, custom));
    let mut arguments = vec![Argument::Pointer(GemmBuffer::Partials), Argument::Pointer(GemmBuffer::C)];
    arguments.extend([problem.c_stride, problem.m, problem.n, splits].map(Argument::Number));
    arguments.extend(epilogue_arguments(problem));
    let grid = (problem.m * problem.n).div_ceil(256).min(4096);
    Ok(PlannedLaunch { kernel, grid, arguments, custom: custom.is_some() })
}

/// The device that a product is planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmDevice {
    /// The device's architecture.
    pub arch: Arch,
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// Bytes that the addresses of all buffers are multiples of; a driver's allocations are of 256.
    pub aligned: u32,
    /// Whether launches may leave partial sums: without, no contraction is split. A product over
    /// `mma.sync` whose epilogue is gated needs them.
    pub partials: bool,
}

/// The launches that compute a product, one after the other: by tensor maps and `wgmma` where the
/// device and the strides allow it, over `mma.sync` elsewhere.
///
/// # Errors
/// [`GemmRefusal`], for what no kernel computes.
pub fn plan<'f, F: InputType<Stored: TrialElement>, D: GemmOutput + TrialElement>(
    problem: impl Into<CustomProblem<'f>>,
    target: GemmDevice,
) -> Result<Vec<PlannedLaunch>, GemmRefusal> {
    let custom = problem.into();
    let problem = &custom.problem;
    let GemmDevice { arch, multiprocessors, aligned, partials } = target;
    let most_splits = if partials { MOST_SPLITS } else { 1 };
    let by_maps = match (arch, aligned.is_multiple_of(16)) {
        (Arch::Sm90a, true) => {
            let choice = choose_within::<F>(problem, multiprocessors, most_splits);
            hopper_step::<F, D>(custom, choice, multiprocessors).map(|step| (step, choice.splits))
        }
        _ => Err(GemmRefusal::GatedOrder),
    };
    let (step, splits) = match by_maps {
        Ok(planned) => planned,
        // Vectors of cp.async and single elements can describe shapes that a tensor map cannot.
        Err(
            GemmRefusal::Unaligned { .. }
            | GemmRefusal::Order { .. }
            | GemmRefusal::GatedOrder
            | GemmRefusal::GatedShape { .. },
        ) => {
            check(problem)?;
            if problem.epilogue.gated && !partials {
                return Err(GemmRefusal::GatedPartials);
            }
            let (shape, splits) = choose_warps::<F>(problem, multiprocessors);
            let splits = splits.min(most_splits);
            let elements = aligned * 8 / F::BITS as u32;
            let choice = WarpChoice {
                shape,
                stages: 3,
                group: 8,
                splits,
                arch,
                aligned: [elements.max(1); 2],
                two_level: problem.two_level::<F>(),
            };
            (warp_step::<F, D>(custom, choice)?, splits)
        }
        Err(refusal) => return Err(refusal),
    };
    with_reduction::<F, D>(step, custom, splits, arch)
}

/// A stage is read while the next one is filled.
pub(super) fn least_stages(found: u32) -> Result<(), GemmRefusal> {
    if found < 2 { Err(GemmRefusal::TooSmall { what: "the number of stages", found, least: 2 }) } else { Ok(()) }
}

/// Checks that every share of the contraction has a step.
fn shares(steps: u32, splits: u32) -> Result<(), GemmRefusal> {
    if splits == 0 || (splits - 1) * steps.div_ceil(splits) >= steps {
        return Err(GemmRefusal::Splits { splits, steps });
    }
    Ok(())
}

fn epilogue_arguments(problem: &GemmProblem) -> Vec<Argument> {
    let mut arguments = Vec::new();
    if problem.epilogue.scale.is_some() {
        arguments.extend([GemmBuffer::AScale, GemmBuffer::BScale].map(Argument::Pointer));
    }
    if problem.epilogue.bias {
        arguments.push(Argument::Pointer(GemmBuffer::Bias));
    }
    if problem.epilogue.residual {
        arguments.extend([Argument::Pointer(GemmBuffer::Residual), Argument::Number(problem.c_stride)]);
    }
    arguments
}

/// The tensor map of a matrix (rows, columns) whose tiles have these boxes, their lines divided
/// into `parts`.
pub(super) fn map<B>(
    buffer: B,
    dtype: DType,
    operand: OperandLayout,
    [rows, columns]: [u32; 2],
    boxes: TensorBoxes,
    parts: u32,
) -> Argument<B> {
    let dims = if operand.major == Major::K { [columns, rows] } else { [rows, columns] };
    let shape = TensorShape {
        dtype,
        dims: dims.map(u64::from).to_vec(),
        strides: vec![u64::from(operand.stride) * dtype.bytes() as u64],
        tile: vec![boxes.width as u32, boxes.lines as u32 / parts],
        swizzle: match boxes.swizzle {
            SwizzleWidth::Interleaved => TileSwizzle::None,
            SwizzleWidth::Bytes32 => TileSwizzle::Bytes32,
            SwizzleWidth::Bytes64 => TileSwizzle::Bytes64,
            SwizzleWidth::Bytes128 => TileSwizzle::Bytes128,
        },
        outside: Outside::Zero,
        promotion: Promotion::Bytes256,
    };
    Argument::Map(buffer, shape)
}
