//! The loop of a worker: it receives steps from the previous rank and passes them to the next; the
//! last rank answers the driver.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tilewright_codegen::device::End;

use super::error::{MOST_RANKS, PipelineError, chain};
use super::join::Seat;
use super::message::{Message, MessageError, MessageHead, Shape, StepWords, check_asked};
use super::row_transport::Rows;
use super::rows::{RowLink, RowLinks, Way};
use super::stage::{Inlet, StageMachines, StageOutput, is_wide};
use super::transport::Transport;
use super::world::{Heard, hear, pulse, pulse_of};
use crate::engine::{Engine, EngineError};

/// Messages that can wait while a step runs; the sender of another one blocks. It is more than the
/// driver keeps in flight, so that the report of a lost rank still fits.
const WAITING: usize = 4 * MOST_RANKS;
/// Most sessions at a time.
const MOST_SESSIONS: usize = 16;
/// The time that a worker waits for the driver's verdict after it failed or lost a neighbour.
const VERDICT: Duration = Duration::from_secs(2);
/// The interval at which a waiting worker checks for an interrupt.
const LOOK: Duration = Duration::from_millis(20);

impl Seat {
    /// Computes this rank's layers on an engine's place until the driver ends the work.
    ///
    /// # Errors
    /// If a step fails, another rank is lost, or the work is aborted; the other ranks are told.
    pub fn serve(self, engine: &Engine) -> Result<(), EngineError> {
        let is_over = AtomicBool::new(false);
        let links = Arc::<RowLinks>::default();
        let (sender, heard) = sync_channel(WAITING);
        let others: Vec<Arc<dyn Transport>> =
            [Some(&self.driver), self.next.as_ref()].into_iter().flatten().cloned().collect();
        std::thread::scope(|scope| {
            let listen = |rank: usize, link: Arc<dyn Transport>, sender: SyncSender<Heard>| {
                let links = &links;
                scope.spawn(move || {
                    hear(rank, &*link, |heard| {
                        // A stage that waits for rows receives no message: the rows will not
                        // arrive.
                        if is_end(&heard) {
                            links.give_up();
                        }
                        sender.send(heard).is_ok()
                    });
                });
            };
            if let Some(previous) = &self.previous {
                listen(self.rank - 1, Arc::clone(previous), sender.clone());
            }
            listen(0, Arc::clone(&self.driver), sender);
            scope.spawn(|| pulse(&others, pulse_of(self.patience), &|| is_over.load(Ordering::Relaxed)));
            let mut stage = WorkerStage { seat: &self, engine, sessions: HashMap::new(), rows: Vec::new() };
            let result = stage.open_rows(&links).and_then(|()| stage.work(&heard));
            let result = result.or_else(|error| match error {
                EngineError::Pipeline(PipelineError::GivenUp) => given_up(error, &heard),
                other => Err(other),
            });
            let result = result.or_else(|error| self.verdict(error, &heard));
            is_over.store(true, Ordering::Relaxed);
            links.give_up();
            // Threads that still receive or send are to stop: their channel has no reader any more.
            drop(heard);
            [Some(&self.driver), self.previous.as_ref(), self.next.as_ref()]
                .into_iter()
                .flatten()
                .for_each(|link| link.close());
            result
        })
    }

