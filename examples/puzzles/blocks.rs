//! Many blocks: each finds its part by its number in the grid.

use tilewright::codegen::build::{Builder, block};
use tilewright::codegen::ir::attr::{AtomOp, AtomOrder, RedOrder, Scope};
use tilewright::codegen::trial::Draw;
use tilewright::codegen::verify::VerifyErrors;

use super::case::{Case, Puzzle, whole};

pub const PUZZLES: [Puzzle; 6] = [
    Puzzle { name: "blocks", check: check_blocks },
    Puzzle { name: "blocks_2d", check: check_blocks_2d },
    Puzzle { name: "grid_stride", check: check_grid_stride },
    Puzzle { name: "vectors", check: check_vectors },
    Puzzle { name: "atomics", check: check_atomics },
    Puzzle { name: "last_block", check: check_last_block },
];

/// `y[i] = x[i]²` for n numbers, in as many blocks of 64 threads as it takes.
fn blocks(k: &Builder) {
    let n = k.param::<u32>("n");
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name));
    let i = k.block_id() * k.threads() + k.tid();
    k.when(i.lt(n), || {
        let value = x.at(i).load();
        y.at(i).store(value * value);
    });
}

fn check_blocks(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let n = draw.between(1..=300);
    let x = whole(draw, n, 100);
    let y: Vec<f32> = x.iter().map(|x| x * x).collect();
    Ok(Case::new("blocks", block(64), n.div_ceil(64), blocks)?.number(n).input("x", &x).output("y", &y))
}

/// `y[j, i] = x[i, j]` for m rows of n columns: a grid of blocks of 8 × 8 threads over the matrix.
fn blocks_2d(k: &Builder) {
    let [m, n] = k.u32_params(["m", "n"]);
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name));
    let [tx, ty, _] = k.thread_idx();
    let [bx, by, _] = k.block_idx();
    let (row, column) = (by * 8 + ty, bx * 8 + tx);
    k.when(row.lt(m) & column.lt(n), || y.at(column * m + row).store(x.at(row * n + column).load()));
}

fn check_blocks_2d(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let [m, n] = [draw.between(1..=20), draw.between(1..=20)];
    let x = whole(draw, m * n, 100);
    let y: Vec<f32> = (0..n).flat_map(|j| (0..m).map(move |i| (i * n + j) as usize)).map(|at| x[at]).collect();
    let case = Case::new("blocks_2d", block((8, 8)), [n.div_ceil(8), m.div_ceil(8)], blocks_2d)?;
    Ok(case.number(m).number(n).input("x", &x).output("y", &y))
}

/// `y[i] = −x[i]` for n numbers in 2 blocks of 32 threads, whatever n is: each thread steps by the
/// size of the grid.
fn grid_stride(k: &Builder) {
    let n = k.param::<u32>("n");
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name));
    k.for_step(k.block_id() * 32 + k.tid(), n, 64u32, |i| y.at(i).store(-x.at(i).load()));
}

fn check_grid_stride(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let n = draw.between(1..=500);
    let x = whole(draw, n, 100);
    let y: Vec<f32> = x.iter().map(|x| -x).collect();
    Ok(Case::new("grid_stride", block(32), 2, grid_stride)?.number(n).input("x", &x).output("y", &y))
}

/// `y[i] = a · x[i] + y[i]` for 512 numbers, four of them in one access of 16 bytes.
fn vectors(k: &Builder) {
    let a = k.param::<f32>("a");
    let first = (k.block_id() * k.threads() + k.tid()) * 4;
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name).at(first));
    let (xs, ys) = (x.load_vec::<4>(), y.load_vec::<4>());
    y.store_vec::<4>(std::array::from_fn(|i| xs[i].fma(a, ys[i])));
}

fn check_vectors(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let (x, y) = (whole(draw, 512, 100), whole(draw, 512, 100));
    let sums: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 3.0 * x + y).collect();
    Ok(Case::new("vectors", block(64), 2, vectors)?.number(3.0f32).input("x", &x).changed("y", &y, &sums))
}

/// Adds the count of positive numbers to `count`, and the largest of all to `most`: every thread by
/// an atomic operation on global memory.
fn atomics(k: &Builder) {
    let n = k.param::<u32>("n");
    let x = k.global::<i32>("x");
    let (count, most) = (k.global::<u32>("count"), k.global::<i32>("most"));
    let i = k.block_id() * k.threads() + k.tid();
    k.when(i.lt(n), || {
        let value = x.at(i).load();
        most.red(AtomOp::Max, value, RedOrder::Relaxed(Scope::Gpu));
        k.when(value.gt(0), || count.red(AtomOp::Add, 1u32, RedOrder::Relaxed(Scope::Gpu)));
    });
}

fn check_atomics(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let n = draw.between(1..=200);
    let x = draw.integers(n as usize, 1000, |v| v as i32);
    let count = x.iter().filter(|&&x| x > 0).count() as u32;
    let most = x.iter().copied().max().unwrap_or(i32::MIN);
    let case = Case::new("atomics", block(32), n.div_ceil(32), atomics)?;
    Ok(case.number(n).input("x", &x).changed("count", &[0u32], &[count]).changed("most", &[i32::MIN], &[most]))
}

/// The sum over 4 blocks of 32 numbers: each block leaves its sum in `parts` and counts itself in
/// `done`; the block that counts last adds the parts.
fn last_block(k: &Builder) {
    let (x, parts) = (k.global::<f32>("x"), k.global::<f32>("parts"));
    let (done, sum) = (k.global::<u32>("done"), k.global::<f32>("sum"));
    let mine = x.at(k.block_id() * 32 + k.tid()).load().warp_reduce(|a, b| a + b);
    k.when(k.tid().eq(0), || {
        parts.at(k.block_id()).store(mine);
        // Releases the part, and acquires those of the blocks before.
        let before = done.atom(AtomOp::Add, 1u32, AtomOrder::AcqRel(Scope::Gpu));
        k.when(before.eq(3), || {
            sum.store((0..4u32).fold(k.lit(0.0f32), |sum, part| sum + parts.at(part).load()));
        });
    });
}

fn check_last_block(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 128, 100);
    let parts: Vec<f32> = x.chunks(32).map(|part| part.iter().sum()).collect();
    let case = Case::new("last_block", block(32), 4, last_block)?.input("x", &x).output("parts", &parts);
    Ok(case.changed("done", &[0u32], &[4]).output("sum", &[parts.iter().sum::<f32>()]))
}
