//! Attention of many heads to one latent vector of a token.
//!
//! The pass `absorb_latents` leaves one key of a token, a latent vector and a part that rotates, and
//! multiplies queries and results of each head by rows of their own of the expansion. A layer is
//! recognised here over several nodes of the fused graph, and becomes these levels:
//!
//! | level | tasks | waits for |
//! |---|---|---|
//! | latents | norm + the latent vectors of queries, of keys, and the key that rotates, by tiles | the residual stream |
//! | q | norm of the queries' latent vector + queries, by tiles; norm of the keys', rotation, append | latents |
//! | absorb | queries by each head's rows for keys, by tiles of a head; rotation of each head | q |
//! | attention | all heads × one split | absorb |
//! | values | merge of the splits + results by each head's rows for values, by tiles of a head | attention |
//!
//! Queries without a latent vector are products of the first level, and the second has the append
//! alone. A key is its own value: the latent vector is the first part of it.

use std::collections::{HashMap, HashSet};

use tilewright_graph::Graph;
use tilewright_graph::graph::{RopeId, Step, ValueId, Weight, WeightId};
use tilewright_graph::op::{NormKind, Op as GraphOp, RopePairs};

use super::emit::Emitter;
use super::level::LevelDone;
use super::nodes::{NormTensor, ProductRole, StreamInput, WeightProduct};
use super::options::LowerError;
use super::state::LatentBuffers;
use super::tiling;
use crate::ops::{HeadColumns, HeadOutput, Linear, LinearInput, LinearOutput, NormWeight, Projection, Rope};
use crate::program::{BufferId, Op, Span};

/// Queries, and the one key, of a layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LatentHeads<'g> {
    pub cache: usize,
    pub input: StreamInput<'g>,
    /// The product for latent vectors of queries, and the norm of these.
    compressed: Option<(WeightProduct<'g>, NormTensor<'g>)>,
    /// The product for queries, for latent vectors of keys, and for the key that rotates.
    products: [WeightProduct<'g>; 3],
    /// The norm of latent vectors of keys.
    norm: NormTensor<'g>,
    rope: RopeId,
    pairs: RopePairs,
    /// The rows of the expansion by which queries are multiplied.
    expansion: &'g Weight,
    /// The queries as they attend.
    pub q: ValueId,
}

/// The product of results of attention, head by head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LatentValues<'g> {
    expansion: &'g Weight,
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

