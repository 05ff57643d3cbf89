//! Checks for a driver, its version, and a device. The driver's library is loaded here for the
//! first time; if it is missing, no other call may be made.

use crate::device::DeviceError;
use cudarc::driver::sys::{self, CUresult};
use std::ffi::c_int;

/// The oldest CUDA version of a driver that has every function called here (`cuEventElapsedTime_v2`
/// is the newest).
pub(super) const OLDEST_DRIVER: u32 = 12_080;

/// CUDA version of the driver; the driver is initialised.
pub(super) fn driver() -> Result<u32, DeviceError> {
    let library = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
    // cudarc asks the same only where it loads the library itself; beside candle it is linked.
    // SAFETY: loading the driver's library runs its initialisers, which have no preconditions.
    if unsafe { libloading::Library::new(library) }.is_err() {
        return Err(DeviceError::NoDriver { library });
    }
    let mut version: c_int = 0;
    // SAFETY: the library is present, and the pointer is to a live integer. The call is allowed
    // before `cuInit`.
    let result = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    check("cuDriverGetVersion", result)?;
    let found = u32::try_from(version).unwrap_or(0);
    if found < OLDEST_DRIVER {
        return Err(DeviceError::OldDriver { found, needed: OLDEST_DRIVER });
    }
    // SAFETY: the library is present; the call may be repeated.
    match unsafe { sys::cuInit(0) } {
        // A driver without a device is not a failure: the count is zero.
        CUresult::CUDA_ERROR_NO_DEVICE => Ok(found),
        result => check("cuInit", result).map(|()| found),
    }
}

/// The number of devices.
pub(super) fn count() -> Result<u32, DeviceError> {
    driver()?;
    let mut count: c_int = 0;
    // SAFETY: the driver is initialised, or says that it is not; the pointer is to a live integer.
    match unsafe { sys::cuDeviceGetCount(&raw mut count) } {
        CUresult::CUDA_ERROR_NO_DEVICE | CUresult::CUDA_ERROR_NOT_INITIALIZED => Ok(0),
        result => check("cuDeviceGetCount", result).map(|()| u32::try_from(count).unwrap_or(0)),
    }
}

/// The error that a result stands for.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<(), DeviceError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let code = result as u32;
    let name = format!("{result:?}");
    Err(if is_sticky(result) {
        DeviceError::Lost { call, code, name }
    } else {
        DeviceError::Driver { call, code, name }
    })
}

/// Whether every later call of the context fails too (CUDA driver API, `CUresult`: "leaves the
/// process in an inconsistent state").
fn is_sticky(result: CUresult) -> bool {
    matches!(
        result,
        CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_CONTAINED
            | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK
            | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_become_errors_by_what_they_leave_behind() {
        assert_eq!(check("cuInit", CUresult::CUDA_SUCCESS), Ok(()));
        let error = |result| check("cuStreamSynchronize", result).expect_err("a failure").to_string();
        let text = [CUresult::CUDA_ERROR_INVALID_VALUE, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS].map(error).join("\n");
        insta::assert_snapshot!(text, @"
        cuStreamSynchronize failed: CUDA_ERROR_INVALID_VALUE (1)
        the device was lost in cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700): a kernel accessed an address that is not its own; the driver does not give the device back to this process: restart the program
        ");
    }
}
