//! What each op computes; the definitions are in [`crate::program`], one file here for each there.

mod argmax;
mod attention;
mod elementwise;
mod embed;
mod linear;
mod qkv;
mod rope;
mod sample;

use std::sync::atomic::AtomicU32;

use half::{bf16, f16};
use thiserror::Error;
use tilewright_kernels::host::Element;
use tilewright_kernels::naive::{PoolShape, SamplingError};
use tilewright_kernels::quant::QuantMatrix;

use super::bind::{self, Slot};
use super::memory::Words;
use crate::program::{BufferId, Op, Place, Program};

/// Why a task could not be done. Cells are checked before a step and programs before they are bound, so that these
/// concern what only shows while a program runs: ids and positions that it computes itself.
#[derive(Clone, Debug, PartialEq, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum TaskFault {
    #[error("buffer {buffer} has no elements {start} to {end} of the wanted type")]
    Elements { buffer: BufferId, start: usize, end: usize },
    #[error("buffer {buffer} cannot be written: it is a weight")]
    ReadOnly { buffer: BufferId },
    #[error("row {row}: token id {id} is not below the vocabulary's {vocab}")]
    Token { row: usize, id: i32, vocab: usize },
    #[error("row {row}: position {position} is beyond its page table")]
    Position { row: usize, position: usize },
    #[error("row {row}: page {page} is not one of the pool's {pages}")]
    Page { row: usize, page: i32, pages: usize },
    #[error("row {row} asks for a choice that makes no sense")]
    Request {
        row: usize,
        #[source]
        source: SamplingError,
    },
    #[error("the fault was injected")]
    Injected,
}

/// Result of a task or of a part of it.
type Done<T = ()> = Result<T, TaskFault>;

/// What tasks compute on: the program's buffers, wherever they lie.
pub(super) struct Context<'a> {
    pub program: &'a Program,
    pub slots: &'a [Slot],
    pub memory: &'a [AtomicU32],
    pub pools: &'a [Words<'a>],
}

