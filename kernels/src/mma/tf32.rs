//! tf32 on the host: f32 of which the tensor cores read sign, exponent and ten bits of mantissa.

/// Numbers of 19 bits. Memory and registers hold them as `f32`, whose low 13 bits the instruction
/// leaves aside: what was not rounded before is cut off.
#[derive(Clone, Copy, Debug)]
pub enum Tf32 {}

/// Bits of an f32 that a tf32 has not.
const LOW: u32 = 13;

impl Tf32 {
    /// Truncates a number as the instruction reads it.
    ///
    /// ```
    /// use tilewright_kernels::mma::Tf32;
    /// let third = 1.0f32 / 3.0;
    /// assert!(Tf32::truncated(third) <= third && third - Tf32::truncated(third) < 2f32.powi(-12));
    /// ```
    pub fn truncated(value: f32) -> f32 {
        f32::from_bits(value.to_bits() >> LOW << LOW)
    }

    /// The nearest number, ties away from zero: `cvt.rna.tf32.f32`, on the device
    /// [`Val::tf32`](tilewright_codegen::build::Val::tf32). NaN stays NaN.
    ///
    /// ```
    /// use tilewright_kernels::mma::Tf32;
    /// let one = 1.0f32;
    /// let step = 2f32.powi(-10);
    /// assert_eq!([Tf32::nearest(one + step / 2.0), Tf32::nearest(-one - step / 2.0)], [one + step, -one - step]);
    /// assert_eq!(Tf32::nearest(one + step / 4.0), one);
    /// ```
    pub fn nearest(value: f32) -> f32 {
        if value.is_finite() { Tf32::truncated(f32::from_bits(value.to_bits() + (1 << (LOW - 1)))) } else { value }
    }
}
