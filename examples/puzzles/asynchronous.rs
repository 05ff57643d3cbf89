//! Copies that run while the threads go on.

use tilewright::codegen::build::{Builder, Bulk, block};
use tilewright::codegen::device::TensorShape;
use tilewright::codegen::trial::Draw;
use tilewright::codegen::verify::VerifyErrors;
use tilewright::layout::DType;

use super::case::{Case, Puzzle, whole};

pub const PUZZLES: [Puzzle; 4] = [
    Puzzle { name: "async_copy", check: check_async_copy },
    Puzzle { name: "two_stages", check: check_two_stages },
    Puzzle { name: "bulk_copy", check: check_bulk_copy },
    Puzzle { name: "tensor_copy", check: check_tensor_copy },
];

/// `y[i] = x[255 − i]`: `cp.async` brings 16 bytes a thread into shared memory past the registers.
/// A thread waits for its own copies, the barrier for those of the others.
fn async_copy(k: &Builder) {
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name));
    let tile = k.shared::<f32>("tile", 256);
    tile.at(k.tid() * 4).cp_async(x.at(k.tid() * 4));
    k.cp_async_commit();
    k.cp_async_wait(0);
    k.barrier();
    for i in 0..4u32 {
        y.at(k.tid() + i * 64).store(tile.at(255 - (k.tid() + i * 64)).load());
    }
}

fn check_async_copy(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 256, 100);
    let y: Vec<f32> = x.iter().rev().copied().collect();
    Ok(Case::new("async_copy", block(64), 1, async_copy)?.input("x", &x).output("y", &y))
}

/// `y[i]` is the sum over n rows of 128 numbers at column i: while the block adds a row from one
/// stage of shared memory, the copy of the next row fills the other.
fn two_stages(k: &Builder) {
    let n = k.param::<u32>("n");
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name));
    let stages = k.shared::<f32>("stages", 2 * 128);
    let fetch = |row| {
        let copies = k.tid().lt(32) & n.gt(row);
        k.when(copies, || stages.at(row % 2 * 128 + k.tid() * 4).cp_async(x.at(row * 128 + k.tid() * 4)));
        k.cp_async_commit();
    };
    fetch(k.lit(0u32));
    let sum = k.carry(0, n, k.lit(0.0f32), |row, sum| {
        fetch(row + 1);
        k.cp_async_wait(1);
        k.barrier();
        let sum = sum + stages.at(row % 2 * 128 + k.tid()).load();
        k.barrier();
        sum
    });
    y.at(k.tid()).store(sum);
}

fn check_two_stages(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let n = draw.between(1..=6);
    let x = whole(draw, n * 128, 100);
    let y: Vec<f32> = (0..128).map(|i| x.iter().skip(i).step_by(128).sum()).collect();
    Ok(Case::new("two_stages", block(128), 1, two_stages)?.number(n).input("x", &x).output("y", &y))
}

/// `y[i] = 2 · x[i]` for 1024 numbers: one thread starts one bulk copy, which counts its bytes at
/// an mbarrier; all wait there.
fn bulk_copy(k: &Builder) {
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name));
    let tile = k.shared_aligned::<f32>("tile", 1024, 128);
    let arrived = k.mbarriers("arrived", 1);
    k.when(k.tid().eq(0), || {
        arrived.init(1);
        k.fence_mbarrier_init();
        arrived.arrive_expect_tx(4096);
        tile.bulk_load(x, 4096, arrived, Bulk::default());
    });
    k.barrier();
    arrived.wait(0);
    k.for_step(k.tid(), 1024u32, 128u32, |i| y.at(i).store(tile.at(i).load() * 2.0));
}

fn check_bulk_copy(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 1024, 100);
    let y: Vec<f32> = x.iter().map(|x| x * 2.0).collect();
    Ok(Case::new("bulk_copy", block(128), 1, bulk_copy)?.input("x", &x).output("y", &y))
}

/// `out[j, i] = x[row + i, column + j]`, a box of 16 × 32 numbers of a matrix of 40 × 64: the
/// tensor map states matrix and box, and what is past the edge is zero. The column is a multiple of
/// 4, for 16 bytes.
fn tensor_copy(k: &Builder) {
    let x = k.tensor_map("x");
    let [row, column] = ["row", "column"].map(|name| k.param::<i32>(name));
    let tile = k.shared_aligned::<f32>("tile", 16 * 32, 128);
    let arrived = k.mbarriers("arrived", 1);
    k.when(k.tid().eq(0), || {
        arrived.init(1);
        k.fence_mbarrier_init();
        arrived.arrive_expect_tx(16 * 32 * 4);
        tile.tensor_load(x, &[column, row], arrived, Bulk::default());
    });
    k.barrier();
    arrived.wait(0);
    let out = k.global::<f32>("out");
    k.for_step(k.tid(), 512u32, 64u32, |at| out.at(at).store(tile.at(at % 16 * 32 + at / 16).load()));
}

fn check_tensor_copy(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 40 * 64, 100);
    let [row, column] = [draw.between(0..=39), 4 * draw.between(0..=15)];
    let at = |i: u32, j: u32| if i < 40 && j < 64 { x[(i * 64 + j) as usize] } else { 0.0 };
    let out: Vec<f32> = (0..512).map(|place| at(row + place % 16, column + place / 16)).collect();
    let shape = TensorShape::row_major(DType::F32, [40, 64], [16, 32]);
    let case = Case::new("tensor_copy", block(64), 1, tensor_copy)?.map("x", &x, shape);
    Ok(case.number(row as i32).number(column as i32).output("out", &out))
}
