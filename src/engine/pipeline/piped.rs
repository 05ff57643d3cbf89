//! The machines of rank 0: its own part of the model here, the others on the other ranks.
//!
//! In a pipeline rank 0 computes the first stage, and hands on. Where each rank has a shard of every
//! layer, all are told of a step, compute it together, and rank 0 gathers the logits.
//!
//! Rank 0 does not wait for a step whose logits are not needed (a chunk of a prompt, except the
//! last): while the next rank computes it, rank 0 computes the next chunk. Each link holds one
//! message, which bounds the steps in flight.

use std::iter;
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
        let own = LowerOptions { sampling: false, ..options };
        let stage = StageMachines::new(place, model, driver.part(), own, abort);
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

impl Piped {
    /// Tells the other ranks of the session, once.
    fn tell_begin(&mut self) -> Result<(), EngineError> {
        match self.begin.take() {
            Some(shape) => self.driver.tell(&Message::Begin { session: self.session, shape }),
            None => Ok(()),
        }
    }

    /// Runs a step of the first stage, and has the other stages run theirs; the logits of `rows`.
    fn step_of_stages(&mut self, width: usize, cells: &StepCells, rows: &[usize]) -> Result<Vec<u32>, EngineError> {
        // Other ranks are told once this stage is done: a step that fails here is none for them.
        let output = self.stage.step(width, cells, Inlet::Tokens)?;
        let (driver, session, vocab) = (&self.driver, self.session, self.vocab);
        let words = StepWords::pack(&StepCells { tokens: &[], ..*cells }, rows);
        driver.step(|ring| {
            driver.tell(&Message::Step { session, rows: width, asked: rows.len() })?;
            output.hand_on(&ring.next, words)?;
            if rows.is_empty() { Ok(Vec::new()) } else { ring.previous.receive(rows.len() * vocab) }
        })
    }

    /// Runs a step on all ranks at the same time; the logits of `rows`, each of which has a part on
    /// every rank.
    fn step_of_shards(&mut self, width: usize, cells: &StepCells, rows: &[usize]) -> Result<Vec<u32>, EngineError> {
        let Piped { driver, stage, session, vocab, .. } = self;
        stage.check(width, cells)?;
        let part = stage.vocab();
        driver.step(|ring| {
            driver.tell(&Message::Step { session: *session, rows: width, asked: rows.len() })?;
            ring.next.send(&StepWords::pack(cells, rows))?;
            stage.step_of_shard(width, cells, ring)?;
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            let own = stage.logits_of_shard(width, rows)?;
            let others = ring.gathered(rows.len() * part)?;
            let mut logits = Vec::with_capacity(rows.len() * *vocab);
            for row in 0..rows.len() {
                let of_rank = |rank: &[u32]| logits.extend_from_slice(&rank[row * part..(row + 1) * part]);
                iter::once(bytemuck::cast_slice(&own)).chain(others.chunks_exact(rows.len() * part)).for_each(of_rank);
            }
            debug_assert_eq!(logits.len(), rows.len() * *vocab, "the vocabulary has equal parts");
            Ok(logits)
        })
    }
}

impl Machines for Piped {
    fn width(&mut self, rows: usize) -> Result<usize, EngineError> {
        if self.stage.is_shard() {
            // Other ranks send their weights meanwhile.
            self.tell_begin()?;
        }
        self.stage.width(&self.widths, rows)
    }

    fn chunk_rows(&self) -> usize {
        self.stage.chunk_rows(&self.widths)
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
        self.tell_begin()?;
        let logits = match self.stage.is_shard() {
            true => self.step_of_shards(width, cells, rows),
            false => self.step_of_stages(width, cells, rows),
        };
        let logits = logits.inspect_err(|error| {
            if error.is_abort() {
                self.abort.clear();
            }
        })?;
        for (&row, words) in rows.iter().zip(logits.chunks_exact(self.vocab)) {
            each(row, bytemuck::cast_slice(words));
        }
        Ok(())
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        if self.begin.is_some() {
            return;
        }
        // A rank that cannot be told has lost the session, too.
        let _ = self.driver.tell(&Message::End { session: self.session });
    }
}
