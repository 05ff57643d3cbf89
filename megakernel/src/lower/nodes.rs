//! Recognises the nodes of a fused graph: each group of ops that tasks run becomes one kind of
//! level.
//!
//! | node | becomes |
//! |---|---|
//! | embedding | [`LoweredNode::Embed`] |
//! | (norm,) q, k and v, (norms of heads,) rotation, append | [`LoweredNode::Heads`] |
//! | attention | [`LoweredNode::Attention`] |
//! | latent vectors of queries and keys, queries of these, absorbed by head, rotations, append | [`LoweredNode::Latents`] |
//! | product, added to the residual stream; or product, norm of its result, addition; or product of chosen experts, weighted sum, addition | [`LoweredNode::Added`] |
//! | (norm,) gate and up (of chosen experts) or one product, activation | [`LoweredNode::Gated`] |
//! | norm, logits of experts, choice of experts (of one: the sigmoid of its logit), (factor) | [`LoweredNode::Routed`] |
//! | norm, logits, (soft cap,) choice | [`LoweredNode::Choice`] |
//!
//! Every other node is an error that names it.

use std::collections::{HashMap, HashSet};

use tilewright_graph::Graph;
use tilewright_graph::graph::{Body, RopeId, Step, ValueId, Weight, WeightId};
use tilewright_graph::op::{self, ActivationKind, BinaryKind, NormKind, Op, RopePairs};
use tilewright_kernels::activation::{Activation, ClampedSwiglu};
use tilewright_kernels::attention::ScoreModifier;

use super::latent_nodes::{LatentHeads, LatentLayers, LatentValues};
use super::options::LowerError;
pub(super) use super::tensors::{LayerTensor, NormTensor, ProductRole, StreamInput, WeightProduct};
use crate::ops::RouteKind;

