//! Equal ops become one, and ops that compute nothing that is asked for go.

use std::collections::HashMap;

use super::{Rewritten, unfuse};
use crate::error::GraphErrors;
use crate::graph::{Body, Graph, RopeId, Step, ValueId, WeightId};
use crate::op::Op;

/// Why an op is not in a graph any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    /// No output depends on it.
    Dead,
    /// An op before it gives the same results.
    Same,
}

/// A graph without dead and repeated ops.
#[derive(Clone, Debug)]
pub struct Cleaned {
    /// The graph.
    pub graph: Graph,
    /// The places of the ops that are not in it.
    pub removed: Vec<(usize, RemovalReason)>,
    /// The replacement of each value of the previous graph; `None` for dead ones.
    pub values: Vec<Option<ValueId>>,
}

/// Merges equal ops on equal operands, and removes ops that no output depends on, with the weights
/// and tables that no op reads then.
///
/// Groups become single ops. Ops that store are not merged.
///
/// ```
/// use tilewright_graph::build::{Builder, Sizes};
/// use tilewright_graph::passes::{RemovalReason, clean};
///
/// let sizes = Sizes { hidden: 8, heads: 1, kv_heads: 1, head_dim: 8, inner: 8, vocab: 8 };
/// let builder = Builder::new("twice", sizes, 1e-6);
/// let b = builder.root();
/// let x = b.embed(builder.tokens(), "embed");
/// let y = b.add(b.scale(x, 3.0), b.scale(x, 3.0));
/// let cleaned = clean(&builder.finish(&[y])?)?;
/// assert_eq!(cleaned.removed, [(3, RemovalReason::Same)]);
/// assert_eq!(cleaned.graph.parts().nodes.len(), 4);
/// # Ok::<(), tilewright_graph::GraphErrors>(())
/// ```
///
/// # Errors
/// None for a valid graph; the result is checked again.
pub fn clean(graph: &Graph) -> Result<Cleaned, GraphErrors> {
    let graph = unfuse(graph)?;
    let steps: Vec<Step<'_>> = graph.steps().collect();
    let first = first_of_equals(&steps);
    let live = live(&graph, &steps, &first);
    let mut rewritten = Rewritten::new(graph.parts());
    (rewritten.parts.weights, rewritten.parts.ropes) = (Vec::new(), Vec::new());
    let mut weights: HashMap<WeightId, WeightId> = HashMap::new();
    let mut ropes: HashMap<RopeId, RopeId> = HashMap::new();
    let mut removed = Vec::new();
    for (place, step) in steps.iter().enumerate() {
        let same = first[place];
        if same != place || !live[place] {
            for result in 0..step.results.len() {
                let stands = rewritten.map[steps[same].first.index() + result];
                rewritten.map[step.first.index() + result] = stands;
            }
            removed.push((place, if live[same] { RemovalReason::Same } else { RemovalReason::Dead }));
            continue;
        }
        let mut op = rewritten.take(step.op, step.first, step.results.len());
        let parts = &mut rewritten.parts;
        op.map_weights(|id| {
            *weights.entry(id).or_insert_with(|| {
                parts.weights.extend(graph.parts().weights.get(id.index()).cloned());
                WeightId::at(parts.weights.len() - 1)
            })
        });
        if let Op::Rope { table, .. } = &mut op {
            *table = *ropes.entry(*table).or_insert_with(|| {
                parts.ropes.extend(graph.parts().ropes.get(table.index()).cloned());
                RopeId::at(parts.ropes.len() - 1)
            });
        }
        rewritten.push(Body::Single(op), step.results.to_vec());
    }
    let values = rewritten.map.clone();
    Ok(Cleaned { graph: rewritten.finish()?, removed, values })
}

/// For each op, the place of the first op with the same results.
fn first_of_equals(steps: &[Step<'_>]) -> Vec<usize> {
    // The ops that are unlike all before, by their names.
    let mut seen: HashMap<&str, Vec<(Op, usize)>> = HashMap::new();
    let values = steps.iter().map(|step| step.results.len()).sum();
    let mut value: Vec<ValueId> = (0..values).map(ValueId::at).collect();
    let mut first = Vec::with_capacity(steps.len());
    for (place, step) in steps.iter().enumerate() {
        let mut op = step.op.clone();
        op.map_operands(|id| value[id.index()]);
        if op.is_commutative() {
            let mut operands: Vec<ValueId> = op.operands().into_iter().map(|(_, id)| id).collect();
            operands.sort_unstable();
            let mut operands = operands.into_iter();
            op.map_operands(|id| operands.next().unwrap_or(id));
        }
        let known = seen.entry(step.op.name()).or_default();
        let same = known.iter().find(|(other, _)| !op.is_effect() && *other == op).map(|(_, place)| *place);
        if let Some(same) = same {
            (0..step.results.len()).for_each(|result| {
                value[step.first.index() + result] = ValueId::at(steps[same].first.index() + result);
            });
        } else {
            known.push((op, place));
        }
        first.push(same.unwrap_or(place));
    }
    first
}

/// The ops that outputs depend on; equal ops are represented by the first.
fn live(graph: &Graph, steps: &[Step<'_>], first: &[usize]) -> Vec<bool> {
    let home: Vec<usize> = first.iter().zip(steps).flat_map(|(op, step)| vec![*op; step.results.len()]).collect();
    let mut live = vec![false; steps.len()];
    graph.parts().outputs.iter().for_each(|id| live[home[id.index()]] = true);
    for place in (0..steps.len()).rev() {
        if live[place] {
            steps[place].op.operands().into_iter().for_each(|(_, id)| live[home[id.index()]] = true);
        }
    }
    live
}
