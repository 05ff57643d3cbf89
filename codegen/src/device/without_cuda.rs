//! Stands in for the CUDA devices in a build without the feature `cuda`: every function returns an
//! error that says so.

use super::{Device, DeviceError};

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
