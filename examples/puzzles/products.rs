//! Products of matrices, from three loops to tensor cores.

use tilewright::codegen::build::{Builder, block};
use tilewright::codegen::trial::Draw;
use tilewright::codegen::verify::VerifyErrors;

use super::case::{Case, Puzzle, whole};

pub const PUZZLES: [Puzzle; 3] = [
    Puzzle { name: "product", check: check_product },
    Puzzle { name: "tiled_product", check: check_tiled_product },
    Puzzle { name: "matrix_vector", check: check_matrix_vector },
];

/// `c = a · b` for n × n matrices, any n: a thread a number of c, its row of a and its column of b
/// from global memory.
fn product(k: &Builder) {
    let n = k.param::<u32>("n");
    let [a, b, c] = ["a", "b", "c"].map(|name| k.global::<f32>(name));
    let [tx, ty, _] = k.thread_idx();
    let [bx, by, _] = k.block_idx();
    let (row, column) = (by * 8 + ty, bx * 8 + tx);
    k.when(row.lt(n) & column.lt(n), || {
        let sum = k.carry(0, n, k.lit(0.0f32), |i, sum| a.at(row * n + i).load().fma(b.at(i * n + column).load(), sum));
        c.at(row * n + column).store(sum);
    });
}

fn square_product(a: &[f32], b: &[f32], n: usize) -> Vec<f32> {
    (0..n * n).map(|at| (0..n).map(|i| a[at / n * n + i] * b[i * n + at % n]).sum()).collect()
}

fn check_product(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let n = draw.between(1..=20);
    let (a, b) = (whole(draw, n * n, 30), whole(draw, n * n, 30));
    let c = square_product(&a, &b, n as usize);
    let case = Case::new("product", block((8, 8)), [n.div_ceil(8), n.div_ceil(8)], product)?;
    Ok(case.number(n).input("a", &a).input("b", &b).output("c", &c))
}

/// `c = a · b` for 32 × 32 matrices: blocks of 8 × 8 threads move along a row of tiles of a and a
/// column of tiles of b, which they load into shared memory once.
fn tiled_product(k: &Builder) {
    let [a, b, c] = ["a", "b", "c"].map(|name| k.global::<f32>(name));
    let [a_tile, b_tile] = ["a_tile", "b_tile"].map(|name| k.shared::<f32>(name, 64));
    let [x, y, _] = k.thread_idx();
    let [bx, by, _] = k.block_idx();
    let (row, column) = (by * 8 + y, bx * 8 + x);
    let sum = k.var(0.0f32);
    k.for_step(0u32, 32u32, 8u32, |first| {
        a_tile.at(y * 8 + x).store(a.at(row * 32 + first + x).load());
        b_tile.at(y * 8 + x).store(b.at((first + y) * 32 + column).load());
        k.barrier();
        for i in 0..8u32 {
            sum.update(|sum| a_tile.at(y * 8 + i).load().fma(b_tile.at(x + i * 8).load(), sum));
        }
        k.barrier();
    });
    c.at(row * 32 + column).store(sum);
}

fn check_tiled_product(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let (a, b) = (whole(draw, 32 * 32, 30), whole(draw, 32 * 32, 30));
    let c = square_product(&a, &b, 32);
    let case = Case::new("tiled_product", block((8, 8)), [4, 4], tiled_product)?;
    Ok(case.input("a", &a).input("b", &b).output("c", &c))
}

/// `y[i] = Σⱼ w[i, j] · x[j]` for rows of n numbers, a multiple of 4: a warp a row, four numbers a
/// lane at a time.
fn matrix_vector(k: &Builder) {
    let n = k.param::<u32>("n");
    let [w, x, y] = ["w", "x", "y"].map(|name| k.global::<f32>(name));
    let row = k.block_id() * 4 + k.warp();
    let mine = k.var(0.0f32);
    k.for_step(k.lane() * 4, n, 128u32, |j| {
        let (w, x) = (w.at(row * n + j).load_vec::<4>(), x.at(j).load_vec::<4>());
        (0..4).for_each(|i| mine.update(|sum| w[i].fma(x[i], sum)));
    });
    let sum = mine.get().warp_reduce(|a, b| a + b);
    k.when(k.lane().eq(0), || y.at(row).store(sum));
}

fn check_matrix_vector(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let n = 4 * draw.between(1..=60);
    let (w, x) = (whole(draw, 8 * n, 30), whole(draw, n, 30));
    let dot = |row: &[f32]| row.iter().zip(&x).map(|(w, x)| w * x).sum();
    let y: Vec<f32> = w.chunks(n as usize).map(dot).collect();
    let case = Case::new("matrix_vector", block(128), 2, matrix_vector)?;
    Ok(case.number(n).input("w", &w).input("x", &x).output("y", &y))
}
