//! A `wgmma` when it completes: the product of its operands.

use super::fragment::{multiply, place_a, read_accumulator, spread, worth_unit, write_accumulator};
use super::wgmma::Left;
use crate::ir::Elem;
use crate::ir::attr::{Major, Sign};
use crate::sim::machine::{Address, Home, Simulation, Try};
use crate::sim::program::SHARED_BASE;
use crate::sim::step::Multiply;
use crate::sim::step::wgmma::SharedOperand;

impl Simulation<'_> {
    /// The values of an operand in shared memory, each at the place that its row and its k have.
    fn operand_values(
        &self,
        work: &Multiply,
        operand: SharedOperand,
        elem: Elem,
        count: u32,
        place: impl Fn(u32, u32) -> usize,
    ) -> Try<Vec<f64>> {
        let mut values = vec![0.0; (count * work.atom.kind().k()) as usize];
        let Some(region) = self.region(Home::Shared(work.block)) else { return Ok(values) };
        for (i, k, address) in work.units(operand, count, elem.bits() / 8) {
            // The units were found inside of allocations at the issue.
            let at = Address { home: Home::Shared(work.block), offset: (address - SHARED_BASE) as usize };
            self.check_written(at, 16)?;
            let unit: &[u8; 16] = &region.data[at.offset..].as_chunks().0[0];
            for (j, value) in (0..128 / elem.bits()).zip(worth_unit(elem, unit)) {
                let at = if operand.major == Major::K { place(i, k + j) } else { place(i + j, k) };
                values[at] = value;
            }
        }
        Ok(values)
    }

    /// The results go to the registers of the warpgroup.
    pub(crate) fn land_multiply(&mut self, work: &Multiply) -> Try<()> {
        let (elem_d, elem_a, elem_b) = work.atom.kind().elems();
        let k = work.atom.kind().k() as usize;
        let n = work.atom.n() as usize;
        let row_of_a = |i: u32, x: u32| i as usize * k + x as usize;
        let mut a = match &work.a {
            Left::Shared(operand) => self.operand_values(work, *operand, elem_a, 64, row_of_a)?,
            Left::Registers(warps) => {
                let mut a = vec![0.0; 64 * k];
                for (warp, registers) in (0..).zip(warps) {
                    for (register, row) in (0..).zip(registers) {
                        spread(elem_a, row, |lane, j, value| {
                            let (i, x) = place_a(elem_a, lane, register, j);
                            a[row_of_a(warp * 16 + i, x)] = value;
                        });
                    }
                }
                a
            }
        };
        let mut b = self.operand_values(work, work.b, elem_b, work.atom.n(), |i, x| x as usize * n + i as usize)?;
        negate(&mut a, work.signs.0);
        negate(&mut b, work.signs.1);
        let rows = work.row..work.row + work.atom.acc_registers() as usize;
        let mut d = vec![0.0; 16 * n];
        for (warp, a) in a.chunks_exact(16 * k).enumerate() {
            let registers = &mut self.warps[work.warp + warp].regs[rows.clone()];
            if work.keep {
                read_accumulator(elem_d, registers, &mut d, n);
            } else {
                d.fill(0.0);
            }
            multiply(a, &b, &mut d, k, n);
            write_accumulator(elem_d, &d, n, registers);
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