/// A node of a graph, as the lowering runs it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LoweredNode<'g> {
    Embed { table: &'g Weight, scale: f32, out: ValueId },
    Heads(LayerHeads<'g>),
    Latents(LatentHeads<'g>),
    Attention(LayerAttention<'g>),
    Added(Added<'g>),
    Gated(Gated<'g>),
    Routed(Routed<'g>),
    Choice(LoweredChoice<'g>),
}

impl<'g> LoweredNode<'g> {
    /// The value of the residual stream that it reads.
    pub fn stream(&self) -> Option<ValueId> {
        match self {
            LoweredNode::Heads(heads) => Some(heads.input.x),
            LoweredNode::Latents(heads) => Some(heads.input.x),
            LoweredNode::Gated(gated) => Some(gated.input.x),
            LoweredNode::Routed(routed) => Some(routed.input.x),
            LoweredNode::Choice(choice) => Some(choice.input.x),
            LoweredNode::Added(added) => Some(added.residual),
            LoweredNode::Embed { .. } | LoweredNode::Attention(_) => None,
        }
    }

    /// The layer norm of the residual stream that it reads.
    pub fn layer_norm(&self) -> Option<(ValueId, &NormTensor<'g>)> {
        let input = match self {
            LoweredNode::Heads(heads) => &heads.input,
            LoweredNode::Latents(heads) => &heads.input,
            LoweredNode::Gated(gated) => &gated.input,
            LoweredNode::Routed(routed) => &routed.input,
            LoweredNode::Choice(choice) => &choice.input,
            LoweredNode::Added(_) | LoweredNode::Embed { .. } | LoweredNode::Attention(_) => return None,
        };
        input.layer_norm()
    }

    /// Whether a layer, or the choice after the last one, begins with it.
    pub fn begins_layer(&self) -> bool {
        matches!(self, LoweredNode::Heads(_) | LoweredNode::Latents(_) | LoweredNode::Choice(_))
    }

    /// The cache of its layer, if keys are appended.
    pub fn cache(&self) -> Option<usize> {
        match self {
            LoweredNode::Heads(heads) => Some(heads.cache),
            LoweredNode::Latents(heads) => Some(heads.cache),
            LoweredNode::Embed { .. } | LoweredNode::Attention(_) | LoweredNode::Added(_) => None,
            LoweredNode::Gated(_) | LoweredNode::Routed(_) | LoweredNode::Choice(_) => None,
        }
    }

    /// The width of the MLP that it is the first half of; none of experts.
    pub fn mlp_width(&self) -> Option<usize> {
        let LoweredNode::Gated(gated) = self else { return None };
        gated.gate.experts.is_none().then(|| gated.width())
    }

    /// Whether its result is not added as it is made.
    pub fn is_summed_apart(&self) -> bool {
        matches!(self, LoweredNode::Added(Added { post_norm: Some(_), .. }))
    }
}

/// Attention of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LayerAttention<'g> {
    pub cache: usize,
    pub q: ValueId,
    pub scale: f32,
    pub modifier: ScoreModifier,
    /// The score of each head that has no value.
    pub sinks: Option<&'g Weight>,
    pub out: ValueId,
    /// The product of results, where heads attend to latent vectors.
    pub latent: Option<LatentValues<'g>>,
}

/// Logits, and the choice by them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LoweredChoice<'g> {
    pub input: StreamInput<'g>,
    /// The output projection.
    pub table: &'g Weight,
    pub soft_cap: Option<f32>,
}

/// Queries, keys and values of a layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LayerHeads<'g> {
    pub cache: usize,
    pub input: StreamInput<'g>,
    /// The products for queries, keys and values.
    pub products: [WeightProduct<'g>; 3],
    /// The norms of queries and keys before the rotation.
    pub head_norms: Option<HeadNorms<'g>>,
    /// The frequencies of the rotation.
    pub rope: RopeId,
    /// The rotated queries.
    pub q: ValueId,
}

/// The norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HeadNorms<'g> {
    /// That of queries, and that of keys.
    pub tensors: [NormTensor<'g>; 2],
    /// Whether all heads of a row are normalised together.
    pub together: bool,
}

/// A product that is added to the residual stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Added<'g> {
    pub x: ValueId,
    pub product: WeightProduct<'g>,
    /// The norm of the product's result, before it is added.
    pub post_norm: Option<NormTensor<'g>>,
    /// The value that is added to the product.
    pub residual: ValueId,
    pub out: ValueId,
}

/// The choice of a layer's experts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Routed<'g> {
    pub input: StreamInput<'g>,
    /// The product for logits.
    pub router: WeightProduct<'g>,
    pub kind: RouteKind,
    /// A number for each expert that is added to its score for the choice.
    pub correction: Option<&'g Weight>,
    /// The ids of the chosen experts.
    pub ids: ValueId,
}

/// Gate and up of an MLP, or its one product.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gated<'g> {
    pub input: StreamInput<'g>,
    /// The product that goes through the activation.
    pub gate: WeightProduct<'g>,
    /// The product that its result is multiplied with.
    pub up: Option<WeightProduct<'g>>,
    pub activation: Activation,
    pub out: ValueId,
}

impl Gated<'_> {
    /// The features of the gate.
    pub fn width(&self) -> usize {
        let Weight { shape, rows, .. } = self.gate.weight;
        rows.map_or(shape[0], |part| part.end - part.start) as usize
    }
}

/// The nodes of a fused graph in order, but for its inputs.
///
/// # Errors
/// The first node that no level runs.
pub(super) fn read(graph: &Graph) -> Result<Vec<LoweredNode<'_>>, LowerError> {
    let mut steps: Vec<Vec<Step<'_>>> = graph.parts().nodes.iter().map(|_| Vec::new()).collect();
    let mut caches = HashMap::new();
    let mut attended = HashSet::new();
    let mut routes = HashMap::new();
    let latents = LatentLayers::of(graph);
    attended.extend(latents.layers.iter().map(|layer| layer.values.out));
    for step in graph.steps() {
        if let Op::Attention { .. } = step.op {
            attended.insert(step.first);
        }
        if let Op::Route { .. } = step.op {
            routes.insert(step.first.index() + 1, step.first);
        }
        // The weights are there with their factor alone.
        if let Op::Scale { x, .. } = step.op
            && let Some(ids) = routes.remove(&x.index())
        {
            routes.insert(step.first.index(), ids);
        }
        if let Op::CacheAppend { cache, .. } = step.op {
            caches.insert(step.first, cache.index());
        }
        steps[step.node].push(step);
    }
    let single = |place: usize| match (&steps[place][..], &graph.parts().nodes[place].body) {
        ([step], Body::Single(_)) => Some(*step),
        _ => None,
    };
    let normed_sums = normed_sums((0..steps.len()).filter_map(single));
    // Nodes that an addition takes.
    let taken: HashSet<ValueId> = normed_sums.values().flat_map(|[linear, norm]| [linear.first, norm.first]).collect();
    let mut nodes = Vec::new();
    for (place, steps) in steps.iter().enumerate() {
        let reader = NodeReader { graph, steps, caches: &caches, attended: &attended, routes: &routes };
        let is_latent = |step: &Step<'_>| latents.taken.contains(&step.first);
        if steps.iter().all(is_latent) {
            nodes.extend(latents.layers.iter().find_map(|layer| {
                let step = single(place)?;
                if step.first == layer.keys {
                    return Some(LoweredNode::Latents(layer.heads.clone()));
                }
                let attended = reader.attention(&step).filter(|_| step.first == layer.attended)?;
                Some(LoweredNode::Attention(LayerAttention { latent: Some(layer.values), ..attended }))
            }));
            continue;
        }
        let node = match single(place) {
            Some(Step { op: Op::Input { .. }, .. }) => continue,
            Some(step) if taken.contains(&step.first) => continue,
            Some(step) => match normed_sums.get(&step.first) {
                Some(parts) => reader.normed_sum(parts, &step),
                None => reader.single(&step),
            },
            None => reader.group(),
        };
        let ops = || steps.iter().map(|step| step.op.name()).collect::<Vec<_>>().join(", ");
        nodes.push(node.ok_or_else(|| LowerError::Node {
            graph: graph.parts().name.clone(),
            node: place,
            ops: ops(),
        })?);
    }
    Ok(nodes)
}

