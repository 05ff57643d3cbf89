//! Random tables: what comes out is what lies there, rounded to the output's type.

use half::bf16;
use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Bound, Draw, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::{EmbedShape, TableOrder, embed_rows};
use crate::naive;
use crate::norm::SLOT;
use crate::shipped_entry::ShippedEntry;
use crate::stored::{self, UNIT};
use crate::tile::Float;
use crate::weights::{Strip, pack};

/// Bytes of a stage of the ring for which tables are laid out.
const STAGE_BYTES: u32 = 16384;

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    vec![Box::new(ShippedEntry {
        name: "embed",
        needs: Needs::Sm80,
        record: |arch| {
            embed_rows(
                arch,
                EmbedShape { table: strips(2048, 8), out: Float::Bf16, warps: 8, scale: 1.0, shard: None, norm: None },
            )
        },
        draw: trial,
    })]
}

fn strips(hidden: u32, warps: u32) -> TableOrder {
    TableOrder::Strips(
        Strip::new(hidden, warps, STAGE_BYTES).expect("rows of 1 to 2^20 elements, stages of a tile a warp"),
    )
}

fn trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let rows = draw.between(1..=5);
    let vocab = draw.between(1..=40);
    let most = [4, 100, 500][draw.between(0..=2) as usize];
    // Every third of whole warps, where a norm may begin.
    let hidden = if draw.between(0..=2) == 0 { 128 * draw.between(1..=4) } else { 4 * draw.between(1..=most) };
    let warps = draw.between(1..=8);
    let out = stored::float(draw);
    let order = if draw.between(0..=2) == 0 { TableOrder::Rows(hidden) } else { strips(hidden, warps) };
    let norm = (hidden.is_multiple_of(128) && draw.between(0..=1) == 0).then(|| stored::float(draw));
    // Every third table has a part of the vocabulary, from a drawn id on.
    let first = draw.between(0..=50);
    let shard = (draw.between(0..=2) == 0).then_some(vocab);
    // The root of a width, as Gemma multiplies by it; a product in f32 rounds once.
    let scale = if draw.between(0..=1) == 0 { 1.0 } else { (hidden as f32).sqrt() };
    let shape = EmbedShape { table: order, out, warps, scale, shard, norm };
    let table = draw.floats((vocab * hidden) as usize, bf16::from_f64);
    let placed = match order {
        TableOrder::Strips(strip) => pack(&table, strip),
        TableOrder::Rows(_) => table.clone(),
    };
    let ids: Vec<i32> = match shard {
        None => (0..rows).map(|_| draw.between(0..=vocab - 1) as i32).collect(),
        Some(_) => (0..rows).map(|_| draw.between(0..=vocab + 60) as i32).collect(),
    };
    let position: Vec<i32> = (0..rows).map(|_| draw.between(0..=3) as i32 - 1).collect();
    let wide: Vec<f64> = table.iter().map(|v| v.to_f64()).collect();
    let row = |(&id, &position): (&i32, &i32)| {
        let own = if shard.is_some() { id - first as i32 } else { id };
        let known = position >= 0 && (0..vocab as i32).contains(&own);
        naive::embed(&wide, hidden as usize, known.then_some(own as usize), f64::from(scale))
    };
    let x: Vec<f64> = ids.iter().zip(&position).flat_map(row).map(|x| stored::rounded(x, Float::F32)).collect();
    let out: Vec<f64> = x.iter().map(|&v| stored::rounded(v, shape.out)).collect();
    let weight = stored::numbers(draw, norm.unwrap_or(Float::F32), hidden, 2.0);
    let mut trial =
        Trial::new(verify(embed_rows(arch, shape))?, rows).note(format!("{rows} rows of {vocab}, {shape:?}"));
    let ids = trial.input("ids", &ids);
    let position = trial.input("position", &position);
    let table = trial.input("table", &placed);
    let out = stored::output(&mut trial, "out", shape.out, &out, Bound { absolute: 0.0, relative: 0.0 });
    trial = trial.pass(ids).pass(position).pass(table).pass(out);
    if shard.is_some() {
        trial = trial.pass(first);
    }
    if let Some(float) = norm {
        let weighed = x.chunks(hidden as usize).flat_map(|x| x.iter().zip(&weight).map(|(x, weight)| x * weight));
        let sum = |at: u32| {
            let first = (at % rows * hidden + at / rows * SLOT) as usize;
            x[first..first + SLOT as usize].iter().map(|x| x * x).sum::<f64>()
        };
        let sums: Vec<f64> = (0..hidden / SLOT * rows).map(sum).collect();
        let relative = |relative: f64| Bound { absolute: 0.0, relative };
        let weight = stored::input(&mut trial, "norm_weight", float, &weight);
        let normed = stored::output(&mut trial, "normed", Float::Bf16, &weighed.collect::<Vec<f64>>(), relative(UNIT));
        let squares = stored::output(&mut trial, "squares", Float::F32, &sums, relative(f64::from(SLOT) * UNIT));
        trial = trial.pass(weight).pass(normed).pass(squares);
    }
    Ok(trial)
}
