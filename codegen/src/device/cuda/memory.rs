//! Device memory, pinned host memory and mapped host memory.

use super::context::{CudaContext, ignore};
use super::probe::check;
use crate::device::DeviceError;
use crate::device::backend::{AtomicWords, MappedWords, PinnedBytes, WordWidth};
use cudarc::driver::sys::{self, CUdeviceptr, CUresult};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A piece of device memory.
#[derive(Debug)]
pub(super) struct CudaMemory {
    context: Arc<CudaContext>,
    address: CUdeviceptr,
    bytes: u64,
    /// Whether other code frees it.
    foreign: bool,
}

impl CudaMemory {
    pub(super) fn new(context: &Arc<CudaContext>, bytes: u64) -> Result<CudaMemory, DeviceError> {
        context.bind()?;
        let mut address: CUdeviceptr = 0;
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the context is current and the pointer live. `Drop` frees the memory.
        match unsafe { sys::cuMemAlloc_v2(&raw mut address, size) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                Err(DeviceError::OutOfMemory { asked: bytes, free: context.memory()?.0 })
            }
            result => {
                check("cuMemAlloc", result)?;
                Ok(CudaMemory { context: Arc::clone(context), address, bytes, foreign: false })
            }
        }
    }

    /// Memory of other code.
    pub(super) fn foreign(context: &Arc<CudaContext>, address: u64, bytes: u64) -> CudaMemory {
        CudaMemory { context: Arc::clone(context), address, bytes, foreign: true }
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Address of a part, if it lies inside.
    pub(super) fn part(&self, offset: u64, bytes: u64) -> Option<CUdeviceptr> {
        offset.checked_add(bytes).filter(|&end| end <= self.bytes).map(|_| self.address + offset)
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        if self.foreign {
            return;
        }
        self.context.settle_readers();
        // SAFETY: the address is of `cuMemAlloc` and freed only here; no work that may use it runs
        // any more.
        ignore(unsafe { sys::cuMemFree_v2(self.address) });
    }
}

/// Locked host memory, zeroed.
#[derive(Debug)]
struct Locked {
    context: Arc<CudaContext>,
    start: NonNull<c_void>,
    bytes: usize,
    /// Whether kernels of every device may access it.
    portable: bool,
}

// SAFETY: the memory belongs to the value alone; the driver frees it from any thread.
unsafe impl Send for Locked {}
// SAFETY: shared access is by `&`, which the owners below give out as slices of bytes or of
// atomics.
unsafe impl Sync for Locked {}

impl Locked {
    fn new(context: &Arc<CudaContext>, bytes: usize, flags: u32) -> Result<Locked, DeviceError> {
        context.bind()?;
        let mut start: *mut c_void = std::ptr::null_mut();
        // SAFETY: the context is current and the pointer live. `Drop` frees the memory.
        let result = unsafe { sys::cuMemHostAlloc(&raw mut start, bytes, flags) };
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(DeviceError::HostMemory { asked: bytes as u64 });
        }
        check("cuMemHostAlloc", result)?;
        let start = NonNull::new(start).ok_or(DeviceError::HostMemory { asked: bytes as u64 })?;
        // SAFETY: the driver returned this many writable bytes, which no other code has a pointer
        // to.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        let portable = flags & sys::CU_MEMHOSTALLOC_PORTABLE != 0;
        Ok(Locked { context: Arc::clone(context), start, bytes, portable })
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.portable {
            CudaContext::settle_all();
        }
        self.context.settle();
        // SAFETY: the memory is of `cuMemHostAlloc` and freed only here; no copy or kernel that may
        // use it runs any more.
        ignore(unsafe { sys::cuMemFreeHost(self.start.as_ptr()) });
    }
}

/// Pinned memory of one owner.
#[derive(Debug)]
pub(super) struct CudaPinned(Locked);

impl CudaPinned {
    pub(super) fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<CudaPinned, DeviceError> {
        Locked::new(context, bytes, 0).map(CudaPinned)
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        &self.0.context
    }
}

impl PinnedBytes for CudaPinned {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes are initialised and live as long as `self`; a queued copy owns `self`,
        // so none runs now.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr().cast(), self.0.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr().cast(), self.0.bytes) }
    }
}

/// Memory that kernels of every device see at the same address, as atomic words of one width.
#[derive(Debug)]
pub(super) struct CudaMapped {
    locked: Locked,
    address: CUdeviceptr,
    words: usize,
    width: WordWidth,
}

impl CudaMapped {
    pub(super) fn new(context: &Arc<CudaContext>, words: usize, width: WordWidth) -> Result<CudaMapped, DeviceError> {
        let size = match width {
            WordWidth::Bits32 => 4,
            WordWidth::Bits64 => 8,
        };
        let bytes = words.max(1).checked_mul(size).ok_or(DeviceError::HostMemory { asked: u64::MAX })?;
        let locked = Locked::new(context, bytes, sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE)?;
        let mut address: CUdeviceptr = 0;
        // SAFETY: the context is current since `Locked::new`, the memory was allocated as mapped,
        // the pointer is live.
        let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut address, locked.start.as_ptr(), 0) };
        check("cuMemHostGetDevicePointer", result)?;
        Ok(CudaMapped { locked, address, words, width })
    }
}

impl MappedWords for CudaMapped {
    fn address(&self) -> u64 {
        self.address
    }

    fn words(&self) -> AtomicWords<'_> {
        let start = self.locked.start;
        match self.width {
            WordWidth::Bits32 => {
                // SAFETY: `words` words were allocated and zeroed, on a page of their own; they
                // live as long as `self`, and all access by the host is through atomics of this one
                // width.
                let words = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU32>().as_ptr(), self.words) };
                AtomicWords::Bits32(words)
            }
            WordWidth::Bits64 => {
                // SAFETY: as above.
                let words = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>().as_ptr(), self.words) };
                AtomicWords::Bits64(words)
            }
        }
    }
}