/// The products whose results are normalised before they are added, each with its norm, by the sum.
fn normed_sums<'g>(singles: impl Iterator<Item = Step<'g>>) -> HashMap<ValueId, [Step<'g>; 2]> {
    let mut made_by: HashMap<ValueId, Step<'g>> = HashMap::new();
    let mut sums = HashMap::new();
    for step in singles {
        if let &Op::Binary { a, b, kind: BinaryKind::Add } = step.op
            && a != b
        {
            let parts = |id: ValueId| {
                let norm = *made_by.get(&id)?;
                let &Op::Norm { x, .. } = norm.op else { return None };
                let linear = *made_by.get(&x)?;
                matches!(linear.op, Op::Linear { .. }).then_some([linear, norm])
            };
            sums.extend(parts(b).or_else(|| parts(a)).map(|parts| (step.first, parts)));
        }
        made_by.insert(step.first, step);
    }
    sums
}

/// Reads one node of the graph.
struct NodeReader<'r, 'g> {
    graph: &'g Graph,
    steps: &'r [Step<'g>],
    /// The cache whose keys a value is.
    caches: &'r HashMap<ValueId, usize>,
    /// The results of attention.
    attended: &'r HashSet<ValueId>,
    /// The ids of experts that weights belong to, by the number of that value.
    routes: &'r HashMap<usize, ValueId>,
}

/// Queries or keys before they rotate.
struct Unrotated<'r, 'g> {
    product: &'r Step<'g>,
    /// The norm of heads that follows on the product.
    norm: Option<&'r Step<'g>>,
    /// The frequencies of the rotation.
    table: RopeId,
}

