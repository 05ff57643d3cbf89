//! A session: the programs, the KV pools and the sequences of one run.
//!
//! One primitive does everything: [`Session::advance`] takes rows, each the next token of some
//! sequence, and gives their logits. Rows may be different sequences (a batch) or consecutive
//! tokens of one (a prompt, fed in chunks).

use std::ops::ControlFlow;

use tilewright_flow::program::Phase;
use tilewright_kernels::sample::Request as Draw;
use tilewright_layout::DType;
use tilewright_megakernel::lower::LowerOptions;
use tilewright_megakernel::vm::device::NO_TOKEN;
use tilewright_megakernel::vm::reference::RequestSlot;

use super::Engine;
use super::cells::OwnedCells;
use super::error::EngineError;
use super::flow::{SessionFlow, next_request};
use super::machines::{EachRow, MOST_ROWS, Machines, Widths, machines};
use super::pages::{PagePool, Sequence};
use super::place::Place;

/// Tokens of one page.
const PAGE_TOKENS: usize = 16;
/// Tokens of one page on a device, which reads them in larger runs.
const DEVICE_PAGE_TOKENS: usize = 64;
/// Splits of attention on the host: fixed, since sums of another split round otherwise. With it,
/// logits are the same bit for bit whatever the batch, the chunks of a prompt and the number of
/// cores.
const SPLITS: usize = 4;

/// Most steps of a run where a flow keeps states of requests.
const STATE_STEPS: usize = 16;

/// One row of a step: the next token of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which sequence.
    pub sequence: usize,
    /// The token.
    pub token: u32,
}

/// Steps that the machines do without the host between.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Most of them.
    pub steps: usize,
    /// What each row's next token is chosen by; none: greedily. They count on from step to step.
    pub draws: &'a [Draw],
    /// Tokens that end a row.
    pub ends: &'a [u32],
}

/// Programs, KV pools and sequences.
pub struct Session {
    machines: Box<dyn Machines>,
    options: LowerOptions,
    pool: PagePool,
    sequences: Vec<Sequence>,
    /// The number of the request that each sequence is, where a flow keeps states of it.
    requests: Option<Vec<i32>>,
    /// Tokens up to which a flow chooses all blocks and no observer is set: steps of such sequences
    /// run as a prompt's do.
    covered: usize,
    has_flow: bool,
}

/// What programs of a place are lowered with, for sequences of that many tokens.
pub(super) fn lowering_options(place: &Place, context: usize, sampling: bool) -> LowerOptions {
    let base = LowerOptions::for_context(context);
    match place {
        Place::Host { .. } => LowerOptions { page_tokens: PAGE_TOKENS, splits: Some(SPLITS), ..base },
        Place::Gpu(gpu) => {
            let devices = gpu.devices;
            LowerOptions { page_tokens: DEVICE_PAGE_TOKENS, kv: DType::BF16, sampling, devices, ..base }
        }
    }
}

impl Session {
    /// A session for `sequences` sequences of at most `context` tokens each.
    ///
    /// # Errors
    /// If the model has fewer positions, cannot be lowered, or does not fit the device.
    pub fn of(engine: &Engine, sequences: usize, context: usize) -> Result<Session, EngineError> {
        Session::new(engine, sequences, context, false, None)
    }

    /// Creates a session whose device may sample; on the CPU, where the host samples, there is no
    /// difference.
    ///
    /// # Errors
    /// As [`Session::of`].
    pub fn sampling(engine: &Engine, sequences: usize, context: usize) -> Result<Session, EngineError> {
        Session::new(engine, sequences, context, true, None)
    }

