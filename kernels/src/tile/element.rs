//! The elements of a tensor: scalars, or vectors that one instruction moves.

use core::marker::PhantomData;
use tilewright_codegen::build::{Builder, Ptr, Scalar, SpaceOf, Val, Writable};

/// An element of a tensor on the device: a scalar, or a [`Lanes`] of some.
pub trait Element: 'static {
    /// The scalar type.
    type Scalar: Scalar;
    /// Its value in registers: a [`Val`], or an array of them.
    type Value<'k>: Copy;
    /// The number of scalars.
    const LANES: u32;

    /// Makes a value of its lanes.
    fn of_lanes<'k>(lanes: &[Val<'k, Self::Scalar>]) -> Self::Value<'k>;

    /// The lanes of a value.
    fn lanes(value: Self::Value<'_>) -> Vec<Val<'_, Self::Scalar>>;
}

impl<T: Scalar> Element for T {
    type Scalar = T;
    type Value<'k> = Val<'k, T>;
    const LANES: u32 = 1;

    fn of_lanes<'k>(lanes: &[Val<'k, T>]) -> Val<'k, T> {
        lanes[0]
    }

    fn lanes(value: Self::Value<'_>) -> Vec<Val<'_, T>> {
        vec![value]
    }
}

/// `N` contiguous, aligned scalars as one element: 1, 2, 4 or 8, at most 16 bytes, of 8-bit scalars
/// at most 4. A tensor of them is made by [`vectorize`](super::LayoutTensor::vectorize).
#[derive(Clone, Copy, Debug)]
pub struct Lanes<T, const N: usize>(PhantomData<T>);

impl<T: Scalar, const N: usize> Element for Lanes<T, N> {
    type Scalar = T;
    type Value<'k> = [Val<'k, T>; N];
    const LANES: u32 = N as u32;

    fn of_lanes<'k>(lanes: &[Val<'k, T>]) -> [Val<'k, T>; N] {
        core::array::from_fn(|i| lanes[i])
    }

    fn lanes(value: Self::Value<'_>) -> Vec<Val<'_, T>> {
        value.to_vec()
    }
}

/// The longest vector of scalars of `bits` bits that one load gives lane by lane.
pub(super) const fn most_lanes(bits: u32) -> u32 {
    match bits {
        8 => 4,
        16 => 8,
        32 => 4,
        _ => 2,
    }
}

/// Loads `lanes` lanes from an address by one instruction.
#[track_caller]
pub(super) fn load_lanes<'k, S: SpaceOf, T: Scalar>(at: Ptr<'k, S, T>, lanes: u32) -> Vec<Val<'k, T>> {
    match lanes {
        8 => at.load_vec::<8>().to_vec(),
        4 => at.load_vec::<4>().to_vec(),
        2 => at.load_vec::<2>().to_vec(),
        _ => vec![at.load()],
    }
}

/// Writes lanes to an address, by one store.
#[track_caller]
pub(crate) fn store_lanes<'k, S: Writable, T: Scalar>(at: Ptr<'k, S, T>, lanes: &[Val<'k, T>]) {
    match *lanes {
        [a, b, c, d, e, f, g, h] => at.store_vec([a, b, c, d, e, f, g, h]),
        [a, b, c, d] => at.store_vec([a, b, c, d]),
        [a, b] => at.store_vec([a, b]),
        _ => lanes.iter().enumerate().for_each(|(i, &lane)| at.at(i).store(lane)),
    }
}

/// All bits zero: the zero of every type.
pub(super) fn zero<T: Scalar>(k: &Builder) -> Val<'_, T> {
    match T::TY.bits() {
        8 => k.lit(0u8).bits(),
        16 => k.lit(0u16).bits(),
        32 => k.lit(0u32).bits(),
        _ => k.lit(0u64).bits(),
    }
}
