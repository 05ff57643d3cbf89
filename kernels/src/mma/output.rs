//! Types that sums are stored as.

use half::{bf16, f16};
use tilewright_codegen::build::{Bf16x2, F16x2, Numeric, Scalar, Val};

/// Packs two results into one register, the first lowest.
pub type Pack<'k> = fn(Val<'k, f32>, Val<'k, f32>) -> Val<'k, u32>;

/// A type that sums are stored as.
pub trait OutputType: Scalar + Numeric {
    /// The function that packs pairs of them into a register; `None` for 32-bit types.
    fn pack<'k>() -> Option<Pack<'k>>;
}

macro_rules! outputs {
    ($($D:ty: $pack:expr;)+) => { $(
        impl OutputType for $D {
            fn pack<'k>() -> Option<Pack<'k>> {
                $pack
            }
        }
    )+ };
}

outputs! {
    bf16: Some(|a, b| a.pair::<Bf16x2>(b).bits());
    f16: Some(|a, b| a.pair::<F16x2>(b).bits());
    f32: None;
    i32: None;
}
