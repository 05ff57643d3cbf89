//! The oracle: every op of the graph, on every block of a row, by its definition.

use super::tile::{self, RowTile};
use super::{Complete, FlowExecutor, ScoredRow, rowwise};
use crate::bind::BoundFlow;
use crate::error::BindError;
use crate::graph::PassGraph;
use crate::memory::FlowPool;
use crate::op::{Effect, FlowOp, ProductOp, RowOp, SourceOp};
use crate::real::Real;

/// Executes a flow op by op: one tile of a `Batched` value, one tile for each candidate of every
/// other.
#[derive(Debug)]
pub struct Interpreter<'f> {
    bound: &'f BoundFlow<'f>,
    cache_scales: Vec<f64>,
    indexer_scales: Vec<f64>,
}

/// The factor of each op that has one that depends on the model; 1 elsewhere.
pub(crate) fn scales(graph: &PassGraph, bound: &BoundFlow<'_>) -> Result<Vec<f64>, BindError> {
    let of = |op: &FlowOp| match op {
        FlowOp::Row(RowOp::Softmax(scale)) | FlowOp::Product(ProductOp::LearnedQuery(scale)) => {
            scale.bind(&bound.extents.model)
        }
        _ => Ok(1.0),
    };
    graph.nodes().iter().map(|node| of(&node.op)).collect()
}

/// A source's row in memory.
pub(crate) fn read<T: Real>(
    bound: &BoundFlow<'_>,
    pool: &FlowPool<T>,
    source: SourceOp,
    block: usize,
    head: usize,
) -> Option<Vec<T>> {
    match source {
        SourceOp::Keys => Some(pool.keys(block).to_vec()),
        SourceOp::Values => Some(pool.values(block).to_vec()),
        SourceOp::Field(id) => Some(pool.field(id.index(), block).to_vec()),
        SourceOp::Parameter(id) => Some(bound.parameter(id.index(), head).iter().map(|x| T::from_f64(*x)).collect()),
        SourceOp::Fill(id, number) => {
            let [d0, d1] = bound.extents.fields[id.index()];
            Some(vec![T::from_f64(number.0); d0 * d1])
        }
        SourceOp::Query | SourceOp::Positions | SourceOp::Load(_) => None,
    }
}

impl<'f> Interpreter<'f> {
    /// An interpreter of a bound flow.
    ///
    /// # Errors
    /// [`BindError`] where a factor of an op has no value in the model.
    pub fn new(bound: &'f BoundFlow<'f>) -> Result<Interpreter<'f>, BindError> {
        let cache = &bound.traced.cache;
        let indexer = &bound.traced.indexer;
        Ok(Interpreter { bound, cache_scales: scales(cache, bound)?, indexer_scales: scales(indexer, bound)? })
    }

    /// An op on one row of its operands.
    fn inner<T: Real>(op: &FlowOp, extents: [usize; 2], operands: &[&RowTile<T>], scale: f64) -> RowTile<T> {
        match op {
            FlowOp::Elementwise(op) => tile::elementwise(*op, extents, operands),
            FlowOp::Reduction(op) => tile::reduction(*op, extents, operands[0]),
            FlowOp::Product(op) => tile::product(*op, extents, operands, scale),
            FlowOp::Rearrange(op) => tile::rearrange(*op, extents, operands[0]),
            // The value of an effect is what it was given; sources and ops over a row have no
            // operands of one row.
            FlowOp::Effect(_) | FlowOp::Source(_) | FlowOp::Row(_) => operands[0].clone(),
        }
    }

    fn source<T: Real>(&self, source: SourceOp, extents: [usize; 2], row: &ScoredRow<'_, T>) -> Vec<RowTile<T>> {
        let each =
            |at: &dyn Fn(usize) -> Vec<T>| row.candidates.clone().map(|p| RowTile { extents, data: at(p) }).collect();
        match source {
            SourceOp::Query => vec![RowTile::new(extents, row.query)],
            SourceOp::Positions => each(&|position| vec![T::from_f64(position as f64)]),
            SourceOp::Load(id) => {
                let elements = extents[0] * extents[1];
                let state = &row.states[id.index()][row.head];
                each(&|position| state[position * elements..][..elements].to_vec())
            }
            SourceOp::Parameter(_) => {
                let data = read(self.bound, row.pool, source, 0, row.head).unwrap_or_default();
                vec![RowTile { extents, data }]
            }
            SourceOp::Keys | SourceOp::Values | SourceOp::Field(_) | SourceOp::Fill(..) => each(&|position| {
                read(self.bound, row.pool, source, row.blocks[position] as usize, row.head).unwrap_or_default()
            }),
        }
    }
}

impl<T: Real> FlowExecutor<T> for Interpreter<'_> {
    fn bound(&self) -> &BoundFlow<'_> {
        self.bound
    }

    fn summarise(&self, pool: &mut FlowPool<T>, complete: Complete) {
        let mut values: Vec<RowTile<T>> = Vec::new();
        for (index, node) in self.bound.traced.cache.nodes().iter().enumerate() {
            let extents = self.bound.extents.cache[index];
            let operands: Vec<&RowTile<T>> = node.operands.iter().map(|o| &values[o.index()]).collect();
            let value = match node.op {
                FlowOp::Source(source) => {
                    let data = read(self.bound, pool, source, complete.block, complete.head).unwrap_or_default();
                    RowTile { extents, data }
                }
                _ => Interpreter::inner(&node.op, extents, &operands, self.cache_scales[index]),
            };
            if let FlowOp::Effect(Effect::Store(field)) = node.op {
                let elements = extents[0] * extents[1];
                pool.fields[field.index()][complete.block * elements..][..elements].copy_from_slice(&value.data);
            }
            values.push(value);
        }
    }

    fn score(&self, row: ScoredRow<'_, T>) -> Vec<T> {
        let graph = &self.bound.traced.indexer;
        let mut values: Vec<Vec<RowTile<T>>> = Vec::new();
        for (index, node) in graph.nodes().iter().enumerate() {
            let extents = self.bound.extents.indexer[index];
            let scale = self.indexer_scales[index];
            let operands: Vec<&Vec<RowTile<T>>> = node.operands.iter().map(|o| &values[o.index()]).collect();
            let value = match &node.op {
                FlowOp::Source(source) => self.source(*source, extents, &row),
                FlowOp::Row(op) => rowwise::rowwise(op, extents, operands[0], scale),
                op => {
                    // A value of one tile is the same for every block.
                    let rows = if operands.iter().all(|o| o.len() == 1) { 1 } else { row.candidates.len() };
                    let of = |s: usize| operands.iter().map(|o| &o[s.min(o.len() - 1)]).collect::<Vec<_>>();
                    (0..rows).map(|s| Interpreter::inner(op, extents, &of(s), scale)).collect()
                }
            };
            values.push(value);
        }
        // A load sees the step before: nothing is saved before every op has run.
        let mut scores = Vec::new();
        for (index, node) in graph.nodes().iter().enumerate() {
            match node.op {
                FlowOp::Effect(Effect::Save(state)) => {
                    let elements: usize = self.bound.extents.indexer[index].iter().product();
                    let saved = &mut row.states[state.index()][row.head];
                    for (position, tile) in row.candidates.clone().zip(&values[index]) {
                        saved[position * elements..][..elements].copy_from_slice(&tile.data);
                    }
                }
                FlowOp::Effect(Effect::Select) => scores = values[index].iter().map(|tile| tile.data[0]).collect(),
                _ => {}
            }
        }
        scores
    }
}