    /// Reports a failure to the driver, and waits briefly for the driver's verdict: the driver
    /// receives from all ranks.
    fn verdict(&self, error: EngineError, heard: &Receiver<Heard>) -> Result<(), EngineError> {
        let neighbour = match &error {
            EngineError::Pipeline(PipelineError::Failed { .. }) => return Err(error),
            EngineError::Pipeline(lost @ PipelineError::Lost { rank: 1.., .. }) => Some(lost.report()),
            _ => None,
        };
        let is_neighbour = neighbour.is_some();
        let own = || MessageHead::Failed { rank: self.rank, why: chain(&error) };
        // If the report cannot be sent, the driver notices that this rank is gone, or is gone
        // itself.
        let _ = self.driver.send(&neighbour.unwrap_or_else(own).into());
        let deadline = Instant::now() + VERDICT;
        loop {
            match heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                // The work is done: a neighbour heard it first.
                Ok(Heard { rank: 0, what: Ok(Message { head: MessageHead::Bye, .. }) }) if is_neighbour => {
                    return Ok(());
                }
                Ok(Heard { rank: 0, what: Ok(Message { head: MessageHead::Failed { rank, why }, .. }) })
                    if rank != self.rank =>
                {
                    return Err(PipelineError::failed(rank, &why).into());
                }
                // A neighbour that is gone may have heard sooner that the driver is.
                Ok(Heard { rank: 0, what: Err(source) }) if is_neighbour => {
                    return Err(PipelineError::Lost { rank: 0, source }.into());
                }
                Ok(Heard {
                    rank: 0,
                    what: Ok(Message { head: MessageHead::Failed { .. } | MessageHead::Bye, .. }) | Err(_),
                }) => {
                    break;
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        Err(error)
    }
}

/// Whether nothing is computed after this message of a rank.
fn is_end(heard: &Heard) -> bool {
    match &heard.what {
        Ok(message) => heard.rank == 0 && matches!(message.head, MessageHead::Failed { .. } | MessageHead::Bye),
        Err(_) => true,
    }
}

/// Why the ways between devices were given up: the first end that was heard.
fn given_up(error: EngineError, heard: &Receiver<Heard>) -> Result<(), EngineError> {
    let deadline = Instant::now() + VERDICT;
    loop {
        match heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Heard { rank, what: Err(source) }) => return Err(PipelineError::Lost { rank, source }.into()),
            Ok(Heard { rank: 0, what: Ok(Message { head: MessageHead::Failed { rank, why }, .. }) }) => {
                return Err(PipelineError::failed(rank, &why).into());
            }
            Ok(Heard { rank: 0, what: Ok(Message { head: MessageHead::Bye, .. }) }) => return Ok(()),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Err(error),
        }
    }
}

/// A rank at work.
struct WorkerStage<'s> {
    seat: &'s Seat,
    engine: &'s Engine,
    sessions: HashMap<u64, StageMachines>,
    /// Ways from the previous rank's device, and to the next rank's.
    rows: Vec<RowLink>,
}

