//! One block of the model, level by level:
//!
//! | level | tasks | waits for |
//! |---|---|---|
//! | qkv | norm + q, k, v of one kv head's group + rotation + append, by tiles | the residual stream |
//! | (rope) | only with q/k norms: norm + rotation of one head | the group's qkv |
//! | (an indexer's) | only with an [`Indexer`](super::Indexer): its ops | as it says |
//! | attention | one kv head × one split (× rows) | the kv head's qkv (rope) |
//! | o | merge of the splits + output projection + residual, by tiles | all of attention |
//! | gate/up | norm + gate, up + silu·mul, by tiles | all of o |
//! | down | down projection + residual, by tiles | all of gate/up |
//!
//! On several devices o and down give parts of sums, which they send to every device; a level more
//! after each of them adds what has arrived:
//!
//! | level | tasks | waits for |
//! |---|---|---|
//! | o.sum, down.sum | the devices' parts + residual, by tiles of columns | all of o, of down, on all devices |

use super::emit::{Done, Emitter};
use super::indexer::{LayerTasks, Selected};
use super::options::LowerError;
use super::state::Parts;
use super::tiling;
use crate::ops::Selection;
use crate::program::{
    Attention, BufferId, CounterId, GroupShape, HeadNorm, HeadOutput, KeyOutput, Linear, LinearInput, LinearOutput, Op,
    Qkv, Reduce, Rope, Rotation, Span,
};

/// Emits block `layer`; `ready` says when each device's residual stream is complete, where it is
/// not from the beginning. Gives the same for the next block.
pub(super) fn block(e: &mut Emitter, layer: usize, ready: &[Option<Done>]) -> Result<Vec<Option<Done>>, LowerError> {
    let joint = e.joint(&format!("layers.{layer}.o"));
    let done = e.each_device(|e, device| {
        let heads = qkv(e, layer, ready[device])?;
        let heads = if e.spec.qk_norm { rope(e, layer, &heads)? } else { heads };
        let Selected { ready: heads, selection } = index(e, layer, heads)?;
        let done = attention(e, layer, &heads, selection.as_ref())?;
        o(e, layer, done, joint)
    })?;
    let name = format!("layers.{layer}.o.sum");
    let done = sum(e, &name, done, |e| Some((&e.parts()?.middle, Some(e.residual(layer)), e.state().middle)))?;
    let joint = e.joint(&format!("layers.{layer}.down"));
    let done = e.each_device(|e, device| {
        let done = gate_up(e, layer, done[device])?;
        down(e, layer, done, joint)
    })?;
    let name = format!("layers.{layer}.down.sum");
    let done = sum(e, &name, done, |e| {
        let parts = e.parts().filter(|_| e.keeps(layer))?;
        Some((&parts.residual, Some(e.state().middle), e.stream(layer)))
    })?;
    Ok(done.into_iter().map(Some).collect())
}

/// What a device sums: its parts, what they are added to, and where the sum goes.
pub(super) type Sum<'a> = (&'a Vec<BufferId>, Option<BufferId>, BufferId);

/// The sum of the devices' parts on each of them, when all have been sent; with one device there is
/// none to make.
pub(super) fn sum(
    e: &mut Emitter,
    name: &str,
    sent: Vec<Done>,
    of: impl for<'e> Fn(&'e Emitter) -> Option<Sum<'e>>,
) -> Result<Vec<Done>, LowerError> {
    if e.devices() == 1 {
        return Ok(sent);
    }
    let all = Done::joined(&sent);
    e.each_device(|e, _| {
        let Some((parts, residual, out)) = of(e) else { return Ok(sent[e.device]) };
        let parts = parts.clone();
        let rows = e.rows();
        let tile = |cols| Op::from(Reduce { parts: parts.clone(), residual, out, rows, cols });
        let ops = tiling::features(e.spec.hidden, e.sms()).into_iter().map(tile).collect();
        e.level(name, ops, &all)
    })
}

fn rotation(e: &Emitter) -> Rotation {
    Rotation { inv_freq: e.weights().inv_freq, scale: e.spec.rope.scale }
}

