//! The operand types of the tensor cores: one row per element type.

use super::OutputType;
use super::float8::{E4M3, E5M2};
use super::tf32::Tf32;
use half::{bf16, f16};
use tilewright_codegen::build::{Number, Scalar};
use tilewright_codegen::ir::{MmaAtom, WgmmaAtom, WgmmaKind};
use tilewright_layout::fragment::{
    Atom, FragmentA, FragmentB, FragmentC, FragmentLayout, MmaOperand, RegisterA, StaticFragment, WgmmaFamily,
    WgmmaTypes, atoms, fragment,
};
use tilewright_layout::typed::{KMajor, OperandTile, StaticLayout, StaticMajor};

/// A type of matrix elements. Both operands have it; sums are wider.
pub trait InputType: Copy + 'static {
    /// The type in memory.
    type Stored: Scalar;
    /// The type in which products are summed.
    type Sum: Number + OutputType;
    /// The width.
    type Width: Width;
    /// Its name.
    const NAME: &'static str;
    /// The truncation of a sum by the tensor cores at each term, as a part of the largest term.
    ///
    /// It is 2⁻²³ where they keep f32's bits, 2⁻¹³ for sums of 8-bit floats (14 bits: DeepSeek-V3,
    /// arXiv:2412.19437, 3.3.2), and 0 for integers.
    const CUT: f64;
    /// The `mma.sync` of 16×8×K.
    const WARP: MmaAtom;
    /// The registers of its A operand, 32 bits each.
    type WarpA: StaticFragment;
    /// The registers of its B operand, 32 bits each.
    type WarpB: StaticFragment;
    /// The registers of its accumulator.
    type WarpC: StaticFragment;
    /// The registers of `wgmma`'s A operand, 32 bits each, where it is not in shared memory.
    type WarpgroupA: StaticFragment;
    /// The `wgmma` of 64×N×K.
    const WARPGROUP: WgmmaKind;
    /// The family of `wgmma` fragments in the layout crate.
    const WARPGROUP_FRAGMENTS: WgmmaFamily;

    /// Size of an element in bits.
    const BITS: i64 = Self::Stored::TY.bits() as i64;
    /// K of both instructions: 32 bytes.
    const K: u32 = 256 / Self::Stored::TY.bits();
}

/// The width of operands, and with it the operand tiles whose K is a swizzled row of 128 bytes.
pub trait Width: 'static {
    /// Elements of 128 bytes.
    const DEPTH: u32;
    /// The contiguous index of a tile in shared memory, where that of the operand is `X`'s.
    type Major<X: StaticMajor>: StaticMajor;
    /// A tile of `ROWS` by [`DEPTH`](Width::DEPTH) whose contiguous index is `X`'s.
    type Tile<X: StaticMajor, const ROWS: usize>: StaticLayout;
}

/// 16 bits: either index may be contiguous.
#[derive(Clone, Copy, Debug)]
pub enum Bits16 {}

/// 8 bits. The instructions transpose nothing narrower than 16 bits, so that K is contiguous
/// whatever the memory's order.
#[derive(Clone, Copy, Debug)]
pub enum Bits8 {}

impl Width for Bits16 {
    const DEPTH: u32 = 64;
    type Major<X: StaticMajor> = X;
    type Tile<X: StaticMajor, const ROWS: usize> = OperandTile<X, 16, ROWS, 64>;
}

impl Width for Bits8 {
    const DEPTH: u32 = 128;
    type Major<X: StaticMajor> = KMajor;
    type Tile<X: StaticMajor, const ROWS: usize> = OperandTile<KMajor, 8, ROWS, 128>;
}

/// 32 bits: as of 8 bits, K is contiguous.
#[derive(Clone, Copy, Debug)]
pub enum Bits32 {}

impl Width for Bits32 {
    const DEPTH: u32 = 32;
    type Major<X: StaticMajor> = KMajor;
    type Tile<X: StaticMajor, const ROWS: usize> = OperandTile<KMajor, 32, ROWS, 32>;
}

const F32: f64 = 1.0 / (1u32 << 23) as f64;
const FLOAT8: f64 = 1.0 / (1u32 << 13) as f64;

