//! The op that scores the candidate blocks of a row.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use tilewright_graph::op::Op;
use tilewright_graph::rows::Source;
use tilewright_layout::DType;
use tilewright_megakernel::ops::{
    Access, CellUse, Footprint, OperandError, Operands, RowCells, SLOT_WORDS, TaskOp, index, interval, multiple,
};
use tilewright_megakernel::program::{BufferId, Region, Span};
use tilewright_megakernel::vm::reference::{Context, TaskFault};

use super::subject::{CheckResult, LayerFlow, Pools, elements};
use crate::bind::BoundFlow;
use crate::flow::Traced;
use crate::memory::{Budget, FlowPool};
use crate::run::{FlowExecutor, Interpreter, ScoredRow};

/// Scores a split of the candidate blocks of every row, by
/// [`Flow::forward_indexer`](crate::Flow::forward_indexer), and saves the states of those blocks.
///
/// A row at position `p` has `p / block_tokens + 1` blocks; of its `n` candidates
/// ([`Budget::candidates`]) split `s` of `S` has `s·w .. min((s+1)·w, n)`, `w = ceil(n / S)`, and
/// leaves the score of its candidate `i` in `scores[row, kv_head, s, i]`. A row that attends to all
/// its blocks has none, and nothing of it is read or written.
///
/// A flow whose ops go across blocks, or that has a state, has one split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// Name of the flow.
    pub flow: String,
    /// Tokens of a block.
    pub block_tokens: usize,
    /// The number of blocks that a row attends to.
    pub budget: Budget,
    /// Rotated queries, `[rows, heads, head_dim]`.
    pub q: BufferId,
    /// Key pool, `[kv_heads, pages, page_tokens, head_dim]`.
    pub k_pool: BufferId,
    /// Value pool, the same extents.
    pub v_pool: BufferId,
    /// The step inputs that locate rows' tokens.
    pub at: RowCells,
    /// The kv head.
    pub kv_head: usize,
    /// Rows that this task scores.
    pub rows: Span,
    /// The index of the split; the number of splits is `scores`' third extent.
    pub split: usize,
    /// The fields, in the order of their declarations.
    pub fields: Vec<BufferId>,
    /// The parameters, in the order of their declarations.
    pub parameters: Vec<BufferId>,
    /// The states, in the order of their declarations, f32 `[kv_heads, slots, blocks, 1 + d0·d1]`:
    /// the number of the request that saved a row comes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<BufferId>,
    /// The slot of each row and the number of its request, i32 `[rows, 2]`; where there are states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<BufferId>,
    /// Scores, f32 `[rows, kv_heads, splits, blocks of a split]`.
    pub scores: BufferId,
}

/// Whether each block of a flow is scored by itself, so that blocks may be dealt to tasks.
pub(super) fn is_blockwise(traced: &Traced) -> bool {
    traced.declared.states.is_empty() && !traced.indexer.steps().any(|step| matches!(step.op, Op::OverBlocks { .. }))
}

/// The candidates of a split among those of a row.
pub(super) fn split_of(candidates: &Range<usize>, splits: usize, split: usize) -> Range<usize> {
    let width = candidates.len().div_ceil(splits.max(1));
    let at = |split: usize| (candidates.start + split * width).min(candidates.end);
    at(split)..at(split + 1)
}

impl Score {
    fn pools(&self) -> [BufferId; 2] {
        [self.k_pool, self.v_pool]
    }

    /// Checks the states, and gives their regions of the kv head and the region of the slots.
    fn kept(
        &self,
        ops: &Operands,
        subject: &LayerFlow,
        count: usize,
        blocks: usize,
    ) -> CheckResult<(Vec<Region>, Vec<Region>)> {
        subject.count("states", self.states.len(), subject.extents.states.len())?;
        subject.count("slot", usize::from(self.slot.is_some()), usize::from(!self.states.is_empty()))?;
        let mut states = Vec::new();
        for (&state, &shape) in self.states.iter().zip(&subject.extents.states) {
            let [_, slots, _, _] = ops.pool("states", state)?;
            let shape = [subject.pools.kv_heads, slots, blocks, 1 + elements(shape)];
            ops.exactly("states", state, DType::F32, shape)?;
            let [_, slots, blocks, row] = shape.map(Span::all);
            states.push(Region::new(state, &[Span::one(self.kv_head), slots, blocks, row]));
        }
        let Some(slot) = self.slot else { return Ok((states, Vec::new())) };
        ops.cell("slot", slot, [count, SLOT_WORDS])?;
        Ok((states, vec![Region::new(slot, &[self.rows, Span::all(SLOT_WORDS)])]))
    }

