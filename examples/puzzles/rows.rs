//! Rows of matrices, as models have them: a block a row.

use tilewright::codegen::build::{Builder, block};
use tilewright::codegen::trial::Draw;
use tilewright::codegen::verify::VerifyErrors;
use tilewright::kernels::collective::Block;
use tilewright::kernels::math;

use super::case::{Case, Puzzle, fractions, whole};

pub const PUZZLES: [Puzzle; 5] = [
    Puzzle { name: "row_sums", check: check_row_sums },
    Puzzle { name: "softmax", check: check_softmax },
    Puzzle { name: "layer_norm", check: check_layer_norm },
    Puzzle { name: "rotary", check: check_rotary },
    Puzzle { name: "attention", check: check_attention },
];

/// `out[i] = Σⱼ x[i, j]` for rows of n numbers, any n: the 64 threads of a block step through it.
fn row_sums(k: &Builder) {
    let n = k.param::<u32>("n");
    let row = k.global::<f32>("x").at(k.block_id() * n);
    let mine = k.var(0.0f32);
    k.for_step(k.tid(), n, 64u32, |j| mine.update(|sum| sum + row.at(j).load()));
    let sum = Block::new(k).reduce(mine.get(), |a, b| a + b);
    k.when(k.tid().eq(0), || k.global::<f32>("out").at(k.block_id()).store(sum));
}

fn check_row_sums(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let n = draw.between(1..=200);
    let x = whole(draw, 3 * n, 100);
    let out: Vec<f32> = x.chunks(n as usize).map(|row| row.iter().sum()).collect();
    Ok(Case::new("row_sums", block(64), 3, row_sums)?.number(n).input("x", &x).output("out", &out))
}

/// `y[i, j] = exp(x[i, j] − mᵢ) / Σ exp(x[i, ·] − mᵢ)` for rows of 128 numbers, where mᵢ is the
/// row's largest: it keeps the exponentials from overflowing.
fn softmax(k: &Builder) {
    let at = k.block_id() * 128 + k.tid();
    let x = k.global::<f32>("x").at(at).load();
    let most = Block::new(k).reduce(x, |a, b| a.max(b));
    let power = math::exp(x - most);
    let sum = Block::new(k).reduce(power, |a, b| a + b);
    k.global::<f32>("y").at(at).store(power / sum);
}

fn check_softmax(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 3 * 128, 100);
    let row = |row: &[f32]| {
        let most = row.iter().copied().fold(f32::MIN, f32::max);
        let powers: Vec<f64> = row.iter().map(|&x| f64::from(x - most).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.into_iter().map(move |power| power / sum)
    };
    let y: Vec<f64> = x.chunks(128).flat_map(row).collect();
    Ok(Case::new("softmax", block(128), 3, softmax)?.input("x", &x).near("y", &y))
}

/// `y = (x − mean) / √(variance + 10⁻⁵) · w + b` for rows of 64 numbers. One reduction of pairs
/// gives the sums of x and of x².
fn layer_norm(k: &Builder) {
    let at = k.block_id() * 64 + k.tid();
    let x = k.global::<f32>("x").at(at).load();
    let [w, b] = ["w", "b"].map(|name| k.global::<f32>(name).at(k.tid()).load());
    let (sum, squares) = Block::new(k).reduce((x, x * x), |a, b| (a.0 + b.0, a.1 + b.1));
    let mean = sum / 64.0;
    let variance = squares / 64.0 - mean * mean;
    k.global::<f32>("y").at(at).store(((x - mean) * math::rsqrt(variance + 1e-5)).fma(w, b));
}

fn check_layer_norm(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let [x, w, b] = [3 * 64, 64, 64].map(|count| fractions(draw, count));
    let row = |row: &[f32]| -> Vec<f64> {
        let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / 64.0;
        let variance = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / 64.0;
        let normed = |(i, &x): (usize, &f32)| {
            (f64::from(x) - mean) / (variance + 1e-5).sqrt() * f64::from(w[i]) + f64::from(b[i])
        };
        row.iter().enumerate().map(normed).collect()
    };
    let y: Vec<f64> = x.chunks(64).flat_map(row).collect();
    let case = Case::new("layer_norm", block(64), 3, layer_norm)?;
    Ok(case.input("x", &x).input("w", &w).input("b", &b).near("y", &y))
}

/// Rotary embedding of a head of 64 numbers: the pair (x[i], x[i + 32]) turns by the angle
/// `position / 10000^(i/32)`. A block a position.
fn rotary(k: &Builder) {
    let i = k.tid();
    let head = k.block_id() * 64 + i;
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name).at(head));
    let frequency = math::pow(k.lit(10000.0f32), i.cast::<f32>() / -32.0);
    let angle = k.block_id().cast::<f32>() * frequency;
    let (sin, cos) = (math::sin(angle), math::cos(angle));
    let (low, high) = (x.load(), x.at(32).load());
    y.store(low * cos - high * sin);
    y.at(32).store(high * cos + low * sin);
}

fn check_rotary(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = fractions(draw, 5 * 64);
    let turned = |at: usize| {
        let (position, i) = (at / 64, at % 32);
        let angle = position as f64 / 10000f64.powf(i as f64 / 32.0);
        let [low, high] = [0, 32].map(|half| f64::from(x[position * 64 + i + half]));
        if at % 64 < 32 { low * angle.cos() - high * angle.sin() } else { high * angle.cos() + low * angle.sin() }
    };
    let y: Vec<f64> = (0..x.len()).map(turned).collect();
    Ok(Case::new("rotary", block(32), 5, rotary)?.input("x", &x).near("y", &y))
}

/// Attention of one query of 64 numbers over n keys and values: `out = Σ pₜ · vₜ`, where
/// `pₜ = exp(sₜ − m) / Σ exp(s − m)` and `sₜ = q · kₜ / 8`. One pass: when a new score is the
/// largest, the sums of the past shrink by `exp(old m − new m)`.
fn attention(k: &Builder) {
    let n = k.param::<u32>("n");
    let [q, keys, values, out] = ["q", "keys", "values", "out"].map(|name| k.global::<f32>(name).at(k.tid()));
    let query = q.load() / 8.0;
    let start = (k.lit(f32::NEG_INFINITY), k.lit(0.0f32), k.lit(0.0f32));
    let (_, sum, weighted) = k.carry(0, n, start, |t, (most, sum, weighted)| {
        let score = Block::new(k).in_loop().reduce(query * keys.at(t * 64).load(), |a, b| a + b);
        let larger = most.max(score);
        let (shrink, power) = (math::exp(most - larger), math::exp(score - larger));
        (larger, sum.fma(shrink, power), weighted.fma(shrink, power * values.at(t * 64).load()))
    });
    out.store(weighted / sum);
}

fn check_attention(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let n = draw.between(1..=20);
    let q = whole(draw, 64, 3);
    let (keys, values) = (whole(draw, n * 64, 3), fractions(draw, n * 64));
    let dot = |key: &[f32]| key.iter().zip(&q).map(|(k, q)| f64::from(k * q)).sum::<f64>() / 8.0;
    let scores: Vec<f64> = keys.chunks(64).map(dot).collect();
    let most = scores.iter().copied().fold(f64::MIN, f64::max);
    let powers: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    let column = |i: usize| powers.iter().zip(values.chunks(64)).map(|(p, v)| p / sum * f64::from(v[i])).sum();
    let out: Vec<f64> = (0..64).map(column).collect();
    let case = Case::new("attention", block(64), 1, attention)?;
    Ok(case.number(n).input("q", &q).input("keys", &keys).input("values", &values).near("out", &out))
}
