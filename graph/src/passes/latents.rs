//! Attention to latent vectors: the expansion of keys and values moves to queries and results.

use std::collections::HashMap;

use super::{Rewritten, clean, readers, unfuse};
use crate::axis::{Axis, Dim, Type};
use crate::error::GraphErrors;
use crate::graph::{Body, Graph, Step, ValueId, WeightId};
use crate::op::Op;

/// Lets a cache hold one latent vector of a token, with the rotated part of its key, where keys and
/// values of all heads are a product of that vector.
///
/// With rows `K` and `V` of the product for a head, a latent vector `c` of a token, and the parts
/// `q` and `q'` of a query, a score is `q·(K c) + q'·k'`, which is `(Kᵀ q)·c + q'·k'`; and a result
/// `Σ w (V c)` is `V (Σ w c)`. Queries are multiplied by `Kᵀ` and results by `V`
/// ([`Op::HeadLinear`]), and all heads attend to one key, `c` and `k'`, whose first part is its
/// value. Sums are of the same products in another order. Groups become single ops.
///
/// ```
/// use tilewright_graph::{models, op::Op, passes::absorb_latents};
/// let config = serde_json::json!({
///     "model_type": "deepseek_v2", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 16,
///     "num_hidden_layers": 1, "first_k_dense_replace": 1, "num_attention_heads": 2, "q_lora_rank": null,
///     "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4,
///     "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
/// });
/// let graph = absorb_latents(&models::graph(&config)?)?;
/// assert!(graph.steps().any(|step| matches!(step.op, Op::CacheAppend { v: None, .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// None for a valid graph; the result is checked again.
pub fn absorb_latents(graph: &Graph) -> Result<Graph, GraphErrors> {
    let graph = unfuse(graph)?;
    let found = Latents::of(&graph);
    Ok(clean(&found.rewrite(&graph)?)?.graph)
}

/// What becomes of ops, by their first results.
#[derive(Default)]
struct Latents {
    roles: HashMap<ValueId, (Role, Expansion)>,
}

/// The product of a latent vector that gives keys and values of all heads.
#[derive(Clone, Copy)]
struct Expansion {
    latent: ValueId,
    weight: WeightId,
    /// Elements of a latent vector.
    size: u64,
    /// Rows of a head for keys, and for values.
    plain: u64,
    value: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// The product that makes the latent vector, and its norm: a key head of its own.
    Latent,
    /// The expansion and its parts, which go.
    Expanded,
    /// The whole query, and the whole key.
    Query,
    Key,
    Append,
    Attention,
}

impl Expansion {
    fn part(self, x: ValueId, is_value: bool) -> Op {
        let Expansion { weight, plain, value, .. } = self;
        let each = plain + value;
        let (start, size) = if is_value { (plain, value) } else { (0, plain) };
        Op::HeadLinear { x, weight, each, start, size, transposed: !is_value }
    }
}

impl Latents {
    fn of(graph: &Graph) -> Latents {
        let made_by: HashMap<ValueId, Step<'_>> = graph.steps().map(|step| (step.first, step)).collect();
        let readers = readers(graph);
        let mut latents = Latents::default();
        for step in graph.steps() {
            latents.roles.extend(matched(&made_by, &readers, &step).into_iter().flatten());
        }
        latents
    }

