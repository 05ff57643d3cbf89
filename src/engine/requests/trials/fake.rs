//! Machines whose tokens are a hash of what a sequence's pages hold, so that wrong pages give wrong
//! tokens. With a flow, what a row leaves depends on its phase, on the summaries of the blocks
//! before it and on its request's state.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tilewright_flow::program::Phase;
use tilewright_kernels::naive::{Sampling, sample};
use tilewright_kernels::sample::Request as Draw;
use tilewright_megakernel::vm::device::{Accepted, Text};
use tilewright_megakernel::vm::{NO_TOKEN, RequestSlot, StepCells};

use super::super::super::error::EngineError;
use super::super::super::machines::{Asked, EachAccepted, EachRow, EachStep, Machines, Run};
use super::super::proposer::Proposer;

/// Tokens of the fake's vocabulary.
pub const VOCAB: usize = 12;

/// A fault of a machine, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FakeFault {
    /// The next step is aborted, a launch after a number of steps; all that it wrote is nonsense.
    Abort(usize),
    /// The next step fails with another error.
    Broken(usize),
    /// The next logits that the host chooses from are not numbers.
    NaN,
    /// The next row that a machine chooses for has no choice.
    NoToken,
    /// From now on the first two entries of a page table are exchanged: a planted bug.
    Exchanged,
    /// From now on a state counts whichever request saved it: a planted bug.
    StatesOfAnyone,
    /// From now on prompts write no summaries: a planted bug.
    NoSummaries,
    /// From now on masks hide nothing: a planted bug.
    NoMasks,
}

/// The next fault.
pub type FaultPlan = Arc<Mutex<Option<FakeFault>>>;

/// A token, and a digest of all tokens up to it.
type FakeSlot = (u32, u64);

/// The tokens on which the next token depends.
///
/// `None`: all tokens before. A pair (n, m): the last n tokens and the number of times that m fits
/// into the length, so that a text repeats itself for a while.
pub type TokenMemory = Option<(usize, usize)>;

/// A fake flow. Rows after `covered` tokens and after their prompt are selected rows: each stores a
/// mix of its token, the summaries of all whole blocks before its own, and a state. The state
/// counts such rows.
#[derive(Clone, Copy, Debug)]
pub struct FakeFlow {
    pub covered: usize,
    pub block_tokens: usize,
    pub states: bool,
}

impl FakeFlow {
    /// The digest of a chosen row's token: `digests` are those of the tokens before, `chosen` the
    /// number of chosen rows before.
    fn digest(self, digests: &[u64], token: u32, chosen: u64) -> u64 {
        let plain = digest(digests.last().copied().unwrap_or(0), token);
        let blocks = digests[..digests.len() / self.block_tokens * self.block_tokens].chunks(self.block_tokens);
        let summaries = blocks.fold(7, |seen, block| mix(seen, summary(block)));
        mix(mix(plain, summaries), if self.states { chosen + 1 } else { 0 })
    }
}

/// The summary of a block.
fn summary(digests: &[u64]) -> u64 {
    digests.iter().fold(17, |seen, &digest| mix(seen, digest))
}

/// The digests of tokens, the first `prompt` of which are a prompt's.
fn digests(tokens: &[u32], prompt: usize, flow: Option<FakeFlow>) -> Vec<u64> {
    let mut found = Vec::<u64>::new();
    let mut chosen = 0;
    for (position, &token) in tokens.iter().enumerate() {
        let next = match flow {
            Some(flow) if position >= flow.covered.max(prompt) => {
                chosen += 1;
                flow.digest(&found, token, chosen - 1)
            }
            Some(_) | None => digest(found.last().copied().unwrap_or(0), token),
        };
        found.push(next);
    }
    found
}

/// The digest on which the next token depends if a flow selects blocks: that of the last token.
pub fn seen(tokens: &[u32], prompt: usize, flow: Option<FakeFlow>) -> u64 {
    match flow {
        Some(_) => digests(tokens, prompt, flow).last().copied().unwrap_or(0),
        None => 0,
    }
}

