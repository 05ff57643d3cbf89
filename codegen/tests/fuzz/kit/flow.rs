//! Programs: what comes after what, branches and loops.

use super::program::{Gen, Together, word};
use super::rng::Rng;
use tilewright_codegen::ir::attr::Cmp;
use tilewright_codegen::ir::{
    ArithOp, BitsOp, Block, Const, InstRow, Operand, Regs, StmtKind, Ty, ValueOp, Var, VarId, rows,
};

/// Families whose rows are drawn whatever they are.
const DRAWN: [&str; 4] = ["arith", "bits", "convert", "warp"];
/// Rows of other families that are drawn as these are.
const DRAWN_TOO: [&str; 4] = ["special", "ptr_add", "ptr_bits", "ptr_from"];
/// Rows of those families whose result is the machine's own business.
const UNDEFINED: [&str; 1] = ["activemask"];

/// The rows that programs draw computations from: today all of these families, and of a corpus
/// those that it names.
pub fn drawn_rows() -> Vec<&'static InstRow> {
    rows()
        .filter(|row| DRAWN.contains(&row.family) || DRAWN_TOO.contains(&row.mnemonic))
        .filter(|row| !UNDEFINED.contains(&row.mnemonic))
        .collect()
}

/// Rows with many types come more often.
fn weight(row: &InstRow) -> usize {
    match (row.mnemonic, row.args.len()) {
        ("cvt", _) => 8,
        ("add" | "sub" | "mul" | "fma" | "setp" | "min" | "max", _) => 3,
        (_, 2) => 3,
        _ => 1,
    }
}

