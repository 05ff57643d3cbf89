//! The nodes of a fused graph, level by level:
//!
//! | level | tasks | waits for |
//! |---|---|---|
//! | qkv | norm + q, k, v of one kv head's group + rotation + append, by tiles | the residual stream |
//! | (rope) | only with norms of heads: norm + rotation of one head | the group's qkv; all of qkv where heads are normalised together |
//! | (an indexer's) | only with an [`Indexer`](super::Indexer): its ops | as it says |
//! | attention | one kv head × one split (× rows) | the kv head's qkv (rope) |
//! | o | merge of the splits + output projection + residual, by tiles | all of attention |
//! | gate/up | norm + gate, up + activation, by tiles | all of o |
//! | down | down projection + residual, by tiles | all of gate/up |
//!
//! A layer norm is a level before the products that take it, by tiles of columns; after it they take
//! its result as it is. A product that takes no norm reads the residual stream itself. Gate and up of
//! an MLP without a gate are one product.
//!
//! Attention to latent vectors has levels of its own: [`latents`].
//!
//! A mixture of experts has two levels before gate and up, and routes in place of weights:
//!
//! | level | tasks | waits for |
//! |---|---|---|
//! | router | norm + logits of experts, by tiles | all of o |
//! | route | one task: the choice for all rows | all of router |
//! | gate/up | norm + gate, up + activation · weight of the route, by strips of all slots | route |
//! | down | down projection summed over slots + residual, by tiles | route, all of gate/up |
//!
//! On several devices o and down give parts of sums, which they send to every device; where their
//! results are normalised before they are added, one device has a part alone. A level more after
//! each of them adds what has arrived:
//!
//! | level | tasks | waits for |
//! |---|---|---|
//! | o.sum, down.sum | the parts, (their norm,) + residual, by tiles of columns | all of o, of down, on all devices |
//!
//! Up to a node whose result devices exchange, one device's tasks come before the next one's.

use std::collections::HashMap;

use tilewright_graph::graph::ValueId;
use tilewright_graph::op::RopePairs;

use super::emit::Emitter;
use super::ends::{Embedding, OutputChoice, choose, embed};
use super::experts::{self, ExpertSum};
use super::indexer::{Indexer, LayerTasks, Selected};
use super::latent_nodes::LatentHeads;
use super::latents;
use super::level::{HeadTasks, LevelDone};
use super::linear::{LinearLevel, linear};
use super::nodes::{
    Added, Gated, HeadNorms, LayerAttention, LayerHeads, LoweredNode, NormTensor, ProductRole, StreamInput,
};
use super::options::LowerError;
use super::residual::{ResidualBuffer, Sum, buffer, layer_norm, parts_of, stream_input, sum};
use super::state::{Inlet, Outlet};
use super::tiling;
use crate::ops::{
    Attention, GroupShape, HeadOutput, KeyOutput, LinearInput, LinearOutput, NormWeight, Qkv, Rope, Selection, SumNorm,
};
use crate::program::{Op, Span};

/// The location of a graph value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    /// The residual stream.
    Residual(ResidualBuffer),
    /// The splits of attention, which are not merged yet.
    Splits,
    /// The activations of an MLP of this width.
    Inner(usize),
    /// The results of attention to latent vectors, of all heads.
    Attended,
    /// The activations of the chosen experts.
    Experts,
}

/// Values that have been lowered.
struct LoweredValues<'a> {
    locations: HashMap<ValueId, Location>,
    /// For each device, what completes a value: its level; for queries, those of each kv head.
    /// Nothing for what is there from the beginning.
    ready: Vec<HashMap<ValueId, Vec<LevelDone>>>,
    /// For each device, the last layer norm: of which value, by which weight, and its level.
    normed: Vec<Option<(ValueId, String, LevelDone)>>,
    /// The indexer, whose ops come between a layer's projections and its attention.
    indexer: Option<&'a mut (dyn Indexer + 'a)>,
}

