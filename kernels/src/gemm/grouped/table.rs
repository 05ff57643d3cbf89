//! The tiles that are shipped, a row each, and the kernels that they make.

use core::marker::PhantomData;

use tilewright_codegen::build::record;
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_layout::swizzle::TensorBoxes;
use tilewright_layout::typed::{KMajor, OperandTile, StaticLayout};

use super::config::GroupedConfig;
use super::problem::CustomSteps;
use super::{hopper, warps};
use crate::gemm::WarpShape;
use crate::gemm::ampere::BlockMma;
use crate::gemm::finish::GemmOutput;
use crate::gemm::tiling::{Tiles, Tiling};
use crate::mma::{AtomGrid, AtomLayout, InputType, MissingAtom, Width};
use crate::tile::boxes;

/// Tiles of 64×`N` for two warpgroups side by side, with 64 staged columns.
#[derive(Debug)]
struct Beside<W, const N: usize>(PhantomData<W>);

impl<W: Width, const N: usize> Tiles for Beside<W, N> {
    type A = W::Tile<KMajor, 64>;
    type B = W::Tile<KMajor, N>;
    type C = OperandTile<KMajor, 16, 64, 64>;
    type Grid = AtomLayout<1, 2>;
    const M: u32 = 64;
    const N: u32 = N as u32;
    const K: u32 = W::DEPTH;
    const STAGED: u32 = 64;
    const CONSUMERS: u32 = 2;
    const ROWS: u32 = 64;
}

/// Operands whose K is contiguous.
type Rows<F, const M: usize, const N: usize, const G: u32, const R: usize, const S: usize> =
    Tiling<<F as InputType>::Width, KMajor, KMajor, M, N, G, R, S>;

/// The tiles of a grouped product by `wgmma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupedShape {
    /// 128×256, for groups of many rows.
    M128N256,
    /// 256×128, for groups of many rows of 8 bits, whose sums are held twice: 64 rows of a warpgroup
    /// at a time.
    M256N128,
    /// 128×192.
    M128N192,
    /// 128×128, for results that are too small to give every multiprocessor a larger tile.
    M128N128,
    /// 64×256, for groups of few rows: weights are read in long runs.
    M64N256,
    /// 64×128, for groups of few rows and few columns.
    M64N128,
    /// 64×64, for groups of few rows whose columns are few for the device.
    M64N64,
}

/// Records a kernel.
type Record = fn(&str, GroupedConfig, CustomSteps<'_>) -> Kernel;

/// A kernel, and what the host must know of its tiles.
pub(super) struct ShapeEntry {
    pub record: Record,
    /// The boxes of A and B.
    pub boxes: [TensorBoxes; 2],
    /// Warpgroups across.
    pub across: u32,
    /// Bytes of a stage, and of what is staged of the result.
    pub bytes: [u32; 2],
    /// Columns that are staged at a time.
    pub staged: u32,
}

impl GroupedShape {
    /// Every shape.
    pub const ALL: &'static [GroupedShape] = &[
        GroupedShape::M128N256,
        GroupedShape::M256N128,
        GroupedShape::M128N192,
        GroupedShape::M128N128,
        GroupedShape::M64N256,
        GroupedShape::M64N128,
        GroupedShape::M64N64,
    ];

    /// Whether a thread has registers for a product of operands of `bits`, whose rows are gathered or
    /// not. Sums of operands of 8 bits are held twice.
    pub const fn fits(self, bits: i64, gathered: bool) -> bool {
        match self {
            GroupedShape::M128N256 => bits > 8,
            GroupedShape::M256N128 => !gathered,
            GroupedShape::M128N192 => bits > 8 || !gathered,
            GroupedShape::M128N128 | GroupedShape::M64N256 | GroupedShape::M64N128 | GroupedShape::M64N64 => true,
        }
    }

    /// Rows and columns of a tile of products.
    pub const fn tile(self) -> [u32; 2] {
        match self {
            GroupedShape::M128N256 => [128, 256],
            GroupedShape::M256N128 => [256, 128],
            GroupedShape::M128N192 => [128, 192],
            GroupedShape::M128N128 => [128, 128],
            GroupedShape::M64N256 => [64, 256],
            GroupedShape::M64N128 => [64, 128],
            GroupedShape::M64N64 => [64, 64],
        }
    }

    pub(super) fn entry<F: InputType, D: GemmOutput>(self) -> ShapeEntry {
        match self {
            GroupedShape::M128N256 => entry::<F, D, Rows<F, 128, 256, 2, 64, 64>>(),
            GroupedShape::M256N128 => entry::<F, D, Rows<F, 256, 128, 2, 128, 64>>(),
            GroupedShape::M128N192 => entry::<F, D, Rows<F, 128, 192, 2, 64, 64>>(),
            GroupedShape::M128N128 => entry::<F, D, Rows<F, 128, 128, 2, 64, 64>>(),
            GroupedShape::M64N256 => entry::<F, D, Beside<F::Width, 256>>(),
            GroupedShape::M64N128 => entry::<F, D, Rows<F, 64, 128, 1, 64, 64>>(),
            GroupedShape::M64N64 => entry::<F, D, Rows<F, 64, 64, 1, 64, 64>>(),
        }
    }
}

fn entry<F: InputType, D: GemmOutput, T: Tiles>() -> ShapeEntry {
    let record = |name: &str, config: GroupedConfig, steps: CustomSteps<'_>| {
        record(name, Arch::Sm90a, hopper::launch::<T>(&config), |k| hopper::grouped::<F, D, T>(k, config, steps))
    };
    let stage = (T::M + T::N) * T::K * F::BITS as u32 / 8;
    let staged = T::CONSUMERS * T::BUFFERS * T::ROWS * T::STAGED * 2;
    ShapeEntry {
        record,
        boxes: [boxes::<F::Stored, T::A>(), boxes::<F::Stored, T::B>()],
        across: T::Grid::ACROSS,
        bytes: [stage, staged],
        staged: T::STAGED,
    }
}

/// Records the kernel over `mma.sync`.
///
/// # Errors
/// [`MissingAtom`] where the architecture cannot multiply such operands.
pub(super) fn record_warps<F: InputType, D: GemmOutput>(
    shape: WarpShape,
    name: &str,
    arch: Arch,
    config: GroupedConfig,
    steps: CustomSteps<'_>,
) -> Result<Kernel, MissingAtom> {
    match shape {
        WarpShape::M128N128 => by_warps::<F, D, Rows<F, 128, 128, 2, 64, 128>>(name, arch, config, steps),
        WarpShape::M64N64 => by_warps::<F, D, Rows<F, 64, 64, 1, 64, 64>>(name, arch, config, steps),
    }
}

fn by_warps<F: InputType, D: GemmOutput, T: Tiles<A: StaticLayout>>(
    name: &str,
    arch: Arch,
    config: GroupedConfig,
    steps: CustomSteps<'_>,
) -> Result<Kernel, MissingAtom> {
    BlockMma::<F, T>::on(arch)?;
    Ok(record(name, arch, warps::launch::<F, T>(), |k| warps::grouped::<F, D, T>(k, config, steps)))
}
