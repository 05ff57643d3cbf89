//! A tile in shared memory as boxes of a tensor map: what one bulk copy fills.

use super::canonical::{Major, SwizzleWidth};
use crate::{LayoutError, Swizzled};

/// The boxes of an operand tile: stretches of the contiguous mode, one swizzled row wide, over all
/// lines of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorBoxes {
    /// The mode that is contiguous in memory.
    pub contiguous: usize,
    /// Elements of a box along it.
    pub width: i64,
    /// Boxes along it.
    pub count: i64,
    /// Elements of a box along the other mode.
    pub lines: i64,
    /// The swizzle of the box in shared memory.
    pub swizzle: SwizzleWidth,
}

impl Swizzled {
    /// The boxes of a tile (mn, k) of elements of `bits` bits: what tensor maps are encoded with.
    ///
    /// Law: the boxes cover the tile, `count · width · lines` elements, each in as many bytes of a
    /// line as it is swizzled in.
    ///
    /// Edge cases: a tile that is narrower than the swizzle is one box of its own width; one whose
    /// eights of lines lie apart has no boxes.
    ///
    /// Below, two boxes of 8 wide and 8 high: the first fills the offsets 0 to 63, the second those
    /// after.
    ///
    /// ```console
    /// $ tilewright layout show "gmma_smem_layout(K_SW32, 32, (8,16))" --tile 8,8
    ///   0   1   2   3   4   5   6   7 |  64  65  66  67  68  69  70  71
    ///   8   9  10  11  12  13  14  15 |  72  73  74  75  76  77  78  79
    ///  16  17  18  19  20  21  22  23 |  80  81  82  83  84  85  86  87
    ///  24  25  26  27  28  29  30  31 |  88  89  90  91  92  93  94  95
    ///  36  37  38  39  32  33  34  35 | 100 101 102 103  96  97  98  99
    ///  44  45  46  47  40  41  42  43 | 108 109 110 111 104 105 106 107
    ///  52  53  54  55  48  49  50  51 | 116 117 118 119 112 113 114 115
    ///  60  61  62  63  56  57  58  59 | 124 125 126 127 120 121 122 123
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{Swizzled, typed::{KMajor, MnMajor, OperandTile, StaticLayout}};
    /// type B = OperandTile<MnMajor, 16, 256, 64>;
    /// let boxes = Swizzled::new(B::SWIZZLE, 0, B::LAYOUT).tensor_boxes(16).unwrap();
    /// assert_eq!((boxes.contiguous, boxes.width, boxes.count, boxes.lines), (0, 64, 4, 64));
    /// ```
    ///
    /// # Errors
    /// As [`Swizzled::matrix_descriptor`], and where the lines of a box do not follow each other.
    pub const fn tensor_boxes(&self, bits: i64) -> Result<TensorBoxes, LayoutError> {
        let descriptor = tri!(self.matrix_descriptor(bits));
        let contiguous = match descriptor.major {
            Major::K => 1,
            Major::Mn => 0,
        };
        let across = descriptor.width.bytes() * 8 / bits;
        let extent = self.layout().extent(contiguous);
        let lines = self.layout().extent(1 - contiguous);
        if descriptor.stride != 0 && descriptor.stride * 8 / bits != 8 * across {
            let reason = "the lines of a tile do not follow each other, so that no box of a tensor map fills it";
            return Err(LayoutError::Swizzle { operation: "tensor_boxes", reason });
        }
        let width = if extent < across { extent } else { across };
        Ok(TensorBoxes { contiguous, width, count: extent / width, lines, swizzle: descriptor.width })
    }
}
