//! NCCL, which is loaded when the first collective is opened: its functions, communicators, and
//! graphs of devices that add up together.
//!
//! The functions are looked up here rather than through `cudarc::nccl`: that one looks for
//! `libnccl.so`, where an installation without headers has `libnccl.so.2` alone, and it panics
//! where a function is missing.

use super::context::CudaContext;
use super::stream::{CudaGraph, CudaRecording, CudaStream, Recording};
use crate::device::DeviceError;
use crate::device::backend::{SumFloat, Work};
use cudarc::driver::sys::CUdeviceptr;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Names of the library, the first that is there counts.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];
/// The environment variable that disables NCCL's use of NVLink multicast when it is 0. Multicast
/// can take the GPUs of a host out of service.
const MULTICAST: &str = "NCCL_NVLS_ENABLE";
/// The oldest version, of which graphs record sums of several devices of a process: 2.11.
const OLDEST: c_int = 21_100;
/// `ncclSum`.
const SUM: c_int = 0;
/// `ncclInProgress`: a call that has not failed.
const IN_PROGRESS: c_int = 7;
/// The time that NCCL has to release a communicator with other processes before its memory is
/// freed.
const FAREWELL: Duration = Duration::from_secs(2);

pub(super) type Raw = *mut c_void;
type Code = c_int;

/// The id that the processes of a communicator share: `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId(pub(super) [u8; 128]);

impl UniqueId {
    pub(super) fn of(bytes: &[u8]) -> Result<UniqueId, DeviceError> {
        let error = DeviceError::Length { from: bytes.len(), to: size_of::<UniqueId>() };
        bytes.try_into().map(UniqueId).map_err(|_| error)
    }
}

impl Default for UniqueId {
    fn default() -> UniqueId {
        UniqueId([0; 128])
    }
}

/// The functions that are called.
#[derive(Debug)]
pub(super) struct Nccl {
    version: unsafe extern "C" fn(*mut c_int) -> Code,
    error: unsafe extern "C" fn(Code) -> *const c_char,
    init_all: unsafe extern "C" fn(*mut Raw, c_int, *const c_int) -> Code,
    destroy: unsafe extern "C" fn(Raw) -> Code,
    abort: unsafe extern "C" fn(Raw) -> Code,
    group_start: unsafe extern "C" fn() -> Code,
    group_end: unsafe extern "C" fn() -> Code,
    all_reduce: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Raw, Raw) -> Code,
    pub(super) unique_id: unsafe extern "C" fn(*mut UniqueId) -> Code,
    async_error: unsafe extern "C" fn(Raw, *mut c_int) -> Code,
    pub(super) init_rank: unsafe extern "C" fn(*mut Raw, c_int, UniqueId, c_int) -> Code,
    pub(super) send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Raw, Raw) -> Code,
    pub(super) receive: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Raw, Raw) -> Code,
}

/// The library, once it was looked for; it stays.
pub(super) fn nccl() -> Result<&'static Nccl, DeviceError> {
    static NCCL: OnceLock<Result<Nccl, DeviceError>> = OnceLock::new();
    let found = std::env::var(MULTICAST).unwrap_or_default();
    if found != "0" {
        return Err(DeviceError::Multicast { variable: MULTICAST, found });
    }
    NCCL.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// The library's version: 10000 × major + 100 × minor + patch.
pub(super) fn version() -> Result<u32, DeviceError> {
    let nccl = nccl()?;
    let mut version: c_int = 0;
    // SAFETY: the pointer is live.
    nccl.check("ncclGetVersion", unsafe { (nccl.version)(&raw mut version) })?;
    Ok(u32::try_from(version).unwrap_or(0))
}

fn load() -> Result<Nccl, DeviceError> {
    if !cfg!(feature = "nccl") {
        return Err(DeviceError::NoNccl { library: NAMES[0], why: "this build is without the feature `nccl`".into() });
    }
    let mut why = String::new();
    let open = |name: &&str| {
        // SAFETY: loading NCCL runs its initialisers, which have no preconditions.
        unsafe { Library::new(*name) }.map_err(|error| why = error.to_string()).ok()
    };
    let library = NAMES.iter().find_map(open);
    let Some(library) = library else { return Err(DeviceError::NoNccl { library: NAMES[0], why }) };
    // The library is never unloaded: threads of NCCL's own run in it.
    let library: &'static Library = Box::leak(Box::new(library));
    // SAFETY: each name stands for the function of that signature in every version from 2.11 on
    // (nccl.h).
    let nccl = unsafe {
        Nccl {
            version: function(library, "ncclGetVersion")?,
            error: function(library, "ncclGetErrorString")?,
            init_all: function(library, "ncclCommInitAll")?,
            destroy: function(library, "ncclCommDestroy")?,
            abort: function(library, "ncclCommAbort")?,
            group_start: function(library, "ncclGroupStart")?,
            group_end: function(library, "ncclGroupEnd")?,
            all_reduce: function(library, "ncclAllReduce")?,
            unique_id: function(library, "ncclGetUniqueId")?,
            async_error: function(library, "ncclCommGetAsyncError")?,
            init_rank: function(library, "ncclCommInitRank")?,
            send: function(library, "ncclSend")?,
            receive: function(library, "ncclRecv")?,
        }
    };
    let mut version: c_int = 0;
    // SAFETY: the pointer is live.
    nccl.check("ncclGetVersion", unsafe { (nccl.version)(&raw mut version) })?;
    match version {
        OLDEST.. => Ok(nccl),
        _ => Err(DeviceError::NoNccl { library: NAMES[0], why: format!("it is older than 2.11: {version}") }),
    }
}

