//! Links between the GPUs of neighbouring ranks, and sums of all ranks, by NCCL.
//!
//! A link is a communicator of two ranks, so that what waits on one link never blocks another.
//! Sums have a communicator of all ranks, and are part of launch graphs.
//! Receives are queued only once a step is announced: an idle rank runs no kernel. Waits poll for
//! NCCL's asynchronous errors and for the limits, and abort the communicator then.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use tilewright_codegen::device::backend::Work;
use tilewright_codegen::device::{Buffer, Collective, Device, DeviceError, DeviceLink, End, Graph};
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::graph::GraphShard;

use super::error::PipelineError;
use super::transport::{LinkError, LinkId, Network, RingEnds, RingLinks, Transport, WaitLimits};
use crate::engine::EngineError;

/// The polling interval of a long wait.
const PAUSE: Duration = Duration::from_micros(50);
/// The time for which a wait polls without a pause: longer than the transfer of a prompt's rows.
const SPIN: Duration = Duration::from_millis(2);

/// The time for which a rank waits for the reason of an error of NCCL's: rank 0 knows which rank is
/// lost, and NCCL does not.
const VERDICT: Duration = Duration::from_secs(2);

/// What an error of NCCL's is reported as: the end of the wait, if another rank is lost.
fn cause(limits: &WaitLimits, error: DeviceError) -> LinkError {
    let failed = Instant::now();
    while failed.elapsed() < VERDICT {
        match limits.check(failed) {
            Ok(()) => std::thread::sleep(10 * SPIN),
            Err(LinkError::Silent { .. }) => break,
            Err(ended) => return ended,
        }
    }
    error.into()
}

/// Calls NCCL, which waits without a timeout for ranks that do not come, on a thread of its own
/// that is then abandoned.
fn within<T: Send + 'static>(
    limits: &WaitLimits,
    begun: Instant,
    call: impl FnOnce() -> Result<T, DeviceError> + Send + 'static,
) -> Result<T, LinkError> {
    let (sender, called) = channel();
    let run = move || drop(sender.send(call()));
    Builder::new().name("nccl".to_owned()).spawn(run).map_err(LinkError::Io)?;
    loop {
        match called.recv_timeout(10 * SPIN) {
            Ok(result) => return result.map_err(|error| cause(limits, error)),
            Err(RecvTimeoutError::Timeout) => limits.check(begun)?,
            Err(RecvTimeoutError::Disconnected) => return Err(LinkError::Ended),
        }
    }
}

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
        let (device, id) = (self.device.clone(), *id);
        let link = within(limits, begun, move || DeviceLink::open(&device, &id, end))?;
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
        let mut ends = if links.rank == 0 {
            let to = to()?;
            RingEnds { from: from()?, to, collective: None }
        } else {
            RingEnds { from: from()?, to: to()?, collective: None }
        };
        let RingLinks { rank, size, sums, .. } = *links;
        if let Some(id) = sums {
            let device = self.device.clone();
            let join = move || Collective::join(&device, &id, rank, size);
            ends.collective = Some(within(limits, Instant::now(), join)?);
        }
        Ok(ends)
    }
}

/// The sums of all ranks.
pub(super) struct NcclSums {
    collective: Collective,
    limits: WaitLimits,
}

impl NcclSums {
    /// Sums by a collective of all ranks, waited for within these limits.
    pub fn new(collective: Collective, limits: WaitLimits) -> NcclSums {
        NcclSums { collective, limits }
    }

    /// Runs a step of a shard. If it fails, the sums are aborted.
    pub fn step(&self, shard: &mut GraphShard, cells: &StepCells) -> Result<(), EngineError> {
        let begun = Instant::now();
        let record = &mut |work| self.record(begun, work);
        let stepped = shard.submit(cells, &self.collective, record).and_then(|()| self.wait(begun, shard));
        if stepped.is_err() {
            // What fails here is of a device that is lost, which is what the error says.
            let _ = self.collective.abort();
        }
        stepped
    }

    /// Makes the graph of a step. NCCL connects the ranks meanwhile.
    fn record(&self, begun: Instant, work: Vec<Work>) -> Result<Graph, EngineError> {
        let collective = self.collective.clone();
        let graphs = within(&self.limits, begun, move || collective.graphs(&[work])).map_err(of_sum)?;
        graphs.into_iter().next().ok_or_else(|| PipelineError::Ended.into())
    }

    fn wait(&self, begun: Instant, shard: &GraphShard) -> Result<(), EngineError> {
        let from = Instant::now();
        loop {
            let is_done = shard.done()?;
            // A wait that ended because the communicator was aborted is done, too.
            match self.limits.check(begun) {
                Err(LinkError::Silent { .. }) if is_done => return Ok(()),
                Err(error) => return Err(of_sum(error)),
                Ok(()) if is_done => return Ok(()),
                Ok(()) => {}
            }
            if from.elapsed() < SPIN {
                std::hint::spin_loop();
                continue;
            }
            self.collective.check_state().map_err(|error| of_sum(cause(&self.limits, error)))?;
            std::thread::sleep(PAUSE);
        }
    }
}

/// The error of a sum, which names no rank.
fn of_sum(error: LinkError) -> EngineError {
    match error {
        LinkError::Aborted => EngineError::Aborted,
        LinkError::Silent { seconds } => PipelineError::Late { seconds }.into(),
        LinkError::Device(source) => PipelineError::Sum(source).into(),
        LinkError::Ended | LinkError::Closed | LinkError::Io(_) | LinkError::Message(_) => PipelineError::Ended.into(),
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

#[cfg(test)]
mod tests {
    use tilewright_megakernel::vm::AbortHandle;

    use super::*;

    fn failing() -> DeviceError {
        DeviceError::Nccl { call: "ncclGroupEnd", code: 2, text: "unhandled system error".to_owned() }
    }

    /// NCCL finds that a connection is gone before rank 0 does: the error is what rank 0 then says.
    #[test]
    fn an_error_of_nccl_waits_for_the_rank_that_is_lost() {
        let limits = WaitLimits::new(Duration::from_secs(60), AbortHandle::default());
        let judge = limits.clone();
        let judge = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            judge.end();
        });
        let failed = within(&limits, Instant::now(), || Err::<(), _>(failing()));
        judge.join().expect("no panic");
        assert!(matches!(failed, Err(LinkError::Ended)), "{failed:?}");
    }

    #[test]
    fn an_error_of_nccl_is_its_own_if_no_rank_is_lost() {
        let limits = WaitLimits::new(Duration::from_millis(50), AbortHandle::default());
        let failed = within(&limits, Instant::now(), || Err::<(), _>(failing()));
        assert!(matches!(failed, Err(LinkError::Device(_))), "{failed:?}");
    }
}
