//! Legal instructions: drawn from a row until the verifier accepts one, then drawn again with the
//! same choices for the program itself.

use super::compute::tame;
use super::program::{Gen, Site};
use super::rng::Rng;
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::attr::Cmp;
use tilewright_codegen::ir::{
    Addr, Arch, ArithOp, ChoiceSource, Const, Flag, Inst, InstRow, Kernel, Operand, Param, ParamId, ParamKind, Regs,
    Space, Stmt, StmtId, StmtKind, Ty, ValueId, ValueOp, Var, VarId,
};
use tilewright_codegen::verify::verify;

/// The operations that fit a drawn instruction into its surroundings.
pub trait Hands {
    /// An operand that is not zero, made of this one.
    fn nonzero(&mut self, ty: Ty, operand: Operand) -> Operand;
    /// An integer that has a negative, made of this one.
    fn negatable(&mut self, ty: Ty, operand: Operand) -> Operand;
    /// The lanes that are here together; nothing where that is not known.
    fn mask(&self) -> Option<Operand>;
    /// An operand that no compiler knows, made of this one.
    fn unknown(&mut self, operand: Operand) -> Operand;
    /// A shift or position, mostly in the range where it does something.
    fn position(&mut self, operand: Operand) -> Operand;
    /// Position and length of a field in a register of `bits` bits.
    fn field(&mut self, width: u32) -> (Operand, Operand);
    /// A number of choices that go with the instruction.
    fn choice(&mut self, count: usize) -> usize;
    /// An access policy.
    fn policy(&self) -> Operand;
    /// A fresh value.
    fn value(&mut self, ty: Ty) -> ValueId;
    /// An operand of the type.
    fn any(&mut self, ty: Ty) -> Operand;
    /// Whether the place may be read through the read-only path.
    fn read_only(&self) -> bool;
}

/// A kernel with one value of each type, in which one instruction stands.
struct Trial {
    kernel: Kernel,
    choices: Rng,
}

/// The statements that make the values of a [`Trial`].
fn template() -> Kernel {
    let mut kernel = record("trial", Arch::Sm90a, block(64), |_| {});
    let push = |kernel: &mut Kernel, ty: Ty, op: &dyn Fn(ValueId) -> Inst| {
        kernel.values.push(ty);
        let id = StmtId(kernel.values.len() as u32);
        let inst = op(ValueId(id.0 - 1));
        kernel.body.push(Stmt { id, src: std::panic::Location::caller(), op: StmtKind::Inst(inst) });
    };
    for ty in Ty::ALL {
        let param = ParamId(kernel.params.len() as u32);
        let kind = match ty {
            Ty::Pred | Ty::Ptr(Space::Shared | Space::Cluster) => ParamKind::Value(Ty::U32),
            Ty::Ptr(Space::Param) => ParamKind::Bytes { bytes: 64, align: 16 },
            _ => ParamKind::Value(ty),
        };
        kernel.params.push(Param {
            name: format!("{}_{}", ty.name(), kernel.params.len()),
            kind,
            elements: Vec::new(),
        });
        match ty {
            Ty::Pred => {
                let zero: Operand = Const::u32(0).into();
                push(&mut kernel, ty, &|d| ArithOp::Setp { ty: Ty::U32, d, a: zero, b: zero, cmp: Cmp::Eq }.into());
            }
            Ty::Ptr(Space::Param) => push(&mut kernel, ty, &|d| ValueOp::ParamPtr { d, param }.into()),
            Ty::Ptr(Space::Shared | Space::Cluster) => {
                let bits = sample(Ty::U32);
                push(&mut kernel, ty, &|d| ValueOp::PtrFrom { ty, from: Ty::U32, d, bits }.into());
            }
            _ => push(&mut kernel, ty, &|d| ValueOp::Param { ty, d, param }.into()),
        }
    }
    kernel
}

fn sample(ty: Ty) -> Operand {
    let index = Ty::ALL.iter().position(|&other| other == ty).unwrap_or(0);
    ValueId(index as u32).into()
}

impl ChoiceSource for Trial {
    fn below(&mut self, count: usize) -> usize {
        self.choices.below(count)
    }

    fn def(&mut self, ty: Ty) -> ValueId {
        self.kernel.values.push(ty);
        ValueId(self.kernel.values.len() as u32 - 1)
    }

    fn operand(&mut self, ty: Ty) -> Operand {
        sample(ty)
    }

    fn addr(&mut self, spaces: &[Space]) -> Addr {
        sample(Ty::Ptr(spaces[self.choices.below(spaces.len())])).into()
    }

    fn regs(&mut self, ty: Ty, len: u32) -> Regs {
        self.kernel.vars.push(Var { name: String::new(), ty, len });
        Regs { var: VarId(self.kernel.vars.len() as u32 - 1), start: 0, len }
    }
}

impl Hands for Trial {
    fn nonzero(&mut self, _ty: Ty, operand: Operand) -> Operand {
        operand
    }

