//! The largest element of each row: recorded once, run in the simulator, printed as PTX.
//!
//! ```text
//! cargo run -p tilewright-kernels --example row_max
//! ```

use std::error::Error;

use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::device::sim;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ptx;
use tilewright_codegen::trial::{Expected, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::tile::{LayoutTensor, Modes};

/// Computes a row's maximum with one warp; columns beyond the edge are loaded as −∞.
fn row_max(k: &Builder) {
    let [rows, columns] = ["rows", "columns"].map(|name| k.param::<u32>(name));
    let x = k.global::<f32>("x");
    let out = k.global::<f32>("out");
    let x = LayoutTensor::new(x, Modes::row_major([rows.into(), columns.into()], columns));
    let most = k.var(f32::NEG_INFINITY);
    k.for_(0u32, (columns + 31) / 32, |tile| {
        let part = x.clipped_tile([1, 32], [k.block_id().into(), tile.into()]);
        most.set(most.get().max(part.load_or([0.into(), k.lane().into()], f32::NEG_INFINITY)));
    });
    let largest = most.get().warp_reduce(|a, b| a.max(b));
    k.when(k.lane().eq(0), || out.at(k.block_id()).store(largest));
}

fn main() -> Result<(), Box<dyn Error>> {
    let rows = 4u32;
    let columns = 45u32;
    let x: Vec<f32> = (0..rows * columns).map(|i| -1.0 - (i * 29 % 97) as f32).collect();
    let largest: Vec<f32> =
        x.chunks(columns as usize).map(|row| row.iter().copied().fold(f32::NEG_INFINITY, f32::max)).collect();

    let kernel = verify(record("row_max", Arch::Sm80, block(32), row_max))?;
    println!("{}", ptx::emit(&kernel));

    let mut trial = Trial::new(kernel, rows);
    let x = trial.input("x", &x);
    let out = trial.output("out", Expected::exact(&largest));
    let outcome = trial.pass(rows).pass(columns).pass(x).pass(out).run(&sim::open(0))?;
    println!("largest of each row: {largest:?}");
    println!("simulator: {}", if outcome.is_right() { "equal" } else { "different" });
    if outcome.is_right() { Ok(()) } else { Err(outcome.to_string().into()) }
}
