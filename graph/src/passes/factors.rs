//! Folds the factors of what a block adds, and of logits.

use std::collections::{HashMap, HashSet};

use super::{Rewritten, clean, declared, readers, unfuse};
use crate::error::GraphErrors;
use crate::graph::{Body, Graph, Parts, Step, ValueId, Weight, WeightId};
use crate::op::{BinaryKind, NormKind, Op};

/// Folds factors that a product cannot take.
///
/// * Where every addition to the residual stream multiplies what it adds by one factor `r`, the
///   stream is kept divided by `r`: the embedding is multiplied by `1 / r`, and an RMS norm of the
///   stream adds `eps / r²`. With `x' = x / r`, `x' + f(norm(x))` is `(x + r·f(norm(x))) / r`, and
///   `norm(x)` is the norm of `x'` with that epsilon.
/// * A factor of logits multiplies the weight of the norm that they are made from.
///
/// Results are what they were but for rounding. Groups become single ops.
///
/// ```
/// use tilewright_graph::{models, op::Op, passes::fold_factors};
/// let config = serde_json::json!({
///     "model_type": "granite", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
///     "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
///     "embedding_multiplier": 2.0, "residual_multiplier": 0.25, "logits_scaling": 16.0,
/// });
/// let graph = fold_factors(&models::graph(&config)?)?;
/// assert!(!graph.steps().any(|step| matches!(step.op, Op::Scale { .. })));
/// assert!(graph.to_string().contains("embed scale 8"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// None for a valid graph; the result is checked again.
pub fn fold_factors(graph: &Graph) -> Result<Graph, GraphErrors> {
    let graph = unfuse(graph)?;
    let graph = match ResidualStream::of(&graph) {
        Some(stream) => stream.rewrite(&graph)?,
        None => graph,
    };
    let graph = fold_logits(&graph)?;
    Ok(clean(&graph)?.graph)
}

/// A residual stream to which all that is added is multiplied by one factor.
struct ResidualStream {
    factor: f32,
    /// Its values, from the embedding on.
    values: HashSet<ValueId>,
    /// What is multiplied, by the values that are added.
    added: HashMap<ValueId, ValueId>,
}

impl ResidualStream {
    /// The stream of a graph; `None` where there is no factor, or something else reads the stream.
    fn of(graph: &Graph) -> Option<ResidualStream> {
        let steps: Vec<Step<'_>> = graph.steps().collect();
        let made_by: HashMap<ValueId, &Op> = steps.iter().map(|step| (step.first, step.op)).collect();
        let embeds: Vec<ValueId> =
            steps.iter().filter(|step| matches!(step.op, Op::Embed { .. })).map(|step| step.first).collect();
        let [embed] = embeds[..] else { return None };
        let mut stream = ResidualStream { factor: 1.0, values: HashSet::from([embed]), added: HashMap::new() };
        let mut factors = Vec::new();
        for step in &steps {
            let Op::Binary { a, b, kind: BinaryKind::Add } = *step.op else { continue };
            let (residual, other) = if stream.values.contains(&a) { (a, b) } else { (b, a) };
            if !stream.values.contains(&residual) {
                continue;
            }
            let &Op::Scale { x, by } = *made_by.get(&other)? else { return None };
            factors.push(by);
            stream.added.insert(other, x);
            stream.values.insert(step.first);
        }
        stream.factor = *factors.first()?;
        let is_one = factors.iter().all(|factor| *factor == stream.factor) && stream.factor.is_normal();
        let reads = |step: &Step<'_>| match *step.op {
            Op::Norm { kind: NormKind::Rms { .. }, .. } => true,
            Op::Binary { .. } => stream.values.contains(&step.first),
            _ => step.op.operands().iter().all(|(_, id)| !stream.values.contains(id)),
        };
        let is_output = graph.parts().outputs.iter().any(|id| stream.values.contains(id));
        (is_one && !is_output && steps.iter().all(reads)).then_some(stream)
    }

    fn rewrite(&self, graph: &Graph) -> Result<Graph, GraphErrors> {
        let mut rewritten = Rewritten::new(graph.parts());
        let by = f64::from(self.factor);
        for step in graph.steps() {
            let mut changed = step.op.clone();
            match &mut changed {
                Op::Embed { scale, .. } => *scale = (f64::from(*scale) / by) as f32,
                Op::Norm { x, eps, .. } if self.values.contains(x) => *eps = (f64::from(*eps) / (by * by)) as f32,
                Op::Binary { a, b, .. } if self.values.contains(&step.first) => {
                    for operand in [a, b] {
                        *operand = self.added.get(operand).copied().unwrap_or(*operand);
                    }
                }
                _ => {}
            }
            let op = rewritten.take(&changed, step.first, step.results.len());
            rewritten.push(Body::Single(op), step.results.to_vec());
        }
        rewritten.finish()
    }
}

/// Multiplies the weight of the norm before the output projection by the factor of logits.
fn fold_logits(graph: &Graph) -> Result<Graph, GraphErrors> {
    let steps: Vec<Step<'_>> = graph.steps().collect();
    let made_by: HashMap<ValueId, &Step<'_>> = steps.iter().map(|step| (step.first, step)).collect();
    let readers = readers(graph);
    let folded = steps.iter().find_map(|scale| {
        let &Op::Scale { x: logits, by } = scale.op else { return None };
        let &Op::Logits { x: normed, .. } = made_by.get(&logits)?.op else { return None };
        let Op::Norm { weight: Some(_), bias: None, .. } = made_by.get(&normed)?.op else { return None };
        let alone = [logits, normed].iter().all(|id| readers.get(id) == Some(&1));
        alone.then_some((scale.first, logits, normed, by))
    });
    let Some((scale, logits, normed, by)) = folded else { return Ok(graph.clone()) };
    let mut rewritten = Rewritten::new(graph.parts());
    for step in &steps {
        if step.first == scale {
            rewritten.map[scale.index()] = Some(rewritten.of(logits));
            continue;
        }
        let mut op = rewritten.take(step.op, step.first, step.results.len());
        if let (true, Op::Norm { weight: Some(weight), .. }) = (step.first == normed, &mut op) {
            *weight = multiplied(&mut rewritten.parts, *weight, by);
        }
        rewritten.push(Body::Single(op), step.results.to_vec());
    }
    rewritten.finish()
}

/// The weight with its elements multiplied.
fn multiplied(parts: &mut Parts, weight: WeightId, by: f32) -> WeightId {
    let Some(before) = parts.weights.get(weight.index()) else { return weight };
    let wanted = Weight { factor: before.factor * by, ..before.clone() };
    WeightId::at(declared(&mut parts.weights, wanted))
}
