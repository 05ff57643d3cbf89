//! The fields of an sm_90 matrix descriptor, derived from a tile's layout.

use super::canonical::{Major, SwizzleWidth};
use crate::{Layout, LayoutError, Swizzled};

/// The fields of a matrix descriptor but for the address: PTX ISA, "Matrix Descriptor Format" under
/// `wgmma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixDescriptor {
    /// The contiguous index.
    pub major: Major,
    /// The width of the swizzle.
    pub width: SwizzleWidth,
    /// MN-major: bytes to the next stretch of M or N. K-major: not read by the hardware, 16.
    pub leading: i64,
    /// Bytes to the next eight rows: of M or N where K is contiguous, of K elsewhere.
    pub stride: i64,
}

impl Swizzled {
    /// The descriptor of a tile (mn, k) of elements of `bits` bits, or why the hardware cannot read
    /// it.
    ///
    /// Law: of copies of an atom
    /// ([`CanonicalAtom::tile_to_shape`](super::canonical::CanonicalAtom::tile_to_shape)), major
    /// and width are the atom's.
    ///
    /// Edge cases: `stride` and an MN-major `leading` are 0 where a tile has no second eight rows
    /// or stretch. An offset added before the swizzle belongs to the address, not to the
    /// descriptor. Interleaved atoms are refused.
    ///
    /// ```console
    /// $ tilewright layout eval "gmma_smem_layout(K_SW32, 32, (16,8))"
    /// S<1,2,3> o 0 o ((8,2),(8,1)):((8,64),(1,0))
    /// $ tilewright layout show "gmma_smem_layout(K_SW32, 32, (16,8))" --tile 8,8
    ///   0   1   2   3   4   5   6   7
    ///   8   9  10  11  12  13  14  15
    ///  16  17  18  19  20  21  22  23
    ///  24  25  26  27  28  29  30  31
    ///  36  37  38  39  32  33  34  35
    ///  44  45  46  47  40  41  42  43
    ///  52  53  54  55  48  49  50  51
    ///  60  61  62  63  56  57  58  59
    /// -------------------------------
    ///  64  65  66  67  68  69  70  71
    ///  72  73  74  75  76  77  78  79
    ///  80  81  82  83  84  85  86  87
    ///  88  89  90  91  92  93  94  95
    /// 100 101 102 103  96  97  98  99
    /// 108 109 110 111 104 105 106 107
    /// 116 117 118 119 112 113 114 115
    /// 124 125 126 127 120 121 122 123
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{IntTuple, ops::Order, swizzle::canonical::CanonicalAtom};
    /// let atom = CanonicalAtom::from_name("K_SW128").unwrap();
    /// let tile = atom.tile_to_shape(16, &IntTuple::parse("(128,64)").unwrap(), Order::Left).unwrap();
    /// assert_eq!(tile.matrix_descriptor(16).unwrap().stride, 1024);
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Swizzle`] if the layout is not one of the swizzled canonical ones.
    pub const fn matrix_descriptor(&self, bits: i64) -> Result<MatrixDescriptor, LayoutError> {
        let width = tri!(self.width_of(bits));
        let across = width.bytes() * 8 / bits;
        let bytes = bits / 8;
        let mn = tri!(self.layout().mode(0)).coalesce();
        let k = tri!(self.layout().mode(1)).coalesce();
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

/// The distance of the next swizzled row's width along the contiguous mode; 0 where there is no
/// next.
const fn along(mode: &Layout, across: i64) -> Option<i64> {
    let extents = mode.extents();
    let strides = mode.strides();
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
    let extents = mode.extents();
    let strides = mode.strides();
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
    reason: "the layout is not made of one of the swizzled atoms (rows of 32, 64 or 128 bytes); use typed::OperandTile",
};