/// A function of the library.
///
/// # Safety
/// `F` is the type of a pointer to the function of that name.
unsafe fn function<F: Copy>(library: &Library, name: &str) -> Result<F, DeviceError> {
    // SAFETY: the caller says that the type is right; the library stays loaded.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|error| DeviceError::NoNccl { library: NAMES[0], why: error.to_string() })
}

impl Nccl {
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<(), DeviceError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: NCCL gives a text that stays, of any code, or nothing.
        let text = unsafe { (self.error)(code) };
        let text = if text.is_null() {
            String::new()
        } else {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(DeviceError::Nccl { call, code, text })
    }

    /// The error that NCCL found in the background, if it did.
    ///
    /// # Safety
    /// The communicator is live, and no other call uses it.
    pub(super) unsafe fn check_async(&self, raw: Raw) -> Result<(), DeviceError> {
        let mut state = 0;
        // SAFETY: the caller says that the communicator is live; so is the pointer.
        let called = unsafe { (self.async_error)(raw, &raw mut state) };
        self.check("ncclCommGetAsyncError", called)?;
        if state == IN_PROGRESS { Ok(()) } else { self.check("NCCL", state) }
    }

    /// Makes what is under way on communicators end. A thread of its own waits until NCCL has let
    /// go: the caller may hold what it waits for.
    ///
    /// # Safety
    /// The communicators are live, and neither used nor destroyed after this.
    pub(super) unsafe fn abort_all(&'static self, raw: &[Raw]) -> JoinHandle<()> {
        let raw: Vec<usize> = raw.iter().map(|raw| raw.expose_provenance()).collect();
        std::thread::spawn(move || {
            for raw in raw {
                // SAFETY: as the caller says. A failure here is that of a lost device.
                let _ = unsafe { (self.abort)(std::ptr::with_exposed_provenance_mut(raw)) };
            }
        })
    }
}

