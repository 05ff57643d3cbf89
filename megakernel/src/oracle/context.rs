//! The memory that the reference back end gives to a task: the elements of its declared regions. An
//! op's oracle computes on it.

use std::sync::atomic::AtomicU32;

use half::{bf16, f16};
use thiserror::Error;
use tilewright_kernels::host::{self, ActivationElement};
use tilewright_kernels::naive::{PoolShape, SamplingError};
use tilewright_kernels::quant::QuantMatrix;

use super::memory::AtomicWords;
use super::slot::BoundSlot;
use crate::program::{AccessKind, Buffer, BufferId, Region, Span};

/// Why a task could not be done. Cells are checked before a step and programs before they are
/// bound, so that these concern what only shows while a program runs: ids and positions that it
/// computes itself.
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
    #[error(
        "row {row}: the logits are not numbers (NaN), or infinite; the weights are damaged, or masks leave no token (the \
         largest logit is {found})"
    )]
    NoChoice { row: usize, found: f32 },
    #[error("row {row} asks for a choice that makes no sense")]
    Request {
        row: usize,
        #[source]
        source: SamplingError,
    },
    #[error(
        "it {access}s elements {start} to {end} of {buffer}, which its op's footprint does not name; mend the op's row"
    )]
    Undeclared { access: AccessKind, buffer: BufferId, start: usize, end: usize },
    #[error("{0}")]
    Refused(String),
    #[error("the fault was injected")]
    Injected,
}

/// Result of a task or of a part of it.
pub type Done<T = ()> = Result<T, TaskFault>;

/// The program's buffers as a task sees them. It gives a task the regions that it declares, and no
/// others.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub(crate) buffers: &'a [Buffer],
    pub(crate) slots: &'a [BoundSlot],
    pub(crate) memory: &'a [AtomicU32],
    pub(crate) pools: &'a [AtomicWords<'a>],
    /// What becomes of the numbers that products multiply, beside weights, keys and values; `None`:
    /// they stay as they are.
    pub(crate) operands: Option<fn(f32) -> f32>,
    /// The regions of the task that asks.
    pub(crate) declared: Option<DeclaredRegions<'a>>,
}

/// The regions that a task declares.
#[derive(Clone, Copy)]
pub(crate) struct DeclaredRegions<'a> {
    pub(crate) reads: &'a [Region],
    pub(crate) writes: &'a [Region],
}

