//! Devices: memory, kernels and streams, with one interface for GPUs and for the simulator.
//!
//! | file | what it holds |
//! |---|---|
//! | [`backend`] | the trait that a kind of device implements, and what passes through it |
//! | `any_device` | a device of any kind |
//! | `buffer`, `host` | device memory; pinned and mapped host memory |
//! | `source` | what is loaded: a signature, and the code |
//! | `kernel`, `args` | a loaded kernel; arguments and the checks of a launch |
//! | `stream` | streams, events, graphs |
//! | `tensor_shape`, `tensor_map` | tensors as the copy engine sees them: shapes, and maps of buffers |
//! | `properties` | what a device is, and whether it is a given target |
//! | [`cuda`] | NVIDIA GPUs through the driver, found when the program runs |
//! | [`sim`] | the simulator as a device: same memory, same launches, and faults as errors |
//! | `name` | devices by name: `sim:7`, `cuda:0` |
//! | `peers` | devices that reach each other's memory, launches side by side |
//! | `collective` | sums over devices by NCCL, in graphs that are recorded together |
//! | `link` | a way from a device to one of another process, by NCCL |
//! | `error` | what can go wrong |
//!
//! # Who checks what
//! Everything that does not depend on the kind of device is checked here, in front of
//! [`backend::Backend`]: lengths, argument types, grids, residency, tensor maps, whether things
//! belong together. All kinds of devices accept the same programs.
//!
//! # Memory
//! A [`Buffer`] is freed with its last clone; freeing waits for work that runs. Work in a [`Graph`]
//! keeps what its arguments name. Addresses that a program writes into tables of its own are its
//! own affair: it keeps the buffers.
//!
//! This module uses `ir` for signatures, `verify` and `ptx` for what is loaded, `target` for
//! figures, and in [`mod@sim`] the simulator. Only `cuda` has unsafe code.

mod any_device;
mod args;
pub mod backend;
mod buffer;
mod collective;
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "calls of the CUDA driver, wrapped one by one")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "without_cuda.rs"]
pub mod cuda;
mod error;
mod host;
mod kernel;
mod link;
mod name;
mod peers;
mod properties;
pub mod sim;
mod source;
mod stream;
mod tensor_map;
mod tensor_shape;

pub use any_device::Device;
pub(crate) use args::takes;
pub use args::{Arg, MemoryArg};
pub use backend::{End, Facts, Work};
pub use buffer::Buffer;
pub use collective::{Collective, Summed};
pub use error::DeviceError;
pub use host::{Mapped, Pending, Pinned, Word};
pub use kernel::{Grid, Kernel};
pub use link::DeviceLink;
pub use name::{Name, open};
pub use peers::{launch_side_by_side, open_peers};
pub use properties::Properties;
pub use source::{KernelSource, PtxSource, Signature};
pub use stream::{Event, Graph, Stream};
pub use tensor_map::TensorMap;
pub use tensor_shape::{MAX_RANK, Outside, Promotion, TensorShape, TileSwizzle};
