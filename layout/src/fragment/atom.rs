//! The table of atoms: one row each, named as the field names them.

use super::{MmaElement, MmaOperand};
use crate::Message;

/// The instruction of an atom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// `mma.sync`: one warp, all operands in registers.
    MmaSync,
    /// `wgmma.mma_async`: one warpgroup, B in shared memory.
    Wgmma {
        /// Whether A is in registers (`_RS`), not in shared memory (`_SS`).
        a_in_registers: bool,
    },
}

/// A matrix instruction of one shape and one set of element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Atom {
    /// The architecture that introduced it: 75, 80, 89 or 90.
    pub sm: i64,
    /// The instruction.
    pub instruction: Instruction,
    /// M, N and K.
    pub mnk: [i64; 3],
    /// The result.
    pub d: MmaElement,
    /// The A operand.
    pub a: MmaElement,
    /// The B operand.
    pub b: MmaElement,
    /// The accumulator.
    pub c: MmaElement,
}

/// The `wgmma` instructions of one set of element types: one atom for every N.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WgmmaFamily {
    /// The contraction extent: 256 bits of A.
    pub k: i64,
    /// The result and accumulator.
    pub d: MmaElement,
    /// The A operand.
    pub a: MmaElement,
    /// The B operand.
    pub b: MmaElement,
}

/// Declares the rows: a type per atom, and the tables.
macro_rules! table {
    (
        mma_sync { $($name:ident = $sm:literal [$m:literal, $n:literal, $k:literal] $d:ident $a:ident $b:ident $c:ident;)* }
        wgmma { $($family:ident = $fk:literal $fd:ident $fa:ident $fb:ident;)* }
    ) => {
        /// Every `mma.sync` atom.
        pub const ATOMS: &[Atom] = &[$(Atom {
            sm: $sm,
            instruction: Instruction::MmaSync,
            mnk: [$m, $n, $k],
            d: MmaElement::$d,
            a: MmaElement::$a,
            b: MmaElement::$b,
            c: MmaElement::$c,
        }),*];

        /// Every `wgmma` family.
        pub const WGMMA_FAMILIES: &[WgmmaFamily] = &[$(WgmmaFamily {
            k: $fk,
            d: MmaElement::$fd,
            a: MmaElement::$fa,
            b: MmaElement::$fb,
        }),*];

        #[cfg(test)]
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// The rows as types.
        #[expect(non_camel_case_types, reason = "the names of the field, which people search for")]
        pub(super) mod rows {
            use super::{Atom, MmaElement, Instruction, WgmmaFamily};
            use crate::fragment::registers::{PerLane, bits, columns};
            use crate::fragment::{FragmentA, FragmentB, FragmentC, Registers, StaticAtom, WgmmaTypes};
            $(
                #[doc = concat!("`mma.sync` of M, N, K = ", $m, ", ", $n, ", ", $k, ".")]
                #[derive(Clone, Copy, Debug, Default)]
                pub struct $name;
                impl StaticAtom for $name {
                    const ATOM: Atom = Atom {
                        sm: $sm,
                        instruction: Instruction::MmaSync,
                        mnk: [$m, $n, $k],
                        d: MmaElement::$d,
                        a: MmaElement::$a,
                        b: MmaElement::$b,
                        c: MmaElement::$c,
                    };
                }
                impl Registers for FragmentA<$name> {
                    type Count = PerLane<$m, $k, bits::$a>;
                }
                impl Registers for FragmentB<$name> {
                    type Count = PerLane<$n, $k, bits::$b>;
                }
                impl Registers for FragmentC<$name> {
                    type Count = PerLane<$m, $n, bits::$c>;
                }
            )*

            #[cfg(test)]
            pub(in crate::fragment) fn count_registers() {
                use crate::fragment::registers::counted;
                $(
                    counted::<FragmentA<$name>>();
                    counted::<FragmentB<$name>>();
                    counted::<FragmentC<$name>>();
                )*
            }

            $(
                #[doc = concat!("`wgmma` of ", stringify!($fa), " by ", stringify!($fb), " into ", stringify!($fd), ".")]
                #[derive(Clone, Copy, Debug, Default)]
                pub struct $family;
                impl WgmmaTypes for $family {
                    const FAMILY: WgmmaFamily =
                        WgmmaFamily { k: $fk, d: MmaElement::$fd, a: MmaElement::$fa, b: MmaElement::$fb };
                    type Columns = columns::$fd;
                }
            )*
        }
    };
}