/// The elements of a buffer.
#[derive(Clone, Copy)]
enum BufferView<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
    F16(&'a [f16]),
    Quantized(&'a QuantMatrix),
    Words(AtomicWords<'a>),
}

/// Appends elements of a quantised matrix, each `(code − zero) · scale`, rounded once.
fn quantised_numbers(matrix: &QuantMatrix, start: usize, end: usize, out: &mut Vec<f32>) -> Option<()> {
    let k = matrix.k();
    if start > end || end > matrix.n() * k {
        return None;
    }
    for row in start / k..end.div_ceil(k) {
        let numbers = host::row_quantized(matrix, row);
        out.extend_from_slice(numbers.get(start.max(row * k) - row * k..end.min((row + 1) * k) - row * k)?);
    }
    Some(())
}

impl Context<'_> {
    /// The extents of a buffer of rank `N`.
    ///
    /// # Errors
    /// If there are no such elements, or the task does not declare them.
    pub fn shape<const N: usize>(&self, buffer: BufferId) -> Done<[usize; N]> {
        let found = self.buffers.get(buffer.index()).and_then(|b| b.shape[..].try_into().ok());
        found.ok_or(TaskFault::Elements { buffer, start: 0, end: 0 })
    }

    /// The extents of a pool.
    ///
    /// # Errors
    /// If there are no such elements, or the task does not declare them.
    pub fn pool_shape(&self, pool: BufferId) -> Done<PoolShape> {
        let [kv_heads, pages, page_tokens, head_dim] = self.shape(pool)?;
        Ok(PoolShape { kv_heads, pages, page_tokens, head_dim })
    }

    fn view(&self, buffer: BufferId) -> Done<BufferView<'_>> {
        self.view_of(self.slots.get(buffer.index()), buffer)
    }

    /// The elements of a weight from `start` on, and which of them is that one: of the weights of
    /// all experts those of one.
    fn weights_from(&self, weight: BufferId, start: usize) -> Done<(BufferView<'_>, usize)> {
        let Some(BoundSlot::Experts(experts)) = self.slots.get(weight.index()) else {
            return Ok((self.view(weight)?, start));
        };
        let all = self.buffers.get(weight.index()).and_then(Buffer::elements).unwrap_or(0);
        let each = all.checked_div(experts.len()).unwrap_or(0).max(1);
        Ok((self.view_of(experts.get(start / each), weight)?, start % each))
    }

    fn view_of<'v>(&'v self, slot: Option<&'v BoundSlot>, buffer: BufferId) -> Done<BufferView<'v>> {
        let missing = TaskFault::Elements { buffer, start: 0, end: 0 };
        let weight = match (slot, self.buffers.get(buffer.index())) {
            (Some(BoundSlot::Weight(weight)), _) => weight,
            (Some(BoundSlot::Quantized(matrix)), _) => return Ok(BufferView::Quantized(matrix)),
            (Some(&BoundSlot::Memory { base }), Some(declared)) => {
                return Ok(BufferView::Words(AtomicWords::of_buffer(self.memory, declared, base)));
            }
            (Some(&BoundSlot::Pool { index }), _) => {
                return self.pools.get(index).map(|&w| BufferView::Words(w)).ok_or(missing);
            }
            _ => return Err(missing),
        };
        let f32s = weight.as_f32().map(BufferView::F32);
        let view =
            f32s.or_else(|| weight.as_bf16().map(BufferView::Bf16)).or_else(|| weight.as_f16().map(BufferView::F16));
        view.ok_or(missing)
    }

    /// The elements of a buffer that tasks may write.
    fn words(&self, buffer: BufferId) -> Done<AtomicWords<'_>> {
        match self.view(buffer)? {
            BufferView::Words(words) => Ok(words),
            BufferView::F32(_) | BufferView::Bf16(_) | BufferView::F16(_) | BufferView::Quantized(_) => {
                Err(TaskFault::ReadOnly { buffer })
            }
        }
    }

    /// Appends elements of a buffer, as f32.
    ///
    /// # Errors
    /// If there are no such elements, or the task does not declare them.
    pub fn read_onto(&self, buffer: BufferId, start: usize, count: usize, out: &mut Vec<f32>) -> Done {
        let end = start.saturating_add(count);
        self.declared(AccessKind::Read, buffer, start, end)?;
        let (view, start) = self.weights_from(buffer, start)?;
        let end = start.saturating_add(count);
        let read = match view {
            BufferView::F32(all) => all.get(start..end).map(|part| out.extend_from_slice(part)),
            BufferView::Bf16(all) => all.get(start..end).map(|part| out.extend(part.iter().map(|x| x.widen()))),
            BufferView::F16(all) => all.get(start..end).map(|part| out.extend(part.iter().map(|x| x.widen()))),
            BufferView::Quantized(matrix) => quantised_numbers(matrix, start, end, out),
            BufferView::Words(words) => words.read(start, count, out),
        };
        read.ok_or(TaskFault::Elements { buffer, start, end })
    }

    /// Elements of a buffer, as f32.
    ///
    /// # Errors
    /// If there are no such elements, or the task does not declare them.
    pub fn read(&self, buffer: BufferId, start: usize, count: usize) -> Done<Vec<f32>> {
        let mut out = Vec::new();
        self.read_onto(buffer, start, count, &mut out)?;
        Ok(out)
    }

    /// Stores elements of a buffer, converted to its type.
    ///
    /// # Errors
    /// If there are no such elements, or the task does not declare them.
    pub fn write(&self, buffer: BufferId, start: usize, values: &[f32]) -> Done {
        let end = start.saturating_add(values.len());
        self.declared(AccessKind::Write, buffer, start, end)?;
        self.words(buffer)?.write(start, values).ok_or(TaskFault::Elements { buffer, start, end })
    }

    /// An element of a buffer of i32.
    ///
    /// # Errors
    /// If there are no such elements, or the task does not declare them.
    pub fn read_i32(&self, buffer: BufferId, at: usize) -> Done<i32> {
        let end = at.saturating_add(1);
        self.declared(AccessKind::Read, buffer, at, end)?;
        self.words(buffer)?.read_i32(at).ok_or(TaskFault::Elements { buffer, start: at, end })
    }

    /// Stores an element of a buffer of i32.
    ///
    /// # Errors
    /// If there are no such elements, or the task does not declare them.
    pub fn write_i32(&self, buffer: BufferId, at: usize, value: i32) -> Done {
        let end = at.saturating_add(1);
        self.declared(AccessKind::Write, buffer, at, end)?;
        self.words(buffer)?.write_i32(at, &[value]).ok_or(TaskFault::Elements { buffer, start: at, end })
    }

    /// The position of a row, `None` for an idle one.
    ///
    /// # Errors
    /// If there are no such elements, or the task does not declare them.
    pub fn position(&self, position: BufferId, row: usize) -> Done<Option<usize>> {
        Ok(usize::try_from(self.read_i32(position, row)?).ok())
    }

    /// The page table of a row for the tokens `0..=position`.
    ///
    /// # Errors
    /// If there are no such elements, or the task does not declare them.
    pub fn table(&self, page_table: BufferId, row: usize, position: usize, pool: PoolShape) -> Done<Vec<usize>> {
        let [_, width] = self.shape(page_table)?;
        let entries = position / pool.page_tokens.max(1) + 1;
        if entries > width {
            return Err(TaskFault::Position { row, position });
        }
        (0..entries)
            .map(|entry| {
                let page = self.read_i32(page_table, row * width + entry)?;
                let known = usize::try_from(page).ok().filter(|&page| page < pool.pages);
                known.ok_or(TaskFault::Page { row, page, pages: pool.pages })
            })
            .collect()
    }

    /// The offset in a pool of the vector of a row's own token, for kv head `head`.
    ///
    /// # Errors
    /// If there are no such elements, or the task does not declare them.
    pub fn slot(&self, page_table: BufferId, row: usize, position: usize, head: usize, pool: PoolShape) -> Done<usize> {
        let [_, width] = self.shape(page_table)?;
        let entry = position / pool.page_tokens.max(1);
        let token = position % pool.page_tokens.max(1);
        if entry >= width {
            return Err(TaskFault::Position { row, position });
        }
        let page = self.read_i32(page_table, row * width + entry)?;
        let known = usize::try_from(page).ok().filter(|&page| page < pool.pages);
        let known = known.ok_or(TaskFault::Page { row, page, pages: pool.pages })?;
        Ok(pool.offset(head, &[known], token))
    }

    /// The contiguous runs of a box, in order: first element and length.
    ///
    /// # Errors
    /// If there are no such elements, or the task does not declare them.
    pub fn runs(&self, region: &Region) -> Done<Vec<(usize, usize)>> {
        let missing = TaskFault::Elements { buffer: region.buffer, start: 0, end: 0 };
        let shape = &self.buffers.get(region.buffer.index()).ok_or(missing.clone())?.shape;
        let (spans, Some((last, outer))) = (region.spans(), region.spans().split_last()) else { return Err(missing) };
        if spans.len() != shape.len() {
            return Err(missing);
        }
        let mut starts = vec![0];
        for (span, &extent) in outer.iter().zip(shape) {
            starts = starts.iter().flat_map(|start| span.iter().map(move |i| start * extent + i)).collect();
        }
        let width = shape[outer.len()];
        Ok(starts.into_iter().map(|start| (start * width + last.lo, last.len())).collect())
    }

    /// `x · wᵀ` for the rows of `weight: [n, k]` from element `start` on, as many as `y: [rows,
    /// features]` asks for.
    ///
    /// # Errors
    /// If there are no such elements, or the task does not declare them.
    pub fn linear(&self, x: &[f32], k: usize, weight: BufferId, start: usize, y: &mut [f32]) -> Done {
        let count = y.len() / (x.len() / k.max(1)).max(1) * k;
        self.declared(AccessKind::Read, weight, start, start.saturating_add(count))?;
        self.product(x, k, weight, start, y)
    }

    /// Multiplies one row of x with the features `features`, over the columns `along` of the
    /// weight, which x has.
    ///
    /// # Errors
    /// If there are no such elements, or the task does not declare them.
    pub fn linear_part(&self, x: &[f32], along: Span, weight: BufferId, features: Span, y: &mut [f32]) -> Done {
        let [_, k] = self.shape(weight)?;
        for feature in features.iter() {
            self.declared(AccessKind::Read, weight, feature * k + along.lo, feature * k + along.hi)?;
        }
        let mut all = vec![0.0; k];
        let part = all.get_mut(along.lo..along.hi).filter(|part| part.len() == x.len());
        let missing = TaskFault::Elements { buffer: weight, start: along.lo, end: along.hi };
        part.ok_or(missing)?.copy_from_slice(x);
        self.product(&all, k, weight, features.lo * k, y)
    }

    /// A number that a product multiplies, as
    /// [`Machine::set_operands`](crate::vm::reference::Machine::set_operands) has it.
    pub fn operand(&self, x: f32) -> f32 {
        self.operands.map_or(x, |rounded| rounded(x))
    }

    /// `x · wᵀ` for the rows of `weight: [n, k]` from element `start` on.
    fn product(&self, x: &[f32], k: usize, weight: BufferId, start: usize, y: &mut [f32]) -> Done {
        let count = y.len() / (x.len() / k.max(1)).max(1) * k;
        let missing = TaskFault::Elements { buffer: weight, start, end: start.saturating_add(count) };
        let (elements, start) = self.weights_from(weight, start)?;
        let end = start.saturating_add(count);
        let rounded: Option<Vec<f32>> = self.operands.map(|rounded| x.iter().copied().map(rounded).collect());
        let x = rounded.as_deref().unwrap_or(x);
        match elements {
            BufferView::F32(all) => host::linear(x, k, all.get(start..end).ok_or(missing)?, y),
            BufferView::Bf16(all) => host::linear(x, k, all.get(start..end).ok_or(missing)?, y),
            BufferView::F16(all) => host::linear(x, k, all.get(start..end).ok_or(missing)?, y),
            BufferView::Quantized(matrix) if end <= matrix.n() * matrix.k() && k == matrix.k() => {
                host::linear_quantized(x, matrix, start / k..end / k, y);
            }
            BufferView::Quantized(_) => return Err(missing),
            BufferView::Words(_) => host::linear(x, k, &self.read(weight, start, count)?, y),
        }
        Ok(())
    }

    /// Whether the task's regions have the elements `start..end` of a buffer.
    fn declared(&self, access: AccessKind, buffer: BufferId, start: usize, end: usize) -> Done {
        let (Some(regions), Some(declared)) = (self.declared, self.buffers.get(buffer.index())) else { return Ok(()) };
        let regions = match access {
            AccessKind::Read => regions.reads,
            AccessKind::Write => regions.writes,
        };
        let mut at = start;
        while at < end {
            let reach = |region: &Region| within(region, &declared.shape, at);
            let own = regions.iter().filter(|region| region.buffer == buffer);
            match own.map(reach).max() {
                Some(reach) if reach > at => at = reach,
                Some(_) | None => return Err(TaskFault::Undeclared { access, buffer, start, end }),
            }
        }
        Ok(())
    }
}

