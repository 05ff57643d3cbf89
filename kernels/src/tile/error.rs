//! Errors in a kernel's use of tensors, reported while recording, at the author's line.

use thiserror::Error;
use tilewright_layout::LayoutError;

/// Why a tensor, a part of one or a copy is refused. `verify` reports it at the line that asked.
///
/// ```
/// use tilewright_codegen::{build::{block, record}, ir::Arch, verify::verify};
/// use tilewright_kernels::tile::LayoutTensor;
/// use tilewright_layout::typed::RowMajor;
/// let kernel = record("hasty", Arch::Sm80, block(32), |k| {
///     let tile = LayoutTensor::new(k.global::<f32>("x"), RowMajor::<4, 8>::default());
///     tile.at([2.into(), 8.into()]).store(1.0);
/// });
/// let errors = verify(kernel).unwrap_err().to_string();
/// assert!(errors.contains("index 8 of mode 1: its extent is 8; count from 0 and stay below"), "{errors}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are the numbers that the message prints")]
pub enum TileError {
    /// A coordinate of another rank.
    #[error("coordinate of {given} indices: the tensor has {expected} modes; give one index per mode")]
    Rank { given: usize, expected: usize },
    /// A constant index that no element has.
    #[error("index {index} of mode {mode}: its extent is {extent}; count from 0 and stay below")]
    Beyond { mode: usize, index: u32, extent: u32 },
    /// A mode that there is not.
    #[error("mode {mode}: the tensor has {rank} modes; count from 0 and stay below")]
    NoSuchMode { mode: usize, rank: usize },
    /// A view that reaches beyond its allocation.
    #[error("view of {needed} bytes: `{name}` has {left} from here on; allocate it from the layout")]
    Larger { name: String, needed: i64, left: i64 },
    /// A view with more elements than offsets of 32 bits reach.
    #[error(
        "view {layout} of {elements} elements: offsets of layouts have 32 bits; take Modes, whose offsets have 64, or a view per part"
    )]
    Wide { layout: String, elements: i64 },
    /// A swizzled view at a base that its swizzle does not repeat at.
    #[error(
        "view at a multiple of {found} bytes in `{name}`: its swizzle repeats every {needed}; align the allocation to {needed}, or allocate it from the layout"
    )]
    Misaligned { name: String, found: u32, needed: u32 },
    /// Tiles that leave a rest.
    #[error("tiles of {tile} along mode {mode}: its extent {extent} is no multiple; take a divisor, or clipped tiles")]
    Indivisible { mode: usize, tile: u32, extent: u32 },
    /// Threads that leave a rest.
    #[error("{threads} threads along mode {mode}: its extent {extent} is no multiple; take as many as divide it")]
    Undealt { mode: usize, threads: u32, extent: u32 },
    /// A thread layout of another rank.
    #[error("thread layout of {given} modes: the tensor has {expected}; give the threads along each")]
    ThreadRank { given: usize, expected: usize },
    /// A slice of another rank than modes stay open.
    #[error("slice of {wanted} modes: {open} stay open; give an index for each of the others")]
    Slice { wanted: usize, open: usize },
    /// A thread layout that is not a numbering.
    #[error("thread layout {threads}: it does not number its {count} places from 0; take a compact layout")]
    NoNumbering { threads: String, count: i64 },
    /// Vectors that one instruction cannot move.
    #[error(
        "vectors of {asked} along mode {mode}: {layout} has whole, aligned vectors of {widest} there; take a divisor"
    )]
    Vector { asked: u32, mode: usize, layout: String, widest: u32 },
    /// A part of an extent that must be known while recording.
    #[error("extent of mode {mode}: {what} needs it while recording; take a tile, whose extents are constants")]
    Unknown { mode: usize, what: &'static str },
    /// Copies between tensors of different extents.
    #[error("copy of {from} elements to {to}: the extents differ; take tiles of the same extents")]
    Extents { from: String, to: String },
    /// A tensor whose elements are vectors of another length than the other side's.
    #[error("copy of vectors of {from} to vectors of {to}: an element moves whole; vectorize both sides alike")]
    Lanes { from: u32, to: u32 },
    /// A coordinate of registers that is known while the kernel runs.
    #[error("register at a coordinate known at run time: registers have no address; copy a thread's own part")]
    NoAddress,
    /// An error of the layout algebra.
    #[error("{0}")]
    Layout(#[from] LayoutError),
}