macro_rules! inputs {
    ($($Type:ty: $Stored:ty, $Sum:ty, $Width:ty, $name:literal, $cut:expr, $warp:ident $warp_row:ident, $group:ident $group_row:ident;)+) => { $(
        impl InputType for $Type {
            type Stored = $Stored;
            type Sum = $Sum;
            type Width = $Width;
            type WarpA = FragmentA<atoms::$warp_row>;
            type WarpB = FragmentB<atoms::$warp_row>;
            type WarpC = FragmentC<atoms::$warp_row>;
            type WarpgroupA = FragmentA<atoms::Wgmma<atoms::$group_row, 8, RegisterA>>;
            const CUT: f64 = $cut;
            const NAME: &'static str = $name;
            const WARP: MmaAtom = MmaAtom::$warp;
            const WARPGROUP: WgmmaKind = WgmmaKind::$group;
            const WARPGROUP_FRAGMENTS: WgmmaFamily = atoms::$group_row::FAMILY;
        }
    )+ };
}

inputs! {
    bf16: bf16, f32, Bits16, "bf16", F32, M16N8K16_F32_BF16_BF16 SM80_16x8x16_F32BF16BF16F32_TN, F32_BF16_BF16 SM90_F32BF16BF16;
    f16: f16, f32, Bits16, "f16", F32, M16N8K16_F32_F16_F16 SM80_16x8x16_F32F16F16F32_TN, F32_F16_F16 SM90_F32F16F16;
    E4M3: u8, f32, Bits8, "e4m3", FLOAT8, M16N8K32_F32_E4M3_E4M3 SM89_16x8x32_F32E4M3E4M3F32_TN, F32_E4M3_E4M3 SM90_F32E4M3E4M3;
    E5M2: u8, f32, Bits8, "e5m2", FLOAT8, M16N8K32_F32_E5M2_E5M2 SM89_16x8x32_F32E5M2E5M2F32_TN, F32_E5M2_E5M2 SM90_F32E5M2E5M2;
    Tf32: f32, f32, Bits32, "tf32", F32, M16N8K8_F32_TF32_TF32 SM80_16x8x8_F32TF32TF32F32_TN, F32_TF32_TF32 SM90_F32TF32TF32;
    i8: i8, i32, Bits8, "s8", 0.0, M16N8K32_S32_S8_S8 SM80_16x8x32_S32S8S8S32_TN, S32_S8_S8 SM90_S32S8S8;
}

/// The fragment of an operand of the warp's instruction.
pub const fn warp_fragment<F: InputType>(operand: MmaOperand) -> FragmentLayout {
    fragment(&F::WarpC::ATOM, operand)
}

/// The `wgmma` with `n` columns and the fragment of its accumulator.
///
/// # Panics
/// Where there is no such instruction: N is a multiple of 8 from 8 to 256 (of 16 above 32 for
/// integers). In a constant that is a compile error.
pub const fn warpgroup_atom<F: InputType>(n: u32) -> (WgmmaAtom, FragmentLayout) {
    match (WgmmaAtom::new(n, F::WARPGROUP), Atom::wgmma(&F::WARPGROUP_FRAGMENTS, n as i64, false)) {
        (Some(atom), Some(shape)) => (atom, fragment(&shape, MmaOperand::C)),
        _ => panic!("wgmma: N must be a multiple of 8 (of 16 above 32 for integers), 8 to 256"),
    }
}

#[cfg(test)]
mod tests {
    use super::{E4M3, E5M2, InputType, Tf32, Width, warp_fragment};
    use half::{bf16, f16};
    use tilewright_layout::fragment::{MmaOperand, StaticFragment};

    fn rows_agree<F: InputType>() {
        let (m, n, k) = F::WARP.shape();
        assert_eq!(F::WarpA::ATOM.mnk, [m, n, k].map(i64::from), "{}", F::NAME);
        assert_eq!((F::K, F::WARPGROUP.k()), (k, k), "{}", F::NAME);
        assert_eq!(F::WARPGROUP_FRAGMENTS.k, i64::from(k), "{}", F::NAME);
        assert_eq!(i64::from(F::Width::DEPTH) * F::BITS, 1024, "{}", F::NAME);
        let (acc, a, b) = F::WARP.registers();
        let registers = |operand, bits: i64| warp_fragment::<F>(operand).values() * bits / 32;
        assert_eq!(registers(MmaOperand::C, 32), i64::from(acc), "{}", F::NAME);
        assert_eq!(registers(MmaOperand::A, F::BITS), i64::from(a), "{}", F::NAME);
        assert_eq!(registers(MmaOperand::B, F::BITS), i64::from(b), "{}", F::NAME);
    }

    #[test]
    fn instruction_and_fragments_are_of_one_shape() {
        rows_agree::<bf16>();
        rows_agree::<f16>();
        rows_agree::<E4M3>();
        rows_agree::<E5M2>();
        rows_agree::<Tf32>();
        rows_agree::<i8>();
    }
}
