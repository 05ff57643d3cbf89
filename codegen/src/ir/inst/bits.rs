//! Bits: logic, shifts, counts, fields, byte permutation.

use super::*;
use crate::ir::attr::Lut;

family! {
    /// Bit operations.
    "bits" BitsOp {
        /// d = a & b.
        And "and" <ty: Logic> (d: W ty, a: R ty, b: R ty) Sm80 Pure;
        /// d = a | b.
        Or "or" <ty: Logic> (d: W ty, a: R ty, b: R ty) Sm80 Pure;
        /// d = a ^ b.
        Xor "xor" <ty: Logic> (d: W ty, a: R ty, b: R ty) Sm80 Pure;
        /// d = ~a; of a predicate, the other.
        Not "not" <ty: Logic> (d: W ty, a: R ty) Sm80 Pure;
        /// d: bit i is bit `4aᵢ + 2bᵢ + cᵢ` of the table.
        Lop3 "lop3" <ty: Word> (d: W ty, a: R ty, b: R ty, c: R ty) { lut: Lut } Sm80 Pure;
        /// d = a shifted left by n bits, zeros below. n at or above the width gives 0.
        Shl "shl" <ty: Int> (d: W ty, a: R ty, n: R U32) Sm80 Pure;
        /// d = a shifted right by n bits: zeros above for unsigned, copies of the sign for signed.
        /// n at or above the width acts as the width (0, or all sign).
        Shr "shr" <ty: Int> (d: W ty, a: R ty, n: R U32) Sm80 Pure;
        /// d = the high word of (hi:lo) shifted left by n mod 32.
        ShfL "shf.l" (d: W U32, lo: R U32, hi: R U32, n: R U32) Sm80 Pure;
        /// d = the low word of (hi:lo) shifted right by n mod 32.
        ShfR "shf.r" (d: W U32, lo: R U32, hi: R U32, n: R U32) Sm80 Pure;
        /// d = the number of ones in a.
        Popc "popc" <ty: Raw> (d: W U32, a: R ty) Sm80 Pure;
        /// d = the number of zeros above the highest one; the width if a = 0.
        Clz "clz" <ty: Raw> (d: W U32, a: R ty) Sm80 Pure;
        /// d = a with its bits in reverse order.
        Brev "brev" <ty: Raw> (d: W ty, a: R ty) Sm80 Pure;
        /// d = the position of the highest one (unsigned), or of the highest bit that differs from
        /// the sign (signed); 0xffffffff if there is none.
        Bfind "bfind" <ty: Wide> (d: W U32, a: R ty) Sm80 Pure;
        /// d = the field of `len` bits of a from bit `pos` on, zero-extended, or extended with the
        /// field's top bit for signed types. A field of no bits is 0. `pos + len` beyond the width
        /// is a fault of the program: the simulator reports it, hardware gives what the driver's
        /// compiler makes of it.
        Bfe "bfe" <ty: Wide> (d: W ty, a: R ty, pos: R U32, len: R U32) Sm80 Pure;
        /// d = b with its `len` bits from `pos` on replaced by the low bits of a. `pos + len`
        /// beyond the width is a fault as in `bfe`; `len` = 0 gives b.
        Bfi "bfi" <ty: Raw> (d: W ty, a: R ty, b: R ty, pos: R U32, len: R U32) Sm80 Pure;
        /// d: byte i is byte `s & 7` of (b:a), a being bytes 0 to 3, s nibble i of `sel`; if bit 3
        /// of s is set, the byte's sign bit repeated in all 8 bits.
        Prmt "prmt" (d: W U32, a: R U32, b: R U32, sel: R U32) Sm80 Pure;
    }
}
