//! Recognises heads that attend to latent vectors, over several nodes of the fused graph.

use std::collections::{HashMap, HashSet};

use tilewright_graph::Graph;
use tilewright_graph::graph::{RopeId, Step, ValueId, Weight, WeightId};
use tilewright_graph::op::{NormKind, Op as GraphOp, RopePairs};

use super::tensors::{NormTensor, ProductRole, StreamInput, WeightProduct};

/// Queries, and the one key, of a layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LatentHeads<'g> {
    pub cache: usize,
    pub input: StreamInput<'g>,
    /// The product for latent vectors of queries, and the norm of these.
    pub compressed: Option<(WeightProduct<'g>, NormTensor<'g>)>,
    /// The product for queries, for latent vectors of keys, and for the key that rotates.
    pub products: [WeightProduct<'g>; 3],
    /// The norm of latent vectors of keys.
    pub norm: NormTensor<'g>,
    pub rope: RopeId,
    pub pairs: RopePairs,
    /// The rows of the expansion by which queries are multiplied.
    pub expansion: &'g Weight,
    /// The queries as they attend.
    pub q: ValueId,
}

/// The product of results of attention, head by head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LatentValues<'g> {
    pub expansion: &'g Weight,
    pub out: ValueId,
}

/// A layer's attention to latent vectors, by the values that its nodes make.
pub(super) struct LatentLayer<'g> {
    pub heads: LatentHeads<'g>,
    pub values: LatentValues<'g>,
    /// The appended keys, and the results of attention.
    pub keys: ValueId,
    pub attended: ValueId,
}

/// The layers of a graph whose heads attend to latent vectors, and the first results of all ops that
/// are theirs.
#[derive(Default)]
pub(super) struct LatentLayers<'g> {
    pub layers: Vec<LatentLayer<'g>>,
    pub taken: HashSet<ValueId>,
}

impl<'g> LatentLayers<'g> {
    /// Finds them.
    pub fn of(graph: &'g Graph) -> LatentLayers<'g> {
        let steps: HashMap<ValueId, Step<'g>> = graph.steps().map(|step| (step.first, step)).collect();
        let mut readers = HashMap::new();
        for (_, operand) in graph.steps().flat_map(|step| step.op.operands()) {
            *readers.entry(operand).or_insert(0) += 1;
        }
        let mut found = LatentLayers::default();
        for step in graph.steps().filter(|step| matches!(step.op, GraphOp::HeadLinear { transposed: false, .. })) {
            let reader = LatentReader { graph, steps: &steps, readers: &readers };
            let mut taken = HashSet::new();
            if let Some(layer) = reader.layer(&step, &mut taken) {
                found.layers.push(layer);
                found.taken.extend(taken);
            }
        }
        found
    }
}

/// Reads the ops of one layer.
struct LatentReader<'r, 'g> {
    graph: &'g Graph,
    steps: &'r HashMap<ValueId, Step<'g>>,
    readers: &'r HashMap<ValueId, usize>,
}

impl<'g> LatentReader<'_, 'g> {
    /// The layer whose results an op multiplies head by head.
    fn layer(&self, last: &Step<'g>, taken: &mut HashSet<ValueId>) -> Option<LatentLayer<'g>> {
        let &GraphOp::HeadLinear { x: attended, weight, each, start: plain, size: value, .. } = last.op else {
            return None;
        };
        let &GraphOp::Attention { q, k, v, .. } = self.made(attended, taken)? else { return None };
        let &GraphOp::CacheAppend { k: key, v: None, cache } = self.made(k, taken)? else { return None };
        let &GraphOp::Slice { x: latent_of, start: 0, size: latent } = self.made(v, taken)? else { return None };
        let &GraphOp::Concat { a: absorbed, b: turned } = self.made(q, taken)? else { return None };
        let &GraphOp::HeadLinear { x: plain_q, weight: by, each: each_q, start: 0, size, transposed: true } =
            self.made(absorbed, taken)?
        else {
            return None;
        };
        let &GraphOp::Slice { x: queries, start: 0, size: plain_size } = self.made(plain_q, taken)? else {
            return None;
        };
        let &GraphOp::Rope { x: unturned, table, pairs, .. } = self.made(turned, taken)? else { return None };
        let &GraphOp::Slice { x: same_queries, start: rotated_from, .. } = self.made(unturned, taken)? else {
            return None;
        };
        let &GraphOp::Concat { a: normed_key, b: turned_key } = self.made(key, taken)? else { return None };
        let &GraphOp::Rope { x: rotated_key, table: key_table, pairs: key_pairs, .. } = self.made(turned_key, taken)?
        else {
            return None;
        };
        let fits = (by, each_q, size, plain_size, rotated_from) == (weight, each, plain, plain, plain)
            && latent_of == k
            && same_queries == queries
            && each == plain + value
            && (table, pairs) == (key_table, key_pairs)
            && self.graph.parts().weights.get(weight.index())?.shape.get(1) == Some(&latent);
        let (compressed_key, norm) = self.norm(normed_key, taken)?;
        let [(of_query, query), (of_latent, latent), (of_rotated, rotated)] = [
            self.product(queries, ProductRole::Query, taken)?,
            self.product(compressed_key, ProductRole::Key, taken)?,
            self.product(rotated_key, ProductRole::Key, taken)?,
        ];
        let mut normed_stream = of_query;
        let mut compressed = None;
        let (inside, inner_norm) = self.norm(of_query, taken)?;
        if let Some((x, product)) = self.product(inside, ProductRole::Query, taken) {
            compressed = Some((product, inner_norm));
            normed_stream = x;
        }
        let input = self.stream(normed_stream, taken)?;
        let is_one = [of_latent, of_rotated].into_iter().all(|x| self.stream(x, taken) == Some(input));
        let expansion = self.weight(weight)?;
        taken.insert(last.first);
        let products = [query, latent, rotated];
        let cache = cache.index();
        let heads = LatentHeads { cache, input, compressed, products, norm, rope: table, pairs, expansion, q };
        // Nothing else reads what has no place in memory.
        let alone = |id: &ValueId| match self.steps.get(id).map(|step| step.op) {
            Some(GraphOp::Norm { .. }) | None => true,
            Some(_) if *id == queries || *id == k => self.readers.get(id) == Some(&2),
            Some(_) => *id == last.first || self.readers.get(id) == Some(&1),
        };
        let values = LatentValues { expansion, out: last.first };
        (fits && is_one && taken.iter().all(alone)).then_some(LatentLayer { heads, values, keys: k, attended })
    }

    /// The op that makes a value, which is the layer's.
    fn made(&self, id: ValueId, taken: &mut HashSet<ValueId>) -> Option<&'g GraphOp> {
        let op = self.steps.get(&id)?.op;
        taken.insert(id);
        Some(op)
    }

