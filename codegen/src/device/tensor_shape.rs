//! Tensors as the copy engine sees them: shapes, boxes, swizzles.

use super::DeviceError;
use tilewright_layout::DType;

/// Dimensions of a tensor map at most.
pub const MAX_RANK: usize = 5;

/// The tensor and the box of one copy. Axis 0 is the fastest: its elements lie next to each other.
///
/// ```
/// use tilewright_codegen::device::{TensorShape, TileSwizzle};
/// use tilewright_layout::DType;
/// // A row-major 4096 × 1024 matrix of bf16, copied in tiles of 128 rows × 64 columns.
/// let shape = TensorShape::row_major(DType::BF16, [4096, 1024], [128, 64]).swizzle(TileSwizzle::Bytes128);
/// assert_eq!(shape.dims, [1024, 4096]);
/// assert_eq!(shape.strides, [2048]);
/// assert_eq!(shape.tile_bytes(), 16_384);
/// shape.check().unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorShape {
    /// Type of the elements.
    pub dtype: DType,
    /// Elements along each axis, 1 to 5 axes.
    pub dims: Vec<u64>,
    /// Bytes from one element to the next along each axis but axis 0.
    pub strides: Vec<u64>,
    /// Elements of the box along each axis.
    pub tile: Vec<u32>,
    /// The permutation of the box's bytes in shared memory.
    pub swizzle: TileSwizzle,
    /// The fill value where the box leaves the tensor.
    pub outside: Outside,
    /// The part of a line that the L2 cache fetches.
    pub promotion: Promotion,
}

/// The permutation of a box's bytes in shared memory: 16-byte chunks of a row are exchanged by the
/// row's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TileSwizzle {
    /// Not at all.
    #[default]
    None,
    /// Within 32 bytes.
    Bytes32,
    /// Within 64 bytes.
    Bytes64,
    /// Within 128 bytes.
    Bytes128,
}

impl TileSwizzle {
    /// Bytes of the box's inner row at most, and from row to row in shared memory; `None` without a
    /// swizzle.
    pub const fn span(self) -> Option<u64> {
        match self {
            TileSwizzle::None => None,
            TileSwizzle::Bytes32 => Some(32),
            TileSwizzle::Bytes64 => Some(64),
            TileSwizzle::Bytes128 => Some(128),
        }
    }
}

/// The fill value of a copy where the box leaves the tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outside {
    /// Zero.
    #[default]
    Zero,
    /// A special not-a-number, which fused multiply-adds of such operands take for zero. Floating
    /// point only.
    Nan,
}

/// The amount that the L2 cache fetches at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promotion {
    /// The requested bytes only.
    #[default]
    None,
    /// 64 bytes.
    Bytes64,
    /// 128 bytes.
    Bytes128,
    /// 256 bytes.
    Bytes256,
}

impl TensorShape {
    /// A dense row-major matrix `[rows, columns]`, copied in tiles of `[rows, columns]`.
    pub fn row_major(dtype: DType, [rows, columns]: [u64; 2], [tile_rows, tile_columns]: [u32; 2]) -> TensorShape {
        TensorShape {
            dtype,
            dims: vec![columns, rows],
            strides: vec![columns.saturating_mul(dtype.bytes() as u64)],
            tile: vec![tile_columns, tile_rows],
            swizzle: TileSwizzle::default(),
            outside: Outside::default(),
            promotion: Promotion::default(),
        }
    }

    /// Sets the swizzle.
    pub fn swizzle(self, swizzle: TileSwizzle) -> TensorShape {
        TensorShape { swizzle, ..self }
    }

    /// Bytes that one copy writes to shared memory, as an mbarrier counts them. With a swizzle,
    /// rows narrower than its span leave gaps between them.
    pub fn tile_bytes(&self) -> u64 {
        self.tile.iter().map(|&n| u64::from(n)).product::<u64>() * self.dtype.bytes() as u64
    }