impl WorkerStage<'_> {
    /// Opens the ways that the driver told of.
    fn open_rows(&mut self, links: &Arc<RowLinks>) -> Result<(), EngineError> {
        let Some(device) = self.engine.row_device()? else { return Ok(()) };
        let Seat { rank, patience, ref ways, .. } = *self.seat;
        let ends = [(End::Takes, rank - 1), (End::Sends, rank + 1)];
        let ways = ways.iter().zip(ends).map(|(id, (end, rank))| Way { id: id.clone(), end, rank }).collect();
        self.rows = links.open(&device, ways, patience, &self.engine.abort)?;
        Ok(())
    }

    fn work(&mut self, heard: &Receiver<Heard>) -> Result<(), EngineError> {
        loop {
            if self.engine.abort.is_set() {
                return Err(EngineError::Aborted);
            }
            let Heard { rank: from, what } = match heard.recv_timeout(LOOK) {
                Ok(heard) => heard,
                Err(RecvTimeoutError::Timeout) => continue,
                // Each receiving thread reports its end before it ends.
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.lost(0, MessageError::Turn { found: "an end".into() }));
                }
            };
            let message = what.map_err(|source| PipelineError::Lost { rank: from, source })?;
            // Rows come from the previous rank, and all other messages from the driver.
            let is_from_previous = from + 1 == self.seat.rank;
            match message.head {
                MessageHead::Begin { session, ref shape } if is_from_previous => {
                    self.begin(session, shape)?;
                    self.seat.hand_on(&message)?;
                }
                MessageHead::Step { session, step, rows, ref asked, by } if is_from_previous => {
                    check_asked(asked, rows).map_err(|error| self.lost(from, error))?;
                    if by == Rows::Nccl && (self.rows.is_empty() || !is_wide(rows)) {
                        return Err(self.lost(from, message.out_of_turn()));
                    }
                    let received = ReceivedStep { session, step, rows, asked, by };
                    self.step(&received, &message.words, from)?;
                }
                MessageHead::End { session } if is_from_previous => {
                    self.sessions.remove(&session);
                    self.seat.hand_on(&message)?;
                }
                MessageHead::Failed { rank, ref why } if from == 0 => {
                    return Err(PipelineError::failed(rank, why).into());
                }
                MessageHead::Bye if from == 0 => return Ok(()),
                MessageHead::Hello { .. }
                | MessageHead::Welcome { .. }
                | MessageHead::Refused { .. }
                | MessageHead::Neighbour { .. }
                | MessageHead::Ready
                | MessageHead::Begin { .. }
                | MessageHead::Step { .. }
                | MessageHead::Logits { .. }
                | MessageHead::End { .. }
                | MessageHead::Alive
                | MessageHead::Failed { .. }
                | MessageHead::Bye => return Err(self.lost(from, message.out_of_turn())),
            }
        }
    }

    fn lost(&self, rank: usize, error: MessageError) -> EngineError {
        PipelineError::lost(rank, error).into()
    }

    fn begin(&mut self, session: u64, shape: &Shape) -> Result<(), EngineError> {
        if self.sessions.len() >= MOST_SESSIONS {
            return Err(PipelineError::Sessions { most: MOST_SESSIONS }.into());
        }
        let options = shape.options(self.seat.layers).map_err(|error| self.lost(self.seat.rank - 1, error))?;
        let machines =
            StageMachines::new(self.engine.place(), self.engine.model().clone(), options, &self.engine.abort);
        self.sessions.insert(session, machines);
        Ok(())
    }

    fn step(&mut self, received: &ReceivedStep, words: &[u32], from: usize) -> Result<(), EngineError> {
        let ReceivedStep { session, step, rows, asked, by } = *received;
        let Some(machines) = self.sessions.get_mut(&session) else {
            let found = format!("a step of session {session}, which has not begun");
            return Err(self.lost(from, MessageError::Turn { found }));
        };
        let [entries, hidden] = machines.sizes();
        let link = self.rows.first().filter(|_| by == Rows::Nccl);
        let sizes = [entries, if link.is_some() { 0 } else { hidden }];
        let words = StepWords::of(words, rows, sizes).map_err(|error| PipelineError::lost(from, error))?;
        let cells = words.cells();
        let output = machines.step(rows, &cells, link.map_or(Inlet::Words(words.hidden()), Inlet::Link))?;
        if self.seat.next.is_none() {
            let message = Message { head: MessageHead::Logits { session, step }, words: logits(output, asked)? };
            return self.seat.hand_on(&message);
        }
        let head = |by| MessageHead::Step { session, step, rows, asked: asked.to_vec(), by };
        output.hand_on(self.rows.get(1), &cells, head, &self.engine.abort, &|message| self.seat.hand_on(message))
    }
}

/// A step that the previous rank sent.
struct ReceivedStep<'a> {
    session: u64,
    step: u64,
    rows: usize,
    /// Rows whose logits the driver asks for.
    asked: &'a [usize],
    /// The transport of the rows.
    by: Rows,
}

impl Seat {
    /// Sends a message to the next rank. The last rank sends to the driver, and logits only.
    fn hand_on(&self, message: &Message) -> Result<(), EngineError> {
        let Seat { rank, driver, next, .. } = self;
        let sent = match (next, &message.head) {
            (Some(next), _) => next.send(message).map_err(|source| PipelineError::lost(rank + 1, source)),
            (None, MessageHead::Logits { .. }) => driver.send(message).map_err(|source| PipelineError::lost(0, source)),
            (None, _) => Ok(()),
        };
        Ok(sent?)
    }
}

/// The logits of rows, as words.
fn logits(output: StageOutput, rows: &[usize]) -> Result<Vec<u32>, EngineError> {
    let mut words = Vec::new();
    output.logits(rows, &mut |_, logits| words.extend(logits.iter().map(|x| x.to_bits())))?;
    Ok(words)
}
