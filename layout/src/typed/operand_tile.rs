//! Operand tiles of the matrix instructions of sm_90, as types.

use super::{MatrixLayout, static_layout};
use crate::ops::Order;
use crate::swizzle::canonical::{CanonicalAtom, Major, SwizzleWidth};
use crate::{IntTuple, LayoutError, Swizzled};

/// The contiguous index of an operand, as a type.
pub trait StaticMajor: Copy + Default + Send + Sync + 'static {
    /// The index whose neighbours lie next to each other.
    const MAJOR: Major;
}

/// The contraction index is contiguous.
#[derive(Clone, Copy, Debug, Default)]
pub struct KMajor;

/// The row of A, or the column of B, is contiguous.
#[derive(Clone, Copy, Debug, Default)]
pub struct MnMajor;

impl StaticMajor for KMajor {
    const MAJOR: Major = Major::K;
}

impl StaticMajor for MnMajor {
    const MAJOR: Major = Major::Mn;
}

static_layout! {
    /// An operand tile (mn, k) of elements of `BITS` bits in shared memory, as `wgmma` and tensor
    /// maps read it: copies of the widest swizzled atom whose row divides the contiguous extent.
    /// The copies along the contiguous index come last, so each stretch of a swizzled row's width
    /// is one box of a tensor map.
    ///
    /// ```
    /// use tilewright_layout::typed::{KMajor, MnMajor, OperandTile, notation};
    /// assert_eq!(notation::<OperandTile<KMajor, 16, 128, 64>>().as_str(), "S<3,3,3> o 0 o ((8,16),(64,1)):((64,512),(1,0))");
    /// assert_eq!(notation::<OperandTile<MnMajor, 16, 128, 32>>().as_str(), "S<3,3,3> o 0 o ((64,2),(8,4)):((1,2048),(64,512))");
    /// assert_eq!(notation::<OperandTile<KMajor, 16, 8, 16>>().as_str(), "S<1,3,3> o 0 o ((8,1),(16,1)):((16,0),(1,0))");
    /// ```
    OperandTile [X: StaticMajor, const BITS: i64, const MN: usize, const K: usize] [X, BITS, MN, K] (X) {
        SWIZZLE = constant(operand_tile(X::MAJOR, BITS, MN as i64, K as i64)).swizzle();
        LAYOUT = constant(operand_tile(X::MAJOR, BITS, MN as i64, K as i64)).layout();
    }
}

impl<X: StaticMajor, const BITS: i64, const MN: usize, const K: usize> MatrixLayout<MN, K>
    for OperandTile<X, BITS, MN, K>
{
}

/// The tile as a value.
///
/// # Errors
/// [`LayoutError::Indivisible`] where the contiguous extent is not a multiple of 32 bytes, or the
/// other one of 8.
pub const fn operand_tile(major: Major, bits: i64, mn: i64, k: i64) -> Result<Swizzled, LayoutError> {
    let row = match major {
        Major::K => k,
        Major::Mn => mn,
    };
    let width = if row * bits % 1024 == 0 {
        SwizzleWidth::Bytes128
    } else if row * bits % 512 == 0 {
        SwizzleWidth::Bytes64
    } else {
        SwizzleWidth::Bytes32
    };
    let order = match major {
        Major::K => Order::Left,
        Major::Mn => Order::Right,
    };
    CanonicalAtom { major, width }.tile_to_shape(bits, &IntTuple::constant(IntTuple::flat(&[mn, k])), order)
}

const fn constant(tile: Result<Swizzled, LayoutError>) -> Swizzled {
    match tile {
        Ok(tile) => tile,
        Err(error) => panic!("{}", error.message().as_str()),
    }
}
