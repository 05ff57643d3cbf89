//! The atoms of matrix multiply: shapes, element types and register counts, one row each.
//!
//! An atom is named in full, `M16N8K16_F32_BF16_BF16`: shape, accumulator, A, B; a `wgmma` atom
//! says in addition where its operands live, `M64N256K16_F32_BF16_BF16_SS`. The fragment layouts of
//! the layout crate map elements to lanes.

use super::attr::Attr;
use super::{Needs, Ty};
use core::fmt;

/// The element type of a matrix operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "a variant's name is its meaning")]
pub enum Elem {
    F16,
    BF16,
    TF32,
    F32,
    S32,
    S8,
    U8,
    E4M3,
    E5M2,
}

impl Elem {
    /// Name in PTX.
    pub const fn name(self) -> &'static str {
        match self {
            Elem::F16 => "f16",
            Elem::BF16 => "bf16",
            Elem::TF32 => "tf32",
            Elem::F32 => "f32",
            Elem::S32 => "s32",
            Elem::S8 => "s8",
            Elem::U8 => "u8",
            Elem::E4M3 => "e4m3",
            Elem::E5M2 => "e5m2",
        }
    }

    /// Width in bits, as stored: `tf32` occupies 32.
    pub const fn bits(self) -> u32 {
        match self {
            Elem::F16 | Elem::BF16 => 16,
            Elem::TF32 | Elem::F32 | Elem::S32 => 32,
            Elem::S8 | Elem::U8 | Elem::E4M3 | Elem::E5M2 => 8,
        }
    }

    /// The type of the 32-bit register that holds elements of this type in a fragment.
    pub const fn register(self) -> Ty {
        match self {
            Elem::F16 => Ty::F16x2,
            Elem::BF16 => Ty::BF16x2,
            Elem::F32 => Ty::F32,
            Elem::S32 => Ty::S32,
            Elem::TF32 | Elem::S8 | Elem::U8 | Elem::E4M3 | Elem::E5M2 => Ty::U32,
        }
    }

    /// Whether the elements are integers.
    pub const fn is_int(self) -> bool {
        matches!(self, Elem::S32 | Elem::S8 | Elem::U8)
    }
}

macro_rules! mma_atoms {
    ($($Name:ident ($m:literal $n:literal $k:literal $acc:ident $a:ident $b:ident) $needs:ident;)+) => {
        /// An atom of `mma.sync`: one warp, D = A·B + D, A row-major (K contiguous), B column-major
        /// (K contiguous).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(non_camel_case_types, reason = "the name of an atom is its shape and types")]
        pub enum MmaAtom {
            $(#[doc = concat!(
                "m", stringify!($m), "n", stringify!($n), "k", stringify!($k), ", ",
                stringify!($acc), " += ", stringify!($a), " · ", stringify!($b)
            )] $Name,)+
        }

        impl MmaAtom {
            /// Every atom.
            pub const ALL: &'static [MmaAtom] = &[$(MmaAtom::$Name),+];

            /// The atom's name.
            pub const fn name(self) -> &'static str {
                match self { $(MmaAtom::$Name => stringify!($Name),)+ }
            }

            /// M, N and K.
            pub const fn shape(self) -> (u32, u32, u32) {
                match self { $(MmaAtom::$Name => ($m, $n, $k),)+ }
            }

            /// Element types of the accumulator, A and B.
            pub const fn elems(self) -> (Elem, Elem, Elem) {
                match self { $(MmaAtom::$Name => (Elem::$acc, Elem::$a, Elem::$b),)+ }
            }

            /// The architecture that the atom needs.
            pub const fn needs(self) -> Needs {
                match self { $(MmaAtom::$Name => Needs::$needs,)+ }
            }
        }
    };
}

mma_atoms! {
    M16N8K16_F32_BF16_BF16 (16 8 16 F32 BF16 BF16) Sm80;
    M16N8K16_F32_F16_F16 (16 8 16 F32 F16 F16) Sm80;
    M16N8K16_F16_F16_F16 (16 8 16 F16 F16 F16) Sm80;
    M16N8K8_F32_TF32_TF32 (16 8 8 F32 TF32 TF32) Sm80;
    M16N8K32_S32_S8_S8 (16 8 32 S32 S8 S8) Sm80;
    M16N8K32_S32_U8_S8 (16 8 32 S32 U8 S8) Sm80;
    M16N8K32_F32_E4M3_E4M3 (16 8 32 F32 E4M3 E4M3) Sm89;
    M16N8K32_F32_E5M2_E5M2 (16 8 32 F32 E5M2 E5M2) Sm89;
    M16N8K32_F32_E4M3_E5M2 (16 8 32 F32 E4M3 E5M2) Sm89;
    M16N8K32_F32_E5M2_E4M3 (16 8 32 F32 E5M2 E4M3) Sm89;
}

impl MmaAtom {
    /// Registers per lane of the accumulator, A and B, each 32 bits.
    ///
    /// ```
    /// use tilewright_codegen::ir::MmaAtom;
    /// assert_eq!(MmaAtom::M16N8K16_F32_BF16_BF16.registers(), (4, 4, 2));
    /// ```
    pub const fn registers(self) -> (u32, u32, u32) {
        let (m, n, k) = self.shape();
        let (acc, a, b) = self.elems();
        (m * n * acc.bits() / 1024, m * k * a.bits() / 1024, n * k * b.bits() / 1024)
    }
}