/// Gives, for each kv head, when its group's q, k and v are complete.
fn qkv(e: &mut Emitter, layer: usize, ready: Option<Done>) -> Result<Vec<Done>, LowerError> {
    let prefix = format!("model.layers.{layer}");
    let input = e.norm_input(e.residual(layer), &format!("{prefix}.input_layernorm.weight"));
    let [k_pool, v_pool] = e.pools(layer);
    let [wq, wk, wv] = ["q", "k", "v"].map(|which| e.weights().projection(&format!("{prefix}.self_attn.{which}_proj")));
    let (q, k) = match e.state().raw {
        Some([q, k]) => (q, KeyOutput::Raw { out: k }),
        None => (e.state().q, KeyOutput::RopeAppend { rope: rotation(e), pool: k_pool }),
    };
    let shape = GroupShape { group: e.spec.group(), head_dim: e.spec.head_dim };
    let tasks = tiling::tasks_per_group(e.spec.kv_heads, shape.strips(), e.sms());
    let mut done = Vec::with_capacity(e.spec.kv_heads);
    for kv_head in 0..e.spec.kv_heads {
        let ops = tiling::deal(shape.strips(), tasks).into_iter().map(|strips| {
            Op::from(Qkv {
                input: input.clone(),
                wq: wq.clone(),
                wk: wk.clone(),
                wv: wv.clone(),
                kv_head,
                strips,
                rows: e.rows(),
                q,
                k: k.clone(),
                v_pool,
                at: e.host.at.clone(),
            })
        });
        let ops = ops.collect();
        done.push(e.level(&format!("layers.{layer}.qkv.h{kv_head}"), ops, ready.as_slice())?);
    }
    Ok(done)
}

fn rope(e: &mut Emitter, layer: usize, heads: &[Done]) -> Result<Vec<Done>, LowerError> {
    let Some([q_raw, k_raw]) = e.state().raw else { return Ok(heads.to_vec()) };
    let prefix = format!("model.layers.{layer}.self_attn");
    let group = e.spec.group();
    let [k_pool, _] = e.pools(layer);
    let mut done = Vec::with_capacity(heads.len());
    for (kv_head, &ready) in heads.iter().enumerate() {
        let head = |x, which: &str, head: usize, output| {
            let weight = e.weights().get(&format!("{prefix}.{which}_norm.weight"));
            Op::from(Rope {
                x,
                norm: Some(HeadNorm { weight, eps: e.spec.norm_eps }),
                rope: rotation(e),
                heads: Span::one(head),
                rows: e.rows(),
                at: e.host.at.clone(),
                output,
            })
        };
        let queries = (kv_head * group..(kv_head + 1) * group)
            .map(|q| head(q_raw, "q", q, HeadOutput::Store { out: e.state().q }));
        let key = head(k_raw, "k", kv_head, HeadOutput::Append { pool: k_pool });
        let ops = queries.chain([key]).collect();
        done.push(e.level(&format!("layers.{layer}.rope.h{kv_head}"), ops, &[ready])?);
    }
    Ok(done)
}

/// What an indexer adds.
fn index(e: &mut Emitter, layer: usize, heads: Vec<Done>) -> Result<Selected, LowerError> {
    let Some(indexer) = e.indexer.take() else { return Ok(Selected { ready: heads, selection: None }) };
    let selected = indexer.layer(&mut LayerTasks::new(e, layer, &heads));
    e.indexer = Some(indexer);
    let selected = selected?;
    let found = selected.ready.len();
    let expected = heads.len();
    if found == expected { Ok(selected) } else { Err(LowerError::Heads { found, expected }) }
}

