//! Shared memory: the threads of a block exchange numbers, with a barrier between writes and reads.

use tilewright::codegen::build::{Builder, block};
use tilewright::codegen::ir::attr::{AtomOp, RedOrder, Scope};
use tilewright::codegen::trial::Draw;
use tilewright::codegen::verify::VerifyErrors;

use super::case::{Case, Puzzle, whole};

pub const PUZZLES: [Puzzle; 7] = [
    Puzzle { name: "reverse", check: check_reverse },
    Puzzle { name: "pooling", check: check_pooling },
    Puzzle { name: "dot_product", check: check_dot_product },
    Puzzle { name: "convolution", check: check_convolution },
    Puzzle { name: "prefix_sum", check: check_prefix_sum },
    Puzzle { name: "histogram", check: check_histogram },
    Puzzle { name: "transpose", check: check_transpose },
];

/// `y[i] = x[63 − i]`, where every thread loads and stores at its own place: the numbers change
/// places in shared memory.
fn reverse(k: &Builder) {
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name).at(k.tid()));
    let tile = k.shared::<f32>("tile", 64);
    tile.at(k.tid()).store(x.load());
    k.barrier();
    y.store(tile.at(63 - k.tid()).load());
}

fn check_reverse(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 64, 100);
    let y: Vec<f32> = x.iter().rev().copied().collect();
    Ok(Case::new("reverse", block(64), 1, reverse)?.input("x", &x).output("y", &y))
}

/// `y[i]` is the sum of the last three numbers up to x[i], one load from global memory a thread.
fn pooling(k: &Builder) {
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name).at(k.tid()));
    // Two zeros come first.
    let tile = k.shared::<f32>("tile", 66);
    k.when(k.tid().lt(2), || tile.at(k.tid()).store(0.0f32));
    tile.at(k.tid() + 2).store(x.load());
    k.barrier();
    let last = [0u32, 1, 2].map(|back| tile.at(k.tid() + back).load());
    y.store(last[0] + last[1] + last[2]);
}

fn check_pooling(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 64, 100);
    let y: Vec<f32> = (0..64usize).map(|i| x[i.saturating_sub(2)..=i].iter().sum()).collect();
    Ok(Case::new("pooling", block(64), 1, pooling)?.input("x", &x).output("y", &y))
}

/// The dot product of 128 numbers: products in shared memory, and half of the threads add in each
/// of seven rounds.
fn dot_product(k: &Builder) {
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name).at(k.tid()).load());
    let terms = k.shared::<f32>("terms", 128);
    terms.at(k.tid()).store(x * y);
    for half in [64u32, 32, 16, 8, 4, 2, 1] {
        k.barrier();
        k.when(k.tid().lt(half), || {
            let mine = terms.at(k.tid());
            mine.store(mine.load() + mine.at(half).load());
        });
    }
    k.when(k.tid().eq(0), || k.global::<f32>("out").store(terms.load()));
}

fn check_dot_product(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let (x, y) = (whole(draw, 128, 50), whole(draw, 128, 50));
    let sum: f32 = x.iter().zip(&y).map(|(x, y)| x * y).sum();
    Ok(Case::new("dot_product", block(128), 1, dot_product)?.input("x", &x).input("y", &y).output("out", &[sum]))
}

/// `y[i] = Σⱼ x[i + j] · w[j]` for n numbers and four weights; what is past the end counts as zero.
/// Each of the blocks of 64 loads 67 numbers once.
fn convolution(k: &Builder) {
    let n = k.param::<u32>("n");
    let [x, w, y] = ["x", "w", "y"].map(|name| k.global::<f32>(name));
    let tile = k.shared::<f32>("tile", 67);
    let first = k.block_id() * 64;
    k.for_step(k.tid(), 67u32, 64u32, |at| {
        let value = k.var(0.0f32);
        k.when((first + at).lt(n), || value.set(x.at(first + at).load()));
        tile.at(at).store(value);
    });
    k.barrier();
    k.when((first + k.tid()).lt(n), || {
        let term = |j: u32| tile.at(k.tid() + j).load() * w.at(j).load();
        y.at(first + k.tid()).store((1..4).fold(term(0), |sum, j| sum + term(j)));
    });
}

