//! The unfused ops by which tests state what the fused ops of a program compute.
//!
//! The lowering emits none of them, and no device runs them.

mod combine;
mod elementwise;
mod kv_append;
mod rms_norm;

pub use combine::Combine;
pub use elementwise::{Add, SiluMul};
pub use kv_append::KvAppend;
pub use rms_norm::RmsNorm;

use crate::ops::{RegisterError, register};

/// Makes the plain ops known: programs that hold them are valid, and read from JSON. Doing it again
/// changes nothing.
///
/// # Errors
/// If another op has the name of one.
///
/// ```
/// use tilewright_megakernel::ops::Op;
/// use tilewright_megakernel::testing::{Add, register_plain_ops};
/// register_plain_ops()?;
/// let op: Op = serde_json::from_str(
///     r#"{"add": {"a": {"buffer": 0, "index": [[0, 4]]}, "b": {"buffer": 1, "index": [[0, 4]]},
///         "out": {"buffer": 0, "index": [[0, 4]]}}}"#,
/// )?;
/// assert!(op.is::<Add>() && op.is_registered());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn register_plain_ops() -> Result<(), RegisterError> {
    register::<Add>()?;
    register::<SiluMul>()?;
    register::<RmsNorm>()?;
    register::<KvAppend>()?;
    register::<Combine>()
}
