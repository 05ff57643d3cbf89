//! The expected results of a trial, in f64, with their error bounds.

use half::bf16;
use tilewright_codegen::trial::{Bound, Draw};

use super::{HopperPlan, WeightRows};
use crate::gemv::{GemvEpilogue, oracle};
use crate::naive::{self, PoolShape};
use crate::norm::SLOT;
use crate::quant::{Code, QuantMatrix, QuantParts, Zeros};
use crate::stored::{self, UNIT};
use crate::tile::Float;
use crate::weights::Codes;

/// Positions that a trial's table of rotations has.
const POSITIONS: u32 = 60;

/// The inputs of a trial, most of them from -1 to 1.
pub(super) struct Given {
    /// The weights; for codes, the widened values.
    pub w: Vec<bf16>,
    /// The weights as codes.
    pub matrix: Option<QuantMatrix>,
    pub x: Vec<bf16>,
    pub bias: Vec<bf16>,
    pub residual: Vec<f64>,
    pub squares: Vec<f32>,
    pub eps: f32,
    pub norm_weight: Vec<f64>,
    pub positions: Vec<i32>,
    /// The page table; every page belongs to one vector.
    pub table: Vec<i32>,
    pub table_width: u32,
    pub pages: u32,
    frequencies: Vec<f64>,
}

impl Given {
    pub fn draw(draw: &mut Draw, plan: &HopperPlan, finish: GemvEpilogue) -> Given {
        let batch = plan.batch;
        let k = plan.strip.k();
        let results = plan.results.results();
        let n = if matches!(plan.results, WeightRows::Gated(_)) { 2 * results } else { results };
        // Sums of small whole numbers are exact, and many are equal: which is the largest is
        // certain.
        let number: fn(f64) -> bf16 = if finish.best { |x| bf16::from_f64((2.0 * x).round()) } else { bf16::from_f64 };
        let mut floats = |count: u32| draw.floats::<bf16>(count as usize, number);
        let mut w = floats(n * k);
        let x = floats(batch * k);
        let bias = floats(n);
        let residual = floats(batch * results);
        let matrix = plan.strip.codes().map(|codes| matrix(draw, codes, [n, k], finish.best));
        if let Some(matrix) = &matrix {
            w = naive::dequantize::<f32>(matrix).into_iter().map(bf16::from_f32).collect();
        }
        let odd = if finish.best && matrix.is_none() { draw.between(0..=3) } else { 0 };
        for _ in 0..[0, 1, n / 8, 4 * n][odd as usize] {
            w[(draw.between(0..=n - 1) * k) as usize] = bf16::NAN;
        }
        let table_width = finish.heads.map_or(0, |heads| POSITIONS.div_ceil(heads.page_tokens));
        let dim = if let WeightRows::Groups { dim, .. } = plan.results { dim } else { 0 };
        Given {
            w,
            matrix,
            x,
            bias,
            residual: residual.iter().map(|v| v.to_f64()).collect(),
            squares: (0..k / SLOT * batch).map(|_| (draw.unit().abs() * 32.0) as f32).collect(),
            eps: 1e-5,
            norm_weight: stored::numbers(draw, finish.normed.unwrap_or(Float::F32), results, 2.0),
            positions: (0..batch).map(|_| draw.between(0..=POSITIONS + 9) as i32 - 10).collect(),
            table: (0..batch * table_width).rev().map(|page| page as i32).collect(),
            table_width,
            pages: batch * table_width + 1,
            frequencies: (0..dim / 2).map(|i| 10_000f64.powf(-f64::from(2 * i) / f64::from(dim))).collect(),
        }
    }

    /// Cosines and sines.
    pub fn turns(&self) -> Vec<f32> {
        let of = |position: u32| self.frequencies.iter().map(move |f| (f64::from(position) * f).sin_cos());
        (0..POSITIONS).flat_map(of).flat_map(|(sin, cos)| [cos as f32, sin as f32]).collect()
    }

    /// The factor of a vector's norm.
    fn factor(&self, vector: usize, plan: &HopperPlan) -> f64 {
        let sums = self.squares.iter().skip(vector).step_by(plan.batch as usize);
        let mean = sums.map(|&sum| f64::from(sum)).sum::<f64>() / f64::from(plan.strip.k());
        1.0 / (mean + f64::from(self.eps)).sqrt()
    }
}