impl LoweredValues<'_> {
    fn location(&self, value: ValueId) -> Result<Location, LowerError> {
        self.locations.get(&value).copied().ok_or(LowerError::Value { value: value.index() })
    }

    fn residual(&self, value: ValueId) -> Result<ResidualBuffer, LowerError> {
        match self.location(value)? {
            Location::Residual(residual) => Ok(residual),
            Location::Splits | Location::Inner(_) | Location::Attended | Location::Experts => {
                Err(LowerError::Value { value: value.index() })
            }
        }
    }

    /// What a product of the level `name` takes of the residual stream on the emitter's device, and
    /// when it is there. A layer norm has a level, which products that take the same norm share.
    fn input(
        &mut self,
        e: &mut Emitter,
        input: &StreamInput<'_>,
        name: &str,
    ) -> Result<(LinearInput, Vec<LevelDone>), LowerError> {
        let device = e.device;
        let x = buffer(e, self.residual(input.x)?);
        let mut ready = self.ready(input.x, device).to_vec();
        if let Some((_, norm)) = input.layer_norm() {
            let label = norm.weight.label();
            let known = self.normed[device].as_ref().filter(|(x, weight, _)| *x == input.x && *weight == label);
            let done = match known {
                Some((_, _, done)) => *done,
                None => layer_norm(e, &format!("{name}.norm"), norm, x, &ready)?,
            };
            self.normed[device] = Some((input.x, label, done));
            ready = vec![done];
        }
        Ok((stream_input(e, input, x)?, ready))
    }

    fn ready(&self, value: ValueId, device: usize) -> &[LevelDone] {
        self.ready[device].get(&value).map_or(&[], Vec::as_slice)
    }

    fn complete(&mut self, value: ValueId, device: usize, ready: Vec<LevelDone>) {
        self.ready[device].insert(value, ready);
    }

    fn complete_residual(&mut self, value: ValueId, residual: ResidualBuffer, done: Vec<LevelDone>) {
        self.locations.insert(value, Location::Residual(residual));
        for (device, done) in done.into_iter().enumerate() {
            self.complete(value, device, vec![done]);
        }
    }
}

