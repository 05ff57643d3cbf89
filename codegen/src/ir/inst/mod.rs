//! Instructions: one row declares one.
//!
//! A row of a family says everything that can be said of an instruction by itself, and the rest is
//! derived from it:
//!
//! ```text
//! /// What it does, exactly. The simulator implements these words.
//! Name "mnemonic" <ty: Class> (operand: Role Rule, ..) { attribute: Type, .. } Needs Flag ..;
//! ```
//!
//! | part | meaning |
//! |---|---|
//! | `<ty: Class>` | type arguments: fields of the variant that hold a [`Ty`], from the [`TyClass`] |
//! | `Role` | what happens to the operand: see [`Role`]; it fixes the field's type |
//! | `Rule` | the operand's type or address space: see [`Rule`] |
//! | attributes | fixed choices: enums of [`attr`](super::attr) |
//! | `Needs` | what the instruction needs of an architecture; types and atoms may need more, which `verify` knows |
//! | flags | see [`Flag`] |
//!
//! From the rows come the variant itself, its text form, the operand visitor with roles, type and
//! space checks, the architecture check, the accesses that a race detector watches, the generator
//! of random instructions and the list in `docs/ir.md`.

use super::attr::Attr;
use super::{Needs, Operand, Regs, Space, Ty, TyClass, ValueId};
use row::{InstField, pick};

#[macro_use]
mod row;
mod access;
mod arith;
mod bits;
mod control;
mod convert;
mod copy;
mod mem;
mod mma;
mod sync;
mod value;
mod warp;

pub use access::Access;
pub use arith::ArithOp;
pub use bits::BitsOp;
pub use control::ControlOp;
pub use convert::ConvertOp;
pub use copy::CopyOp;
pub use mem::MemOp;
pub use mma::MmaOp;
pub use row::{ChoiceSource, Flag, InstRow, OperandSlot, OperandSpec, Role, Rule};
pub use sync::SyncOp;
pub use value::ValueOp;
pub use warp::WarpOp;

macro_rules! families {
    ($($Family:ident($FamilyOp:ident)),+) => {
        /// An instruction, by family.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Inst {
            $(#[doc = concat!("A row of [`", stringify!($FamilyOp), "`].")] $Family($FamilyOp),)+
        }

        impl Inst {
            /// The row that declares the instruction.
            pub fn row(&self) -> &'static InstRow {
                match self { $(Inst::$Family(inst) => inst.row(),)+ }
            }

            /// The type arguments.
            pub fn args(&self) -> Vec<Ty> {
                match self { $(Inst::$Family(inst) => inst.args(),)+ }
            }

            /// Calls `see` for each operand with its specification, in the order of the row.
            pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&'static OperandSpec, OperandSlot<'a>)) {
                match self { $(Inst::$Family(inst) => inst.visit(see),)+ }
            }

            /// The attributes' suffixes, those of defaults left out.
            pub fn suffixes(&self) -> Vec<String> {
                match self { $(Inst::$Family(inst) => inst.suffixes(),)+ }
            }

            /// An instruction of the row, every field drawn from the source; `None` for a row of
            /// another table.
            pub fn draw(row: &InstRow, source: &mut dyn ChoiceSource) -> Option<Inst> {
                $(if let Some(position) = $FamilyOp::ROWS.iter().position(|r| r == row) {
                    return $FamilyOp::draw(position, source).map(Inst::$Family);
                })+
                None
            }
        }

        $(impl From<$FamilyOp> for Inst {
            fn from(inst: $FamilyOp) -> Inst {
                Inst::$Family(inst)
            }
        })+

        /// Every row of every family.
        ///
        /// ```
        /// use tilewright_codegen::ir::rows;
        /// assert!(rows().any(|row| row.mnemonic == "cp.async.bulk.g2s"));
        /// ```
        pub fn rows() -> impl Iterator<Item = &'static InstRow> {
            [$($FamilyOp::ROWS),+].into_iter().flatten()
        }
    };
}

