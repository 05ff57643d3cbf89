//! Links between the GPUs of neighbouring ranks, by NCCL.
//!
//! A link is a communicator of two ranks, so that what waits on one link never blocks another.
//! Receives are queued only once a step is announced: an idle rank runs no kernel. Waits poll for
//! NCCL's asynchronous errors and for the limits, and abort the communicator then.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use tilewright_codegen::device::{Buffer, Device, DeviceError, DeviceLink, End};

use super::transport::{LinkError, LinkId, Network, RingEnds, RingLinks, Transport, WaitLimits};

/// The polling interval of a long wait.
const PAUSE: Duration = Duration::from_micros(50);
/// The time for which a wait polls without a pause: longer than the transfer of a prompt's rows.
const SPIN: Duration = Duration::from_millis(2);

/// NCCL between devices, one a process.
pub(super) struct Nccl {
    device: Device,
}

impl Nccl {
    /// NCCL from this device.
    ///
    /// # Errors
    /// If the device is no NVIDIA GPU, or NCCL cannot be used.
    pub fn on(device: Device) -> Result<Nccl, LinkError> {
        DeviceLink::check(&device)?;
        Ok(Nccl { device })
    }

    fn link(&self, id: &LinkId, end: End, limits: &WaitLimits) -> Result<Arc<dyn Transport>, LinkError> {
        let begun = Instant::now();
        let (sender, opened) = channel();
        let (device, id) = (self.device.clone(), *id);
        // NCCL waits without a timeout for a rank that does not come; the thread is then abandoned.
        let open = move || sender.send(DeviceLink::open(&device, &id, end));
        Builder::new().name("nccl".to_owned()).spawn(open).map_err(LinkError::Io)?;
        let link = loop {
            match opened.recv_timeout(10 * SPIN) {
                Ok(link) => break link?,
                Err(RecvTimeoutError::Timeout) => limits.check(begun)?,
                Err(RecvTimeoutError::Disconnected) => return Err(LinkError::Ended),
            }
        };
        let link = NcclLink { link, limits: limits.clone(), staged: Mutex::new(None) };
        link.wait(begun)?;
        Ok(Arc::new(link))
    }
}

impl Network for Nccl {
    fn id(&self) -> Result<LinkId, LinkError> {
        let id = DeviceLink::id(&self.device)?;
        let found = id.len();
        id.try_into().map_err(|_| DeviceError::Length { from: found, to: size_of::<LinkId>() }.into())
    }

    /// Opens the links in the order of the ranks that send, so that no two ranks wait for each
    /// other.
    fn open(&self, links: &RingLinks, limits: &WaitLimits) -> Result<RingEnds, LinkError> {
        let from = || self.link(&links.from, End::Takes, limits);
        let to = || self.link(&links.to, End::Sends, limits);
        if links.rank == 0 {
            let to = to()?;
            return Ok(RingEnds { from: from()?, to });
        }
        Ok(RingEnds { from: from()?, to: to()? })
    }
}

/// One end of a link.
struct NcclLink {
    link: DeviceLink,
    limits: WaitLimits,
    /// The message in flight. The sender holds the lock while it queues one.
    staged: Mutex<Option<Buffer<f32>>>,
}

impl NcclLink {
    /// Waits until what was queued is done.
    fn wait(&self, begun: Instant) -> Result<(), LinkError> {
        let waited = self.poll(begun);
        if waited.is_err() {
            self.link.abort();
        }
        waited
    }

    fn poll(&self, begun: Instant) -> Result<(), LinkError> {
        let from = Instant::now();
        loop {
            let is_done = self.link.stream().done()?;
            // A wait that ended because the communicator was aborted is done, too.
            match self.limits.check(begun) {
                Err(LinkError::Silent { .. }) if is_done => return Ok(()),
                Err(error) => return Err(error),
                Ok(()) if is_done => return Ok(()),
                Ok(()) => {}
            }
            if from.elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                self.link.check_state()?;
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// The staging memory, once the last message is through.
    fn stage(&self, staged: &mut Option<Buffer<f32>>, len: usize) -> Result<Buffer<f32>, LinkError> {
        self.wait(Instant::now())?;
        let buffer = match staged.take().filter(|buffer| buffer.len() >= len) {
            Some(buffer) => buffer,
            None => self.link.stream().device().buffer(len)?,
        };
        Ok(staged.insert(buffer).slice(0..len)?)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Buffer<f32>>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for NcclLink {
    fn send(&self, words: &[u32]) -> Result<(), LinkError> {
        let mut staged = self.lock();
        let part = self.stage(&mut staged, words.len())?;
        let stream = self.link.stream();
        // Bits are copied, whatever they mean.
        stream.upload(bytemuck::cast_slice(words), &part)?;
        Ok(self.link.pass(&part)?)
    }

    fn receive(&self, count: usize) -> Result<Vec<u32>, LinkError> {
        let mut staged = self.lock();
        let part = self.stage(&mut staged, count)?;
        self.link.pass(&part)?;
        self.wait(Instant::now())?;
        let mut words = vec![0; count];
        self.link.stream().download(&part, bytemuck::cast_slice_mut(&mut words))?;
        Ok(words)
    }

    fn carries_rows(&self) -> bool {
        true
    }

    fn send_rows(&self, rows: &Buffer<f32>) -> Result<(), LinkError> {
        let mut staged = self.lock();
        let part = self.stage(&mut staged, rows.len())?;
        let stream = self.link.stream();
        stream.copy(rows, &part)?;
        // The machine overwrites its rows in the next step.
        stream.wait()?;
        Ok(self.link.pass(&part)?)
    }

    fn receive_rows(&self, rows: &Buffer<f32>) -> Result<(), LinkError> {
        self.link.pass(rows)?;
        self.wait(Instant::now())
    }
}
