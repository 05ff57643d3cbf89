//! Rows whose largest logit is infinite, or whose logits are all NaN: every kernel that chooses gives
//! no token, and the likeliest of other rows beside them.

use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::{Draw, Expected, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::naive::{self, Sampling};
use tilewright_kernels::sample::{FeedShape, NO_TOKEN, Request, argmax_rows, best_rows, feed_rows, sample_rows};

use crate::{argmax, right, sample};

/// Tokens of a row.
const VOCAB: usize = 100;

/// Rows of logits, and the likeliest token of each.
fn rows() -> Vec<(Vec<f32>, Option<usize>)> {
    let [low, high, nan] = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN];
    let with = |all: f32, changes: &[(usize, f32)]| {
        let mut row = vec![all; VOCAB];
        changes.iter().for_each(|&(at, x)| row[at] = x);
        row
    };
    vec![
        (with(low, &[]), None),
        (with(high, &[]), None),
        (with(nan, &[]), None),
        (with(-nan, &[]), None),
        (with(low, &[(0, nan), (57, nan)]), None),
        (with(nan, &[(99, low)]), None),
        (with(1.0, &[(63, high)]), None),
        (with(nan, &[(2, 3.0), (40, high)]), None),
        (with(low, &[(71, high)]), None),
        (with(nan, &[(64, -5.0), (90, -6.0)]), Some(64)),
        (with(low, &[(33, f32::MIN)]), Some(33)),
        (with(low, &[(0, nan), (98, 0.0), (99, 0.0)]), Some(98)),
        (with(0.5, &[(12, f32::MAX), (13, nan), (14, low)]), Some(12)),
        (with(-0.0, &[(5, 0.0)]), Some(0)),
    ]
}

/// The logits of all rows.
fn logits() -> Vec<f32> {
    rows().into_iter().flat_map(|(row, _)| row).collect()
}

/// The tokens of all rows as kernels store them.
fn greedy() -> Vec<u32> {
    rows().into_iter().map(|(_, token)| token.map_or(NO_TOKEN, |token| token as u32)).collect()
}

/// Greedy, and three ways that draw: of all, of few, of the likely.
fn ways() -> [Sampling; 4] {
    let new = |top_k, top_p| Sampling::new(0.7, top_k, top_p, 5).expect("it makes sense");
    [Sampling::GREEDY, new(None, 1.0), new(Some(3), 1.0), new(None, 0.9)]
}

#[test]
fn the_oracle_chooses_nothing() {
    for (row, token) in rows() {
        assert_eq!(naive::sample(&row, &Sampling::GREEDY, 0, 0), token, "{row:?}");
        for way in ways() {
            assert_eq!(naive::sample(&row, &way, 3, 1).is_some(), token.is_some(), "{row:?}");
        }
    }
}

#[test]
fn the_best_of_the_tiles_is_nothing() {
    for warps in [1, 3, 8] {
        right(&argmax::case(&logits(), VOCAB as u32, warps), u64::from(warps));
    }
}

#[test]
fn a_task_that_samples_chooses_nothing() {
    for seed in 0..12 {
        right(&sample::case(&mut Draw::new(seed), &logits(), VOCAB as u32), seed);
    }
}

#[test]
fn a_launch_of_greedy_choices_chooses_nothing() {
    let count = rows().len() as u32;
    for warps in [1, 4, 32] {
        let mut trial = Trial::new(verify(argmax_rows(Arch::Sm80, warps)).unwrap(), count);
        let logits = trial.input("logits", &logits());
        let tokens = trial.output("tokens", Expected::exact(&greedy()));
        right(&trial.pass(VOCAB as u32).pass(VOCAB as u32).pass(logits).pass(tokens), u64::from(warps));
    }
}

#[test]
fn a_launch_that_samples_chooses_nothing() {
    let rows = rows();
    for way in ways() {
        let of = |row: usize| Request::new(&way, 9, row as u32);
        let requests: Vec<Request> = (0..rows.len()).map(of).collect();
        let chosen = rows.iter().zip(0..).map(|((row, _), at)| naive::sample(row, &way, 9, at));
        let chosen: Vec<u32> = chosen.map(|token| token.map_or(NO_TOKEN, |token| token as u32)).collect();
        let mut trial = Trial::new(verify(sample_rows(Arch::Sm80, 4)).unwrap(), rows.len() as u32);
        let logits = trial.input("logits", &logits());
        let requests = trial.input::<u32>("requests", bytemuck::cast_slice(&requests));
        let tokens = trial.output("tokens", Expected::exact(&chosen));
        let trial = trial.pass(VOCAB as u32).pass(VOCAB as u32).pass(logits).pass(requests).pass(tokens);
        right(&trial, u64::from(way.top_k().unwrap_or(0) as u32));
    }
}

/// The key that a product keeps of a tile: larger logits and, among equals, lower numbers are larger;
/// NaN counts as −∞.
fn key(logit: f32, token: usize) -> u64 {
    let bits = (if logit.is_nan() { f32::NEG_INFINITY } else { logit } + 0.0).to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ordered) << 32 | u64::from(!(token as u32))
}

#[test]
fn a_launch_of_the_best_keys_chooses_nothing() {
    let rows = rows();
    let keys: Vec<u64> =
        rows.iter().flat_map(|(row, _)| row.iter().zip(0..).map(|(&logit, token)| key(logit, token))).collect();
    let mut trial = Trial::new(verify(best_rows(Arch::Sm80)).unwrap(), rows.len() as u32);
    let keys = trial.input("keys", &keys);
    let tokens = trial.output("tokens", Expected::exact(&greedy()));
    right(&trial.pass(VOCAB as u32).pass(keys).pass(tokens), 0);
}

/// Its next token would be no row of the embedding: also where each of its ends is a token.
#[test]
fn a_row_without_a_token_is_idle_from_then_on() {
    for ends in [[-1, -1], [7, 8]] {
        let shape = FeedShape { rows: 2, ends: 2, requests: false, lines: 1 };
        let mut trial = Trial::new(verify(feed_rows(Arch::Sm80, shape)).unwrap(), 1);
        let chosen = trial.input("chosen", &[NO_TOKEN, 3]);
        let ends = trial.input("ends", &[ends, ends].concat());
        let token = trial.changed("token", &[5i32, 5], Expected::exact(&[-1, 3]));
        let position = trial.changed("position", &[4i32, 4], Expected::exact(&[-1, 5]));
        let length = trial.changed("length", &[5u32, 5], Expected::exact(&[0, 6]));
        let step = trial.changed("step", &[0u32], Expected::exact(&[1]));
        let history = trial.changed("history", &[9u32, 9], Expected::exact(&[NO_TOKEN, 3]));
        let trial = trial.pass(chosen).pass(ends).pass(token).pass(position).pass(length).pass(step).pass(history);
        right(&trial, 0);
    }
}
