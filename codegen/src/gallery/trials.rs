//! The gallery on trial: random sizes and numbers for each kernel, and what comes out by plain
//! loops.
//!
//! Kernels whose order of sums is fixed are right to the bit. Others, and tensor cores, are right
//! within the bound of their order of accumulation, γ·Σ|terms| (Higham, *Accuracy and Stability of
//! Numerical Algorithms*, 4.2); every other trial of a tensor core is on small integers, which are
//! exact in any order.

use crate::trial::{Bound, Draw, Expected, TensorShape, TileSwizzle, Trial};
use crate::verify::Verified;
use half::bf16;
use tilewright_layout::DType;

/// Makes a trial of a kernel.
pub(super) type Setup = fn(Verified, &mut Draw) -> Trial;

/// Half the distance from 1 to the next f32.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

fn floats(draw: &mut Draw, count: usize) -> Vec<f32> {
    draw.floats(count, |v| v as f32)
}

pub(super) fn saxpy(kernel: Verified, draw: &mut Draw) -> Trial {
    let n = draw.between(1..=2000);
    let a = draw.unit() as f32;
    let x = floats(draw, n as usize);
    let y = floats(draw, n as usize);
    let sums: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x.mul_add(a, *y)).collect();
    let mut trial = Trial::new(kernel, n.div_ceil(256)).note(format!("n {n}"));
    let x = trial.input("x", &x);
    let y = trial.changed("y", &y, Expected::exact(&sums));
    trial.pass(n).pass(a).pass(x).pass(y)
}

pub(super) fn block_sum(kernel: Verified, draw: &mut Draw) -> Trial {
    let rows = draw.between(1..=5);
    let n = draw.between(1..=3000);
    let x = floats(draw, (rows * n) as usize);
    let sums: Vec<f64> = x.chunks(n as usize).map(|row| row.iter().map(|&v| f64::from(v)).sum()).collect();
    // A thread adds ⌈n / 256⌉ terms, a warp 5 times, the block 7 times; a term is 1 at most.
    let depth = f64::from(n.div_ceil(256) + 12);
    let bound = Bound { absolute: depth * UNIT * f64::from(n), relative: 0.0 };
    let mut trial = Trial::new(kernel, rows).note(format!("{rows} rows of {n}"));
    let x = trial.input("x", &x);
    let out = trial.output("out", Expected::near::<f32>(&sums, bound));
    trial.pass(n).pass(x).pass(out)
}

pub(super) fn transpose(kernel: Verified, draw: &mut Draw) -> Trial {
    let tiles = draw.between(1..=4);
    let n = tiles * 32;
    let side = n as usize;
    let x = floats(draw, side * side);
    let turned: Vec<f32> = (0..side * side).map(|i| x[i % side * side + i / side]).collect();
    let mut trial = Trial::new(kernel, [tiles, tiles]).note(format!("n {n}"));
    let x = trial.input("x", &x);
    let y = trial.output("y", Expected::exact(&turned));
    trial.pass(n).pass(x).pass(y)
}

/// The sum of columns, from the first row to the last.
fn column_sums(rows: &[f32], width: usize, column: impl Fn(usize) -> usize) -> Vec<f32> {
    (0..width).map(|c| rows.chunks(width).fold(0.0, |sum, row| sum + row[column(c)])).collect()
}

pub(super) fn pipeline(kernel: Verified, draw: &mut Draw) -> Trial {
    let tiles = draw.between(1..=12);
    let x = floats(draw, 512 * tiles as usize);
    let sums = column_sums(&x, 512, |c| 511 - c);
    let mut trial = Trial::new(kernel, 1).note(format!("{tiles} tiles"));
    let x = trial.input("x", &x);
    let out = trial.output("out", Expected::exact(&sums));
    trial.pass(tiles).pass(x).pass(out)
}

pub(super) fn bulk_ring(kernel: Verified, draw: &mut Draw) -> Trial {
    let blocks = draw.between(1..=3);
    let tiles = draw.between(1..=12);
    let x = floats(draw, 1024 * (tiles * blocks) as usize);
    let sums: Vec<f32> = x.chunks(1024 * tiles as usize).flat_map(|block| column_sums(block, 1024, |c| c)).collect();
    let mut trial = Trial::new(kernel, blocks).note(format!("{blocks} blocks, {tiles} tiles"));
    let x = trial.input("x", &x);
    let out = trial.output("out", Expected::exact(&sums));
    trial.pass(tiles).pass(x).pass(out)
}

pub(super) fn tensor_tile(kernel: Verified, draw: &mut Draw) -> Trial {
    // Rows are a multiple of 16 bytes; the last tiles may hang over the edge.
    let rows = draw.between(1..=100);
    let columns = 4 * draw.between(1..=25);
    let x = floats(draw, (rows * columns) as usize);
    let doubled: Vec<f32> = x.iter().map(|v| v * 2.0).collect();
    let mut trial = Trial::new(kernel, [columns.div_ceil(32), rows.div_ceil(32)]).note(format!("{rows} x {columns}"));
    let x = trial.input("x", &x);
    let y = trial.output("y", Expected::exact(&doubled));
    let shape = TensorShape::row_major(DType::F32, [rows.into(), columns.into()], [32, 32]);
    trial.map(x, shape.clone()).map(y, shape)
}

