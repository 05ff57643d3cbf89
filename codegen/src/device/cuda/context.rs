//! A device's context: opened once for all users of the device, closed with the last object that
//! belongs to it.
//!
//! A context that is lost stays lost: after a trap, driver 580 gives the process neither a new
//! context nor this one reset, whether it is the primary one or not (seen on an H100). So nothing
//! here tries.

use super::probe::{self, check};
use crate::device::{DeviceError, Properties};
use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute, CUdevice_attribute as Attribute, CUresult};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The context of a device: its primary one, which other users of CUDA in the process share.
#[derive(Debug)]
pub(super) struct CudaContext {
    device: CUdevice,
    raw: CUcontext,
    properties: Properties,
    /// Contexts whose kernels reach this device's memory.
    readers: Mutex<Vec<Weak<CudaContext>>>,
}

// SAFETY: a context handle may be used from any thread; the driver serialises what needs to be.
unsafe impl Send for CudaContext {}
// SAFETY: as above.
unsafe impl Sync for CudaContext {}

/// Contexts by the number of their device; those that are open can be upgraded.
static OPEN: Mutex<BTreeMap<u32, Weak<CudaContext>>> = Mutex::new(BTreeMap::new());

impl CudaContext {
    /// The context of the device of that number.
    pub(super) fn open(ordinal: u32) -> Result<Arc<CudaContext>, DeviceError> {
        let driver = probe::driver()?;
        let count = probe::count()?;
        if ordinal >= count {
            return Err(DeviceError::NoDevice { ordinal, count });
        }
        let mut open = lock(&OPEN);
        if let Some(context) = open.get(&ordinal).and_then(Weak::upgrade) {
            return Ok(context);
        }
        let context = Arc::new(CudaContext::new(ordinal, driver)?);
        open.insert(ordinal, Arc::downgrade(&context));
        Ok(context)
    }

    fn new(ordinal: u32, driver: u32) -> Result<CudaContext, DeviceError> {
        let mut device: CUdevice = 0;
        // SAFETY: the driver is initialised, the pointer is live, the number is below the count of
        // devices.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, ordinal as c_int) })?;
        let properties = properties(device, driver)?;
        let mut raw: CUcontext = std::ptr::null_mut();
        // SAFETY: the device is valid and the pointer live. `Drop` releases what is retained.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut raw, device) })?;
        Ok(CudaContext { device, raw, properties, readers: Mutex::default() })
    }

    pub(super) fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The device's number.
    pub(super) fn ordinal(&self) -> c_int {
        self.device
    }

    /// Makes the context the thread's own, as every call on its memory and kernels needs.
    pub(super) fn bind(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained until `Drop`.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.raw) })
    }

    /// Lets kernels of this device reach the memory of another: all of it, whenever it is
    /// allocated.
    pub(super) fn reach(self: &Arc<CudaContext>, peer: &CudaContext) -> Result<(), DeviceError> {
        let mut can: c_int = 0;
        // SAFETY: both devices are valid and the pointer is live.
        let result = unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, self.device, peer.device) };
        check("cuDeviceCanAccessPeer", result)?;
        if can == 0 {
            return Err(DeviceError::NoPeer { from: self.device as u32, to: peer.device as u32 });
        }
        self.bind()?;
        // SAFETY: this context is current, the other is retained until its `Drop`; access lasts as
        // long as both.
        match unsafe { sys::cuCtxEnablePeerAccess(peer.raw, 0) } {
            CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => {}
            result => check("cuCtxEnablePeerAccess", result)?,
        }
        let mut readers = lock(&peer.readers);
        readers.retain(|reader| reader.strong_count() > 0);
        if readers.iter().all(|reader| !std::ptr::eq(reader.as_ptr(), Arc::as_ptr(self))) {
            readers.push(Arc::downgrade(self));
        }
        Ok(())
    }

    /// Waits for all work of the device and of the devices that reach its memory, before that
    /// memory is freed.
    pub(super) fn settle_readers(&self) {
        self.settle();
        let readers: Vec<Arc<CudaContext>> = lock(&self.readers).iter().filter_map(Weak::upgrade).collect();
        readers.iter().for_each(|reader| reader.settle());
    }

    /// Waits for all work of every open device, before memory is freed that all of them reach.
    pub(super) fn settle_all() {
        let open: Vec<Arc<CudaContext>> = lock(&OPEN).values().filter_map(Weak::upgrade).collect();
        open.iter().for_each(|context| context.settle());
    }

    /// Waits for all work of the device, before something that it may use is freed. A device that
    /// fails here has no work left.
    pub(super) fn settle(&self) {
        if self.bind().is_ok() {
            // SAFETY: the context is current.
            ignore(unsafe { sys::cuCtxSynchronize() });
        }
    }

    /// Free and whole device memory, bytes.
    pub(super) fn memory(&self) -> Result<(u64, u64), DeviceError> {
        self.bind()?;
        let mut free = 0usize;
        let mut total = 0usize;
        // SAFETY: the context is current and the pointers are live.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }
}

impl Drop for CudaContext {
    fn drop(&mut self) {
        // SAFETY: nothing that belongs to the context is left, as all of it keeps the context; the
        // retain of `new` is released here and nowhere else.
        ignore(unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) });
    }
}

/// Ignores a failure while something is freed: either the device is lost, and everything on it is
/// gone, or an earlier failure is reported once more, which a later call reports too.
pub(super) const fn ignore(_: CUresult) {}

/// The lock's contents; what a thread that panicked left is as good as any other, since no update
/// is made in parts.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn properties(device: CUdevice, driver: u32) -> Result<Properties, DeviceError> {
    let mut name = [0 as c_char; 256];
    // SAFETY: the device is valid; the driver writes at most the given number of characters, a zero
    // among them.
    check("cuDeviceGetName", unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device) })?;
    let name = name.map(|c| c as u8);
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
    let mut memory = 0usize;
    // SAFETY: the device is valid and the pointer live.
    check("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&raw mut memory, device) })?;
    let get = |attribute| attribute_of(device, attribute);
    Ok(Properties {
        name,
        capability: (
            get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        driver,
        sms: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_bytes_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        shared_bytes_per_sm: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        registers_per_sm: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
        threads_per_sm: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        threads_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        l2_bytes: get(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        memory_bytes: memory as u64,
        clock_khz: get(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
        cooperative: get(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0,
    })
}

fn attribute_of(device: CUdevice, attribute: CUdevice_attribute) -> Result<u32, DeviceError> {
    let mut value: c_int = 0;
    // SAFETY: the device is valid and the pointer live.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device) })?;
    Ok(u32::try_from(value).unwrap_or(0))
}
