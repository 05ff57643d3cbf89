//! Errors in a kernel's use of matrix instructions, reported while recording, at the author's line.

use thiserror::Error;

/// Why a product is refused. `verify` reports it at the line that asked.
///
/// ```
/// use half::bf16;
/// use tilewright_codegen::{build::{block, record}, ir::Arch, verify::verify};
/// use tilewright_kernels::mma::{AtomLayout, TiledMma, Wgmma};
/// use tilewright_layout::typed::{KMajor, OperandTile};
/// type Tile = OperandTile<KMajor, 16, 128, 64>;
/// let kernel = record("hasty", Arch::Sm90a, block(64), |k| {
///     TiledMma::<Wgmma<bf16>, Tile, Tile, AtomLayout<2, 1>>::new(k);
/// });
/// let errors = verify(kernel).unwrap_err().to_string();
/// assert!(errors.contains("256 threads of 2 by 1 warpgroups: the block has 64; launch 256, or take a smaller AtomLayout"), "{errors}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are the numbers that the message prints")]
pub enum MmaError {
    /// A grid of more threads than the block has.
    #[error(
        "{threads} threads of {down} by {across} {group}: the block has {block}; launch {threads}, or take a smaller AtomLayout"
    )]
    Threads { threads: u32, down: u32, across: u32, group: &'static str, block: u32 },
    /// A grid of fewer threads than the block has: the others would compute outside the tile.
    #[error(
        "{threads} threads of {down} by {across} {group}: the block has {block}, and the others would compute outside the tile; launch {threads}, take a larger AtomLayout, or number the {group} by_warps"
    )]
    Idle { threads: u32, down: u32, across: u32, group: &'static str, block: u32 },
    /// A block without the threads of one instruction.
    #[error("{group} of {threads} threads each: the block has {block}; launch {threads} at least")]
    Group { group: &'static str, threads: u32, block: u32 },
    /// A number of a warp or warpgroup beyond the grid.
    #[error(
        "number {number} of {down} by {across} {group}: numbers are below {count}; take one of those, or a larger AtomLayout"
    )]
    Number { number: u32, down: u32, across: u32, group: &'static str, count: u32 },
    /// Parts of the result that no warp computes.
    #[error(
        "{down} by {across} {group}: {most} at most are numbered, not {count}; number {count}, or take a smaller AtomLayout"
    )]
    Unnumbered { down: u32, across: u32, group: &'static str, most: u32, count: u32 },
    /// An operand of `wgmma` in an allocation that is not aligned to its swizzle.
    #[error(
        "wgmma operand in `{name}`: the allocation is aligned to {align} bytes, the swizzle repeats every {period}; align it to {period}"
    )]
    Alignment { name: String, align: u32, period: u32 },
    /// An operand of `wgmma` off its swizzle's period.
    #[error(
        "wgmma operand {beside} bytes beside a multiple of {period}, where its swizzle repeats; begin it at one, with tiles of whole atoms"
    )]
    Beside { beside: u32, period: u32 },
    /// Rows of atoms that the sums have not got.
    #[error("rows {first} to {last} of atoms: the sums have {down}; take rows below that")]
    Atoms { first: u32, last: u32, down: u32 },
    /// A fragment of another instruction.
    #[error("fragment {wanted}: that of the sums is {found}; take that of their instruction")]
    Fragment { wanted: String, found: String },
    /// More or fewer values than rows.
    #[error("{given} values for rows: a thread holds parts of {held}; give one for each")]
    Rows { given: usize, held: usize },
    /// More or fewer fragments of an operand than atoms.
    #[error("{given} fragments of {operand}: the sums have {atoms} atoms along it; give one for each")]
    Fragments { given: usize, operand: &'static str, atoms: u32 },
    /// A step of K that the tiles have not got.
    #[error("step {step} of K: the tiles hold {steps}; count from 0 and stay below")]
    Step { step: u32, steps: u32 },
    /// Sums that no `wgmma` has.
    #[error("sums of atoms of {rows}×{columns}, {across} across: no wgmma has them; take those of warpgroup_atom")]
    Sums { rows: i64, columns: i64, across: u32 },
    /// A tile of other extents.
    #[error("tile of {found}: {what} has {wanted}; take a tile of its extents")]
    Tile { found: String, what: &'static str, wanted: String },
    /// Registers of several elements that memory has not got side by side.
    #[error(
        "register of {packed} neighbours of a row: memory has {width} side by side; take rows that are contiguous, or ldmatrix"
    )]
    Neighbours { packed: u32, width: u32 },
    /// A tile without the rows that `ldmatrix` reads.
    #[error(
        "ldmatrix of a tile with {width} elements of K side by side: it reads {wanted} at a time, 16 bytes; store the tile along K, or elements of 16 bits along M or N"
    )]
    Matrices { width: i64, wanted: i64 },
}

/// Extents as a message shows them, `_` where the kernel's run says.
pub(super) fn by(extents: &[Option<u32>]) -> String {
    let known = |extent: &Option<u32>| extent.map_or_else(|| "_".into(), |extent| extent.to_string());
    extents.iter().map(known).collect::<Vec<_>>().join("×")
}
