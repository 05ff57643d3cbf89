//! Folds scales and unit offsets.

use std::collections::HashMap;

use super::{Rewritten, clean, declared, unfuse};
use crate::error::GraphErrors;
use crate::graph::{Body, Graph, Parts, ValueId, Weight, WeightId};
use crate::op::{NormKind, Op};

/// Folds scales and unit offsets where that is exact, and removes identities, repetitions and dead
/// code.
///
/// * `scale(scale(x))` and `scale(embed(..))` become one factor, if one factor of the two is a
///   power of two and the product is exact in f32.
/// * `attention(scale(q), ..)` takes the factor of `q` into its own, if that of `q` is a power of
///   two.
/// * The `1 + w` of a norm becomes the offset of its weight: one form of norm is left.
/// * `scale` by 1 goes; so do ops that no output depends on, and weights and tables that no op
///   reads.
///
/// Groups become single ops.
///
/// ```
/// use tilewright_graph::build::{Builder, Sizes};
/// use tilewright_graph::passes::normalise;
///
/// let sizes = Sizes { hidden: 8, heads: 1, kv_heads: 1, head_dim: 8, inner: 8, vocab: 8 };
/// let builder = Builder::new("scales", sizes, 1e-6);
/// let b = builder.root();
/// let x = b.embed(builder.tokens(), "embed");
/// let y = b.scale(b.scale(x, 3.0), 0.5);
/// let graph = normalise(&builder.finish(&[y])?)?;
/// assert!(graph.to_string().contains("embed scale 1.5(ids v0)"));
/// assert_eq!(graph.parts().nodes.len(), 2);
/// # Ok::<(), tilewright_graph::GraphErrors>(())
/// ```
///
/// # Errors
/// None for a valid graph; the result is checked again.
pub fn normalise(graph: &Graph) -> Result<Graph, GraphErrors> {
    let graph = unfuse(graph)?;
    Ok(clean(&fold(&graph)?)?.graph)
}

/// Whether multiplying by it is exact.
fn is_power_of_two(x: f32) -> bool {
    x.is_normal() && x.to_bits().trailing_zeros() >= f32::MANTISSA_DIGITS - 1
}

/// The product of two factors, if multiplying by it equals multiplying by one after the other.
fn exact_product(a: f32, b: f32) -> Option<f32> {
    let wide = f64::from(a) * f64::from(b);
    let product = wide as f32;
    let is_exact = product.is_normal() && f64::from(product) == wide;
    (is_exact && (is_power_of_two(a) || is_power_of_two(b))).then_some(product)
}

/// The ops with their attributes folded. Replaced ops are kept, without readers.
fn fold(graph: &Graph) -> Result<Graph, GraphErrors> {
    let mut rewritten = Rewritten::new(graph.parts());
    // The ops so far, by their first result in the new graph.
    let mut ops: HashMap<ValueId, Op> = HashMap::new();
    for step in graph.steps() {
        let mut op = step.op.clone();
        op.map_operands(|id| rewritten.of(id));
        if let Op::Scale { x, by } = op
            && let Some(merged) = ops.get(&x).and_then(|inner| scaled(inner, by))
        {
            op = merged;
        }
        if let Op::Scale { x, by } = op
            && by == 1.0
        {
            rewritten.map[step.first.index()] = Some(x);
            continue;
        }
        if let Op::Attention { q, scale, .. } = &mut op
            && let Some(Op::Scale { x, by }) = ops.get(q)
            && is_power_of_two(*by)
            && let Some(product) = exact_product(*by, *scale)
        {
            (*q, *scale) = (*x, product);
        }
        if let Op::Norm { weight, kind, .. } = &mut op
            && *kind == (NormKind::Rms { unit_offset: true })
        {
            *kind = NormKind::Rms { unit_offset: false };
            *weight = weight.map(|weight| with_offset(&mut rewritten.parts, weight));
        }
        let first = ValueId::at(rewritten.values);
        rewritten.take(step.op, step.first, step.results.len());
        ops.insert(first, op.clone());
        rewritten.push(Body::Single(op), step.results.to_vec());
    }
    rewritten.finish()
}

/// An op with its result multiplied, if its own factor can take the multiplication.
fn scaled(op: &Op, by: f32) -> Option<Op> {
    let mut op = op.clone();
    match &mut op {
        Op::Scale { by: factor, .. } | Op::Embed { scale: factor, .. } => *factor = exact_product(*factor, by)?,
        _ => return None,
    }
    Some(op)
}

/// The weight with 1 added to its elements. Sums of small whole offsets are exact.
fn with_offset(parts: &mut Parts, weight: WeightId) -> WeightId {
    let Some(before) = parts.weights.get(weight.index()) else { return weight };
    let wanted = Weight { offset: before.offset + 1.0, ..before.clone() };
    WeightId::at(declared(&mut parts.weights, wanted))
}
