//! The numbers that buffers hold.

use crate::ir::Ty;
use bytemuck::Pod;
use half::{bf16, f16};
use tilewright_layout::DType;

/// A number of a buffer.
pub trait TrialElement: Pod + PartialEq {
    /// Its type.
    const DTYPE: DType;

    /// Its value.
    fn value(self) -> f64;
}

macro_rules! elements {
    ($($T:ty => $dtype:ident $value:expr;)+) => {$(
        impl TrialElement for $T {
            const DTYPE: DType = DType::$dtype;

            fn value(self) -> f64 {
                let value: fn($T) -> f64 = $value;
                value(self)
            }
        }
    )+};
}

elements! {
    f64 => F64 |v| v;
    f32 => F32 f64::from;
    f16 => F16 f64::from;
    bf16 => BF16 f64::from;
    i64 => I64 |v| v as f64;
    i32 => I32 f64::from;
    i16 => I16 f64::from;
    i8 => I8 f64::from;
    u64 => U64 |v| v as f64;
    u32 => U32 f64::from;
    u16 => U16 f64::from;
    u8 => U8 f64::from;
}

/// The type of the IR that a float's elements have; `None` for integers, whose bits may stand for
/// anything.
pub(super) fn float(dtype: DType) -> Option<Ty> {
    match dtype {
        DType::F64 => Some(Ty::F64),
        DType::F32 => Some(Ty::F32),
        DType::F16 => Some(Ty::F16),
        DType::BF16 => Some(Ty::BF16),
        _ => None,
    }
}

/// A function that reads an element from its bytes.
pub(super) type ReadElement = fn(&[u8]) -> f64;

/// The reader of a type.
pub(super) fn reader<T: TrialElement>() -> ReadElement {
    |bytes| bytemuck::try_pod_read_unaligned::<T>(bytes).map_or(f64::NAN, T::value)
}
