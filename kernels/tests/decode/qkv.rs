//! The projections of a kv head's group: rotated and appended, or raw for a norm of heads that
//! comes after.

use half::bf16;
use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::{Bound, Draw, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::gemv::activations::{AOperand, Packing, Prologue};
use tilewright_kernels::gemv::task::{Qkv, QueryKeyEpilogue, qkv};
use tilewright_kernels::naive;
use tilewright_kernels::rope::Rotation;
use tilewright_kernels::tile::{Array, Float};
use tilewright_kernels::warps::ConsumerWarps;
use tilewright_kernels::weights::Strip;

use crate::paged::Paged;
use crate::stored::{self, UNIT};
use crate::supply::{Supply, a_operand, pack, reading, scratch, sums};
use crate::{conflicts, right, surveyed};

#[derive(Clone, Debug)]
struct Case {
    heads: u32,
    kv_heads: u32,
    dim: u32,
    k: u32,
    /// Strips of a block's tile.
    tile: u32,
    normed: bool,
    bias: bool,
    rotated: bool,
    x: Float,
    q: Float,
    pool: Float,
    warps: u32,
    paged: Paged,
    position: Vec<i32>,
    /// The storage of the A operand.
    a_operand: AOperand,
}

/// Positions that there are.
const POSITIONS: u32 = 50;
const EPS: f32 = 1e-6;
/// Bytes of a stage for each warp.
const STAGE: u32 = 1024;

impl Case {
    fn draw(draw: &mut Draw) -> Case {
        let kv_heads = draw.between(1..=2);
        let group = draw.between(1..=4);
        let dim = 2 * draw.between(1..=20);
        // Rows of whole lines are swizzled.
        let dim = if draw.between(0..=4) == 0 { 64 } else { dim };
        let rows = draw.between(1..=16);
        let page_tokens = draw.between(1..=20);
        let case = Case {
            heads: kv_heads * group,
            kv_heads,
            dim,
            k: 4 * draw.between(1..=40),
            tile: draw.between(1..=6),
            normed: draw.between(0..=1) == 0,
            bias: draw.between(0..=1) == 0,
            rotated: draw.between(0..=1) == 0,
            x: stored::float(draw),
            q: stored::float(draw),
            pool: stored::float(draw),
            warps: draw.between(1..=4),
            paged: Paged::draw(draw, rows, POSITIONS, [kv_heads, page_tokens, dim]),
            position: (0..rows).map(|_| draw.between(0..=POSITIONS) as i32 - 1).collect(),
            a_operand: AOperand::Shared,
        };
        // Phases take rows that end with a stage.
        let case = if draw.between(0..=1) == 0 { Case { k: case.strip().padded_k(), ..case } } else { case };
        Case { a_operand: a_operand(draw, case.strip(), case.packing(), case.tile), ..case }
    }

    fn rows(&self) -> u32 {
        self.position.len() as u32
    }

    fn packing(&self) -> Packing {
        Packing::of(self.rows(), if self.normed { Float::F32 } else { self.x })
    }

    fn strip(&self) -> Strip {
        Strip::new(self.k, self.warps, self.warps * STAGE).expect("a strip")
    }

    /// Strips of a head, and of a kv head's group.
    fn strips(&self) -> (u32, u32) {
        let of_head = (self.dim / 2).div_ceil(4);
        (of_head, (self.heads / self.kv_heads + 2) * of_head)
    }

    fn tiles(&self) -> u32 {
        self.strips().1.div_ceil(self.tile)
    }

    /// Rows of the weight `[q; k; v]` that each strip of a kv head's group has.
    fn order(&self, kv_head: u32) -> Vec<[Option<usize>; 8]> {
        let Case { heads, kv_heads, dim, .. } = self;
        let (of_head, all) = self.strips();
        let group = heads / kv_heads;
        let half = dim / 2;
        let row = |strip: u32, feature: u32| {
            let slot = strip / of_head;
            let within = strip % of_head;
            if slot > group {
                let at = within * 8 + feature;
                return (at < *dim).then_some((heads + kv_heads + kv_head) * dim + at);
            }
            let head = if slot < group { kv_head * group + slot } else { heads + kv_head };
            let pair = within * 4 + feature % 4;
            (pair < half).then_some(head * dim + pair + feature / 4 * half)
        };
        let strip = |strip| std::array::from_fn(|feature| row(strip, feature as u32).map(|row| row as usize));
        (0..all).map(strip).collect()
    }

    fn record(&self, k: &Builder) {
        let team = ConsumerWarps::new(k, self.warps);
        let strip = self.strip();
        let tiles = self.tiles();
        let kv_head = k.block_id() / tiles;
        let first = k.block_id() % tiles * self.tile;
        let bytes = strip.bytes() / 4;
        let weights = k.global::<u32>("weights").at((kv_head * self.strips().1 + first) * bytes);
        let [x, weight] = ["x", "weight"].map(|name| k.global::<u8>(name));
        let bias = ["q_bias", "k_bias", "v_bias"].map(|name| Array::new(k.global::<u8>(name), Float::F32));
        let rotation = Rotation { table: k.global("turns"), half: self.dim / 2 };
        let position = k.global("position");
        let table = k.global("table");
        let [q, keys, values] = ["q", "keys", "values"].map(|name| k.global::<u8>(name));
        let pages = |pool| self.paged.pages(k, Array::new(pool, self.pool), position, table);
        let x = Array::new(x, self.x);
        let work = Qkv {
            strip,
            rows: self.rows(),
            first_row: k.lit(0),
            first,
            strips: (k.lit(self.strips().1) - first).min(self.tile),
            kv_head,
            heads: self.heads,
            kv_heads: self.kv_heads,
            dim: self.dim,
            input: if self.normed {
                Prologue::RmsNorm { x, weight: Array::new(weight, Float::F32), eps: EPS }
            } else {
                Prologue::Plain(x)
            },
            a_operand: self.a_operand,
            bias: bias.map(|bias| self.bias.then_some(bias)),
            q: Array::new(q, self.q),
            keys: if self.rotated {
                QueryKeyEpilogue::Rotated { rotation, pages: pages(keys) }
            } else {
                QueryKeyEpilogue::Raw(Array::new(keys, self.pool))
            },
            v: pages(values),
            newest: None,
        };
        let bytes = AOperand::Shared
            .operand_bytes(strip, self.packing())
            .max(self.a_operand.operand_bytes(strip, self.packing()));
        let scratch = scratch(team, bytes, self.rows(), sums(self.a_operand, 3));
        let supply = Supply::new(team, strip, weights, work.strips, self.tile, self.a_operand);
        qkv(team, scratch, &supply, work, None);
    }
}

/// The expected results: queries, keys and values; NaN where nothing is written.
struct Out {
    q: Vec<f64>,
    keys: Vec<f64>,
    values: Vec<f64>,
    error: f64,
}

fn oracle(case: &Case, x: &[f64], norm: &[f64], weight: &[f64], bias: &[f64], frequencies: &[f64]) -> Out {
    let queries = (case.heads * case.dim) as usize;
    let keys = (case.kv_heads * case.dim) as usize;
    let pool = vec![f64::NAN; case.paged.shape.elements()];
    let mut out = Out { q: vec![], keys: if case.rotated { pool.clone() } else { vec![] }, values: pool, error: 0.0 };
    let operand = 2f64.powi(-16);
    let accuracy = operand + f64::from(case.k.div_ceil(16) * 4 + case.k / 32 + 80) * UNIT;
    for (row, (x, &position)) in x.chunks(case.k as usize).zip(&case.position).enumerate() {
        let normed = case.normed.then(|| naive::rms_norm(x, norm, f64::from(EPS)));
        let x = normed.as_deref().unwrap_or(x);
        let sizes = |values: &[f64]| values.iter().map(|v| v.abs()).collect::<Vec<_>>();
        let bias = case.bias.then_some(bias);
        let terms = naive::linear(&sizes(x), &sizes(weight), bias.map(sizes).as_deref());
        out.error = terms.into_iter().fold(out.error, |most, sum| most.max(sum * accuracy));
        let y = naive::linear(x, weight, bias);
        let at = usize::try_from(position).ok();
        let turn = |heads: &[f64]| -> Vec<f64> {
            let head = |head| naive::rope(head, frequencies, at.unwrap_or(0), 1.0);
            if case.rotated { heads.chunks(case.dim as usize).flat_map(head).collect() } else { heads.to_vec() }
        };
        out.q.extend(turn(&y[..queries]));
        let table = case.paged.row(row);
        let key = turn(&y[queries..queries + keys]);
        if case.rotated {
            naive::append(&mut out.keys, case.paged.shape, &key, &table, at);
        } else {
            out.keys.extend(key);
        }
        naive::append(&mut out.values, case.paged.shape, &y[queries + keys..], &table, at);
    }
    out
}

fn trial(case: &Case, draw: &mut Draw) -> Trial {
    let features = (case.heads + 2 * case.kv_heads) * case.dim;
    let x = stored::numbers(draw, case.x, case.rows() * case.k, 1.0);
    let norm = stored::numbers(draw, Float::F32, case.k, 1.0);
    let weight = stored::numbers(draw, Float::Bf16, features * case.k, 1.0);
    let bias = stored::numbers(draw, Float::F32, features, 1.0);
    let frequencies: Vec<f64> = (0..case.dim / 2).map(|i| 1.0 / f64::from(i + 1)).collect();
    let angles = (0..POSITIONS).flat_map(|p| frequencies.iter().map(move |f| f64::from(p) * f));
    let turns: Vec<f64> = angles.flat_map(|angle| [angle.cos(), angle.sin()]).collect();
    let out = oracle(case, &x, &norm, &weight, &bias, &frequencies);
    // A rotation adds two products of size 1 at most of what the projection is.
    let bound = Bound { absolute: 2.0 * out.error, relative: 0.0 };

    let brain: Vec<bf16> = weight.iter().map(|&w| bf16::from_f64(w)).collect();
    let order: Vec<_> = (0..case.kv_heads).flat_map(|kv_head| case.order(kv_head)).collect();
    let kernel = record("qkv", Arch::Sm80, block(case.warps * 32), |k| case.record(k));
    let kernel = verify(kernel).unwrap_or_else(|errors| panic!("{errors}"));
    let mut trial = Trial::new(kernel, case.kv_heads * case.tiles()).note(format!("{case:?}"));
    let weights = trial.input("weights", &pack(case.strip(), &brain, &order));
    let x = stored::input(&mut trial, "x", case.x, &x);
    let queries = (case.heads * case.dim) as usize;
    let keys = (case.kv_heads * case.dim) as usize;
    let parts = [
        ("weight", norm.as_slice()),
        ("q_bias", &bias[..queries]),
        ("k_bias", &bias[queries..queries + keys]),
        ("v_bias", &bias[queries + keys..]),
        ("turns", turns.as_slice()),
    ];
    let [norm, q_bias, k_bias, v_bias, turns] =
        parts.map(|(name, values)| stored::input(&mut trial, name, Float::F32, values));
    let position = trial.input("position", &case.position);
    let table = trial.input("table", &case.paged.table);
    let q = stored::output(&mut trial, "q", case.q, &out.q, bound);
    let swizzled_keys = if case.rotated { case.paged.swizzled(&out.keys) } else { out.keys };
    let keys = stored::output(&mut trial, "keys", case.pool, &swizzled_keys, bound);
    let values = stored::output(&mut trial, "values", case.pool, &case.paged.swizzled(&out.values), bound);
    let all = [weights, x, norm, q_bias, k_bias, v_bias, turns, position, table, q, keys, values];
    all.into_iter().fold(trial, Trial::pass)
}

#[test]
fn random_groups() {
    for seed in 0..60 {
        let mut draw = Draw::new(seed);
        let case = Case::draw(&mut draw);
        let counters = right(&trial(&case, &mut draw), seed);
        assert_eq!(conflicts(&counters, reading(case.a_operand)), 0, "bank conflicts: {case:?}");
    }
}

#[test]
fn mutants_are_found_out() {
    let several = |case: &Case| case.warps > 1 && case.tile == 6 && case.strips().1 > 6 && case.normed && case.k < 40;
    let seed = (0..10_000).find(|&seed| several(&Case::draw(&mut Draw::new(seed)))).expect("a case");
    let mut draw = Draw::new(seed);
    let case = Case::draw(&mut draw);
    surveyed(&trial(&case, &mut draw), &[]);
}
