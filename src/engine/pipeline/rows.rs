//! Rows of the residual stream from device to device, by NCCL: those of prompts and of wide
//! batches, which graphs of launches compute.
//!
//! Heads, cells and control stay on [`Transport`](super::Transport), which also finds lost ranks. A
//! rank that learns of a loss aborts the links between devices, which ends what waits on them.
//! Bytes come in the order of the heads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use tilewright_codegen::device::{Buffer, Device, DeviceError, DeviceLink, End};
use tilewright_megakernel::vm::AbortHandle;

use super::error::PipelineError;
use super::transport::LinkError;
use crate::engine::EngineError;

/// All ways of a rank to its neighbours' devices. They are given up together.
#[derive(Default)]
pub(super) struct RowLinks {
    links: Mutex<Vec<Arc<DeviceLink>>>,
    is_given_up: AtomicBool,
}

/// A way from this rank's device to a neighbour's, or back.
pub(super) struct RowLink {
    link: Arc<DeviceLink>,
    all: Arc<RowLinks>,
    /// The neighbour.
    rank: usize,
    patience: Duration,
    /// The buffer being sent. The sender holds the lock, so that heads and rows have one order.
    sent: Mutex<Option<Buffer<f32>>>,
}

/// An end of a way that a rank is to open.
pub(super) struct Way {
    /// The id that both ends received.
    pub id: Vec<u8>,
    /// The end of the link.
    pub end: End,
    /// The rank at the other end.
    pub rank: usize,
}

/// The polling interval of a long wait.
const LOOK: Duration = Duration::from_micros(50);
/// The time for which a wait polls without a pause: longer than the transfer of a prompt's rows.
const SPIN: Duration = Duration::from_millis(2);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RowLinks {
    /// Opens ways, side by side, once the neighbours do.
    ///
    /// # Errors
    /// If a neighbour does not come within the patience or is lost, the work is aborted, or NCCL
    /// fails.
    pub fn open(
        self: &Arc<RowLinks>,
        device: &Device,
        ways: Vec<Way>,
        patience: Duration,
        abort: &AbortHandle,
    ) -> Result<Vec<RowLink>, EngineError> {
        let deadline = Instant::now() + patience;
        let mut coming = Vec::new();
        for Way { id, end, rank } in ways {
            let (sender, opened) = channel();
            let device = device.clone();
            // NCCL waits for ever for a rank that does not come; the thread is then abandoned.
            let open = move || sender.send(DeviceLink::open(&device, &id, end));
            Builder::new().name("rows".to_owned()).spawn(open).map_err(PipelineError::Thread)?;
            coming.push((rank, opened));
        }
        let mut links = Vec::new();
        for (rank, opened) in coming {
            let link = loop {
                match opened.recv_timeout(10 * SPIN) {
                    Ok(link) => break Arc::new(link.map_err(|source| PipelineError::Rows { source })?),
                    Err(RecvTimeoutError::Timeout) => self.check(abort, rank, patience, Some(deadline))?,
                    Err(RecvTimeoutError::Disconnected) => return Err(PipelineError::GivenUp.into()),
                }
            };
            locked(&self.links).push(Arc::clone(&link));
            let link = RowLink { link, all: Arc::clone(self), rank, patience, sent: Mutex::new(None) };
            link.wait(abort, Some(deadline))?;
            links.push(link);
        }
        Ok(links)
    }

    /// Makes whatever waits on a way end: another rank is lost, or the work is over.
    pub fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        locked(&self.links).iter().for_each(|link| link.abort());
    }

    /// Checks that a wait may continue: not aborted, not given up, and within the deadline.
    fn check(
        &self,
        abort: &AbortHandle,
        rank: usize,
        patience: Duration,
        deadline: Option<Instant>,
    ) -> Result<(), EngineError> {
        if self.is_given_up.load(Ordering::Acquire) {
            self.give_up();
            return Err(PipelineError::GivenUp.into());
        }
        if abort.is_set() {
            return Err(EngineError::Aborted);
        }
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            self.give_up();
            return Err(PipelineError::lost(rank, LinkError::Silent { seconds: patience.as_secs_f64() }).into());
        }
        Ok(())
    }
}

impl RowLink {
    /// Sends a message by `tell`, then the rows. Returns when the rows may be written again.
    ///
    /// # Errors
    /// If the way was given up, the work is aborted, or the message or the rows cannot be sent.
    pub fn send(
        &self,
        rows: &Buffer<f32>,
        abort: &AbortHandle,
        tell: impl FnOnce() -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let mut sent = locked(&self.sent);
        // The last buffer sent stays valid until the neighbour has received it. The messages
        // announce it.
        self.wait(abort, None)?;
        let stream = self.link.stream();
        let has_room = |buffer: &Buffer<f32>| buffer.len() >= rows.len();
        let buffer = match sent.take().filter(has_room) {
            Some(buffer) => buffer,
            None => stream.device().buffer(rows.len())?,
        };
        let part = sent.insert(buffer).slice(0..rows.len())?;
        stream.copy(rows, &part)?;
        stream.wait()?;
        tell()?;
        self.pass(&part)
    }

    /// Takes the rows of the message that came last.
    ///
    /// # Errors
    /// If they do not come within the patience, the way was given up, or the work is aborted.
    pub fn receive(&self, rows: &Buffer<f32>, abort: &AbortHandle) -> Result<(), EngineError> {
        self.pass(rows)?;
        self.wait(abort, Some(Instant::now() + self.patience))
    }

    fn pass(&self, rows: &Buffer<f32>) -> Result<(), EngineError> {
        self.link.pass(rows).map_err(|error| match error {
            DeviceError::GivenUp => PipelineError::GivenUp.into(),
            source => PipelineError::Rows { source }.into(),
        })
    }

    /// Waits until what was queued is done.
    fn wait(&self, abort: &AbortHandle, deadline: Option<Instant>) -> Result<(), EngineError> {
        let begun = Instant::now();
        loop {
            let is_done = self.link.stream().done().inspect_err(|_| self.all.give_up())?;
            // A wait that ended because the link was given up is done, too.
            self.all.check(abort, self.rank, self.patience, deadline.filter(|_| !is_done))?;
            match begun.elapsed() < SPIN {
                _ if is_done => return Ok(()),
                true => std::hint::spin_loop(),
                false => std::thread::sleep(LOOK),
            }
        }
    }
}
