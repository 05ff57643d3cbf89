//! The driver's machines: the first stage here, the others elsewhere.
//!
//! The driver does not wait for a step whose logits are not needed (a prompt's chunk, but for the
//! last): while the next rank computes it, the driver computes the next chunk. At most [`AHEAD`]
//! steps for each rank are on their way.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tilewright_megakernel::lower::LowerOptions;
use tilewright_megakernel::vm::{AbortHandle, StepCells};

use super::error::PipelineError;
use super::message::{Message, MessageError, MessageHead, Shape};
use super::stage::{Inlet, StageMachines};
use super::world::{StepDone, World};
use crate::engine::EngineError;
use crate::engine::limits::CHUNKS;
use crate::engine::machines::{EachRow, Machines, Widths};
use crate::engine::model::Model;
use crate::engine::place::Place;

/// Steps on their way for each rank: one that it computes, and one that waits.
const AHEAD: usize = 2;
/// The interval at which a waiting thread checks for an abort.
const LOOK: Duration = Duration::from_millis(20);

/// A session's machines on all ranks.
pub(in crate::engine) struct Piped {
    world: Arc<World>,
    stage: StageMachines,
    widths: Widths,
    vocab: usize,
    abort: AbortHandle,
    session: u64,
    done: Receiver<StepDone>,
    /// The shape that is sent to the ranks before the first step.
    begin: Option<Shape>,
    /// Steps that were sent, and steps that are known to be done.
    sent: u64,
    known: u64,
}

/// The session that machines of a pipeline are made for.
pub(in crate::engine) struct PipedSetup {
    pub model: Model,
    pub options: LowerOptions,
    pub widths: Widths,
}

impl Piped {
    /// The machines of a session.
    pub fn new(world: &Arc<World>, place: &Arc<Place>, setup: PipedSetup, abort: &AbortHandle) -> Piped {
        let PipedSetup { model, options, widths } = setup;
        let (session, done) = world.session();
        let begin = Some(Shape::of(&options));
        let vocab = model.spec.vocab;
        let own = LowerOptions { layers: Some(world.layers()), sampling: false, ..options };
        Piped {
            world: Arc::clone(world),
            stage: StageMachines::new(place, model, own, abort),
            widths,
            vocab,
            abort: abort.clone(),
            session,
            done,
            begin,
            sent: 0,
            known: 0,
        }
    }

    fn send(&self, message: &Message) -> Result<(), EngineError> {
        self.world.send(message).map_err(EngineError::OfPipeline)
    }

    fn check_abort(&self) -> Result<(), EngineError> {
        if self.abort.is_set() {
            self.abort.clear();
            return Err(EngineError::Aborted);
        }
        Ok(())
    }

    /// Waits for the next step that is done; gives its logits.
    fn wait(&mut self) -> Result<Vec<u32>, EngineError> {
        loop {
            self.check_abort()?;
            match self.done.recv_timeout(LOOK) {
                Ok((step, words)) if step == self.known => {
                    self.known += 1;
                    return Ok(words);
                }
                Ok((step, _)) => {
                    let found = format!("step {step} after step {}", self.known);
                    return Err(self.last(MessageError::Turn { found }));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let error = self.world.verdict();
                    let unknown = || Arc::new(PipelineError::failed(0, "a session ended before its steps"));
                    return Err(EngineError::OfPipeline(error.unwrap_or_else(unknown)));
                }
            }
        }
    }

    /// Why ways between devices were given up.
    fn told(&self, error: EngineError) -> EngineError {
        match error {
            EngineError::Pipeline(PipelineError::GivenUp) => {
                self.world.verdict().map_or(error, EngineError::OfPipeline)
            }
            EngineError::Aborted => {
                self.abort.clear();
                error
            }
            other => other,
        }
    }

    /// The last rank said what makes no sense.
    fn last(&self, error: MessageError) -> EngineError {
        PipelineError::lost(self.world.ranks() - 1, error).into()
    }
}

impl Machines for Piped {
    fn width(&mut self, rows: usize) -> Result<usize, EngineError> {
        self.stage.width(&self.widths, rows)
    }

    fn chunk_rows(&self) -> usize {
        match self.stage.most_rows() {
            usize::MAX => CHUNKS[0],
            most => self.widths.chunk.unwrap_or(most).max(most),
        }
    }

    fn chunk(&mut self, rest: usize) -> Result<usize, EngineError> {
        match self.stage.most_rows() {
            usize::MAX => Ok(CHUNKS.into_iter().find(|&rows| rows <= rest).unwrap_or(1)),
            _ => self.width(rest.min(self.chunk_rows())).map(|width| width.min(rest)),
        }
    }

    fn most_rows(&self) -> usize {
        self.stage.most_rows()
    }

    fn step(&mut self, width: usize, cells: &StepCells, rows: &[usize], each: EachRow) -> Result<(), EngineError> {
        self.check_abort()?;
        self.world.check().map_err(EngineError::OfPipeline)?;
        if let Some(shape) = self.begin.take() {
            self.send(&MessageHead::Begin { session: self.session, shape }.into())?;
        }
        let output = self.stage.step(width, cells, Inlet::Tokens)?;
        let session = self.session;
        let step = self.sent;
        let head = |by| MessageHead::Step { session, step, rows: width, asked: rows.to_vec(), by };
        let tell = |message: &Message| self.world.send(message).map_err(EngineError::OfPipeline);
        let handed = output.hand_on(self.world.rows(), cells, head, &self.abort, &tell);
        handed.map_err(|error| self.told(error))?;
        self.sent += 1;
        let most = (AHEAD * self.world.ranks()) as u64;
        while self.known <= step && (!rows.is_empty() || self.sent - self.known > most) {
            let of_step = self.known == step;
            let words = self.wait()?;
            if !of_step {
                continue;
            }
            let expected = rows.len() * self.vocab;
            if words.len() != expected {
                return Err(self.last(MessageError::Words { found: words.len(), expected }));
            }
            for (&row, words) in rows.iter().zip(words.chunks_exact(self.vocab)) {
                let logits: Vec<f32> = words.iter().map(|&word| f32::from_bits(word)).collect();
                each(row, &logits);
            }
        }
        Ok(())
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        self.world.end(self.session);
    }
}
