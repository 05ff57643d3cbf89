//! Streams, events and graphs: work in order, moments in it, and work that is repeated.

use super::backend::{Handle, Work};
use super::{Buffer, Device, DeviceError, Pending, Pinned};
use bytemuck::Pod;
use std::time::Duration;

/// A queue of work that the device does in order. Work of different streams runs at the same time,
/// unless an event orders it.
#[derive(Clone, Debug)]
pub struct Stream {
    device: Device,
    handle: Handle,
}

impl Stream {
    pub(super) fn new(device: &Device) -> Result<Stream, DeviceError> {
        Ok(Stream::of(device, device.backend().stream()?))
    }

    pub(super) fn of(device: &Device, handle: Handle) -> Stream {
        Stream { device: device.clone(), handle }
    }

    /// The device whose stream it is.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Queues work.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`]; when the device fails, also in earlier work.
    pub fn submit(&self, work: &Work) -> Result<(), DeviceError> {
        self.device.backend().submit(&self.handle, work)
    }

    /// A new buffer with these elements.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`]; when the device fails, also in earlier work.
    pub fn buffer<T: Pod>(&self, elements: &[T]) -> Result<Buffer<T>, DeviceError> {
        let buffer = self.device.buffer(elements.len())?;
        self.upload(elements, &buffer)?;
        Ok(buffer)
    }

    /// Copies elements to the device after the stream's earlier work; returns when it is done.
    ///
    /// # Errors
    /// [`DeviceError::Length`], [`DeviceError::Foreign`]; when the device fails, also in earlier
    /// work.
    pub fn upload<T: Pod>(&self, from: &[T], to: &Buffer<T>) -> Result<(), DeviceError> {
        fits(from.len(), to.len())?;
        self.device.same("buffer", to.device())?;
        if from.is_empty() {
            return Ok(());
        }
        self.device.backend().upload(&self.handle, bytemuck::cast_slice(from), &to.span())
    }

    /// Copies elements to the host after the stream's earlier work; returns when it is done.
    ///
    /// # Errors
    /// [`DeviceError::Length`], [`DeviceError::Foreign`]; when the device fails, also in earlier
    /// work.
    pub fn download<T: Pod>(&self, from: &Buffer<T>, to: &mut [T]) -> Result<(), DeviceError> {
        fits(from.len(), to.len())?;
        self.device.same("buffer", from.device())?;
        if to.is_empty() {
            return Ok(());
        }
        self.device.backend().download(&self.handle, &from.span(), bytemuck::cast_slice_mut(to))
    }

    /// The elements of a buffer after the stream's earlier work.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`]; when the device fails, also in earlier work.
    pub fn read<T: Pod>(&self, from: &Buffer<T>) -> Result<Vec<T>, DeviceError> {
        let mut elements = vec![T::zeroed(); from.len()];
        self.download(from, &mut elements)?;
        Ok(elements)
    }

    /// Queues a copy to the device, as many elements as the buffer has. The pinned memory comes
    /// back when it is done; it may be longer than the buffer, so that one piece of it serves
    /// copies of several lengths.
    ///
    /// # Errors
    /// [`DeviceError::Length`], [`DeviceError::Foreign`]; when the device fails, also in earlier
    /// work. The pinned memory is freed then.
    pub fn upload_pinned<T: Pod>(&self, from: Pinned<T>, to: &Buffer<T>) -> Result<Pending<T>, DeviceError> {
        fits(from.len().min(to.len()), to.len())?;
        self.device.same("buffer", to.device())?;
        self.device.same("pinned buffer", from.device())?;
        let (bytes, len) = from.into_bytes();
        let copy = self.device.backend().upload_pinned(&self.handle, bytes, &to.span())?;
        Ok(Pending::new(&self.device, copy, len))
    }

    /// Queues a copy to the host. The pinned memory comes back when it is done.
    ///
    /// # Errors
    /// As [`Stream::upload_pinned`].
    pub fn download_pinned<T: Pod>(&self, from: &Buffer<T>, to: Pinned<T>) -> Result<Pending<T>, DeviceError> {
        fits(from.len(), to.len())?;
        self.device.same("buffer", from.device())?;
        self.device.same("pinned buffer", to.device())?;
        let (bytes, len) = to.into_bytes();
        let copy = self.device.backend().download_pinned(&self.handle, &from.span(), bytes)?;
        Ok(Pending::new(&self.device, copy, len))
    }

    /// Queues setting every byte of a buffer.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`]; when the device fails, also in earlier work.
    pub fn fill<T: Pod>(&self, to: &Buffer<T>, byte: u8) -> Result<(), DeviceError> {
        self.submit(&Work::fill(to, byte))
    }