/// A matrix of codes, numbers from -1 to 1, or such that sums are exact.
fn matrix(draw: &mut Draw, codes: Codes, [n, k]: [u32; 2], exact: bool) -> QuantMatrix {
    let code = codes.code;
    let group = codes.group.unwrap_or(k).min(k);
    let number = |byte: u8| if code == Code::E4m3 && byte & 0x7f == 0x7f { byte ^ 1 } else { byte };
    let bytes = n * k.div_ceil(8 / code.bits() as u32);
    let groups = n * k.div_ceil(group);
    let (low, high) = code.range();
    let zero = |draw: &mut Draw| low as i16 + draw.between(0..=(high - low) as u32) as i16;
    // Scales are numbers of their type.
    let scale = |draw: &mut Draw| {
        let scale = if exact { 1.0 } else { draw.unit().abs() / f64::from(high - low) };
        stored::rounded(scale, codes.scale) as f32
    };
    let parts = QuantParts {
        n: n as usize,
        k: k as usize,
        code,
        group: group as usize,
        codes: (0..bytes).map(|_| number(draw.between(0..=255) as u8)).collect(),
        scales: (0..groups).map(|_| scale(draw)).collect(),
        zeros: match codes.zeros {
            true => Zeros::Each((0..groups).map(|_| zero(draw)).collect()),
            false => Zeros::Same(code.middle()),
        },
        order: None,
    };
    QuantMatrix::new(parts).unwrap_or_else(|error| unreachable!("drawn to be sound: {error}"))
}

/// The expected results.
pub(super) struct ExpectedResults {
    pub y: Vec<f64>,
    /// The error bound of y and of appended values, before either is rounded to its type.
    pub bound: Bound,
    pub normed: (Vec<f64>, Bound),
    pub squares: (Vec<f64>, Bound),
    /// Pools of keys and values, row after row; NaN where nothing is appended.
    pub pools: [Vec<f64>; 2],
    /// The key of the largest of every vector and tile.
    pub bests: Vec<u64>,
}

/// The keys of the largest of every vector and tile: of equals the first, NaN counts as −∞.
fn bests(plan: &HopperPlan, y: &[f64]) -> Vec<u64> {
    let key = |(number, &value): (usize, &f64)| {
        let bits = (if value.is_nan() { f32::NEG_INFINITY } else { value as f32 + 0.0 }).to_bits();
        let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        u64::from(ordered) << 32 | u64::from(!(number as u32))
    };
    let tile = |y: &[f64], tile: u32| {
        let rows = plan.rows() as usize;
        y.iter().enumerate().skip(tile as usize * rows).take(rows).map(key).max().unwrap_or(0)
    };
    let vectors = y.chunks(plan.results.results() as usize);
    vectors.flat_map(|y| (0..plan.tiles()).map(move |number| tile(y, number))).collect()
}

