//! The machines of rank 0: the first stage here, the others on the other ranks.
//!
//! Rank 0 does not wait for a step whose logits are not needed (a chunk of a prompt, except the
//! last): while the next rank computes it, rank 0 computes the next chunk. Each link holds one
//! message, which bounds the steps in flight.

use std::sync::Arc;

use tilewright_megakernel::lower::LowerOptions;
use tilewright_megakernel::vm::{AbortHandle, StepCells};

use super::driver::GroupDriver;
use super::message::{Message, Shape, StepWords};
use super::stage::{Inlet, StageMachines};
use crate::engine::EngineError;
use crate::engine::limits::CHUNKS;
use crate::engine::machines::{EachRow, Machines, Widths};
use crate::engine::model::Model;
use crate::engine::place::Place;

/// A session's machines on all ranks.
pub(in crate::engine) struct Piped {
    driver: Arc<GroupDriver>,
    stage: StageMachines,
    widths: Widths,
    vocab: usize,
    abort: AbortHandle,
    session: u64,
    /// The shape that is sent to the ranks before the first step.
    begin: Option<Shape>,
}

/// The session that machines of a pipeline are made for.
pub(in crate::engine) struct PipedSetup {
    pub model: Model,
    pub options: LowerOptions,
    pub widths: Widths,
}

impl Piped {
    /// The machines of a session.
    pub fn new(driver: &Arc<GroupDriver>, place: &Arc<Place>, setup: PipedSetup, abort: &AbortHandle) -> Piped {
        let PipedSetup { model, options, widths } = setup;
        let session = driver.session();
        let begin = Some(Shape::of(&options));
        let vocab = model.spec.vocab;
        let own = LowerOptions { layers: Some(driver.layers()), sampling: false, ..options };
        let stage = StageMachines::new(place, model, own, abort);
        Piped { driver: Arc::clone(driver), stage, widths, vocab, abort: abort.clone(), session, begin }
    }

    fn check_abort(&self) -> Result<(), EngineError> {
        if self.abort.is_set() {
            self.abort.clear();
            return Err(EngineError::Aborted);
        }
        Ok(())
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
        self.driver.check()?;
        if let Some(shape) = self.begin.take() {
            self.driver.tell(&Message::Begin { session: self.session, shape })?;
        }
        // Other ranks are told once this stage is done: a step that fails here is none for them.
        let output = self.stage.step(width, cells, Inlet::Tokens)?;
        let (driver, session, vocab) = (&self.driver, self.session, self.vocab);
        let logits = driver.step(|ring| {
            driver.tell(&Message::Step { session, rows: width, asked: rows.len() })?;
            output.hand_on(&ring.next, StepWords::pack(cells, rows))?;
            if rows.is_empty() { Ok(Vec::new()) } else { ring.last.receive(rows.len() * vocab) }
        });
        let logits = logits.inspect_err(|error| {
            if error.is_abort() {
                self.abort.clear();
            }
        })?;
        for (&row, words) in rows.iter().zip(logits.chunks_exact(vocab)) {
            each(row, bytemuck::cast_slice(words));
        }
        Ok(())
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        // A rank that cannot be told has lost the session, too.
        let _ = self.driver.tell(&Message::End { session: self.session });
    }
}
