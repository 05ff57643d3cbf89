//! The levels of a mixture of experts.

use super::emit::Emitter;
use super::level::LevelDone;
use super::linear::{LinearLevel, linear};
use super::nodes::{Gated, Routed};
use super::options::LowerError;
use super::state::ExpertBuffers;
use super::tiling::{self, STRIP};
use crate::model::ExpertSizes;
use crate::ops::{ExpertDown, ExpertGateUp, ExpertOutput, LinearInput, LinearOutput, Projection, Route, SlotStrips};
use crate::program::{CounterId, Op};

/// The buffers and the extents of the mixture of `count` experts.
fn mixture(e: &Emitter, count: Option<u64>, value: usize) -> Result<(ExpertBuffers, ExpertSizes), LowerError> {
    let mut mixtures = e.state().experts.iter().copied().zip(e.spec.mixtures());
    mixtures.find(|(_, sizes)| count == Some(sizes.count as u64)).ok_or(LowerError::Value { value })
}

/// The levels of the router and of the choice of experts.
pub(super) fn route(
    e: &mut Emitter,
    layer: usize,
    routed: &Routed<'_>,
    input: LinearInput,
    ready: &[LevelDone],
) -> Result<LevelDone, LowerError> {
    let (buffers, ExpertSizes { count, chosen, .. }) =
        mixture(e, routed.router.weight.shape.first().copied(), routed.ids.index())?;
    let prefix = prefix_of(count as u64);
    let name = format!("layers.{layer}.{prefix}{}", routed.router.role.name());
    let projection = e.weights().projection(&routed.router);
    let output = LinearOutput::Store { out: buffers.logits, sent: Vec::new() };
    let logits =
        linear(e, LinearLevel { name: &name, joint: None, input, projection, features: count, output, ready })?;
    let ExpertBuffers { logits: of, routes, .. } = buffers;
    let correction = routed.correction.map(|correction| e.weights().get(correction));
    let op = Op::from(Route { logits: of, routes, chosen, kind: routed.kind, correction, rows: e.rows() });
    e.level(&format!("layers.{layer}.{prefix}route"), vec![op], &[logits])
}

/// What the names of levels of a mixture begin with.
pub(super) fn prefix_of(count: u64) -> &'static str {
    if count == 1 { "shared." } else { "" }
}

/// The level of gate and up of the chosen experts. An SM takes every `step`-th strip, counted over
/// all slots: whatever number of slots is in use, all have as much work.
pub(super) fn gate_up(
    e: &mut Emitter,
    layer: usize,
    gated: &Gated<'_>,
    input: LinearInput,
    ready: &[LevelDone],
) -> Result<LevelDone, LowerError> {
    let Gated { gate, up: Some(up), activation, out, .. } = gated else {
        return Err(LowerError::Value { value: gated.out.index() });
    };
    let (buffers, ExpertSizes { count, chosen, inner }) = mixture(e, gate.weight.experts, out.index())?;
    if !inner.is_multiple_of(STRIP) {
        let devices = e.devices();
        return Err(LowerError::ExpertStrips { inner, devices });
    }
    let name = format!("layers.{layer}.{}{}_{}", prefix_of(count as u64), gate.role.name(), up.role.name());
    let slots = e.program.buffers[buffers.inner.index()].shape[1] / inner;
    let step = e.sms().min(slots * inner / STRIP);
    let strips = |first| SlotStrips { first, step };
    let [gate, up] = [gate, up].map(|product| e.weights().projection(product));
    let op = |first| {
        Op::from(ExpertGateUp {
            input: input.clone(),
            routes: buffers.routes,
            experts: count,
            chosen,
            gate: gate.weight,
            up: up.weight,
            gate_bias: gate.bias,
            up_bias: up.bias,
            activation: *activation,
            rows: e.rows(),
            strips: strips(first),
            out: buffers.inner,
        })
    };
    let ops = (0..step).map(op).collect();
    e.level(&name, ops, ready)
}

/// A level of the second product of the chosen experts.
pub(super) struct ExpertSum<'n> {
    /// The name of the level.
    pub name: &'n str,
    /// The counter that the tasks of all devices signal, where devices exchange the result.
    pub joint: Option<CounterId>,
    /// The number of experts.
    pub count: Option<u64>,
    /// The weights.
    pub projection: Projection,
    /// The destination of the sums.
    pub output: LinearOutput,
    /// The conditions under which the input is complete, the choice of experts first.
    pub ready: &'n [LevelDone],
}

/// The level of the second product of the chosen experts, by tiles of output features.
pub(super) fn down(e: &mut Emitter, sum: ExpertSum<'_>, value: usize) -> Result<LevelDone, LowerError> {
    let ExpertSum { name, joint, count, projection: Projection { weight, bias }, output, ready } = sum;
    let (buffers, ExpertSizes { count, chosen, .. }) = mixture(e, count, value)?;
    let output = match output {
        LinearOutput::Store { out, sent } => ExpertOutput::Store { out, sent },
        LinearOutput::Add { residual, out } => ExpertOutput::Add { residual, out },
        LinearOutput::Heads { .. } | LinearOutput::Gated { .. } | LinearOutput::Logits { .. } => {
            return Err(LowerError::Value { value });
        }
    };
    let tile = |cols| {
        let output = output.clone();
        let ExpertBuffers { inner: x, routes, .. } = buffers;
        Op::from(ExpertDown { x, routes, experts: count, chosen, weight, bias, rows: e.rows(), cols, output })
    };
    let ops = tiling::features(e.spec.hidden, e.sms()).into_iter().map(tile).collect();
    e.level_in(joint, name, ops, ready)
}
