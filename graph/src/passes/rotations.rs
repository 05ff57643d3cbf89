//! Gives every query and key one form of rotation.

use std::collections::{HashMap, HashSet};

use super::{Rewritten, clean, declared, readers, unfuse};
use crate::axis::{Axis, Type};
use crate::error::GraphErrors;
use crate::graph::{Body, Graph, HeadOrder, Parts, RopeId, RopeTable, Step, ValueId, Weight, WeightId};
use crate::op::{Op, RopePairs};

/// Makes every rotation one of each dimension of a head's first half with one of its second half,
/// and adds a rotation of frequency 0 where queries and keys have none.
///
/// A rotation of neighbours, or of a part of the dimensions, becomes one of halves by another order
/// of the rows of the products that make queries and keys ([`HeadOrder`]), of their biases, and of
/// the norms of single heads between them. Pairs that do not rotate get the frequency 0. Scores are
/// sums of the same products in another order. A rotation whose operand comes from elsewhere, or is
/// read elsewhere, stays as it is, and so does one of a part of a query or key: its other part has an
/// order of its own.
///
/// Groups become single ops.
///
/// ```
/// use tilewright_graph::{models, op::{Op, RopePairs}, passes::halve_rotations};
/// let config = serde_json::json!({
///     "model_type": "glm4", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "head_dim": 8,
///     "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
/// });
/// let graph = halve_rotations(&models::graph(&config)?)?;
/// assert!(graph.to_string().contains("q_proj.weight by neighbours of 4 in heads of 8"));
/// assert_eq!(graph.parts().ropes[0].frequencies[2..], [0.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// None for a valid graph; the result is checked again.
pub fn halve_rotations(graph: &Graph) -> Result<Graph, GraphErrors> {
    let graph = unfuse(graph)?;
    let rotations = Rotations::of(&graph);
    Ok(clean(&rotations.rewrite(&graph)?)?.graph)
}

/// What changes in a graph, by the first results of ops.
#[derive(Default)]
struct Rotations {
    /// Products and norms whose rows are reordered.
    ordered: HashMap<ValueId, HeadOrder>,
    /// Rotations that become ones of halves.
    halved: HashMap<ValueId, HalvedRotation>,
    /// Queries and keys that get a rotation, by the keys of the cache that these are appended to.
    added: HashMap<ValueId, Vec<StillRotation>>,
}

/// A rotation that becomes one of halves.
struct HalvedRotation {
    head_dim: usize,
    /// The products and norms whose rows are reordered.
    chain: Vec<ValueId>,
}

/// A rotation that leaves its operand as it is.
struct StillRotation {
    x: ValueId,
    /// The positions of rows.
    at: ValueId,
    head_dim: usize,
    kind: Type,
}

impl StillRotation {
    /// Adds the rotation; what reads its operand from here on reads it rotated.
    fn push(&self, rewritten: &mut Rewritten) {
        let value = self.x;
        let table = RopeTable { frequencies: vec![0.0; self.head_dim / 2], scale: 1.0 };
        let table = RopeId::at(declared(&mut rewritten.parts.ropes, table));
        let rope = Op::Rope { x: rewritten.of(value), at: rewritten.of(self.at), table, pairs: RopePairs::Halves };
        rewritten.map[value.index()] = Some(ValueId::at(rewritten.values));
        rewritten.values += 1;
        rewritten.push(Body::Single(rope), vec![self.kind.clone()]);
    }
}

impl Rotations {
    fn of(graph: &Graph) -> Rotations {
        let made_by: HashMap<ValueId, Step<'_>> = graph.steps().map(|step| (step.first, step)).collect();
        let readers = readers(graph);
        let mut rotations = Rotations::default();
        let whole: HashSet<ValueId> = graph.steps().filter_map(|step| whole(step.op)).collect();
        for step in graph.steps() {
            match *step.op {
                Op::Rope { x, table, pairs, .. } if whole.contains(&step.first) => {
                    let Some(head_dim) = head_dim(&step) else { continue };
                    let rotated = graph.parts().ropes[table.index()].rotated() as u64;
                    let order = HeadOrder { head_dim: head_dim as u64, rotated, pairs };
                    let chain = chain(&made_by, &readers, x).filter(|_| head_dim.is_multiple_of(2));
                    let Some(chain) = chain.filter(|_| !order.is_identity()) else { continue };
                    rotations.ordered.extend(chain.iter().map(|id| (*id, order)));
                    rotations.halved.insert(step.first, HalvedRotation { head_dim, chain });
                }
                Op::Attention { q, k, at, .. } => {
                    let append = made_by.get(&k).filter(|append| append.first == k);
                    let Some(Op::CacheAppend { k: key, .. }) = append.map(|append| append.op) else { continue };
                    let still = [q, *key].into_iter().filter_map(|x| {
                        let made =
                            made_by.get(&x).filter(|made| !matches!(made.op, Op::Rope { .. } | Op::Concat { .. }))?;
                        let head_dim = head_dim(made).filter(|head_dim| head_dim.is_multiple_of(2))?;
                        Some(StillRotation { x, at, head_dim, kind: made.results.first()?.clone() })
                    });
                    rotations.added.insert(k, still.collect());
                }
                _ => {}
            }
        }
        rotations.keep_pairs(graph, &made_by);
        rotations
    }

