//! Atoms and their fragments as types.

use super::{Atom, MmaOperand, WgmmaFamily, fragment};
use crate::typed::static_layout;

/// An atom that is known to the compiler: a row of [`atoms`], or a [`Wgmma`](atoms::Wgmma).
pub trait StaticAtom: Copy + Default + Send + Sync + 'static {
    /// The atom as a value.
    const ATOM: Atom;
}

/// A row of the `wgmma` families as a type.
pub trait WgmmaTypes: Copy + Default + Send + Sync + 'static {
    /// The family as a value.
    const FAMILY: WgmmaFamily;
    /// Columns of the accumulator that make up one register of a thread, as a number of `typenum`.
    type Columns;
}

/// The source of a `wgmma`'s A operand.
pub trait SourceOfA: Copy + Default + Send + Sync + 'static {
    /// Whether it reads registers.
    const REGISTERS: bool;
}

/// Reads A from registers: the `_RS` atoms.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegisterA;

/// Reads A from shared memory: the `_SS` atoms.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedA;

impl SourceOfA for RegisterA {
    const REGISTERS: bool = true;
}

impl SourceOfA for SharedA {
    const REGISTERS: bool = false;
}

/// The atoms, one type each, under the names of the field.
pub mod atoms {
    pub use super::super::atom::rows::*;

    use core::marker::PhantomData;

    use super::{Atom, SourceOfA, StaticAtom, WgmmaTypes};

    /// `wgmma` of 64×`N`: the family `F`, A from `S`.
    ///
    /// ```
    /// use tilewright_layout::fragment::{SharedA, StaticAtom, atoms};
    /// type Wide = atoms::Wgmma<atoms::SM90_F32BF16BF16, 256, SharedA>;
    /// assert_eq!(Wide::ATOM.name().as_str(), "SM90_64x256x16_F32BF16BF16_SS");
    /// ```
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Wgmma<F, const N: usize, S>(PhantomData<fn() -> (F, S)>);

    impl<F: WgmmaTypes, const N: usize, S: SourceOfA> StaticAtom for Wgmma<F, N, S> {
        const ATOM: Atom = match Atom::wgmma(&F::FAMILY, N as i64, S::REGISTERS) {
            Some(atom) => atom,
            None => {
                let message = crate::Message::new().text("wgmma: N is ").number(N as i64);
                panic!(
                    "{}",
                    message.text("; it must be a multiple of 8 (of 16 above 32 for integers), 8 to 256").as_str()
                )
            }
        };
    }
}

static_layout! {
    /// (thread, value) of operand A of the atom, to `m + M * k`.
    ///
    /// ```
    /// use tilewright_layout::{fragment::{FragmentA, atoms}, typed::StaticLayout};
    /// type A = FragmentA<atoms::SM80_16x8x16_F32BF16BF16F32_TN>;
    /// assert_eq!(A::LAYOUT.to_string(), "((4,8),(2,2,2)):((32,1),(16,8,128))");
    /// ```
    FragmentA [X: StaticAtom] [X] (X) {
        LAYOUT = fragment(&X::ATOM, MmaOperand::A).layout;
    }

    /// (thread, value) of operand B of the atom, to `n + N * k`.
    ///
    /// ```
    /// use tilewright_layout::{fragment::{FragmentB, atoms}, typed::StaticLayout};
    /// type B = FragmentB<atoms::SM80_16x8x16_F32BF16BF16F32_TN>;
    /// assert_eq!(B::LAYOUT.to_string(), "((4,8),(2,2)):((16,1),(8,64))");
    /// ```
    FragmentB [X: StaticAtom] [X] (X) {
        LAYOUT = fragment(&X::ATOM, MmaOperand::B).layout;
    }

    /// (thread, value) of operand C of the atom, to `m + M * n`.
    ///
    /// ```
    /// use tilewright_layout::{fragment::{FragmentC, RegisterA, atoms}, typed::StaticLayout};
    /// type C = FragmentC<atoms::Wgmma<atoms::SM90_F32F16F16, 64, RegisterA>>;
    /// assert_eq!(C::LAYOUT.to_string(), "((4,8,4),(2,2,8)):((128,1,16),(64,8,512))");
    /// ```
    FragmentC [X: StaticAtom] [X] (X) {
        LAYOUT = fragment(&X::ATOM, MmaOperand::C).layout;
    }
}