    /// Queues invalidating a buffer's contents, so that a read before the next write is found: the
    /// simulator then takes them for never written; a GPU sets every byte to `byte`.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`]; when the device fails, also in earlier work.
    pub fn poison<T: Pod>(&self, to: &Buffer<T>, byte: u8) -> Result<(), DeviceError> {
        self.submit(&Work::Poison { to: to.span(), byte })
    }

    /// Queues a copy on the device. The buffers may not overlap.
    ///
    /// # Errors
    /// [`DeviceError::Length`], [`DeviceError::Foreign`]; when the device fails, also in earlier
    /// work.
    pub fn copy<T: Pod>(&self, from: &Buffer<T>, to: &Buffer<T>) -> Result<(), DeviceError> {
        self.submit(&Work::copy(from, to)?)
    }

    /// An event that is reached when all work queued so far is done.
    ///
    /// # Errors
    /// When the device fails, also in earlier work.
    pub fn record(&self) -> Result<Event, DeviceError> {
        let handle = self.device.backend().record(&self.handle)?;
        Ok(Event { device: self.device.clone(), handle })
    }

    /// Makes work queued from now on wait for an event of any stream of the device.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`]; when the device fails, also in earlier work.
    pub fn wait_for(&self, event: &Event) -> Result<(), DeviceError> {
        self.device.same("event", &event.device)?;
        self.device.backend().wait_in_stream(&self.handle, &event.handle)
    }

    /// Whether all work queued so far is done.
    ///
    /// # Errors
    /// When the device failed in it.
    pub fn done(&self) -> Result<bool, DeviceError> {
        self.device.backend().stream_done(&self.handle)
    }

    /// Waits until all work queued so far is done.
    ///
    /// # Errors
    /// When the device failed in it.
    pub fn wait(&self) -> Result<(), DeviceError> {
        self.device.backend().wait_stream(&self.handle)
    }
}

impl Work {
    /// Setting every byte of a buffer, as work.
    pub fn fill<T: Pod>(to: &Buffer<T>, byte: u8) -> Work {
        Work::Fill { to: to.span(), byte }
    }

    /// A copy on the device, as work. The buffers may not overlap.
    ///
    /// # Errors
    /// [`DeviceError::Length`].
    pub fn copy<T: Pod>(from: &Buffer<T>, to: &Buffer<T>) -> Result<Work, DeviceError> {
        fits(from.len(), to.len())?;
        Ok(Work::Copy { from: from.span(), to: to.span() })
    }
}

fn fits(from: usize, to: usize) -> Result<(), DeviceError> {
    if from == to { Ok(()) } else { Err(DeviceError::Length { from, to }) }
}

/// A moment in a stream's work.
#[derive(Clone, Debug)]
pub struct Event {
    device: Device,
    handle: Handle,
}

impl Event {
    /// Whether it is reached.
    ///
    /// # Errors
    /// When the device failed in earlier work.
    pub fn done(&self) -> Result<bool, DeviceError> {
        self.device.backend().event_done(&self.handle)
    }

    /// Waits until the event is reached.
    ///
    /// # Errors
    /// When the device failed in earlier work.
    pub fn wait(&self) -> Result<(), DeviceError> {
        self.device.backend().wait_event(&self.handle)
    }

    /// Time on the device since an earlier event. Waits for both.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`]; when the device failed in earlier work.
    pub fn since(&self, earlier: &Event) -> Result<Duration, DeviceError> {
        self.device.same("event", &earlier.device)?;
        earlier.wait()?;
        self.wait()?;
        self.device.backend().elapsed(&earlier.handle, &self.handle)
    }
}

/// Work that is submitted as a whole, again and again, at the cost of one launch.
#[derive(Clone, Debug)]
pub struct Graph {
    device: Device,
    handle: Handle,
    /// The work, kept so that its resources live as long as the graph.
    work: std::sync::Arc<[Work]>,
}

impl Graph {
    pub(super) fn new(device: &Device, work: &[Work]) -> Result<Graph, DeviceError> {
        let handle = device.backend().graph(work)?;
        Ok(Graph::of(device, handle, work))
    }

    /// Creates a graph from a back end's handle for this work.
    pub(super) fn of(device: &Device, handle: Handle, work: &[Work]) -> Graph {
        Graph { device: device.clone(), handle, work: work.into() }
    }

    /// Number of pieces of work.
    pub fn len(&self) -> usize {
        self.work.len()
    }

    /// Whether there is no work.
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Queues the work.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`]; when the device fails, also in earlier work.
    pub fn launch(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.device.same("stream", &stream.device)?;
        self.device.backend().submit_graph(&stream.handle, &self.handle)
    }
}

impl Device {
    /// A new stream.
    ///
    /// # Errors
    /// When the device fails.
    pub fn stream(&self) -> Result<Stream, DeviceError> {
        Stream::new(self)
    }

    /// A list of work made ready to be launched as one.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`]; when the device fails.
    pub fn graph(&self, work: &[Work]) -> Result<Graph, DeviceError> {
        Graph::new(self, work)
    }
}