families!(
    Arith(ArithOp),
    Bits(BitsOp),
    Convert(ConvertOp),
    Value(ValueOp),
    Mem(MemOp),
    Warp(WarpOp),
    Sync(SyncOp),
    Copy(CopyOp),
    Mma(MmaOp),
    Control(ControlOp)
);

impl Inst {
    /// The values that the instruction writes, in order.
    pub fn defs(&self) -> Vec<ValueId> {
        let mut defs = Vec::new();
        self.visit(&mut |_, slot| match slot {
            OperandSlot::Def(value) => defs.push(value),
            OperandSlot::Defs(values) => defs.extend(values),
            OperandSlot::Use(_)
            | OperandSlot::Uses(_)
            | OperandSlot::Maybe(_)
            | OperandSlot::Mem(_)
            | OperandSlot::Regs(_) => {}
        });
        defs
    }

    /// The operands that the instruction reads, the bases of addresses among them.
    pub fn uses(&self) -> Vec<Operand> {
        let mut uses = Vec::new();
        self.visit(&mut |_, slot| match slot {
            OperandSlot::Use(operand) => uses.push(operand),
            OperandSlot::Uses(operands) => uses.extend(operands),
            OperandSlot::Maybe(operand) => uses.extend(operand),
            OperandSlot::Mem(addr) => uses.push(addr.base),
            OperandSlot::Def(_) | OperandSlot::Defs(_) | OperandSlot::Regs(_) => {}
        });
        uses
    }

    /// The register runs that the instruction touches, with what it does to them.
    pub fn regs(&self) -> Vec<(Role, Regs)> {
        let mut runs = Vec::new();
        self.visit(&mut |spec, slot| {
            if let OperandSlot::Regs(regs) = slot {
                runs.push((spec.role, regs));
            }
        });
        runs
    }

    /// Whether the row has a flag.
    pub fn is(&self, flag: Flag) -> bool {
        self.row().is(flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Addr, Const, ValueId, VarId};

    /// A source that takes the choices round robin and numbers its values.
    #[derive(Default)]
    struct Counting {
        step: usize,
        values: u32,
    }

    impl ChoiceSource for Counting {
        fn below(&mut self, count: usize) -> usize {
            self.step += 1;
            self.step % count
        }

        fn def(&mut self, _ty: Ty) -> ValueId {
            self.values += 1;
            ValueId(self.values)
        }

        fn operand(&mut self, ty: Ty) -> Operand {
            Const::new(ty, 1).into()
        }

        fn addr(&mut self, spaces: &[Space]) -> Addr {
            let space = spaces[self.below(spaces.len())];
            Addr { base: Const::new(Ty::Ptr(space), 64).into(), offset: 16 }
        }

        fn regs(&mut self, _ty: Ty, len: u32) -> Regs {
            Regs { var: VarId(0), start: 0, len }
        }
    }

    #[test]
    fn every_row_can_be_drawn_and_shows_its_operands_in_order() {
        let mut source = Counting::default();
        for row in rows() {
            for _ in 0..8 {
                let inst = Inst::draw(row, &mut source).expect("a row of the table");
                assert_eq!(inst.row(), row);
                let mut seen = Vec::new();
                inst.visit(&mut |spec, _| seen.push(spec.name));
                assert_eq!(seen, row.operands.iter().map(|o| o.name).collect::<Vec<_>>(), "{}", row.name);
                assert_eq!(inst.args().len(), row.args.len());
                for (ty, (_, class)) in inst.args().into_iter().zip(row.args) {
                    assert!(class.has(ty), "{ty} is not {}", class.noun());
                }
            }
        }
    }

    #[test]
    fn mnemonics_and_names_are_unique() {
        let mut words: Vec<_> = rows().map(|row| row.mnemonic).collect();
        let mut names: Vec<_> = rows().map(|row| (row.family, row.name)).collect();
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        names.sort_unstable();
        names.dedup();
        assert_eq!((words.len(), names.len()), (count, count));
    }
}