/// Adds the levels up to queries and the appended key; what completes them.
pub(super) fn heads(
    e: &mut Emitter,
    heads: &LatentHeads<'_>,
    input: &LinearInput,
    ready: &[LevelDone],
) -> Result<LevelDone, LowerError> {
    let layer = heads.cache;
    let (Some(latents), Some(sizes)) = (e.state().latents, e.spec.latent) else {
        return Err(LowerError::Value { value: heads.q.index() });
    };
    let LatentBuffers { compressed, queries, latent, rotated, .. } = latents;
    let latent_dim = e.spec.head_dim - sizes.rotated;
    let width = sizes.plain + sizes.rotated;
    let rows = e.rows();
    let at = e.host.at.clone();
    let store = |out| LinearOutput::Store { out, sent: Vec::new() };
    let [query, key, rotated_key] = heads.products.map(|product| e.weights().projection(&product));
    let rotation = Some(e.weights().rotation(heads.rope));
    let all_queries = e.spec.heads * width;
    let tiles = |e: &Emitter, input: &LinearInput, projection: &Projection, features: usize, out| {
        let Projection { weight, bias } = *projection;
        let tile = |cols| {
            let (input, output) = (input.clone(), store(out));
            Op::from(Linear { input, weight, bias, rows, cols, output })
        };
        tiling::features(features, e.sms()).into_iter().map(tile).collect::<Vec<_>>()
    };
    let [k_pool, _] = e.pools(layer);
    let part = |x, norm, rope, dim, to| {
        Op::from(Rope {
            x,
            columns: Some(HeadColumns { heads: 1, from: 0, dim, to }),
            norm,
            rope,
            pairs: heads.pairs,
            heads: Span::one(0),
            rows,
            at: at.clone(),
            output: HeadOutput::Append { pool: k_pool },
        })
    };
    let norm = Some(NormWeight { weight: e.weights().get(heads.norm.weight), eps: heads.norm.eps });
    let appends =
        vec![part(latent, norm, None, latent_dim, 0), part(rotated, None, rotation.clone(), sizes.rotated, latent_dim)];
    let mut first = Vec::new();
    let mut second = Vec::new();
    match (&heads.compressed, compressed) {
        (Some((product, norm)), Some(out)) => {
            let projection = e.weights().projection(product);
            first.extend(tiles(e, input, &projection, sizes.query, out));
            let input = LinearInput::RmsNorm { x: out, weight: e.weights().get(norm.weight), eps: norm.eps };
            second.extend(tiles(e, &input, &query, all_queries, queries));
        }
        (None, None) => first.extend(tiles(e, input, &query, all_queries, queries)),
        _ => return Err(LowerError::Value { value: heads.q.index() }),
    }
    first.extend(tiles(e, input, &key, latent_dim, latent));
    first.extend(tiles(e, input, &rotated_key, sizes.rotated, rotated));
    second.extend(appends);
    let done = e.level(&format!("layers.{layer}.latents"), first, ready)?;
    let done = e.level(&format!("layers.{layer}.q"), second, &[done])?;
    let q = e.state().q;
    let absorbed = HeadTiles {
        input: LinearInput::Heads { x: queries, heads: e.spec.heads, first: 0 },
        weight: e.weights().expansion(heads.expansion, false)?,
        each: latent_dim,
        output: LinearOutput::Heads { out: q },
    };
    let mut ops = absorbed.ops(e);
    let turned = |span| {
        let columns = HeadColumns { heads: e.spec.heads, from: sizes.plain, dim: sizes.rotated, to: latent_dim };
        Op::from(Rope {
            x: queries,
            columns: Some(columns),
            norm: None,
            rope: rotation.clone(),
            pairs: heads.pairs,
            heads: span,
            rows,
            at: at.clone(),
            output: HeadOutput::Store { out: q },
        })
    };
    ops.extend(tiling::partition(e.spec.heads, e.sms().min(e.spec.heads)).into_iter().map(turned));
    e.level(&format!("layers.{layer}.absorb"), ops, &[done])
}

/// Adds the level that multiplies results of attention by each head's rows for values.
pub(super) fn values(
    e: &mut Emitter,
    layer: usize,
    values: &LatentValues<'_>,
    done: LevelDone,
) -> Result<LevelDone, LowerError> {
    let (Some(latents), Some(sizes)) = (e.state().latents, e.spec.latent) else {
        return Err(LowerError::Value { value: values.out.index() });
    };
    let tiles = HeadTiles {
        input: LinearInput::CombineHeads { acc: e.state().acc, stats: e.state().stats },
        weight: e.weights().expansion(values.expansion, true)?,
        each: sizes.value,
        output: LinearOutput::Store { out: latents.attended, sent: Vec::new() },
    };
    let ops = tiles.ops(e);
    e.level(&format!("layers.{layer}.values"), ops, &[done])
}

/// Products of heads by weights of their own.
struct HeadTiles {
    input: LinearInput,
    weight: BufferId,
    /// Features of a head.
    each: usize,
    output: LinearOutput,
}

impl HeadTiles {
    /// Tiles within heads, about one for each SM; one op where levels are planned whole.
    fn ops(&self, e: &Emitter) -> Vec<Op> {
        let HeadTiles { input, weight, each, output } = self;
        let heads = e.spec.heads;
        let op = |cols| {
            let (input, output) = (input.clone(), output.clone());
            Op::from(Linear { input, weight: *weight, bias: None, rows: e.rows(), cols, output })
        };
        if e.planned.is_some() {
            return vec![op(Span::all(heads * each))];
        }
        let tiles = tiling::features(*each, e.sms() / heads);
        let of_head =
            |head: usize| tiles.iter().map(move |tile| Span::new(head * each + tile.lo, head * each + tile.hi));
        (0..heads).flat_map(of_head).map(op).collect()
    }
}