    /// Creates a session that may sample, for a first prompt of `first` tokens if that is known.
    pub(super) fn new(
        engine: &Engine,
        sequences: usize,
        context: usize,
        sampling: bool,
        prompt: Option<usize>,
    ) -> Result<Session, EngineError> {
        let base = engine.lowering(context, sampling);
        let pages = sequences.saturating_mul(base.pages_per_sequence());
        let options = LowerOptions { pages: Some(pages), ..base };
        let flow = engine.session_flow(sequences);
        let widths = Widths::of_session(engine.place(), sequences).with_chunk(engine.prompt_chunk);
        let is_stateful = flow.as_ref().is_some_and(SessionFlow::is_stateful);
        let (has_flow, covered) = (flow.is_some(), flow.as_ref().map_or(0, SessionFlow::covered_tokens));
        let abort = engine.abort_handle();
        let mut machines = machines(engine.place(), engine.model(), &options, widths, flow, &abort);
        if has_flow {
            // A prompt's chunks are compiled while the weights are on their way, and what chooses
            // once the budget is exceeded.
            machines.set_phase(Phase::Prompt, true);
            machines.ahead(MOST_ROWS);
            machines.set_phase(Phase::Decode, false);
            if covered > 0 {
                if context > covered {
                    machines.ahead(sequences.max(1));
                }
                machines.set_phase(Phase::Prompt, false);
            }
            machines.width(sequences.max(1))?;
        } else {
            machines.begin(sequences.max(1), prompt)?;
        }
        Ok(Session {
            machines,
            options,
            pool: PagePool::new(pages),
            sequences: std::iter::repeat_with(Sequence::default).take(sequences).collect(),
            requests: is_stateful.then(|| vec![1; sequences]),
            covered,
            has_flow,
        })
    }

    /// Feeds tokens to one sequence, in chunks; `each` gets the logits of every token, in order.
    ///
    /// # Errors
    /// As [`Session::advance`].
    pub fn feed(&mut self, sequence: usize, tokens: &[u32], mut each: impl FnMut(&[f32])) -> Result<(), EngineError> {
        self.machines.set_phase(Phase::Prompt, true);
        let mut rest = tokens;
        while !rest.is_empty() {
            let chunk = self.machines.chunk(rest.len())?;
            let (now, later) = rest.split_at(chunk);
            let rows: Vec<Row> = now.iter().map(|&token| Row { sequence, token }).collect();
            self.advance_for(&rows, &|_| true, &mut |_, logits| each(logits))?;
            rest = later;
        }
        Ok(())
    }