impl<'g> NodeReader<'_, 'g> {
    fn single(&self, step: &Step<'g>) -> Option<LoweredNode<'g>> {
        let out = step.first;
        if let &Op::Embed { table, scale, .. } = step.op {
            return Some(LoweredNode::Embed { table: self.weight(table)?, scale, out });
        }
        self.attention(step).map(LoweredNode::Attention)
    }

    fn attention(&self, step: &Step<'g>) -> Option<LayerAttention<'g>> {
        let &Op::Attention { q, k, scale, soft_cap, window, sinks, causal: true, .. } = step.op else {
            return None;
        };
        let modifier = ScoreModifier { soft_cap, window };
        modifier.check().ok()?;
        let sinks = match sinks {
            Some(sinks) => Some(self.weight(sinks)?),
            None => None,
        };
        let cache = *self.caches.get(&k)?;
        let out = step.first;
        Some(LayerAttention { cache, q, scale, modifier, sinks, out, latent: None })
    }

    /// A product whose result is normalised before it is added.
    fn normed_sum(&self, [linear, norm]: &[Step<'g>; 2], addition: &Step<'g>) -> Option<LoweredNode<'g>> {
        let (&Op::Linear { x, .. }, &Op::Binary { a, b, .. }) = (linear.op, addition.op) else { return None };
        let residual = if b == norm.first { a } else { b };
        let product = self.product(linear, self.role_of(x))?;
        let post_norm = Some(self.norm_weight(norm)?);
        Some(LoweredNode::Added(Added { x, product, post_norm, residual, out: addition.first }))
    }

    fn group(&self) -> Option<LoweredNode<'g>> {
        let products = self.all(|op| op.is_product());
        let before = self.norm();
        let input = self.input();
        let normed = usize::from(before.is_some());
        let after = self.steps.last()?;
        match (products.as_slice(), after.op, before) {
            ([logits], Op::Choose { .. }, Some(input)) => {
                let Op::Logits { table, x } = *logits.op else { return None };
                let cap = |step: &Step<'g>| if let Op::SoftCap { cap, .. } = *step.op { Some(cap) } else { None };
                let soft_cap = self.steps.iter().find_map(cap);
                let others = usize::from(soft_cap.is_some());
                let complete = self.steps.len() == 3 + others && self.steps.first()?.first == x;
                complete.then_some(LoweredNode::Choice(LoweredChoice { input, table: self.weight(table)?, soft_cap }))
            }
            (&[gate, ref up @ ..], &Op::Activation { x, gate: through, kind }, _) => {
                let input = input?;
                let operands = match up {
                    [] => through.is_none() && x == gate.first,
                    [up] => (through, x) == (Some(gate.first), up.first),
                    _ => return None,
                };
                let complete = self.steps.len() == 2 + up.len() + normed && operands;
                let gate = self.product(gate, ProductRole::Gate)?;
                let up = match up.first() {
                    Some(up) => Some(self.product(up, ProductRole::Up)?),
                    None => None,
                };
                let activation = match kind {
                    ActivationKind::Silu => Activation::Silu,
                    ActivationKind::GeluTanh => Activation::GeluTanh,
                    ActivationKind::ClampedSwiglu { alpha, limit } => {
                        Activation::ClampedSwiglu(ClampedSwiglu::new(alpha, limit).ok()?)
                    }
                    ActivationKind::Relu | ActivationKind::Sigmoid => return None,
                };
                let alike = up.map_or(gate.experts.is_none(), |up| gate.experts == up.experts);
                let out = after.first;
                (complete && alike).then_some(LoweredNode::Gated(Gated { input, gate, up, activation, out }))
            }
            ([router], Op::Route { .. } | Op::Scale { .. }, Some(input)) => {
                let [_, _, choice, factor @ ..] = self.steps else { return None };
                let &Op::Route { logits, kind, correction, .. } = choice.op else { return None };
                let scale = match factor {
                    [] => 1.0,
                    [factor] => {
                        let &Op::Scale { x, by } = factor.op else { return None };
                        (x.index() == choice.first.index() + 1).then_some(by)?
                    }
                    _ => return None,
                };
                let correction = match correction {
                    Some(correction) => Some(self.weight(correction)?),
                    None => None,
                };
                let complete = logits == router.first;
                let router = self.product(router, ProductRole::Router)?;
                let kind = route_kind(kind, scale);
                let ids = choice.first;
                complete.then_some(LoweredNode::Routed(Routed { input, router, kind, correction, ids }))
            }
            ([down], &Op::Binary { a, b, kind: BinaryKind::Add }, None)
                if matches!(down.op, Op::ExpertLinear { .. }) =>
            {
                let &Op::ExpertLinear { x, ids, .. } = down.op else { return None };
                let [_, sum, _] = self.steps else { return None };
                let &Op::WeightedSum { x: summed, weights } = sum.op else { return None };
                let residual = if b == sum.first { a } else { b };
                let is_sum = summed == down.first && [a, b].contains(&sum.first) && a != b;
                // The weights that belong to the ids.
                let complete = is_sum && self.routes.get(&weights.index()) == Some(&ids);
                let product = self.product(down, ProductRole::Down)?;
                complete.then_some(LoweredNode::Added(Added {
                    x,
                    product,
                    post_norm: None,
                    residual,
                    out: after.first,
                }))
            }
            ([product], &Op::Binary { a, b, kind: BinaryKind::Add }, None) => {
                let residual = if b == product.first { a } else { b };
                let complete = self.steps.len() == 2 && [a, b].contains(&product.first) && a != b;
                let Op::Linear { x, .. } = *product.op else { return None };
                let product = self.product(product, self.role_of(x))?;
                complete.then_some(LoweredNode::Added(Added {
                    x,
                    product,
                    post_norm: None,
                    residual,
                    out: after.first,
                }))
            }
            ([_, _, _], Op::CacheAppend { .. }, _) => self.heads(input?, normed),
            _ => None,
        }
    }

    fn heads(&self, input: StreamInput<'g>, normed: usize) -> Option<LoweredNode<'g>> {
        let append = self.steps.last()?;
        let &Op::CacheAppend { k, v, cache } = append.op else { return None };
        let queries = self.steps.iter().find(|step| matches!(step.op, Op::Rope { .. }) && step.first != k)?;
        let queries_made = self.rotated(queries.first)?;
        let keys_made = self.rotated(k)?;
        // Three products, two rotations, the append, and norms of queries and keys.
        let head_norms = match ([queries_made.norm, keys_made.norm], self.steps.len() - normed) {
            ([Some(queries), Some(keys)], 8) => Some(self.head_norms(queries, keys)?),
            ([None, None], 6) => None,
            _ => return None,
        };
        let products = [
            self.product(queries_made.product, ProductRole::Query)?,
            self.product(keys_made.product, ProductRole::Key)?,
            self.product(self.made_by(v?)?, ProductRole::Value)?,
        ];
        let rope = Some(queries_made.table).filter(|table| *table == keys_made.table)?;
        let cache = cache.index();
        Some(LoweredNode::Heads(LayerHeads { cache, input, products, head_norms, rope, q: queries.first }))
    }

    /// The input of a rotation whose result is `value`; `None` for any other value.
    fn rotated(&self, value: ValueId) -> Option<Unrotated<'_, 'g>> {
        let &Op::Rope { x, pairs: RopePairs::Halves, table, .. } = self.made_by(value)?.op else { return None };
        let before = self.made_by(x)?;
        if let &Op::Norm { x, .. } = before.op {
            return Some(Unrotated { product: self.made_by(x)?, norm: Some(before), table });
        }
        Some(Unrotated { product: before, norm: None, table })
    }

    fn head_norms(&self, queries: &Step<'g>, keys: &Step<'g>) -> Option<HeadNorms<'g>> {
        let of_row = |step: &Step<'g>| matches!(step.op, Op::Norm { over, .. } if over.len() > 1);
        let together = of_row(queries);
        let tensors = [self.norm_weight(queries)?, self.norm_weight(keys)?];
        (together == of_row(keys)).then_some(HeadNorms { tensors, together })
    }

    /// The tensors of a norm: RMS, or layer.
    fn norm_of(&self, step: &Step<'g>) -> Option<NormTensor<'g>> {
        let Op::Norm { weight: Some(weight), bias, kind, eps, .. } = *step.op else { return None };
        let weight = self.tensor(weight)?;
        let bias = match bias {
            Some(bias) => Some(self.tensor(bias)?),
            None => None,
        };
        let layer = match (kind, bias) {
            (NormKind::Rms { unit_offset: false }, None) => None,
            (NormKind::Layer, bias) => Some(LayerTensor { bias }),
            (NormKind::Rms { .. }, _) => return None,
        };
        Some(NormTensor { weight, eps, layer })
    }

    /// The tensors of an RMS norm.
    fn norm_weight(&self, step: &Step<'g>) -> Option<NormTensor<'g>> {
        self.norm_of(step).filter(|norm| norm.layer.is_none())
    }

    /// The norm with which the group begins.
    fn norm(&self) -> Option<StreamInput<'g>> {
        let first = self.steps.first()?;
        let Op::Norm { x, .. } = *first.op else { return None };
        Some(StreamInput { x, norm: Some(self.norm_of(first)?) })
    }

    /// What the group's products take: the norm with which it begins, or a value as it is.
    fn input(&self) -> Option<StreamInput<'g>> {
        if let Op::Linear { x, .. } = *self.steps.first()?.op {
            return Some(StreamInput { x, norm: None });
        }
        self.norm()
    }

    /// The role of a product of this value, which is added to the residual stream.
    fn role_of(&self, x: ValueId) -> ProductRole {
        if self.attended.contains(&x) { ProductRole::Output } else { ProductRole::Down }
    }

    fn product(&self, step: &Step<'g>, role: ProductRole) -> Option<WeightProduct<'g>> {
        let (weight, bias, experts) = if let Op::Linear { weight, bias, .. } = *step.op {
            (weight, bias, None)
        } else {
            let Op::ExpertLinear { experts, bias, ids, .. } = *step.op else { return None };
            (experts, bias, Some(ids))
        };
        let of = |id| if experts.is_some() { self.weight_of_experts(id) } else { self.weight(id) };
        let weight = of(weight)?;
        let bias = match bias {
            Some(bias) => Some(of(bias)?),
            None => None,
        };
        Some(WeightProduct { role, weight, bias, experts })
    }

    /// A weight whose elements are as the checkpoint has them.
    fn weight(&self, id: WeightId) -> Option<&'g Weight> {
        self.tensor(id).filter(|weight| weight.is_plain())
    }

    /// A weight of all experts, each of which is a tensor.
    fn weight_of_experts(&self, id: WeightId) -> Option<&'g Weight> {
        let weight = self.graph.parts().weights.get(id.index())?;
        (weight.experts.is_some() && weight.rows.is_none() && weight.order.is_none() && weight.is_plain())
            .then_some(weight)
    }

    /// A weight of consecutive rows of one tensor.
    fn tensor(&self, id: WeightId) -> Option<&'g Weight> {
        let weight = self.graph.parts().weights.get(id.index())?;
        let is_run = weight.rows.is_none_or(|part| part.axis == 0 && part.step == 1);
        (is_run && weight.experts.is_none()).then_some(weight)
    }

    fn all(&self, is: impl Fn(&Op) -> bool) -> Vec<&Step<'g>> {
        self.steps.iter().filter(|step| is(step.op)).collect()
    }

    /// The op of this node that makes a value.
    fn made_by(&self, value: ValueId) -> Option<&Step<'g>> {
        self.steps.iter().find(|step| step.first == value)
    }
}