    fn row(&self, on: &Context, subject: &LayerFlow, bound: &BoundFlow<'_>, row: usize) -> Result<(), TaskFault> {
        let [_, heads, dim] = on.shape(self.q)?;
        let [_, kv_heads, splits, share] = on.shape(self.scores)?;
        let pools = subject.pools;
        let graph = &subject.traced.indexer;
        let Some(position) = on.position(self.at.position, row)? else { return Ok(()) };
        let blocks = position / self.block_tokens + 1;
        let Some(candidates) = self.budget.candidates(blocks) else { return Ok(()) };
        let range = split_of(&candidates, splits, self.split);
        let table = on.table(self.at.page_table, row, position, on.pool_shape(self.k_pool)?)?;
        let per_page = pools.per_page();
        let place = |block: usize| pools.block(self.kv_head, table[block / per_page] * per_page + block % per_page);
        let gather = |is_read: bool, buffer, elements: usize| {
            let mut all = Vec::new();
            for block in range.clone().filter(|_| is_read) {
                on.read_onto(buffer, place(block) * elements, elements, &mut all)?;
            }
            Ok::<Vec<f32>, TaskFault>(all)
        };
        let tokens = self.block_tokens * pools.head_dim;
        let keys = gather(graph.loads(Source::Keys), self.k_pool, tokens)?;
        let values = gather(graph.loads(Source::Values), self.v_pool, tokens)?;
        let fields = self.fields.iter().zip(&bound.extents.fields).enumerate();
        let fields =
            fields.map(|(at, (&field, &shape))| gather(subject.reads_field(graph, at), field, elements(shape)));
        let fields = fields.collect::<Result<Vec<_>, TaskFault>>()?;
        let gathered = FlowPool::gathered(bound, range.len(), keys, values, fields);
        let group = heads / kv_heads.max(1);
        let mut states = self.load(on, bound, row, &range)?;
        let query = on.read(self.q, (row * heads + self.kv_head * group) * dim, group * dim)?;
        // Blocks are numbered as they were gathered; those of other splits are not looked at.
        let numbers: Vec<u32> = (0..blocks).map(|block| block.wrapping_sub(range.start) as u32).collect();
        let scores = Interpreter::new(bound).score(ScoredRow {
            pool: &gathered,
            head: 0,
            blocks: &numbers,
            candidates: range.clone(),
            query: &query,
            states: &mut states,
        });
        let scores = scores.map_err(|error| TaskFault::Refused(error.to_string()))?;
        self.save(on, bound, row, &range, &states)?;
        on.write(self.scores, ((row * kv_heads + self.kv_head) * splits + self.split) * share, &scores)
    }

    /// The slot of a row, and the number of its request.
    fn slot(&self, on: &Context, row: usize) -> Result<Option<(usize, f32)>, TaskFault> {
        let Some(slot) = self.slot else { return Ok(None) };
        let index = on.read_i32(slot, row * SLOT_WORDS)?;
        let request = on.read_i32(slot, row * SLOT_WORDS + 1)?;
        let none = || TaskFault::Refused(format!("row {row} has no slot for the states of its request"));
        Ok(Some((usize::try_from(index).map_err(|_| none())?, request as f32)))
    }

    /// The states of the candidates that the previous step saved, or the reset value: by state, one
    /// kv head.
    fn load(
        &self,
        on: &Context,
        bound: &BoundFlow<'_>,
        row: usize,
        range: &Range<usize>,
    ) -> Result<Vec<Vec<Vec<f32>>>, TaskFault> {
        let Some((slot, request)) = self.slot(on, row)? else { return Ok(Vec::new()) };
        let declared = self.states.iter().zip(&bound.traced.declared.states).zip(&bound.extents.states);
        let of = |((&state, declared), &shape): ((&BufferId, &crate::declare::StateDecl), &[usize; 2])| {
            let count = elements(shape);
            let [_, slots, blocks, _] = on.shape(state)?;
            let mut rows = vec![declared.reset as f32; range.end * count];
            for block in range.clone() {
                let place = (self.kv_head * slots + slot) * blocks + block;
                let saved = on.read(state, place * (1 + count), 1 + count)?;
                if saved[0] == request {
                    rows[block * count..][..count].copy_from_slice(&saved[1..]);
                }
            }
            Ok(vec![rows])
        };
        declared.map(of).collect()
    }

    fn save(
        &self,
        on: &Context,
        bound: &BoundFlow<'_>,
        row: usize,
        range: &Range<usize>,
        states: &[Vec<Vec<f32>>],
    ) -> Result<(), TaskFault> {
        let Some((slot, request)) = self.slot(on, row)? else { return Ok(()) };
        for ((&state, rows), &shape) in self.states.iter().zip(states).zip(&bound.extents.states) {
            let count = elements(shape);
            let [_, slots, blocks, _] = on.shape(state)?;
            for block in range.clone() {
                let place = (self.kv_head * slots + slot) * blocks + block;
                let row = [&[request], &rows[0][block * count..][..count]].concat();
                on.write(state, place * (1 + count), &row)?;
            }
        }
        Ok(())
    }
}

