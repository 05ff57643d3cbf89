//! Memory that stays on a device between runs: weights, KV pools, compiled kernels. All machines
//! that run a model there share it, whichever back end they belong to.
//!
//! | file | what it holds |
//! |---|---|
//! | `stored` | weights as they are stored, bound to buffers and sent |
//! | `stream` | packed weights: the order in which they are streamed |
//! | `rounded` | weights rounded to bf16 |
//! | `packed` | what lies where among packed weights |
//! | `weights` | a model's weights on its devices |
//! | `kv` | its KV pools |
//! | `kernels` | kernels, each compiled once |
//!
//! This module imports `program`, `weights` and what back ends share; back ends import it.

mod kernels;
pub(in crate::vm) mod kv;
mod packed;
mod rounded;
pub(in crate::vm) mod stored;
pub(in crate::vm) mod stream;
mod weights;

pub use kernels::{Compilation, DeviceKernels};
pub use kv::{DeviceKv, pool_fits};
pub use packed::Packed;
pub(in crate::vm) use packed::PackedStrips;
pub use stored::RotationTable;
pub use stream::{Rows, StageOrder, Stream};
pub use weights::DeviceWeights;