fn attention(e: &mut Emitter, layer: usize, heads: &[Done], selection: Option<&Selection>) -> Result<Done, LowerError> {
    let [k_pool, v_pool] = e.pools(layer);
    let scale = (e.spec.head_dim as f64).powf(-0.5) as f32;
    let blocks = tiling::deal(e.options.rows, e.sms().div_ceil(e.spec.kv_heads));
    let mut parts = Vec::new();
    for (kv_head, &ready) in heads.iter().enumerate() {
        for &rows in &blocks {
            for split in 0..e.splits {
                let op = Op::from(Attention {
                    q: e.state().q,
                    k_pool,
                    v_pool,
                    at: e.host.at.clone(),
                    kv_head,
                    rows,
                    split,
                    scale,
                    acc: e.state().acc,
                    stats: e.state().stats,
                    selection: selection.cloned(),
                });
                parts.push((op, ready));
            }
        }
    }
    e.level_of(&format!("layers.{layer}.attention"), parts)
}

fn o(e: &mut Emitter, layer: usize, ready: Done, joint: Option<CounterId>) -> Result<Done, LowerError> {
    let input = LinearInput::Combine { acc: e.state().acc, stats: e.state().stats };
    let output = added(e, e.residual(layer), e.state().middle, |parts| &parts.middle);
    let projection = format!("model.layers.{layer}.self_attn.o_proj");
    let features = e.spec.hidden;
    let name = format!("layers.{layer}.o");
    linear(e, LinearLevel { name: &name, joint, input, projection: &projection, features, output, ready })
}

fn gate_up(e: &mut Emitter, layer: usize, ready: Done) -> Result<Done, LowerError> {
    let prefix = format!("model.layers.{layer}");
    let input = e.norm_input(e.state().middle, &format!("{prefix}.post_attention_layernorm.weight"));
    let up = e.weights().projection(&format!("{prefix}.mlp.up_proj"));
    let output = LinearOutput::SiluMul { up: up.weight, up_bias: up.bias, out: e.state().mlp };
    let name = format!("layers.{layer}.gate_up");
    let gate = format!("{prefix}.mlp.gate_proj");
    let features = e.spec.intermediate;
    linear(e, LinearLevel { name: &name, joint: None, input, projection: &gate, features, output, ready })
}

fn down(e: &mut Emitter, layer: usize, ready: Done, joint: Option<CounterId>) -> Result<Done, LowerError> {
    let input = LinearInput::Plain { x: e.state().mlp };
    let output = added(e, e.state().middle, e.stream(layer), |parts| &parts.residual);
    let projection = format!("model.layers.{layer}.mlp.down_proj");
    let features = e.spec.hidden;
    let name = format!("layers.{layer}.down");
    linear(e, LinearLevel { name: &name, joint, input, projection: &projection, features, output, ready })
}

/// What becomes of a product that is added to the residual stream: the sum, or a part of it, sent
/// to every device.
fn added(e: &Emitter, residual: BufferId, out: BufferId, parts: impl Fn(&Parts) -> &Vec<BufferId>) -> LinearOutput {
    match e.destinations(parts) {
        None => LinearOutput::Add { residual, out },
        Some((out, sent)) => LinearOutput::Store { out, sent },
    }
}

/// A level of one linear layer.
struct LinearLevel<'n> {
    /// The name of the level.
    name: &'n str,
    /// The counter that the tasks of all devices signal, where devices exchange the result.
    joint: Option<CounterId>,
    /// The activations that the layer reads.
    input: LinearInput,
    /// The name of the weights in the checkpoint.
    projection: &'n str,
    /// The number of output features.
    features: usize,
    /// Where the features go.
    output: LinearOutput,
    /// When the input is complete.
    ready: Done,
}

/// Emits a level of one linear layer, by tiles of output features.
fn linear(e: &mut Emitter, level: LinearLevel<'_>) -> Result<Done, LowerError> {
    let LinearLevel { name, joint, input, projection, features, output, ready } = level;
    let layer = e.weights().projection(projection);
    let tile = |cols| {
        let input = input.clone();
        let output = output.clone();
        Op::from(Linear { input, weight: layer.weight, bias: layer.bias, rows: e.rows(), cols, output })
    };
    let ops = tiling::features(features, e.sms()).into_iter().map(tile).collect();
    e.level_in(joint, name, ops, &[ready])
}
