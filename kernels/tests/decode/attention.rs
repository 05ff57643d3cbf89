//! Attention over splits of the pages, merged: groups, head dims, page sizes, splits and idle rows at random.

use half::bf16;
use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::{Bound, Draw, Expected, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::decode::{Array, Attention, Float, Heads, Merged, Pages, Team, attention};
use tilewright_kernels::naive;

use crate::paged::Paged;
use crate::right;
use crate::stored::{self, UNIT};
use crate::supply::scratch;
use crate::survivors::survivors;

#[derive(Clone, Debug)]
struct Case {
    heads: Heads,
    warps: u32,
    q: Float,
    out: Float,
    /// Whether the result carries its arrival.
    tagged: bool,
    paged: Paged,
    /// Fewest pages of a split.
    least: u32,
    position: Vec<i32>,
}

/// The generation of a tagged result: a number in both types.
const TAG: u32 = 0x3f80_0000;

impl Case {
    fn draw(draw: &mut Draw) -> Case {
        let (kv_heads, group) = (draw.between(1..=2), draw.between(1..=16));
        let dim = 8 * [draw.between(1..=4), draw.between(1..=32), 8, 16][draw.between(0..=3) as usize];
        let heads = Heads {
            heads: kv_heads * group,
            kv_heads,
            dim,
            splits: [draw.between(1..=4), draw.between(1..=20)][draw.between(0..=1) as usize],
        };
        let (rows, most) = (draw.between(1..=3), [1, 40, 150][draw.between(0..=2) as usize]);
        // One in four rows is idle, some are at their first token.
        let position: Vec<i32> =
            (0..rows).map(|_| if draw.between(0..=3) == 0 { -1 } else { draw.between(0..=most - 1) as i32 }).collect();
        let page_tokens = 16 * draw.between(1..=4);
        let paged = Paged::draw(draw, rows, most, [kv_heads, page_tokens, dim]);
        let (warps, q) = (draw.between(1..=5), stored::float(draw));
        let out = [Float::F32, Float::Bf16][draw.between(0..=1) as usize];
        Case { heads, warps, q, out, tagged: draw.between(0..=1) == 0, paged, least: draw.between(1..=2), position }
    }

    fn record(&self, k: &Builder) {
        let (q, [keys, values]) = (k.global::<u8>("q"), ["keys", "values"].map(|name| k.global::<u8>(name)));
        let (position, table) = (k.global::<i32>("position"), k.global::<i32>("table"));
        let pages = |pool| Pages {
            split_pages: self.least,
            ..self.paged.pages(Array::new(pool, Float::Bf16), position, table)
        };
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
            merged: Merged { out: self.result(k), arrivals: k.global("arrivals") },
        };
        attention(team, scratch(team, self.heads.scratch_bytes(self.warps), 1, 1), work, || ());
    }

    fn scale(&self) -> f32 {
        1.0 / (self.heads.dim as f32).sqrt()
    }

    /// The result, as readers have it.
    fn result<'k>(&self, k: &'k Builder) -> Array<'k> {
        let out = Array::new(k.global::<u8>("out"), self.out).strong();
        if self.tagged { out.tagged(k.lit(TAG)) } else { out }
    }

    /// The attention of every row and head; idle rows have zeros.
    fn oracle(&self, q: &[f64], keys: &[bf16], values: &[bf16]) -> Vec<f64> {
        let Heads { heads, kv_heads, dim, .. } = self.heads;
        let of = |(at, q): (usize, &[f64])| {
            let (row, head) = (at / heads as usize, at % heads as usize);
            let (kv_head, table) = (head / (heads / kv_heads) as usize, self.paged.row(row));
            let gather = |pool: &[bf16]| -> Vec<f64> {
                let token = |t| &pool[self.paged.shape.offset(kv_head, &table, t)..][..dim as usize];
                (0..(self.position[row] + 1).max(0) as usize).flat_map(token).map(|v| v.to_f64()).collect()
            };
            let all = naive::attention(q, &gather(keys), &gather(values), f64::from(self.scale()));
            naive::combine(&[all], dim as usize)
        };
        q.chunks(dim as usize).enumerate().flat_map(of).collect()
    }

    /// Splits of a row that have tokens.
    fn active(&self, row: usize) -> u32 {
        let pages = (self.position[row] + 1).max(0).cast_unsigned().div_ceil(self.paged.shape.page_tokens as u32);
        pages.div_ceil(pages.div_ceil(self.heads.splits).max(self.least))
    }

    /// Counts of arrivals before the launch and behind it, the first launches and the last before they wrap.
    fn arrivals(&self, draw: &mut Draw) -> [Vec<u32>; 2] {
        let all = self.heads.splits.next_power_of_two();
        let mut counts = [Vec::new(), Vec::new()];
        for at in 0..self.position.len() * self.heads.kv_heads as usize {
            let before = all * [0, draw.between(0..=9), (u32::MAX / all).max(1)][draw.between(0..=2) as usize];
            let merges = self.active(at / self.heads.kv_heads as usize) > 1;
            let after = if merges { before.wrapping_add(all) } else { before };
            let rest = vec![7; Merged::ARRIVAL as usize - 1];
            counts.iter_mut().zip([before, after]).for_each(|(counts, count)| {
                counts.push(count);
                counts.extend(&rest);
            });
        }
        counts
    }

    /// The stored result: every word of a tagged one beside the generation.
    fn stored(&self, result: &[f64]) -> Vec<f64> {
        match (self.tagged, self.out) {
            (false, _) => result.to_vec(),
            (true, Float::F32) => result.iter().flat_map(|&x| [x, 1.0]).collect(),
            (true, _) => result.chunks(2).flat_map(|pair| [pair[0], pair[1], 0.0, 1.0]).collect(),
        }
    }

    fn trial(&self, draw: &mut Draw) -> Trial {
        let Heads { heads, kv_heads, dim, splits } = self.heads;
        let rows = self.position.len();
        let q = stored::numbers(draw, self.q, rows as u32 * heads * dim, 2.0);
        let [keys, values] = [0, 1].map(|_| self.paged.fill(draw, &self.position));
        let result = self.oracle(&q, &keys, &values);
        // A score: queries in two parts of bf16, products in f32. A weight: twice the score's error (the maximum has
        // it too), the exponential, and the two parts that multiply values. The result divides by their sum.
        let tokens = f64::from(self.position.iter().max().map_or(0, |p| p + 1));
        let score = 2.0 * f64::from(dim).sqrt() * (2f64.powi(-16) + f64::from(dim) * UNIT);
        let weight = 2.0 * score + 2f64.powi(-16) + (tokens + 40.0) * UNIT;
        let bound = Bound { absolute: 2.0 * weight, relative: 0.0 };

        let kernel = record("attention", Arch::Sm80, block(self.warps * 32), |k| self.record(k));
        let kernel = verify(kernel).unwrap_or_else(|errors| panic!("{errors}"));
        let mut trial = Trial::new(kernel, kv_heads * splits).note(format!("{self:?}"));
        let q = stored::input(&mut trial, "q", self.q, &q);
        let (keys, values) = (trial.input("keys", &keys), trial.input("values", &values));
        let position = trial.input("position", &self.position);
        let table = trial.input("table", &self.paged.table);
        let parts = rows * (heads * splits) as usize;
        let (acc, stats) =
            (trial.scratch::<f32>("acc", parts * dim as usize), trial.scratch::<f32>("stats", parts * 2));
        let out = stored::output(&mut trial, "out", self.out, &self.stored(&result), bound);
        let [before, after] = self.arrivals(draw);
        let arrivals = trial.changed("arrivals", &before, Expected::exact(&after));
        [q, keys, values, position, table, acc, stats, out, arrivals].into_iter().fold(trial, Trial::pass)
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

#[test]
fn mutants_are_found_out() {
    let several = |case: &Case| {
        let merges = (0..case.position.len()).filter(|&row| case.active(row) > 1).count();
        case.warps > 1 && !case.tagged && case.position.iter().filter(|&&p| p > 64).count() > 1 && merges > 1
    };
    let seed = (0..1000).find(|&seed| several(&Case::draw(&mut Draw::new(seed)))).expect("a case");
    let mut draw = Draw::new(seed);
    let trial = Case::draw(&mut draw).trial(&mut draw);
    // The result is stored strongly for kernels in which other blocks overwrite it later: here nobody does.
    let needed = |mutant: &String| !(mutant.contains("st.relaxed.gpu") && mutant.ends_with("weak"));
    let left: Vec<String> = survivors(&[trial], 10).into_iter().filter(needed).collect();
    assert_eq!(left, Vec::<String>::new());
}