table! {
    mma_sync {
        SM75_16x8x8_F32F16F16F32_TN = 75 [16, 8, 8] F32 F16 F16 F32;
        SM75_8x8x16_S32S8S8S32_TN = 75 [8, 8, 16] S32 S8 S8 S32;
        SM80_16x8x8_F16F16F16F16_TN = 80 [16, 8, 8] F16 F16 F16 F16;
        SM80_16x8x16_F16F16F16F16_TN = 80 [16, 8, 16] F16 F16 F16 F16;
        SM80_16x8x8_F32F16F16F32_TN = 80 [16, 8, 8] F32 F16 F16 F32;
        SM80_16x8x16_F32F16F16F32_TN = 80 [16, 8, 16] F32 F16 F16 F32;
        SM80_16x8x8_F32BF16BF16F32_TN = 80 [16, 8, 8] F32 BF16 BF16 F32;
        SM80_16x8x16_F32BF16BF16F32_TN = 80 [16, 8, 16] F32 BF16 BF16 F32;
        SM80_16x8x4_F32TF32TF32F32_TN = 80 [16, 8, 4] F32 TF32 TF32 F32;
        SM80_16x8x8_F32TF32TF32F32_TN = 80 [16, 8, 8] F32 TF32 TF32 F32;
        SM80_8x8x4_F64F64F64F64_TN = 80 [8, 8, 4] F64 F64 F64 F64;
        SM80_8x8x16_S32S8S8S32_TN = 80 [8, 8, 16] S32 S8 S8 S32;
        SM80_8x8x16_S32S8U8S32_TN = 80 [8, 8, 16] S32 S8 U8 S32;
        SM80_8x8x16_S32U8S8S32_TN = 80 [8, 8, 16] S32 U8 S8 S32;
        SM80_8x8x16_S32U8U8S32_TN = 80 [8, 8, 16] S32 U8 U8 S32;
        SM80_16x8x16_S32S8S8S32_TN = 80 [16, 8, 16] S32 S8 S8 S32;
        SM80_16x8x16_S32S8U8S32_TN = 80 [16, 8, 16] S32 S8 U8 S32;
        SM80_16x8x16_S32U8S8S32_TN = 80 [16, 8, 16] S32 U8 S8 S32;
        SM80_16x8x16_S32U8U8S32_TN = 80 [16, 8, 16] S32 U8 U8 S32;
        SM80_16x8x32_S32S8S8S32_TN = 80 [16, 8, 32] S32 S8 S8 S32;
        SM80_16x8x32_S32S8U8S32_TN = 80 [16, 8, 32] S32 S8 U8 S32;
        SM80_16x8x32_S32U8S8S32_TN = 80 [16, 8, 32] S32 U8 S8 S32;
        SM80_16x8x32_S32U8U8S32_TN = 80 [16, 8, 32] S32 U8 U8 S32;
        SM80_8x8x32_S32S4S4S32_TN = 80 [8, 8, 32] S32 S4 S4 S32;
        SM80_8x8x32_S32S4U4S32_TN = 80 [8, 8, 32] S32 S4 U4 S32;
        SM80_8x8x32_S32U4S4S32_TN = 80 [8, 8, 32] S32 U4 S4 S32;
        SM80_8x8x32_S32U4U4S32_TN = 80 [8, 8, 32] S32 U4 U4 S32;
        SM80_16x8x32_S32S4S4S32_TN = 80 [16, 8, 32] S32 S4 S4 S32;
        SM80_16x8x32_S32S4U4S32_TN = 80 [16, 8, 32] S32 S4 U4 S32;
        SM80_16x8x32_S32U4S4S32_TN = 80 [16, 8, 32] S32 U4 S4 S32;
        SM80_16x8x32_S32U4U4S32_TN = 80 [16, 8, 32] S32 U4 U4 S32;
        SM80_16x8x64_S32S4S4S32_TN = 80 [16, 8, 64] S32 S4 S4 S32;
        SM80_16x8x64_S32S4U4S32_TN = 80 [16, 8, 64] S32 S4 U4 S32;
        SM80_16x8x64_S32U4S4S32_TN = 80 [16, 8, 64] S32 U4 S4 S32;
        SM80_16x8x64_S32U4U4S32_TN = 80 [16, 8, 64] S32 U4 U4 S32;
        SM89_16x8x32_F32E4M3E4M3F32_TN = 89 [16, 8, 32] F32 E4M3 E4M3 F32;
        SM89_16x8x32_F32E4M3E5M2F32_TN = 89 [16, 8, 32] F32 E4M3 E5M2 F32;
        SM89_16x8x32_F32E5M2E4M3F32_TN = 89 [16, 8, 32] F32 E5M2 E4M3 F32;
        SM89_16x8x32_F32E5M2E5M2F32_TN = 89 [16, 8, 32] F32 E5M2 E5M2 F32;
        SM90_16x8x4_F64F64F64F64_TN = 90 [16, 8, 4] F64 F64 F64 F64;
        SM90_16x8x8_F64F64F64F64_TN = 90 [16, 8, 8] F64 F64 F64 F64;
        SM90_16x8x16_F64F64F64F64_TN = 90 [16, 8, 16] F64 F64 F64 F64;
    }
    wgmma {
        SM90_F16F16F16 = 16 F16 F16 F16;
        SM90_F32F16F16 = 16 F32 F16 F16;
        SM90_F32BF16BF16 = 16 F32 BF16 BF16;
        SM90_F32TF32TF32 = 8 F32 TF32 TF32;
        SM90_S32S8S8 = 32 S32 S8 S8;
        SM90_S32S8U8 = 32 S32 S8 U8;
        SM90_S32U8S8 = 32 S32 U8 S8;
        SM90_S32U8U8 = 32 S32 U8 U8;
        SM90_F16E4M3E4M3 = 32 F16 E4M3 E4M3;
        SM90_F16E4M3E5M2 = 32 F16 E4M3 E5M2;
        SM90_F16E5M2E4M3 = 32 F16 E5M2 E4M3;
        SM90_F16E5M2E5M2 = 32 F16 E5M2 E5M2;
        SM90_F32E4M3E4M3 = 32 F32 E4M3 E4M3;
        SM90_F32E4M3E5M2 = 32 F32 E4M3 E5M2;
        SM90_F32E5M2E4M3 = 32 F32 E5M2 E4M3;
        SM90_F32E5M2E5M2 = 32 F32 E5M2 E5M2;
    }
}

