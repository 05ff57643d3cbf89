//! Rows of tables of codes: to the bit what the definition gives in f32.

use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::{Bound, Draw, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::embed::{EmbedShape, TableOrder, embed_rows};
use tilewright_kernels::host;
use tilewright_kernels::quant::Code;
use tilewright_kernels::tile::Float;
use tilewright_kernels::weights::{Codes, Strip};

use crate::quantised::{pack_codes, quantised};
use crate::{right, stored};

fn trial(draw: &mut Draw) -> Trial {
    let code = Code::ALL[draw.between(0..=5) as usize];
    let group = [None, Some(16), Some(32), Some(48), Some(128)][draw.between(0..=4) as usize];
    let zeros = code.is_integer() && draw.between(0..=1) == 0;
    let scale = [Float::F32, Float::F16, Float::Bf16][draw.between(0..=2) as usize];
    // Halves of a step are groups in whole steps.
    let of_step = if group.is_some_and(|group| group % 32 > 0) { 32 } else { 4 };
    let [rows, vocab, hidden] = [draw.between(1..=5), draw.between(1..=40), of_step * draw.between(1..=400 / of_step)];
    let codes = match code == Code::E2m1 && hidden > 16 && draw.between(0..=1) == 0 {
        true => Codes::of_blocks(),
        false => Codes { code, group, zeros, scale, blocks: false },
    };
    let matrix = quantised(draw, [vocab as usize, hidden as usize], codes, false);
    let codes = if codes.blocks { codes } else { stored_as(codes) };
    let warps = draw.between(1..=4);
    let strip = Strip::of_codes(hidden, warps, warps * 512 * draw.between(1..=3), codes).expect("a strip");
    let rows_of_strips: Vec<[Option<usize>; 8]> = (0..(vocab as usize).div_ceil(8))
        .map(|strip| std::array::from_fn(|i| Some(strip * 8 + i).filter(|&row| row < vocab as usize)))
        .collect();
    let scale = [1.0, 11.5][draw.between(0..=1) as usize];
    let out = stored::float(draw);
    let shape = EmbedShape { table: TableOrder::Strips(strip), out, warps, scale, shard: None, norm: None };
    let ids: Vec<i32> = (0..rows).map(|_| draw.between(0..=vocab - 1) as i32).collect();
    let position: Vec<i32> = (0..rows).map(|_| draw.between(0..=3) as i32 - 1).collect();
    let row = |(&id, &position): (&i32, &i32)| match position {
        0.. => host::row_quantized(&matrix, id as usize),
        _ => vec![0.0; hidden as usize],
    };
    let out: Vec<f64> = ids.iter().zip(&position).flat_map(row).map(|x| f64::from(x * scale)).collect();
    let out: Vec<f64> = out.into_iter().map(|x| stored::rounded(x, shape.out)).collect();
    let arch = [Arch::Sm80, Arch::Sm90a][draw.between(0..=1) as usize];
    let kernel = verify(embed_rows(arch, shape)).unwrap_or_else(|error| panic!("{error}"));
    let mut trial = Trial::new(kernel, rows).note(format!("{rows} rows of {vocab}, {shape:?}"));
    let ids = trial.input("ids", &ids);
    let position = trial.input("position", &position);
    let table = trial.input("table", &pack_codes(strip, &matrix, &rows_of_strips));
    let out = stored::output(&mut trial, "out", shape.out, &out, Bound { absolute: 0.0, relative: 0.0 });
    [ids, position, table, out].into_iter().fold(trial, Trial::pass)
}

/// The form in which a device stores the codes.
fn stored_as(codes: Codes) -> Codes {
    let group = codes.group.map(|group| group as usize);
    Codes::new(codes.code, group, codes.zeros, codes.scale).expect("a form")
}

#[test]
fn rows_of_codes_are_exact() {
    for seed in 0..80 {
        right(&trial(&mut Draw::new(seed)), seed);
    }
}
