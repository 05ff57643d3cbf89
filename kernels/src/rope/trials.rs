//! Random heads, positions and pages against the f64 oracle.

use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Bound, Draw, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::{RopeShape, rope_rows};
use crate::naive::{self, PoolShape};
use crate::shipped_entry::ShippedEntry;
use crate::stored::{self, UNIT};
use crate::tile::Float;

/// The shape with which the kernel is shipped.
const SHOWN: RopeShape = RopeShape {
    heads: 32,
    dim: 128,
    norm: Some(1e-6),
    together: false,
    pages: None,
    x: Float::F32,
    out: Float::F32,
    warps: 8,
};

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let record = |arch| rope_rows(arch, SHOWN);
    vec![Box::new(ShippedEntry { name: "rope", needs: Needs::Sm80, record, draw: trial })]
}

/// Positions that the table of turns has.
const POSITIONS: u32 = 60;

fn trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let page_tokens = draw.between(1..=20);
    let width = POSITIONS.div_ceil(page_tokens);
    let rows = draw.between(1..=4);
    let shape = RopeShape {
        heads: draw.between(1..=5),
        dim: 2 * draw.between(1..=130),
        norm: (draw.between(0..=1) == 0).then_some(1e-6),
        pages: (draw.between(0..=1) == 0).then_some([rows * width + 1, page_tokens, width]),
        x: stored::float(draw),
        out: stored::float(draw),
        warps: draw.between(1..=8),
        together: draw.between(0..=1) == 0,
    };
    let x = stored::numbers(draw, shape.x, rows * shape.heads * shape.dim, 4.0);
    let together = if shape.together { shape.heads } else { 1 };
    let weight = stored::numbers(draw, Float::F32, together * shape.dim, 2.0);
    let scale = if draw.between(0..=1) == 0 { 1.0 } else { 1.25 };
    let frequencies: Vec<f64> =
        (0..shape.dim / 2).map(|i| 10_000f64.powf(-f64::from(2 * i) / f64::from(shape.dim))).collect();
    let angle = |position: u32, f: f64| (f64::from(position) * f).sin_cos();
    let turns: Vec<f64> = (0..POSITIONS)
        .flat_map(|p| frequencies.iter().map(move |&f| angle(p, f)))
        .flat_map(|(sin, cos)| [cos * scale, sin * scale])
        .collect();
    let position: Vec<i32> = (0..rows).map(|_| draw.between(0..=POSITIONS + 9) as i32 - 10).collect();
    // Every page belongs to one row; one belongs to no row.
    let table: Vec<i32> = (0..rows * width).rev().map(|page| page as i32).collect();

    let rotated: Vec<Option<Vec<f64>>> = x
        .chunks((shape.heads * shape.dim) as usize)
        .zip(&position)
        .map(|(row, &p)| usize::try_from(p).ok().map(|p| oracle(shape, row, &weight, &frequencies, p, scale)))
        .collect();
    let out = match shape.pages {
        None => {
            let idle = vec![0.0; (shape.heads * shape.dim) as usize];
            rotated.into_iter().flat_map(|row| row.unwrap_or_else(|| idle.clone())).collect()
        }
        Some([pages, ..]) => {
            let [kv_heads, pages, page_tokens, head_dim] =
                [shape.heads, pages, page_tokens, shape.dim].map(|n| n as usize);
            let pool_shape = PoolShape { kv_heads, pages, page_tokens, head_dim };
            let mut pool = vec![f64::NAN; pool_shape.elements()];
            for (row, (rotated, &p)) in rotated.iter().zip(&position).enumerate() {
                let table: Vec<usize> =
                    table[row * width as usize..][..width as usize].iter().map(|&page| page as usize).collect();
                let at = usize::try_from(p).ok();
                naive::append(&mut pool, pool_shape, rotated.as_deref().unwrap_or(&[]), &table, at);
            }
            pool
        }
    };
    // Elements are at most 4, or √dim times the weight's 2 where heads are normalised. A pair of
    // products, each with a rounded turn; the norm's own error is as that of a row.
    let size = if shape.norm.is_some() { 2.0 * f64::from(together * shape.dim).sqrt() } else { 4.0 };
    let bound = Bound { absolute: 2.0 * 1.25 * size * 16.0 * UNIT, relative: 0.0 };
    let note = format!("{rows} rows, position {position:?}, {shape:?}");
    let mut trial = Trial::new(verify(rope_rows(arch, shape))?, rows).note(note);
    let x = stored::input(&mut trial, "x", shape.x, &x);
    let weight = stored::input(&mut trial, "weight", Float::F32, &weight);
    let turns = stored::input(&mut trial, "turns", Float::F32, &turns);
    let position = trial.input("position", &position);
    let table = trial.input("page_table", &table);
    let out = stored::output(&mut trial, "out", shape.out, &out, bound);
    Ok(trial.pass(x).pass(weight).pass(turns).pass(position).pass(table).pass(out))
}

/// The heads of a row, normalised and rotated.
fn oracle(shape: RopeShape, row: &[f64], weight: &[f64], frequencies: &[f64], at: usize, scale: f64) -> Vec<f64> {
    let normed = shape.norm.map(|eps| naive::head_norm(row, weight, f64::from(eps)));
    let heads = normed.as_deref().unwrap_or(row).chunks(shape.dim as usize);
    heads.flat_map(|head| naive::rope(head, frequencies, at, scale)).collect()
}
