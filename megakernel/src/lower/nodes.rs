//! What the nodes of a fused graph are to the lowering: one kind of level for each group of ops
//! that tasks run.
//!
//! | node | becomes |
//! |---|---|
//! | embedding | [`Node::Embed`] |
//! | norm, q, k and v, (norms of heads,) rotation, append | [`Node::Heads`] |
//! | attention | [`Node::Attention`] |
//! | product, added to the residual stream | [`Node::Added`] |
//! | norm, gate and up, silu·mul | [`Node::Gated`] |
//! | norm, logits, choice | [`Node::Choice`] |
//!
//! Every other node is an error that names it.

use std::collections::HashMap;

use tilewright_graph::Graph;
use tilewright_graph::graph::{Body, Step, ValueId, WeightId};
use tilewright_graph::op::{ActivationKind, BinaryKind, NormKind, Op, RopePairs};

use super::options::LowerError;

/// A node of a graph, as the lowering runs it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node<'g> {
    Embed { table: &'g str, out: ValueId },
    Heads(Heads<'g>),
    Attention { cache: usize, q: ValueId, scale: f32, out: ValueId },
    Added(Added<'g>),
    Gated(Gated<'g>),
    Choice { norm: Norm<'g>, table: &'g str },
}

/// Queries, keys and values of a layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Heads<'g> {
    pub cache: usize,
    pub norm: Norm<'g>,
    /// Of queries, keys and values.
    pub products: [Product<'g>; 3],
    /// Of queries and keys, before they rotate.
    pub head_norms: Option<[HeadNorm<'g>; 2]>,
    /// The rotated queries.
    pub q: ValueId,
}

/// A product that is added to the residual stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Added<'g> {
    pub x: ValueId,
    pub product: Product<'g>,
    /// What it is added to.
    pub residual: ValueId,
    pub out: ValueId,
}

/// Gate and up of an MLP.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gated<'g> {
    pub norm: Norm<'g>,
    pub gate: Product<'g>,
    pub up: Product<'g>,
    pub out: ValueId,
}

/// An RMS norm over the residual stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Norm<'g> {
    pub x: ValueId,
    pub weight: &'g str,
    pub eps: f32,
}

/// An RMS norm over each head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HeadNorm<'g> {
    pub weight: &'g str,
    pub eps: f32,
}

/// A product with a weight of the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Product<'g> {
    pub weight: &'g str,
    pub bias: Option<&'g str>,
}

impl<'g> Product<'g> {
    /// The name of the projection: `up` of `model.layers.3.mlp.up_proj.weight`.
    pub fn projection(self) -> &'g str {
        let module = self.weight.rsplit('.').nth(1).unwrap_or(self.weight);
        module.strip_suffix("_proj").unwrap_or(module)
    }
}

/// The nodes of a fused graph in order, but for its inputs.
///
/// # Errors
/// The first node that no level runs.
pub(super) fn read(graph: &Graph) -> Result<Vec<Node<'_>>, LowerError> {
    let mut steps: Vec<Vec<Step<'_>>> = graph.parts().nodes.iter().map(|_| Vec::new()).collect();
    let mut caches = HashMap::new();
    for step in graph.steps() {
        if let Op::CacheAppend { cache, .. } = step.op {
            caches.insert(step.first, cache.index());
        }
        steps[step.node].push(step);
    }
    let mut nodes = Vec::new();
    for (place, steps) in steps.iter().enumerate() {
        let fused = matches!(graph.parts().nodes[place].body, Body::Fused(_));
        let reader = Reader { graph, steps, caches: &caches };
        let node = match steps.as_slice() {
            [Step { op: Op::Input { .. }, .. }] => continue,
            [step] if !fused => reader.single(step),
            _ => reader.group(),
        };
        let ops = || steps.iter().map(|step| step.op.name()).collect::<Vec<_>>().join(", ");
        nodes.push(node.ok_or_else(|| LowerError::Node { node: place, ops: ops() })?);
    }
    Ok(nodes)
}

/// One node.
struct Reader<'r, 'g> {
    graph: &'g Graph,
    steps: &'r [Step<'g>],
    /// The cache whose keys a value is.
    caches: &'r HashMap<ValueId, usize>,
}

/// Queries or keys before they rotate.
struct Unrotated<'r, 'g> {
    product: &'r Step<'g>,
    /// The norm of heads that follows on the product.
    norm: Option<&'r Step<'g>>,
}