/// The end of the run of elements of `region` that begins at `start`; `start` if that element is
/// not in the region.
fn within(region: &Region, shape: &[usize], start: usize) -> usize {
    let spans = region.spans();
    if spans.len() != shape.len() || shape.contains(&0) {
        return start;
    }
    // From the innermost dimension on: as long as the box has all of it, the run goes on along the
    // next.
    let mut rest = start;
    let mut stride = 1usize;
    let mut reach = None;
    for (span, &extent) in spans.iter().zip(shape).rev() {
        let index = rest % extent;
        rest /= extent;
        if !(span.lo..span.hi).contains(&index) {
            return start;
        }
        if reach.is_none() {
            let whole = span.lo == 0 && span.hi == extent;
            if !whole {
                let inner = start % stride;
                reach = Some(start - inner + (span.hi - index) * stride);
            }
        }
        stride = stride.saturating_mul(extent);
    }
    if rest > 0 { start } else { reach.unwrap_or(stride) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Span;

    /// Every start and box of small shapes, against one element at a time.
    #[test]
    fn runs_leave_boxes_where_single_elements_do() {
        let shape = [2, 3, 4];
        let inside = |region: &Region, at: usize| {
            let index = [at / 12, at / 4 % 3, at % 4];
            at < 24 && region.spans().iter().zip(index).all(|(span, index)| (span.lo..span.hi).contains(&index))
        };
        let spans = |extent: usize| (0..extent).flat_map(move |lo| (lo + 1..=extent).map(move |hi| Span::new(lo, hi)));
        for (a, b, c) in spans(2).flat_map(|a| spans(3).flat_map(move |b| spans(4).map(move |c| (a, b, c)))) {
            let region = Region::new(BufferId(0), &[a, b, c]);
            for start in 0..26 {
                let expected = (start..).find(|&at| !inside(&region, at)).unwrap_or(start);
                assert_eq!(within(&region, &shape, start), expected, "{region} from {start}");
            }
        }
    }
}
