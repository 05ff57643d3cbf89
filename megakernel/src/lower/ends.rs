//! The ends of a model: the embedding, the output projection and the choice of tokens.

use tilewright_graph::graph::Weight;
use tilewright_layout::DType;

use super::emit::Emitter;
use super::level::LevelDone;
use super::nodes::LoweredChoice;
use super::options::LowerError;
use super::residual::{Sum, sum};
use super::{state, tiling};
use crate::ops::{Argmax, Embed, Linear, LinearInput, LinearOutput, Sample, TableShard};
use crate::program::{BufferId, BufferKind, Op, Span};

/// The rows of the vocabulary that a device's tables have, where it has not all.
fn table_shard(e: &Emitter) -> Option<TableShard> {
    let vocab = e.spec.vocab;
    (e.devices() > 1).then(|| TableShard { first: e.device * vocab, vocab: e.devices() * vocab })
}

/// Gives, for each device, when the residual stream is complete.
pub(super) fn embed(e: &mut Emitter, ids: BufferId, embedding: Embedding<'_>) -> Result<Vec<LevelDone>, LowerError> {
    let joint = e.joint("embed");
    let Embedding { table, scale } = embedding;
    let scale = Some(scale).filter(|scale| *scale != 1.0);
    let done = e.each_device(|e, _| {
        let apart = e.destinations(|parts| &parts.residual).filter(|_| e.devices() > 1);
        let (out, sent) = apart.unwrap_or((e.state().residual, vec![]));
        let table = e.weights().get(table);
        let part = |rows| {
            Op::from(Embed {
                ids,
                position: e.host.at.position,
                table,
                scale,
                out,
                rows,
                cols: Span::all(e.spec.hidden),
                shard: table_shard(e),
                sent: sent.clone(),
            })
        };
        let ops = tiling::partition(e.options.rows, e.sms()).into_iter().map(part).collect();
        e.level_in(joint, "embed", ops, &[])
    })?;
    if e.devices() == 1 {
        return Ok(done);
    }
    sum(e, "embed.sum", done, |e| {
        let parts = &e.parts()?.residual;
        Some(Sum { parts, norm: None, residual: None, out: e.state().residual })
    })
}

/// The rows of the embedding.
#[derive(Clone, Copy)]
pub(super) struct Embedding<'n> {
    pub table: &'n Weight,
    pub scale: f32,
}

/// The output projection and the choice of the next token.
pub(super) struct OutputChoice<'c> {
    pub choice: &'c LoweredChoice<'c>,
    pub logits: BufferId,
    pub next_token: BufferId,
}

/// Emits the output projection and the choice of the next token, which is the first device's.
///
/// `inputs` are what the projection takes on each device, and when that is there.
pub(super) fn choose(
    e: &mut Emitter,
    inputs: &[(LinearInput, Vec<LevelDone>)],
    chosen: OutputChoice<'_>,
) -> Result<(), LowerError> {
    let OutputChoice { choice: &LoweredChoice { table, soft_cap, .. }, logits, next_token } = chosen;
    let rows = e.options.rows;
    let devices = e.devices();
    let tiles = tiling::features(e.spec.vocab, e.sms());
    let mut first = state::On { program: &mut e.program, device: 0 };
    let shape = [rows, devices * tiles.len()];
    let best_value = first.add("best.value", BufferKind::Activation, DType::F32, &shape);
    let best_index = first.add("best.index", BufferKind::Activation, DType::I32, &shape);
    let ready = e.each_device(|e, device| {
        let (input, ready) = &inputs[device];
        let weight = e.weights().get(table);
        let out = logits;
        let shard = table_shard(e);
        let tile = |(tile, &cols): (usize, &Span)| {
            let tile = device * tiles.len() + tile;
            let output = LinearOutput::Logits { soft_cap, out, shard, best_value, best_index, tile };
            Op::from(Linear { input: input.clone(), weight, bias: None, rows: Span::all(rows), cols, output })
        };
        let ops = tiles.iter().enumerate().map(tile).collect();
        e.level("logits", ops, ready)
    })?;
    e.device = 0;
    let value = best_value;
    let index = best_index;
    let out = next_token;
    let Some(request) = e.host.request else {
        let argmax = Op::from(Argmax { value, index, out, rows: Span::all(rows) });
        return e.last(vec![("argmax".to_owned(), argmax)], &ready);
    };
    // A row's choice reads all of its logits: rows are partitioned over the SMs.
    let position = e.host.at.position;
    let samples = tiling::partition(rows, e.sms()).into_iter().enumerate().map(|(at, rows)| {
        let sample = Sample { logits, value, index, position, request, out, rows };
        (format!("sample[{at}]"), Op::from(sample))
    });
    e.last(samples.collect(), &ready)
}
