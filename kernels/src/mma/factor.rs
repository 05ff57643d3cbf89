//! What the tensor cores multiply: one row per element type.

use half::{bf16, f16};
use tilewright_codegen::build::Scalar;
use tilewright_codegen::ir::{MmaAtom, WgmmaAtom, WgmmaKind};
use tilewright_layout::fragment::{
    Atom, FragmentLayout, Operand, StaticAtom, WgmmaFamily, WgmmaTypes, atoms, fragment,
};

/// A type of matrix elements. Both factors have it; sums are wider.
pub trait Factor: Copy + 'static {
    /// How memory holds it.
    type Stored: Scalar;
    /// What products are summed in.
    type Sum: Scalar;
    /// Its name.
    const NAME: &'static str;
    /// The `mma.sync` of 16×8×K.
    const WARP: MmaAtom;
    /// The same as the layout crate knows it.
    const WARP_FRAGMENTS: Atom;
    /// The `wgmma` of 64×N×K.
    const WARPGROUP: WgmmaKind;
    /// The same as the layout crate knows it.
    const WARPGROUP_FRAGMENTS: WgmmaFamily;

    /// Size of an element in bits.
    const BITS: i64 = Self::Stored::TY.bits() as i64;
    /// K of both instructions: 32 bytes.
    const K: u32 = 256 / Self::Stored::TY.bits();
}

/// An 8-bit float with four bits of exponent; memory holds its bits as `u8`.
#[derive(Clone, Copy, Debug)]
pub enum E4M3 {}

macro_rules! factors {
    ($($Type:ty: $Stored:ty, $Sum:ty, $name:literal, $warp:ident $warp_row:ident, $group:ident $group_row:ident;)+) => { $(
        impl Factor for $Type {
            type Stored = $Stored;
            type Sum = $Sum;
            const NAME: &'static str = $name;
            const WARP: MmaAtom = MmaAtom::$warp;
            const WARP_FRAGMENTS: Atom = atoms::$warp_row::ATOM;
            const WARPGROUP: WgmmaKind = WgmmaKind::$group;
            const WARPGROUP_FRAGMENTS: WgmmaFamily = atoms::$group_row::FAMILY;
        }
    )+ };
}

factors! {
    bf16: bf16, f32, "bf16", M16N8K16_F32_BF16_BF16 SM80_16x8x16_F32BF16BF16F32_TN, F32_BF16_BF16 SM90_F32BF16BF16;
    f16: f16, f32, "f16", M16N8K16_F32_F16_F16 SM80_16x8x16_F32F16F16F32_TN, F32_F16_F16 SM90_F32F16F16;
    E4M3: u8, f32, "e4m3", M16N8K32_F32_E4M3_E4M3 SM89_16x8x32_F32E4M3E4M3F32_TN, F32_E4M3_E4M3 SM90_F32E4M3E4M3;
    i8: i8, i32, "s8", M16N8K32_S32_S8_S8 SM80_16x8x32_S32S8S8S32_TN, S32_S8_S8 SM90_S32S8S8;
}

/// The fragment of an operand of the warp's instruction.
pub const fn warp_fragment<F: Factor>(operand: Operand) -> FragmentLayout {
    fragment(&F::WARP_FRAGMENTS, operand)
}

/// The `wgmma` with `n` columns and the fragment of its accumulator.
///
/// # Panics
/// Where there is no such instruction: N is a multiple of 8 from 8 to 256 (of 16 above 32 for integers). In a constant that
/// is a compile error.
pub const fn warpgroup_atom<F: Factor>(n: u32) -> (WgmmaAtom, FragmentLayout) {
    match (WgmmaAtom::new(n, F::WARPGROUP), Atom::wgmma(&F::WARPGROUP_FRAGMENTS, n as i64, false)) {
        (Some(atom), Some(shape)) => (atom, fragment(&shape, Operand::C)),
        _ => panic!("wgmma: N must be a multiple of 8 (of 16 above 32 for integers), 8 to 256"),
    }
}

#[cfg(test)]
mod tests {
    use super::{E4M3, Factor, warp_fragment};
    use half::{bf16, f16};
    use tilewright_layout::fragment::Operand;

    fn rows_agree<F: Factor>() {
        let (m, n, k) = F::WARP.shape();
        assert_eq!(F::WARP_FRAGMENTS.mnk, [m, n, k].map(i64::from), "{}", F::NAME);
        assert_eq!((F::K, F::WARPGROUP.k()), (k, k), "{}", F::NAME);
        assert_eq!(F::WARPGROUP_FRAGMENTS.k, i64::from(k), "{}", F::NAME);
        let (acc, a, b) = F::WARP.registers();
        let registers = |operand, bits: i64| warp_fragment::<F>(operand).values() * bits / 32;
        assert_eq!(registers(Operand::C, 32), i64::from(acc), "{}", F::NAME);
        assert_eq!(registers(Operand::A, F::BITS), i64::from(a), "{}", F::NAME);
        assert_eq!(registers(Operand::B, F::BITS), i64::from(b), "{}", F::NAME);
    }

    #[test]
    fn instruction_and_fragments_are_of_one_shape() {
        rows_agree::<bf16>();
        rows_agree::<f16>();
        rows_agree::<E4M3>();
        rows_agree::<i8>();
    }
}