/// Lowers the nodes of the emitter's stage.
pub(super) fn lower(
    e: &mut Emitter,
    nodes: &[LoweredNode<'_>],
    indexer: Option<&mut dyn Indexer>,
) -> Result<(), LowerError> {
    let ready = vec![HashMap::new(); e.devices()];
    let normed = vec![None; e.devices()];
    let mut values = LoweredValues { locations: HashMap::new(), ready, normed, indexer };
    // Nodes of a layer since the last result that devices exchange.
    let mut open = Vec::new();
    let mut layer = e.stage.layers().start;
    // The input of an MLP without its attention; of whole layers it is that of the heads.
    if let Some(stream) = nodes.first().filter(|_| !e.stage.attends()).and_then(LoweredNode::stream) {
        values.locations.insert(stream, Location::Residual(ResidualBuffer::Input));
    }
    for (place, node) in nodes.iter().enumerate() {
        match node {
            LoweredNode::Embed { table, scale, out } => {
                let Inlet::Tokens(ids) = e.host.inlet else { continue };
                let done = embed(e, ids, Embedding { table, scale: *scale })?;
                values.complete_residual(*out, ResidualBuffer::Even, done);
            }
            LoweredNode::Choice(choice) => {
                let Outlet::Choice { logits, next_token } = e.host.outlet else { continue };
                let inputs = e.each_device(|e, _| values.input(e, &choice.input, "logits"))?;
                choose(e, &inputs, OutputChoice { choice, logits, next_token })?;
            }
            LoweredNode::Heads(LayerHeads { cache, input, .. })
            | LoweredNode::Latents(LatentHeads { cache, input, .. }) => {
                layer = *cache;
                // The input of a stage other than the first.
                if e.stage.takes(layer) {
                    values.locations.insert(input.x, Location::Residual(ResidualBuffer::Input));
                }
                open.push(node);
            }
            LoweredNode::Attention(_) | LoweredNode::Routed(_) | LoweredNode::Gated(_) => open.push(node),
            LoweredNode::Added(added) => {
                if e.stage.layers().contains(&layer) {
                    let next = nodes.get(place + 1);
                    let is_last = next.is_none_or(LoweredNode::begins_layer);
                    exchanged(e, &mut values, LayerPart { layer, open: &open, added, is_last })?;
                }
                open.clear();
            }
        }
    }
    Ok(())
}

/// Nodes of a layer up to an addition to the residual stream.
struct LayerPart<'p, 'n> {
    layer: usize,
    /// Those after the addition before.
    open: &'p [&'p LoweredNode<'n>],
    added: &'p Added<'n>,
    /// Whether the layer has no addition after it.
    is_last: bool,
}

impl LayerPart<'_, '_> {
    /// Whether a node before the addition reads the stream that is added to, so that what completes
    /// the node's result has waited for the stream.
    fn reads_residual(&self) -> bool {
        self.open.iter().any(|node| node.stream() == Some(self.added.residual))
    }
}

/// Nodes of a layer up to an addition, device by device, and the sum of the devices' parts.
fn exchanged(e: &mut Emitter, values: &mut LoweredValues<'_>, part: LayerPart<'_, '_>) -> Result<(), LowerError> {
    let is_implied = part.reads_residual();
    let LayerPart { layer, open, added, is_last } = part;
    let from = values.residual(added.residual)?;
    let to = match from {
        _ if is_last && e.stage.gives(layer) => ResidualBuffer::Output,
        ResidualBuffer::Odd => ResidualBuffer::Even,
        ResidualBuffer::Input | ResidualBuffer::Even | ResidualBuffer::Output => ResidualBuffer::Odd,
    };
    let count = added.product.weight.experts;
    let prefix = count.map_or("", experts::prefix_of);
    let name = format!("layers.{layer}.{prefix}{}", added.product.role.name());
    let joint = e.joint(&name);
    // A sum without an all-reduce and without a following norm is added by the product itself.
    let is_apart = e.devices() > 1 || added.post_norm.is_some();
    let done = e.each_device(|e, device| {
        open.iter().try_for_each(|node| on_device(e, values, layer, node))?;
        let location = values.location(added.x)?;
        let missing = || LowerError::Value { value: added.x.index() };
        let output = match e.destinations(|parts| parts_of(parts, to)).filter(|_| is_apart) {
            None => LinearOutput::Add { residual: buffer(e, from), out: buffer(e, to) },
            Some((out, sent)) => LinearOutput::Store { out, sent },
        };
        let projection = e.weights().projection(&added.product);
        let features = e.spec.hidden;
        let mut ready = values.ready(added.x, device).to_vec();
        if !is_implied {
            ready.extend_from_slice(values.ready(added.residual, device));
        }
        let ready = &ready[..];
        let input = match (location, e.state().latents) {
            (Location::Splits, _) => LinearInput::Combine { acc: e.state().acc, stats: e.state().stats },
            (Location::Inner(width), _) => LinearInput::Plain { x: e.state().mlp(width).ok_or_else(missing)? },
            (Location::Attended, Some(latents)) => LinearInput::Plain { x: latents.attended },
            (Location::Experts, _) => {
                let ids = added.product.experts.ok_or_else(missing)?;
                let ready = [values.ready(ids, device), ready].concat();
                let sum = ExpertSum { name: &name, joint, count, projection, output, ready: &ready };
                return experts::down(e, sum, added.x.index());
            }
            (Location::Residual(_) | Location::Attended, _) => return Err(missing()),
        };
        linear(e, LinearLevel { name: &name, joint, input, projection, features, output, ready })
    })?;
    let done = sum(e, &format!("{name}.sum"), done, |e| {
        if !is_apart {
            return None;
        }
        // The first device gives the stream to another stage.
        let parts = e.parts().filter(|_| e.device == 0 || to != ResidualBuffer::Output)?;
        let sum_norm =
            |norm: NormTensor<'_>| SumNorm { weight: e.weights().get(norm.weight), eps: norm.eps, layer: None };
        let norm = added.post_norm.map(sum_norm);
        Some(Sum { parts: parts_of(parts, to), norm, residual: Some(buffer(e, from)), out: buffer(e, to) })
    })?;
    values.complete_residual(added.out, to, done);
    Ok(())
}

/// Lowers a node whose result stays on the emitter's device.
fn on_device(
    e: &mut Emitter,
    values: &mut LoweredValues<'_>,
    layer: usize,
    node: &LoweredNode<'_>,
) -> Result<(), LowerError> {
    let device = e.device;
    match node {
        LoweredNode::Heads(heads) => {
            let (input, ready) = values.input(e, &heads.input, &format!("layers.{layer}.qkv"))?;
            let ready = qkv(e, heads, input, &ready)?;
            let ready = rope(e, heads, ready)?;
            values.complete(heads.q, device, ready);
        }
        LoweredNode::Latents(heads) => {
            let (input, ready) = values.input(e, &heads.input, &format!("layers.{layer}.latents"))?;
            let done = latents::heads(e, heads, &input, &ready)?;
            values.complete(heads.q, device, vec![done]);
        }
        LoweredNode::Attention(attended) => {
            let heads = values.ready(attended.q, device).to_vec();
            let Selected { ready: heads, selection } = index(e, values.indexer.as_deref_mut(), attended.cache, heads)?;
            let done = attention(e, attended, &heads, selection.as_ref())?;
            let (out, done, location) = match attended.latent {
                None => (attended.out, done, Location::Splits),
                Some(of) => (of.out, latents::values(e, attended.cache, &of, done)?, Location::Attended),
            };
            values.locations.insert(out, location);
            values.complete(out, device, vec![done]);
        }
        LoweredNode::Routed(routed) => {
            let (input, ready) = values.input(e, &routed.input, &format!("layers.{layer}.router"))?;
            let done = experts::route(e, layer, routed, input, &ready)?;
            values.complete(routed.ids, device, vec![done]);
        }
        LoweredNode::Gated(gated) => {
            let (input, ready) = values.input(e, &gated.input, &format!("layers.{layer}.mlp"))?;
            let (done, location) = match gated.gate.experts {
                None => {
                    let width = gated.width() / e.devices();
                    (gate_up(e, layer, gated, input, &ready)?, Location::Inner(width))
                }
                // The choice was made by what the experts read.
                Some(ids) => (experts::gate_up(e, layer, gated, input, values.ready(ids, device))?, Location::Experts),
            };
            values.locations.insert(gated.out, location);
            values.complete(gated.out, device, vec![done]);
        }
        LoweredNode::Embed { .. } | LoweredNode::Added(_) | LoweredNode::Choice(_) => {}
    }
    Ok(())
}

/// Adds the level of q, k and v; returns the completion condition of each kv head's group.
fn qkv(
    e: &mut Emitter,
    heads: &LayerHeads<'_>,
    input: LinearInput,
    ready: &[LevelDone],
) -> Result<Vec<LevelDone>, LowerError> {
    let layer = heads.cache;
    let [k_pool, v_pool] = e.pools(layer);
    let [wq, wk, wv] = heads.products.map(|product| e.weights().projection(&product));
    let (q, k) = match e.state().raw {
        Some([q, k]) => (q, KeyOutput::Raw { out: k }),
        None => (e.state().q, KeyOutput::RopeAppend { rope: e.weights().rotation(heads.rope), pool: k_pool }),
    };
    let shape = GroupShape { group: e.spec.group(), head_dim: e.spec.head_dim };
    let tasks = tiling::tasks_per_group(e.spec.kv_heads, shape.strips(), e.sms());
    let head = |kv_head| {
        let ops = tiling::partition(shape.strips(), tasks).into_iter().map(|strips| {
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
        HeadTasks { ops: ops.collect(), ready: ready.to_vec() }
    };
    let tasks: Vec<HeadTasks> = (0..e.spec.kv_heads).map(head).collect();
    let name = format!("layers.{layer}.qkv");
    // Norms of heads together wait for all of them.
    if heads.head_norms.is_some_and(|norms| norms.together) {
        let done = e.level(&name, tasks.into_iter().flat_map(|head| head.ops).collect(), ready)?;
        return Ok(vec![done; e.spec.kv_heads]);
    }
    e.level_of_heads(&name, tasks)
}

/// Norms and rotations of heads, where they are levels of their own.
fn rope(e: &mut Emitter, heads: &LayerHeads<'_>, ready: Vec<LevelDone>) -> Result<Vec<LevelDone>, LowerError> {
    let (Some([q_raw, k_raw]), Some(norms)) = (e.state().raw, heads.head_norms) else { return Ok(ready) };
    let HeadNorms { tensors: [q_norm, k_norm], together } = norms;
    if together && e.devices() > 1 {
        return Err(LowerError::SharedHeads { devices: e.devices() });
    }
    let layer = heads.cache;
    let group = e.spec.group();
    let [k_pool, _] = e.pools(layer);
    let tasks = |(kv_head, ready)| {
        let head = |x, norm: NormTensor<'_>, head: usize, output| {
            Op::from(Rope {
                x,
                norm: Some(NormWeight { weight: e.weights().get(norm.weight), eps: norm.eps }),
                columns: None,
                rope: Some(e.weights().rotation(heads.rope)),
                pairs: RopePairs::Halves,
                heads: Span::one(head),
                rows: e.rows(),
                at: e.host.at.clone(),
                output,
            })
        };
        let queries = (kv_head * group..(kv_head + 1) * group)
            .map(|q| head(q_raw, q_norm, q, HeadOutput::Store { out: e.state().q }));
        let key = head(k_raw, k_norm, kv_head, HeadOutput::Append { pool: k_pool });
        HeadTasks { ops: queries.chain([key]).collect(), ready: vec![ready] }
    };
    let tasks = ready.into_iter().enumerate().map(tasks).collect();
    e.level_of_heads(&format!("layers.{layer}.rope"), tasks)
}

/// What an indexer adds.
fn index(
    e: &mut Emitter,
    indexer: Option<&mut (dyn Indexer + '_)>,
    layer: usize,
    heads: Vec<LevelDone>,
) -> Result<Selected, LowerError> {
    let Some(indexer) = indexer else { return Ok(Selected { ready: heads, selection: None }) };
    let selected = indexer.layer(&mut LayerTasks::new(e, layer, &heads))?;
    let found = selected.ready.len();
    let expected = heads.len();
    if found == expected { Ok(selected) } else { Err(LowerError::Heads { found, expected }) }
}

fn attention(
    e: &mut Emitter,
    attended: &LayerAttention<'_>,
    heads: &[LevelDone],
    selection: Option<&Selection>,
) -> Result<LevelDone, LowerError> {
    let &LayerAttention { cache: layer, scale, modifier, sinks, .. } = attended;
    let sinks = sinks.map(|sinks| e.weights().get(sinks));
    let [k_pool, v_pool] = e.pools(layer);
    let blocks = tiling::partition(e.options.rows, e.sms().div_ceil(e.spec.kv_heads));
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
                    soft_cap: modifier.soft_cap,
                    window: modifier.window.filter(|&window| (window as usize) < e.options.context),
                    sinks,
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

fn gate_up(
    e: &mut Emitter,
    layer: usize,
    gated: &Gated<'_>,
    input: LinearInput,
    ready: &[LevelDone],
) -> Result<LevelDone, LowerError> {
    let Gated { gate, up, activation, .. } = gated;
    let name = match up {
        Some(up) => format!("layers.{layer}.{}_{}", gate.role.name(), up.role.name()),
        None => format!("layers.{layer}.{}", ProductRole::Up.name()),
    };
    let projection = e.weights().projection(gate);
    let up = up.map(|up| e.weights().projection(&up));
    let features = gated.width() / e.devices();
    let out = e.state().mlp(features).ok_or(LowerError::Value { value: gated.out.index() })?;
    let output = LinearOutput::Gated {
        activation: *activation,
        up: up.as_ref().map(|up| up.weight),
        up_bias: up.and_then(|up| up.bias),
        out,
    };
    linear(e, LinearLevel { name: &name, joint: None, input, projection, features, output, ready })
}
