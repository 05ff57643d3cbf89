//! Devices: memory, kernels and streams, with one interface for GPUs and for the simulator.
//!
//! | file | what it holds |
//! |---|---|
//! | [`backend`] | the trait that a kind of device implements, and what passes through it |
//! | `buffer`, `host` | device memory; pinned and mapped host memory |
//! | `source` | what is loaded: a signature, and the code |
//! | `kernel`, `args` | a loaded kernel; arguments and the checks of a launch |
//! | `stream` | streams, events, graphs |
//! | `tensor_map` | tensors as the copy engine sees them |
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
//! Everything that does not depend on the kind of device is checked here, in front
//! of [`backend::Backend`]: lengths, argument types, grids, residency, tensor maps, whether things
//! belong together. What one kind accepts, the others accept.
//!
//! # Memory
//! A [`Buffer`] is freed with its last clone; freeing waits for work that runs. Work in a [`Graph`]
//! keeps what its arguments name. Addresses that a program writes into tables of its own are its
//! own affair: it keeps the buffers.
//!
//! This module uses `ir` for signatures, `verify` and `ptx` for what is loaded, `target` for
//! figures, and in [`mod@sim`] the simulator. Only `cuda` has unsafe code.

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

pub(crate) use args::takes;
pub use args::{Arg, MemoryArg};
pub use backend::{Facts, Work};
pub use buffer::Buffer;
pub use collective::{Collective, Summed};
pub use error::DeviceError;
pub use host::{Mapped, Pending, Pinned, Word};
pub use kernel::{Grid, Kernel};
pub use link::{DeviceLink, End};
pub use name::{Name, open};
pub use peers::{launch_side_by_side, open_peers};
pub use properties::Properties;
pub use source::{KernelSource, PtxSource, Signature};
pub use stream::{Event, Graph, Stream};
pub use tensor_map::{MAX_RANK, Outside, Promotion, TensorMap, TensorShape, TileSwizzle};

use backend::Backend;
use bytemuck::Pod;
use std::sync::Arc;

/// A GPU or a simulator: allocates memory, loads kernels, makes streams. Clones are the same
/// device.
///
/// [`open`] opens one by name: `"cuda:0"`, `"sim"`, or `"sim:7"` for a simulator that starts with
/// seed 7. Work is queued on a [`Stream`] and runs in order; different streams run concurrently.
/// Lengths, argument types, grids and residency are checked before anything reaches the device, and
/// every error says what to do.
///
/// ```
/// use tilewright_codegen::build::{Builder, block, record};
/// use tilewright_codegen::device;
/// use tilewright_codegen::ir::Arch;
/// use tilewright_codegen::verify::verify;
///
/// fn double(k: &Builder) {
///     let (x, i) = (k.global::<f32>("x"), k.tid());
///     x.at(i).store(x.at(i).load() * 2.0);
/// }
///
/// let device = device::open("sim")?; // "cuda:0" for a GPU
/// let arch = device.properties().arch().unwrap_or(Arch::Sm80);
/// let kernel = device.load(&verify(record("double", arch, block(4), double))?)?;
/// let stream = device.stream()?;
/// let x = stream.buffer(&[1.0f32, 2.0, 3.0, 4.0])?;
/// let start = stream.record()?;
/// kernel.launch(&stream, 1, &[(&x).into()])?;
/// let time = stream.record()?.since(&start)?;
/// assert_eq!(stream.read(&x)?, [2.0, 4.0, 6.0, 8.0], "after {time:?}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Launching a kernel is a promise that it stays within memory that it was given, as in CUDA: the
/// simulator checks it, a GPU does not. `docs/device.md` states the contract for each kind of
/// memory.
#[derive(Clone, Debug)]
pub struct Device {
    backend: Arc<dyn Backend>,
}

impl Device {
    /// A device of a kind.
    pub fn new(backend: Arc<dyn Backend>) -> Device {
        Device { backend }
    }

    /// The device's figures.
    pub fn properties(&self) -> &Properties {
        self.backend.properties()
    }

    /// Device memory that is free now, bytes.
    ///
    /// # Errors
    /// When the device fails.
    pub fn free_bytes(&self) -> Result<u64, DeviceError> {
        self.backend.free_bytes()
    }

    /// Device memory for `len` elements, uninitialised, aligned to 256 bytes.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`]; when the device fails.
    pub fn buffer<T: Pod>(&self, len: usize) -> Result<Buffer<T>, DeviceError> {
        Buffer::new(self, len)
    }

    /// Page-locked host memory for `len` elements, zeroed.
    ///
    /// # Errors
    /// [`DeviceError::HostMemory`]; when the device fails.
    pub fn pinned<T: Pod>(&self, len: usize) -> Result<Pinned<T>, DeviceError> {
        Pinned::new(self, len)
    }

    /// Host memory of `len` words that kernels use in place, zeroed.
    ///
    /// # Errors
    /// [`DeviceError::HostMemory`]; when the device fails.
    pub fn mapped<W: Word>(&self, words: usize) -> Result<Mapped<W>, DeviceError> {
        Mapped::new(self, words)
    }

    /// Makes a kernel ready to launch.
    ///
    /// # Errors
    /// [`DeviceError::Arch`], [`DeviceError::Jit`], [`DeviceError::Layout`],
    /// [`DeviceError::LaunchTooLarge`], [`DeviceError::NotCooperative`]; when the device fails.
    pub fn load(&self, source: &dyn KernelSource) -> Result<Kernel, DeviceError> {
        Kernel::load(self, source)
    }

    /// A new stream.
    ///
    /// # Errors
    /// When the device fails.
    pub fn stream(&self) -> Result<Stream, DeviceError> {
        Stream::new(self)
    }

    /// A list of work made ready to be launched as one.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`]; when the device fails.
    pub fn graph(&self, work: &[Work]) -> Result<Graph, DeviceError> {
        Graph::new(self, work)
    }

    /// A tensor map of a buffer.
    ///
    /// # Errors
    /// [`DeviceError::TensorMap`] where the hardware has no such map, or the buffer is too small
    /// for it; [`DeviceError::Foreign`].
    pub fn tensor_map<T: Pod>(&self, buffer: &Buffer<T>, shape: TensorShape) -> Result<TensorMap, DeviceError> {
        TensorMap::new(self, buffer, shape)
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Fails where something belongs to another device. A device that is opened twice is one
    /// device: what its figures are is kept in one place.
    fn same(&self, what: &'static str, other: &Device) -> Result<(), DeviceError> {
        if std::ptr::eq(self.properties(), other.properties()) {
            Ok(())
        } else {
            Err(DeviceError::Foreign { what, device: self.properties().name.clone() })
        }
    }
}
