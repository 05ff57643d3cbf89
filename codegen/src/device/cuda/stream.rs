//! Streams, events, graphs, and copies that run while the host goes on.

use super::context::{CudaContext, ignore};
use super::launch;
use super::memory::{CudaMemory, CudaPinned};
use super::module::Function;
use super::probe::check;
use crate::device::DeviceError;
use crate::device::backend::{Handle, InFlight, PinnedBytes, Span, Work};
use cudarc::driver::sys::{
    self, CUdeviceptr, CUevent, CUevent_flags, CUgraph, CUgraphExec, CUresult, CUstream, CUstreamCaptureMode,
};
use std::sync::Arc;
use std::time::Duration;

/// A stream that does not wait for the legacy default stream.
#[derive(Debug)]
pub(super) struct CudaStream {
    context: Arc<CudaContext>,
    raw: CUstream,
    /// Whether other code destroys it.
    foreign: bool,
}

// SAFETY: stream handles may be used from any thread.
unsafe impl Send for CudaStream {}
// SAFETY: as above.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<CudaStream, DeviceError> {
        context.bind()?;
        let mut raw: CUstream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current and the pointer live. `Drop` destroys the stream.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut raw, flags) })?;
        Ok(CudaStream { context: Arc::clone(context), raw, foreign: false })
    }

    /// A stream of other code.
    pub(super) fn foreign(context: &Arc<CudaContext>, raw: u64) -> CudaStream {
        CudaStream { context: Arc::clone(context), raw: raw as usize as CUstream, foreign: true }
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    pub(super) fn submit(&self, work: &Work) -> Result<(), DeviceError> {
        self.context.bind()?;
        match work {
            Work::Launch { kernel, grid, params, .. } => {
                let function = mine::<Function>(&self.context, kernel, "kernel", Function::context)?;
                launch::launch(function, self.raw, *grid, params)
            }
            Work::Fill { to, byte } | Work::Poison { to, byte } => {
                let (address, bytes) = place(&self.context, to)?;
                if bytes == 0 {
                    return Ok(());
                }
                // SAFETY: the place lies in device memory that is freed only after the work is
                // done.
                let result = unsafe { sys::cuMemsetD8Async(address, *byte, bytes, self.raw) };
                check("cuMemsetD8Async", result)
            }
            Work::Copy { from, to } => {
                let ((from, read), (to, written)) = (place(&self.context, from)?, place(&self.context, to)?);
                if read != written {
                    return Err(DeviceError::Length { from: read, to: written });
                }
                if read == 0 {
                    return Ok(());
                }
                // SAFETY: both places lie in device memory that is freed only after the work is
                // done.
                let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, read, self.raw) };
                check("cuMemcpyDtoDAsync", result)
            }
            Work::Sum { .. } => Err(DeviceError::SumAlone),
        }
    }

    /// Address and length of a span of the stream's device.
    pub(super) fn place(&self, span: &Span) -> Result<(CUdeviceptr, usize), DeviceError> {
        place(&self.context, span)
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    pub(super) fn upload(&self, from: &[u8], to: &Span) -> Result<(), DeviceError> {
        self.context.bind()?;
        let (address, bytes) = place(&self.context, to)?;
        same_length(from.len(), bytes)?;
        // SAFETY: the place is as long as the slice; the slice is borrowed until `wait` below has
        // returned.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(address, from.as_ptr().cast(), bytes, self.raw) };
        let waited = self.wait();
        check("cuMemcpyHtoDAsync", result)?;
        waited
    }

    pub(super) fn download(&self, from: &Span, to: &mut [u8]) -> Result<(), DeviceError> {
        self.context.bind()?;
        let (address, bytes) = place(&self.context, from)?;
        same_length(bytes, to.len())?;
        // SAFETY: the place is as long as the slice; the slice is borrowed until `wait` below has
        // returned.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), address, bytes, self.raw) };
        let waited = self.wait();
        check("cuMemcpyDtoHAsync", result)?;
        waited
    }

    pub(super) fn upload_pinned(&self, from: Box<CudaPinned>, to: &Span) -> Result<PinnedCopy, DeviceError> {
        self.context.bind()?;
        let (address, bytes) = place(&self.context, to)?;
        same_length(from.bytes().len().min(bytes), bytes)?;
        // SAFETY: the pinned memory is at least as long as the place, and freed or seen again only
        // after the copy.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(address, from.bytes().as_ptr().cast(), bytes, self.raw) };
        check("cuMemcpyHtoDAsync", result)?;
        Ok(PinnedCopy { done: self.record()?, pinned: from })
    }

    pub(super) fn download_pinned(&self, from: &Span, mut to: Box<CudaPinned>) -> Result<PinnedCopy, DeviceError> {
        self.context.bind()?;
        let (address, bytes) = place(&self.context, from)?;
        same_length(bytes, to.bytes().len().min(bytes))?;
        // SAFETY: as in `upload_pinned`.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to.bytes_mut().as_mut_ptr().cast(), address, bytes, self.raw) };
        check("cuMemcpyDtoHAsync", result)?;
        Ok(PinnedCopy { done: self.record()?, pinned: to })
    }

    pub(super) fn wait(&self) -> Result<(), DeviceError> {
        self.context.bind()?;
        // SAFETY: the stream is live.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    pub(super) fn done(&self) -> Result<bool, DeviceError> {
        self.context.bind()?;
        // SAFETY: the stream is live.
        ready("cuStreamQuery", unsafe { sys::cuStreamQuery(self.raw) })
    }

    pub(super) fn record(&self) -> Result<CudaEvent, DeviceError> {
        let event = CudaEvent::new(&self.context)?;
        // SAFETY: event and stream are live and of one context.
        check("cuEventRecord", unsafe { sys::cuEventRecord(event.raw, self.raw) })?;
        Ok(event)
    }

    pub(super) fn wait_for(&self, event: &CudaEvent) -> Result<(), DeviceError> {
        self.context.bind()?;
        // SAFETY: event and stream are live and of one context.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw, event.raw, 0) })
    }

    pub(super) fn launch_graph(&self, graph: &CudaGraph) -> Result<(), DeviceError> {
        self.context.bind()?;
        // SAFETY: graph and stream are live and of one context.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(graph.raw, self.raw) })
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if !self.foreign && self.context.bind().is_ok() {
            // SAFETY: the stream is of `cuStreamCreate` and destroyed only here; its work goes on
            // to its end.
            ignore(unsafe { sys::cuStreamDestroy_v2(self.raw) });
        }
    }
}

