//! Repeats norms, so that each product has its own.

use std::collections::HashMap;

use super::{Rewritten, unfuse};
use crate::error::GraphErrors;
use crate::graph::{Body, Graph, Step, ValueId};
use crate::op::Op;

/// Repeats a norm that several products read, so that each can take its own as a prologue: the
/// router and the experts of a mixture, or the attention and the MLP of a parallel block.
///
/// Products of one kind whose results meet share one norm, and [`fuse`](super::fuse) puts them into
/// one group: q, k and v, or gate and up. A norm that another op
/// reads as well stays as it is. Groups become single ops.
///
/// ```
/// use tilewright_graph::{models, op::Op, passes::repeat_norms};
/// let config = serde_json::json!({
///     "model_type": "mixtral", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
///     "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64,
///     "rms_norm_eps": 1e-5, "num_local_experts": 4, "num_experts_per_tok": 2,
/// });
/// let norms = |graph: &tilewright_graph::Graph| graph.steps().filter(|step| matches!(step.op, Op::Norm { .. })).count();
/// let graph = models::graph(&config)?;
/// // Of the block's two norms the second is for the router, and for gate and up.
/// assert_eq!([norms(&graph), norms(&repeat_norms(&graph)?)], [3, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// None for a valid graph; the result is checked again.
pub fn repeat_norms(graph: &Graph) -> Result<Graph, GraphErrors> {
    let graph = unfuse(graph)?;
    let products = ProductGroups::of(&graph);
    let shared = shared_norms(&graph, &products);
    let mut rewritten = Rewritten::new(graph.parts());
    let mut repeated: HashMap<(ValueId, ProductKey), ValueId> = HashMap::new();
    for step in graph.steps() {
        if shared.contains_key(&step.first) {
            continue;
        }
        if let Some((norm, key)) = products.group(&step).and_then(|(x, key)| Some((shared.get(&x)?, key))) {
            let of_group = *repeated.entry((norm.first, key.clone())).or_insert_with(|| {
                let op = rewritten.take(norm.op, norm.first, 1);
                rewritten.push(Body::Single(op), norm.results.to_vec());
                rewritten.of(norm.first)
            });
            rewritten.map[norm.first.index()] = Some(of_group);
        }
        let op = rewritten.take(step.op, step.first, step.results.len());
        rewritten.push(Body::Single(op), step.results.to_vec());
    }
    rewritten.finish()
}

/// What products of one group have in common: their kind, their operands, and the first of them,
/// whose result meets theirs.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ProductKey {
    name: &'static str,
    operands: Vec<ValueId>,
    first: ValueId,
}

/// The products of a graph by their groups.
struct ProductGroups(HashMap<ValueId, ProductKey>);

impl ProductGroups {
    fn of(graph: &Graph) -> ProductGroups {
        let steps: Vec<Step<'_>> = graph.steps().collect();
        let reached = reached(&steps);
        let mut first: HashMap<usize, ValueId> = HashMap::new();
        let mut groups: HashMap<ValueId, ProductKey> = HashMap::new();
        for step in steps.iter().filter(|step| step.op.is_product()) {
            let operands: Vec<ValueId> = step.op.operands().into_iter().map(|(_, id)| id).collect();
            let own = ProductKey { name: step.op.name(), operands, first: step.first };
            let places = reached.get(&step.first).map_or(&[][..], Vec::as_slice);
            // A group of the same operands whose results this one's meets.
            let mut met = places.iter().filter_map(|place| groups.get(first.get(place)?));
            let key = met.find(|key| (key.name, &key.operands) == (own.name, &own.operands)).cloned().unwrap_or(own);
            for place in places {
                first.entry(*place).or_insert(step.first);
            }
            groups.insert(step.first, key);
        }
        ProductGroups(groups)
    }

    /// The activations of a product, and its group; `None` for any other op.
    fn group(&self, step: &Step<'_>) -> Option<(ValueId, &ProductKey)> {
        let key = self.0.get(&step.first)?;
        Some((*key.operands.first()?, key))
    }
}

/// The places of the ops to which each product's result comes, up to and with the next product, sum
/// or choice.
fn reached(steps: &[Step<'_>]) -> HashMap<ValueId, Vec<usize>> {
    // The products whose results each value is made of.
    let mut made_of: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
    let mut reached: HashMap<ValueId, Vec<usize>> = HashMap::new();
    for (place, step) in steps.iter().enumerate() {
        let operands = step.op.operands().into_iter().filter_map(|(_, id)| made_of.get(&id));
        let mut products: Vec<ValueId> = operands.flatten().copied().collect();
        products.sort_unstable();
        products.dedup();
        products.iter().for_each(|product| reached.entry(*product).or_default().push(place));
        match step.op {
            op if op.is_product() => products = vec![step.first],
            Op::Route { .. } | Op::Binary { .. } => products.clear(),
            _ => {}
        }
        for result in 0..step.results.len() {
            made_of.insert(ValueId::at(step.first.index() + result), products.clone());
        }
    }
    reached
}

/// The norms that products of several groups read, and nothing else.
fn shared_norms<'g>(graph: &'g Graph, products: &ProductGroups) -> HashMap<ValueId, Step<'g>> {
    let mut norms: HashMap<ValueId, Step<'_>> =
        graph.steps().filter(|step| matches!(step.op, Op::Norm { .. })).map(|step| (step.first, step)).collect();
    graph.parts().outputs.iter().for_each(|output| {
        norms.remove(output);
    });
    let mut groups: HashMap<ValueId, Vec<ProductKey>> = HashMap::new();
    for step in graph.steps() {
        let product = products.group(&step);
        for (_, operand) in step.op.operands() {
            match product {
                Some((x, key)) if x == operand => {
                    let known = groups.entry(operand).or_default();
                    if !known.contains(key) {
                        known.push(key.clone());
                    }
                }
                Some(_) | None => {
                    norms.remove(&operand);
                }
            }
        }
    }
    norms.retain(|norm, _| groups.get(norm).is_some_and(|groups| groups.len() > 1));
    norms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Builder, Sizes};
    use crate::passes::fuse;

    const SIZES: Sizes = Sizes { hidden: 8, heads: 1, kv_heads: 1, head_dim: 8, inner: 8, vocab: 8 };

    fn norms(graph: &Graph) -> usize {
        graph.steps().filter(|step| matches!(step.op, Op::Norm { .. })).count()
    }

    #[test]
    fn a_norm_that_another_op_reads_stays() {
        let builder = Builder::new("added", SIZES, 1e-6);
        let b = builder.root();
        let x = b.rms_norm(b.embed(builder.tokens(), "embed"), "norm");
        let x = crate::build::Value::from(x);
        let sum = b.add(b.linear(x, "a"), x);
        let graph = builder.finish(&[sum, b.linear(sum, "b").into()]).expect("a graph");
        assert_eq!(repeat_norms(&graph).expect("a graph"), unfuse(&graph).expect("a graph"));
    }

    #[test]
    fn products_of_one_group_share_a_norm() {
        let builder = Builder::new("two", SIZES, 1e-6);
        let b = builder.root();
        let x = crate::build::Value::from(b.rms_norm(b.embed(builder.tokens(), "embed"), "norm"));
        let sum = b.add(b.linear(x, "a"), b.linear(x, "b"));
        let graph = builder.finish(&[sum]).expect("a graph");
        let repeated = repeat_norms(&graph).expect("a graph");
        assert_eq!(norms(&repeated), 1);
        assert_eq!(fuse(&repeated).expect("a graph"), fuse(&graph).expect("a graph"));
    }
}
