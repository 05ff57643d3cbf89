//! A way from a device to one of another process, by NCCL: what one end sends, the other takes in
//! the same order.

use bytemuck::Pod;

use super::backend::{End, Handle};
use super::{Buffer, Device, DeviceError, Stream};

/// This process's end of a link between two devices. Sent buffers have a stream of their own.
/// Dropping the link gives it up.
///
/// ```
/// use tilewright_codegen::device::{DeviceError, DeviceLink, sim};
/// // The simulator has no NCCL; a GPU has where the library is.
/// let device = sim::open(7);
/// assert!(matches!(DeviceLink::check(&device), Err(DeviceError::NoCollective { .. })));
/// ```
#[derive(Debug)]
pub struct DeviceLink {
    stream: Stream,
    handle: Handle,
    /// The buffer of the first word that is sent.
    word: Buffer<u8>,
}

/// Bytes of the first word.
const FIRST: usize = 256;

impl DeviceLink {
    /// Checks that the device can have links to others.
    ///
    /// # Errors
    /// As [`Collective::open`](super::Collective::open).
    pub fn check(device: &Device) -> Result<(), DeviceError> {
        device.backend().check_links()
    }

    /// Creates the id of a new link, which both ends need. Both processes must be able to reach the
    /// process that creates it, on a port that NCCL opens.
    ///
    /// # Errors
    /// As [`DeviceLink::check`].
    pub fn id(device: &Device) -> Result<Vec<u8>, DeviceError> {
        device.backend().link_id()
    }

    /// An end of the way that has this number. Waits for the other end without a timeout: to bound
    /// the wait, call it in a thread of its own. A first word is queued: NCCL makes connections for
    /// it, so that later words are waited for on the stream alone.
    ///
    /// # Errors
    /// As [`DeviceLink::check`]; if the id is invalid, or NCCL fails.
    pub fn open(device: &Device, id: &[u8], end: End) -> Result<DeviceLink, DeviceError> {
        let stream = device.stream()?;
        let handle = device.backend().open_link(stream.handle(), id, end)?;
        let link = DeviceLink { word: device.buffer(FIRST)?, stream, handle };
        link.pass(&link.word)?;
        Ok(link)
    }

    /// The stream that is used.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Queues what is at this end to be done with a buffer: it is sent, or what the other end sent
    /// lies in it, of as many bytes. The buffer lives until that is [done](Stream::done) or the way
    /// is given up, and no other code uses it.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`], [`DeviceError::GivenUp`]; if NCCL fails.
    pub fn pass<T: Pod>(&self, buffer: &Buffer<T>) -> Result<(), DeviceError> {
        let device = self.stream.device();
        device.same("buffer", buffer.device())?;
        device.backend().pass(&self.handle, self.stream.handle(), &buffer.span())
    }

    /// Checks for errors that NCCL found since, such as a connection that the other end closed.
    ///
    /// # Errors
    /// The error; [`DeviceError::GivenUp`].
    pub fn check_state(&self) -> Result<(), DeviceError> {
        self.stream.device().backend().check_link(&self.handle)
    }

    /// Aborts the link: operations in flight at this end finish, with undefined bytes. The other
    /// end is not notified.
    pub fn abort(&self) {
        self.stream.device().backend().abort_link(&self.handle);
    }
}