/// The machines.
pub struct Fake {
    pub flow: Option<FakeFlow>,
    pub phase: Phase,
    /// The slot of each row.
    pub slots: Vec<RequestSlot>,
    /// For each slot, the request that saved its state, and the state: the number of selected rows.
    pub states: HashMap<i32, (i32, u64)>,
    /// The summary of each block of the pools.
    pub summaries: Vec<u64>,
    /// Most steps of a launch that chooses tokens; 0: the host does.
    pub launches: usize,
    pub memory: TokenMemory,
    pub page_tokens: usize,
    pub per_row: usize,
    /// Most rows of a step.
    pub widest: usize,
    pub pool: Vec<FakeSlot>,
    pub plan: FaultPlan,
    /// The time, and how many rows of a step take a millisecond; 0: none takes any.
    pub time: Arc<AtomicU64>,
    pub per_millisecond: u64,
}

fn mix(state: u64, value: u64) -> u64 {
    let x = (state ^ value.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ (x >> 29)
}

/// The digest of tokens.
fn digest(before: u64, token: u32) -> u64 {
    mix(before, u64::from(token) + 1)
}

/// The logits after a sequence of tokens; `flow` is what a flow makes of them.
pub fn logits(tokens: &[u32], flow: u64, memory: TokenMemory) -> Vec<f32> {
    let (seen, round) =
        memory.map_or((tokens, 0), |(last, run)| (&tokens[tokens.len().saturating_sub(last)..], tokens.len() / run));
    let state = seen.iter().fold(round as u64 ^ flow, |state, &token| digest(state, token));
    (0..VOCAB).map(|id| (mix(mix(state, 99), id as u64) >> 40) as f32 / (1 << 22) as f32 - 1.0).collect()
}

/// A row that is not idle.
#[derive(Clone)]
struct FakeRow {
    row: usize,
    token: u32,
    position: usize,
    pages: Vec<usize>,
}

impl Fake {
    fn rows(&self, cells: &StepCells) -> Vec<FakeRow> {
        let exchanged = *self.plan.lock().unwrap() == Some(FakeFault::Exchanged);
        let rows = cells.positions.iter().enumerate().filter(|(_, position)| **position >= 0);
        rows.map(|(row, &position)| {
            let position = position as usize;
            let table = &cells.page_table[row * self.per_row..][..self.per_row];
            let mut pages: Vec<usize> = table.iter().map(|&page| page as usize).collect();
            if exchanged && position >= self.page_tokens {
                pages.swap(0, 1);
            }
            FakeRow { row, token: cells.tokens[row] as u32, position, pages }
        })
        .collect()
    }

    /// The rules of a device: no row writes where another writes, or into a page that another
    /// sequence reads.
    fn check(&self, rows: &[FakeRow], steps: usize) {
        let mut slots = HashMap::new();
        for row in rows {
            let page = row.pages[row.position / self.page_tokens];
            let slot = (page, row.position % self.page_tokens);
            assert_eq!(slots.insert(slot, row.row), None, "two rows write slot {slot:?}");
            let last = (row.position + steps - 1) / self.page_tokens;
            assert!(last < self.per_row, "a row goes beyond its page table");
            let used = &row.pages[..=last];
            assert!(used.iter().all(|&page| page < self.pool.len() / self.page_tokens));
            for other in rows.iter().filter(|other| other.pages != row.pages) {
                let written = &row.pages[row.position / self.page_tokens..=last];
                let read = &other.pages[..=(other.position + steps - 1) / self.page_tokens];
                assert!(!written.iter().any(|page| read.contains(page)), "a page is written and another's");
            }
        }
    }

    fn slot(&mut self, row: &FakeRow, position: usize) -> &mut FakeSlot {
        &mut self.pool[row.pages[position / self.page_tokens] * self.page_tokens + position % self.page_tokens]
    }

    fn write(&mut self, rows: &[FakeRow]) {
        let mut complete = Vec::new();
        for row in rows {
            let digest = match self.flow {
                Some(flow) if self.phase == Phase::Decode && row.position >= flow.covered => self.chosen(row, flow),
                Some(_) | None => {
                    let before = if row.position == 0 { 0 } else { self.slot(row, row.position - 1).1 };
                    digest(before, row.token)
                }
            };
            *self.slot(row, row.position) = (row.token, digest);
            let ends = self.flow.filter(|flow| (row.position + 1).is_multiple_of(flow.block_tokens));
            complete.extend(ends.map(|flow| (row, flow)));
        }
        // No row of a step sees the summaries that are written in it.
        let keeps = *self.plan.lock().unwrap() != Some(FakeFault::NoSummaries) || self.phase == Phase::Decode;
        for (row, flow) in complete.into_iter().filter(|_| keeps) {
            let positions = row.position + 1 - flow.block_tokens..=row.position;
            let digests: Vec<u64> = positions.map(|position| self.slot(row, position).1).collect();
            let at = self.block(row, row.position / flow.block_tokens, flow);
            self.summaries[at] = summary(&digests);
        }
    }

    /// The index of the summary of a row's block.
    fn block(&self, row: &FakeRow, block: usize, flow: FakeFlow) -> usize {
        let first = block * flow.block_tokens;
        (row.pages[first / self.page_tokens] * self.page_tokens + first % self.page_tokens) / flow.block_tokens
    }

    /// The digest that a selected row stores: as [`FakeFlow::digest`], from the stored summaries
    /// and states.
    fn chosen(&mut self, row: &FakeRow, flow: FakeFlow) -> u64 {
        let before = if row.position == 0 { 0 } else { self.slot(row, row.position - 1).1 };
        let blocks = 0..row.position / flow.block_tokens;
        let summaries = blocks.fold(7, |seen, block| mix(seen, self.summaries[self.block(row, block, flow)]));
        let mut state = 0;
        if flow.states {
            let RequestSlot { index, request } = self.slots[row.row];
            assert!(index >= 0, "a row that is chosen for has a slot");
            let anyone = *self.plan.lock().unwrap() == Some(FakeFault::StatesOfAnyone);
            let saved = self.states.get(&index).filter(|(saved, _)| anyone || *saved == request);
            let count = saved.map_or(0, |&(_, count)| count);
            self.states.insert(index, (request, count + 1));
            state = count + 1;
        }
        mix(mix(digest(before, row.token), summaries), state)
    }

    /// Nonsense in the slots of this step and of some before it.
    fn spoil(&mut self, rows: &[FakeRow], steps: usize) {
        for row in rows {
            for position in row.position - steps..=row.position {
                *self.slot(row, position) = (3, 5);
            }
        }
    }

    /// Logits by what a row's pages hold; other logits if that is not a sequence of tokens.
    fn read(&mut self, row: &FakeRow) -> Vec<f32> {
        let mut tokens = Vec::new();
        let mut before = 0;
        let mut whole = true;
        let mut last = 0;
        for position in 0..=row.position {
            let (token, found) = *self.slot(row, position);
            before = digest(before, token);
            whole &= found == before;
            (before, last) = (if self.flow.is_some() { found } else { before }, found);
            tokens.push(token);
        }
        // With a flow all that was chosen before is in the last digest.
        let flow = if self.flow.is_some() { last } else { 0 };
        if !whole && self.flow.is_none() {
            tokens.extend([1, 2, 3]);
        }
        logits(&tokens, flow, self.memory)
    }

    fn fault(&self, wanted: impl Fn(FakeFault) -> bool) -> Option<FakeFault> {
        let mut plan = self.plan.lock().unwrap();
        plan.take_if(|fault| wanted(*fault))
    }

    /// Whether the next row that is chosen for has no choice.
    fn has_no_choice(&self) -> bool {
        self.fault(|fault| fault == FakeFault::NoToken).is_some()
    }

    /// What ends a launch at that step.
    fn error(&mut self, rows: &[FakeRow], step: usize, done: usize) -> Option<EngineError> {
        let fault = self.fault(|fault| matches!(fault, FakeFault::Abort(at) | FakeFault::Broken(at) if at <= step))?;
        self.spoil(rows, done);
        Some(if let FakeFault::Abort(_) = fault { EngineError::Aborted } else { EngineError::NoGpu })
    }

    /// A step, and the logits of rows that are wanted; of these the host looks for some that are
    /// not numbers.
    fn logits(
        &mut self,
        width: usize,
        cells: &StepCells,
        wanted: &[usize],
        by_host: &[usize],
        each: EachRow,
    ) -> Result<(), EngineError> {
        assert_eq!(cells.positions.len(), width);
        let rows = self.rows(cells);
        self.check(&rows, 1);
        if let Some(error) = self.error(&rows, usize::MAX, 0) {
            return Err(error);
        }
        self.write(&rows);
        self.time.fetch_add((width as u64).checked_div(self.per_millisecond).unwrap_or(0), Ordering::Relaxed);
        for row in rows.iter().filter(|row| wanted.contains(&row.row)) {
            let mut logits = self.read(row);
            if by_host.contains(&row.row) && self.fault(|fault| fault == FakeFault::NaN).is_some() {
                logits[1] = f32::NAN;
            }
            each(row.row, &logits);
        }
        Ok(())
    }
}

/// The logits of a row, those of tokens that its mask excludes −∞.
fn allowed(logits: &[f32], row: usize, masks: &[(usize, Vec<u32>)], plan: &FaultPlan) -> Vec<f32> {
    let ignores = *plan.lock().unwrap() == Some(FakeFault::NoMasks);
    let mask = masks.iter().find(|(masked, _)| *masked == row && !ignores);
    let is_allowed = |token: usize| mask.is_none_or(|(_, mask)| mask[token / 32] >> (token % 32) & 1 == 1);
    let logits = logits.iter().enumerate();
    logits.map(|(token, &logit)| if is_allowed(token) { logit } else { f32::NEG_INFINITY }).collect()
}

/// The token that a machine chooses, or none where none is allowed.
fn choice(logits: &[f32], draw: Option<&Draw>) -> u32 {
    let (sampling, counter, drawn) = match draw {
        Some(draw) => (draw.sampling().expect("a sampling"), draw.step, draw.row),
        None => (Sampling::GREEDY, 0, 0),
    };
    sample(logits, &sampling, counter, drawn).map_or(NO_TOKEN, |token| token as u32)
}

impl Machines for Fake {
    fn width(&mut self, rows: usize) -> Result<usize, EngineError> {
        Ok(rows.next_power_of_two().min(self.widest))
    }

    fn chunk_rows(&self) -> usize {
        self.widest
    }

    fn chunk(&mut self, rest: usize) -> Result<usize, EngineError> {
        Ok(rest)
    }

    fn set_phase(&mut self, phase: Phase, _: bool) {
        self.phase = phase;
    }

    fn set_slots(&mut self, width: usize, slots: &[RequestSlot]) -> Result<(), EngineError> {
        assert_eq!(slots.len(), width);
        self.slots = slots.to_vec();
        Ok(())
    }

    fn most_rows(&self) -> usize {
        self.widest
    }

    fn step(&mut self, width: usize, cells: &StepCells, wanted: &[usize], each: EachRow) -> Result<(), EngineError> {
        self.logits(width, cells, wanted, wanted, each)
    }

    fn choose(
        &mut self,
        width: usize,
        cells: &StepCells,
        asked: Asked,
        each: EachRow,
    ) -> Result<Vec<u32>, EngineError> {
        let wanted = [asked.logits, asked.rows].concat();
        let mut tokens = vec![NO_TOKEN; width];
        let plan = Arc::clone(&self.plan);
        let refused = if asked.rows.is_empty() || !self.has_no_choice() { None } else { asked.rows.last().copied() };
        let mut of_rows = |row: usize, logits: &[f32]| {
            let Some(at) = asked.rows.iter().position(|&asked| asked == row) else { return each(row, logits) };
            if refused == Some(row) {
                return;
            }
            let draw = asked.draws.get(at).copied().unwrap_or_default();
            tokens[row] = choice(&allowed(logits, row, asked.masks, &plan), Some(&draw));
        };
        self.logits(width, cells, &wanted, asked.logits, &mut of_rows)?;
        Ok(asked.rows.iter().map(|&row| tokens[row]).collect())
    }

    fn most_steps(&self) -> usize {
        self.launches
    }

    fn proposes(&self) -> bool {
        self.launches > 0
    }

    fn propose(&mut self, width: usize, text: &Text, steps: usize, each: EachAccepted) -> Result<usize, EngineError> {
        let mut tokens = text.tokens.to_vec();
        let mut draw = text.request;
        let first = text.tokens.len();
        let pages: Vec<usize> = text.pages.iter().map(|&page| page as usize).collect();
        assert!((first - 1 + text.left).div_ceil(self.page_tokens) <= pages.len(), "all that may come has pages");
        for step in 0..steps {
            let mut proposer = Proposer::default();
            proposer.read(&tokens);
            let left = text.left - (tokens.len() - first);
            let most = if step == 0 { 0 } else { text.proposed.min(width - 1).min(left - 1) };
            let fed = [vec![tokens[tokens.len() - 1]], proposer.guess(&tokens, most)].concat();
            let at = |(row, &token): (usize, &u32)| FakeRow {
                row,
                token,
                position: tokens.len() - 1 + row,
                pages: pages.clone(),
            };
            let rows: Vec<FakeRow> = fed.iter().enumerate().map(at).collect();
            if let Some(error) = self.error(&rows, step, 0) {
                return Err(error);
            }
            self.write(&rows);
            let mut accepted = Accepted { tokens: Vec::new(), proposed: fed.len() - 1 };
            let mut refused = false;
            for row in &rows {
                if accepted.tokens.last().is_some_and(|last| *last != row.token || text.ends.contains(last)) {
                    break;
                }
                refused = self.has_no_choice();
                if refused {
                    break;
                }
                let logits = self.read(row);
                let (sampling, counter, drawn) = match &draw {
                    Some(draw) => (draw.sampling().expect("a sampling"), draw.step, draw.row),
                    None => (Sampling::GREEDY, 0, 0),
                };
                accepted.tokens.push(sample(&logits, &sampling, counter, drawn).expect("a token") as u32);
                draw.iter_mut().for_each(|draw| draw.step += 1);
            }
            tokens.extend(&accepted.tokens);
            let over = tokens.len() - first >= text.left || tokens.last().is_some_and(|last| text.ends.contains(last));
            if each(&accepted).is_break() || over || refused {
                return Ok(step + 1);
            }
        }
        Ok(steps)
    }

    fn masked_steps(&self, _: usize) -> usize {
        self.launches
    }

    fn run(
        &mut self,
        width: usize,
        cells: &StepCells,
        run: Run,
        each: &mut dyn EachStep,
    ) -> Result<usize, EngineError> {
        let mut masks = run.masks.to_vec();
        let mut rows = self.rows(cells);
        self.check(&rows, run.steps);
        let mut draws: Vec<Draw> = run.draws.to_vec();
        for step in 0..run.steps {
            if let Some(error) = self.error(&rows, step, step) {
                return Err(error);
            }
            self.write(&rows);
            let mut tokens = vec![NO_TOKEN; width];
            for row in &mut rows {
                if self.has_no_choice() {
                    row.token = NO_TOKEN;
                    continue;
                }
                let logits = allowed(&self.read(row), row.row, &masks, &self.plan);
                let draw = draws.get_mut(row.row);
                row.token = choice(&logits, draw.as_deref());
                tokens[row.row] = row.token;
                draw.into_iter().for_each(|draw| draw.step += 1);
                row.position += 1;
            }
            let goes_on = each.tokens(&tokens);
            if goes_on.is_continue() && step + 1 < run.steps {
                each.masks(&mut masks);
            }
            rows.retain(|row| row.token != NO_TOKEN && !run.ends.contains(&row.token));
            if goes_on.is_break() || rows.is_empty() {
                // The step after the last one was under way.
                if step + 1 < run.steps {
                    self.write(&rows);
                }
                return Ok(step + 1);
            }
        }
        Ok(run.steps)
    }
}