    /// Bytes from the first element to the end of the last.
    pub fn extent_bytes(&self) -> u64 {
        let size = self.dtype.bytes() as u64;
        let strides = std::iter::once(size).chain(self.strides.iter().copied());
        let last = self.dims.iter().zip(strides).map(|(&n, stride)| n.saturating_sub(1).saturating_mul(stride));
        last.fold(size, u64::saturating_add)
    }

    /// Checks that the hardware supports the map (CUDA driver API, `cuTensorMapEncodeTiled`).
    ///
    /// # Errors
    /// [`DeviceError::TensorMap`] with the rule that it breaks.
    pub fn check(&self) -> Result<(), DeviceError> {
        let fail = |rule: String| Err(DeviceError::TensorMap { rule });
        let rank = self.dims.len();
        if !(1..=MAX_RANK).contains(&rank) {
            return fail(format!("has 1 to {MAX_RANK} axes, not {rank}"));
        }
        if self.strides.len() != rank - 1 || self.tile.len() != rank {
            let strides = self.strides.len();
            let tile = self.tile.len();
            return fail(format!(
                "of {rank} axes has {} strides and {rank} box sizes, not {strides} and {tile}",
                rank - 1
            ));
        }
        if let Some(n) = self.dims.iter().find(|&&n| n == 0 || n > 1 << 32) {
            return fail(format!("has 1 to 2^32 elements along an axis, not {n}"));
        }
        if let Some(stride) = self.strides.iter().find(|&&s| s == 0 || s >= 1 << 40 || !s.is_multiple_of(16)) {
            return fail(format!("has strides that are multiples of 16 bytes below 2^40, not {stride}"));
        }
        if let Some(n) = self.tile.iter().find(|n| !(1..=256).contains(*n)) {
            return fail(format!("copies 1 to 256 elements along an axis, not {n}"));
        }
        let row = u64::from(self.tile[0]) * self.dtype.bytes() as u64;
        if !row.is_multiple_of(16) {
            return fail(format!("copies rows of a multiple of 16 bytes, not {row}"));
        }
        if let Some(span) = self.swizzle.span().filter(|&span| row > span) {
            return fail(format!("with a swizzle of {span} bytes copies rows of at most {span} bytes, not {row}"));
        }
        if self.outside == Outside::Nan && !self.dtype.is_float() {
            return fail(format!("of {} cannot read not-a-number outside the tensor", self.dtype));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_said() {
        let good = TensorShape::row_major(DType::BF16, [64, 64], [64, 64]).swizzle(TileSwizzle::Bytes128);
        good.check().expect("the shape that the cases below spoil");
        let bad = [
            TensorShape { dims: vec![], ..good.clone() },
            TensorShape { strides: vec![], ..good.clone() },
            TensorShape { dims: vec![64, 0], ..good.clone() },
            TensorShape { strides: vec![130], ..good.clone() },
            TensorShape { tile: vec![64, 257], ..good.clone() },
            TensorShape { tile: vec![4, 64], ..good.clone() },
            TensorShape { tile: vec![128, 64], ..good.clone() },
            TensorShape { dtype: DType::U16, outside: Outside::Nan, ..good.clone() },
        ];
        let text = bad.map(|shape| shape.check().expect_err("spoilt").to_string()).join("\n");
        insta::assert_snapshot!(text, @"
        a tensor map has 1 to 5 axes, not 0
        a tensor map of 2 axes has 1 strides and 2 box sizes, not 0 and 2
        a tensor map has 1 to 2^32 elements along an axis, not 0
        a tensor map has strides that are multiples of 16 bytes below 2^40, not 130
        a tensor map copies 1 to 256 elements along an axis, not 257
        a tensor map copies rows of a multiple of 16 bytes, not 8
        a tensor map with a swizzle of 128 bytes copies rows of at most 128 bytes, not 256
        a tensor map of u16 cannot read not-a-number outside the tensor
        ");
    }

    #[test]
    fn the_extent_ends_with_the_last_element() {
        let mut shape = TensorShape::row_major(DType::F32, [3, 5], [1, 4]);
        assert_eq!(shape.extent_bytes(), 3 * 5 * 4);
        shape.strides = vec![32];
        assert_eq!(shape.extent_bytes(), 2 * 32 + 5 * 4);
    }
}