/// The choice of experts as a task has it, with a factor of the weights.
fn route_kind(kind: op::RouteKind, scale: f32) -> RouteKind {
    let grouped = |softmax, groups, kept, renormalise| RouteKind::Grouped { softmax, groups, kept, renormalise, scale };
    let is_plain = scale == 1.0;
    match kind {
        op::RouteKind::SoftmaxThenTopK { renormalise: false } if is_plain => RouteKind::All,
        // A softmax divided by the sum of the chosen ones is the softmax over these.
        op::RouteKind::SoftmaxThenTopK { renormalise: true } | op::RouteKind::TopKThenSoftmax if is_plain => {
            RouteKind::Chosen
        }
        op::RouteKind::Sigmoid if is_plain => RouteKind::Sigmoid,
        op::RouteKind::SoftmaxThenTopK { renormalise } => grouped(true, 1, 1, renormalise),
        op::RouteKind::TopKThenSoftmax => grouped(true, 1, 1, true),
        op::RouteKind::Sigmoid => grouped(false, 1, 1, false),
        op::RouteKind::SoftmaxInGroups { groups, kept } => grouped(true, groups, kept, false),
        op::RouteKind::SigmoidInGroups { groups, kept, renormalise } => grouped(false, groups, kept, renormalise),
    }
}

