//! Matrices of one warp: `ldmatrix`, `stmatrix`, `mma.sync`; the rows of the family `mma`, by
//! mechanism.

use super::fragment::{multiply, place_a, place_b, read_accumulator, spread, write_accumulator};
use crate::ir::attr::Trans;
use crate::ir::{Addr, MmaAtom, MmaOp, Operand, Regs, Space, ValueId};
use crate::sim::machine::{Cur, Next, Simulation, Try};

/// Bytes of a row of an 8×8 matrix.
const ROW: u32 = 16;

impl Simulation<'_> {
    pub(crate) fn mma_op(&mut self, cur: Cur, op: &MmaOp) -> Try<Next> {
        if let Some(next) = self.gather_warp(cur)? {
            return Ok(next);
        }
        match op {
            MmaOp::LdMatrix { d, at, trans, .. } => self.ldmatrix(cur, d, *at, *trans),
            MmaOp::StMatrix { at, v, trans, .. } => self.stmatrix(cur, *at, v, *trans),
            MmaOp::MmaSync { acc, a, b, atom } => self.mma_sync(cur, *acc, a, b, *atom),
            MmaOp::WgmmaFence {} => {
                self.warps[cur.warp].touched.fill(false);
                Ok(Next::Go)
            }
            MmaOp::WgmmaCommit {} => {
                self.warps[cur.warp].wgmma.close();
                Ok(Next::Go)
            }
            MmaOp::WgmmaWait { pending } => self.wait_wgmma(cur, pending.0),
            MmaOp::WgmmaSs { .. } | MmaOp::WgmmaRs { .. } => self.wgmma(cur, op),
        }
    }

    /// Visits the rows of each matrix: the matrix, its row, the lane that gives the address, the
    /// place in memory.
    fn matrix_rows(&mut self, cur: Cur, at: Addr, count: usize, write: bool) -> Try<Vec<[usize; 8]>> {
        let (space, addresses) = self.lane_addresses(cur.warp, at);
        let givers = Cur { mask: if count == 4 { u32::MAX } else { (1 << (8 * count)) - 1 }, ..cur };
        self.count_access(givers, space, &addresses, ROW);
        let mut rows = vec![[0; 8]; count];
        for (lane, &address) in addresses.iter().enumerate().take(8 * count) {
            let at = self.reach(cur, lane, space, address, ROW)?;
            self.touch(cur, lane, at, ROW, write, None)?;
            if !write {
                self.check_written(at, ROW as usize).map_err(|mut trouble| {
                    trouble.lane = Some(lane as u32);
                    trouble
                })?;
            }
            rows[lane / 8][lane % 8] = at.offset;
        }
        Ok(rows)
    }

    fn own_shared(&self, cur: Cur, at: Addr) -> crate::sim::machine::Home {
        debug_assert_eq!(self.program.type_of(at.base), crate::ir::Ty::Ptr(Space::Shared));
        crate::sim::machine::Home::Shared(self.warps[cur.warp].block)
    }

    fn ldmatrix(&mut self, cur: Cur, d: &[ValueId], at: Addr, trans: Trans) -> Try<Next> {
        let rows = self.matrix_rows(cur, at, d.len(), false)?;
        let home = self.own_shared(cur, at);
        for (matrix, &value) in rows.iter().zip(d) {
            let Some(region) = self.region(home) else { continue };
            let out = core::array::from_fn(|lane| {
                let row = lane / 4;
                let column = 2 * (lane % 4);
                match trans {
                    Trans::No => region.load(matrix[row] + 2 * column, 4),
                    Trans::Yes => {
                        let element = |row: usize| region.load(matrix[row] + 2 * (lane / 4), 2);
                        element(column) | element(column + 1) << 16
                    }
                }
            });
            self.set(cur, value, &out);
        }
        Ok(Next::Go)
    }

    fn stmatrix(&mut self, cur: Cur, at: Addr, v: &[Operand], trans: Trans) -> Try<Next> {
        let rows = self.matrix_rows(cur, at, v.len(), true)?;
        let home = self.own_shared(cur, at);
        for (matrix, &operand) in rows.iter().zip(v) {
            let value = self.value(cur.warp, operand);
            for (lane, word) in value.iter().enumerate() {
                for half in 0..2 {
                    let row = lane / 4;
                    let column = 2 * (lane % 4) + half;
                    let (row, column) = if trans == Trans::Yes { (column, row) } else { (row, column) };
                    if let Some(region) = self.region_mut(home) {
                        region.store(matrix[row] + 2 * column, 2, word >> (16 * half) & 0xffff);
                    }
                }
            }
            for &offset in matrix {
                if let Some(region) = self.region_mut(home) {
                    region.written.set(offset, ROW as usize);
                }
            }
        }
        self.changed();
        Ok(Next::Go)
    }

    /// The numbers of the registers of a run.
    pub(super) fn run_vars(&self, regs: Regs) -> core::ops::Range<u32> {
        let first = self.program.var_rows[regs.var.index()] - self.program.first_var + regs.start;
        first..first + regs.len
    }

    fn mma_sync(&mut self, cur: Cur, acc: Regs, a: &[Operand], b: &[Operand], atom: MmaAtom) -> Try<Next> {
        let vars = self.run_vars(acc);
        for var in vars.clone() {
            self.check_arrived(cur, var)?;
            self.check_set(cur, var)?;
        }
        let (_, n, k) = atom.shape();
        let (elem_d, elem_a, elem_b) = atom.elems();
        let n = n as usize;
        let k = k as usize;
        let mut tile_a = [0f64; 16 * 32];
        let mut tile_b = [0f64; 8 * 32];
        let mut tile_d = [0f64; 16 * 8];
        for (register, &operand) in (0..).zip(a) {
            let row = self.value(cur.warp, operand);
            spread(elem_a, &row, |lane, j, value| {
                let (i, x) = place_a(elem_a, lane, register, j);
                tile_a[i as usize * k + x as usize] = value;
            });
        }
        for (register, &operand) in (0..).zip(b) {
            let row = self.value(cur.warp, operand);
            spread(elem_b, &row, |lane, j, value| {
                let (x, i) = place_b(elem_b, lane, register, j);
                tile_b[x as usize * n + i as usize] = value;
            });
        }
        let rows = (self.program.first_var + vars.start) as usize..(self.program.first_var + vars.end) as usize;
        let registers = &mut self.warps[cur.warp].regs[rows];
        read_accumulator(elem_d, registers, &mut tile_d, n);
        multiply(&tile_a[..16 * k], &tile_b[..n * k], &mut tile_d[..16 * n], k, n);
        write_accumulator(elem_d, &tile_d, n, registers);
        for var in vars {
            self.mark_set(cur, var);
        }
        Ok(Next::Go)
    }
}
