//! The interpreter in f64: what a graph computes, op by op.
//!
//! It is written for clarity: each op is a loop over rows, weights are f64, and caches are dense.
//! Each row is computed alone and in one order of summation, so that a sequence gives bitwise equal
//! results in any split into steps.
//!
//! May import: `graph` and what it imports.

mod attend;
mod elementwise;
mod error;
mod products;
mod recurrent;
mod route;
mod rows;
mod step;
mod tensor;
mod weights;

use crate::graph::{Graph, Step};
use crate::op::{InputKind, Op};
use step::StepRun;

pub use error::RunError;
pub use step::{BlockInputs, Sequence};
pub use tensor::Tensor;
pub use weights::{CheckpointTensor, WeightError, Weights};

/// Runs a graph.
///
/// ```
/// use tilewright_graph::build::{Builder, Sizes};
/// use tilewright_graph::interpret::{Interpreter, Sequence, CheckpointTensor};
///
/// let sizes = Sizes { hidden: 2, heads: 1, kv_heads: 1, head_dim: 2, inner: 2, vocab: 3 };
/// let builder = Builder::new("table", sizes, 1e-6);
/// let b = builder.root();
/// let x = b.embed(builder.tokens(), "embed").scale(10.0);
/// let graph = builder.finish(&[x])?;
///
/// let table = CheckpointTensor { shape: vec![3, 2], data: vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0] };
/// let weights = |name: &str| (name == "embed.weight").then(|| table.clone());
/// let outputs = Interpreter::new(&graph, &weights)?.run(&mut Sequence::default(), &[2, 0])?;
/// assert_eq!(outputs[0].data, [40.0, 50.0, 0.0, 10.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Interpreter<'g> {
    graph: &'g Graph,
    /// The weights as ops see them.
    weights: Vec<Tensor>,
    /// For each value the place of the last op that reads it.
    last_use: Vec<usize>,
}

impl<'g> Interpreter<'g> {
    /// Reads the weights of a graph.
    ///
    /// # Errors
    /// A weight is missing or of another shape than the graph declares.
    pub fn new(graph: &'g Graph, weights: &dyn Weights) -> Result<Interpreter<'g>, RunError> {
        let declared = graph.parts().weights.iter();
        let weights = declared.map(|weight| weights::read(weight, weights)).collect::<Result<_, _>>()?;
        let mut last_use = vec![0; graph.types().len()];
        for (place, step) in graph.steps().enumerate() {
            step.op.operands().iter().for_each(|(_, id)| last_use[id.index()] = place);
        }
        graph.parts().outputs.iter().for_each(|id| last_use[id.index()] = usize::MAX);
        Ok(Interpreter { graph, weights, last_use })
    }

    fn step_run<'r>(
        &'r self,
        tokens: &'r [u32],
        sequence: &'r mut Sequence,
        blocks: Option<BlockInputs<'r>>,
    ) -> StepRun<'r> {
        StepRun { graph: self.graph, weights: &self.weights, tokens, sequence, blocks, values: Vec::new() }
    }

    /// Feeds tokens to a sequence and gives the graph's outputs.
    ///
    /// # Errors
    /// There are no tokens, or an id is out of range. The sequence is unchanged then.
    pub fn run(&self, sequence: &mut Sequence, tokens: &[u32]) -> Result<Vec<Tensor>, RunError> {
        if tokens.is_empty() {
            return Err(RunError::Empty);
        }
        let mut after = sequence.clone();
        let mut run = self.step_run(tokens, &mut after, None);
        for (place, step) in self.graph.steps().enumerate() {
            let results = run.step(&step)?;
            run.values.extend(results.into_iter().map(Some));
            for (_, id) in step.op.operands() {
                if self.last_use[id.index()] <= place {
                    run.values[id.index()] = None;
                }
            }
        }
        let outputs = self.graph.parts().outputs.iter().map(|id| run.value(*id).clone()).collect();
        after.len += tokens.len();
        *sequence = after;
        Ok(outputs)
    }

    /// Runs a graph of [rows](crate::rows) for one request and key head, and gives all its values:
    /// `[rows, d0, d1]` each.
    ///
    /// ```
    /// use tilewright_graph::{Graph, dim::ModelShape, graph::Parts, op::Op, rows::Source};
    /// use tilewright_graph::interpret::{BlockInputs, Interpreter};
    ///
    /// let mut parts = Parts::default();
    /// let (position, _) = parts.push(Op::Load { from: Source::Positions })?;
    /// parts.push(Op::Select { x: position })?;
    /// let graph = Graph::check(parts)?;
    /// let model = ModelShape { kv_heads: 1, group: 1, head_dim: 8, block_tokens: 16 };
    /// let inputs = BlockInputs { model, blocks: 3, load: &|_| vec![4.0, 5.0, 6.0] };
    /// let values = Interpreter::new(&graph, &|_: &str| None)?.run_blocks(inputs)?;
    /// assert_eq!(values[1].data, [2.0, 1.0, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An extent has no number in the model, or an op is not one on rows.
    pub fn run_blocks(&self, inputs: BlockInputs<'_>) -> Result<Vec<Tensor>, RunError> {
        let mut sequence = Sequence::default();
        let mut run = self.step_run(&[], &mut sequence, Some(inputs));
        for step in self.graph.steps() {
            let result = run.rows(&step)?;
            run.values.push(Some(result));
        }
        Ok(run.values.into_iter().flatten().collect())
    }
}