pub(super) fn expected(plan: &HopperPlan, finish: GemvEpilogue, given: &Given) -> ExpectedResults {
    let k = plan.strip.k();
    let results = plan.results.results() as usize;
    let wide = GemvEpilogue { wide: true, ..GemvEpilogue::default() };
    let (mut sums, bound) = oracle::expected(k, wide, &given.w, &given.x, &[], &[]);
    let largest = |values: &[f64]| values.iter().fold(0f64, |most, value| most.max(value.abs()));
    let n = sums.len() / plan.batch as usize;
    let mut error = bound.at(largest(&sums));
    if finish.ends_norm() {
        let most = sums.chunks_mut(n).enumerate().map(|(vector, sums)| {
            let factor = given.factor(vector, plan);
            sums.iter_mut().for_each(|sum| *sum *= factor);
            factor
        });
        let most = most.fold(0f64, f64::max);
        // Sums of positive numbers, a root, a reciprocal and a product.
        error = error * most + largest(&sums) * f64::from(k / SLOT + 16) * UNIT;
    }
    if finish.epilogue.bias {
        for sums in sums.chunks_mut(n) {
            sums.iter_mut().zip(&given.bias).for_each(|(sum, bias)| *sum += bias.to_f64());
        }
    }
    error += 2.0 * largest(&sums) * UNIT;
    let of_sums = |sums: &[f64]| {
        let (gates, ups) = sums.split_at(results);
        let up = |i: usize| ups.get(i).map(|&up| [up, error]);
        let near = |(i, &gate): (usize, &f64)| finish.epilogue.functions.expected([gate, error], up(i));
        gates.iter().enumerate().map(near).collect::<Vec<_>>()
    };
    let near: Vec<[f64; 2]> = sums.chunks(n).flat_map(of_sums).collect();
    let mut error = near.iter().fold(0.0, |most: f64, &[_, error]| most.max(error));
    let mut y: Vec<f64> = near.into_iter().map(|[value, _]| value).collect();
    if finish.epilogue.residual {
        y.iter_mut().zip(&given.residual).for_each(|(y, residual)| *y += residual);
        error += 2.0 * largest(&y) * UNIT;
    }
    let mut pools = [Vec::new(), Vec::new()];
    if finish.heads.is_some() {
        (y, pools) = heads(plan, finish, given, &y);
        // Two products, each with a rounded turn.
        error = 2.0 * error + 16.0 * largest(&y) * UNIT;
    }
    let absolute = |absolute: f64| Bound { absolute, relative: 0.0 };
    let mut normed = (Vec::new(), absolute(0.0));
    let mut squares = (Vec::new(), absolute(0.0));
    if finish.normed.is_some() {
        let product = |(y, weight): (&f64, &f64)| y * weight;
        let most = (largest(&y), largest(&given.norm_weight));
        let of = |y: &[f64]| y.iter().zip(&given.norm_weight).map(product).collect::<Vec<f64>>();
        normed = (y.chunks(results).flat_map(of).collect(), absolute(error * most.1 + 2.0 * most.0 * most.1 * UNIT));
        let slots = results / SLOT as usize;
        let sum = |at: usize| {
            let slot = at / plan.batch as usize;
            let vector = at % plan.batch as usize;
            y[vector * results + slot * SLOT as usize..][..SLOT as usize].iter().map(|y| y * y).sum::<f64>()
        };
        let sums: Vec<f64> = (0..slots * plan.batch as usize).map(sum).collect();
        let slot = f64::from(SLOT);
        squares = (sums, absolute(slot * (error * (2.0 * most.0 + error) + slot * most.0 * most.0 * UNIT)));
    }
    let bests = if finish.best { bests(plan, &y) } else { Vec::new() };
    ExpectedResults { y, bound: absolute(error), normed, squares, pools, bests }
}

/// Queries that are rotated, zeros of idle vectors; the pools.
fn heads(plan: &HopperPlan, finish: GemvEpilogue, given: &Given, y: &[f64]) -> (Vec<f64>, [Vec<f64>; 2]) {
    let (WeightRows::Groups { group, kv_heads, dim }, Some(pages)) = (plan.results, finish.heads) else {
        return (Vec::new(), [Vec::new(), Vec::new()]);
    };
    let [group, kv_heads, head_dim] = [group, kv_heads, dim].map(|extent| extent as usize);
    let shape = PoolShape { kv_heads, pages: given.pages as usize, page_tokens: pages.page_tokens as usize, head_dim };
    let mut queries = Vec::new();
    let mut pools = [(); 2].map(|()| vec![f64::NAN; shape.elements()]);
    for (vector, heads) in y.chunks((group + 2) * kv_heads * head_dim).enumerate() {
        let at = usize::try_from(given.positions[vector]).ok();
        let rotated = |heads: &[f64]| match at {
            Some(at) => {
                heads.chunks(head_dim).flat_map(|head| naive::rope(head, &given.frequencies, at, 1.0)).collect()
            }
            None => vec![0.0; heads.len()],
        };
        let (query, rest) = heads.split_at(group * kv_heads * head_dim);
        let (key, value) = rest.split_at(kv_heads * head_dim);
        queries.extend(rotated(query));
        let width = given.table_width as usize;
        let table: Vec<usize> = given.table[vector * width..][..width].iter().map(|&page| page as usize).collect();
        for (pool, heads) in pools.iter_mut().zip([rotated(key), value.to_vec()]) {
            naive::append(pool, shape, &heads, &table, at);
        }
    }
    (queries, pools)
}
