//! Attention of many heads to one key of a token, whose beginning is its value: heads, dimensions,
//! page sizes, splits and idle rows at random.

use half::bf16;
use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::{Bound, Draw, Expected, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::attention::ScoreModifier;
use tilewright_kernels::attention::split::{
    HeadCounts, LatentForm, Merged, SplitAttention, SplitSignal, latent_attention,
};
use tilewright_kernels::gemv::activations::ActivationOutput;
use tilewright_kernels::kv::{PagedPool, SplitPages};
use tilewright_kernels::tile::{Array, Float};
use tilewright_kernels::warps::ConsumerWarps;

use crate::paged::Paged;
use crate::stored::{self, UNIT};
use crate::supply::scratch;
use crate::{right, surveyed};

#[derive(Clone, Debug)]
struct Case {
    heads: HeadCounts,
    form: LatentForm,
    warps: u32,
    paged: Paged,
    least: SplitPages,
    position: Vec<i32>,
}

const SCALE: f32 = 0.125;

impl Case {
    fn draw(draw: &mut Draw) -> Case {
        let dim = 16 * draw.between(1..=6);
        let key = dim + 16 * draw.between(0..=2);
        let blocks = draw.between(1..=2);
        let heads = HeadCounts {
            heads: blocks * draw.between(1..=40),
            kv_heads: blocks,
            dim,
            splits: [1, draw.between(1..=9)][draw.between(0..=1) as usize],
        };
        let form = LatentForm { key, tiles: draw.between(1..=3), exact: draw.between(0..=1) == 1 };
        let rows = draw.between(1..=3);
        let most = [1, 40, 150][draw.between(0..=2) as usize];
        let position =
            (0..rows).map(|_| if draw.between(0..=3) == 0 { -1 } else { draw.between(0..=most - 1) as i32 }).collect();
        let page_tokens = 16 * draw.between(1..=4);
        let paged = Paged::draw(draw, rows, most, [1, page_tokens, key]);
        let least = SplitPages { fewest: draw.between(1..=2), single: draw.between(0..=4) };
        Case { heads, form, warps: draw.between(1..=5), paged, least, position }
    }

    fn record(&self, k: &Builder) {
        let q = Array::new(k.global::<u8>("q"), Float::F32);
        let keys = Array::new(k.global::<u8>("keys"), Float::Bf16);
        let position = k.global::<i32>("position");
        let table = k.global::<i32>("table");
        let pages = PagedPool { split_pages: self.least, ..self.paged.pages(k, keys, position, table) };
        let work = SplitAttention {
            heads: self.heads,
            rows: self.position.len() as u32,
            first_row: k.lit(0),
            kv_head: k.block_id() / self.heads.splits,
            split: k.block_id() % self.heads.splits,
            scale: SCALE,
            modifier: ScoreModifier::NONE,
            custom: None,
            sinks: None,
            q,
            keys: pages,
            values: pages,
            acc: k.global("acc"),
            stats: k.global("stats"),
            streamed: None,
            selected: None,
            newest: None,
            merged: Merged {
                out: ActivationOutput::Rows(Array::new(k.global::<u8>("out"), Float::F32)),
                parts: SplitSignal::Counted(k.global("arrivals")),
            },
        };
        let consumers = ConsumerWarps::new(k, self.warps);
        let scratch = scratch(consumers, self.form.scratch_bytes(self.warps), 1, 1);
        latent_attention(consumers, scratch, work, self.form, || ());
    }

    /// The attention of every row and head; idle rows have zeros.
    fn oracle(&self, q: &[f64], keys: &[f64]) -> Vec<f64> {
        let HeadCounts { heads, dim, .. } = self.heads;
        let key = self.form.key as usize;
        let of = |(at, q): (usize, &[f64])| {
            let row = at / heads as usize;
            let table = self.paged.row(row);
            let token = |t| &keys[self.paged.shape.offset(0, &table, t)..][..key];
            let seen = 0..(self.position[row] + 1).max(0) as usize;
            let all: Vec<f64> = seen.clone().flat_map(token).copied().collect();
            let values: Vec<f64> = seen.flat_map(|t| &token(t)[..dim as usize]).copied().collect();
            let scores: Vec<f64> =
                all.chunks(key).map(|k| k.iter().zip(q).map(|(k, q)| k * q).sum::<f64>() * f64::from(SCALE)).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let column = |d: usize| {
                let sums = weights.iter().zip(values.chunks(dim as usize)).map(|(w, v)| w * v[d]);
                if sum == 0.0 { 0.0 } else { sums.sum::<f64>() / sum }
            };
            (0..dim as usize).map(column).collect::<Vec<_>>()
        };
        q.chunks(key).enumerate().flat_map(of).collect()
    }

    fn trial(&self, draw: &mut Draw) -> Trial {
        let HeadCounts { heads, kv_heads, dim, splits } = self.heads;
        let rows = self.position.len();
        let q = stored::numbers(draw, Float::F32, rows as u32 * heads * self.form.key, 1.0);
        let pool: Vec<bf16> = self.paged.fill(draw, &self.position);
        let keys: Vec<f64> = pool.iter().map(|x| x.to_f64()).collect();
        let result = self.oracle(&q, &keys);
        // A score: queries in one part of bf16 or in two; a weight has twice its error, and its own.
        let part = if self.form.exact { 2f64.powi(-16) } else { 2f64.powi(-8) };
        let key = f64::from(self.form.key);
        let score = f64::from(SCALE) * 2.0 * key.sqrt() * (part + key * UNIT);
        let tokens = f64::from(self.position.iter().max().map_or(0, |p| p + 1));
        let bound = Bound { absolute: 2.0 * (2.0 * score + part + (tokens + 40.0) * UNIT), relative: 0.0 };
        let kernel = record("latent_attention", Arch::Sm80, block(self.warps * 32), |k| self.record(k));
        let kernel = verify(kernel).unwrap_or_else(|errors| panic!("{errors}"));
        let mut trial = Trial::new(kernel, kv_heads * splits).note(format!("{self:?}"));
        let q = stored::input(&mut trial, "q", Float::F32, &q);
        let keys = trial.input("keys", &self.paged.swizzled(&pool));
        let position = trial.input("position", &self.position);
        let table = trial.input("table", &self.paged.table);
        let parts = rows * (heads * splits) as usize;
        let acc = trial.scratch::<f32>("acc", parts * dim as usize);
        let stats = trial.scratch::<f32>("stats", parts * 2);
        let out = stored::output(&mut trial, "out", Float::F32, &result, bound);
        let words = rows * (kv_heads * Merged::ARRIVAL) as usize;
        let arrivals = trial.changed("arrivals", &vec![0u32; words], Expected::anything::<u32>(words));
        [q, keys, position, table, acc, stats, out, arrivals].into_iter().fold(trial, Trial::pass)
    }
}

#[test]
fn random_heads_and_pages() {
    for seed in 0..40 {
        let mut draw = Draw::new(seed);
        let case = Case::draw(&mut draw);
        right(&case.trial(&mut draw), seed);
    }
}

/// The shape of DeepSeek-V3: keys of 576 whose first 512 are values, tiles of heads that share the
/// tokens, warps with columns of their own.
#[test]
fn heads_of_deepseek() {
    for (seed, [heads, tiles, warps]) in [[20, 2, 8], [128, 2, 8], [16, 1, 12]].into_iter().enumerate() {
        let mut draw = Draw::new(seed as u64);
        let heads = HeadCounts { heads, kv_heads: 1, dim: 512, splits: 2 };
        let form = LatentForm { key: 576, tiles, exact: seed == 0 };
        let paged = Paged::draw(&mut draw, 2, 40, [1, 16, 576]);
        let least = SplitPages { fewest: 1, single: 1 };
        let case = Case { heads, form, warps, paged, least, position: vec![39, 17] };
        right(&case.trial(&mut draw), seed as u64);
    }
}

/// Every barrier is necessary.
#[test]
fn mutants_are_found() {
    let mut draw = Draw::new(5);
    let heads = HeadCounts { heads: 20, kv_heads: 1, dim: 32, splits: 2 };
    let form = LatentForm { key: 48, tiles: 1, exact: true };
    let paged = Paged::draw(&mut draw, 2, 100, [1, 16, 48]);
    let least = SplitPages { fewest: 1, single: 1 };
    let case = Case { heads, form, warps: 3, paged, least, position: vec![99, 70] };
    surveyed(&case.trial(&mut draw), &[]);
}
