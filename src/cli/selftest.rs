//! `tilewright selftest`: every shipped kernel against its oracle, on fresh random inputs.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::ops::Range;
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::thread;

use clap::Args;
use tilewright_codegen::device::{Device, DeviceError, Name};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::{Outcome, Shipped, Trial};
use tilewright_codegen::verify::VerifyErrors;

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
    /// Largest ‖found − expected‖ / ‖expected‖ of an output.
    relative_error: f64,
    /// What is wrong in the first trial that is.
    first: Option<String>,
}

impl Tally {
    fn count(&mut self, outcome: &Outcome, seed: u64) {
        self.max_error = self.max_error.max(outcome.max_error());
        let relative = outcome.compared.iter().map(|output| output.relative_error);
        self.relative_error = relative.fold(self.relative_error, f64::max);
        if outcome.is_right() {
            self.right += 1;
        } else {
            self.wrong(seed, &outcome.to_string());
        }
    }

    fn wrong(&mut self, seed: u64, what: &str) {
        self.wrong += 1;
        self.first.get_or_insert_with(|| format!("seed {seed}: {what}"));
    }
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
    let (name, cases) = (&device.properties().name, args.cases);
    let mut out = io::stdout();
    writeln!(out, "{} ({name}), {arch}; {cases} cases of each kernel from seed {seed}", args.device)?;
    let right = table(&mut out, &device, &kernels, arch, seed..seed.saturating_add(cases.into()))?;
    Ok(ExitCode::from(u8::from(!right)))
}

/// Tries the kernels on inputs of each seed and writes a line for each; whether all were right.
fn table(
    out: &mut dyn Write,
    device: &Device,
    kernels: &[Box<dyn Shipped>],
    arch: Arch,
    seeds: Range<u64>,
) -> io::Result<bool> {
    writeln!(out, "{:24} {:>6} {:>6} {:>10} {:>9}  verdict", "kernel", "right", "wrong", "max error", "relative")?;
    let (mut right, mut wrong) = (0, 0);
    for kernel in kernels {
        let name = kernel.name();
        if !kernel.needs().met_by(arch) {
            let needs = kernel.needs().noun();
            writeln!(out, "{name:24} {:>6} {:>6} {:>10} {:>9}  skipped: needs {needs}", "-", "-", "-", "-")?;
            continue;
        }
        let tally = try_kernel(device, &**kernel, arch, seeds.clone());
        let verdict = if tally.wrong == 0 { "right" } else { "WRONG" };
        let Tally { right: good, wrong: bad, max_error, relative_error, .. } = &tally;
        writeln!(out, "{name:24} {good:>6} {bad:>6} {max_error:>10.1e} {relative_error:>9.1e}  {verdict}")?;
        if let Some(first) = &tally.first {
            writeln!(out, "    {}", first.trim_end().replace('\n', "\n    "))?;
        }
        right += tally.right;
        wrong += tally.wrong;
    }
    writeln!(out, "{right} of {} trials right", right + wrong)?;
    Ok(wrong == 0)
}

/// A device before all that kernels are generated for.
#[derive(Debug, thiserror::Error)]
#[error("kernels are generated for compute capability 8.0 and later, which {device} has not")]
struct NoArch {
    device: String,
}

