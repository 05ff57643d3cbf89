//! The driver's side of a process group that is complete: sessions, steps in flight, and lost
//! ranks.
//!
//! One thread receives from each worker, one sends heartbeats to all, and one handles the received
//! messages. The handler passes logits to the sessions that wait for them. The first failure ends
//! the whole group: all ranks get the rank at fault and the reason.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tilewright_codegen::device::{Device, End};
use tilewright_megakernel::program::Span;
use tilewright_megakernel::vm::AbortHandle;

use super::error::PipelineError;
use super::message::{Message, MessageHead};
use super::rows::{RowLink, RowLinks, Way};
use super::transport::{LinkError, Transport};
use crate::engine::EngineError;

/// The time that a verdict waits for the lost rank's own report.
const GRACE: Duration = Duration::from_millis(200);
/// The time that the driver waits for its workers to end.
const FAREWELL: Duration = Duration::from_secs(2);

/// A step that the last rank has done: its number, and the logits that were asked for.
pub(super) type StepDone = (u64, Vec<u32>);

/// A message received from a rank, or the loss of the rank.
pub(super) struct Heard {
    /// The rank that sent it, or was lost.
    pub rank: usize,
    /// The message, or how the rank was lost.
    pub what: Result<Message, LinkError>,
}

/// The workers that have joined.
pub struct World {
    links: Vec<Arc<dyn Transport>>,
    shared: Arc<WorldShared>,
    layers: Span,
    sessions: AtomicU64,
    threads: Vec<JoinHandle<()>>,
    /// The way from the driver's device to the next one's.
    row_link: Option<RowLink>,
}

/// The state that the driver's threads share.
struct WorldShared {
    lost: Mutex<Option<Arc<PipelineError>>>,
    /// Whether the work is done; a rank that ends afterwards is not lost.
    is_over: AtomicBool,
    /// The channels of the sessions that wait for steps.
    sessions: Mutex<HashMap<u64, Sender<StepDone>>>,
    rows: Arc<RowLinks>,
}

/// Locks a mutex and ignores poisoning: a thread that panicked leaves the data consistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The heartbeat interval for a timeout.
pub(super) fn pulse_of(patience: Duration) -> Duration {
    (patience / 5).min(Duration::from_secs(1))
}

/// Sends heartbeats to other ranks until the work is over. Failures to send are left to the
/// receiving thread, which detects ranks that are gone.
pub(super) fn pulse(links: &[Arc<dyn Transport>], every: Duration, is_over: &dyn Fn() -> bool) {
    let mut last = Instant::now();
    while !is_over() {
        std::thread::sleep(every.min(Duration::from_millis(20)));
        if last.elapsed() >= every {
            last = Instant::now();
            for link in links {
                let _ = link.pulse();
            }
        }
    }
}

impl World {
    /// Creates the driver's group from the links to the ranks from 1 on; the driver has these
    /// layers itself.
    pub(super) fn new(
        links: Vec<Arc<dyn Transport>>,
        layers: Span,
        patience: Duration,
    ) -> Result<World, PipelineError> {
        let shared = Arc::new(WorldShared {
            lost: Mutex::new(None),
            is_over: AtomicBool::new(false),
            sessions: Mutex::new(HashMap::new()),
            rows: Arc::default(),
        });
        let (sender, heard) = channel();
        let mut world =
            World { links, shared, layers, sessions: AtomicU64::new(0), threads: Vec::new(), row_link: None };
        for (rank, link) in (1..).zip(world.links.clone()) {
            let sender = sender.clone();
            world.start(move || hear(rank, &*link, |heard| sender.send(heard).is_ok()))?;
        }
        let links = world.links.clone();
        let shared = Arc::clone(&world.shared);
        world.start(move || judge(&heard, &links, &shared))?;
        let links = world.links.clone();
        let shared = Arc::clone(&world.shared);
        world.start(move || pulse(&links, pulse_of(patience), &|| shared.is_over.load(Ordering::Relaxed)))?;
        Ok(world)
    }

