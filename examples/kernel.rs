//! Records a kernel over a typed layout, prints its PTX, and tries it against an oracle on the
//! simulator.
//!
//! `cargo run --example kernel`

use tilewright::codegen::device::sim;
use tilewright::codegen::ir::Arch;
use tilewright::codegen::ptx;
use tilewright::codegen::trial::{Bound, Expected, Trial};
use tilewright::codegen::verify::verify;
use tilewright::kernels::tile::prelude::*;
use tilewright::layout::typed::Contiguous;

const CAP: f32 = 0.25;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // cap · tanh(x / cap), where tanh z = 1 − 2 / (exp 2z + 1).
    let kernel = verify(record("soft_cap", Arch::Sm90a, block(64), |k| {
        let [x, y] = ["x", "y"].map(|name| LayoutTensor::new(k.global::<f32>(name), Contiguous::<64>::default()));
        let twice = (x.load([Index::thread(k)]) * (2.0 * std::f32::consts::LOG2_E / CAP)).ex2();
        y.store([Index::thread(k)], (k.lit(1.0f32) - k.lit(2.0f32).div_approx(twice + 1.0)) * CAP);
    }))?;
    println!("{}", ptx::emit(&kernel));

    let x: Vec<f32> = (0..64).map(|i| i as f32 / 32.0 - 1.0).collect();
    let capped: Vec<f64> = x.iter().map(|&x| f64::from(CAP) * f64::from(x / CAP).tanh()).collect();
    for seed in 0..8 {
        let mut trial = Trial::new(kernel.clone(), 1);
        let bound = Bound { absolute: 1e-5, relative: 0.0 };
        let x = trial.input("x", &x);
        let y = trial.output("y", Expected::near::<f32>(&capped, bound));
        let outcome = trial.pass(x).pass(y).run(&sim::open(seed))?;
        println!("// interleaving {seed}: {outcome}");
        if !outcome.is_right() {
            return Err(format!("the kernel gives wrong results under seed {seed}").into());
        }
    }
    Ok(())
}