/// The trials of some seeds, each drawn in a thread of its own: oracles take longer than launches. Loading is not for
/// threads, since the driver compiles one kernel at a time.
fn drawn(kernel: &dyn Shipped, arch: Arch, seeds: Range<u64>) -> Vec<Result<Trial, VerifyErrors>> {
    thread::scope(|scope| {
        let threads: Vec<_> = seeds.map(|seed| scope.spawn(move || kernel.draw(arch, seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// Kernels that stay loaded, so that another trial of the same one finds it compiled.
const KEPT: usize = 128;

fn try_kernel(device: &Device, kernel: &dyn Shipped, arch: Arch, seeds: Range<u64>) -> Tally {
    let mut tally = Tally::default();
    let together = thread::available_parallelism().map_or(1, usize::from);
    let mut kept = VecDeque::new();
    for start in seeds.clone().step_by(together) {
        let batch = start..seeds.end.min(start + together as u64);
        for (seed, trial) in batch.clone().zip(drawn(kernel, arch, batch)) {
            let trial = match trial {
                Ok(trial) => trial,
                Err(errors) => {
                    tally.wrong(seed, &errors.to_string());
                    return tally;
                }
            };
            let outcome = device.load(trial.kernel()).and_then(|loaded| {
                let outcome = trial.run_loaded(&loaded, &device.stream()?);
                kept.push_back(loaded);
                outcome
            });
            match outcome {
                Ok(outcome) => tally.count(&outcome, seed),
                Err(error) => {
                    tally.wrong(seed, &format!("{} ({}): {error}", kernel.name(), trial.particulars()));
                    // Nothing is learnt from a device that is gone.
                    if matches!(error, DeviceError::Lost { .. }) {
                        return tally;
                    }
                }
            }
            kept.drain(..kept.len().saturating_sub(KEPT));
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_codegen::build::{Builder, block, record};
    use tilewright_codegen::device::sim;
    use tilewright_codegen::ir::{Kernel, Needs};
    use tilewright_codegen::trial::{Expected, Trial};
    use tilewright_codegen::verify::{VerifyErrors, verify};

    /// A kernel that writes the numbers 0.. into y, or ought to.
    struct Numbers {
        name: &'static str,
        needs: Needs,
        build: fn(&Builder),
    }

    impl Shipped for Numbers {
        fn name(&self) -> &str {
            self.name
        }

        fn needs(&self) -> Needs {
            self.needs
        }

        fn record(&self, arch: Arch) -> Kernel {
            record(self.name, arch, block(32), self.build)
        }

        fn draw(&self, arch: Arch, _: u64) -> Result<Trial, VerifyErrors> {
            let mut trial = Trial::new(verify(self.record(arch))?, 1);
            let numbers: Vec<u32> = (0..32).collect();
            let y = trial.output("y", Expected::exact(&numbers));
            Ok(trial.pass(y))
        }
    }

    fn numbers(name: &'static str, build: fn(&Builder)) -> Box<dyn Shipped> {
        Box::new(Numbers { name, needs: Needs::Sm80, build })
    }

    fn said(kernels: &[Box<dyn Shipped>]) -> (bool, String) {
        let mut out = Vec::new();
        let right = table(&mut out, &sim::open(0), kernels, Arch::Sm90a, 0..2).expect("a vector takes all");
        (right, String::from_utf8(out).expect("UTF-8"))
    }

    #[test]
    fn wrong_kernels_are_found_and_the_others_go_on() {
        let good: fn(&Builder) = |k| k.global::<u32>("y").at(k.tid()).store(k.tid());
        let kernels = [
            numbers("off_by_one", |k| k.global::<u32>("y").at(k.tid()).store(k.tid() + 1)),
            numbers("one_missing", |k| k.when(k.tid().lt(31), || k.global::<u32>("y").at(k.tid()).store(k.tid()))),
            numbers("beyond", |k| k.global::<u32>("y").at(k.tid() + 1).store(k.tid() + 1)),
            numbers("good", good),
            numbers("good_again", good),
        ];
        let (right, text) = said(&kernels);
        assert!(!right);
        let verdict = |name: &str| text.lines().find(|line| line.starts_with(name)).expect(name).to_owned();
        for name in ["off_by_one", "one_missing", "beyond"] {
            assert!(verdict(name).ends_with("WRONG"), "{text}");
        }
        assert!(verdict("good").ends_with("right"), "{text}");
        for cause in ["[0] = 1, not 0", "[31] never written, not 31", "out of bounds"] {
            assert!(text.contains(cause), "`{cause}` is not in {text}");
        }
        assert!(text.ends_with("4 of 10 trials right\n"), "{text}");
    }

    #[test]
    fn kernels_that_the_device_lacks_are_skipped() {
        let lacking = Numbers { name: "later", needs: Needs::Sm90a, build: |_| {} };
        let mut out = Vec::new();
        let kernels = [Box::new(lacking) as Box<dyn Shipped>];
        assert!(table(&mut out, &sim::open(0), &kernels, Arch::Sm80, 0..2).expect("a vector takes all"));
        assert!(String::from_utf8(out).expect("UTF-8").contains("skipped: needs sm_90a only"));
    }
}
