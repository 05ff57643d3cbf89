//! The choices that rows ask for: the oracle's, one row after the other through the same scratch.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::{Draw, Expected, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::naive::{self, Sampling};
use tilewright_kernels::sample::tiles::{Sample, TileBests, sample};
use tilewright_kernels::sample::{Request, SampleScratch};
use tilewright_kernels::warps::ConsumerWarps;

use crate::right;

/// Tokens of a tile.
const TILE: usize = 16;

/// The sampling request of a row: greedy, or at random among all tokens, some, or the likely ones.
fn request(draw: &mut Draw, row: u32) -> Request {
    let temperature = [0.0, 0.5, 1.0, 8.0][draw.between(0..=3) as usize];
    let top_k = [None, Some(1), Some(7), Some(100_000)][draw.between(0..=3) as usize];
    let top_p = [1.0, 0.1, 0.9][draw.between(0..=2) as usize];
    let sampling = Sampling::new(temperature, top_k, top_p, draw.bits()).unwrap();
    Request::new(&sampling, draw.bits() >> draw.between(0..=63), row + draw.between(0..=9))
}

fn random(draw: &mut Draw) -> Trial {
    let rows = draw.between(1..=5);
    let vocab = draw.between(1..=600);
    let logits = match draw.between(0..=1) {
        0 => draw.floats((rows * vocab) as usize, |v| v as f32 * 4.0),
        _ => draw.integers((rows * vocab) as usize, 3, |v| v as f32),
    };
    case(draw, &logits, vocab)
}

/// The choice for rows of these logits, some of them idle, as drawn.
pub fn case(draw: &mut Draw, logits: &[f32], vocab: u32) -> Trial {
    let rows = logits.len() as u32 / vocab;
    let warps = [1, 2, 4, 8][draw.between(0..=3) as usize];
    let tiles = vocab.div_ceil(TILE as u32);
    let mut value = vec![];
    let mut index = vec![];
    let mut chosen = vec![];
    let mut requests = vec![];
    let mut positions = vec![];
    for (row, logits) in logits.chunks(vocab as usize).enumerate() {
        for (tile, part) in logits.chunks(TILE).enumerate() {
            let best = naive::argmax(part).expect("a tile");
            value.push(part[best]);
            index.push((tile * TILE + best) as i32);
        }
        let request = request(draw, row as u32);
        positions.push(draw.between(0..=9) as i32 - 2);
        let token = naive::sample(logits, &request.sampling().unwrap(), request.step, request.row);
        chosen.push(token.filter(|_| positions[row] >= 0).map_or(-1, |token| token as i32));
        requests.push(request);
    }
    let kernel = record("choices", Arch::Sm80, block(warps * 32), |k| {
        let scratch = SampleScratch::new(k.shared("scratch", SampleScratch::BYTES / 8));
        let logits = k.global("logits");
        let value = k.global("value");
        let index = k.global("index");
        let position = k.global("position");
        let requests = k.global("requests");
        let out = k.global("out");
        let first_row = k.lit(0);
        let bests = TileBests { value, index, tiles };
        let rows = Sample { logits, vocab, bests, position, requests, out, rows, first_row };
        sample(ConsumerWarps::new(k, warps), scratch, rows, None);
    });
    let mut trial = Trial::new(verify(kernel).unwrap(), 1).note(format!("{rows} rows of {vocab}, {warps} warps"));
    let logits = trial.input("logits", logits);
    let value = trial.input("value", &value);
    let index = trial.input("index", &index);
    let position = trial.input("position", &positions);
    let requests = trial.input::<u32>("requests", bytemuck::cast_slice(&requests));
    let out = trial.output("out", Expected::exact(&chosen));
    trial.pass(logits).pass(value).pass(index).pass(position).pass(requests).pass(out)
}

#[test]
fn rows_get_what_they_ask_for() {
    for seed in 0..60 {
        right(&random(&mut Draw::new(seed)), seed);
    }
}
