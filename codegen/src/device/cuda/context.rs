//! A device's context: opened once for all who open the device, closed with the last thing that belongs to it.

use super::module::Module;
use super::probe::{self, check};
use crate::device::{DeviceError, Properties};
use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute, CUdevice_attribute as Attribute, CUresult};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// The context of a device: its primary one, which other users of CUDA in the process share.
#[derive(Debug)]
pub(super) struct Context {
    ordinal: u32,
    device: CUdevice,
    raw: CUcontext,
    properties: Properties,
    /// Modules that are loaded, by their PTX.
    modules: Mutex<HashMap<Box<str>, Weak<Module>>>,
    lost: AtomicBool,
}

// SAFETY: a context handle may be used from any thread; the driver serialises what needs to be.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Contexts that are open. An entry is removed when its context has been closed.
static OPEN: Mutex<BTreeMap<u32, Weak<Context>>> = Mutex::new(BTreeMap::new());
/// Signalled when an entry is removed.
static CLOSED: Condvar = Condvar::new();

impl Context {
    /// The context of the device of that number.
    pub(super) fn open(ordinal: u32) -> Result<Arc<Context>, DeviceError> {
        let driver = probe::driver()?;
        let count = probe::count()?;
        if ordinal >= count {
            return Err(DeviceError::NoDevice { ordinal, count });
        }
        let mut open = lock(&OPEN);
        while let Some(entry) = open.get(&ordinal) {
            if let Some(context) = entry.upgrade() {
                return Ok(context);
            }
            // Another thread is closing it.
            open = CLOSED.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        let context = Arc::new(Context::new(ordinal, driver)?);
        open.insert(ordinal, Arc::downgrade(&context));
        Ok(context)
    }

    fn new(ordinal: u32, driver: u32) -> Result<Context, DeviceError> {
        let mut device: CUdevice = 0;
        // SAFETY: the driver is initialised, the pointer is live, the number is below the count of devices.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, ordinal as c_int) })?;
        let properties = properties(device, driver)?;
        let mut raw: CUcontext = std::ptr::null_mut();
        // SAFETY: the device is valid and the pointer live. `Drop` releases what is retained.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut raw, device) })?;
        let (modules, lost) = (Mutex::default(), AtomicBool::new(false));
        Ok(Context { ordinal, device, raw, properties, modules, lost })
    }

    pub(super) fn properties(&self) -> &Properties {
        &self.properties
    }

    pub(super) fn modules(&self) -> MutexGuard<'_, HashMap<Box<str>, Weak<Module>>> {
        lock(&self.modules)
    }

    /// Makes the context the thread's own, as every call on its memory and kernels needs.
    pub(super) fn bind(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained until `Drop`.
        self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.raw) })
    }

    /// The error that a result stands for; remembers when the device is lost.
    pub(super) fn check(&self, call: &'static str, result: CUresult) -> Result<(), DeviceError> {
        check(call, result).inspect_err(|error| {
            if matches!(error, DeviceError::Lost { .. }) {
                self.lost.store(true, Ordering::Relaxed);
            }
        })
    }

    /// Waits for all work of the device, before something that it may use is freed. A device that fails here has
    /// no work left.
    pub(super) fn settle(&self) {
        if self.bind().is_ok() {
            // SAFETY: the context is current.
            let result = unsafe { sys::cuCtxSynchronize() };
            self.check("cuCtxSynchronize", result).ok();
        }
    }

    /// Free and whole device memory, bytes.
    pub(super) fn memory(&self) -> Result<(u64, u64), DeviceError> {
        self.bind()?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: the context is current and the pointers are live.
        self.check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Only a context that is closed leaves the table: whoever opens the device again waits for that.
        let lost = self.lost.load(Ordering::Relaxed);
        // SAFETY: nothing that belongs to the context is left, as all of it keeps the context. A lost context is reset, so that
        // the device can be opened anew; the retain of `new` is released here and nowhere else.
        let results = unsafe {
            let reset = if lost { sys::cuDevicePrimaryCtxReset_v2(self.device) } else { CUresult::CUDA_SUCCESS };
            [reset, sys::cuDevicePrimaryCtxRelease_v2(self.device)]
        };
        debug_assert!(lost || results == [CUresult::CUDA_SUCCESS; 2], "closing cuda:{}: {results:?}", self.ordinal);
        lock(&OPEN).remove(&self.ordinal);
        CLOSED.notify_all();
    }
}

/// The lock's contents; what a thread that panicked left is as good as any other, since no update is made in parts.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn properties(device: CUdevice, driver: u32) -> Result<Properties, DeviceError> {
    let mut name = [0 as c_char; 256];
    // SAFETY: the device is valid; the driver writes at most the given number of characters, a zero among them.
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
