//! Rewrites that keep what a graph computes.
//!
//! | pass | effect |
//! |---|---|
//! | [`unfuse`] | groups become single ops |
//! | [`clean`] | equal ops become one, dead code goes |
//! | [`normalise`] | scales and unit offsets are folded, identities go; then as [`clean`] |
//! | [`fold_factors`] | factors of what is added to the residual stream, and of logits, go |
//! | [`halve_rotations`] | all rotations pair the halves of a head, by another order of the rows of weights |
//! | [`absorb_latents`] | keys and values that are products of one latent vector of a token are not expanded |
//! | [`repeat_norms`] | each product has a norm of its own |
//! | [`fuse`] | a product, what prepares its operand and what follows on its results become a group |
//!
//! Each pass is exact: the interpreter gives bitwise equal results before and after, but for three:
//! [`fold_factors`] changes what is rounded, and after [`halve_rotations`] and [`absorb_latents`] sums
//! are of the same products in another order.

mod clean;
mod factors;
mod fuse;
mod latents;
mod normalise;
mod norms;
mod rotations;

pub use clean::{Cleaned, RemovalReason, clean};
pub use factors::fold_factors;
pub use fuse::fuse;
pub use latents::absorb_latents;
pub use normalise::normalise;
pub use norms::repeat_norms;
pub use rotations::halve_rotations;

use std::collections::HashMap;

use crate::axis::Type;
use crate::error::GraphErrors;
use crate::graph::{Body, Graph, Node, Parts, Step, ValueId};
use crate::op::Op;

/// A graph under construction that takes ops of another one.
struct Rewritten {
    parts: Parts,
    values: usize,
    /// For each value of the other graph, what stands for it here.
    map: Vec<Option<ValueId>>,
}

impl Rewritten {
    /// Declarations as in `parts`, and no ops.
    fn new(parts: &Parts) -> Rewritten {
        let values = parts.nodes.iter().map(|node| node.results.len()).sum();
        let parts = Parts { nodes: Vec::new(), ..parts.clone() };
        Rewritten { parts, values: 0, map: vec![None; values] }
    }

    /// The replacement of a value of the other graph; the value itself if there is none.
    fn of(&self, id: ValueId) -> ValueId {
        self.map.get(id.index()).copied().flatten().unwrap_or(id)
    }

    /// Assigns values to the results of an op, and replaces its operands.
    fn take(&mut self, op: &Op, first: ValueId, results: usize) -> Op {
        let mut op = op.clone();
        op.map_operands(|id| self.of(id));
        for place in 0..results {
            self.map[first.index() + place] = Some(ValueId::at(self.values));
            self.values += 1;
        }
        op
    }

    /// Adds an op of one result, whose operands are this graph's.
    fn add(&mut self, op: Op, kind: Type) -> ValueId {
        let value = ValueId::at(self.values);
        self.values += 1;
        self.push(Body::Single(op), vec![kind]);
        value
    }

    /// Adds an op of one result that stands for a value of the other graph.
    fn stand_for(&mut self, value: ValueId, op: Op, kind: Type) {
        self.map[value.index()] = Some(self.add(op, kind));
    }

    /// Puts another op, whose operands are the other graph's, and which has one result, in the place
    /// of a step.
    fn replace(&mut self, step: &Step<'_>, op: Op, kind: Type) {
        let op = self.take(&op, step.first, 1);
        self.push(Body::Single(op), vec![kind]);
    }

    fn push(&mut self, body: Body, results: Vec<Type>) {
        self.parts.nodes.push(Node { body, results });
    }

    /// The graph with the other's outputs.
    fn finish(mut self) -> Result<Graph, GraphErrors> {
        let outputs = std::mem::take(&mut self.parts.outputs);
        self.parts.outputs = outputs.into_iter().map(|id| self.of(id)).collect();
        Graph::check(self.parts)
    }
}

/// The place of an equal element in a list, which gets it where there is none.
fn declared<T: PartialEq>(list: &mut Vec<T>, wanted: T) -> usize {
    list.iter().position(|known| *known == wanted).unwrap_or_else(|| {
        list.push(wanted);
        list.len() - 1
    })
}

/// How many ops read each value; that a value is an output counts as one more.
fn readers(graph: &Graph) -> HashMap<ValueId, usize> {
    let mut readers = HashMap::new();
    let operands = graph.steps().flat_map(|step| step.op.operands()).map(|(_, id)| id);
    operands.chain(graph.parts().outputs.iter().copied()).for_each(|id| *readers.entry(id).or_default() += 1);
    readers
}

/// Makes each op of a group a node of its own.
///
/// # Errors
/// None for a valid graph; the result is checked again.
pub fn unfuse(graph: &Graph) -> Result<Graph, GraphErrors> {
    let mut rewritten = Rewritten::new(graph.parts());
    for step in graph.steps() {
        let op = rewritten.take(step.op, step.first, step.results.len());
        rewritten.push(Body::Single(op), step.results.to_vec());
    }
    rewritten.finish()
}
