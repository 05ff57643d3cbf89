//! The table of atoms: one row each, named as the field names them.

use super::{Atom, Instruction, MmaElement, WgmmaFamily};

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
}

const fn same(a: &str, b: &str) -> bool {
    let a = a.as_bytes();
    let b = b.as_bytes();
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
    let mut n = 0;
    let mut crosses = 0;
    let mut i = 0;
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
