//! A `wgmma` and its matrix descriptors.
//!
//! ```text
//! bits 63 62 | 51 … 49 | 45 … 32 | 29 … 16 | 13 … 0
//!   swizzle    base      stride    leading   start      (offsets and start / 16)
//! ```

use super::fragment::{accumulator_bits, multiply, place_a, place_d, worth};
use super::matrix::spread;
use crate::ir::attr::{Major, Sign};
use crate::ir::{Space, WgmmaAtom};
use crate::sim::machine::{Home, Machine, Try};
use crate::sim::number::LANES;
use crate::sim::program::SHARED_BASE;

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
    /// A core matrix is 8 rows of 16 bytes. K-major without swizzle, core matrices are `leading` apart along K and
    /// `stride` apart along M or N; with it, 8 rows of `span` bytes follow each other and `stride` leads to the next 8.
    /// MN-major, rows run along M or N: without swizzle `stride` leads to the next 8 of them and `leading` to the next 8
    /// of K; with it, `leading` leads to the next `span` bytes and `stride` to the next 8 of K.
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

    fn swizzle(&self, address: u32) -> u32 {
        let phase = (address >> 7).wrapping_sub(self.base) & (self.span / 16 - 1);
        address ^ phase << 4
    }
}

/// Where the A operand is.
#[derive(Debug)]
pub(crate) enum Left {
    Shared(Descriptor, Major),
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
    pub b: (Descriptor, Major),
    pub keep: bool,
    pub signs: (Sign, Sign),
}

impl Multiply {
    /// The addresses of the 16-byte units of an operand of `count` rows.
    pub(crate) fn units(&self, (matrix, major): (Descriptor, Major), count: u32, size: u32) -> Vec<u32> {
        let (k, unit) = (self.atom.kind().k(), 16 / size);
        let mut units = Vec::new();
        match major {
            Major::K => {
                for i in 0..count {
                    units.extend((0..k).step_by(unit as usize).map(|k| matrix.address(major, i, k, size)));
                }
            }
            Major::Mn => {
                for k in 0..k {
                    units.extend((0..count).step_by(unit as usize).map(|i| matrix.address(major, i, k, size)));
                }
            }
        }
        units
    }
}

impl Machine<'_> {
    /// The values of an operand in shared memory, rows × k.
    fn operand_values(&self, work: &Multiply, operand: (Descriptor, Major), rows: u32, left: bool) -> Try<Vec<f64>> {
        let (_, a, b) = work.atom.kind().elems();
        let elem = if left { a } else { b };
        let size = elem.bits() / 8;
        let k = work.atom.kind().k();
        let home = Home::Shared(work.block);
        for unit in work.units(operand, rows, size) {
            self.locate(Space::Shared, work.block, unit.into(), 16)?;
            self.check_written(home, (unit - SHARED_BASE) as usize, 16)?;
        }
        let mut values = Vec::with_capacity((rows * k) as usize);
        let Some(region) = self.region(home) else { return Ok(vec![0.0; (rows * k) as usize]) };
        for i in 0..rows {
            for x in 0..k {
                let at = operand.0.address(operand.1, i, x, size) - SHARED_BASE;
                values.push(worth(elem, region.load(at as usize, size as usize)));
            }
        }
        Ok(values)
    }

    /// The results go to the registers of the warpgroup.
    pub(crate) fn land_multiply(&mut self, work: &Multiply) -> Try<()> {
        let (elem_d, elem_a, _) = work.atom.kind().elems();
        let (k, n) = (work.atom.kind().k() as usize, work.atom.n() as usize);
        let mut a = match &work.a {
            Left::Shared(descriptor, major) => self.operand_values(work, (*descriptor, *major), 64, true)?,
            Left::Registers(warps) => {
                let mut a = vec![0.0; 64 * k];
                for (warp, registers) in warps.iter().enumerate() {
                    for (register, row) in (0..).zip(registers) {
                        spread(elem_a.bits(), row, |lane, j, bits| {
                            let (i, x) = place_a(elem_a, lane, register, j);
                            a[(warp * 16 + i as usize) * k + x as usize] = worth(elem_a, bits);
                        });
                    }
                }
                a
            }
        };
        let mut b = self.operand_values(work, work.b, work.atom.n(), false)?;
        negate(&mut a, work.signs.0);
        negate(&mut b, work.signs.1);
        let per = 32 / elem_d.bits();
        let registers = work.atom.acc_registers();
        for warp in 0..4 {
            let mut d = vec![0.0; 16 * n];
            let regs = &mut self.warps[work.warp + warp].regs;
            if work.keep {
                for register in 0..registers {
                    spread(elem_d.bits(), &regs[work.row + register as usize], |lane, j, bits| {
                        let (i, x) = place_d(lane, register * per + j);
                        d[i as usize * n + x as usize] = worth(elem_d, bits);
                    });
                }
            }
            multiply(&a[warp * 16 * k..(warp + 1) * 16 * k], &b, &mut d, k, n);
            for register in 0..registers {
                regs[work.row + register as usize] = core::array::from_fn(|lane| {
                    (0..per).fold(0, |word, j| {
                        let (i, x) = place_d(lane as u32, register * per + j);
                        word | accumulator_bits(elem_d, d[i as usize * n + x as usize]) << (j * elem_d.bits())
                    })
                });
            }
        }
        Ok(())
    }
}

fn negate(values: &mut [f64], sign: Sign) {
    if sign == Sign::Minus {
        for value in values {
            *value = -*value;
        }
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
