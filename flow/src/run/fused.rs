//! The groups of a plan in order, chunk by chunk, on padded tiles.
//!
//! Values between groups lie in buffers that hold NaN until they are written; states are saved in
//! place, in the pages that later groups read. A plan in a wrong order gives wrong scores here.

use std::collections::BTreeMap;
use std::ops::Range;

use super::interpreter::{read, scales};
use super::lanes::{self, PaddedTile, finish, join, tree};
use super::rowwise::over_norm;
use super::{Complete, FlowExecutor, ScoredRow, products};
use crate::bind::BoundFlow;
use crate::error::BindError;
use crate::graph::{PassGraph, ValueId};
use crate::memory::FlowPool;
use crate::op::{Effect, FlowOp, Norm, Reduce, RowOp, SourceOp};
use crate::plan::{Domain, FlowPass, Fusion, OpGroup, PassPlan};
use crate::real::Real;

/// Executes the fused groups of a flow.
#[derive(Debug)]
pub struct Fused<'f> {
    bound: &'f BoundFlow<'f>,
    cache: PassPlan,
    indexer: PassPlan,
    cache_scales: Vec<f64>,
    indexer_scales: Vec<f64>,
    chunk: usize,
}

/// Values between the groups of one row: each a flat list of rows, one for `Batched`, else one for
/// each candidate.
struct Buffers<T> {
    values: BTreeMap<ValueId, Vec<T>>,
}

