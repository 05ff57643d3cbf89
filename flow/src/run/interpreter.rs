//! The oracle: the graph's interpreter, on a pool and on the states of a request.

use tilewright_graph::interpret::{self, BlockInputs, Tensor};
use tilewright_graph::op::Op;
use tilewright_graph::rows::Source;

use super::{Complete, FlowExecutor, ScoredRow};
use crate::bind::BoundFlow;
use crate::error::RunError;
use crate::flow::FlowPass;
use crate::memory::FlowPool;
use crate::real::Real;

/// Executes a flow by the [interpreter](interpret::Interpreter) of its graphs, in f64.
#[derive(Debug)]
pub struct Interpreter<'f> {
    bound: &'f BoundFlow<'f>,
}

fn wide<T: Real>(numbers: &[T]) -> Vec<f64> {
    numbers.iter().map(|x| x.to_f64()).collect()
}

fn copy<T: Real>(from: &[f64], to: &mut [T]) {
    to.iter_mut().zip(from).for_each(|(to, x)| *to = T::from_f64(*x));
}

impl<'f> Interpreter<'f> {
    /// An interpreter of a bound flow.
    pub const fn new(bound: &'f BoundFlow<'f>) -> Interpreter<'f> {
        Interpreter { bound }
    }

    /// All values of a pass, given those of its sources.
    fn run(&self, pass: FlowPass, blocks: usize, load: &dyn Fn(Source) -> Vec<f64>) -> Result<Vec<Tensor>, RunError> {
        let inputs = BlockInputs { model: self.bound.extents.model, blocks, load };
        Ok(interpret::Interpreter::new(self.bound.traced.graph(pass), &|_: &str| None)?.run_blocks(inputs)?)
    }

    /// Rows of blocks in memory, and parameters.
    fn read<T: Real>(&self, pool: &FlowPool<T>, source: Source, blocks: &[u32], head: usize) -> Vec<f64> {
        let each = |of: &dyn Fn(usize) -> Vec<f64>| blocks.iter().flat_map(|block| of(*block as usize)).collect();
        match source {
            Source::Keys => each(&|block| wide(pool.keys(block))),
            Source::Values => each(&|block| wide(pool.values(block))),
            Source::Field(id) => each(&|block| wide(pool.field(id.index(), block))),
            Source::Parameter(id) => self.bound.parameter(id.index(), head).to_vec(),
            // Not in memory.
            Source::Query | Source::Positions | Source::State(_) => Vec::new(),
        }
    }
}

impl<T: Real> FlowExecutor<T> for Interpreter<'_> {
    fn bound(&self) -> &BoundFlow<'_> {
        self.bound
    }

    fn summarise(&self, pool: &mut FlowPool<T>, Complete { block, head }: Complete) -> Result<(), RunError> {
        let load = |source| self.read(pool, source, &[block as u32], head);
        let values = self.run(FlowPass::Cache, 1, &load)?;
        for (step, Tensor { data, .. }) in self.bound.traced.cache.steps().zip(values) {
            if let Op::Store { to: Source::Field(field), .. } = *step.op {
                copy(&data, &mut pool.fields[field.index()][block * data.len()..][..data.len()]);
            }
        }
        Ok(())
    }

    fn score(&self, row: ScoredRow<'_, T>) -> Result<Vec<T>, RunError> {
        let ScoredRow { pool, head, blocks, candidates, query, states } = row;
        let blocks = &blocks[candidates.clone()];
        let elements = |state: usize| self.bound.extents.states[state].iter().product::<usize>();
        let load = |source| match source {
            Source::Query => wide(query),
            Source::Positions => candidates.clone().map(|position| position as f64).collect(),
            Source::State(id) => {
                let elements = elements(id.index());
                wide(&states[id.index()][head][candidates.start * elements..candidates.end * elements])
            }
            source => self.read(pool, source, blocks, head),
        };
        let values = self.run(FlowPass::Indexer, blocks.len(), &load)?;
        // A load sees the step before: nothing is saved before every op has run.
        let mut scores = Vec::new();
        for step in self.bound.traced.indexer.steps() {
            match *step.op {
                Op::Store { x, to: Source::State(id) } => {
                    let saved = &mut states[id.index()][head][candidates.start * elements(id.index())..];
                    copy(&values[x.index()].data, saved);
                }
                Op::Select { x } => scores = values[x.index()].data.iter().map(|x| T::from_f64(*x)).collect(),
                _ => {}
            }
        }
        Ok(scores)
    }
}
