//! The loop of a rank from 1 on: it receives steps from the previous rank and passes them to the
//! next; the last rank sends logits to rank 0. A shard passes a step on before it computes it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use super::control::Control;
use super::cut::ModelPart;
use super::driver::{Received, receive, send_heartbeats};
use super::error::{PipelineError, chain};
use super::group::MOST_RANKS;
use super::message::{Message, MessageError, Shape, StepSizes, StepWords};
use super::ring::Ring;
use super::stage::{Inlet, StageMachines, is_wide};
use super::transport::{LinkError, Network, RingEnds, RingLinks, WaitLimits};
use crate::engine::limits::LEAST_GRAPH;
use crate::engine::{Engine, EngineError};

/// Messages that can wait while a step runs; rank 0 blocks after that many. It is more than the
/// links hold, so that the report of a lost rank still fits.
const WAITING: usize = 4 * MOST_RANKS;
/// Most sessions at a time.
const MOST_SESSIONS: usize = 16;
/// The time that a rank waits for rank 0's verdict after it failed or lost a neighbour.
const VERDICT: Duration = Duration::from_secs(2);
/// The interval at which a waiting rank checks for an interrupt.
const PAUSE: Duration = Duration::from_millis(20);

/// A rank from 1 on, which has joined its group.
pub struct Stage {
    pub(super) engine: Engine,
    pub(super) part: ModelPart,
    pub(super) control: Arc<Control>,
    pub(super) network: Arc<dyn Network>,
    pub(super) links: RingLinks,
    pub(super) limits: WaitLimits,
}

/// The loop's state.
struct Work<'s> {
    stage: &'s Stage,
    ring: Ring,
    sessions: HashMap<u64, StageMachines>,
}

impl Stage {
    /// The rank.
    pub fn rank(&self) -> usize {
        self.links.rank
    }

    /// Its part of the model.
    pub fn part(&self) -> ModelPart {
        self.part
    }

    /// The engine, whose abort handle ends the work.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Computes this rank's part until rank 0 ends the work.
    ///
    /// # Errors
    /// If a step fails, another rank is lost, or the work is aborted; the other ranks are told.
    pub fn run(&self) -> Result<(), EngineError> {
        let is_over = AtomicBool::new(false);
        let (sender, received) = sync_channel(WAITING);
        let controls = [Arc::clone(&self.control)];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                receive(0, &self.control, |message| {
                    // A stage that waits for a neighbour receives no message: data will not come.
                    if matches!(message.what, Ok(Message::Failed { .. } | Message::Bye) | Err(_)) {
                        self.limits.end();
                    }
                    sender.send(message).is_ok()
                });
            });
            scope.spawn(|| send_heartbeats(&controls, &|| is_over.load(Ordering::Relaxed)));
            // The links stay open until the verdict: neighbours would report their end first.
            let mut ends = None;
            let result = self.work(&received, &mut ends).or_else(|error| self.verdict(error, &received));
            is_over.store(true, Ordering::Relaxed);
            self.limits.end();
            self.control.close();
            // The receiving thread stops: its channel has no reader any more.
            drop(received);
            result
        })
    }

    fn work(&self, received: &Receiver<Received>, ends: &mut Option<RingEnds>) -> Result<(), EngineError> {
        let opened = self.network.open(&self.links, &self.limits).map_err(|error| match error {
            LinkError::Aborted => EngineError::Aborted,
            LinkError::Ended => PipelineError::Ended.into(),
            error => PipelineError::Network(error).into(),
        })?;
        let ring = Ring::new(&self.links, ends.insert(opened), &self.limits);
        Work { stage: self, ring, sessions: HashMap::new() }.run(received)
    }

    /// Reports a failure to rank 0, and waits briefly for its verdict: rank 0 receives from all
    /// ranks.
    fn verdict(&self, error: EngineError, received: &Receiver<Received>) -> Result<(), EngineError> {
        let (is_own, report) = match &error {
            EngineError::Pipeline(PipelineError::Failed { .. }) => return Err(error),
            EngineError::Pipeline(PipelineError::Ended) => (false, None),
            EngineError::Pipeline(lost @ PipelineError::Lost { source, .. }) => {
                (matches!(source, LinkError::Message(_)), Some(lost.report()))
            }
            _ => (true, Some(Message::Failed { rank: self.rank(), why: chain(&error) })),
        };
        if let Some(report) = report {
            // If it cannot be sent, rank 0 notices that this rank is gone, or is gone itself.
            let _ = self.control.send(&report);
        }
        let deadline = Instant::now() + VERDICT;
        loop {
            match received.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                // A rank that others name while it waits for them says so, too.
                Ok(Received { what: Ok(Message::Failed { rank, why }), .. }) if rank != self.rank() || !is_own => {
                    return Err(PipelineError::failed(rank, &why).into());
                }
                // The work is done: a neighbour ended first.
                Ok(Received { what: Ok(Message::Bye), .. }) if !is_own => return Ok(()),
                Ok(Received { what: Err(source), .. }) if !is_own => {
                    return Err(PipelineError::Lost { rank: 0, source }.into());
                }
                Ok(Received { what: Ok(Message::Failed { .. } | Message::Bye) | Err(_), .. })
                | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Err(error),
                Ok(_) => {}
            }
        }
    }
}

