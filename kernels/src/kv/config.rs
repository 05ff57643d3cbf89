//! The configuration of a buffer: the numbers in which K and V differ.

/// The tile that a buffer moves, and the part of it that one warp multiplies.
///
/// Of the product that the buffer feeds, K is the B operand of `Q·Kᵀ` (its rows are columns of the
/// product) and V that of `P·V` (its rows are contracted). Nothing else tells them apart.
pub trait KvBufferConfig: Copy + 'static {
    /// Rows of the block's tile.
    const BTILE0: u32;
    /// Columns of the block's tile.
    const BTILE1: u32;
    /// Rows of a warp's tile.
    const WTILE0: u32;
    /// Columns of a warp's tile.
    const WTILE1: u32;
    /// Columns of the product that one warp computes.
    const WSIZE: u32;
    /// The axis along which the next tile lies.
    const ITERATOR_AXIS: u32;
    /// Whether a row of the tile is a column of the product.
    const TRANSPOSED: bool;
}

/// Keys: `BN` of them to a block of the product, `BK` columns of the head at a time, `WN` keys to a
/// warp.
#[derive(Clone, Copy, Debug)]
pub struct KConfig<const BN: u32, const BK: u32, const WN: u32>;

impl<const BN: u32, const BK: u32, const WN: u32> KvBufferConfig for KConfig<BN, BK, WN> {
    const BTILE0: u32 = BN;
    const BTILE1: u32 = BK;
    const WTILE0: u32 = WN;
    const WTILE1: u32 = BK;
    const WSIZE: u32 = WN;
    const ITERATOR_AXIS: u32 = 1;
    const TRANSPOSED: bool = true;
}

/// Values: `BK` of them at a time, all `DEPTH` columns of the head, which `BN / WN` warps divide.
#[derive(Clone, Copy, Debug)]
pub struct VConfig<const BN: u32, const BK: u32, const WN: u32, const DEPTH: u32>;

impl<const BN: u32, const BK: u32, const WN: u32, const DEPTH: u32> KvBufferConfig for VConfig<BN, BK, WN, DEPTH> {
    const BTILE0: u32 = BK;
    const BTILE1: u32 = DEPTH;
    const WTILE0: u32 = BK;
    const WTILE1: u32 = DEPTH / (BN / WN);
    const WSIZE: u32 = DEPTH / (BN / WN);
    const ITERATOR_AXIS: u32 = 0;
    const TRANSPOSED: bool = false;
}
