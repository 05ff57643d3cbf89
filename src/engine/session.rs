//! A session: the programs, the KV pools and the sequences of one run.
//!
//! One primitive does everything: [`Session::advance`] takes rows, each the next token of some sequence, and gives their
//! logits. Rows may be different sequences (a batch) or consecutive tokens of one (a prompt, fed in chunks).

use std::collections::BTreeMap;
use std::sync::Arc;

use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::reference::{KvState, Machine, StepCells};
use tilewright_megakernel::weights::Weights;

use super::Engine;
use super::device::Device;
use super::error::EngineError;
use super::pages::{PagePool, Sequence};
use crate::checkpoint::Checkpoint;

/// Tokens of one page.
const PAGE_TOKENS: usize = 16;
/// Splits of attention: fixed, since sums of another split round otherwise. With it, logits are the same bit for bit
/// whatever the batch, the chunks of a prompt and the number of cores.
const SPLITS: usize = 4;
/// Rows of the programs that feed prompts, largest first.
const CHUNKS: [usize; 3] = [32, 8, 1];

/// One row of a step: the next token of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which sequence.
    pub sequence: usize,
    /// The token.
    pub token: u32,
}

/// Programs, KV pools and sequences.
pub struct Session {
    checkpoint: Arc<Checkpoint>,
    workers: usize,
    /// Machines by their number of rows, made when first needed.
    machines: BTreeMap<usize, Machine>,
    kv: Option<KvState>,
    options: LowerOptions,
    pool: PagePool,
    sequences: Vec<Sequence>,
}

impl Session {
    /// A session for `sequences` sequences of at most `context` tokens each.
    ///
    /// # Errors
    /// If the model has fewer positions, or cannot be lowered.
    pub fn of(engine: &Engine, sequences: usize, context: usize) -> Result<Session, EngineError> {
        let Device::Cpu { workers } = engine.device();
        let base = LowerOptions { page_tokens: PAGE_TOKENS, ..LowerOptions::for_context(context) };
        let pages = sequences.saturating_mul(base.pages_per_sequence());
        let options = LowerOptions { pages: Some(pages), splits: Some(SPLITS), ..base };
        let mut session = Session {
            checkpoint: engine.checkpoint().clone(),
            workers,
            machines: BTreeMap::new(),
            kv: None,
            options,
            pool: PagePool::new(pages),
            sequences: std::iter::repeat_with(Sequence::default).take(sequences).collect(),
        };
        session.machine(sequences.max(1))?;
        Ok(session)
    }

    /// Feeds tokens to one sequence, in chunks; `each` gets the logits of every token, in order.
    ///
    /// # Errors
    /// As [`Session::advance`].
    pub fn feed(&mut self, sequence: usize, tokens: &[u32], mut each: impl FnMut(&[f32])) -> Result<(), EngineError> {
        let mut rest = tokens;
        while !rest.is_empty() {
            let chunk = CHUNKS.into_iter().find(|&rows| rows <= rest.len()).unwrap_or(1);
            let (now, later) = rest.split_at(chunk);
            let rows: Vec<Row> = now.iter().map(|&token| Row { sequence, token }).collect();
            self.advance(&rows, |_, logits| each(logits))?;
            rest = later;
        }
        Ok(())
    }

    /// Runs one step; `each` gets every row's number and logits.
    ///
    /// # Errors
    /// If a sequence does not exist or is full, or the machine fails.
    pub fn advance(&mut self, rows: &[Row], mut each: impl FnMut(usize, &[f32])) -> Result<(), EngineError> {
        if rows.is_empty() {
            return Ok(());
        }
        let width = self.machine(rows.len())?;
        let per_row = self.options.pages_per_sequence();
        let (mut tokens, mut positions) = (vec![0; width], vec![-1; width]);
        let mut page_table = vec![0; width * per_row];
        for (at, row) in rows.iter().enumerate() {
            positions[at] = self.next_position(row.sequence)?;
            tokens[at] = i32::try_from(row.token).unwrap_or(i32::MAX);
        }
        for (row, entries) in rows.iter().zip(page_table.chunks_exact_mut(per_row)) {
            let pages = &self.sequences[row.sequence].pages;
            entries[..pages.len()].copy_from_slice(pages);
        }
        let cells = StepCells { tokens: &tokens, positions: &positions, page_table: &page_table };
        let (Some(machine), Some(kv)) = (self.machines.get_mut(&width), self.kv.as_mut()) else {
            unreachable!("`machine` made both")
        };
        let output = machine.step(kv, &cells)?;
        for row in 0..rows.len() {
            each(row, &output.f32_row(LOGITS, row)?);
        }
        Ok(())
    }

    /// Forgets what a sequence holds; its pages are free again.
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

    /// Makes room for one more token of a sequence and gives its position.
    fn next_position(&mut self, sequence: usize) -> Result<i32, EngineError> {
        let sequences = self.sequences.len();
        let state = self.sequences.get_mut(sequence).ok_or(EngineError::Sequence { found: sequence, sequences })?;
        let (len, context) = (state.len, self.options.context);
        if len >= context {
            return Err(EngineError::ContextFull { len, context });
        }
        if len == state.pages.len() * self.options.page_tokens {
            let page = self.pool.take().ok_or(EngineError::OutOfPages { pages: self.options.pool_pages() })?;
            state.pages.push(page);
        }
        state.len += 1;
        Ok(i32::try_from(len).unwrap_or(i32::MAX))
    }

    /// Makes sure that there is a machine for `rows` rows and gives its width; the rows beyond `rows` are idle.
    fn machine(&mut self, rows: usize) -> Result<usize, EngineError> {
        let widths = CHUNKS.into_iter().chain([self.sequences.len()]);
        let rows = widths.filter(|&width| width >= rows).min().unwrap_or(rows);
        if self.machines.contains_key(&rows) {
            return Ok(rows);
        }
        let spec = self.checkpoint.spec();
        let options = LowerOptions { rows, ..self.options.clone() };
        let dtype_of = |name: &str| self.checkpoint.tensor(name).map_or(DType::F32, |t| t.dtype());
        let program = lower(spec, &dtype_of, Target::host(self.workers), &options)?;
        let placed = schedule(program, self.options.context)?;
        let machine = Machine::new(placed, &*self.checkpoint, self.workers)?;
        if self.kv.is_none() {
            self.kv = Some(KvState::new(machine.program())?);
        }
        self.machines.insert(rows, machine);
        Ok(rows)
    }
}