    fn rewrite(&self, graph: &Graph) -> Result<Graph, GraphErrors> {
        let mut rewritten = Rewritten::new(graph.parts());
        for step in graph.steps() {
            let Some(&(role, expansion)) = self.roles.get(&step.first) else {
                let op = rewritten.take(step.op, step.first, step.results.len());
                rewritten.push(Body::Single(op), step.results.to_vec());
                continue;
            };
            match role {
                Role::Expanded => {}
                Role::Latent => {
                    let mut op = step.op.clone();
                    let own = [Dim::known(Axis::KvHeads, 1), Dim::known(Axis::HeadDim, expansion.size)];
                    match &mut op {
                        Op::Linear { out, .. } => *out = own.to_vec(),
                        Op::Norm { over, .. } => *over = vec![Axis::HeadDim],
                        _ => {}
                    }
                    let kind = with_dims(&step.results[0], 1, own);
                    rewritten.replace(&step, op, kind);
                }
                Role::Key => {
                    let &Op::Concat { b, .. } = step.op else { continue };
                    let rotated = last(&step.results[0]) - expansion.plain;
                    let own = [Dim::known(Axis::KvHeads, 1), Dim::known(Axis::HeadDim, expansion.size + rotated)];
                    let kind = with_dims(&step.results[0], 1, own);
                    rewritten.replace(&step, Op::Concat { a: expansion.latent, b }, kind);
                }
                Role::Append => {
                    let &Op::CacheAppend { k, cache, .. } = step.op else { continue };
                    let rotated = last(&step.results[0]) - expansion.plain;
                    let dims = |size| [Dim::known(Axis::KvHeads, 1), Dim::known(Axis::HeadDim, size)];
                    let kind = with_dims(&step.results[0], 1, dims(expansion.size + rotated));
                    rewritten.replace(&step, Op::CacheAppend { k, v: None, cache }, kind);
                    let slice = Op::Slice { x: rewritten.of(step.first), start: 0, size: expansion.size };
                    let kind = with_dims(&step.results[0], 1, dims(expansion.size));
                    rewritten.stand_for(ValueId::at(step.first.index() + 1), slice, kind);
                }
                Role::Query => {
                    let &Op::Concat { a, b } = step.op else { continue };
                    let rotated = last(&step.results[0]) - expansion.plain;
                    let absorbed = expansion.part(rewritten.of(a), false);
                    let dim = |size| [Dim::known(Axis::HeadDim, size)];
                    let a = rewritten.add(absorbed, with_dims(&step.results[0], 2, dim(expansion.size)));
                    let concat = Op::Concat { a, b: rewritten.of(b) };
                    let kind = with_dims(&step.results[0], 2, dim(expansion.size + rotated));
                    rewritten.stand_for(step.first, concat, kind);
                }
                Role::Attention => {
                    let dim = |size| [Dim::known(Axis::HeadDim, size)];
                    let kind = with_dims(&step.results[0], 2, dim(expansion.size));
                    rewritten.replace(&step, step.op.clone(), kind);
                    let expanded = expansion.part(rewritten.of(step.first), true);
                    rewritten.stand_for(step.first, expanded, step.results[0].clone());
                }
            }
        }
        rewritten.finish()
    }
}

/// The last extent of a type, which is known.
fn last(kind: &Type) -> u64 {
    kind.shape.0.last().and_then(Dim::size).unwrap_or(0)
}

/// A type whose axes from the one of a number on are others.
fn with_dims(kind: &Type, kept: usize, dims: impl IntoIterator<Item = Dim>) -> Type {
    Type::real(kind.shape.0.iter().take(kept).cloned().chain(dims).collect::<Vec<Dim>>())
}

/// The roles of the ops around an attention whose keys and values are expanded.
fn matched(
    made_by: &HashMap<ValueId, Step<'_>>,
    readers: &HashMap<ValueId, usize>,
    step: &Step<'_>,
) -> Option<Vec<(ValueId, (Role, Expansion))>> {
    let &Op::Attention { q, k, v, .. } = step.op else { return None };
    let op = |id: ValueId| made_by.get(&id).map(|step| step.op);
    let read_by = |id: ValueId, count: usize| readers.get(&id) == Some(&count);
    let &Op::CacheAppend { k: key, v: Some(value), .. } = op(k)? else { return None };
    let (&Op::Concat { a: plain_query, .. }, &Op::Concat { a: plain_key, .. }) = (op(q)?, op(key)?) else {
        return None;
    };
    let &Op::Slice { x: expanded, start: 0, size: plain } = op(plain_key)? else { return None };
    let &Op::Slice { x: same, start, size } = op(value)? else { return None };
    let Op::Linear { x: latent, weight, bias: None, out } = op(expanded)? else { return None };
    let [heads, each] = out.as_slice() else { return None };
    let &Op::Norm { x: compressed, ref over, .. } = op(*latent)? else { return None };
    let Op::Linear { out: own, .. } = op(compressed)? else { return None };
    let [own] = own.as_slice() else { return None };
    let queries = &made_by.get(&plain_query)?.results.first()?.shape.0;
    let holds = v.index() == k.index() + 1
        && same == expanded
        && start == plain
        && each.size() == Some(plain + size)
        && queries.len() == 3
        && queries[1].size() == heads.size()
        && over.as_slice() == [own.axis.clone()]
        && [q, key, value, plain_key, *latent, compressed, k, v].into_iter().all(|id| read_by(id, 1))
        && read_by(expanded, 2);
    let expansion = Expansion { latent: *latent, weight: *weight, size: own.size()?, plain, value: size };
    let roles = [
        (compressed, Role::Latent),
        (*latent, Role::Latent),
        (expanded, Role::Expanded),
        (plain_key, Role::Expanded),
        (value, Role::Expanded),
        (q, Role::Query),
        (key, Role::Key),
        (k, Role::Append),
        (step.first, Role::Attention),
    ];
    holds.then(|| roles.map(|(id, role)| (id, (role, expansion))).to_vec())
}
