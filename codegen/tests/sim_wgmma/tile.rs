//! The layout of `wgmma` operands in shared memory, written anew from the PTX ISA: independent of
//! the simulator.

use tilewright_codegen::build::{Descriptor, SwizzleMode};
use tilewright_codegen::ir::Elem;
use tilewright_codegen::ir::attr::Major;
use tilewright_codegen::trial::TileSwizzle;

/// A tile of 64 rows along M or N.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    pub elem: Elem,
    pub major: Major,
    pub swizzle: SwizzleMode,
}

/// Rows of either operand.
pub const ROWS: usize = 64;

/// A box of a tensor map: its sides, where it begins in the tensor, and where it goes in the tile,
/// bytes.
pub struct Box {
    pub sides: [u32; 2],
    pub at: [i32; 2],
    pub to: usize,
}

impl Tile {
    pub fn size(self) -> usize {
        self.elem.bits() as usize / 8
    }

    /// Bytes of a swizzled row; 16 without a swizzle.
    fn span(self) -> usize {
        match self.swizzle {
            SwizzleMode::None => 16,
            SwizzleMode::B32 => 32,
            SwizzleMode::B64 => 64,
            SwizzleMode::B128 => 128,
        }
    }

    /// Elements along K: a swizzled row of them where they are contiguous.
    pub fn depth(swizzle: SwizzleMode, majors: [Major; 2], size: usize) -> usize {
        let tile = Tile { elem: Elem::U8, major: Major::K, swizzle };
        match swizzle {
            _ if majors.contains(&Major::Mn) && swizzle != SwizzleMode::B128 => 32,
            SwizzleMode::None => 64 / size,
            SwizzleMode::B32 | SwizzleMode::B64 | SwizzleMode::B128 => tile.span() / size,
        }
    }

    /// Bytes from one column of core matrices, or group of swizzled rows, to the next along the
    /// contiguous axis.
    fn pitch(self, depth: usize) -> usize {
        self.span() * if self.major == Major::K { ROWS } else { depth }
    }

    /// The offset of row i's element k in a tile that begins at a multiple of 1024.
    pub fn lies(self, depth: usize, i: usize, k: usize) -> usize {
        let span = self.span();
        let size = self.size();
        let (slow, fast) = if self.major == Major::K { (i, k * size) } else { (k, i * size) };
        let plain = fast / span * self.pitch(depth) + slow * span + fast % span;
        if span == 16 { plain } else { plain ^ (plain / 128 % (span / 16) * 16) }
    }

    pub fn descriptor(self, depth: usize) -> Descriptor {
        let group = 8 * self.span() as u32;
        let pitch = self.pitch(depth) as u32;
        let (leading, stride) = match (self.major, self.swizzle) {
            (Major::K, SwizzleMode::None) => (pitch, group),
            (Major::Mn, SwizzleMode::None) => (group, pitch),
            (Major::K | Major::Mn, _) => (pitch, group),
        };
        Descriptor { swizzle: self.swizzle, leading, stride }
    }

    /// The start of an instruction's part, each of which takes 32 bytes of K.
    pub fn part(self, depth: usize, step: usize) -> usize {
        match self.major {
            Major::K => 32 * step / self.span() * self.pitch(depth) + 32 * step % self.span(),
            Major::Mn => 32 / self.size() * step * self.span(),
        }
    }

    /// The sides of the tensor that holds it, the contiguous one first.
    pub fn dims(self, depth: usize) -> [u64; 2] {
        let [rows, depth] = [ROWS as u64, depth as u64];
        if self.major == Major::K { [depth, rows] } else { [rows, depth] }
    }

    /// The copies that bring it there.
    pub fn boxes(self, depth: usize) -> Vec<Box> {
        let [inner, outer] = self.dims(depth);
        let wide = self.span() / self.size();
        let count = inner as usize / wide;
        let one = |i: usize| Box {
            sides: [wide as u32, outer as u32],
            at: [(i * wide) as i32, 0],
            to: i * self.pitch(depth),
        };
        (0..count).map(one).collect()
    }

    pub fn map_swizzle(self) -> TileSwizzle {
        match self.swizzle {
            SwizzleMode::None => TileSwizzle::None,
            SwizzleMode::B32 => TileSwizzle::Bytes32,
            SwizzleMode::B64 => TileSwizzle::Bytes64,
            SwizzleMode::B128 => TileSwizzle::Bytes128,
        }
    }
}