impl Work<'_> {
    fn run(&mut self, received: &Receiver<Received>) -> Result<(), EngineError> {
        loop {
            if self.stage.engine.abort.is_set() {
                return Err(EngineError::Aborted);
            }
            let what = match received.recv_timeout(PAUSE) {
                Ok(received) => received.what,
                Err(RecvTimeoutError::Timeout) => continue,
                // The receiving thread reports its end before it ends.
                Err(RecvTimeoutError::Disconnected) => return Err(PipelineError::Ended.into()),
            };
            match what.map_err(|source| PipelineError::Lost { rank: 0, source })? {
                Message::Begin { session, shape } => self.begin(session, &shape)?,
                Message::Step { session, rows, asked } => self.step(session, rows, asked)?,
                Message::End { session } => drop(self.sessions.remove(&session)),
                Message::Failed { rank, why } => return Err(PipelineError::failed(rank, &why).into()),
                Message::Bye => return Ok(()),
                Message::Alive => {}
            }
        }
    }

    fn begin(&mut self, session: u64, shape: &Shape) -> Result<(), EngineError> {
        if self.sessions.len() >= MOST_SESSIONS {
            return Err(PipelineError::Sessions { most: MOST_SESSIONS }.into());
        }
        let Stage { engine, part, .. } = self.stage;
        let options = shape.options().map_err(|error| PipelineError::invalid(0, error))?;
        let mut machines = StageMachines::new(engine.place(), engine.model().clone(), *part, options, &engine.abort);
        if machines.is_shard() {
            // The weights are on their way while rank 0 sends its own.
            machines.make(LEAST_GRAPH)?;
        }
        self.sessions.insert(session, machines);
        Ok(())
    }

    fn step(&mut self, session: u64, rows: usize, asked: usize) -> Result<(), EngineError> {
        let Some(machines) = self.sessions.get_mut(&session) else {
            let found = format!("a step of session {session}, which has not begun");
            return Err(PipelineError::invalid(0, MessageError::Turn { found }).into());
        };
        let (ring, previous) = (&self.ring, &self.ring.previous);
        let is_shard = machines.is_shard();
        // Both ends of a link choose alike: a wide step is a graph of launches on each.
        let is_direct = previous.link.carries_rows() && is_wide(rows);
        let hidden = if is_shard || is_direct { 0 } else { machines.hidden() };
        let sizes = StepSizes { rows, asked, tokens: is_shard, entries: machines.entries(), hidden };
        let count = sizes.words().map_err(|error| PipelineError::invalid(0, error))?;
        let received = previous.receive(count)?;
        let words = StepWords::of(&received, sizes).map_err(|error| PipelineError::invalid(previous.rank, error))?;
        let cells = words.cells();
        if is_shard {
            if !ring.is_last() {
                ring.next.send(&received)?;
            }
            machines.step_of_shard(rows, &cells, ring)?;
            return match asked {
                0 => Ok(()),
                _ => ring.gather(&machines.logits_of_shard(rows, words.asked())?),
            };
        }
        let inlet = if is_direct { Inlet::Link(previous) } else { Inlet::Words(words.hidden()) };
        let output = machines.step(rows, &cells, inlet)?;
        if !ring.is_last() {
            return output.hand_on(&ring.next, StepWords::pack(&cells, words.asked()));
        }
        if asked == 0 {
            return Ok(());
        }
        let mut logits: Vec<u32> = Vec::new();
        output.logits(words.asked(), &mut |_, row| logits.extend(row.iter().map(|x| x.to_bits())))?;
        ring.next.send(&logits)
    }
}