/// The elements of a buffer.
#[derive(Clone, Copy)]
enum View<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
    F16(&'a [f16]),
    Quantized(&'a QuantMatrix),
    Words(Words<'a>),
}

/// Does what a task says.
pub(super) fn run(op: &Op, on: &Context) -> Done {
    match op {
        Op::Copy(op) => elementwise::copy(op, on),
        Op::Add(op) => elementwise::add(op, on),
        Op::SiluMul(op) => elementwise::silu_mul(op, on),
        Op::RmsNorm(op) => elementwise::rms_norm(op, on),
        Op::Embed(op) => embed::embed(op, on),
        Op::Linear(op) => linear::linear(op, on),
        Op::Qkv(op) => qkv::qkv(op, on),
        Op::Rope(op) => rope::rope(op, on),
        Op::KvAppend(op) => rope::kv_append(op, on),
        Op::Attention(op) => attention::attention(op, on),
        Op::Combine(op) => attention::combine(op, on),
        Op::Argmax(op) => argmax::argmax(op, on),
        Op::Sample(op) => sample::sample(op, on),
    }
}

impl Context<'_> {
    /// The extents of a buffer of rank `N`.
    fn shape<const N: usize>(&self, buffer: BufferId) -> Done<[usize; N]> {
        let found = self.program.buffers.get(buffer.index()).and_then(|b| b.shape[..].try_into().ok());
        found.ok_or(TaskFault::Elements { buffer, start: 0, end: 0 })
    }

    fn pool_shape(&self, pool: BufferId) -> Done<PoolShape> {
        let [kv_heads, pages, page_tokens, head_dim] = self.shape(pool)?;
        Ok(PoolShape { kv_heads, pages, page_tokens, head_dim })
    }

    fn view(&self, buffer: BufferId) -> Done<View<'_>> {
        let missing = TaskFault::Elements { buffer, start: 0, end: 0 };
        let weight = match (self.slots.get(buffer.index()), self.program.buffers.get(buffer.index())) {
            (Some(Slot::Weight(weight)), _) => weight,
            (Some(Slot::Quantized(matrix)), _) => return Ok(View::Quantized(matrix)),
            (Some(&Slot::Memory { base }), Some(declared)) => {
                return Ok(View::Words(bind::words(self.memory, declared, base)));
            }
            (Some(&Slot::Pool { index }), _) => return self.pools.get(index).map(|&w| View::Words(w)).ok_or(missing),
            _ => return Err(missing),
        };
        let f32s = weight.as_f32().map(View::F32);
        let view = f32s.or_else(|| weight.as_bf16().map(View::Bf16)).or_else(|| weight.as_f16().map(View::F16));
        view.ok_or(missing)
    }

    /// The elements of a buffer that tasks may write.
    fn words(&self, buffer: BufferId) -> Done<Words<'_>> {
        match self.view(buffer)? {
            View::Words(words) => Ok(words),
            View::F32(_) | View::Bf16(_) | View::F16(_) | View::Quantized(_) => Err(TaskFault::ReadOnly { buffer }),
        }
    }

    /// Appends elements of a buffer, as f32.
    fn read_onto(&self, buffer: BufferId, start: usize, count: usize, out: &mut Vec<f32>) -> Done {
        let end = start.saturating_add(count);
        let read = match self.view(buffer)? {
            View::F32(all) => all.get(start..end).map(|part| out.extend_from_slice(part)),
            View::Bf16(all) => all.get(start..end).map(|part| out.extend(part.iter().map(|x| x.widen()))),
            View::F16(all) => all.get(start..end).map(|part| out.extend(part.iter().map(|x| x.widen()))),
            // Only products read packed codes: a linear layer's matrix is no operand of anything else.
            View::Quantized(_) => None,
            View::Words(words) => words.read(start, count, out),
        };
        read.ok_or(TaskFault::Elements { buffer, start, end })
    }

    /// Elements of a buffer, as f32.
    fn read(&self, buffer: BufferId, start: usize, count: usize) -> Done<Vec<f32>> {
        let mut out = Vec::new();
        self.read_onto(buffer, start, count, &mut out)?;
        Ok(out)
    }

    /// Stores elements of a buffer, converted to its type.
    fn write(&self, buffer: BufferId, start: usize, values: &[f32]) -> Done {
        let end = start.saturating_add(values.len());
        self.words(buffer)?.write(start, values).ok_or(TaskFault::Elements { buffer, start, end })
    }

    fn read_i32(&self, buffer: BufferId, at: usize) -> Done<i32> {
        let value = self.words(buffer)?.read_i32(at);
        value.ok_or(TaskFault::Elements { buffer, start: at, end: at.saturating_add(1) })
    }

    fn write_i32(&self, buffer: BufferId, at: usize, value: i32) -> Done {
        let end = at.saturating_add(1);
        self.words(buffer)?.write_i32(at, &[value]).ok_or(TaskFault::Elements { buffer, start: at, end })
    }

    /// The position of a row, `None` for an idle one.
    fn position(&self, position: BufferId, row: usize) -> Done<Option<usize>> {
        Ok(usize::try_from(self.read_i32(position, row)?).ok())
    }

    /// The page table of a row for the tokens `0..=position`.
    fn table(&self, at: &Place, row: usize, position: usize, pool: PoolShape) -> Done<Vec<usize>> {
        let [_, width] = self.shape(at.page_table)?;
        let entries = position / pool.page_tokens.max(1) + 1;
        if entries > width {
            return Err(TaskFault::Position { row, position });
        }
        (0..entries)
            .map(|entry| {
                let page = self.read_i32(at.page_table, row * width + entry)?;
                let known = usize::try_from(page).ok().filter(|&page| page < pool.pages);
                known.ok_or(TaskFault::Page { row, page, pages: pool.pages })
            })
            .collect()
    }

    /// The offset in a pool of the vector of a row's own token, for kv head `head`.
    fn slot(&self, at: &Place, row: usize, position: usize, head: usize, pool: PoolShape) -> Done<usize> {
        let [_, width] = self.shape(at.page_table)?;
        let (entry, token) = (position / pool.page_tokens.max(1), position % pool.page_tokens.max(1));
        if entry >= width {
            return Err(TaskFault::Position { row, position });
        }
        let page = self.read_i32(at.page_table, row * width + entry)?;
        let known = usize::try_from(page).ok().filter(|&page| page < pool.pages);
        let known = known.ok_or(TaskFault::Page { row, page, pages: pool.pages })?;
        Ok(pool.offset(head, &[known], token))
    }
}
