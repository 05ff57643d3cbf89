//! What a matrix descriptor of sm_90 says of a tile, read off the tile's layout.

use super::canonical::{Major, SwizzleWidth};
use crate::{Layout, LayoutError, Swizzled};

/// The fields of a matrix descriptor but for the address: PTX ISA, "Matrix Descriptor Format" under `wgmma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixDescriptor {
    /// Which index is contiguous.
    pub major: Major,
    /// How far the swizzle reaches.
    pub width: SwizzleWidth,
    /// MN-major: bytes to the next stretch of M or N. K-major: not read by the hardware, 16.
    pub leading: i64,
    /// Bytes to the next eight rows: of M or N where K is contiguous, of K elsewhere.
    pub stride: i64,
}

impl Swizzled {
    /// The descriptor of a tile (mn, k) of elements of `bits` bits, or why the hardware cannot read it.
    ///
    /// ```
    /// use tilewright_layout::{IntTuple, ops::Order, swizzle::canonical::Atom};
    /// let atom = Atom::from_name("K_SW128").unwrap();
    /// let tile = atom.tile_to_shape(16, &IntTuple::parse("(128,64)").unwrap(), Order::Left).unwrap();
    /// assert_eq!(tile.matrix_descriptor(16).unwrap().stride, 1024);
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Swizzle`] where the layout is none of the swizzled canonical ones.
    pub const fn matrix_descriptor(&self, bits: i64) -> Result<MatrixDescriptor, LayoutError> {
        let width = tri!(self.width_of(bits));
        let (across, bytes) = (width.bytes() * 8 / bits, bits / 8);
        let (mn, k) = (tri!(self.layout().mode(0)).coalesce(), tri!(self.layout().mode(1)).coalesce());
        if let (Some(_), Some(stride)) = (along(&k, across), down(&mn, across)) {
            return Ok(MatrixDescriptor { major: Major::K, width, leading: 16, stride: stride * bytes });
        }
        if let (Some(leading), Some(stride)) = (along(&mn, across), down(&k, across)) {
            return Ok(MatrixDescriptor { major: Major::Mn, width, leading: leading * bytes, stride: stride * bytes });
        }
        Err(NOT_CANONICAL)
    }

    const fn width_of(&self, bits: i64) -> Result<SwizzleWidth, LayoutError> {
        let swizzle = tri!(self.swizzle().recast(bits, 8));
        let mut i = 1;
        while i < SwizzleWidth::ALL.len() {
            let known = SwizzleWidth::ALL[i].swizzle();
            if known.source_mask() == swizzle.source_mask() && known.target_mask() == swizzle.target_mask() {
                return Ok(SwizzleWidth::ALL[i]);
            }
            i += 1;
        }
        Err(NOT_CANONICAL)
    }
}

/// The distance of the next swizzled row's width along the contiguous mode; 0 where there is no next.
const fn along(mode: &Layout, across: i64) -> Option<i64> {
    let (extents, strides) = (mode.extents(), mode.strides());
    if strides[0] != 1 || extents[0] > across {
        return None;
    }
    match extents.len() {
        1 => Some(0),
        2 if extents[0] == across => Some(strides[1]),
        _ => None,
    }
}

/// The distance of the next eight rows, `across` apart each; 0 where there are eight only.
const fn down(mode: &Layout, across: i64) -> Option<i64> {
    let (extents, strides) = (mode.extents(), mode.strides());
    if strides[0] != across || extents[0] % 8 != 0 {
        return None;
    }
    match extents.len() {
        1 => Some(if extents[0] > 8 { 8 * across } else { 0 }),
        2 if extents[0] == 8 => Some(strides[1]),
        _ => None,
    }
}

const NOT_CANONICAL: LayoutError = LayoutError::Swizzle {
    operation: "matrix_descriptor",
    reason: "the layout is not made of one of the swizzled atoms (rows of 32, 64 or 128 bytes); use typed::MatrixTile",
};