impl<'g> Reader<'_, 'g> {
    fn single(&self, step: &Step<'g>) -> Option<Node<'g>> {
        let out = step.first;
        if let &Op::Embed { table, scale: 1.0, .. } = step.op {
            return Some(Node::Embed { table: self.weight(table)?, out });
        }
        let &Op::Attention { q, k, scale, soft_cap: None, window: None, sinks: None, causal: true, .. } = step.op
        else {
            return None;
        };
        Some(Node::Attention { cache: *self.caches.get(&k)?, q, scale, out })
    }

    fn group(&self) -> Option<Node<'g>> {
        let products = self.all(|op| matches!(op, Op::Linear { .. } | Op::Logits { .. }));
        let (before, after) = (self.norm(), self.steps.last()?);
        match (products.as_slice(), after.op, before) {
            ([logits], Op::Choose { .. }, Some(norm)) => {
                let Op::Logits { table, x } = *logits.op else { return None };
                let complete = self.steps.len() == 3 && self.steps.first()?.first == x;
                complete.then_some(Node::Choice { norm, table: self.weight(table)? })
            }
            ([gate, up], &Op::Activation { x, gate: Some(through), kind: ActivationKind::Silu }, Some(norm)) => {
                let complete = self.steps.len() == 4 && (through, x) == (gate.first, up.first);
                let [gate, up] = [self.product(gate)?, self.product(up)?];
                complete.then_some(Node::Gated(Gated { norm, gate, up, out: after.first }))
            }
            ([product], &Op::Binary { a, b, kind: BinaryKind::Add }, None) => {
                let residual = if b == product.first { a } else { b };
                let complete = self.steps.len() == 2 && [a, b].contains(&product.first) && a != b;
                let Op::Linear { x, .. } = *product.op else { return None };
                let product = self.product(product)?;
                complete.then_some(Node::Added(Added { x, product, residual, out: after.first }))
            }
            ([_, _, _], Op::CacheAppend { .. }, Some(norm)) => self.heads(norm),
            _ => None,
        }
    }

    fn heads(&self, norm: Norm<'g>) -> Option<Node<'g>> {
        let append = self.steps.last()?;
        let &Op::CacheAppend { k, v, cache } = append.op else { return None };
        let queries = self.steps.iter().find(|step| matches!(step.op, Op::Rope { .. }) && step.first != k)?;
        let (queries_made, keys_made) = (self.rotated(queries.first)?, self.rotated(k)?);
        // The norm, three products, two rotations, the append, and norms of queries and keys.
        let head_norms = match ([queries_made.norm, keys_made.norm], self.steps.len()) {
            ([Some(queries), Some(keys)], 9) => Some([self.head_norm(queries)?, self.head_norm(keys)?]),
            ([None, None], 7) => None,
            _ => return None,
        };
        let products = [queries_made.product, keys_made.product, self.made_by(v)?].map(|step| self.product(step));
        let [q_product, k_product, v_product] = products;
        let products = [q_product?, k_product?, v_product?];
        Some(Node::Heads(Heads { cache: cache.index(), norm, products, head_norms, q: queries.first }))
    }

    /// What a value is the rotation of.
    fn rotated(&self, value: ValueId) -> Option<Unrotated<'_, 'g>> {
        let &Op::Rope { x, pairs: RopePairs::Halves, .. } = self.made_by(value)?.op else { return None };
        let before = self.made_by(x)?;
        if let &Op::Norm { x, .. } = before.op {
            return Some(Unrotated { product: self.made_by(x)?, norm: Some(before) });
        }
        Some(Unrotated { product: before, norm: None })
    }

    fn head_norm(&self, step: &Step<'g>) -> Option<HeadNorm<'g>> {
        let Op::Norm { weight: Some(weight), bias: None, kind: NormKind::Rms { unit_offset: false }, eps, .. } =
            step.op
        else {
            return None;
        };
        Some(HeadNorm { weight: self.weight(*weight)?, eps: *eps })
    }

    /// The norm with which the group begins.
    fn norm(&self) -> Option<Norm<'g>> {
        let first = self.steps.first()?;
        let Op::Norm { x, .. } = *first.op else { return None };
        let HeadNorm { weight, eps } = self.head_norm(first)?;
        Some(Norm { x, weight, eps })
    }

    fn product(&self, step: &Step<'g>) -> Option<Product<'g>> {
        let Op::Linear { weight, bias, .. } = *step.op else { return None };
        let bias = match bias {
            Some(bias) => Some(self.weight(bias)?),
            None => None,
        };
        Some(Product { weight: self.weight(weight)?, bias })
    }

    /// The name of a weight that is a whole tensor as it is.
    fn weight(&self, id: WeightId) -> Option<&'g str> {
        let weight = self.graph.parts().weights.get(id.index())?;
        let whole = weight.rows.is_none() && weight.experts.is_none() && weight.offset == 0.0;
        whole.then_some(weight.tensor.as_str())
    }

    fn all(&self, is: impl Fn(&Op) -> bool) -> Vec<&Step<'g>> {
        self.steps.iter().filter(|step| is(step.op)).collect()
    }

    /// The op of this node that makes a value.
    fn made_by(&self, value: ValueId) -> Option<&Step<'g>> {
        self.steps.iter().find(|step| step.first == value)
    }
}