impl TaskOp for Score {
    fn name() -> &'static str {
        "flow_score"
    }

    fn footprint(&self, ops: &Operands) -> Result<Footprint, OperandError> {
        let pools = Pools::of(ops, self.pools(), self.block_tokens)?;
        let [count, heads, dim] = ops.floats("q", self.q)?;
        ops.floats_of("k_pool", self.k_pool, [pools.kv_heads, pools.pages, pools.page_tokens, dim])?;
        multiple("heads", heads, pools.kv_heads)?;
        index("kv_head", self.kv_head, pools.kv_heads)?;
        interval("rows", self.rows, count)?;
        let group = heads / pools.kv_heads;
        let subject = LayerFlow::new(&self.flow, pools, group)?;
        let graph = &subject.traced.indexer;
        let [_, width] = ops.shape("page_table", self.at.page_table)?;
        let blocks = width * pools.per_page();
        let [_, _, splits, share] = ops.shape("scores", self.scores)?;
        ops.exactly("scores", self.scores, DType::F32, [count, pools.kv_heads, splits, share])?;
        index("split", self.split, splits)?;
        let refuse = |problem| Err(OperandError::Refused { operand: "scores", problem });
        if splits > 1 && !is_blockwise(&subject.traced) {
            return refuse(format!("{splits} splits; flow `{}` scores blocks together, in one", self.flow));
        }
        if share < blocks.div_ceil(splits) {
            return refuse(format!("{splits} splits of {share} blocks; a row has up to {blocks}"));
        }
        let queries = Span::new(self.kv_head * group, (self.kv_head + 1) * group);
        let mut reads = vec![Region::new(self.q, &[self.rows, queries, Span::all(dim)])];
        reads.extend(subject.tokens(graph, self.pools(), self.kv_head));
        let fields = subject.fields(ops, &self.fields, self.kv_head)?.into_iter().enumerate();
        reads.extend(fields.filter(|(at, _)| subject.reads_field(graph, *at)).map(|(_, region)| region));
        reads.extend(subject.parameters(ops, graph, &self.parameters, self.kv_head)?);
        reads.extend(self.at.footprint(ops, self.rows, count)?);
        let (states, slots) = self.kept(ops, &subject, count, blocks)?;
        reads.extend(states.iter().chain(&slots));
        let spans = [self.rows, Span::one(self.kv_head), Span::one(self.split), Span::all(share)];
        let mut writes = vec![Region::new(self.scores, &spans)];
        writes.extend(&states);
        let mut cells = self.at.cells(ops, &[self.k_pool])?;
        if let (Some(slot), Some(&state)) = (self.slot, self.states.first()) {
            let [_, slots, _, _] = ops.shape("states", state)?;
            cells.push((slot, CellUse::Slot { slots }));
        }
        // All of a state is read before any of it is written.
        Ok(Footprint::new(reads, writes).updating(states).cells(cells))
    }

    fn oracle(&self, on: &Context) -> Result<(), TaskFault> {
        let pools = Pools::found(on, self.k_pool, self.block_tokens)?;
        let [_, heads, _] = on.shape(self.q)?;
        let subject = LayerFlow::new(&self.flow, pools, heads / pools.kv_heads.max(1));
        let subject = subject.map_err(|error| TaskFault::Refused(error.to_string()))?;
        subject.bound(on, &subject.traced.indexer, &self.parameters, self.kv_head, |bound| {
            self.rows.iter().try_for_each(|row| self.row(on, &subject, bound, row))
        })
    }

    fn accesses(&self) -> Vec<Access> {
        let parameters = Access::weights(self.parameters.iter().copied());
        [Access::input(self.q).relaxed()].into_iter().chain(parameters).collect()
    }

    /// Of what lies in pools the split's share of the blocks, for each row.
    fn drawn(&self, region: &Region, ops: &Operands, context: usize) -> usize {
        let Some(&[_, _, inner, elements]) = region.spans().first_chunk::<4>() else { return region.elements() };
        let splits = ops.shape::<4>("scores", self.scores).map_or(1, |[_, _, splits, _]| splits.max(1));
        let blocks = context.div_ceil(self.block_tokens.max(1)).div_ceil(splits);
        let per_block = match self.pools().contains(&region.buffer) {
            true => self.block_tokens * elements.len(),
            false if self.fields.contains(&region.buffer) || self.states.contains(&region.buffer) => elements.len(),
            false => inner.len() * elements.len(),
        };
        (self.rows.len() * blocks * per_block).min(region.elements())
    }
}
