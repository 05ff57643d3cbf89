//! Rank 0 of a process group: it drives the other ranks and finds lost ones.
//!
//! One thread receives from each rank, one sends heartbeats to all, and one judges what was
//! received. The first failure ends the whole group: all ranks get the rank at fault and the
//! reason.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::control::Control;
use super::cut::ModelPart;
use super::error::{PipelineError, chain};
use super::message::Message;
use super::ring::Ring;
use super::transport::{LinkError, Network, RingLinks, WaitLimits};
use crate::engine::EngineError;

/// The time that a verdict waits for the lost rank's own report.
const GRACE: Duration = Duration::from_millis(200);
/// The time that rank 0 waits for the other ranks to end.
const FAREWELL: Duration = Duration::from_secs(2);

/// A message received from a rank, or the loss of the rank.
pub(super) struct Received {
    /// The rank that sent it, or was lost.
    pub rank: usize,
    /// The message, or how the rank was lost.
    pub what: Result<Message, LinkError>,
}

/// The other ranks, as rank 0 has them.
pub struct GroupDriver {
    controls: Vec<Arc<Control>>,
    shared: Arc<DriverState>,
    limits: WaitLimits,
    part: ModelPart,
    sessions: AtomicU64,
    threads: Vec<JoinHandle<()>>,
    /// Reports of rank 0's own links.
    received: Option<Sender<Received>>,
    /// The ranks next to rank 0; none until their links are open. A step that needs logits has them
    /// to itself until they are there.
    ring: Mutex<Option<Ring>>,
}

/// The state that rank 0's threads share.
struct DriverState {
    lost: Mutex<Option<Arc<PipelineError>>>,
    /// Whether the work is done; a rank that ends afterwards is not lost.
    is_over: AtomicBool,
}

/// Locks a mutex and ignores poisoning: a thread that panicked leaves the data consistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends heartbeats to other ranks until the work is over. Failures to send are left to the
/// receiving thread, which detects ranks that are gone.
pub(super) fn send_heartbeats(controls: &[Arc<Control>], is_over: &dyn Fn() -> bool) {
    let interval = controls.first().map_or(Duration::ZERO, |control| control.interval());
    let mut last = Instant::now();
    while !is_over() {
        std::thread::sleep(interval.min(Duration::from_millis(20)));
        if last.elapsed() >= interval {
            last = Instant::now();
            for control in controls {
                let _ = control.heartbeat();
            }
        }
    }
}

/// Receives from a rank until it is gone or `tell` returns false.
pub(super) fn receive(rank: usize, control: &Control, tell: impl Fn(Received) -> bool) {
    loop {
        let what = control.receive();
        let is_end = what.is_err();
        let is_heartbeat = matches!(what, Ok(Message::Alive));
        if !is_heartbeat && (!tell(Received { rank, what }) || is_end) {
            return;
        }
    }
}

impl GroupDriver {
    /// Opens the links of rank 0, which has this part of the model itself.
    pub(super) fn new(
        controls: Vec<Control>,
        part: ModelPart,
        network: &dyn Network,
        links: &RingLinks,
        limits: WaitLimits,
    ) -> Result<GroupDriver, EngineError> {
        let shared = Arc::new(DriverState { lost: Mutex::new(None), is_over: AtomicBool::new(false) });
        let controls: Vec<_> = controls.into_iter().map(Arc::new).collect();
        let (sender, received) = channel();
        let mut driver = GroupDriver {
            controls: controls.clone(),
            shared: Arc::clone(&shared),
            limits: limits.clone(),
            part,
            sessions: AtomicU64::new(0),
            threads: Vec::new(),
            // No other sender outlives the receiving threads, so that the judge ends with them.
            received: Some(sender),
            ring: Mutex::new(None),
        };
        for (rank, control) in (1..).zip(controls.clone()) {
            let Some(sender) = driver.received.clone() else { continue };
            driver.start(move || receive(rank, &control, |received| sender.send(received).is_ok()))?;
        }
        let (judged, judge_limits, judge_shared) = (controls.clone(), limits, Arc::clone(&shared));
        driver.start(move || judge(&received, &judged, &judge_limits, &judge_shared))?;
        driver.start(move || send_heartbeats(&controls, &|| shared.is_over.load(Ordering::Relaxed)))?;
        let ends = network.open(links, &driver.limits).map_err(|error| driver.unopened(error))?;
        *locked(&driver.ring) = Some(Ring::new(links, &ends, &driver.limits));
        Ok(driver)
    }

    /// Why the links of rank 0 are not open. If another rank is lost, that is the cause.
    fn unopened(&self, error: LinkError) -> EngineError {
        match (error, self.verdict()) {
            (LinkError::Aborted, _) => EngineError::Aborted,
            (_, Some(verdict)) => EngineError::OfPipeline(verdict),
            (error, None) => self.judged(PipelineError::Network(error).into()),
        }
    }

