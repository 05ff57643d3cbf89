//! Attention of many heads to one latent vector of a token.
//!
//! The pass `absorb_latents` leaves one key of a token, a latent vector and a part that rotates, and
//! multiplies queries and results of each head by rows of their own of the expansion. A layer is
//! recognised over several nodes of the fused graph (`latent_nodes`), and becomes these levels:
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

use super::emit::Emitter;
use super::latent_nodes::{LatentHeads, LatentValues};
use super::level::LevelDone;
use super::options::LowerError;
use super::state::LatentBuffers;
use super::tiling;
use crate::ops::{HeadColumns, HeadOutput, Linear, LinearInput, LinearOutput, NormWeight, Projection, Rope};
use crate::program::{BufferId, Op, Span};

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
