//! The contents of an instruction row, and the macro that derives everything else from it.

use crate::ir::{Addr, Needs, Operand, Regs, Space, Ty, TyClass, ValueId};

/// The role of an operand in an instruction; it fixes the type of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Writes one value. A [`ValueId`].
    W,
    /// Writes several values. A `Vec<ValueId>`.
    Ws,
    /// Reads one operand. An [`Operand`].
    R,
    /// Reads several operands. A `Vec<Operand>`.
    Rs,
    /// Reads an operand that may be left out. An `Option<Operand>`.
    Ro,
    /// Reads memory at an address. An [`Addr`].
    MemR,
    /// Writes memory at an address. An [`Addr`].
    MemW,
    /// Reads and writes memory at an address, atomically. An [`Addr`].
    MemRw,
    /// Names an address without accessing it as data: a hint, or a tensor map's description. An
    /// [`Addr`].
    MemAt,
    /// Reads registers. A [`Regs`].
    RegR,
    /// Writes registers. A [`Regs`].
    RegW,
    /// Reads and writes registers. A [`Regs`].
    RegRw,
}

/// The type that an operand must have, or the spaces that an address may lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The type argument with this index.
    Arg(usize),
    /// The integer of twice the width of the first type argument.
    Wide,
    /// This type.
    Is(Ty),
    /// An address in one of these spaces.
    In(&'static [Space]),
    /// The address of an mbarrier in one of these spaces.
    Bar(&'static [Space]),
    /// Any type: `verify` has a rule of its own.
    Any,
}

/// A property or a requirement of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flag {
    /// Its results depend on its operands alone: it may be merged with an equal one, or dropped
    /// when unused.
    Pure,
    /// Every lane of the warp must execute it together (PTX `.aligned`).
    Warp,
    /// Every thread of the warpgroup must execute it together.
    Warpgroup,
    /// Starts work that completes later; sources and destinations stay in use until then.
    Async,
    /// Its accesses to memory are made by the async proxy.
    Proxy,
    /// Accesses memory by 16 aligned bytes: one such unit, or the number in its operand `bytes`.
    Units,
    /// Accesses shared memory by boxes of a size given by a tensor map: units of 16 bytes from a
    /// multiple of 128 on.
    Boxes,
    /// Orders accesses of this thread or of others: the mutation harness removes or weakens it.
    Orders,
    /// Its result is specified to a bound of error, not to the bit.
    Approx,
}

impl Rule {
    /// The spaces that an address may lie in.
    pub fn spaces(self) -> Option<&'static [Space]> {
        match self {
            Rule::In(spaces) | Rule::Bar(spaces) => Some(spaces),
            Rule::Arg(_) | Rule::Wide | Rule::Is(_) | Rule::Any => None,
        }
    }
}

/// An operand of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandSpec {
    /// The field's name.
    pub name: &'static str,
    /// Its role.
    pub role: Role,
    /// Its type or space.
    pub rule: Rule,
}

/// The description of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstRow {
    /// The family, and the file that the row stands in.
    pub family: &'static str,
    /// The variant's name.
    pub name: &'static str,
    /// First word of the text form.
    pub mnemonic: &'static str,
    /// The semantics, line by line.
    pub doc: &'static [&'static str],
    /// Names and classes of the type arguments.
    pub args: &'static [(&'static str, TyClass)],
    /// The operands in order.
    pub operands: &'static [OperandSpec],
    /// Names of the attributes.
    pub attrs: &'static [&'static str],
    /// The architecture that it needs.
    pub needs: Needs,
    /// Its properties and requirements.
    pub flags: &'static [Flag],
}

impl InstRow {
    /// Whether the row has a flag.
    pub fn is(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }
}

/// The contents of an instruction's field, without the role.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OperandSlot<'a> {
    /// A value that is written.
    Def(ValueId),
    /// Values that are written.
    Defs(&'a [ValueId]),
    /// An operand that is read.
    Use(Operand),
    /// Operands that are read.
    Uses(&'a [Operand]),
    /// An operand that may be left out.
    Maybe(Option<Operand>),
    /// An address.
    Mem(Addr),
    /// Registers.
    Regs(Regs),
}

/// The source of choices for a generator of random instructions.
pub trait ChoiceSource {
    /// A number below `count`, which is at least 1.
    fn below(&mut self, count: usize) -> usize;
    /// A fresh value of the type.
    fn def(&mut self, ty: Ty) -> ValueId;
    /// An operand of the type.
    fn operand(&mut self, ty: Ty) -> Operand;
    /// An address in one of the spaces.
    fn addr(&mut self, spaces: &[Space]) -> Addr;
    /// A run of `len` registers of the type.
    fn regs(&mut self, ty: Ty, len: u32) -> Regs;
}

/// A type that a field can have: how it is seen by a visitor, and drawn by a generator.
pub(crate) trait InstField: Sized {
    fn slot(&self) -> OperandSlot<'_>;
    fn draw(source: &mut dyn ChoiceSource, rule: Rule, args: &[Ty]) -> Self;
}

/// The type that a rule stands for, given the type arguments; `u32` where the rule leaves it open.
pub(crate) fn resolve(rule: Rule, args: &[Ty]) -> Ty {
    match rule {
        Rule::Arg(index) => args[index],
        Rule::Wide => args[0].wide().unwrap_or(args[0]),
        Rule::Is(ty) => ty,
        Rule::In(spaces) | Rule::Bar(spaces) => Ty::Ptr(spaces[0]),
        Rule::Any => Ty::U32,
    }
}

impl InstField for ValueId {
    fn slot(&self) -> OperandSlot<'_> {
        OperandSlot::Def(*self)
    }

    fn draw(source: &mut dyn ChoiceSource, rule: Rule, args: &[Ty]) -> Self {
        source.def(resolve(rule, args))
    }
}