fn check_convolution(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let n = draw.between(1..=200);
    let (x, w) = (whole(draw, n, 50), whole(draw, 4, 50));
    let y: Vec<f32> = (0..x.len()).map(|i| x[i..].iter().zip(&w).map(|(x, w)| x * w).sum()).collect();
    let case = Case::new("convolution", block(64), n.div_ceil(64), convolution)?;
    Ok(case.number(n).input("x", &x).input("w", &w).output("y", &y))
}

/// `y[i] = x[0] + … + x[i]` for 64 numbers, in six rounds of doubling distances. Two arrays
/// alternate, so that no thread overwrites what another still reads.
fn prefix_sum(k: &Builder) {
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name).at(k.tid()));
    let arrays = [k.shared::<f32>("even", 64), k.shared::<f32>("odd", 64)];
    let sum = k.var(x.load());
    for round in 0..6 {
        let array = arrays[round % 2];
        array.at(k.tid()).store(sum);
        k.barrier();
        let distance = 1u32 << round;
        k.when(k.tid().ge(distance), || sum.set(sum + array.at(k.tid() - distance).load()));
    }
    y.store(sum);
}

fn check_prefix_sum(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 64, 100);
    let y: Vec<f32> = (0..64usize).map(|i| x[..=i].iter().sum()).collect();
    Ok(Case::new("prefix_sum", block(64), 1, prefix_sum)?.input("x", &x).output("y", &y))
}

/// Counts n bytes by their low four bits: 16 counters in shared memory, added to by atomic
/// operations.
fn histogram(k: &Builder) {
    let n = k.param::<u32>("n");
    let (x, out) = (k.global::<u8>("x"), k.global::<u32>("out"));
    let counts = k.shared::<u32>("counts", 16);
    k.when(k.tid().lt(16), || counts.at(k.tid()).store(0u32));
    k.barrier();
    k.for_step(k.tid(), n, 64u32, |i| {
        let bin = x.at(i).load().cast::<u32>() & 15;
        counts.at(bin).red(AtomOp::Add, 1u32, RedOrder::Relaxed(Scope::Cta));
    });
    k.barrier();
    k.when(k.tid().lt(16), || out.at(k.tid()).store(counts.at(k.tid()).load()));
}

fn check_histogram(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let n = draw.between(1..=500);
    let x: Vec<u8> = (0..n).map(|_| draw.bits() as u8).collect();
    let out: Vec<u32> = (0..16).map(|bin| x.iter().filter(|&&x| x & 15 == bin).count() as u32).collect();
    Ok(Case::new("histogram", block(64), 1, histogram)?.number(n).input("x", &x).output("out", &out))
}

/// `y[j, i] = x[i, j]` for a 64 × 64 matrix, tiles of 32 × 32 a block: rows are read and rows are
/// written. Rows of 33 numbers in shared memory put the numbers of a column into 32 banks.
fn transpose(k: &Builder) {
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name));
    let tile = k.shared::<f32>("tile", 32 * 33);
    let [tx, ty, _] = k.thread_idx();
    let [bx, by, _] = k.block_idx();
    for row in (0..32u32).step_by(8) {
        let value = x.at((by * 32 + ty + row) * 64 + bx * 32 + tx).load();
        tile.at((ty + row) * 33 + tx).store(value);
    }
    k.barrier();
    for row in (0..32u32).step_by(8) {
        let value = tile.at(tx * 33 + ty + row).load();
        y.at((bx * 32 + ty + row) * 64 + by * 32 + tx).store(value);
    }
}

fn check_transpose(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 64 * 64, 1000);
    let y: Vec<f32> = (0..64 * 64).map(|at| x[at % 64 * 64 + at / 64]).collect();
    Ok(Case::new("transpose", block((32, 8)), [2, 2], transpose)?.input("x", &x).output("y", &y))
}