#[cfg(test)]
mod tests {
    use tilewright_graph::graph::Parts;
    use tilewright_graph::models::{self, Llama};
    use tilewright_graph::op::RopePairs;
    use tilewright_graph::passes::{fuse, normalise};

    use super::*;

    fn least(qk_norm: bool) -> Llama {
        let known = Llama::named("llama-3.2-1b").expect("a known model");
        Llama { qk_norm, qkv_bias: !qk_norm, mlp_bias: qk_norm, ..known.layers(2) }
    }

    fn fused(spec: &Llama) -> Graph {
        spec.graph("llama").and_then(|graph| fuse(&graph)).expect("sizes that fit")
    }

    #[test]
    fn a_block_is_five_nodes() {
        for qk_norm in [false, true] {
            let graph = fused(&least(qk_norm));
            let nodes = read(&graph).expect("Llama's block");
            assert_eq!(nodes.len(), 1 + 2 * 5 + 1);
            let LoweredNode::Heads(heads) = &nodes[6] else { panic!("{:?}", nodes[6]) };
            assert_eq!(heads.cache, 1);
            assert_eq!(
                heads.input.norm.map(|norm| norm.weight.tensor.as_str()),
                Some("model.layers.1.input_layernorm.weight")
            );
            assert_eq!(heads.products.map(|product| product.role.name()), ["q", "k", "v"]);
            assert_eq!(heads.products[2].bias.is_some(), !qk_norm);
            let norms = heads.head_norms.map(|norms| norms.tensors.map(|norm| norm.weight.tensor.as_str()));
            let expected = ["model.layers.1.self_attn.q_norm.weight", "model.layers.1.self_attn.k_norm.weight"];
            assert_eq!(norms, qk_norm.then_some(expected));
            let (
                LoweredNode::Added(o),
                LoweredNode::Gated(Gated { input, up, out: inner, .. }),
                LoweredNode::Added(down),
            ) = (&nodes[8], &nodes[9], &nodes[10])
            else {
                panic!("{nodes:?}")
            };
            assert_eq!((o.residual, input.x, down.x), (heads.input.x, o.out, *inner));
            assert_eq!(up.map(|up| (up.role, up.bias.is_some())), Some((ProductRole::Up, qk_norm)));
        }
    }