    fn negatable(&mut self, _ty: Ty, operand: Operand) -> Operand {
        operand
    }

    fn unknown(&mut self, operand: Operand) -> Operand {
        operand
    }

    fn mask(&self) -> Option<Operand> {
        Some(Const::u32(u32::MAX).into())
    }

    fn position(&mut self, operand: Operand) -> Operand {
        operand
    }

    fn field(&mut self, _width: u32) -> (Operand, Operand) {
        (Const::u32(1).into(), Const::u32(2).into())
    }

    fn choice(&mut self, count: usize) -> usize {
        self.choices.below(count)
    }

    fn policy(&self) -> Operand {
        sample(Ty::U64)
    }

    fn value(&mut self, ty: Ty) -> ValueId {
        self.def(ty)
    }

    fn any(&mut self, ty: Ty) -> Operand {
        sample(ty)
    }

    fn read_only(&self) -> bool {
        true
    }
}

thread_local! {
    static TEMPLATE: Kernel = template();
}

/// Seeds of choices for which the row gives a legal instruction; nothing after many tries.
pub fn legal(row: &'static InstRow, rng: &mut Rng) -> Option<u64> {
    for _ in 0..400 {
        let seed = rng.next();
        let mut trial = Trial { kernel: TEMPLATE.with(Clone::clone), choices: Rng::new(seed) };
        let Some(mut inst) = Inst::draw(row, &mut trial) else { continue };
        if !tame(&mut inst, &mut trial) {
            continue;
        }
        let id = StmtId(1000);
        trial.kernel.body.push(Stmt { id, src: std::panic::Location::caller(), op: StmtKind::Inst(inst) });
        if verify(trial.kernel).is_ok() {
            return Some(seed);
        }
    }
    None
}

/// Draws the operands of an instruction from a program.
pub struct Drawing<'g, 'r> {
    pub program: &'g mut Gen<'r>,
    choices: Rng,
    /// The permitted targets of an address.
    site: Site,
    /// Values whose NaNs have any payload may stand here.
    loose: bool,
    failed: bool,
}

impl ChoiceSource for Drawing<'_, '_> {
    fn below(&mut self, count: usize) -> usize {
        self.choices.below(count)
    }

    fn def(&mut self, ty: Ty) -> ValueId {
        self.program.def(ty)
    }

    fn operand(&mut self, ty: Ty) -> Operand {
        if self.loose { self.program.loose_operand(ty) } else { self.program.operand(ty) }
    }

    fn addr(&mut self, spaces: &[Space]) -> Addr {
        let space = spaces[self.choices.below(spaces.len())];
        self.program.address(self.site, space).unwrap_or_else(|| {
            self.failed = true;
            Operand::Const(Const::new(Ty::Ptr(space), 0)).into()
        })
    }

    fn regs(&mut self, ty: Ty, len: u32) -> Regs {
        self.program.kernel.vars.push(Var { name: String::new(), ty, len });
        Regs { var: VarId(self.program.kernel.vars.len() as u32 - 1), start: 0, len }
    }
}

impl Hands for Drawing<'_, '_> {
    fn nonzero(&mut self, ty: Ty, operand: Operand) -> Operand {
        self.program.nonzero(ty, operand)
    }

    fn negatable(&mut self, ty: Ty, operand: Operand) -> Operand {
        self.program.negatable(ty, operand)
    }

    fn unknown(&mut self, operand: Operand) -> Operand {
        self.program.unknown(operand)
    }

    fn mask(&self) -> Option<Operand> {
        self.program.mask()
    }

    fn position(&mut self, operand: Operand) -> Operand {
        self.program.position(operand)
    }

    fn field(&mut self, width: u32) -> (Operand, Operand) {
        self.program.field(width)
    }

    fn choice(&mut self, count: usize) -> usize {
        self.choices.below(count)
    }

    fn policy(&self) -> Operand {
        self.program.base.policy
    }

    fn value(&mut self, ty: Ty) -> ValueId {
        self.program.def(ty)
    }

    fn any(&mut self, ty: Ty) -> Operand {
        self.program.operand(ty)
    }

    fn read_only(&self) -> bool {
        self.site == Site::Input
    }
}

/// A legal instruction of the row with operands of the program and addresses at the site, not yet
/// appended; nothing if the row cannot stand here.
pub fn draw(program: &mut Gen<'_>, row: &'static InstRow, site: Site) -> Option<Inst> {
    for _ in 0..8 {
        let seed = legal(row, &mut program.rng)?;
        let loose = super::compute::takes_any_nan(row);
        let mut drawing = Drawing { program, choices: Rng::new(seed), site, loose, failed: false };
        let mut inst = Inst::draw(row, &mut drawing)?;
        let fits = tame(&mut inst, &mut drawing);
        // What is known while recording is the recorder's to fold.
        let known =
            inst.is(Flag::Pure) && !inst.uses().is_empty() && inst.uses().iter().all(|o| o.as_const().is_some());
        if fits && !drawing.failed && !known {
            return Some(inst);
        }
    }
    None
}