impl<'f> Fused<'f> {
    /// A machine with the plans of a budget, which scores `chunk` blocks at a time.
    ///
    /// # Errors
    /// [`BindError`] where a factor of an op has no value in the model.
    pub fn new(bound: &'f BoundFlow<'f>, fusion: &Fusion, chunk: usize) -> Result<Fused<'f>, BindError> {
        let plan = |pass| PassPlan::new(bound.traced, &bound.extents, pass, fusion);
        Ok(Fused {
            bound,
            cache: plan(FlowPass::Cache),
            indexer: plan(FlowPass::Indexer),
            cache_scales: scales(&bound.traced.cache, bound)?,
            indexer_scales: scales(&bound.traced.indexer, bound)?,
            chunk: chunk.max(1),
        })
    }

    /// The plan of the indexer.
    pub const fn indexer(&self) -> &PassPlan {
        &self.indexer
    }

    fn graph(&self) -> &PassGraph {
        &self.bound.traced.indexer
    }

    fn extents(&self, id: ValueId) -> [usize; 2] {
        self.bound.extents.indexer[id.index()]
    }

    fn elements(&self, id: ValueId) -> usize {
        self.extents(id).iter().product()
    }

    /// One op of a group on tiles.
    fn apply<T: Real>(op: &FlowOp, extents: [usize; 2], operands: &[&PaddedTile<T>], scale: f64) -> PaddedTile<T> {
        match op {
            FlowOp::Elementwise(op) => lanes::elementwise(*op, extents, operands),
            FlowOp::Reduction(op) => lanes::reduction(*op, extents, operands[0]),
            FlowOp::Product(op) => products::product(*op, extents, operands, scale),
            FlowOp::Rearrange(op) => lanes::rearrange(*op, extents, operands[0]),
            FlowOp::Effect(_) | FlowOp::Source(_) | FlowOp::Row(_) => operands[0].clone(),
        }
    }

    /// An input of a group at a candidate: from memory, or from the buffer of another group.
    fn input<T: Real>(
        &self,
        row: &ScoredRow<'_, T>,
        buffers: &Buffers<T>,
        id: ValueId,
        candidate: usize,
    ) -> PaddedTile<T> {
        let extents = self.extents(id);
        let elements = self.elements(id);
        let position = row.candidates.start + candidate;
        let FlowOp::Source(source) = self.graph().node(id).op else {
            let rows = &buffers.values[&id];
            let at = if rows.len() == elements { 0 } else { candidate * elements };
            return PaddedTile::load(extents, &rows[at..at + elements]);
        };
        match source {
            SourceOp::Query => PaddedTile::load(extents, row.query),
            SourceOp::Positions => PaddedTile::load(extents, &[T::from_f64(position as f64)]),
            SourceOp::Load(state) => {
                PaddedTile::load(extents, &row.states[state.index()][row.head][position * elements..][..elements])
            }
            SourceOp::Keys | SourceOp::Values | SourceOp::Field(_) | SourceOp::Parameter(_) | SourceOp::Fill(..) => {
                let rows = read(self.bound, row.pool, source, row.blocks[position] as usize, row.head);
                PaddedTile::load(extents, &rows.unwrap_or_default())
            }
        }
    }

    /// A group on one candidate: inputs, ops, then everything that it writes.
    fn run_at<T: Real>(&self, row: &mut ScoredRow<'_, T>, buffers: &mut Buffers<T>, group: &OpGroup, candidate: usize) {
        let mut tiles: BTreeMap<ValueId, PaddedTile<T>> = BTreeMap::new();
        for &input in &group.inputs {
            tiles.insert(input, self.input(row, buffers, input, candidate));
        }
        for &id in &group.ops {
            let node = self.graph().node(id);
            let operands: Vec<&PaddedTile<T>> = node.operands.iter().map(|o| &tiles[o]).collect();
            let tile = Fused::apply(&node.op, self.extents(id), &operands, self.indexer_scales[id.index()]);
            tiles.insert(id, tile);
        }
        for &id in &group.ops {
            let elements = self.elements(id);
            let to = match self.graph().node(id).op {
                FlowOp::Effect(Effect::Save(state)) => {
                    let at = (row.candidates.start + candidate) * elements;
                    Some(&mut row.states[state.index()][row.head][at..at + elements])
                }
                _ => buffers.values.get_mut(&id).map(|rows| &mut rows[candidate * elements..][..elements]),
            };
            if let Some(to) = to {
                to.iter_mut().zip(tiles[&id].store()).for_each(|(to, x)| *to = x);
            }
        }
    }

    /// The group's one op over all candidates; what it gives for each of them, or once.
    fn run_across<T: Real>(&self, row: &ScoredRow<'_, T>, buffers: &Buffers<T>, id: ValueId) -> Vec<T> {
        let node = self.graph().node(id);
        let x = node.operands[0];
        let extents = self.extents(id);
        let n = row.candidates.len();
        let tiles: Vec<PaddedTile<T>> = (0..n).map(|candidate| self.input(row, buffers, x, candidate)).collect();
        let FlowOp::Row(op) = &node.op else {
            return tiles.iter().map(|tile| tile.at(0, 0)).collect();
        };
        let chunks = Chunks { len: n, chunk: self.chunk };
        let over = |kind: Reduce, of: &dyn Fn(usize, usize, usize) -> T| {
            PaddedTile::from_fn(extents, |i, j| chunks.reduce(kind, |s| of(s, i, j)))
        };
        let each = |at: &dyn Fn(usize, usize, usize) -> T| -> Vec<T> {
            (0..n).flat_map(|s| PaddedTile::from_fn(extents, |i, j| at(s, i, j)).store().collect::<Vec<_>>()).collect()
        };
        let lane = |s: usize, i: usize, j: usize| tiles[s].at(i, j);
        match op {
            RowOp::Reduce(_) if n == 0 => vec![T::ZERO; extents[0] * extents[1]],
            RowOp::Reduce(kind) => over(*kind, &lane).store().collect(),
            RowOp::Softmax(_) => {
                let scale = T::from_f64(self.indexer_scales[id.index()]);
                let largest = over(Reduce::Max, &|s, i, j| scale * lane(s, i, j));
                let term = |s, i, j| (scale * lane(s, i, j) - largest.at(i, j)).exp();
                let sum = over(Reduce::Sum, &term);
                each(&|s, i, j| term(s, i, j) / sum.at(i, j))
            }
            RowOp::Normalize(norm) => {
                let norm = match norm {
                    Norm::L1 => over(Reduce::Sum, &|s, i, j| lane(s, i, j).abs()),
                    Norm::L2 => over(Reduce::L2Norm, &lane),
                };
                each(&|s, i, j| over_norm(lane(s, i, j), norm.at(i, j)))
            }
            RowOp::Conv1d(taps) => each(&|s, i, j| {
                tree(Reduce::Sum, taps.len().min(s + 1), |k| T::from_f64(taps.at(k, i, j)) * lane(s - k, i, j))
            }),
        }
    }
}

/// Candidates in chunks: each a tree, the partial results joined in order.
struct Chunks {
    len: usize,
    chunk: usize,
}

impl Chunks {
    fn ranges(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Chunks { len, chunk } = *self;
        (0..len).step_by(chunk).map(move |begin| begin..len.min(begin + chunk))
    }

    fn reduce<T: Real>(&self, kind: Reduce, at: impl Fn(usize) -> T) -> T {
        // A mean is a sum until the end, a norm a sum of squares.
        let square = |x: T| if kind == Reduce::L2Norm { x * x } else { x };
        let partial = match kind {
            Reduce::Mean | Reduce::L2Norm => Reduce::Sum,
            Reduce::Sum | Reduce::Max | Reduce::Min => kind,
        };
        let of_chunk = |range: Range<usize>| tree(partial, range.len(), |k| square(at(range.start + k)));
        let all = self.ranges().map(of_chunk).reduce(|a, b| join(partial, a, b));
        finish(kind, self.len, all.unwrap_or(T::ZERO))
    }
}