    /// Each change of an op is one that no task supports.
    #[test]
    fn a_node_that_no_task_runs_is_named() {
        type Change = fn(&mut Op);
        let changes: [(&str, Change); 6] = [
            ("attention", |op| {
                if let Op::Attention { causal, .. } = op {
                    *causal = false;
                }
            }),
            ("attention", |op| {
                if let Op::Attention { soft_cap, .. } = op {
                    *soft_cap = Some(1e-44);
                }
            }),
            ("norm, linear, linear, linear, rope, rope, cache_append", |op| {
                if let Op::Norm { kind, .. } = op {
                    *kind = NormKind::Rms { unit_offset: true };
                }
            }),
            ("norm, linear, linear, linear, rope, rope, cache_append", |op| {
                if let Op::Rope { pairs, .. } = op {
                    *pairs = RopePairs::Interleaved;
                }
            }),
            ("norm, linear, linear, activation", |op| {
                if let Op::Activation { kind, .. } = op {
                    *kind = ActivationKind::Relu;
                }
            }),
            ("linear, binary", |op| {
                if let Op::Binary { kind, .. } = op {
                    *kind = BinaryKind::Mul;
                }
            }),
        ];
        let graph = fused(&least(false));
        for (ops, change) in changes {
            let mut parts: Parts = graph.parts().clone();
            for node in &mut parts.nodes {
                match &mut node.body {
                    Body::Single(op) => change(op),
                    Body::Fused(fused) => {
                        fused.prologue.iter_mut().chain(&mut fused.core).chain(&mut fused.epilogue).for_each(change);
                    }
                }
            }
            let changed = Graph::check(parts).expect("a valid graph");
            let error = read(&changed).expect_err("no task runs it").to_string();
            assert!(error.contains(&format!(" of its graph ({ops})")), "{error}");
        }
    }

