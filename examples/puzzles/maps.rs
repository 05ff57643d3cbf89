//! One block, one thread a number.

use tilewright::codegen::build::{Builder, block};
use tilewright::codegen::trial::Draw;
use tilewright::codegen::verify::VerifyErrors;
use tilewright::kernels::math;

use super::case::{Case, Puzzle, fractions, whole};

pub const PUZZLES: [Puzzle; 7] = [
    Puzzle { name: "map", check: check_map },
    Puzzle { name: "zip", check: check_zip },
    Puzzle { name: "guard", check: check_guard },
    Puzzle { name: "choose", check: check_choose },
    Puzzle { name: "gather", check: check_gather },
    Puzzle { name: "map_2d", check: check_map_2d },
    Puzzle { name: "broadcast", check: check_broadcast },
];

/// `y[i] = x[i] + 10` for 32 numbers: a block of 32 threads, a thread a number.
fn map(k: &Builder) {
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name));
    let i = k.tid();
    y.at(i).store(x.at(i).load() + 10.0);
}

fn check_map(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 32, 100);
    let y: Vec<f32> = x.iter().map(|x| x + 10.0).collect();
    Ok(Case::new("map", block(32), 1, map)?.input("x", &x).output("y", &y))
}

/// `z[i] = x[i] · y[i] + 1` for 64 numbers of two arrays. [`Val::fma`] multiplies and adds at once.
///
/// [`Val::fma`]: tilewright::codegen::build::Val::fma
fn zip(k: &Builder) {
    let [x, y, z] = ["x", "y", "z"].map(|name| k.global::<f32>(name).at(k.tid()));
    z.store(x.load().fma(y.load(), 1.0));
}

fn check_zip(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let (x, y) = (whole(draw, 64, 100), whole(draw, 64, 100));
    let z: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x * y + 1.0).collect();
    Ok(Case::new("zip", block(64), 1, zip)?.input("x", &x).input("y", &y).output("z", &z))
}

/// `y[i] = gelu(x[i])` for n numbers, fewer than the 64 threads: the others must not touch memory.
fn guard(k: &Builder) {
    let n = k.param::<u32>("n");
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name));
    let i = k.tid();
    k.when(i.lt(n), || y.at(i).store(math::gelu_tanh(x.at(i).load())));
}

fn check_guard(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let n = draw.between(1..=63);
    let x = fractions(draw, n);
    let gelu = |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
    let y: Vec<f64> = x.iter().map(|&x| gelu(x.into())).collect();
    Ok(Case::new("guard", block(64), 1, guard)?.number(n).input("x", &x).near("y", &y))
}

/// `y[i]` is x[i] where that is above zero, else a tenth of it, without a branch:
/// `condition.select(a, b)`.
fn choose(k: &Builder) {
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name).at(k.tid()));
    let value = x.load();
    y.store(value.gt(0.0).select(value, value * 0.1));
}

fn check_choose(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 32, 100);
    let y: Vec<f32> = x.iter().map(|&x| if x > 0.0 { x } else { x * 0.1 }).collect();
    Ok(Case::new("choose", block(32), 1, choose)?.input("x", &x).output("y", &y))
}

/// `out[i] = table[ids[i]]` for 64 ids, 0 where an id is not below `rows`.
fn gather(k: &Builder) {
    let rows = k.param::<u32>("rows");
    let (table, ids) = (k.global::<f32>("table"), k.global::<u32>("ids"));
    let id = ids.at(k.tid()).load();
    let found = k.var(0.0f32);
    k.when(id.lt(rows), || found.set(table.at(id).load()));
    k.global::<f32>("out").at(k.tid()).store(found);
}

fn check_gather(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let table = whole(draw, 40, 100);
    let ids: Vec<u32> = (0..64).map(|_| draw.between(0..=49)).collect();
    let out: Vec<f32> = ids.iter().map(|&id| table.get(id as usize).copied().unwrap_or(0.0)).collect();
    let case = Case::new("gather", block(64), 1, gather)?;
    Ok(case.number(40u32).input("table", &table).input("ids", &ids).output("out", &out))
}

/// `y[i, j] = 2 · x[i, j]` for an n × n matrix, n up to 8, by a block of 8 × 8 threads.
fn map_2d(k: &Builder) {
    let n = k.param::<u32>("n");
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name));
    let [column, row, _] = k.thread_idx();
    k.when(row.lt(n) & column.lt(n), || {
        let at = row * n + column;
        y.at(at).store(x.at(at).load() * 2.0);
    });
}

fn check_map_2d(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let n = draw.between(1..=8);
    let x = whole(draw, n * n, 100);
    let y: Vec<f32> = x.iter().map(|x| x * 2.0).collect();
    Ok(Case::new("map_2d", block((8, 8)), 1, map_2d)?.number(n).input("x", &x).output("y", &y))
}

/// `out[i, j] = a[i] + b[j]`: 8 numbers of a column and 8 of a row become a matrix.
fn broadcast(k: &Builder) {
    let [a, b, out] = ["a", "b", "out"].map(|name| k.global::<f32>(name));
    let [column, row, _] = k.thread_idx();
    out.at(row * 8 + column).store(a.at(row).load() + b.at(column).load());
}

fn check_broadcast(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let (a, b) = (whole(draw, 8, 100), whole(draw, 8, 100));
    let out: Vec<f32> = a.iter().flat_map(|a| b.iter().map(move |b| a + b)).collect();
    Ok(Case::new("broadcast", block((8, 8)), 1, broadcast)?.input("a", &a).input("b", &b).output("out", &out))
}