impl InstField for Operand {
    fn slot(&self) -> OperandSlot<'_> {
        OperandSlot::Use(*self)
    }

    fn draw(source: &mut dyn ChoiceSource, rule: Rule, args: &[Ty]) -> Self {
        source.operand(resolve(rule, args))
    }
}

impl InstField for Vec<ValueId> {
    fn slot(&self) -> OperandSlot<'_> {
        OperandSlot::Defs(self)
    }

    fn draw(source: &mut dyn ChoiceSource, rule: Rule, args: &[Ty]) -> Self {
        let ty = resolve(rule, args);
        let count = 1 << source.below(3);
        (0..count).map(|_| source.def(ty)).collect()
    }
}

impl InstField for Vec<Operand> {
    fn slot(&self) -> OperandSlot<'_> {
        OperandSlot::Uses(self)
    }

    fn draw(source: &mut dyn ChoiceSource, rule: Rule, args: &[Ty]) -> Self {
        let ty = resolve(rule, args);
        let count = 1 << source.below(3);
        (0..count).map(|_| source.operand(ty)).collect()
    }
}

impl InstField for Option<Operand> {
    fn slot(&self) -> OperandSlot<'_> {
        OperandSlot::Maybe(*self)
    }

    fn draw(source: &mut dyn ChoiceSource, rule: Rule, args: &[Ty]) -> Self {
        (source.below(2) == 1).then(|| source.operand(resolve(rule, args)))
    }
}

impl InstField for Addr {
    fn slot(&self) -> OperandSlot<'_> {
        OperandSlot::Mem(*self)
    }

    fn draw(source: &mut dyn ChoiceSource, rule: Rule, _args: &[Ty]) -> Self {
        source.addr(rule.spaces().unwrap_or(&[Space::Global]))
    }
}

impl InstField for Regs {
    fn slot(&self) -> OperandSlot<'_> {
        OperandSlot::Regs(*self)
    }

    fn draw(source: &mut dyn ChoiceSource, rule: Rule, args: &[Ty]) -> Self {
        source.regs(resolve(rule, args), 1)
    }
}

/// The field type of a role.
macro_rules! field {
    (W) => { crate::ir::ValueId };
    (Ws) => { Vec<crate::ir::ValueId> };
    (R) => { crate::ir::Operand };
    (Rs) => { Vec<crate::ir::Operand> };
    (Ro) => { Option<crate::ir::Operand> };
    (MemR) => { crate::ir::Addr };
    (MemW) => { crate::ir::Addr };
    (MemRw) => { crate::ir::Addr };
    (MemAt) => { crate::ir::Addr };
    (RegR) => { crate::ir::Regs };
    (RegW) => { crate::ir::Regs };
    (RegRw) => { crate::ir::Regs };
}

/// The rule that a word of a row stands for.
macro_rules! rule {
    (ty) => {
        Rule::Arg(0)
    };
    (from) => {
        Rule::Arg(1)
    };
    (wide) => {
        Rule::Wide
    };
    (any) => {
        Rule::Any
    };
    (Global) => {
        Rule::In(&[Space::Global])
    };
    (Shared) => {
        Rule::In(&[Space::Shared])
    };
    (Cluster) => {
        Rule::In(&[Space::Cluster])
    };
    (OnChip) => {
        Rule::In(&[Space::Shared, Space::Cluster])
    };
    (Bar) => {
        Rule::Bar(&[Space::Shared])
    };
    (BarCluster) => {
        Rule::Bar(&[Space::Cluster])
    };
    (BarOnChip) => {
        Rule::Bar(&[Space::Shared, Space::Cluster])
    };
    (Memory) => {
        Rule::In(&[Space::Global, Space::Shared, Space::Cluster])
    };
    (Readable) => {
        Rule::In(&[Space::Global, Space::Shared, Space::Cluster, Space::Param])
    };
    (Map) => {
        Rule::In(&[Space::Param, Space::Global])
    };
    (ToGlobal) => {
        Rule::Is(Ty::Ptr(Space::Global))
    };
    (ToShared) => {
        Rule::Is(Ty::Ptr(Space::Shared))
    };
    (ToCluster) => {
        Rule::Is(Ty::Ptr(Space::Cluster))
    };
    (ToParam) => {
        Rule::Is(Ty::Ptr(Space::Param))
    };
    ($Ty:ident) => {
        Rule::Is(Ty::$Ty)
    };
}

