//! The residual stream: its buffers, what is added to it, and the norm of it.

use super::emit::Emitter;
use super::level::LevelDone;
use super::nodes::{NormTensor, StreamInput};
use super::options::LowerError;
use super::state::{ArrivingParts, Inlet, Outlet};
use super::tiling;
use crate::ops::{LayerNorm, LinearInput, Reduce, SumNorm};
use crate::program::{BufferId, Op};

/// A buffer of the residual stream. Each addition reads one and writes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResidualBuffer {
    /// What another stage gave.
    Input,
    /// After an even number of additions: before attention, where a layer has two.
    Even,
    /// After an odd number of additions.
    Odd,
    /// For another stage.
    Output,
}

/// The buffer of the residual stream on the emitter's device.
pub(super) fn buffer(e: &Emitter, residual: ResidualBuffer) -> BufferId {
    match (residual, e.host.inlet, e.host.outlet) {
        (ResidualBuffer::Input, Inlet::Hidden(hidden), _) | (ResidualBuffer::Output, _, Outlet::Hidden(hidden)) => {
            hidden
        }
        (ResidualBuffer::Odd, _, _) => e.state().middle,
        (ResidualBuffer::Even | ResidualBuffer::Input | ResidualBuffer::Output, _, _) => e.state().residual,
    }
}

/// Where the devices' parts of the residual stream arrive.
pub(super) fn parts_of(parts: &ArrivingParts, residual: ResidualBuffer) -> &Vec<BufferId> {
    match residual {
        ResidualBuffer::Odd => &parts.middle,
        ResidualBuffer::Input | ResidualBuffer::Even | ResidualBuffer::Output => &parts.residual,
    }
}

/// What a device sums.
pub(super) struct Sum<'a> {
    pub parts: &'a Vec<BufferId>,
    /// The norm of the sum.
    pub norm: Option<SumNorm>,
    /// What it is added to.
    pub residual: Option<BufferId>,
    pub out: BufferId,
}

/// The sum of the parts on each device, when all have been sent; where results are added as they
/// are made there is none to make.
pub(super) fn sum(
    e: &mut Emitter,
    name: &str,
    sent: Vec<LevelDone>,
    of: impl for<'e> Fn(&'e Emitter) -> Option<Sum<'e>>,
) -> Result<Vec<LevelDone>, LowerError> {
    if e.parts().is_none() {
        return Ok(sent);
    }
    let all = LevelDone::joined(&sent);
    e.each_device(|e, _| {
        let Some(Sum { parts, norm, residual, out }) = of(e) else { return Ok(sent[e.device]) };
        let parts = parts.clone();
        let rows = e.rows();
        let tile = |cols| Op::from(Reduce { parts: parts.clone(), residual, norm, out, rows, cols });
        let ops = tiling::features(e.spec.hidden, e.sms()).into_iter().map(tile).collect();
        e.level(name, ops, &all)
    })
}

/// The residual stream in `x`, or its norm, as the input of a linear layer; of a layer norm, which has
/// a level of its own, the buffer of that level.
pub(super) fn stream_input(e: &Emitter, input: &StreamInput<'_>, x: BufferId) -> Result<LinearInput, LowerError> {
    Ok(match input.norm {
        Some(NormTensor { weight, eps, layer: None }) => {
            LinearInput::RmsNorm { x, weight: e.weights().get(weight), eps }
        }
        Some(NormTensor { layer: Some(_), .. }) => {
            LinearInput::Plain { x: e.state().normed.ok_or(LowerError::Value { value: input.x.index() })? }
        }
        None => LinearInput::Plain { x },
    })
}

/// The level of a layer norm of the residual stream in `x`.
pub(super) fn layer_norm(
    e: &mut Emitter,
    name: &str,
    norm: &NormTensor<'_>,
    x: BufferId,
    ready: &[LevelDone],
) -> Result<LevelDone, LowerError> {
    let out = e.state().normed.ok_or(LowerError::Value { value: x.index() })?;
    let layer = norm.layer.map(|layer| LayerNorm { bias: layer.bias.map(|bias| e.weights().get(bias)) });
    let norm = Some(SumNorm { weight: e.weights().get(norm.weight), eps: norm.eps, layer });
    let rows = e.rows();
    let tile = |cols| Op::from(Reduce { parts: vec![x], residual: None, norm, out, rows, cols });
    let ops = tiling::features(e.spec.hidden, e.sms()).into_iter().map(tile).collect();
    e.level(name, ops, ready)
}