impl fmt::Display for MmaAtom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Attr for MmaAtom {
    fn choices() -> Vec<Self> {
        Self::ALL.to_vec()
    }

    fn text(&self) -> String {
        self.name().into()
    }
}

macro_rules! wgmma_kinds {
    ($($Name:ident ($k:literal $acc:ident $a:ident $b:ident);)+) => {
        /// Element types of a `wgmma`, with the K that they imply.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(non_camel_case_types, reason = "the name of a kind is its types")]
        pub enum WgmmaKind {
            $(#[doc = concat!("k", stringify!($k), ", ", stringify!($acc), " += ", stringify!($a), " · ", stringify!($b))] $Name,)+
        }

        impl WgmmaKind {
            /// Every kind.
            pub const ALL: &'static [WgmmaKind] = &[$(WgmmaKind::$Name),+];

            /// The kind's name.
            pub const fn name(self) -> &'static str {
                match self { $(WgmmaKind::$Name => stringify!($Name),)+ }
            }

            /// K, in elements: 32 bytes of them.
            pub const fn k(self) -> u32 {
                match self { $(WgmmaKind::$Name => $k,)+ }
            }

            /// Element types of the accumulator, A and B.
            pub const fn elems(self) -> (Elem, Elem, Elem) {
                match self { $(WgmmaKind::$Name => (Elem::$acc, Elem::$a, Elem::$b),)+ }
            }
        }
    };
}

wgmma_kinds! {
    F32_BF16_BF16 (16 F32 BF16 BF16);
    F32_F16_F16 (16 F32 F16 F16);
    F16_F16_F16 (16 F16 F16 F16);
    F32_TF32_TF32 (8 F32 TF32 TF32);
    F32_E4M3_E4M3 (32 F32 E4M3 E4M3);
    F32_E5M2_E5M2 (32 F32 E5M2 E5M2);
    F32_E4M3_E5M2 (32 F32 E4M3 E5M2);
    F32_E5M2_E4M3 (32 F32 E5M2 E4M3);
    S32_S8_S8 (32 S32 S8 S8);
    S32_U8_S8 (32 S32 U8 S8);
}

/// An atom of `wgmma`: one warpgroup, D (64×N) = A·B + D, asynchronous. N is any that the kind
/// allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WgmmaAtom {
    n: u32,
    kind: WgmmaKind,
}

impl WgmmaAtom {
    /// The atom with `n` columns: a multiple of 8 up to 256; of integers above 32, a multiple
    /// of 16.
    ///
    /// ```
    /// use tilewright_codegen::ir::{WgmmaAtom, WgmmaKind};
    /// let atom = WgmmaAtom::new(256, WgmmaKind::F32_BF16_BF16).unwrap();
    /// assert_eq!((atom.to_string().as_str(), atom.acc_registers()), ("M64N256K16_F32_BF16_BF16", 128));
    /// assert!(WgmmaAtom::new(260, WgmmaKind::F32_BF16_BF16).is_none());
    /// ```
    pub const fn new(n: u32, kind: WgmmaKind) -> Option<WgmmaAtom> {
        let step = if kind.elems().1.is_int() && n > 32 { 16 } else { 8 };
        let legal = n >= 8 && n <= 256 && n.is_multiple_of(step);
        if legal { Some(WgmmaAtom { n, kind }) } else { None }
    }

    /// Columns of B and D.
    pub const fn n(self) -> u32 {
        self.n
    }

    /// Element types and K.
    pub const fn kind(self) -> WgmmaKind {
        self.kind
    }

    /// Accumulator registers per thread.
    pub const fn acc_registers(self) -> u32 {
        64 * self.n * self.kind.elems().0.bits() / (128 * 32)
    }

    /// Registers per thread of A, where A is in registers: always 4.
    pub const fn a_registers(self) -> u32 {
        64 * self.kind.k() * self.kind.elems().1.bits() / (128 * 32)
    }
}

impl fmt::Display for WgmmaAtom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "M64N{}K{}_{}", self.n, self.kind.k(), self.kind.name())
    }
}

impl Attr for WgmmaAtom {
    fn choices() -> Vec<Self> {
        let sizes = [8, 64, 128, 256];
        WgmmaKind::ALL.iter().flat_map(|&kind| sizes.map(|n| WgmmaAtom { n, kind })).collect()
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_atom_is_named_by_its_shape_and_types() {
        for &atom in MmaAtom::ALL {
            let ((m, n, k), (acc, a, b)) = (atom.shape(), atom.elems());
            let types = [acc, a, b].map(|e| e.name().to_uppercase());
            assert_eq!(atom.name(), format!("M{m}N{n}K{k}_{}", types.join("_")));
        }
        for &kind in WgmmaKind::ALL {
            let (acc, a, b) = kind.elems();
            assert_eq!(kind.name(), [acc, a, b].map(|e| e.name().to_uppercase()).join("_"));
            assert_eq!(kind.k() * a.bits(), 256, "K is 32 bytes");
            assert_eq!(WgmmaAtom { n: 64, kind }.a_registers(), 4);
        }
    }

    #[test]
    fn there_is_an_atom_for_every_legal_n() {
        let count = |kind| (0..=300).filter(|&n| WgmmaAtom::new(n, kind).is_some()).count();
        assert_eq!(count(WgmmaKind::F32_BF16_BF16), 32);
        assert_eq!(count(WgmmaKind::S32_S8_S8), 4 + 14, "8, 16, 24, 32, then every 16 up to 256");
    }
}
