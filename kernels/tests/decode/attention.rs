//! Attention over splits of the pages: groups, head dims, page sizes, splits and idle rows at random.

use half::bf16;
use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::mutate::Equivalent;
use tilewright_codegen::trial::{Bound, Draw, Expected, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::decode::{Array, Attention, Float, Heads, Team, attention};
use tilewright_kernels::naive;

use crate::paged::Paged;
use crate::stored::{self, UNIT};
use crate::supply::scratch;
use crate::{right, surveyed};

#[derive(Clone, Debug)]
struct Case {
    heads: Heads,
    warps: u32,
    q: Float,
    paged: Paged,
    position: Vec<i32>,
}

impl Case {
    fn draw(draw: &mut Draw) -> Case {
        let (kv_heads, group) = (draw.between(1..=2), draw.between(1..=16));
        let dim = 8 * [draw.between(1..=4), draw.between(1..=32), 8, 16][draw.between(0..=3) as usize];
        let heads = Heads { heads: kv_heads * group, kv_heads, dim, splits: draw.between(1..=4) };
        let (rows, most) = (draw.between(1..=3), [1, 40, 150][draw.between(0..=2) as usize]);
        // One in four rows is idle, some are at their first token.
        let position: Vec<i32> =
            (0..rows).map(|_| if draw.between(0..=3) == 0 { -1 } else { draw.between(0..=most - 1) as i32 }).collect();
        let page_tokens = 16 * draw.between(1..=4);
        let paged = Paged::draw(draw, rows, most, [kv_heads, page_tokens, dim]);
        Case { heads, warps: draw.between(1..=5), q: stored::float(draw), paged, position }
    }

    fn record(&self, k: &Builder) {
        let (q, [keys, values]) = (k.global::<u8>("q"), ["keys", "values"].map(|name| k.global::<u8>(name)));
        let (position, table) = (k.global::<i32>("position"), k.global::<i32>("table"));
        let pages = |pool| self.paged.pages(Array::new(pool, Float::Bf16), position, table);
        let team = Team::new(k, self.warps);
        let work = Attention {
            heads: self.heads,
            rows: self.position.len() as u32,
            first_row: k.lit(0),
            kv_head: k.block_id() / self.heads.splits,
            split: k.block_id() % self.heads.splits,
            scale: self.scale(),
            q: Array::new(q, self.q),
            keys: pages(keys),
            values: pages(values),
            acc: k.global("acc"),
            stats: k.global("stats"),
        };
        attention(team, scratch(team, self.heads.scratch_bytes(self.warps), 1, 1), work);
    }

    fn scale(&self) -> f32 {
        1.0 / (self.heads.dim as f32).sqrt()
    }

    /// The sums and the `m, l` of every row, head and split.
    fn oracle(&self, q: &[f64], keys: &[bf16], values: &[bf16]) -> (Vec<f64>, Vec<f64>) {
        let Heads { heads, kv_heads, dim, splits } = self.heads;
        let (mut acc, mut stats) = (Vec::new(), Vec::new());
        for (at, q) in q.chunks(dim as usize).enumerate() {
            let (row, head) = (at / heads as usize, at % heads as usize);
            let (kv_head, table) = (head / (heads / kv_heads) as usize, self.paged.row(row));
            let tokens = (self.position[row] + 1).max(0) as usize;
            for split in 0..splits as usize {
                let share = naive::split_tokens(tokens, self.paged.shape.page_tokens, splits as usize, split);
                let gather = |pool: &[bf16]| -> Vec<f64> {
                    let token = |t| &pool[self.paged.shape.offset(kv_head, &table, t)..][..dim as usize];
                    share.clone().flat_map(token).map(|v| v.to_f64()).collect()
                };
                let part = naive::attention(q, &gather(keys), &gather(values), f64::from(self.scale()));
                acc.extend(part.acc);
                stats.extend([part.max, part.sum]);
            }
        }
        (acc, stats)
    }

    fn trial(&self, draw: &mut Draw) -> Trial {
        let Heads { heads, kv_heads, dim, splits } = self.heads;
        let q = stored::numbers(draw, self.q, self.position.len() as u32 * heads * dim, 2.0);
        let [keys, values] = [0, 1].map(|_| self.paged.fill(draw, &self.position));
        let (acc, stats) = self.oracle(&q, &keys, &values);
        // A score: queries in two parts of bf16, products in f32. A weight: twice the score's error (the maximum has
        // it too), the exponential, and the two parts that multiply values.
        let tokens = f64::from(self.position.iter().max().map_or(0, |p| p + 1));
        let score = 2.0 * f64::from(dim).sqrt() * (2f64.powi(-16) + f64::from(dim) * UNIT);
        let weight = 2.0 * score + 2f64.powi(-16) + (tokens + 40.0) * UNIT;
        let bound = Bound { absolute: score + tokens * weight, relative: 0.0 };

        let kernel = record("attention", Arch::Sm80, block(self.warps * 32), |k| self.record(k));
        let kernel = verify(kernel).unwrap_or_else(|errors| panic!("{errors}"));
        let mut trial = Trial::new(kernel, kv_heads * splits).note(format!("{:?}, {:?}", self.heads, self.position));
        let q = stored::input(&mut trial, "q", self.q, &q);
        let (keys, values) = (trial.input("keys", &keys), trial.input("values", &values));
        let position = trial.input("position", &self.position);
        let table = trial.input("table", &self.paged.table);
        let acc = trial.output("acc", Expected::near::<f32>(&acc, bound));
        let stats = trial.output("stats", Expected::near::<f32>(&stats, bound));
        [q, keys, values, position, table, acc, stats].into_iter().fold(trial, Trial::pass)
    }
}

#[test]
fn random_heads_and_pages() {
    for seed in 0..60 {
        let mut draw = Draw::new(seed);
        let case = Case::draw(&mut draw);
        right(&case.trial(&mut draw), seed);
    }
}

/// What attention alone does not need.
const LEDGER: &[Equivalent] = &[Equivalent::new(
    "decode/attention.rs",
    "st.relaxed.gpu",
    "weak",
    "partial results are stored strongly for kernels in which other blocks overwrite them later: here nobody does",
)];

#[test]
fn mutants_are_found_out() {
    let several = |case: &Case| case.warps > 1 && case.position.iter().filter(|&&p| p > 64).count() > 1;
    let seed = (0..1000).find(|&seed| several(&Case::draw(&mut Draw::new(seed)))).expect("a case");
    let mut draw = Draw::new(seed);
    let trial = Case::draw(&mut draw).trial(&mut draw);
    surveyed(&trial, LEDGER);
}