    /// The operand of an RMS norm, and its tensor.
    fn norm(&self, id: ValueId, taken: &mut HashSet<ValueId>) -> Option<(ValueId, NormTensor<'g>)> {
        let &GraphOp::Norm { x, weight: Some(weight), bias: None, kind, eps, .. } = self.steps.get(&id)?.op else {
            return None;
        };
        taken.insert(id);
        let weight = self.tensor(weight)?;
        (kind == NormKind::Rms { unit_offset: false }).then_some((x, NormTensor { weight, eps, layer: None }))
    }

    /// The norm of the residual stream.
    fn stream(&self, id: ValueId, taken: &mut HashSet<ValueId>) -> Option<StreamInput<'g>> {
        let (x, norm) = self.norm(id, taken)?;
        Some(StreamInput { x, norm: Some(norm) })
    }

    /// The operand of a product, and its tensors.
    fn product(
        &self,
        id: ValueId,
        role: ProductRole,
        taken: &mut HashSet<ValueId>,
    ) -> Option<(ValueId, WeightProduct<'g>)> {
        let &GraphOp::Linear { x, weight, bias, .. } = self.steps.get(&id)?.op else { return None };
        let weight = self.weight(weight)?;
        let bias = match bias {
            Some(bias) => Some(self.weight(bias)?),
            None => None,
        };
        taken.insert(id);
        Some((x, WeightProduct { role, weight, bias, experts: None }))
    }

    fn weight(&self, id: WeightId) -> Option<&'g Weight> {
        self.tensor(id).filter(|weight| weight.is_plain())
    }

    /// A weight of consecutive rows of one tensor, in their order.
    fn tensor(&self, id: WeightId) -> Option<&'g Weight> {
        let weight = self.graph.parts().weights.get(id.index())?;
        let is_run = weight.rows.is_none_or(|part| part.axis == 0 && part.step == 1);
        (is_run && weight.experts.is_none() && weight.order.is_none()).then_some(weight)
    }
}

impl LatentHeads<'_> {
    /// The products with weights of their own, and the expansion.
    pub fn weights(&self) -> (Vec<WeightProduct<'_>>, &Weight) {
        (self.compressed.iter().map(|(product, _)| *product).chain(self.products).collect(), self.expansion)
    }
}