    fn start(&mut self, work: impl FnOnce() + Send + 'static) -> Result<(), PipelineError> {
        let thread = Builder::new().name("pipeline".to_owned()).spawn(work).map_err(PipelineError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Opens the way from the driver's device to the next one's.
    pub(super) fn open_rows(
        &mut self,
        device: &Device,
        id: Vec<u8>,
        patience: Duration,
        abort: &AbortHandle,
    ) -> Result<(), EngineError> {
        let ways = vec![Way { id, end: End::Sends, rank: 1 }];
        let opened = self.shared.rows.open(device, ways, patience, abort);
        // If a rank is lost, its receiving thread has reported it or soon will.
        let opened = opened.map_err(|error| match error {
            EngineError::Pipeline(PipelineError::GivenUp) => self.verdict().map_or(error, EngineError::OfPipeline),
            other => other,
        });
        self.row_link = opened?.into_iter().next();
        Ok(())
    }

    /// The link from this rank's device to the next one's, if rows use it.
    pub(super) fn rows(&self) -> Option<&RowLink> {
        self.row_link.as_ref()
    }

    /// The driver's own layers.
    pub(in crate::engine) fn layers(&self) -> Span {
        self.layers
    }

    /// Processes, the driver among them.
    pub(super) fn ranks(&self) -> usize {
        self.links.len() + 1
    }

    /// A number for a session, and its results.
    pub(super) fn session(&self) -> (u64, Receiver<StepDone>) {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        let (sender, done) = channel();
        // If a rank is lost already, `check` reports it and the session does not wait.
        locked(&self.shared.sessions).insert(number, sender);
        (number, done)
    }

    /// Forgets a session.
    pub(super) fn end(&self, session: u64) {
        locked(&self.shared.sessions).remove(&session);
        // A rank that cannot be told has lost the session, too.
        let _ = self.send(&MessageHead::End { session }.into());
    }

    /// The failure that ended the world, if one did.
    pub(super) fn check(&self) -> Result<(), Arc<PipelineError>> {
        match &*locked(&self.shared.lost) {
            Some(error) => Err(Arc::clone(error)),
            None => Ok(()),
        }
    }

    /// Sends a message to the rank after the driver.
    pub(super) fn send(&self, message: &Message) -> Result<(), Arc<PipelineError>> {
        self.check()?;
        let Some(link) = self.links.first() else { return Ok(()) };
        link.send(message).map_err(|source| self.verdict().unwrap_or_else(|| Arc::new(PipelineError::lost(1, source))))
    }

    /// The error that ended the process group. If it is not known yet, waits briefly for it.
    pub(super) fn verdict(&self) -> Option<Arc<PipelineError>> {
        let deadline = Instant::now() + 5 * GRACE;
        loop {
            match self.check() {
                Err(error) => return Some(error),
                Ok(()) if Instant::now() > deadline => return None,
                Ok(()) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.shared.rows.give_up();
        // Where a rank is lost the others are told of that, and of no good end.
        if self.check().is_ok() {
            for link in &self.links {
                // A rank that is gone needs no farewell.
                let _ = link.send(&MessageHead::Bye.into());
            }
        }
        let deadline = Instant::now() + FAREWELL;
        while Instant::now() < deadline && self.threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.links.iter().for_each(|link| link.close());
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Receives from a rank until it is gone or `tell` returns false.
pub(super) fn hear(rank: usize, link: &dyn Transport, tell: impl Fn(Heard) -> bool) {
    loop {
        let what = link.receive();
        let is_end = what.is_err();
        let is_pulse = what.as_ref().is_ok_and(|message| message.head == MessageHead::Alive);
        if !is_pulse && (!tell(Heard { rank, what }) || is_end) {
            return;
        }
    }
}

/// Delivers logits and detects lost ranks, until all ranks are gone.
fn judge(heard: &Receiver<Heard>, links: &[Arc<dyn Transport>], shared: &WorldShared) {
    let mut is_judged = false;
    while let Ok(Heard { rank: from, what }) = heard.recv() {
        if is_judged || shared.is_over.load(Ordering::Relaxed) {
            continue;
        }
        if let Some(verdict) = handle(from, what, links.len(), shared) {
            let verdict = best(verdict, heard);
            // A lost rank receives nothing, and its full connection would hold up all others.
            let gone = match verdict {
                PipelineError::Lost { rank, .. } => Some(rank),
                _ => None,
            };
            let report = Message::from(verdict.report());
            *locked(&shared.lost) = Some(Arc::new(verdict));
            locked(&shared.sessions).clear();
            shared.rows.give_up();
            for (rank, link) in (1..).zip(links) {
                match gone == Some(rank) {
                    true => link.close(),
                    false => drop(link.send(&report)),
                }
            }
            is_judged = true;
        }
    }
}

/// Handles a message from a rank: logits for a session, or a failure.
fn handle(from: usize, what: Result<Message, LinkError>, last: usize, shared: &WorldShared) -> Option<PipelineError> {
    match what {
        Ok(Message { head: MessageHead::Logits { session, step }, words }) if from == last => {
            if let Some(waiting) = locked(&shared.sessions).get(&session) {
                // A session that no longer waits has ended.
                let _ = waiting.send((step, words));
            }
            None
        }
        Ok(Message { head: MessageHead::Failed { rank, why }, .. }) => Some(PipelineError::failed(rank, &why)),
        Ok(other) => Some(PipelineError::lost(from, other.out_of_turn())),
        Err(source) => Some(PipelineError::Lost { rank: from, source }),
    }
}

/// The failure that tells most: what the rank that is lost says of itself, if it does within a
/// moment.
fn best(first: PipelineError, heard: &Receiver<Heard>) -> PipelineError {
    let deadline = Instant::now() + GRACE;
    loop {
        match heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Heard { rank: from, what: Ok(Message { head: MessageHead::Failed { rank, why }, .. }) })
                if from == rank =>
            {
                return PipelineError::failed(rank, &why);
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return first,
        }
    }
}