impl Atom {
    /// The `wgmma` atom of a family and an N; `None` where the instruction does not exist.
    ///
    /// N is a multiple of 8 from 8 to 256; for integer accumulators, above 32 a multiple of 16 (PTX
    /// ISA, `wgmma.mma_async`).
    pub const fn wgmma(family: &WgmmaFamily, n: i64, a_in_registers: bool) -> Option<Atom> {
        let integer = matches!(family.d, MmaElement::S32);
        if n < 8 || n > 256 || n % 8 != 0 || (integer && n > 32 && n % 16 != 0) {
            return None;
        }
        Some(Atom {
            sm: 90,
            instruction: Instruction::Wgmma { a_in_registers },
            mnk: [64, n, family.k],
            d: family.d,
            a: family.a,
            b: family.b,
            c: family.d,
        })
    }

    /// The atom of that name, such as `SM80_16x8x16_F32BF16BF16F32_TN` or
    /// `SM90_64x128x16_F32F16F16_RS`.
    pub const fn named(name: &str) -> Option<Atom> {
        let mut i = 0;
        while i < ATOMS.len() {
            if same(ATOMS[i].name().as_str(), name) {
                return Some(ATOMS[i]);
            }
            i += 1;
        }
        let n = n_of(name);
        let mut i = 0;
        while i < WGMMA_FAMILIES.len() {
            if let (Some(shared), Some(registers)) =
                (Atom::wgmma(&WGMMA_FAMILIES[i], n, false), Atom::wgmma(&WGMMA_FAMILIES[i], n, true))
            {
                if same(shared.name().as_str(), name) {
                    return Some(shared);
                }
                if same(registers.name().as_str(), name) {
                    return Some(registers);
                }
            }
            i += 1;
        }
        None
    }

