//! Stands in for the CUDA devices in a build without the feature `cuda`: every function returns an
//! error that says so.

use super::{Buffer, Device, DeviceError, Stream};
use bytemuck::Pod;

/// Returns [`DeviceError::NoCuda`].
///
/// # Errors
/// Always.
pub fn open(_ordinal: u32) -> Result<Device, DeviceError> {
    Err(DeviceError::NoCuda)
}

/// Returns [`DeviceError::NoCuda`].
///
/// # Errors
/// Always.
pub fn peers(_ordinals: impl IntoIterator<Item = u32>) -> Result<Vec<Device>, DeviceError> {
    Err(DeviceError::NoCuda)
}

/// Returns [`DeviceError::NoCuda`].
///
/// # Errors
/// Always.
pub fn count() -> Result<u32, DeviceError> {
    Err(DeviceError::NoCuda)
}

/// Returns [`DeviceError::NoCuda`].
///
/// # Errors
/// Always.
pub fn driver() -> Result<u32, DeviceError> {
    Err(DeviceError::NoCuda)
}

/// Returns [`DeviceError::NoCuda`].
///
/// # Errors
/// Always.
pub fn nccl_version() -> Result<u32, DeviceError> {
    Err(DeviceError::NoCuda)
}

/// Returns [`DeviceError::NoCuda`].
///
/// # Errors
/// Always.
///
/// # Safety
/// None is needed.
#[expect(unsafe_code, reason = "a stand-in for a function that trusts its caller")]
pub unsafe fn foreign_buffer<T: Pod>(_device: &Device, _address: u64, _len: usize) -> Result<Buffer<T>, DeviceError> {
    Err(DeviceError::NoCuda)
}

/// Returns [`DeviceError::NoCuda`].
///
/// # Errors
/// Always.
///
/// # Safety
/// None is needed.
#[expect(unsafe_code, reason = "a stand-in for a function that trusts its caller")]
pub unsafe fn foreign_stream(_device: &Device, _stream: u64) -> Result<Stream, DeviceError> {
    Err(DeviceError::NoCuda)
}

/// Ends the process with an exit code.
pub fn leave(code: u8) -> ! {
    std::process::exit(code.into())
}
