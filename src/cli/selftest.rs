//! `tilewright selftest`: every shipped kernel against its oracle, on fresh random inputs.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use tilewright_codegen::device::{Device, DeviceError, Name};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::Shipped;

use super::Failure;
use crate::shipped;

/// Try every kernel of this build on a device against its oracle
///
/// Sizes and inputs are random, and the same for the same seed. Exits with 1 on any difference or fault, with 2 where
/// there is no such device.
#[derive(Args)]
pub struct SelftestArgs {
    /// Where to run: sim, sim:SEED or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "sim")]
    device: Name,
    /// Trials of each kernel
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    cases: u32,
    /// Seed of the first trial [default: another one each time]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// This kernel alone
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
}

/// How the trials of a kernel went.
#[derive(Default)]
struct Tally {
    right: u32,
    wrong: u32,
    max_error: f64,
    /// What is wrong in the first trial that is.
    first: Option<String>,
}

/// Runs the subcommand.
pub fn run(args: &SelftestArgs) -> Result<ExitCode, Failure> {
    let kernels = match &args.kernel {
        Some(name) => vec![shipped::named(name)?],
        None => shipped::all(),
    };
    let device = args.device.open()?;
    let arch = device.properties().arch().ok_or_else(|| NoArch { device: device.properties().name.clone() })?;
    let seed = args.seed.unwrap_or_else(|| RandomState::new().hash_one(0u8) >> 32);
    let mut out = io::stdout();
    let (name, cases) = (&device.properties().name, args.cases);
    writeln!(out, "{} ({name}), {arch}; {cases} cases of each kernel from seed {seed}", args.device)?;
    writeln!(out, "{:20} {:>6} {:>6} {:>10}  verdict", "kernel", "right", "wrong", "max error")?;
    let (mut right, mut wrong) = (0, 0);
    for kernel in &kernels {
        let name = kernel.name();
        if !kernel.needs().met_by(arch) {
            writeln!(out, "{name:20} {:>6} {:>6} {:>10}  skipped: needs {}", "-", "-", "-", kernel.needs().noun())?;
            continue;
        }
        let tally = try_kernel(&device, &**kernel, arch, seed, cases);
        let verdict = if tally.wrong == 0 { "right" } else { "WRONG" };
        writeln!(out, "{name:20} {:>6} {:>6} {:>10.1e}  {verdict}", tally.right, tally.wrong, tally.max_error)?;
        if let Some(first) = &tally.first {
            writeln!(out, "    {}", first.trim_end().replace('\n', "\n    "))?;
        }
        right += tally.right;
        wrong += tally.wrong;
    }
    writeln!(out, "{right} of {} trials right", right + wrong)?;
    Ok(ExitCode::from(u8::from(wrong > 0)))
}

/// A device before all that kernels are generated for.
#[derive(Debug, thiserror::Error)]
#[error("kernels are generated for compute capability 8.0 and later, which {device} has not")]
struct NoArch {
    device: String,
}

fn try_kernel(device: &Device, kernel: &dyn Shipped, arch: Arch, seed: u64, cases: u32) -> Tally {
    let mut tally = Tally::default();
    for case in 0..u64::from(cases) {
        let seed = seed.wrapping_add(case);
        let (wrong, lost) = match kernel.draw(arch, seed) {
            Err(errors) => (Some(errors.to_string()), true),
            Ok(trial) => match trial.run(device) {
                Ok(outcome) => {
                    tally.max_error = tally.max_error.max(outcome.max_error());
                    ((!outcome.is_right()).then(|| outcome.to_string()), false)
                }
                Err(error) => (
                    Some(format!("{} ({}): {error}", kernel.name(), trial.particulars())),
                    matches!(error, DeviceError::Lost { .. }),
                ),
            },
        };
        match wrong {
            None => tally.right += 1,
            Some(text) => {
                tally.wrong += 1;
                tally.first.get_or_insert_with(|| format!("seed {seed}: {text}"));
            }
        }
        // Nothing more is learnt of a kernel that is not one, nor from a device that is gone.
        if lost {
            break;
        }
    }
    tally
}
