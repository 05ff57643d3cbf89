//! Types of values: scalars, packed pairs and pointers by address space; and the classes that rows
//! ask for.

use core::fmt;

/// The memory space of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Device memory, seen by every block and by the host. 64-bit addresses.
    Global,
    /// The block's own shared memory. 32-bit addresses: byte offsets in the block's shared window.
    Shared,
    /// Shared memory of any block of the cluster (distributed shared memory). 32-bit addresses,
    /// made by `mapa`.
    Cluster,
    /// The kernel's parameters: read-only, the same for every thread. 64-bit addresses.
    Param,
}

impl Space {
    /// Every address space.
    pub const ALL: [Space; 4] = [Space::Global, Space::Shared, Space::Cluster, Space::Param];

    /// Name in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Space::Global => "global",
            Space::Shared => "shared",
            Space::Cluster => "cluster",
            Space::Param => "param",
        }
    }

    /// The unsigned integer type of the width of an address.
    pub const fn address(self) -> Ty {
        match self {
            Space::Global | Space::Param => Ty::U64,
            Space::Shared | Space::Cluster => Ty::U32,
        }
    }
}

/// The type of a value.
///
/// `tf32` values are `u32` bits, pairs of 8-bit floats `u16` bits, four of them `u32` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "a variant's name is its meaning; the exceptions are documented")]
pub enum Ty {
    /// A predicate: true or false. Not storable.
    Pred,
    /// Loads, stores and conversions only: arithmetic starts at 16 bits.
    U8,
    /// Loads, stores and conversions only: arithmetic starts at 16 bits.
    S8,
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
    F16,
    BF16,
    /// Two `f16` in 32 bits, the first in the low half.
    F16x2,
    /// Two `bf16` in 32 bits, the first in the low half.
    BF16x2,
    F32,
    F64,
    /// A byte address in a space.
    Ptr(Space),
}

impl Ty {
    /// Every type.
    pub const ALL: [Ty; 19] = [
        Ty::Pred,
        Ty::U8,
        Ty::S8,
        Ty::U16,
        Ty::S16,
        Ty::U32,
        Ty::S32,
        Ty::U64,
        Ty::S64,
        Ty::F16,
        Ty::BF16,
        Ty::F16x2,
        Ty::BF16x2,
        Ty::F32,
        Ty::F64,
        Ty::Ptr(Space::Global),
        Ty::Ptr(Space::Shared),
        Ty::Ptr(Space::Cluster),
        Ty::Ptr(Space::Param),
    ];

    /// Width in bits; 1 for a predicate.
    pub const fn bits(self) -> u32 {
        match self {
            Ty::Pred => 1,
            Ty::U8 | Ty::S8 => 8,
            Ty::U16 | Ty::S16 | Ty::F16 | Ty::BF16 => 16,
            Ty::U32 | Ty::S32 | Ty::F16x2 | Ty::BF16x2 | Ty::F32 => 32,
            Ty::U64 | Ty::S64 | Ty::F64 => 64,
            Ty::Ptr(space) => space.address().bits(),
        }
    }

    /// Width in bytes in memory; 1 for a predicate, which has no place there.
    pub const fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Whether the type is a signed integer.
    pub const fn is_signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }

    /// Whether the type is an integer of any width.
    pub const fn is_int(self) -> bool {
        matches!(self, Ty::U8 | Ty::U16 | Ty::U32 | Ty::U64) || self.is_signed()
    }

    /// Whether the type is a floating-point number or a pair of them.
    pub const fn is_float(self) -> bool {
        matches!(self, Ty::F16 | Ty::BF16 | Ty::F16x2 | Ty::BF16x2 | Ty::F32 | Ty::F64)
    }

    /// The integer of twice the width and the same sign; `None` for 64 bits and for what is not an
    /// integer.
    pub const fn wide(self) -> Option<Ty> {
        match self {
            Ty::U8 => Some(Ty::U16),
            Ty::S8 => Some(Ty::S16),
            Ty::U16 => Some(Ty::U32),
            Ty::S16 => Some(Ty::S32),
            Ty::U32 => Some(Ty::U64),
            Ty::S32 => Some(Ty::S64),
            Ty::U64 | Ty::S64 | Ty::Pred | Ty::F16 | Ty::BF16 | Ty::F16x2 | Ty::BF16x2 | Ty::F32 | Ty::F64 => None,
            Ty::Ptr(_) => None,
        }
    }

    /// Name in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Ty::Pred => "pred",
            Ty::U8 => "u8",
            Ty::S8 => "s8",
            Ty::U16 => "u16",
            Ty::S16 => "s16",
            Ty::U32 => "u32",
            Ty::S32 => "s32",
            Ty::U64 => "u64",
            Ty::S64 => "s64",
            Ty::F16 => "f16",
            Ty::BF16 => "bf16",
            Ty::F16x2 => "f16x2",
            Ty::BF16x2 => "bf16x2",
            Ty::F32 => "f32",
            Ty::F64 => "f64",
            Ty::Ptr(space) => space.name(),
        }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! classes {
    ($($(#[$doc:meta])+ $Name:ident $text:literal [$($ty:expr),+ $(,)?];)+) => {
        /// A set of types that a row's type argument ranges over.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum TyClass { $($(#[$doc])+ $Name,)+ }

        impl TyClass {
            /// Every class.
            pub const ALL: &'static [TyClass] = &[$(TyClass::$Name),+];

            /// The types of the class.
            pub const fn members(self) -> &'static [Ty] {
                match self { $(TyClass::$Name => &[$($ty),+],)+ }
            }

            /// The name of the class in an error's text.
            pub const fn noun(self) -> &'static str {
                match self { $(TyClass::$Name => $text,)+ }
            }
        }
    };
}

