//! Random cases of copies.

use crate::tile::Index;
use tilewright_codegen::build::{Builder, Val};
use tilewright_codegen::trial::Draw;

/// The form in which the layout of a side is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutKind {
    /// A type.
    Typed,
    /// A value, known while recording.
    Value,
    /// Modes, some of whose extents and strides the kernel is told.
    Told,
}

/// The threads that fill the tile in shared memory, and the copy that they use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileFill {
    /// All threads of the block.
    Block,
    /// The block, asynchronously.
    BlockAsync,
    /// A single warp.
    Warp,
    /// Each thread the elements that are dealt to it.
    Thread,
    /// Each thread, asynchronously.
    ThreadAsync,
}

/// A side of a copy in global memory: a tensor of three modes, permuted, sliced to a matrix, split,
/// and cut into tiles.
#[derive(Clone, Debug)]
pub struct CopySide {
    /// The form in which its layout is known.
    pub kind: LayoutKind,
    /// Extents of the three modes, as memory has them.
    pub extents: [u32; 3],
    /// Their strides, elements.
    pub strides: [u32; 3],
    /// Elements before the tensor begins.
    pub offset: u32,
    /// The extents, strides and indices that are known while recording: a bit for each of the
    /// [numbers](Side::numbers).
    pub known: u32,
    /// The vector width promised for it: [`Modes::vectors`](crate::tile::Modes::vectors).
    pub promise: u32,
    /// The order of the modes in the view.
    pub order: [usize; 3],
    /// The mode of the permuted view that is sliced away, and where.
    pub slice: (usize, u32),
    /// The mode of the matrix that is split, into how many parts, and which.
    pub split: (usize, u32, u32),
    /// A divisor of the length of a part.
    pub multiple: u32,
    /// Whether a tile of a value is composed with another order of its columns: even ones first.
    pub composed: bool,
}

/// A copy.
#[derive(Clone, Debug)]
pub struct CopyCase {
    /// Threads of a block.
    pub threads: u32,
    /// Tiles down and across: the grid's blocks.
    pub tiles: [u32; 2],
    /// The source.
    pub from: CopySide,
    /// The destination.
    pub to: CopySide,
    /// The threads that fill the tile.
    pub fill: TileFill,
    /// Whether the tile is copied on through registers.
    pub registers: bool,
}

impl CopyCase {
    /// Draws a case for tiles of this shape, elements of a size in bytes, and types whose views
    /// have a number of tiles.
    pub fn draw(draw: &mut Draw, tile: [u32; 2], bytes: u32, most: [u32; 2]) -> CopyCase {
        let tiles = most.map(|most| draw.between(1..=most));
        let fills = [TileFill::Block, TileFill::BlockAsync, TileFill::Warp, TileFill::Thread, TileFill::ThreadAsync];
        let fill = fills[draw.between(0..=4) as usize];
        let [from, to] = [0, 1].map(|_| CopySide::draw(draw, tile, tiles, bytes));
        let registers = draw.between(0..=1) == 1;
        CopyCase { threads: 32 * draw.between(1..=6), tiles, from, to, fill, registers }
    }

    /// The tile of this block.
    #[track_caller]
    pub(super) fn place<'k>(&self, k: &'k Builder) -> [Index<'k>; 2] {
        let [down, across] = self.tiles;
        [Index::below(k.block_id() / across, down), Index::below(k.block_id() % across, across)]
    }
}