/// A family of rows: the enum and everything that is derived from it.
macro_rules! family {
    (
        $(#[$about:meta])+
        $family:literal $Family:ident {
            $(
                $(#[doc = $doc:literal])+
                $Name:ident $mnemonic:literal
                $(<$($arg:ident : $class:ident),+>)?
                ($($op:ident : $role:ident $rule:ident),*)
                $({ $($attr:ident : $Attr:ty),+ })?
                $needs:ident $($flag:ident)* ;
            )+
        }
    ) => {
        $(#[$about])+
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum $Family {
            $(
                $(#[doc = $doc])+
                $Name {
                    $($(#[doc = concat!("Type argument of class [`TyClass::", stringify!($class), "`].")] $arg: Ty,)+)?
                    $(#[doc = concat!("`", stringify!($role), " ", stringify!($rule), "`")] $op: field!($role),)*
                    $($(#[doc = concat!("Attribute [`", stringify!($Attr), "`].")] $attr: $Attr,)+)?
                },
            )+
        }

        impl $Family {
            /// The rows of the family, in the order of the variants.
            pub const ROWS: &'static [InstRow] = &[$(InstRow {
                family: $family,
                name: stringify!($Name),
                mnemonic: $mnemonic,
                doc: &[$($doc),+],
                args: &[$($((stringify!($arg), TyClass::$class)),+)?],
                operands: &[$(OperandSpec { name: stringify!($op), role: Role::$role, rule: rule!($rule) }),*],
                attrs: &[$($(stringify!($attr)),+)?],
                needs: Needs::$needs,
                flags: &[$(Flag::$flag),*],
            }),+];

            /// The position of the instruction's row in [`Self::ROWS`].
            fn position(&self) -> usize {
                #[derive(Clone, Copy)]
                enum RowPosition { $($Name),+ }
                match self { $(Self::$Name { .. } => RowPosition::$Name as usize,)+ }
            }

            /// The row that declares the instruction.
            pub fn row(&self) -> &'static InstRow {
                &Self::ROWS[self.position()]
            }

            /// The type arguments.
            pub fn args(&self) -> Vec<Ty> {
                match self { $(Self::$Name { $($($arg,)+)? .. } => vec![$($(*$arg),+)?],)+ }
            }

            /// Calls `see` for each operand with its specification, in the order of the row.
            #[allow(unused_variables, unused_mut, unused_assignments, reason = "a row may have no operands")]
            pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&'static OperandSpec, OperandSlot<'a>)) {
                let mut specs = self.row().operands.iter();
                let mut show = |slot| if let Some(spec) = specs.next() { see(spec, slot) };
                match self { $(Self::$Name { $($op,)* .. } => { $(show(InstField::slot($op));)* })+ }
            }

            /// The attributes' suffixes, those of defaults left out.
            pub fn suffixes(&self) -> Vec<String> {
                let all: Vec<String> = match self {
                    $(Self::$Name { $($($attr,)+)? .. } => vec![$($(Attr::text($attr)),+)?],)+
                };
                all.into_iter().filter(|text| !text.is_empty()).collect()
            }

            /// An instruction of the row at `position`, every field drawn from the source. It has
            /// the row's types and spaces; what a row cannot say (vector widths, legal pairs of
            /// attributes) is the caller's to see to.
            #[allow(unused_variables, reason = "a row may have no type arguments")]
            pub fn draw(position: usize, source: &mut dyn ChoiceSource) -> Option<Self> {
                #[derive(Clone, Copy)]
                enum RowPosition { $($Name),+ }
                $(if position == RowPosition::$Name as usize {
                    $($(let $arg = pick(TyClass::$class.members(), source);)+)?
                    let args: &[Ty] = &[$($($arg),+)?];
                    $(let $op = <field!($role) as InstField>::draw(source, rule!($rule), args);)*
                    $($(let $attr = pick(&<$Attr as Attr>::choices(), source);)+)?
                    return Some(Self::$Name { $($($arg,)+)? $($op,)* $($($attr,)+)? });
                })+
                None
            }
        }
    };
}

/// Picks one of the choices.
pub(crate) fn pick<T: Clone>(choices: &[T], source: &mut dyn ChoiceSource) -> T {
    choices[source.below(choices.len())].clone()
}
