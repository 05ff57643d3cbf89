//! The storage of keys and values in a session.

use std::str::FromStr;

use thiserror::Error;
use tilewright_layout::DType;

/// The storage type of keys and values.
///
/// ```
/// use tilewright::engine::KvType;
/// assert_eq!("fp8".parse(), Ok(KvType::Fp8));
/// assert_eq!("int8".parse::<KvType>().unwrap_err().to_string(), "`int8` is no type of keys and values; known are bf16 and fp8");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// Stored as bf16.
    Bf16,
    /// Stored as e4m3 codes. A value is its code times a scale of the layer's keys or values: the
    /// checkpoint's scale, else 1.
    Fp8,
}

/// A name of no type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{found}` is no type of keys and values; known are bf16 and fp8")]
pub struct NoKvType {
    found: String,
}

impl KvType {
    /// The type of a program's pools.
    pub(crate) fn dtype(self) -> DType {
        match self {
            KvType::Bf16 => DType::BF16,
            KvType::Fp8 => DType::F8E4M3,
        }
    }
}

impl FromStr for KvType {
    type Err = NoKvType;

    fn from_str(name: &str) -> Result<KvType, NoKvType> {
        match name {
            "bf16" => Ok(KvType::Bf16),
            "fp8" => Ok(KvType::Fp8),
            found => Err(NoKvType { found: found.to_owned() }),
        }
    }
}
