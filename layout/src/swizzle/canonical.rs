//! The shared-memory layouts that the hardware reads: matrix atoms of sm_90, and `ldmatrix` rows.
//!
//! A warpgroup matrix instruction reads its operands through a descriptor that knows four swizzles,
//! in 16-byte units: none, 32, 64 and 128 bytes (PTX ISA, "Shared Memory Matrix Layout"). The
//! tensor-map engine writes the same four. An operand tile is copies of an 8-row atom; see
//! [`Layout::tile_to_shape`].

use crate::ops::Order;
use crate::{IntTuple, Layout, LayoutError, Swizzle, Swizzled};

/// Bytes of a row that the hardware mixes with the row number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SwizzleWidth {
    /// No swizzle: rows of 16 bytes, interleaved.
    Interleaved,
    /// Rows of 32 bytes.
    Bytes32,
    /// Rows of 64 bytes.
    Bytes64,
    /// Rows of 128 bytes.
    Bytes128,
}

/// The contiguous index of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Major {
    /// The contraction index: row-major A, column-major B.
    K,
    /// The row index of A, or the column index of B.
    Mn,
}

/// A canonical atom: the smallest operand tile that a swizzle is defined on.
///
/// ```
/// use tilewright_layout::swizzle::canonical::{CanonicalAtom, Major, SwizzleWidth};
/// let atom = CanonicalAtom { major: Major::K, width: SwizzleWidth::Bytes128 };
/// assert_eq!(atom.of_elements(16).unwrap().to_string(), "S<3,3,3> o 0 o (8,64):(64,1)");
/// assert_eq!(CanonicalAtom::from_name("K_SW128"), Some(atom));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CanonicalAtom {
    /// The contiguous index.
    pub major: Major,
    /// The width of the swizzle.
    pub width: SwizzleWidth,
}

impl SwizzleWidth {
    /// Every width, narrowest first.
    pub const ALL: [SwizzleWidth; 4] =
        [SwizzleWidth::Interleaved, SwizzleWidth::Bytes32, SwizzleWidth::Bytes64, SwizzleWidth::Bytes128];

    /// Bytes of a row.
    pub const fn bytes(self) -> i64 {
        16 << self.bits()
    }

    /// The swizzle of byte addresses: `S<bits,4,3>`.
    pub const fn swizzle(self) -> Swizzle {
        Swizzle::constant(Swizzle::new(self.bits(), 4, 3))
    }

    const fn bits(self) -> i64 {
        match self {
            SwizzleWidth::Interleaved => 0,
            SwizzleWidth::Bytes32 => 1,
            SwizzleWidth::Bytes64 => 2,
            SwizzleWidth::Bytes128 => 3,
        }
    }
}

impl CanonicalAtom {
    /// Every atom.
    pub const ALL: [CanonicalAtom; 8] = {
        let mut all = [CanonicalAtom { major: Major::K, width: SwizzleWidth::Interleaved }; 8];
        let mut i = 0;
        while i < 4 {
            all[i].width = SwizzleWidth::ALL[i];
            all[i + 4] = CanonicalAtom { major: Major::Mn, width: SwizzleWidth::ALL[i] };
            i += 1;
        }
        all
    };

