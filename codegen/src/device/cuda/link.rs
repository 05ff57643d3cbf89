//! A communicator of two devices, of which the other is another process's.

use super::context::CudaContext;
use super::nccl::{Nccl, Raw, UniqueId, farewell, nccl, pointer};
use super::stream::CudaStream;
use crate::device::backend::Span;
use crate::device::{DeviceError, End};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// `ncclInt8`: bytes are moved as they are.
const BYTES: c_int = 0;

/// An end of a way.
pub(super) struct Link {
    nccl: &'static Nccl,
    context: Arc<CudaContext>,
    end: End,
    /// Nothing once the way was given up.
    raw: Mutex<Option<Raw>>,
    /// The thread that aborts the link.
    aborting: Mutex<Option<JoinHandle<()>>>,
}

// SAFETY: a communicator may be used from any thread, one at a time: the lock is held during every
// call.
unsafe impl Send for Link {}
// SAFETY: as above.
unsafe impl Sync for Link {}

/// A number for a way.
pub(super) fn id() -> Result<Vec<u8>, DeviceError> {
    let nccl = nccl()?;
    let mut id = UniqueId::default();
    // SAFETY: the pointer is live.
    nccl.check("ncclGetUniqueId", unsafe { (nccl.unique_id)(&raw mut id) })?;
    Ok(id.0.to_vec())
}

impl Link {
    /// Meets the other end.
    pub(super) fn open(stream: &CudaStream, id: &[u8], end: End) -> Result<Link, DeviceError> {
        let nccl = nccl()?;
        let context = Arc::clone(stream.context());
        let id = UniqueId::of(id)?;
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        let rank = c_int::from(end == End::Takes);
        // SAFETY: the context is current and the pointer live. `Drop` aborts what is made.
        let made = unsafe { (nccl.init_rank)(&raw mut raw, 2, id, rank) };
        nccl.check("ncclCommInitRank", made)?;
        Ok(Link { nccl, context, end, raw: Mutex::new(Some(raw)), aborting: Mutex::default() })
    }

    /// Queues a span to be sent, or filled.
    pub(super) fn pass(&self, stream: &CudaStream, span: &Span) -> Result<(), DeviceError> {
        if !Arc::ptr_eq(stream.context(), &self.context) {
            return Err(DeviceError::Foreign { what: "way", device: self.context.properties().name.clone() });
        }
        let (address, bytes) = stream.place(span)?;
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let raw = raw.ok_or(DeviceError::GivenUp)?;
        self.context.bind()?;
        let place = pointer(address);
        let queue = stream.raw().cast();
        // SAFETY: the place has the number of bytes, of memory of the communicator's device that
        // lives until the work is done; stream and communicator are live and of that device; who
        // sends has rank 0, and who takes has rank 1.
        let (call, code) = unsafe {
            match self.end {
                End::Sends => ("ncclSend", (self.nccl.send)(place.cast_const(), bytes, BYTES, 1, raw, queue)),
                End::Takes => ("ncclRecv", (self.nccl.receive)(place, bytes, BYTES, 0, raw, queue)),
            }
        };
        self.nccl.check(call, code)
    }

    /// The error that NCCL found in the background, if it did.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let raw = raw.ok_or(DeviceError::GivenUp)?;
        // SAFETY: the communicator is live, and the lock is held.
        unsafe { self.nccl.check_async(raw) }
    }

    /// Makes what is under way end. A thread of its own waits until NCCL has let go: the caller may
    /// hold what it waits for.
    pub(super) fn abort(&self) {
        let Some(raw) = self.raw.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        // SAFETY: the communicator is live, and no other code has it any more.
        let thread = unsafe { self.nccl.abort_all(&[raw]) };
        *self.aborting.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }
}

impl Drop for Link {
    /// NCCL's other way to end a communicator may wait for the other end.
    fn drop(&mut self) {
        self.abort();
        farewell(self.aborting.get_mut().unwrap_or_else(PoisonError::into_inner).as_ref());
    }
}
