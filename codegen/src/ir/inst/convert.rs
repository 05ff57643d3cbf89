//! Conversions: numbers to numbers, bits to bits, packing.

use super::*;
use crate::ir::attr::{Clamp, Fp8, Relu, Round};

family! {
    /// Conversions.
    "convert" ConvertOp {
        /// d = a, converted. Integer to integer: sign- or zero-extended by the source's type, or
        /// cut off; with `sat`, clamped to the result's range. Integer to float: rounded. Float to
        /// integer: rounded to an integer in the named direction, then clamped to the result's
        /// range; a NaN gives the result's highest bit where source or result has 64 bits, else 0.
        /// Float to a wider float: exact; to a narrower one: rounded. A NaN stays a NaN (canonical
        /// in 16 bits, but from `f64`). The rounding is `Exact` where none is needed and named
        /// where it is. Not defined between `f16` and `bf16` (convert through `f32`) nor between
        /// `bf16` and 8-bit integers. `bf16` to `f32` keeps all bits, a NaN's too. On sm_80 and
        /// sm_89 `bf16` converts with `f32` alone; from sm_90 on with every type.
        Cvt "cvt" <ty: Scalar, from: Scalar> (d: W ty, a: R from) { round: Round, clamp: Clamp } Sm80 Pure;
        /// d = the float a rounded to an integral value of the same type; −0 stays.
        RoundInt "cvt.int" <ty: Real> (d: W ty, a: R ty) { round: Round } Sm80 Pure;
        /// d = the same bits as another type of the same width. Pointers have their own rows.
        Bitcast "bitcast" <ty: Data, from: Data> (d: W ty, a: R from) Sm80 Pure;
        /// d = the pair (lo, hi), each rounded to nearest even, `lo` in the low half; with `relu`,
        /// max(·, +0) and NaN → canonical NaN.
        CvtPair "cvt.pair" <ty: Pair> (d: W ty, lo: R F32, hi: R F32) { relu: Relu } Sm80 Pure;
        /// d = the 8-bit floats (lo, hi) in the low and high byte, rounded to nearest even and
        /// clamped to the largest finite number; NaN → 0x7f in both formats.
        CvtFp8 "cvt.fp8" (d: W U16, lo: R F32, hi: R F32) { fp8: Fp8 } Sm89 Pure;
        /// d = the two 8-bit floats of a as `f16`, exact (e5m2's infinities included).
        Fp8ToHalf "cvt.from_fp8" (d: W F16x2, a: R U16) { fp8: Fp8 } Sm89 Pure;
        /// d = a rounded to tf32, to nearest with ties away from zero: a `u32` whose low 13 bits
        /// are zero. A NaN loses its low 13 bits, and becomes an infinity if it has no others.
        CvtTf32 "cvt.tf32" (d: W U32, a: R F32) Sm80 Pure;
        /// d = the parts side by side, the first lowest. The parts' widths add up to the width of
        /// `ty`.
        Pack "pack" <ty: Packed, from: Part> (d: W ty, parts: Rs from) Sm80 Pure;
        /// The parts of a, the lowest first. The parts' widths add up to the width of `from`.
        Unpack "unpack" <ty: Part, from: Packed> (parts: Ws ty, a: R from) Sm80 Pure;
    }
}