/// An event with a time.
#[derive(Debug)]
pub(super) struct CudaEvent {
    context: Arc<CudaContext>,
    raw: CUevent,
}

// SAFETY: event handles may be used from any thread.
unsafe impl Send for CudaEvent {}
// SAFETY: as above.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    fn new(context: &Arc<CudaContext>) -> Result<CudaEvent, DeviceError> {
        context.bind()?;
        let mut raw: CUevent = std::ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: the context is current and the pointer live. `Drop` destroys the event.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut raw, flags) })?;
        Ok(CudaEvent { context: Arc::clone(context), raw })
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    pub(super) fn done(&self) -> Result<bool, DeviceError> {
        self.context.bind()?;
        // SAFETY: the event is live.
        ready("cuEventQuery", unsafe { sys::cuEventQuery(self.raw) })
    }

    pub(super) fn wait(&self) -> Result<(), DeviceError> {
        self.context.bind()?;
        // SAFETY: the event is live.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }

    pub(super) fn since(&self, earlier: &CudaEvent) -> Result<Duration, DeviceError> {
        self.context.bind()?;
        let mut milliseconds = 0f32;
        // SAFETY: both events are live and the pointer is.
        let result = unsafe { sys::cuEventElapsedTime_v2(&raw mut milliseconds, earlier.raw, self.raw) };
        check("cuEventElapsedTime", result)?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: the event is of `cuEventCreate` and destroyed only here.
            ignore(unsafe { sys::cuEventDestroy_v2(self.raw) });
        }
    }
}

/// A copy that runs, with the pinned memory that it uses.
///
/// The memory's own `Drop` waits for the device before it frees.
#[derive(Debug)]
pub(super) struct PinnedCopy {
    done: CudaEvent,
    pinned: Box<CudaPinned>,
}

impl InFlight for PinnedCopy {
    fn done(&self) -> Result<bool, DeviceError> {
        self.done.done()
    }

    fn wait(self: Box<Self>) -> Result<Box<dyn PinnedBytes>, DeviceError> {
        self.done.wait()?;
        Ok(self.pinned)
    }
}

/// Work that is launched as a whole.
#[derive(Debug)]
pub(super) struct CudaGraph {
    context: Arc<CudaContext>,
    raw: CUgraphExec,
}

// SAFETY: the driver forbids that a graph is used by two threads at once only while it is updated,
// which nothing here does.
unsafe impl Send for CudaGraph {}
// SAFETY: as above.
unsafe impl Sync for CudaGraph {}

