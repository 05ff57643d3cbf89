//! Arithmetic: integers wrap, floats round to nearest with ties to even and keep subnormals, unless
//! a row says else.

use super::*;
use crate::ir::attr::Cmp;

family! {
    /// Arithmetic. Pairs (`f16x2`, `bf16x2`) work on both halves apart.
    "arith" ArithOp {
        /// d = a + b. Integers wrap. Floats: one rounding to nearest even; a NaN result is
        /// canonical (`0x7fff` in 16 bits, `0x7fffffff` in `f32`; in `f64` it is some NaN).
        Add "add" <ty: Num> (d: W ty, a: R ty, b: R ty) Sm80 Pure;
        /// d = a − b, as `add`.
        Sub "sub" <ty: Num> (d: W ty, a: R ty, b: R ty) Sm80 Pure;
        /// d = a · b. Integers: the low half of the product. Floats: one rounding.
        Mul "mul" <ty: Num> (d: W ty, a: R ty, b: R ty) Sm80 Pure;
        /// d = the high half of the full product a · b.
        MulHi "mul.hi" <ty: Int> (d: W ty, a: R ty, b: R ty) Sm80 Pure;
        /// d = the full product a · b, of twice the width.
        MulWide "mul.wide" <ty: Narrow> (d: W wide, a: R ty, b: R ty) Sm80 Pure;
        /// d = a · b + c, the low half, wrapping.
        Mad "mad" <ty: Int> (d: W ty, a: R ty, b: R ty, c: R ty) Sm80 Pure;
        /// d = a · b + c with one rounding, no rounding between.
        Fma "fma" <ty: Float> (d: W ty, a: R ty, b: R ty, c: R ty) Sm80 Pure;
        /// d = a / b, truncated toward zero. b = 0 is a fault of the program: the simulator reports
        /// it, hardware gives a machine-specific value. The least signed number divided by −1
        /// wraps.
        Div "div" <ty: Int> (d: W ty, a: R ty, b: R ty) Sm80 Pure;
        /// d = a − b · (a / b), with the sign of a. b = 0 as in `div`.
        Rem "rem" <ty: Int> (d: W ty, a: R ty, b: R ty) Sm80 Pure;
        /// d = a / b, correctly rounded (IEEE 754).
        DivRn "div.rn" <ty: Real> (d: W ty, a: R ty, b: R ty) Sm80 Pure;
        /// d = √a, correctly rounded; of a negative number a NaN, √−0 = −0.
        SqrtRn "sqrt.rn" <ty: Real> (d: W ty, a: R ty) Sm80 Pure;
        /// d = 1 / a, correctly rounded.
        RcpRn "rcp.rn" <ty: Real> (d: W ty, a: R ty) Sm80 Pure;
        /// d ≈ a / b, as a times `rcp.approx` of b: within 2.5 ulp for 2⁻¹²⁶ ≤ |b| ≤ 2¹²⁶; beyond,
        /// 0 (|b| larger; a NaN if a is infinite). Subnormal operands and results become zero of
        /// their sign, but a subnormal over a subnormal or zero may give an infinity for a NaN.
        DivApprox "div.approx" <ty: Single> (d: W ty, a: R ty, b: R ty) Sm80 Pure Approx;
        /// d ≈ √a, relative error at most 2⁻²³; subnormals become zero.
        SqrtApprox "sqrt.approx" <ty: Single> (d: W ty, a: R ty) Sm80 Pure Approx;
        /// d ≈ 1 / a within 1 ulp; subnormals become zero; 1/±0 = ±∞, 1/±∞ = ±0.
        RcpApprox "rcp.approx" <ty: Single> (d: W ty, a: R ty) Sm80 Pure Approx;
        /// d ≈ 1/√a, relative error at most 2⁻²²·⁹; subnormals become zero; of a negative number a
        /// NaN; of ±0, ±∞.
        RsqrtApprox "rsqrt.approx" <ty: Single> (d: W ty, a: R ty) Sm80 Pure Approx;
        /// d ≈ 2ᵃ. `f32`: within 2.06 ulp, subnormals become zero. 16-bit types: relative error at
        /// most 2⁻⁹·⁹ (`f16`) and 2⁻⁷ (`bf16`). 2^−∞ = +0, 2^+∞ = +∞. `bf16` and its pair need
        /// sm_90.
        Ex2Approx "ex2.approx" <ty: Half> (d: W ty, a: R ty) Sm80 Pure Approx;
        /// d ≈ log₂ a, absolute error at most 2⁻²² for 0.5 < a < 2, relative 2⁻²² elsewhere;
        /// subnormals become zero; of ±0, −∞; of a negative number a NaN.
        Lg2Approx "lg2.approx" <ty: Single> (d: W ty, a: R ty) Sm80 Pure Approx;
        /// d ≈ sin a, absolute error at most 2⁻²⁰·⁵ for |a| ≤ 2π; larger arguments lose it;
        /// subnormals become zero.
        SinApprox "sin.approx" <ty: Single> (d: W ty, a: R ty) Sm80 Pure Approx;
        /// d ≈ cos a, absolute error at most 2⁻²⁰·⁴ for |a| ≤ 2π; the rest as `sin.approx`.
        CosApprox "cos.approx" <ty: Single> (d: W ty, a: R ty) Sm80 Pure Approx;
        /// d ≈ tanh a, relative error at most 2⁻¹¹ (`f32`), absolute error at most 2⁻¹⁰·⁹⁸⁷ (`f16`)
        /// and 2⁻⁷·⁸ (`bf16`). `bf16` types need sm_90.
        TanhApprox "tanh.approx" <ty: Half> (d: W ty, a: R ty) Sm80 Pure Approx;
        /// d = the lesser of a and b. Floats: if one is a NaN, the other; if both, some NaN; −0 <
        /// +0.
        Min "min" <ty: Num> (d: W ty, a: R ty, b: R ty) Sm80 Pure;
        /// d = the greater of a and b, as `min`.
        Max "max" <ty: Num> (d: W ty, a: R ty, b: R ty) Sm80 Pure;
        /// d = −a. The least integer is a fault of the program: the simulator reports it, hardware
        /// may go on with the positive number of more bits. Floats: the sign bit is flipped; of a
        /// NaN, some NaN.
        Neg "neg" <ty: SignedNum> (d: W ty, a: R ty) Sm80 Pure;
        /// d = |a|. The least integer is a fault as in `neg`. Floats: the sign bit is cleared; of a
        /// NaN, some NaN.
        Abs "abs" <ty: SignedNum> (d: W ty, a: R ty) Sm80 Pure;
        /// d = c + Σᵢ aᵢ · bᵢ over the four bytes of a and b, which are signed for `s32` and
        /// unsigned for `u32`; wraps.
        Dp4a "dp4a" <ty: Word> (d: W ty, a: R ty, b: R ty, c: R ty) Sm80 Pure;
        /// d = a `cmp` b. Floats compare as IEEE 754; which comparisons are true of a NaN, [`Cmp`]
        /// says.
        Setp "setp" <ty: Ordered> (d: W Pred, a: R ty, b: R ty) { cmp: Cmp } Sm80 Pure;
        /// d = p ? a : b.
        Select "select" <ty: Any> (d: W ty, a: R ty, b: R ty, p: R Pred) Sm80 Pure;
    }
}
