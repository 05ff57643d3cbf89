//! A device of any kind: a shared back end.

use super::backend::Backend;
use super::{DeviceError, Properties};
use std::sync::Arc;

/// A GPU or a simulator: allocates memory, loads kernels, makes streams. Clones are the same
/// device.
///
/// [`open`](crate::device::open) opens one by name: `"cuda:0"`, `"sim"`, or `"sim:7"` for a
/// simulator that starts with seed 7. Work is queued on a [`Stream`](crate::device::Stream) and
/// runs in order; different streams run concurrently. Lengths, argument types, grids and residency
/// are checked before anything reaches the device, and every error says what to do.
///
/// ```
/// use tilewright_codegen::build::{Builder, block, record};
/// use tilewright_codegen::device;
/// use tilewright_codegen::ir::Arch;
/// use tilewright_codegen::verify::verify;
///
/// fn double(k: &Builder) {
///     let x = k.global::<f32>("x");
///     let i = k.tid();
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

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Fails where something belongs to another device. A device that is opened twice is one
    /// device: what its figures are is kept in one place.
    pub(super) fn same(&self, what: &'static str, other: &Device) -> Result<(), DeviceError> {
        if std::ptr::eq(self.properties(), other.properties()) {
            Ok(())
        } else {
            Err(DeviceError::Foreign { what, device: self.properties().name.clone() })
        }
    }
}