/// Work that the driver records from a stream of its own, instead of doing it.
#[derive(Debug)]
pub(super) struct Recording {
    stream: CudaStream,
    ended: bool,
}

impl Recording {
    pub(super) fn begin(context: &Arc<CudaContext>) -> Result<Recording, DeviceError> {
        let stream = CudaStream::new(context)?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is live, and no other code has its handle.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream.raw, mode) })?;
        Ok(Recording { stream, ended: false })
    }

    /// The stream that is being recorded, for the thread that began the recording.
    pub(super) fn stream(&self) -> &CudaStream {
        &self.stream
    }

    /// Ends the recording and returns it. A thread that records on several devices must end all
    /// recordings before any is instantiated: the driver refuses to instantiate in a thread that
    /// records.
    pub(super) fn end(mut self) -> Result<CudaRecording, DeviceError> {
        let context = Arc::clone(&self.stream.context);
        self.stop().map(|raw| CudaRecording { context, raw })
    }

    fn stop(&mut self) -> Result<CUgraph, DeviceError> {
        self.ended = true;
        self.stream.context.bind()?;
        let mut recorded: CUgraph = std::ptr::null_mut();
        // SAFETY: the stream is being captured by this thread, and the pointer is live.
        check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.stream.raw, &raw mut recorded) })?;
        Ok(recorded)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.ended
            && let Ok(recorded) = self.stop()
        {
            // SAFETY: the recorded graph is of this capture, and no other code has its handle.
            ignore(unsafe { sys::cuGraphDestroy(recorded) });
        }
    }
}

/// Work that was recorded.
#[derive(Debug)]
pub(super) struct CudaRecording {
    context: Arc<CudaContext>,
    raw: CUgraph,
}

impl CudaRecording {
    /// The work ready to be launched.
    pub(super) fn instantiate(self) -> Result<CudaGraph, DeviceError> {
        self.context.bind()?;
        let mut raw: CUgraphExec = std::ptr::null_mut();
        // SAFETY: the recorded graph is whole, and the pointer is live. `Drop` destroys what is
        // made.
        let result = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut raw, self.raw, 0) };
        check("cuGraphInstantiate", result).map(|()| CudaGraph { context: Arc::clone(&self.context), raw })
    }
}

impl Drop for CudaRecording {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: the recorded graph is of a capture and destroyed only here; what is made of
            // it does not need it.
            ignore(unsafe { sys::cuGraphDestroy(self.raw) });
        }
    }
}

impl CudaGraph {
    /// The work as the driver records it.
    pub(super) fn new(context: &Arc<CudaContext>, work: &[Work]) -> Result<CudaGraph, DeviceError> {
        let recording = Recording::begin(context)?;
        work.iter().try_for_each(|work| recording.stream.submit(work))?;
        recording.end()?.instantiate()
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        self.context.settle();
        // SAFETY: the graph is of `cuGraphInstantiate` and destroyed only here.
        ignore(unsafe { sys::cuGraphExecDestroy(self.raw) });
    }
}

/// The object behind a handle, if it is of this kind and of this context.
pub(super) fn mine<'h, T: 'static>(
    context: &Arc<CudaContext>,
    handle: &'h Handle,
    what: &'static str,
    of: fn(&T) -> &Arc<CudaContext>,
) -> Result<&'h T, DeviceError> {
    handle
        .get::<T>()
        .filter(|thing| Arc::ptr_eq(of(thing), context))
        .ok_or_else(|| DeviceError::Foreign { what, device: context.properties().name.clone() })
}

/// Address and length of a span that lies in memory of this context.
fn place(context: &Arc<CudaContext>, span: &Span) -> Result<(CUdeviceptr, usize), DeviceError> {
    let memory = mine::<CudaMemory>(context, &span.memory, "buffer", CudaMemory::context)?;
    let end = span.offset.saturating_add(span.bytes) as usize;
    memory.part(span.offset, span.bytes).map(|address| (address, span.bytes as usize)).ok_or(DeviceError::Range {
        start: span.offset as usize,
        end,
        len: memory.bytes() as usize,
    })
}

fn same_length(from: usize, to: usize) -> Result<(), DeviceError> {
    if from == to { Ok(()) } else { Err(DeviceError::Length { from, to }) }
}

/// Whether a query says that work is done.
fn ready(call: &'static str, result: CUresult) -> Result<bool, DeviceError> {
    if result == CUresult::CUDA_ERROR_NOT_READY {
        return Ok(false);
    }
    check(call, result).map(|()| true)
}
