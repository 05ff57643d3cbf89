//! Random trials of every shipped kernel on a device: `selftest DEVICE TRIALS [KERNEL]`. Exits with 1 if one is wrong.

use std::error::Error;
use std::process::ExitCode;
use tilewright_codegen::device::{Device, Name};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::Shipped;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let device = args.next().ok_or("selftest DEVICE TRIALS [KERNEL]")?.parse::<Name>()?.open()?;
    let trials: u64 = args.next().ok_or("selftest DEVICE TRIALS [KERNEL]")?.parse()?;
    let only = args.next();
    let mut wrong = 0;
    for kernel in tilewright_kernels::shipped() {
        if only.as_deref().is_none_or(|only| only == kernel.name()) {
            wrong += put_on_trial(&device, &*kernel, trials)?;
        }
    }
    Ok(ExitCode::from(u8::from(wrong > 0)))
}

/// How many trials were wrong.
fn put_on_trial(device: &Device, kernel: &dyn Shipped, trials: u64) -> Result<u64, Box<dyn Error>> {
    let (mut wrong, mut worst) = (0, 0f64);
    for seed in 0..trials {
        let outcome = kernel.draw(Arch::Sm90a, seed)?.run(device)?;
        worst = outcome.compared.iter().map(|output| output.relative_error).fold(worst, f64::max);
        if !outcome.is_right() {
            wrong += 1;
            println!("{} seed {seed}: {outcome}", kernel.name());
        }
    }
    println!("{}: {} of {trials} right, largest relative error {worst:.1e}", kernel.name(), trials - wrong);
    Ok(wrong)
}