    /// The name: architecture, M×N×K, the element types of D, A, B (and C), and how the operands
    /// are given.
    pub const fn name(&self) -> Message {
        let [m, n, k] = self.mnk;
        let message = Message::new().text("SM").number(self.sm).text("_").number(m).text("x").number(n).text("x");
        let message = message.number(k).text("_").text(self.d.name()).text(self.a.name()).text(self.b.name());
        match self.instruction {
            Instruction::MmaSync => message.text(self.c.name()).text("_TN"),
            Instruction::Wgmma { a_in_registers } => {
                let message = message.text(if a_in_registers { "_RS" } else { "_SS" });
                // Only 16-bit operands may have their other index contiguous in shared memory.
                if self.a.bits() == 16 { message } else { message.text("_TN") }
            }
        }
    }

    /// Number of threads that execute it.
    pub const fn threads(&self) -> i64 {
        match self.instruction {
            Instruction::MmaSync => 32,
            Instruction::Wgmma { .. } => 128,
        }
    }

    /// Neighbours along the contraction index that one thread holds: those of a 32-bit register, or
    /// one wider element.
    pub(super) const fn packed(&self, operand: MmaOperand) -> i64 {
        let bits = match operand {
            MmaOperand::A => self.a.bits(),
            MmaOperand::B => self.b.bits(),
            MmaOperand::C => self.c.bits(),
        };
        if bits < 32 { 32 / bits } else { 1 }
    }
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// The number between the first and the second `x` of a name; 0 where there is none.
const fn n_of(name: &str) -> i64 {
    let bytes = name.as_bytes();
    let (mut n, mut crosses, mut i) = (0, 0, 0);
    while i < bytes.len() && crosses < 2 && n <= 256 {
        if bytes[i] == b'x' {
            crosses += 1;
        } else if crosses == 1 && bytes[i].is_ascii_digit() {
            n = n * 10 + (bytes[i] - b'0') as i64;
        }
        i += 1;
    }
    n
}

#[cfg(test)]
mod tests {
    use super::{ATOMS, Atom, NAMES, WGMMA_FAMILIES};

    #[test]
    fn a_row_is_named_after_its_fields() {
        assert_eq!(NAMES.len(), ATOMS.len());
        for (name, atom) in NAMES.iter().zip(ATOMS) {
            assert_eq!(atom.name().as_str(), *name);
            assert_eq!(Atom::named(name), Some(*atom));
        }
    }

    #[test]
    fn every_wgmma_is_found_by_its_name_and_no_other() {
        let mut count = 0;
        for family in WGMMA_FAMILIES {
            for n in -8..=300 {
                for registers in [false, true] {
                    let Some(atom) = Atom::wgmma(family, n, registers) else { continue };
                    assert_eq!(Atom::named(atom.name().as_str()), Some(atom));
                    count += 1;
                }
            }
        }
        // 12 families of 32 widths; 4 integer ones of 18. Each with A in shared memory and in
        // registers.
        assert_eq!(count, 2 * (12 * 32 + 4 * 18));
        for unknown in ["", "SM90_64x12x16_F32F16F16_SS", "SM90_64x99999999999999999999x16_F32F16F16_SS", "SM80_xxx"] {
            assert_eq!(Atom::named(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_rows_type_counts_the_registers_of_its_fragments() {
        super::rows::count_registers();
    }

    #[test]
    fn a_wgmma_contracts_256_bits() {
        assert!(WGMMA_FAMILIES.iter().all(|family| family.k * family.a.bits() == 256));
    }
}