use Ty::{BF16, BF16x2, F16, F16x2, F32, F64, Pred, S8, S16, S32, S64, U8, U16, U32, U64};
const GLOBAL: Ty = Ty::Ptr(Space::Global);
const SHARED: Ty = Ty::Ptr(Space::Shared);
const CLUSTER: Ty = Ty::Ptr(Space::Cluster);
const PARAM: Ty = Ty::Ptr(Space::Param);

classes! {
    /// Integers that have arithmetic.
    Int "an integer of 16, 32 or 64 bits" [U16, S16, U32, S32, U64, S64];
    /// Integers of 32 and 64 bits.
    Wide "an integer of 32 or 64 bits" [U32, S32, U64, S64];
    /// Integers of 32 bits.
    Word "an integer of 32 bits" [U32, S32];
    /// Integers that a widening product accepts.
    Narrow "an integer of 16 or 32 bits" [U16, S16, U32, S32];
    /// Unsigned words whose bits are counted or moved.
    Raw "u32 or u64" [U32, U64];
    /// Numbers that add and multiply.
    Num "a number" [U16, S16, U32, S32, U64, S64, F16, BF16, F16x2, BF16x2, F32, F64];
    /// Numbers with a sign.
    SignedNum "a signed number" [S16, S32, S64, F16, BF16, F16x2, BF16x2, F32, F64];
    /// Floating-point numbers and pairs.
    Float "a floating-point number" [F16, BF16, F16x2, BF16x2, F32, F64];
    /// `f32` and `f64`: division, square root, reciprocal rounded to nearest.
    Real "f32 or f64" [F32, F64];
    /// `f32` alone.
    Single "f32" [F32];
    /// The types that `ex2.approx` and `tanh.approx` accept.
    Half "f32 or a 16-bit float" [F32, F16, F16x2, BF16, BF16x2];
    /// The types that logic accepts.
    Logic "a predicate or an integer of 16, 32 or 64 bits" [Pred, U16, S16, U32, S32, U64, S64];
    /// The types that compare: one number, not a pair.
    Ordered "one number" [U16, S16, U32, S32, U64, S64, F16, BF16, F32, F64];
    /// The types that convert.
    Scalar "one number" [U8, S8, U16, S16, U32, S32, U64, S64, F16, BF16, F32, F64];
    /// The types that memory can hold.
    Data "a storable type" [
        U8, S8, U16, S16, U32, S32, U64, S64, F16, BF16, F16x2, BF16x2, F32, F64, GLOBAL, SHARED, CLUSTER,
    ];
    /// The types that 32-bit shuffles move.
    Lane "a type of 32 bits" [U32, S32, F16x2, BF16x2, F32];
    /// The types that atomic operations accept; each operation accepts some of them.
    Atomic "u32, s32, u64, f32, f16x2 or bf16x2" [U32, S32, U64, F32, F16x2, BF16x2];
    /// The types that asynchronous reductions accept; each operation accepts some of them.
    Reduced "u32, s32, u64, s64, f16, bf16, f32 or f64" [U32, S32, U64, S64, F16, BF16, F32, F64];
    /// The types that compare-and-swap accepts.
    Swap "u32 or u64" [U32, U64];
    /// Packed types and wide integers that are put together from halves.
    Packed "a type of 32 or 64 bits" [U32, U64, F16x2, BF16x2, F64];
    /// Halves.
    Part "a type of 16 or 32 bits" [U16, U32, F16, BF16, F32];
    /// A pointer to anywhere.
    Ptr "a pointer" [GLOBAL, SHARED, CLUSTER, PARAM];
    /// Packed pairs of 16-bit floats.
    Pair "f16x2 or bf16x2" [F16x2, BF16x2];
    /// Every type.
    Any "any type" [
        Pred, U8, S8, U16, S16, U32, S32, U64, S64, F16, BF16, F16x2, BF16x2, F32, F64, GLOBAL, SHARED, CLUSTER, PARAM,
    ];
}

impl TyClass {
    /// Whether the class holds the type.
    pub fn has(self, ty: Ty) -> bool {
        self.members().contains(&ty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_follow_the_name() {
        for ty in Ty::ALL {
            let digits: String = ty.name().chars().filter(char::is_ascii_digit).collect();
            if matches!(ty, Ty::F16x2 | Ty::BF16x2) {
                assert_eq!(digits, "162");
            } else if matches!(ty, Ty::Pred | Ty::Ptr(_)) {
                assert_eq!(digits, "");
            } else {
                assert_eq!(digits, ty.bits().to_string(), "{ty}");
            }
            assert_eq!(ty.wide().map(Ty::bits), ty.wide().map(|_| ty.bits() * 2));
        }
        assert_eq!((Ty::Ptr(Space::Shared).bits(), Ty::Ptr(Space::Global).bits()), (32, 64));
    }

    #[test]
    fn a_class_has_its_members_and_no_others() {
        for &class in TyClass::ALL {
            let count = Ty::ALL.iter().filter(|&&ty| class.has(ty)).count();
            assert_eq!(count, class.members().len(), "{class:?} lists a type twice");
        }
        assert!(!TyClass::Data.has(Ty::Pred) && !TyClass::Num.has(Ty::U8));
    }
}
