//! Memory and streams of other code in the same process, such as a framework's.

use super::CudaDevice;
use super::memory::CudaMemory;
use super::stream::CudaStream;
use crate::device::backend::{Allocation, Handle};
use crate::device::{Buffer, Device, DeviceError, Stream};
use bytemuck::Pod;
use std::any::Any;

/// Memory of other code as a buffer, which frees nothing. The device's context is the primary one,
/// as frameworks use it.
///
/// ```no_run
/// use tilewright_codegen::device::cuda;
/// # let (address, len) = (0x7f00_0000_0000, 1024);
/// let device = cuda::open(0)?;
/// // SAFETY: a framework keeps this array until the work below is done.
/// let x = unsafe { cuda::foreign_buffer::<f32>(&device, address, len)? };
/// # Ok::<(), tilewright_codegen::device::DeviceError>(())
/// ```
///
/// # Errors
/// [`DeviceError::Foreign`] where the device is no GPU.
///
/// # Safety
/// The address is of `len` elements of that device's memory, aligned to them, which stay there as
/// long as work with the buffer runs; what is stored in them is a `T`.
pub unsafe fn foreign_buffer<T: Pod>(device: &Device, address: u64, len: usize) -> Result<Buffer<T>, DeviceError> {
    let gpu = gpu(device, "array")?;
    let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
    let memory = Handle::new(CudaMemory::foreign(&gpu.context, address, bytes));
    Ok(Buffer::of(device, Allocation { memory, address }, len))
}

/// A stream of other code, which is not destroyed: the value of a `CUstream`, 0 for the legacy
/// default stream. Work that is queued on it is captured where the stream is being captured.
///
/// # Errors
/// [`DeviceError::Foreign`] where the device is no GPU.
///
/// # Safety
/// It is a stream of the device's primary context, and stays one as long as this value.
pub unsafe fn foreign_stream(device: &Device, stream: u64) -> Result<Stream, DeviceError> {
    let gpu = gpu(device, "stream")?;
    Ok(Stream::of(device, Handle::new(CudaStream::foreign(&gpu.context, stream))))
}

fn gpu<'d>(device: &'d Device, what: &'static str) -> Result<&'d CudaDevice, DeviceError> {
    let foreign = || DeviceError::Foreign { what, device: device.properties().name.clone() };
    (device.backend() as &dyn Any).downcast_ref().ok_or_else(foreign)
}
