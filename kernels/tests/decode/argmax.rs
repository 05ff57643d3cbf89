//! The best of the tiles' best.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::mutate::mutants;
use tilewright_codegen::trial::{Draw, Expected, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::naive::{self, Sampling};
use tilewright_kernels::sample::tiles::{Argmax, TileBests, argmax};
use tilewright_kernels::warps::ConsumerWarps;

use crate::right;

pub fn case(value: &[f32], tiles: u32, warps: u32) -> Trial {
    let rows = value.len() as u32 / tiles;
    // Tile t has the tokens 10·t ..+10; its best is any of them.
    let index: Vec<i32> = (0..rows * tiles).map(|at| (at % tiles * 10 + at * 7 % 10) as i32).collect();
    let best = value
        .chunks(tiles as usize)
        .zip(index.chunks(tiles as usize))
        .map(|(value, index)| naive::sample(value, &Sampling::GREEDY, 0, 0).map_or(-1, |best| index[best]));
    let best: Vec<i32> = best.collect();
    let kernel = record("tiles", Arch::Sm80, block(warps * 32), |k| {
        let value = k.global("value");
        let index = k.global("index");
        let out = k.global("out");
        let bests = TileBests { value, index, tiles };
        argmax(ConsumerWarps::new(k, warps), Argmax { bests, out, rows, first_row: k.lit(0) });
    });
    let mut trial = Trial::new(verify(kernel).unwrap(), 1).note(format!("{rows} rows of {tiles}, {warps} warps"));
    let value = trial.input("value", value);
    let index = trial.input("index", &index);
    let out = trial.output("out", Expected::exact(&best));
    trial.pass(value).pass(index).pass(out)
}

#[test]
fn the_best_of_random_tiles() {
    for seed in 0..40 {
        let mut draw = Draw::new(seed);
        let rows = draw.between(1..=16);
        let tiles = draw.between(1..=150);
        let warps = draw.between(1..=8);
        let value = match draw.between(0..=1) {
            0 => draw.floats((rows * tiles) as usize, |v| v as f32),
            _ => draw.integers((rows * tiles) as usize, 2, |v| v as f32),
        };
        right(&case(&value, tiles, warps), seed);
    }
}

#[test]
fn zeros_are_equal_whatever_their_sign_and_a_nan_is_the_least() {
    right(&case(&[-0.0, 0.0, -0.0, f32::NAN, f32::NEG_INFINITY, f32::NAN], 3, 1), 0);
}

/// A warp for each row, and nothing to wait for: no synchronisation could be missing.
#[test]
fn there_is_nothing_to_remove() {
    let trial = case(&[1.0; 3 * 150], 150, 4);
    assert!(mutants(trial.kernel().kernel()).is_empty());
}
