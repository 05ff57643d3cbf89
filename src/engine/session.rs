//! A session: teacher-forced sequences, and the logits after each of their tokens.

use std::collections::BTreeMap;

use tilewright_flow::program::Phase;
use tilewright_megakernel::lower::LowerOptions;
use tilewright_megakernel::vm::AbortHandle;

use super::Engine;
use super::cells::OwnedCells;
use super::error::EngineError;
use super::machines::{Machines, Widths};
use super::pages::{PagePool, PagedSequence};
use super::place::Place;
use crate::engine::deferred_summaries::DeferredSummaries;
use crate::engine::flow::SessionFlow;
use crate::engine::limits::MOST_ROWS;
use crate::engine::machines::Lowering;
use crate::engine::on_device::OnDevice;
use crate::engine::on_host::OnHost;
use crate::engine::pipeline::{Piped, PipedSetup};
use crate::engine::{Arc, Model};

/// The program, the KV pools and the sequences whose tokens are given.
///
/// Tokens attend to all tokens before them, whatever flow the engine has.
pub struct Session {
    machines: Box<dyn Machines>,
    options: LowerOptions,
    pool: PagePool,
    sequences: Vec<PagedSequence>,
}

impl Session {
    /// A session for `sequences` sequences of at most `context` tokens each.
    ///
    /// # Errors
    /// If the model has fewer positions, cannot be lowered, or does not fit the device.
    pub fn of(engine: &Engine, sequences: usize, context: usize) -> Result<Session, EngineError> {
        let base = engine.lowering(context, false);
        let pages = sequences.saturating_mul(base.pages_per_sequence());
        let options = LowerOptions { pages: Some(pages), ..base };
        let widths = Widths::of_session(engine.place(), sequences).with_chunk(engine.prompt_chunk);
        let mut machines = machines(engine.place(), engine.model(), &options, widths, None, &engine.abort_handle());
        machines.begin(sequences.max(1), None)?;
        Ok(Session {
            machines,
            options,
            pool: PagePool::new(pages),
            sequences: std::iter::repeat_with(PagedSequence::default).take(sequences).collect(),
        })
    }

    /// Feeds tokens to one sequence, in chunks; `each` gets the logits of every token, in order.
    ///
    /// # Errors
    /// If the sequence does not exist or is full, or the machine fails.
    pub fn feed(&mut self, sequence: usize, tokens: &[u32], mut each: impl FnMut(&[f32])) -> Result<(), EngineError> {
        self.machines.set_phase(Phase::Prompt, true);
        let mut rest = tokens;
        while !rest.is_empty() {
            // A chunk may be more than the machines have rows for.
            let chunk = self.machines.chunk(rest.len())?;
            let width = self.machines.width(chunk)?;
            let (now, later) = rest.split_at(chunk.min(width));
            let positions = now.iter().map(|_| self.reserve(sequence)).collect::<Result<Vec<_>, _>>()?;
            let mut cells = OwnedCells::new(width, self.options.pages_per_sequence());
            for (&token, position) in now.iter().zip(positions) {
                cells.push(token, position, &self.sequences[sequence].pages);
            }
            let asked: Vec<usize> = (0..now.len()).collect();
            self.machines.step(width, &cells.cells(), &asked, &mut |_, logits| each(logits))?;
            rest = later;
        }
        Ok(())
    }

    /// Clears a sequence; its pages are free again.
    pub fn clear(&mut self, sequence: usize) {
        if let Some(state) = self.sequences.get_mut(sequence) {
            self.pool.give_back(std::mem::take(state).pages);
        }
    }

    /// Tokens that a sequence holds.
    pub fn len(&self, sequence: usize) -> usize {
        self.sequences.get(sequence).map_or(0, |s| s.len)
    }

    /// The longest sequence of the session.
    pub fn context(&self) -> usize {
        self.options.context
    }

    /// Makes room for a token of a sequence and returns its position.
    fn reserve(&mut self, sequence: usize) -> Result<usize, EngineError> {
        let sequences = self.sequences.len();
        let state = self.sequences.get_mut(sequence).ok_or(EngineError::Sequence { found: sequence, sequences })?;
        let len = state.len;
        let context = self.options.context;
        if len == context {
            return Err(EngineError::ContextFull { len, context });
        }
        if len == state.pages.len() * self.options.page_tokens {
            let page = self.pool.take().ok_or(EngineError::OutOfPages { pages: self.options.pool_pages() })?;
            state.pages.push(page);
        }
        state.len += 1;
        Ok(len)
    }
}

/// The machines that a place has.
pub(super) fn machines(
    place: &Arc<Place>,
    model: &Model,
    options: &LowerOptions,
    widths: Widths,
    flow: Option<SessionFlow>,
    abort: &AbortHandle,
) -> Box<dyn Machines> {
    let options = options.clone();
    let abort = abort.clone();
    let lowering = Lowering { model: model.clone(), options, widths, flow, phase: Phase::Decode, requests: Vec::new() };
    if let Some(driver) = place.group() {
        let Lowering { model, options, widths, .. } = lowering;
        return Box::new(Piped::new(driver, place, PipedSetup { model, options, widths }, &abort));
    }
    match **place {
        Place::Host { workers, .. } => {
            Box::new(OnHost { lowering, workers, machines: BTreeMap::new(), kv: None, abort })
        }
        Place::Gpu(_) => Box::new(OnDevice {
            lowering,
            place: Arc::clone(place),
            machines: BTreeMap::new(),
            graphs: BTreeMap::new(),
            kv: None,
            most: MOST_ROWS,
            abort,
            under_way: Vec::new(),
            feeds: false,
            deferred: DeferredSummaries::default(),
            has_graphs: true,
        }),
    }
}