/// Operands of a product a·bᵀ with k columns, its expected value, and what they are called.
struct ProductCase {
    a: Vec<bf16>,
    b: Vec<bf16>,
    c: Expected,
    numbers: &'static str,
}

impl ProductCase {
    fn draw(draw: &mut Draw, [m, n, k]: [u32; 3]) -> ProductCase {
        let exact = draw.between(0..=1) == 0;
        let operand = |draw: &mut Draw, rows: u32| match exact {
            true => draw.integers((rows * k) as usize, 4, bf16::from_f64),
            false => draw.floats((rows * k) as usize, bf16::from_f64),
        };
        let a = operand(draw, m);
        let b = operand(draw, n);
        let sums = |term: fn(f64) -> f64| -> Vec<f64> {
            let dot = |a: &[bf16], b: &[bf16]| a.iter().zip(b).map(|(a, b)| term(a.to_f64() * b.to_f64())).sum();
            let k = k as usize;
            a.chunks(k).flat_map(|a| b.chunks(k).map(|b| dot(a, b)).collect::<Vec<f64>>()).collect()
        };
        let largest = sums(f64::abs).into_iter().fold(0.0, f64::max);
        // Sixteen products are added to the sum at once, in no order, with two bits less than f32
        // has.
        let absolute = if exact { 0.0 } else { f64::from(k / 16) * 4.0 * UNIT * largest };
        let c = Expected::near::<f32>(&sums(|v| v), Bound { absolute, relative: 0.0 });
        ProductCase { a, b, c, numbers: if exact { "integers" } else { "floats" } }
    }
}

pub(super) fn mma_tile(kernel: Verified, draw: &mut Draw) -> Trial {
    let ProductCase { a, b, c, numbers } = ProductCase::draw(draw, [16, 8, 64]);
    let mut trial = Trial::new(kernel, 1).note(numbers);
    let a = trial.input("a", &a);
    let b = trial.input("b", &b);
    let c = trial.output("c", c);
    trial.pass(a).pass(b).pass(c)
}

/// Boxes of 64 columns and all rows, in the 128-byte swizzle.
fn boxes(rows: u32, k: u32) -> TensorShape {
    TensorShape::row_major(DType::BF16, [rows.into(), k.into()], [rows, 64]).swizzle(TileSwizzle::Bytes128)
}

pub(super) fn wgmma_tile(kernel: Verified, draw: &mut Draw) -> Trial {
    let ProductCase { a, b, c, numbers } = ProductCase::draw(draw, [64, 128, 64]);
    let mut trial = Trial::new(kernel, 1).note(numbers);
    let a = trial.input("a", &a);
    let b = trial.input("b", &b);
    let c = trial.output("c", c);
    trial.map(a, boxes(64, 64)).map(b, boxes(128, 64)).pass(c)
}

pub(super) fn specialised(kernel: Verified, draw: &mut Draw) -> Trial {
    let steps = draw.between(1..=8);
    let k = 64 * steps;
    let ProductCase { a, b, c, numbers } = ProductCase::draw(draw, [64, 128, k]);
    let mut trial = Trial::new(kernel, 1).note(format!("k {k}, {numbers}"));
    let a = trial.input("a", &a);
    let b = trial.input("b", &b);
    let c = trial.output("c", c);
    trial.pass(steps).map(a, boxes(64, k)).map(b, boxes(128, k)).pass(c)
}

pub(super) fn multicast(kernel: Verified, draw: &mut Draw) -> Trial {
    let clusters = draw.between(1..=4);
    let x = floats(draw, 1024 * clusters as usize);
    let twice: Vec<f32> =
        x.chunks(1024).flat_map(|row| [0.0, 1.0].map(|rank| row.iter().map(move |v| v + rank))).flatten().collect();
    let mut trial = Trial::new(kernel, 2 * clusters).note(format!("{clusters} clusters"));
    let x = trial.input("x", &x);
    let out = trial.output("out", Expected::exact(&twice));
    trial.pass(x).pass(out)
}

pub(super) fn grid_sum(kernel: Verified, draw: &mut Draw) -> Trial {
    let blocks = draw.between(1..=8);
    let epoch = draw.between(0..=3);
    let x: Vec<f32> = floats(draw, 128 * blocks as usize).into_iter().map(|v| v.abs() + 0.01).collect();
    let total: f64 = x.iter().map(|&v| f64::from(v)).sum();
    let shares: Vec<f64> = x.iter().map(|&v| f64::from(v) / total).collect();
    // Five sums in a warp, one for each of four warps of each block, and a division; all terms are
    // positive.
    let bound = Bound { absolute: 0.0, relative: f64::from(4 * blocks + 7) * UNIT };
    let mut trial = Trial::new(kernel, blocks).note(format!("{blocks} blocks, epoch {epoch}"));
    let x = trial.input("x", &x);
    let parts = trial.scratch::<f32>("parts", 4 * blocks as usize);
    let done = trial.changed("done", &[epoch * blocks], Expected::exact(&[(epoch + 1) * blocks]));
    let share = trial.output("share", Expected::near::<f32>(&shares, bound));
    trial.pass(epoch).pass(x).pass(parts).pass(done).pass(share)
}