impl CopySide {
    fn draw(draw: &mut Draw, tile: [u32; 2], tiles: [u32; 2], bytes: u32) -> CopySide {
        let kind =
            [LayoutKind::Typed, LayoutKind::Value, LayoutKind::Told, LayoutKind::Told][draw.between(0..=3) as usize];
        let split = (draw.between(0..=1) as usize, draw.between(1..=3));
        // The common divisor of strides and extents.
        let whole = [1, 2, 4, 16 / bytes][draw.between(0..=3) as usize];
        // The grid's tiles fill a view; the last ones of a told view may run over its edge.
        let told = |draw: &mut Draw, extent: u32, tile: u32| match draw.between(0..=2) {
            0 => extent,
            _ => draw.between(extent - tile + 1..=extent).next_multiple_of(whole).min(extent),
        };
        let matrix = [0, 1].map(|i| {
            let full = tile[i] * tiles[i];
            let parts = if i == split.0 { split.1 } else { 1 };
            match kind {
                LayoutKind::Told if whole > 1 => told(draw, full, tile[i]) * parts,
                LayoutKind::Told => told(draw, full, tile[i]) * parts - draw.between(0..=parts - 1),
                LayoutKind::Typed | LayoutKind::Value => full * parts,
            }
        });
        let mode = draw.between(0..=2) as usize;
        let others = draw.between(1..=3);
        let mut view = matrix.to_vec();
        view.insert(mode, others);
        // A slice beyond the edge has nothing.
        let beyond = u32::from(kind == LayoutKind::Told && draw.between(0..=9) == 0);
        let at = draw.between(0..=others - 1 + beyond);
        let order = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]][draw.between(0..=5) as usize];
        let mut extents = [0; 3];
        (0..3).for_each(|i| extents[order[i]] = view[i]);
        let (strides, offset) = CopySide::strides(draw, extents, whole, kind);
        let side = CopySide {
            kind,
            extents,
            strides,
            offset,
            known: draw.bits() as u32,
            promise: 1,
            order,
            slice: (mode, at),
            split: (split.0, split.1, draw.between(0..=split.1 - 1)),
            multiple: if tile[split.0].is_multiple_of(whole) && draw.between(0..=2) > 0 { whole } else { 1 },
            composed: draw.between(0..=1) == 1,
        };
        let most = side.widest().min(16 / bytes);
        CopySide { promise: if draw.between(0..=3) == 0 { 1 } else { most }, ..side }
    }

    /// Strides in an order of memory that repeat no element, and what lies before: multiples of
    /// `whole` where they can be.
    fn strides(draw: &mut Draw, extents: [u32; 3], whole: u32, kind: LayoutKind) -> ([u32; 3], u32) {
        let mut order = [0, 1, 2];
        (1..3).rev().for_each(|i| order.swap(i, draw.between(0..=i as u32) as usize));
        let mut next = 1u32;
        let mut strides = [0; 3];
        for mode in order {
            strides[mode] = next;
            next = (next * extents[mode] + draw.between(0..=2)).next_multiple_of(whole);
        }
        // A layout that is a value or a type is of an aligned tensor.
        let offset = if kind == LayoutKind::Told { whole * draw.between(0..=3) } else { 16 * draw.between(0..=1) };
        (strides, offset)
    }

    /// The most elements that the promise may be: the offset, the strides and the contiguous extent
    /// are multiples.
    fn widest(&self) -> u32 {
        let of = |mode: usize| if self.strides[mode] == 1 { self.extents[mode] } else { self.strides[mode] };
        1 << (self.offset | of(0) | of(1) | of(2) | 16).trailing_zeros()
    }

    /// Extents, strides, the place of the slice and the part of the split: what the kernel is told
    /// where it is not known.
    pub fn numbers(&self) -> [u32; 8] {
        let [a, b, c] = self.extents;
        let [d, e, f] = self.strides;
        [a, b, c, d, e, f, self.slice.1, self.split.2]
    }

    /// The numbers as the kernel has them, each a parameter.
    #[track_caller]
    pub(super) fn told<'k>(&self, k: &'k Builder, of: &str) -> [Index<'k>; 8] {
        let names = ["a", "b", "c", "a_stride", "b_stride", "c_stride", "slice", "part"];
        let told: [Val<'k, u32>; 8] = names.map(|name| k.param(&format!("{of}_{name}")));
        let one_of = |i: usize| if self.known >> i & 1 == 1 { self.numbers()[i].into() } else { Index::any(told[i]) };
        core::array::from_fn(one_of)
    }

    /// Elements of memory that it reaches, from its first.
    pub fn reach(&self) -> u32 {
        1 + (0..3).map(|mode| (self.extents[mode] - 1) * self.strides[mode]).sum::<u32>()
    }
}
