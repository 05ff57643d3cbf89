//! A `wgmma` as issued: its operands, in registers or by descriptor.
//!
//! ```text
//! bits 63 62 | 51 … 49 | 45 … 32 | 29 … 16 | 13 … 0
//!   swizzle    base      stride    leading   start      (offsets and start / 16)
//! ```

use crate::ir::WgmmaAtom;
use crate::ir::attr::{Major, Sign};
use crate::sim::number::LANES;

/// A matrix in shared memory, as a descriptor describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub start: u32,
    pub leading: u32,
    pub stride: u32,
    pub base: u32,
    /// Bytes of a swizzled row; 16 for none.
    pub span: u32,
}

impl Descriptor {
    pub(crate) fn decode(bits: u64) -> Descriptor {
        let field = |at: u32| (bits >> at & 0x3fff) as u32 * 16;
        let span = match bits >> 62 {
            1 => 128,
            2 => 64,
            3 => 32,
            _ => 16,
        };
        Descriptor { start: field(0), leading: field(16), stride: field(32), base: (bits >> 49 & 7) as u32, span }
    }

    /// The address of an element: `i` along M or N, `k` along K, elements of `size` bytes.
    ///
    /// A core matrix is 8 rows of 16 bytes. K-major without swizzle, core matrices are `leading`
    /// apart along K and `stride` apart along M or N; with it, 8 rows of `span` bytes follow each
    /// other and `stride` leads to the next 8. MN-major, rows run along M or N: without swizzle
    /// `stride` leads to the next 8 of them and `leading` to the next 8 of K; with it, `leading`
    /// leads to the next `span` bytes and `stride` to the next 8 of K.
    pub(crate) fn address(&self, major: Major, i: u32, k: u32, size: u32) -> u32 {
        let plain = match (major, self.span) {
            (Major::K, 16) => i / 8 * self.stride + i % 8 * 16 + k * size / 16 * self.leading + k * size % 16,
            (Major::K, span) => i / 8 * self.stride + i % 8 * span + k * size,
            (Major::Mn, 16) => i * size / 16 * self.stride + i * size % 16 + k % 8 * 16 + k / 8 * self.leading,
            (Major::Mn, span) => {
                let row = span / size;
                i % row * size + i / row * self.leading + k % 8 * span + k / 8 * self.stride
            }
        };
        self.swizzle(self.start.wrapping_add(plain))
    }

    /// Bytes from the start of its swizzle's pattern, which the hardware finds by the bits of the
    /// address, to its first row: zero, but of a tile that is not aligned to the pattern.
    pub(crate) fn off_pattern(&self) -> u32 {
        if self.span == 16 {
            return 0;
        }
        self.start.wrapping_sub(self.base << 7) & (8 * self.span - 1) & !(self.span - 1)
    }

    fn swizzle(&self, address: u32) -> u32 {
        let phase = (address >> 7).wrapping_sub(self.base) & (self.span / 16 - 1);
        address ^ phase << 4
    }
}

/// A matrix operand in shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedOperand {
    pub descriptor: Descriptor,
    pub major: Major,
}

/// The location of the A operand.
#[derive(Debug)]
pub(crate) enum Left {
    Shared(SharedOperand),
    /// Per warp, its registers as they were at the issue.
    Registers(Vec<[[u64; LANES]; 4]>),
}

/// A `wgmma` in flight.
#[derive(Debug)]
pub(crate) struct Multiply {
    pub block: u32,
    /// The first of the four warps, of the grid.
    pub warp: usize,
    pub atom: WgmmaAtom,
    /// The first register row of the accumulator.
    pub row: usize,
    pub a: Left,
    pub b: SharedOperand,
    pub keep: bool,
    pub signs: (Sign, Sign),
}

impl Multiply {
    /// The 16-byte units of an operand of `count` rows: the first row, the first k, the address.
    pub(super) fn units(&self, operand: SharedOperand, count: u32, size: u32) -> Vec<(u32, u32, u32)> {
        let SharedOperand { descriptor, major } = operand;
        let depth = self.atom.kind().k();
        let unit = 16 / size;
        let mut units = Vec::with_capacity((count * depth / unit) as usize);
        match major {
            Major::K => {
                for i in 0..count {
                    units
                        .extend((0..depth / unit).map(|u| (i, u * unit, descriptor.address(major, i, u * unit, size))));
                }
            }
            Major::Mn => {
                for k in 0..depth {
                    units
                        .extend((0..count / unit).map(|u| (u * unit, k, descriptor.address(major, u * unit, k, size))));
                }
            }
        }
        units
    }

    /// The addresses of all units that it reads from shared memory, ascending.
    pub(crate) fn addresses(&self) -> Vec<u32> {
        let (_, a, b) = self.atom.kind().elems();
        let mut all = self.units(self.b, self.atom.n(), b.bits() / 8);
        if let Left::Shared(operand) = self.a {
            all.extend(self.units(operand, 64, a.bits() / 8));
        }
        let mut addresses: Vec<u32> = all.into_iter().map(|(_, _, address)| address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn descriptor(start: u64, leading: u64, stride: u64, swizzle: u64) -> Descriptor {
        Descriptor::decode((start / 16) | ((leading / 16) << 16) | ((stride / 16) << 32) | (swizzle << 62))
    }

    #[test]
    fn fields_are_where_the_hardware_has_them() {
        let found = Descriptor::decode(0x40 | 1 << 16 | 64 << 32 | 5 << 49 | 1 << 62);
        assert_eq!(found, Descriptor { start: 1024, leading: 16, stride: 1024, base: 5, span: 128 });
    }

    #[test]
    fn a_row_of_128_bytes_is_swizzled_by_its_number() {
        let d = descriptor(2048, 16, 1024, 1);
        // Row 3, the second 16 bytes: unit 1 ^ 3 of the row.
        assert_eq!(d.address(Major::K, 3, 8, 2), 2048 + 3 * 128 + 2 * 16);
        assert_eq!(d.address(Major::K, 8, 0, 2), 2048 + 1024);
        // The next 32 bytes of K begin 32 bytes further in the same swizzled rows.
        let next = descriptor(2048 + 32, 16, 1024, 1);
        assert_eq!(next.address(Major::K, 3, 0, 2), d.address(Major::K, 3, 16, 2));
    }

    #[test]
    fn a_tile_is_covered_once() {
        for (swizzle, span) in [(0u64, 16u64), (1, 128), (2, 64), (3, 32)] {
            let k_major =
                if span == 16 { descriptor(4096, 128, 256, 0) } else { descriptor(4096, 16, 8 * span, swizzle) };
            let cells: HashSet<u32> =
                (0..64).flat_map(|i| (0..16).map(move |k| k_major.address(Major::K, i, k, 2))).collect();
            assert_eq!(cells.len(), 1024, "K-major, rows of {span}");
            let rows = span / 2;
            let mn_major = if span == 16 {
                descriptor(4096, 1024, 128, 0)
            } else {
                descriptor(4096, 16 * span, 8 * span, swizzle)
            };
            let cells: HashSet<u32> =
                (0..64).flat_map(|i| (0..16).map(move |k| mn_major.address(Major::Mn, i, k, 2))).collect();
            assert_eq!(cells.len(), 1024, "MN-major, rows of {rows} elements");
        }
    }
}
