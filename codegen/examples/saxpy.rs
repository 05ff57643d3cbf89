//! y = a · x + y: recorded, verified, run, and checked.
//! `cargo run -p tilewright-codegen --example saxpy -- cuda:0` runs it on a GPU; without an
//! argument it runs on the simulator.

use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::device;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::kernel_params;
use tilewright_codegen::verify::verify;

kernel_params! {
    /// y = a · x + y over `n` elements.
    struct Saxpy {
        n: u32,
        a: f32,
        x: [f32],
        y: [f32],
    }
}

fn saxpy(k: &Builder) {
    let Saxpy { n, a, x, y } = k.params::<Saxpy>();
    let i = k.block_id() * k.threads() + k.tid();
    k.when(i.lt(n), || y.at(i).store(a * x.at(i).load() + y.at(i).load()));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "sim".into());
    let device = device::open(&name)?;
    let arch = device.properties().arch().unwrap_or(Arch::Sm80);
    let kernel = verify(record("saxpy", arch, block(128), saxpy))?;
    println!("{}", kernel.kernel());

    let n = 1000u32;
    let numbers: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let stream = device.stream()?;
    let x = stream.buffer(&numbers)?;
    let y = stream.buffer(&numbers)?;
    let saxpy = device.load(&kernel)?.typed::<Saxpy>()?;
    saxpy.launch(&stream, n.div_ceil(128), Saxpy { n, a: 2.0, x: &x, y: &y })?;
    let found = stream.read(&y)?;
    let wrong = found.iter().zip(&numbers).filter(|(found, x)| **found != 3.0 * **x).count();
    println!("{name}: y[999] = {}, {wrong} of {n} elements are wrong", found[999]);
    Ok(())
}