/// Waits briefly for the end of an abort: a process that ended while a thread is in NCCL would be
/// torn down under it.
pub(super) fn farewell(aborting: Option<&JoinHandle<()>>) {
    let begun = Instant::now();
    while aborting.is_some_and(|thread| !thread.is_finished()) && begun.elapsed() < FAREWELL {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A communicator for each of some devices of this process: all of a collective, or one of several
/// processes' devices.
#[derive(Debug)]
pub(super) struct Communicators {
    nccl: &'static Nccl,
    contexts: Vec<Arc<CudaContext>>,
    raw: Vec<Raw>,
    /// Whether other processes have the other communicators.
    is_joined: bool,
    /// The thread that aborts, once one does. Held during calls that check the communicators.
    aborting: Mutex<Option<JoinHandle<()>>>,
}

// SAFETY: communicators may be used from any thread, one at a time: `GROUP` is held during every
// call.
unsafe impl Send for Communicators {}
// SAFETY: as above.
unsafe impl Sync for Communicators {}

/// Held while calls are grouped: NCCL deadlocks where two threads order groups of the same devices
/// differently.
static GROUP: Mutex<()> = Mutex::new(());

impl Communicators {
    pub(super) fn new(contexts: Vec<Arc<CudaContext>>) -> Result<Communicators, DeviceError> {
        let nccl = nccl()?;
        let _group = GROUP.lock().unwrap_or_else(PoisonError::into_inner);
        let ordinals: Vec<c_int> = contexts.iter().map(|context| context.ordinal()).collect();
        let mut raw: Vec<Raw> = vec![std::ptr::null_mut(); contexts.len()];
        // SAFETY: both arrays have as many elements as is said. `Drop` destroys what is made.
        let made = unsafe { (nccl.init_all)(raw.as_mut_ptr(), ordinals.len() as c_int, ordinals.as_ptr()) };
        nccl.check("ncclCommInitAll", made)?;
        Ok(Communicators { nccl, contexts, raw, is_joined: false, aborting: Mutex::default() })
    }

    /// The communicator of this process's device among those of `size` processes. Waits for them.
    pub(super) fn join(
        context: &Arc<CudaContext>,
        id: &[u8],
        rank: usize,
        size: usize,
    ) -> Result<Communicators, DeviceError> {
        let nccl = nccl()?;
        let id = UniqueId::of(id)?;
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current and the pointer live. `Drop` aborts what is made.
        let made = unsafe { (nccl.init_rank)(&raw mut raw, size as c_int, id, rank as c_int) };
        nccl.check("ncclCommInitRank", made)?;
        let contexts = vec![Arc::clone(context)];
        Ok(Communicators { nccl, contexts, raw: vec![raw], is_joined: true, aborting: Mutex::default() })
    }

    /// The work of every device as a graph, recorded by this thread: where all have come to a sum,
    /// that of all as a group.
    pub(super) fn graphs(
        &self,
        contexts: &[Arc<CudaContext>],
        work: &[Vec<Work>],
    ) -> Result<Vec<CudaGraph>, DeviceError> {
        let together = contexts.len() == self.contexts.len()
            && contexts.iter().zip(&self.contexts).all(|(one, other)| Arc::ptr_eq(one, other));
        if !together {
            return Err(DeviceError::Foreign { what: "collective", device: "these GPUs".into() });
        }
        if self.aborting().is_some() {
            return Err(DeviceError::Nccl {
                call: "ncclAllReduce",
                code: 0,
                text: "the collective was aborted".into(),
            });
        }
        let recordings = contexts.iter().map(Recording::begin).collect::<Result<Vec<_>, _>>()?;
        self.record(&recordings, work)?;
        let recorded = recordings.into_iter().map(Recording::end).collect::<Result<Vec<_>, _>>()?;
        recorded.into_iter().map(CudaRecording::instantiate).collect()
    }

    fn record(&self, recordings: &[Recording], work: &[Vec<Work>]) -> Result<(), DeviceError> {
        let mut left: Vec<&[Work]> = work.iter().map(Vec::as_slice).collect();
        loop {
            let mut sums = Vec::new();
            for (recording, left) in recordings.iter().zip(&mut left) {
                let sum = left.iter().position(|work| matches!(work, Work::Sum { .. })).unwrap_or(left.len());
                let (before, rest) = left.split_at(sum);
                before.iter().try_for_each(|work| recording.stream().submit(work))?;
                sums.extend(rest.first());
                *left = rest.get(1..).unwrap_or_default();
            }
            if sums.is_empty() {
                return Ok(());
            }
            let streams: Vec<&CudaStream> = recordings.iter().map(Recording::stream).collect();
            self.sum(&streams, &sums)?;
        }
    }

    /// Queues a sum of all devices.
    fn sum(&self, streams: &[&CudaStream], sums: &[&Work]) -> Result<(), DeviceError> {
        let _group = GROUP.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a group is begun and ended by this thread.
        self.nccl.check("ncclGroupStart", unsafe { (self.nccl.group_start)() })?;
        let queued = streams.iter().zip(sums).zip(&self.raw).try_for_each(|((stream, sum), &raw)| {
            let Work::Sum { from, to, float, .. } = sum else { return Ok(()) };
            let ((from, bytes), (to, _)) = (stream.place(from)?, stream.place(to)?);
            let (dtype, size) = match float {
                SumFloat::F32 => (7, 4),
                SumFloat::Bf16 => (9, 2),
            };
            let from = pointer(from).cast_const();
            let to = pointer(to);
            stream.context().bind()?;
            // SAFETY: both places have the number of elements, in memory of the communicator's
            // device that lives as long as the graph; stream and communicator are live and of that
            // device.
            let result =
                unsafe { (self.nccl.all_reduce)(from, to, bytes / size, dtype, SUM, raw, stream.raw().cast()) };
            self.nccl.check("ncclAllReduce", result)
        });
        // SAFETY: as above.
        let ended = self.nccl.check("ncclGroupEnd", unsafe { (self.nccl.group_end)() });
        queued.and(ended)
    }

    fn aborting(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.aborting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error that NCCL found in the background, if it did.
    pub(super) fn check_state(&self) -> Result<(), DeviceError> {
        let aborting = self.aborting();
        if aborting.is_some() {
            return Err(DeviceError::GivenUp);
        }
        // SAFETY: the communicators are live: they are not aborted while the lock is held.
        self.raw.iter().try_for_each(|&raw| unsafe { self.nccl.check_async(raw) })
    }

    /// Makes sums under way end. NCCL waits until no graph that uses the communicators is left.
    pub(super) fn abort(&self) {
        let mut aborting = self.aborting();
        if aborting.is_none() {
            // SAFETY: each communicator is live; none is used or destroyed once `aborting` is set.
            *aborting = Some(unsafe { self.nccl.abort_all(&self.raw) });
        }
    }
}

impl Drop for Communicators {
    fn drop(&mut self) {
        if self.is_joined {
            // NCCL's other way to end a communicator may wait for other processes.
            self.abort();
            return farewell(self.aborting().as_ref());
        }
        if self.aborting().is_some() {
            return;
        }
        let _group = GROUP.lock().unwrap_or_else(PoisonError::into_inner);
        for (context, &raw) in self.contexts.iter().zip(&self.raw) {
            if context.bind().is_ok() {
                // SAFETY: the communicator is live, no graph that uses it is left, and it is
                // destroyed only here. A failure here is that of a lost device.
                let _ = unsafe { (self.nccl.destroy)(raw) };
            }
        }
    }
}

pub(super) fn pointer(address: CUdeviceptr) -> *mut c_void {
    address as *mut c_void
}
