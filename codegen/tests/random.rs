//! Random instructions drawn from the rows: whatever they are, the verifier answers; what it
//! accepts, assembles.

use proptest::prelude::*;
use tilewright_codegen::assemble::Ptxas;
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{
    Addr, Arch, ChoiceSource, Const, Flag, Inst, Kernel, Operand, Regs, Space, Stmt, StmtId, StmtKind, Ty, ValueId,
    Var, VarId, rows,
};
use tilewright_codegen::ptx;
use tilewright_codegen::verify::verify;

/// Draws from a list of numbers, and keeps the kernel that it draws for.
struct Draw {
    kernel: Kernel,
    numbers: Vec<u32>,
    next: usize,
}

impl Draw {
    fn new(arch: Arch, numbers: Vec<u32>) -> Draw {
        let kernel = record("drawn", arch, block(128).min_blocks(1), |k| {
            let _ =
                (k.global::<u32>("x"), k.shared::<u32>("s", 256), k.mbarriers("bar", 1), k.tid(), k.param::<f32>("a"));
        });
        Draw { kernel, numbers, next: 0 }
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.numbers[(self.next - 1) % self.numbers.len()].rotate_left((self.next / self.numbers.len()) as u32)
    }

    /// The kernel with one more statement.
    fn with(&self, inst: Inst) -> Kernel {
        let mut kernel = self.kernel.clone();
        let id = StmtId(1000 + kernel.body.len() as u32);
        kernel.body.push(Stmt { id, src: std::panic::Location::caller(), op: StmtKind::Inst(inst) });
        kernel
    }
}

impl ChoiceSource for Draw {
    fn below(&mut self, count: usize) -> usize {
        self.number() as usize % count
    }

    fn def(&mut self, ty: Ty) -> ValueId {
        self.kernel.values.push(ty);
        ValueId(self.kernel.values.len() as u32 - 1)
    }

    fn operand(&mut self, ty: Ty) -> Operand {
        let mut known = Vec::new();
        self.kernel.walk(&mut |stmt| {
            if let StmtKind::Inst(inst) = &stmt.op {
                known.extend(inst.defs());
            }
        });
        known.retain(|value| self.kernel.values[value.index()] == ty);
        if known.is_empty() || self.below(4) == 0 {
            let bits = u64::from(self.number()) << 7 | u64::from(self.number());
            return Const::new(ty, bits).into();
        }
        known[self.below(known.len())].into()
    }

    fn addr(&mut self, spaces: &[Space]) -> Addr {
        let space = spaces[self.below(spaces.len())];
        let offset = 16 * self.below(4) as i32;
        Addr { base: self.operand(Ty::Ptr(space)), offset }
    }

    fn regs(&mut self, ty: Ty, len: u32) -> Regs {
        self.kernel.vars.push(Var { name: String::new(), ty, len });
        Regs { var: VarId(self.kernel.vars.len() as u32 - 1), start: 0, len }
    }
}

fn archs() -> impl Strategy<Value = Arch> {
    proptest::sample::select(Arch::ALL.to_vec())
}

proptest! {
    #[test]
    fn the_verifier_answers_to_anything(arch in archs(), numbers in prop::collection::vec(any::<u32>(), 8..64)) {
        let mut draw = Draw::new(arch, numbers);
        let all: Vec<_> = rows().collect();
        for _ in 0..24 {
            let row = all[draw.below(all.len())];
            let inst = Inst::draw(row, &mut draw).expect("a row of the table");
            let kernel = draw.with(inst);
            match verify(kernel.clone()) {
                Ok(verified) => {
                    prop_assert!(ptx::emit(&verified).contains("ret;"));
                    draw.kernel = kernel;
                }
                Err(errors) => prop_assert!(errors.to_string().contains("^ error: ")),
            }
        }
    }
}

/// Straight-line programs of pure instructions, their results stored so that nothing falls away.
#[test]
fn what_the_verifier_accepts_assembles() {
    let Some(ptxas) = Ptxas::find().unwrap() else { return };
    let pure: Vec<_> = rows().filter(|row| row.is(Flag::Pure) && row.family != "value").collect();
    for arch in Arch::ALL {
        let mut accepted = 0;
        for seed in 0..16u32 {
            let numbers =
                (0..997u32).map(|i| (i + seed * 7919).wrapping_mul(2_654_435_761).rotate_left(i % 31)).collect();
            let mut draw = Draw::new(arch, numbers);
            for i in 0..150 {
                let row = pure[(draw.below(pure.len()) + i) % pure.len()];
                let inst = Inst::draw(row, &mut draw).expect("a row of the table");
                let kernel = draw.with(inst);
                if verify(kernel.clone()).is_ok() {
                    draw.kernel = kernel;
                    accepted += 1;
                }
            }
            let verified = verify(draw.kernel).expect("every prefix was accepted");
            let said = ptxas.assemble(arch, &ptx::emit(&verified)).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(said.entries.len(), 1);
        }
        assert!(accepted > 400, "{arch}: only {accepted} instructions were legal: the draw is too wild");
    }
}