    /// Leaves queries and keys as they are of which only the one or the other could be reordered.
    fn keep_pairs(&mut self, graph: &Graph, made_by: &HashMap<ValueId, Step<'_>>) {
        let is_still = |x: &ValueId| match made_by.get(x).map(|step| (step.op, head_dim(step))) {
            Some((&Op::Rope { table, pairs, .. }, Some(head_dim))) => {
                let rotated = graph.parts().ropes[table.index()].rotated() as u64;
                HeadOrder { head_dim: head_dim as u64, rotated, pairs }.is_identity()
            }
            _ => true,
        };
        for step in graph.steps() {
            let Op::Attention { q, k, .. } = *step.op else { continue };
            let Some(&Op::CacheAppend { k: key, .. }) = made_by.get(&k).map(|append| append.op) else { continue };
            let both = [q, key];
            if both.iter().all(|x| self.halved.contains_key(x) || is_still(x)) {
                continue;
            }
            for halved in both.iter().filter_map(|x| self.halved.remove(x)) {
                halved.chain.iter().for_each(|id| _ = self.ordered.remove(id));
            }
        }
    }

    fn rewrite(&self, graph: &Graph) -> Result<Graph, GraphErrors> {
        let mut rewritten = Rewritten::new(graph.parts());
        for step in graph.steps() {
            for still in self.added.get(&step.first).into_iter().flatten() {
                still.push(&mut rewritten);
            }
            let mut op = rewritten.take(step.op, step.first, step.results.len());
            if let Some(order) = self.ordered.get(&step.first) {
                reorder(&mut rewritten.parts, &mut op, *order);
            }
            if let (Some(halved), Op::Rope { table, pairs, .. }) = (self.halved.get(&step.first), &mut op) {
                let mut padded = rewritten.parts.ropes[table.index()].clone();
                padded.frequencies.resize(halved.head_dim / 2, 0.0);
                *table = RopeId::at(declared(&mut rewritten.parts.ropes, padded));
                *pairs = RopePairs::Halves;
            }
            rewritten.push(Body::Single(op), step.results.to_vec());
        }
        rewritten.finish()
    }
}

/// The value that an op takes as whole queries or keys.
const fn whole(op: &Op) -> Option<ValueId> {
    match op {
        Op::Attention { q: x, .. } | Op::CacheAppend { k: x, .. } => Some(*x),
        _ => None,
    }
}

/// The last extent of an op's first result, where that is of a head.
fn head_dim(step: &Step<'_>) -> Option<usize> {
    let last = step.results.first()?.shape.0.last()?;
    (last.axis == Axis::HeadDim).then(|| usize::try_from(last.size()?).ok()).flatten()
}

/// The product that makes a value, and the norm of single heads that may follow on it, if nothing
/// else reads them.
fn chain(
    made_by: &HashMap<ValueId, Step<'_>>,
    readers: &HashMap<ValueId, usize>,
    value: ValueId,
) -> Option<Vec<ValueId>> {
    let alone = |id: ValueId| readers.get(&id) == Some(&1);
    match made_by.get(&value)?.op {
        Op::Linear { .. } if alone(value) => Some(vec![value]),
        Op::Norm { x, over, .. } if alone(value) && over.as_slice() == [Axis::HeadDim] => {
            let mut chain = chain(made_by, readers, *x)?;
            chain.push(value);
            Some(chain)
        }
        _ => None,
    }
}

/// Takes the rows of an op's weights in another order.
fn reorder(parts: &mut Parts, op: &mut Op, order: HeadOrder) {
    let (weight, bias) = match op {
        Op::Linear { weight, bias, .. } => (Some(weight), bias.as_mut()),
        Op::Norm { weight, bias, .. } => (weight.as_mut(), bias.as_mut()),
        _ => return,
    };
    for id in [weight, bias].into_iter().flatten() {
        let Some(before) = parts.weights.get(id.index()) else { continue };
        let wanted = Weight { order: Some(order), ..before.clone() };
        *id = WeightId::at(declared(&mut parts.weights, wanted));
    }
}