    /// The name used in the field, such as `K_SW128` or `MN_INTER`.
    pub const fn name(self) -> &'static str {
        match (self.major, self.width) {
            (Major::K, SwizzleWidth::Interleaved) => "K_INTER",
            (Major::K, SwizzleWidth::Bytes32) => "K_SW32",
            (Major::K, SwizzleWidth::Bytes64) => "K_SW64",
            (Major::K, SwizzleWidth::Bytes128) => "K_SW128",
            (Major::Mn, SwizzleWidth::Interleaved) => "MN_INTER",
            (Major::Mn, SwizzleWidth::Bytes32) => "MN_SW32",
            (Major::Mn, SwizzleWidth::Bytes64) => "MN_SW64",
            (Major::Mn, SwizzleWidth::Bytes128) => "MN_SW128",
        }
    }

    /// The atom of that name.
    pub fn from_name(name: &str) -> Option<CanonicalAtom> {
        CanonicalAtom::ALL.into_iter().find(|atom| atom.name() == name)
    }

    /// The atom in units of bits: 8 rows of the swizzle's width, (mn, k) to bit. The swizzle is
    /// that of byte addresses.
    pub const fn of_bits(self) -> Swizzled {
        let row = self.width.bytes() * 8;
        let rows = Layout::constant(Layout::tuple(&[Layout::raw_leaf(8, row), Layout::raw_leaf(row, 1)]));
        let layout = match self.major {
            Major::K => rows,
            Major::Mn => Layout::constant(rows.select(&[1, 0])),
        };
        Swizzled::new(self.width.swizzle(), 0, layout)
    }

    /// The atom in elements of `bits` bits, swizzle included: (mn, k) to element.
    ///
    /// Law: [`of_bits`](CanonicalAtom::of_bits) in larger elements: bit offsets divided by `bits`.
    ///
    /// Edge cases: elements of more than 16 bytes swallow bits of the swizzle; rows that are not a
    /// whole number of elements are refused.
    ///
    /// ```console
    /// $ tilewright layout eval "gmma_atom(MN_SW32, 16)"
    /// S<1,3,3> o 0 o (16,8):(1,16)
    /// $ tilewright layout show "gmma_atom(K_SW32, 32)"
    ///  0  1  2  3  4  5  6  7
    ///  8  9 10 11 12 13 14 15
    /// 16 17 18 19 20 21 22 23
    /// 24 25 26 27 28 29 30 31
    /// 36 37 38 39 32 33 34 35
    /// 44 45 46 47 40 41 42 43
    /// 52 53 54 55 48 49 50 51
    /// 60 61 62 63 56 57 58 59
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Indivisible`] or [`LayoutError::Argument`] where a row is not a whole number
    /// of elements.
    pub const fn of_elements(self, bits: i64) -> Result<Swizzled, LayoutError> {
        let swizzle = tri!(self.width.swizzle().recast(8, bits));
        Ok(Swizzled::new(swizzle, 0, tri!(self.of_bits().layout().upcast(bits))))
    }

    /// Copies of the atom that fill `shape`, in elements of `bits` bits.
    ///
    /// Law: [`Layout::tile_to_shape`] of the atom, followed by the atom's swizzle: every copy
    /// begins at a multiple of the swizzle's period.
    ///
    /// Edge cases: a shape that is not a whole number of atoms is refused.
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
    /// assert_eq!(tile.to_string(), "S<3,3,3> o 0 o ((8,16),(64,1)):((64,512),(1,0))");
    /// ```
    ///
    /// # Errors
    /// As [`CanonicalAtom::of_elements`] and [`Layout::tile_to_shape`].
    pub const fn tile_to_shape(self, bits: i64, shape: &IntTuple, order: Order<'_>) -> Result<Swizzled, LayoutError> {
        let atom = tri!(self.of_elements(bits));
        Ok(Swizzled::new(atom.swizzle(), 0, tri!(atom.layout().tile_to_shape(shape, order))))
    }
}

/// The swizzle, in 16-byte units, that lets `ldmatrix` read 8 rows of `row_bytes` without a bank
/// conflict.
///
/// A row of fewer than 128 bytes shares its banks with `128 / row_bytes` others, so fewer bits need
/// mixing.
///
/// Law: 8 rows of the swizzled tile, read 16 bytes each from one column of units, lie in 8
/// different units of the 128 bytes that the banks span.
///
/// Edge cases: rows of 16 bytes need no swizzle; of rows longer than 128 bytes the first 8 units
/// are mixed.
///
/// ```console
/// $ tilewright layout show "(8,8):(8,1)"
///  0  1  2  3  4  5  6  7
///  8  9 10 11 12 13 14 15
/// 16 17 18 19 20 21 22 23
/// 24 25 26 27 28 29 30 31
/// 32 33 34 35 36 37 38 39
/// 40 41 42 43 44 45 46 47
/// 48 49 50 51 52 53 54 55
/// 56 57 58 59 60 61 62 63
/// $ tilewright layout show "S<3,0,3> o 0 o (8,8):(8,1)"
///  0  1  2  3  4  5  6  7
///  9  8 11 10 13 12 15 14
/// 18 19 16 17 22 23 20 21
/// 27 26 25 24 31 30 29 28
/// 36 37 38 39 32 33 34 35
/// 45 44 47 46 41 40 43 42
/// 54 55 52 53 50 51 48 49
/// 63 62 61 60 59 58 57 56
/// ```
///
/// ```
/// use tilewright_layout::swizzle::canonical::ldmatrix_swizzle;
/// assert_eq!(ldmatrix_swizzle(128).unwrap().to_string(), "S<3,0,3>");
/// assert_eq!(ldmatrix_swizzle(32).unwrap().to_string(), "S<1,0,3>");
/// ```
///
/// # Errors
/// [`LayoutError::Argument`] where the row is not a power of two of at least 16 bytes.
pub const fn ldmatrix_swizzle(row_bytes: i64) -> Result<Swizzle, LayoutError> {
    if row_bytes < 16 || row_bytes & (row_bytes - 1) != 0 {
        let argument = "the row in bytes";
        let bound = "a power of two of at least 16";
        return Err(LayoutError::Argument { operation: "ldmatrix_swizzle", argument, value: row_bytes, bound });
    }
    let units = if row_bytes / 16 > 8 { row_bytes / 16 } else { 8 };
    let ways = if row_bytes / 16 < 8 { row_bytes / 16 } else { 8 };
    Swizzle::new(ways.trailing_zeros() as i64, 0, units.trailing_zeros() as i64)
}
