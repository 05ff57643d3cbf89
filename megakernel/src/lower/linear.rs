//! A level of one linear layer.

use super::emit::Emitter;
use super::level::LevelDone;
use super::options::LowerError;
use super::tiling;
use crate::ops::{Linear, LinearInput, LinearOutput, Projection};
use crate::program::{CounterId, Op};

/// A level of one linear layer.
pub(super) struct LinearLevel<'n> {
    /// The name of the level.
    pub name: &'n str,
    /// The counter that the tasks of all devices signal, where devices exchange the result.
    pub joint: Option<CounterId>,
    /// The activations that the layer reads.
    pub input: LinearInput,
    /// The weights.
    pub projection: Projection,
    /// The number of output features.
    pub features: usize,
    /// The destination of the features.
    pub output: LinearOutput,
    /// The conditions under which the input is complete.
    pub ready: &'n [LevelDone],
}

/// Emits a level of one linear layer, by tiles of output features.
pub(super) fn linear(e: &mut Emitter, level: LinearLevel<'_>) -> Result<LevelDone, LowerError> {
    let LinearLevel { name, joint, input, projection, features, output, ready } = level;
    let Projection { weight, bias } = projection;
    let tile = |cols| {
        let input = input.clone();
        let output = output.clone();
        Op::from(Linear { input, weight, bias, rows: e.rows(), cols, output })
    };
    let ops = tiling::features(features, e.sms()).into_iter().map(tile).collect();
    e.level_in(joint, name, ops, ready)
}
