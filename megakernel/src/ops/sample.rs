//! The choice of the next token as each row's request says.

use serde::{Deserialize, Serialize};
use tilewright_kernels::naive;
use tilewright_kernels::sample::Request;
use tilewright_layout::DType;

use super::argmax::best_of_tiles;
use super::{CellUse, Check, Choice, Footprint, Operands, TaskOp, interval};
use crate::oracle::{Context, Done, TaskFault};
use crate::program::{BufferId, Region, Span};

/// `out[r]` = the token that `request[r]` asks for: the greedy choice, which is that of `argmax`,
/// or one drawn from `logits[r, :]` as [`naive::sample`](tilewright_kernels::naive::sample) draws
/// it; -1 for an idle row, and on a device for one whose largest logit is infinite.
///
/// A row of `request` is a [`Request`](tilewright_kernels::sample::Request) as words of 32 bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Logits, f32 `[rows, vocab]`.
    pub logits: BufferId,
    /// Largest logit of every tile, f32 `[rows, tiles]`.
    pub value: BufferId,
    /// Its index, i32 `[rows, tiles]`.
    pub index: BufferId,
    /// Position of every row, i32 `[rows]`; negative: the row is idle.
    pub position: BufferId,
    /// What each row asks for, i32 `[rows, 8]`.
    pub request: BufferId,
    /// The chosen ids, i32 `[rows]`.
    pub out: BufferId,
    /// Rows that this task decides.
    pub rows: Span,
}

/// Words of a row's request.
pub const REQUEST_WORDS: usize = size_of::<Request>() / 4;

impl TaskOp for Sample {
    fn name() -> &'static str {
        "sample"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [count, vocab] = ops.shape("logits", self.logits)?;
        let [_, tiles] = ops.shape("value", self.value)?;
        ops.exactly("logits", self.logits, DType::F32, [count, vocab])?;
        ops.exactly("value", self.value, DType::F32, [count, tiles])?;
        ops.exactly("index", self.index, DType::I32, [count, tiles])?;
        ops.cell("position", self.position, [count])?;
        ops.cell("request", self.request, [count, REQUEST_WORDS])?;
        ops.exactly("out", self.out, DType::I32, [count])?;
        interval("rows", self.rows, count)?;
        let part = |buffer, width| Region::new(buffer, &[self.rows, Span::all(width)]);
        let reads = vec![
            part(self.logits, vocab),
            part(self.value, tiles),
            part(self.index, tiles),
            Region::new(self.position, &[self.rows]),
            part(self.request, REQUEST_WORDS),
        ];
        let cells = [(self.position, CellUse::Position), (self.request, CellUse::Request)];
        Ok(Footprint::new(reads, vec![Region::new(self.out, &[self.rows])]).cells(cells))
    }

    fn oracle(&self, on: &Context) -> Done {
        self.rows.iter().try_for_each(|row| on.write_i32(self.out, row, self.choose(on, row)?))
    }

    fn choice(&self) -> Option<Choice> {
        Some(Choice { out: self.out, index: self.index, logits: Some(self.logits), request: Some(self.request) })
    }
}

impl Sample {
    fn choose(&self, on: &Context, row: usize) -> Done<i32> {
        if on.position(self.position, row)?.is_none() {
            return Ok(-1);
        }
        let mut words = [0i32; REQUEST_WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = on.read_i32(self.request, row * REQUEST_WORDS + at)?;
        }
        let request: Request = bytemuck::cast(words);
        let sampling = request.sampling().map_err(|source| TaskFault::Request { row, source })?;
        if sampling.is_greedy() {
            return best_of_tiles(on, self.value, self.index, row);
        }
        let [_, vocab] = on.shape(self.logits)?;
        let logits = on.read(self.logits, row * vocab, vocab)?;
        let found = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let token = naive::sample(&logits, &sampling, request.step, request.row).filter(|_| found.is_finite());
        token.map(|token| token as i32).ok_or(TaskFault::NoChoice { row, found })
    }
}