impl<T: Real> FlowExecutor<T> for Fused<'_> {
    fn bound(&self) -> &BoundFlow<'_> {
        self.bound
    }

    fn summarise(&self, pool: &mut FlowPool<T>, complete: Complete) {
        let graph = &self.bound.traced.cache;
        let mut tiles: BTreeMap<ValueId, PaddedTile<T>> = BTreeMap::new();
        for group in self.cache.groups() {
            for &id in &group.inputs {
                if let FlowOp::Source(source) = graph.node(id).op {
                    let rows = read(self.bound, pool, source, complete.block, complete.head).unwrap_or_default();
                    tiles.insert(id, PaddedTile::load(self.bound.extents.cache[id.index()], &rows));
                }
            }
            for &id in &group.ops {
                let node = graph.node(id);
                let operands: Vec<&PaddedTile<T>> = node.operands.iter().map(|o| &tiles[o]).collect();
                let extents = self.bound.extents.cache[id.index()];
                let tile = Fused::apply(&node.op, extents, &operands, self.cache_scales[id.index()]);
                if let FlowOp::Effect(Effect::Store(field)) = node.op {
                    let elements = extents[0] * extents[1];
                    let to = &mut pool.fields[field.index()][complete.block * elements..][..elements];
                    to.iter_mut().zip(tile.store()).for_each(|(to, x)| *to = x);
                }
                tiles.insert(id, tile);
            }
        }
    }

    fn score(&self, mut row: ScoredRow<'_, T>) -> Vec<T> {
        let mut buffers = Buffers { values: BTreeMap::new() };
        let candidates = row.candidates.len();
        let mut scores = Vec::new();
        for group in self.indexer.groups() {
            let rows = if group.domain == Domain::Rows { 1 } else { candidates };
            if group.domain == Domain::AcrossBlocks {
                let found = self.run_across(&row, &buffers, group.ops[0]);
                match self.graph().node(group.ops[0]).op {
                    FlowOp::Effect(Effect::Select) => scores = found,
                    _ => drop(buffers.values.insert(group.ops[0], found)),
                }
                continue;
            }
            for &output in &group.outputs {
                buffers.values.insert(output, vec![T::NAN; rows * self.elements(output)]);
            }
            for range in (Chunks { len: rows, chunk: self.chunk }).ranges() {
                range.for_each(|candidate| self.run_at(&mut row, &mut buffers, group, candidate));
            }
        }
        scores
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Budget, FlowRequest};
    use crate::prelude::*;
    use crate::{ModelShape, Parameters};

    /// A count, and the count of the step before.
    struct Lag;

    impl Flow for Lag {
        type Fields = ();
        type State = [State; 2];

        fn name(&self) -> &str {
            "lag"
        }
        fn fields(&self, _: &mut Declare) {}
        fn state(&self, declare: &mut DeclareState) -> [State; 2] {
            ["count", "before"].map(|name| declare.state(name, [Dim::ONE, Dim::ONE], 0.0))
        }
        fn forward_cache(&self, _: &Block<'_>, (): &()) {}
        fn forward_indexer<'t>(&self, step: Step<'t>, (): &(), [count, before]: [State; 2]) -> Done<'t> {
            let (count, slot) = step.load(count);
            let (_, before) = step.load(before);
            slot.save(count + 1.0);
            before.save(count);
            let score = step.positions();
            step.select(score)
        }
    }

    /// The second state of the first block after two steps.
    fn lagged(fused: &Fused<'_>) -> f64 {
        let mut pool: FlowPool<f64> = FlowPool::new(fused.bound, 1, 3).expect("a pool");
        let mut requests = [FlowRequest::new(&pool, &[0, 1, 2], 0).expect("a request")];
        fused.append(&mut pool, &mut requests[0], &[0.0; 3], &[0.0; 3]).expect("tokens");
        let budget = Budget::new(1, 0.0, 0, 1).expect("a budget");
        for _ in 0..2 {
            fused.step(&pool, &mut requests, &[0.0], &budget).expect("a step");
        }
        requests[0].state(1, 0)[0]
    }

    #[test]
    fn a_save_that_runs_before_a_reader_of_its_state_shows() {
        let traced = trace(&Lag).expect("a flow without errors");
        let model = ModelShape { kv_heads: 1, group: 1, head_dim: 1, block_tokens: 1 };
        let bound = traced.bind(&model, &Parameters::new()).expect("a model that fits");
        let mut fused = Fused::new(&bound, &Fusion::OFF, 4).expect("factors");
        assert_eq!(lagged(&fused), 1.0);
        // The planted bug: what reads the count for the other state comes last.
        let copies = |group: &OpGroup| {
            let nodes = group.ops.iter().map(|id| bound.traced.indexer.node(*id));
            let late = |op: &FlowOp| {
                matches!(op, FlowOp::Effect(Effect::Save(state)) if state.index() == 1) || op.name() == "copy"
            };
            nodes.into_iter().any(|node| late(&node.op))
        };
        fused.indexer = fused.indexer.clone().reordered(copies);
        assert_eq!(lagged(&fused), 2.0);
    }
}