impl Gen<'_> {
    /// The program of a seed, as the statements of a block.
    pub fn program(&mut self, seed: u64) -> Block {
        self.start(seed);
        let body = self.inside(|g| {
            for _ in 0..5 + g.rng.below(4) {
                let ty = g.rng.pick(&Ty::ALL[3..15]);
                let offset = g.input_row(ty);
                let most = 16 / ty.bytes();
                let count = 1 << g.rng.below(most.min(4).ilog2() as usize + 1);
                g.load_input(ty, offset, count);
            }
            let count = g.rng.pick(&[1, 4, 12, 24, 40]);
            g.steps(count);
        });
        body.0
    }

    /// A program of one row alone, on values of its types.
    pub fn single(&mut self, seed: u64, row: &'static InstRow) -> Block {
        self.start(seed);
        (self.watch, self.operands_too) = (100, true);
        let body = self.inside(|g| {
            for ty in &Ty::ALL[1..15] {
                if ty.bytes() > 1 {
                    let offset = g.input_row(*ty);
                    g.load_input(*ty, offset, 2.min(16 / ty.bytes() as usize));
                }
            }
            for _ in 0..12 {
                g.compute(row);
            }
        });
        body.0
    }

    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            let whole = self.together == Together::Block;
            match self.rng.below(100) {
                0..=69 => {
                    let weights: Vec<usize> = self.rows.iter().map(|row| weight(row)).collect();
                    let mut at = self.rng.below(weights.iter().sum());
                    let mut index = 0;
                    while at >= weights[index] {
                        at -= weights[index];
                        index += 1;
                    }
                    let row = self.rows[index];
                    self.compute(row);
                }
                70..=77 => self.own_memory(),
                78..=83 if whole => self.exchange(),
                84..=85 if whole => self.total(),
                86 if whole => self.hand_over(),
                87 if whole => self.bulk_copy(),
                88..=89 => self.copy(),
                90..=91 => self.hint(),
                92..=95 if self.depth < 2 => self.branch(),
                96..=99 if self.depth < 2 => self.repeat(),
                _ => {}
            }
        }
    }

    /// New registers with first values.
    fn registers(&mut self) -> Vec<(Regs, Ty)> {
        let types = [Ty::U32, Ty::S32, Ty::U64, Ty::F32, Ty::F16x2, Ty::BF16, Ty::F64, Ty::U16, Ty::Pred, Ty::U8];
        let mut all = Vec::new();
        for _ in 0..1 + self.rng.below(2) {
            let ty = self.rng.pick(&types);
            self.kernel.vars.push(Var { name: String::new(), ty, len: 1 });
            let r = Regs { var: VarId(self.kernel.vars.len() as u32 - 1), start: 0, len: 1 };
            let a = self.operand(ty);
            self.emit(ValueOp::Set { ty, r, a });
            all.push((r, ty));
        }
        all
    }

    fn read(&mut self, r: Regs, ty: Ty) {
        let d = self.def(ty);
        self.emit(ValueOp::Get { ty, d, r });
        self.settle(d, ty, false, &format!("get.{ty}"));
    }

    /// Reads registers, computes, writes them.
    fn body(&mut self, registers: &[(Regs, Ty)], place: Together, count: usize) -> Block {
        let together = self.together;
        let depth = self.depth;
        (self.together, self.depth) = (place, depth + 1);
        let body = self.inside(|g| {
            for &(r, ty) in registers {
                g.read(r, ty);
            }
            g.steps(count);
            for &(r, ty) in registers {
                let a = g.operand(ty);
                g.emit(ValueOp::Set { ty, r, a });
            }
        });
        (self.together, self.depth) = (together, depth);
        body.0
    }

    /// Lanes part by a predicate. Nothing for a warp stands there: the driver's compiler keeps
    /// masks of lanes in registers that the whole warp shares, and was seen to overwrite them on
    /// the other side.
    fn branch(&mut self) {
        let registers = self.registers();
        let cond = self.operand(Ty::Pred);
        let some = 1 + self.rng.below(4);
        let more = self.rng.below(4);
        let then = self.body(&registers, Together::Unknown, some);
        let otherwise = if more > 0 { self.body(&registers, Together::Unknown, more) } else { Block::new() };
        self.push(StmtKind::If { cond, then, otherwise });
        for (r, ty) in registers {
            self.read(r, ty);
        }
    }

    /// A loop: counted the same for all, counted by each, or left by each.
    fn repeat(&mut self) {
        let was = self.in_loop;
        let registers = self.registers();
        let count = 1 + self.rng.below(4);
        match self.rng.below(3) {
            0 => self.counted(&registers, count, true),
            1 => self.counted(&registers, count, false),
            _ => self.left(&registers, count),
        }
        self.in_loop = was;
        for (r, ty) in registers {
            self.read(r, ty);
        }
    }

    fn counted(&mut self, registers: &[(Regs, Ty)], count: usize, same: bool) {
        let ty = self.rng.pick(&[Ty::U32, Ty::S32, Ty::U64, Ty::S64]);
        let constant = |value: i64| Operand::Const(Const::new(ty, value as u64));
        let first = self.rng.below(5) as i64;
        let step = 1 + self.rng.below(3) as i64;
        let (place, end) = if same {
            (self.together, constant(first + self.rng.below(9) as i64))
        } else {
            let a = self.operand(ty);
            let b = constant(7);
            (Together::Unknown, self.made(ty, |d| BitsOp::And { ty, d, a, b }))
        };
        let var = self.def(ty);
        self.in_loop = true;
        let mark = self.inside_counter(var, ty, registers, place, count);
        self.push(StmtKind::For { var, start: constant(first), end, step: constant(step), body: mark });
    }

    fn inside_counter(
        &mut self,
        var: tilewright_codegen::ir::ValueId,
        ty: Ty,
        registers: &[(Regs, Ty)],
        place: Together,
        count: usize,
    ) -> Block {
        let together = self.together;
        let depth = self.depth;
        (self.together, self.depth) = (place, depth + 1);
        let body = self.inside(|g| {
            g.keep(var, ty);
            let inner = g.body(registers, place, count);
            for stmt in inner {
                g.push(stmt.op);
            }
        });
        (self.together, self.depth) = (together, depth);
        body.0
    }

    fn left(&mut self, registers: &[(Regs, Ty)], count: usize) {
        let value = self.operand(Ty::U32);
        let three = word(3);
        let limit = self.made(Ty::U32, |d| BitsOp::And { ty: Ty::U32, d, a: value, b: three });
        self.kernel.vars.push(Var { name: String::new(), ty: Ty::U32, len: 1 });
        let r = Regs { var: VarId(self.kernel.vars.len() as u32 - 1), start: 0, len: 1 };
        self.emit(ValueOp::Set { ty: Ty::U32, r, a: word(0) });
        self.in_loop = true;
        let together = self.together;
        self.together = Together::Unknown;
        let body = self.inside(|g| {
            let now = g.made(Ty::U32, |d| ValueOp::Get { ty: Ty::U32, d, r });
            let over = g.made(Ty::Pred, |d| ArithOp::Setp { ty: Ty::U32, d, a: now, b: limit, cmp: Cmp::Ge });
            g.inside(|g| g.push(StmtKind::Break)).when(g, over);
            let next = g.made(Ty::U32, |d| ArithOp::Add { ty: Ty::U32, d, a: now, b: word(1) });
            g.emit(ValueOp::Set { ty: Ty::U32, r, a: next });
            let inner = g.body(registers, Together::Unknown, count);
            for stmt in inner {
                g.push(stmt.op);
            }
        });
        self.together = together;
        self.push(StmtKind::Loop { body: body.0 });
    }
}

/// A seed for the program with this number, of a run.
pub fn seed_of(run: u64, number: u64) -> u64 {
    Rng::new(run).next() ^ Rng::new(number.wrapping_mul(0x2545_f491_4f6c_dd1d)).next()
}