impl StepRun<'_> {
    /// The results of an op.
    fn step(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, RunError> {
        let data = match step.op {
            Op::Input { input: InputKind::Tokens } => self.tokens.iter().map(|&id| f64::from(id)).collect(),
            Op::Input { input: InputKind::Positions } => {
                (0..self.tokens.len()).map(|row| (self.sequence.len + row) as f64).collect()
            }
            Op::Embed { ids, table, scale } => self.embed(*ids, *table, *scale)?,
            Op::Norm { .. } => self.norm(step),
            Op::Linear { x, weight, bias, .. } => self.linear(*x, *weight, *bias),
            Op::Logits { x, table } => self.linear(*x, *table, None),
            Op::ExpertLinear { .. } => self.expert_linear(step.op)?,
            Op::Rope { x, at, table, pairs } => self.rope(*x, *at, *table, *pairs),
            Op::HeadLinear { .. } => self.head_linear(step.op),
            Op::Regroup { x, .. } => self.value(*x).data.clone(),
            Op::Convolve { x, weight, cache } => self.convolve(*x, *weight, *cache),
            Op::DeltaRule { .. } => self.delta_rule(step.op),
            Op::CacheAppend { k, v, cache } => return Ok(self.append(step, [Some(*k), *v], *cache)),
            Op::Attention { .. } => self.attention(step.op),
            Op::Activation { x, gate, kind } => self.activation(*x, *gate, *kind),
            Op::Binary { a, b, kind } => self.binary(*a, *b, *kind),
            Op::Scale { x, by } => self.value(*x).data.iter().map(|x| x * f64::from(*by)).collect(),
            Op::SoftCap { x, cap } => self.value(*x).data.iter().map(|x| elementwise::soft_cap(*x, *cap)).collect(),
            Op::Slice { x, start, size } => self.slice(*x, *start as usize, *size as usize),
            Op::Concat { a, b } => self.concat(*a, *b),
            Op::Route { .. } => return Ok(self.route(step)),
            Op::WeightedSum { x, weights } => self.weighted_sum(*x, *weights),
            Op::Load { .. }
            | Op::Fill { .. }
            | Op::Elementwise { .. }
            | Op::Reduce { .. }
            | Op::Product { .. }
            | Op::Rearrange { .. }
            | Op::OverBlocks { .. }
            | Op::Store { .. }
            | Op::Select { .. } => {
                return Ok(vec![self.rows(step)?]);
            }
            Op::Choose { logits } => self.value(*logits).rows().map(|row| route::largest(row, 1)[0] as f64).collect(),
        };
        let shape = step.results.first().map(|kind| self.shape(kind)).unwrap_or_default();
        Ok(vec![Tensor { shape, data }])
    }
}