    #[test]
    fn a_block_of_gemma_2_is_five_nodes_too() {
        let config = serde_json::json!({
            "model_type": "gemma2", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 16,
            "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "query_pre_attn_scalar": 4, "sliding_window": 8,
        });
        let graph = models::graph(&config).and_then(|graph| Ok(fuse(&normalise(&graph)?)?)).expect("a valid graph");
        let nodes = read(&graph).expect("Gemma 2's block");
        assert_eq!(nodes.len(), 1 + 2 * 5 + 1);
        assert!(matches!(nodes[0], LoweredNode::Embed { scale: 4.0, .. }), "{:?}", nodes[0]);
        let modifier = |node: &LoweredNode<'_>| {
            let LoweredNode::Attention(attended) = node else { panic!("{node:?}") };
            attended.modifier
        };
        let capped = ScoreModifier { soft_cap: Some(50.0), window: None };
        assert_eq!([2, 7].map(|at: usize| modifier(&nodes[at])), [ScoreModifier { window: Some(8), ..capped }, capped]);
        let (LoweredNode::Added(o), LoweredNode::Gated(gated), LoweredNode::Added(down)) =
            (&nodes[3], &nodes[4], &nodes[5])
        else {
            panic!("{nodes:?}")
        };
        assert_eq!(gated.activation, Activation::GeluTanh);
        let weight =
            |added: &Added<'_>| added.post_norm.map(|norm| norm.weight.tensor.rsplit('.').nth(1).map(str::to_owned));
        let expected = ["post_attention_layernorm", "post_feedforward_layernorm"];
        assert_eq!([o, down].map(weight), expected.map(|name| Some(Some(name.to_owned()))));
        assert_eq!((gated.input.x, down.residual, down.x), (o.out, o.out, gated.out));
        let LoweredNode::Choice(choice) = &nodes[11] else { panic!("{:?}", nodes[11]) };
        assert_eq!((choice.input.x, choice.soft_cap), (sum_of(&nodes[10]), Some(30.0)));
    }

    fn sum_of(node: &LoweredNode<'_>) -> ValueId {
        let LoweredNode::Added(added) = node else { panic!("{node:?}") };
        added.out
    }
}
