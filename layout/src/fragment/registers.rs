//! The number of registers with which a thread holds a fragment, counted in types, so that arrays
//! have that length.

use core::ops::Div;

use generic_array::ArrayLength;
use typenum::{Const, Prod, Quot, ToUInt, U, U4, U1024};

use super::types::atoms::Wgmma;
use super::{
    Atom, FragmentA, FragmentB, FragmentC, FragmentLayout, MmaOperand, RegisterA, SourceOfA, StaticAtom, WgmmaTypes,
    fragment,
};
use crate::typed::{StaticLayout, Storage};

/// A typed layout whose registers of a thread are counted in its type.
///
/// Of a layout that [owns its elements](Storage) they are the elements, all of them one thread's.
/// Of a fragment they are what each thread of the instruction holds: 32 bits each, or one element
/// where it is wider.
///
/// ```
/// use tilewright_layout::fragment::{FragmentA, FragmentC, Registers, SharedA, atoms};
/// use tilewright_layout::typed::RowMajor;
/// use typenum::Unsigned;
/// fn count<L: Registers>() -> usize {
///     L::Count::USIZE
/// }
/// assert_eq!(count::<RowMajor<2, 4>>(), 8);
/// assert_eq!(count::<FragmentA<atoms::SM80_16x8x16_F32BF16BF16F32_TN>>(), 4);
/// assert_eq!(count::<FragmentC<atoms::Wgmma<atoms::SM90_F32BF16BF16, 256, SharedA>>>(), 128);
/// ```
#[diagnostic::on_unimplemented(
    message = "the registers of `{Self}` are not counted in its type",
    note = "layouts that own elements have them, and the fragments that an instruction holds in registers"
)]
pub trait Registers: StaticLayout {
    /// The number of registers of a thread.
    type Count: ArrayLength;
}

impl<L: Storage> Registers for L {
    type Count = L::Len;
}

/// Registers per thread of a warp's operand: `rows` by `columns` elements of `bits` bits.
pub(super) type PerLane<const ROWS: usize, const COLUMNS: usize, Bits> =
    Quot<Prod<Prod<U<ROWS>, U<COLUMNS>>, Bits>, U1024>;

/// Bits of an element in a fragment as types; 32 of what fills a register by itself.
pub(super) mod bits {
    use typenum::consts;
    pub type F16 = consts::U16;
    pub type BF16 = consts::U16;
    pub type TF32 = consts::U32;
    pub type F32 = consts::U32;
    pub type F64 = consts::U32;
    pub type E4M3 = consts::U8;
    pub type E5M2 = consts::U8;
    pub type S8 = consts::U8;
    pub type U8 = consts::U8;
    pub type S4 = consts::U4;
    pub type U4 = consts::U4;
    pub type S32 = consts::U32;
}

/// Columns of a `wgmma`'s accumulator that make up one register of a thread, by the accumulator's
/// element.
pub(super) mod columns {
    use typenum::consts;
    pub type F16 = consts::U4;
    pub type F32 = consts::U2;
    pub type S32 = consts::U2;
}

impl<F: WgmmaTypes, const N: usize, S: SourceOfA> Registers for FragmentC<Wgmma<F, N, S>>
where
    Const<N>: ToUInt,
    U<N>: Div<F::Columns, Output: ArrayLength>,
{
    type Count = Quot<U<N>, F::Columns>;
}

impl<F: WgmmaTypes, const N: usize> Registers for FragmentA<Wgmma<F, N, RegisterA>> {
    type Count = U4;
}

/// A fragment that each thread of an instruction holds in registers.
///
/// ```
/// use tilewright_layout::fragment::{FragmentB, StaticFragment, atoms};
/// type B = FragmentB<atoms::SM80_16x8x8_F32TF32TF32F32_TN>;
/// assert_eq!((B::FRAGMENT.rows, B::FRAGMENT.cols, B::PACKED), (8, 8, 1));
/// ```
pub trait StaticFragment: Registers {
    /// The instruction.
    const ATOM: Atom;
    /// The operand of the instruction.
    const OPERAND: MmaOperand;
    /// The position of each value of each thread.
    const FRAGMENT: FragmentLayout = fragment(&Self::ATOM, Self::OPERAND);
    /// Neighbours that share a register: along K of A and B, along a row of C.
    const PACKED: i64 = Self::ATOM.packed(Self::OPERAND);
}

macro_rules! fragments {
    ($($Fragment:ident $operand:ident;)+) => { $(
        impl<X: StaticAtom> StaticFragment for $Fragment<X>
        where
            $Fragment<X>: Registers,
        {
            const ATOM: Atom = X::ATOM;
            const OPERAND: MmaOperand = MmaOperand::$operand;
        }
    )+ };
}

fragments! {
    FragmentA A;
    FragmentB B;
    FragmentC C;
}

#[cfg(test)]
pub(super) fn counted<L: StaticFragment>() {
    use typenum::Unsigned;
    let held = L::FRAGMENT.values() / L::PACKED;
    assert_eq!(L::Count::USIZE as i64, held, "{} of {}", L::OPERAND.name(), L::ATOM.name().as_str());
}

#[cfg(test)]
mod tests {
    use super::counted;
    use crate::fragment::{FragmentA, FragmentC, RegisterA, SharedA, atoms};

    #[test]
    fn a_wgmma_holds_what_its_type_says() {
        counted::<FragmentC<atoms::Wgmma<atoms::SM90_F32BF16BF16, 8, SharedA>>>();
        counted::<FragmentC<atoms::Wgmma<atoms::SM90_F16F16F16, 256, SharedA>>>();
        counted::<FragmentC<atoms::Wgmma<atoms::SM90_S32S8S8, 48, RegisterA>>>();
        counted::<FragmentA<atoms::Wgmma<atoms::SM90_F32TF32TF32, 64, RegisterA>>>();
        counted::<FragmentA<atoms::Wgmma<atoms::SM90_F32BF16BF16, 64, RegisterA>>>();
        counted::<FragmentA<atoms::Wgmma<atoms::SM90_S32S8U8, 64, RegisterA>>>();
    }
}