    fn start(&mut self, work: impl FnOnce() + Send + 'static) -> Result<(), PipelineError> {
        let thread = Builder::new().name("group".to_owned()).spawn(work).map_err(PipelineError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Rank 0's own part of the model.
    pub(super) fn part(&self) -> ModelPart {
        self.part
    }

    /// A number for a session.
    pub(super) fn session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs the part of a step that is other ranks'. A failed one ends the group.
    pub(super) fn step<T>(&self, run: impl FnOnce(&Ring) -> Result<T, EngineError>) -> Result<T, EngineError> {
        let ring = locked(&self.ring);
        self.check()?;
        let Some(ring) = &*ring else { return Err(PipelineError::Ended.into()) };
        run(ring).map_err(|error| self.judged(error))
    }

    /// Sends a message to all other ranks.
    pub(super) fn tell(&self, message: &Message) -> Result<(), EngineError> {
        self.check()?;
        for (rank, control) in (1..).zip(&self.controls) {
            control.send(message).map_err(|source| self.judged(PipelineError::lost(rank, source).into()))?;
        }
        Ok(())
    }

    /// The failure that ended the group, if one did.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        match &*locked(&self.shared.lost) {
            Some(error) => Err(EngineError::OfPipeline(Arc::clone(error))),
            None => Ok(()),
        }
    }

    /// The error that ends the group after a step failed at other ranks. An abort in the middle of
    /// a step ends it, too: the ranks do not agree on their KV pools any more.
    fn judged(&self, error: EngineError) -> EngineError {
        match error {
            EngineError::Pipeline(PipelineError::Lost { rank, source }) => {
                let why = chain(&source);
                let report = Received { rank, what: Err(source) };
                // The judge prefers what the rank reports of itself.
                let is_told = self.received.as_ref().is_some_and(|received| received.send(report).is_ok());
                let verdict = if is_told { self.verdict() } else { None };
                verdict.map_or_else(|| PipelineError::failed(rank, &why).into(), EngineError::OfPipeline)
            }
            EngineError::Pipeline(PipelineError::Ended) => self.verdict().map_or(error, EngineError::OfPipeline),
            EngineError::Aborted => {
                locked(&self.shared.lost).get_or_insert_with(|| Arc::new(PipelineError::Ended));
                error
            }
            other => {
                // The other ranks wait for data that will not come.
                let what = Ok(Message::Failed { rank: 0, why: chain(&other) });
                let _ = self.received.as_ref().map(|received| received.send(Received { rank: 0, what }));
                // The judge has told them once there is a verdict.
                let _ = self.verdict();
                other
            }
        }
    }

    /// The error that ended the group. If it is not known yet, waits briefly for it.
    fn verdict(&self) -> Option<Arc<PipelineError>> {
        let deadline = Instant::now() + 5 * GRACE;
        loop {
            if let Some(error) = &*locked(&self.shared.lost) {
                return Some(Arc::clone(error));
            }
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for GroupDriver {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.limits.end();
        self.received = None;
        // If a rank is lost, the others were told of that.
        let lost = locked(&self.shared.lost).clone();
        if lost.is_none_or(|error| matches!(*error, PipelineError::Ended)) {
            for control in &self.controls {
                // A rank that is gone needs no farewell.
                let _ = control.send(&Message::Bye);
            }
        }
        let deadline = Instant::now() + FAREWELL;
        while Instant::now() < deadline && self.threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.controls.iter().for_each(|control| control.close());
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Detects lost ranks, until all ranks are gone.
fn judge(received: &Receiver<Received>, controls: &[Arc<Control>], limits: &WaitLimits, shared: &DriverState) {
    let mut is_judged = false;
    while let Ok(Received { rank: from, what }) = received.recv() {
        if is_judged || shared.is_over.load(Ordering::Relaxed) {
            continue;
        }
        is_judged = true;
        let verdict = match what {
            Ok(Message::Failed { rank, why }) => PipelineError::failed(rank, &why),
            Ok(other) => PipelineError::invalid(from, other.out_of_turn()),
            Err(source) => PipelineError::Lost { rank: from, source },
        };
        let verdict = best(verdict, received);
        // A lost rank may receive nothing: its full connection holds up no other.
        let gone = match verdict {
            PipelineError::Lost { rank, .. } => Some(rank),
            _ => None,
        };
        let report = verdict.report();
        {
            let mut lost = locked(&shared.lost);
            if lost.is_some() {
                // An abort here ended the group already; its links end with it.
                continue;
            }
            *lost = Some(Arc::new(verdict));
        }
        limits.end();
        let (last, first): (Vec<_>, Vec<_>) = (1..).zip(controls).partition(|(rank, _)| gone == Some(*rank));
        first.into_iter().chain(last).for_each(|(_, control)| drop(control.send(&report)));
    }
}

/// The failure that tells most: what the rank that is lost says of itself, if it does within a
/// moment.
fn best(first: PipelineError, received: &Receiver<Received>) -> PipelineError {
    let deadline = Instant::now() + GRACE;
    loop {
        match received.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Received { rank: from, what: Ok(Message::Failed { rank, why }) }) if from == rank => {
                return PipelineError::failed(rank, &why);
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return first,
        }
    }
}