#[cfg(test)]
mod tests {
    use tilewright_graph::graph::Parts;
    use tilewright_graph::models;
    use tilewright_graph::op::RopePairs;
    use tilewright_graph::passes::fuse;

    use super::*;
    use crate::model::LlamaSpec;

    fn least(qk_norm: bool) -> LlamaSpec {
        let known = LlamaSpec::named("llama-3.2-1b").expect("a known model");
        LlamaSpec { layers: 2, qk_norm, qkv_bias: !qk_norm, mlp_bias: qk_norm, ..known }
    }

    fn fused(spec: &LlamaSpec) -> Graph {
        spec.graph().and_then(|graph| fuse(&graph)).expect("sizes that fit")
    }

    #[test]
    fn a_block_is_five_nodes() {
        for qk_norm in [false, true] {
            let graph = fused(&least(qk_norm));
            let nodes = read(&graph).expect("Llama's block");
            assert_eq!(nodes.len(), 1 + 2 * 5 + 1);
            let Node::Heads(heads) = &nodes[6] else { panic!("{:?}", nodes[6]) };
            assert_eq!(heads.cache, 1);
            assert_eq!(heads.norm.weight, "model.layers.1.input_layernorm.weight");
            assert_eq!(heads.products.map(Product::projection), ["q", "k", "v"]);
            assert_eq!(heads.products[2].bias.is_some(), !qk_norm);
            let norms = heads.head_norms.map(|norms| norms.map(|norm| norm.weight));
            let expected = ["model.layers.1.self_attn.q_norm.weight", "model.layers.1.self_attn.k_norm.weight"];
            assert_eq!(norms, qk_norm.then_some(expected));
            let (Node::Added(o), Node::Gated(Gated { norm, up, out: inner, .. }), Node::Added(down)) =
                (&nodes[8], &nodes[9], &nodes[10])
            else {
                panic!("{nodes:?}")
            };
            assert_eq!((o.residual, norm.x, down.x), (heads.norm.x, o.out, *inner));
            assert_eq!((up.projection(), up.bias.is_some()), ("up", qk_norm));
        }
    }

    /// Each change of an op gives it a meaning that no task has.
    #[test]
    fn a_node_that_no_task_runs_is_named() {
        type Change = fn(&mut Op);
        let changes: [(&str, Change); 8] = [
            ("embed", |op| {
                if let Op::Embed { scale, .. } = op {
                    *scale = 2.0;
                }
            }),
            ("attention", |op| {
                if let Op::Attention { soft_cap, .. } = op {
                    *soft_cap = Some(50.0);
                }
            }),
            ("attention", |op| {
                if let Op::Attention { window, .. } = op {
                    *window = Some(64);
                }
            }),
            ("attention", |op| {
                if let Op::Attention { causal, .. } = op {
                    *causal = false;
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
                    *kind = ActivationKind::GeluTanh;
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
            assert!(error.ends_with(&format!(" of the graph ({ops}) is nothing that tasks run")), "{error}");
        }
    }

    #[test]
    fn gemma_2_is_refused_by_its_first_node() {
        let config = serde_json::json!({
            "model_type": "gemma2", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
            "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "query_pre_attn_scalar": 4,
        });
        let graph = models::graph(&config).expect("a configuration");
        let graph = fuse(&graph).expect("a valid graph");
        let error = read(&graph).expect_err("no task runs it").to_string();
        assert_eq!(error, "node 1 of the graph (embed) is nothing that tasks run");
    }
}