    /// Feeds tokens to one sequence, in chunks, and gives the logits of the last.
    ///
    /// # Errors
    /// As [`Session::advance`].
    pub fn feed_prompt(&mut self, sequence: usize, tokens: &[u32]) -> Result<Vec<f32>, EngineError> {
        self.machines.set_phase(Phase::Prompt, true);
        let (mut rest, mut last) = (tokens, Vec::new());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.machines.chunk(rest.len())?);
            let rows: Vec<Row> = now.iter().map(|&token| Row { sequence, token }).collect();
            let wanted = |row| later.is_empty() && row + 1 == rows.len();
            self.advance_for(&rows, &wanted, &mut |_, logits| last = logits.to_vec())?;
            rest = later;
        }
        Ok(last)
    }

    /// Runs one step; `each` gets every row's number and logits. Where the machines have fewer
    /// rows, it becomes several.
    ///
    /// # Errors
    /// If a sequence does not exist or is full, or the machine fails.
    pub fn advance(&mut self, rows: &[Row], mut each: impl FnMut(usize, &[f32])) -> Result<(), EngineError> {
        let is_covered = self.longest(rows) + rows.len() <= self.covered;
        self.machines.set_phase(if is_covered { Phase::Prompt } else { Phase::Decode }, false);
        self.advance_for(rows, &|_| true, &mut each)
    }

    /// Tokens of the longest of some rows' sequences.
    fn longest(&self, rows: &[Row]) -> usize {
        rows.iter().map(|row| self.len(row.sequence)).max().unwrap_or(0)
    }

    /// Runs one step and passes the logits of the wanted rows to `each`.
    fn advance_for(&mut self, rows: &[Row], wanted: &dyn Fn(usize) -> bool, each: EachRow) -> Result<(), EngineError> {
        let mut first = 0;
        while let Some(rest) = rows.get(first..).filter(|rest| !rest.is_empty()) {
            let width = self.machines.width(rest.len())?;
            let now = &rest[..width.min(rest.len())];
            let mut positions = Vec::with_capacity(width);
            for row in now {
                positions.push(self.reserve(row.sequence, 1)?);
                self.sequences[row.sequence].len += 1;
            }
            self.set_slots(width, now)?;
            let cells = self.cells(width, now, &positions);
            let asked: Vec<usize> = (0..now.len()).filter(|&row| wanted(first + row)).collect();
            self.machines.step(width, &cells.cells(), &asked, &mut |row, logits| each(first + row, logits))?;
            first += now.len();
        }
        Ok(())
    }

    /// Most steps that [`Session::run`] does for that many rows; 0 if it does none.
    pub fn most_steps(&self, rows: usize) -> usize {
        if rows <= self.machines.most_rows() { self.machines.most_steps() } else { 0 }
    }

    /// Feeds a token of each row's sequence, then again and again the token that is chosen next,
    /// without the host between; `each` gets the next tokens of all rows after each step,
    /// [`NO_TOKEN`] for a row that has ended, and ends the run by `Break`, after which it may get a
    /// few steps that were under way; where a flow keeps states of requests, a run has few steps
    /// and is not left. Gives the steps done.
    ///
    /// # Errors
    /// As [`Session::advance`]; draws in a session that is not one for
    /// [sampling](Session::sampling).
    pub fn run(
        &mut self,
        rows: &[Row],
        run: Run,
        each: &mut dyn FnMut(&[u32]) -> ControlFlow<()>,
    ) -> Result<usize, EngineError> {
        // Up to the end of what a flow covers, then beyond it.
        let within = self.covered.saturating_sub(self.longest(rows));
        self.machines.set_phase(if within > 0 { Phase::Prompt } else { Phase::Decode }, false);
        let most = if within > 0 { within } else { usize::MAX };
        let keeps_states = self.requests.is_some();
        let most = if keeps_states { most.min(STATE_STEPS) } else { most };
        let run = Run { steps: run.steps.min(self.most_steps(rows.len())).min(most), ..run };
        let width = self.machines.width(rows.len())?;
        if run.steps == 0 || width < rows.len() {
            return Ok(0);
        }
        let positions = rows.iter().map(|row| self.reserve(row.sequence, run.steps)).collect::<Result<Vec<_>, _>>()?;
        self.set_slots(width, rows)?;
        let cells = self.cells(width, rows, &positions);
        // A row's token is chosen in the step that feeds the one before: as many as are seen were
        // fed.
        let mut fed = vec![0; rows.len()];
        let done = self.machines.run(width, &cells.cells(), run, &mut |tokens| {
            let tokens = &tokens[..rows.len()];
            fed.iter_mut().zip(tokens).for_each(|(fed, &token)| *fed += usize::from(token != NO_TOKEN));
            let goes_on = each(tokens);
            // A step that is under way when a launch is left has saved its states.
            if keeps_states { ControlFlow::Continue(()) } else { goes_on }
        })?;
        rows.iter().zip(fed).for_each(|(row, fed)| self.sequences[row.sequence].len += fed);
        Ok(done)
    }

    /// Says which request's states each row of a step goes on with.
    fn set_slots(&mut self, width: usize, rows: &[Row]) -> Result<(), EngineError> {
        if self.has_flow {
            self.machines.set_requests(&rows.iter().map(|row| row.sequence as u64).collect::<Vec<_>>());
        }
        let Some(requests) = &self.requests else { return Ok(()) };
        let slot = |row: &Row| RequestSlot { index: row.sequence as i32, request: requests[row.sequence] };
        let mut slots: Vec<RequestSlot> = rows.iter().map(slot).collect();
        slots.resize(width, RequestSlot::NONE);
        self.machines.set_slots(width, &slots)
    }

    /// The cells of a step of `width` rows, of which those after `rows` are idle.
    fn cells(&self, width: usize, rows: &[Row], positions: &[usize]) -> OwnedCells {
        let mut cells = OwnedCells::new(width, self.options.pages_per_sequence());
        for (row, &position) in rows.iter().zip(positions) {
            cells.push(row.token, position, &self.sequences[row.sequence].pages);
        }
        cells
    }

    /// Forgets what a sequence holds; its pages are free again.
    pub fn clear(&mut self, sequence: usize) {
        if let Some(state) = self.sequences.get_mut(sequence) {
            self.pool.give_back(std::mem::take(state).pages);
            // The next request in its place finds no state.
            self.requests.iter_mut().for_each(|requests| requests[sequence] = next_request(requests[sequence]));
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

    /// Makes room for more tokens of a sequence and returns the position of the first.
    fn reserve(&mut self, sequence: usize, tokens: usize) -> Result<usize, EngineError> {
        let sequences = self.sequences.len();
        let state = self.sequences.get_mut(sequence).ok_or(EngineError::Sequence { found: sequence, sequences })?;
        let (len, context) = (state.len, self.options.context);
        if len + tokens > context {
            return Err(EngineError::ContextFull { len, context });
        }
        while (len + tokens) > state.pages.len() * self.options.page_tokens {
            let page = self.pool.take().ok_or(EngineError::OutOfPages { pages: self.options.pool_pages() })?;
            state.pages.push(page);
        }
        Ok(len)
    }
}
