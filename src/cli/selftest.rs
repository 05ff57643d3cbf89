//! `tilewright selftest`: compares every shipped kernel with its oracle on random inputs.

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
use tilewright_codegen::trial::{Shipped, Trial, TrialOutcome};
use tilewright_codegen::verify::VerifyErrors;

use super::device::default_kernel_device;
use super::progress::ItemBar;
use super::{Failure, number};
use crate::shipped;

/// Compare every kernel of this build with its oracle on a device
///
/// Sizes and inputs are random; the same seed gives the same ones. Exits with 1 on any difference
/// or fault, with 2 if the device does not exist.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright selftest --device cuda:0
  tilewright selftest --device sim --kernel gemm --cases 20 --seed 1")]
pub struct SelftestArgs {
    /// Where to run: cuda:N or sim:SEED (the simulator) [default: cuda:0 if there is one, else sim]
    #[arg(long, value_name = "DEVICE")]
    device: Option<Name>,
    /// Trials of each kernel
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::count(1..=1 << 20))]
    cases: usize,
    /// Seed of the first trial [default: random]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Try this kernel only
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
}

/// The results of a kernel's trials.
#[derive(Default)]
struct Tally {
    right: u32,
    wrong: u32,
    max_error: f64,
    /// Largest ‖found − expected‖ / ‖expected‖ of an output.
    relative_error: f64,
    /// The first wrong value of the first wrong trial.
    first: Option<String>,
}

impl Tally {
    fn count(&mut self, outcome: &TrialOutcome, seed: u64) {
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
    let name = args.device.unwrap_or_else(default_kernel_device);
    let device = name.open()?;
    let arch = device.properties().arch().ok_or_else(|| NoArch { device: device.properties().name.clone() })?;
    let seed = args.seed.unwrap_or_else(|| RandomState::new().hash_one(0u8) >> 32);
    let product = &device.properties().name;
    let cases = args.cases;
    let end = seed.checked_add(cases as u64).ok_or(LastSeed { seed, cases })?;
    let mut out = io::stdout();
    writeln!(out, "{name} ({product}), {arch}; {cases} cases of each kernel from seed {seed}")?;
    let right = table(&mut out, &device, &kernels, arch, seed..end)?;
    Ok(ExitCode::from(u8::from(!right)))
}

/// Tries the kernels on inputs of each seed and writes a line for each. Returns whether all were
/// right.
fn table(
    out: &mut dyn Write,
    device: &Device,
    kernels: &[Box<dyn Shipped>],
    arch: Arch,
    seeds: Range<u64>,
) -> io::Result<bool> {
    writeln!(out, "{:24} {:>6} {:>6} {:>10} {:>9}  verdict", "kernel", "right", "wrong", "max error", "relative")?;
    let mut right = 0;
    let mut wrong = 0;
    let bar = ItemBar::new("testing", kernels.len());
    for kernel in kernels {
        bar.advance();
        let name = kernel.name();
        if !kernel.needs().met_by(arch) {
            let needs = kernel.needs().noun();
            let line = format!("{name:24} {:>6} {:>6} {:>10} {:>9}  skipped: needs {needs}", "-", "-", "-", "-");
            bar.suspend(|| writeln!(out, "{line}"))?;
            continue;
        }
        let tally = try_kernel(device, &**kernel, arch, seeds.clone());
        let verdict = if tally.wrong == 0 { "right" } else { "WRONG" };
        let Tally { right: good, wrong: bad, max_error, relative_error, .. } = &tally;
        let mut line = format!("{name:24} {good:>6} {bad:>6} {max_error:>10.1e} {relative_error:>9.1e}  {verdict}\n");
        if let Some(first) = &tally.first {
            line.push_str(&format!("    {}\n", first.trim_end().replace('\n', "\n    ")));
        }
        bar.suspend(|| out.write_all(line.as_bytes()))?;
        right += tally.right;
        wrong += tally.wrong;
    }
    writeln!(out, "{right} of {} trials right", right + wrong)?;
    Ok(wrong == 0)
}

/// Trials whose seeds would wrap.
#[derive(Debug, thiserror::Error)]
#[error("--seed {seed} leaves fewer than {cases} seeds up to 2^64 - 1; give a smaller --seed")]
struct LastSeed {
    seed: u64,
    cases: usize,
}

/// A device that is older than all that kernels are generated for.
#[derive(Debug, thiserror::Error)]
#[error("{device} has a compute capability below 8.0, for which no kernels are generated")]
struct NoArch {
    device: String,
}

/// Draws the trials of some seeds, each in a thread of its own, since oracles take longer than
/// launches. Kernels are loaded on one thread: the driver compiles one at a time.
fn drawn(kernel: &dyn Shipped, arch: Arch, seeds: Range<u64>) -> Vec<Result<Trial, VerifyErrors>> {
    thread::scope(|scope| {
        let threads: Vec<_> = seeds.map(|seed| scope.spawn(move || kernel.draw(arch, seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// Kernels that stay loaded, so that another trial of the same kernel need not compile it.
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
                    // Later trials on a lost device would only fail.
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

    /// A kernel that should write the numbers 0.. into y.
    struct IotaKernel {
        name: &'static str,
        needs: Needs,
        build: fn(&Builder),
    }

    impl Shipped for IotaKernel {
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
        Box::new(IotaKernel { name, needs: Needs::Sm80, build })
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
        let lacking = IotaKernel { name: "later", needs: Needs::Sm90a, build: |_| {} };
        let mut out = Vec::new();
        let kernels = [Box::new(lacking) as Box<dyn Shipped>];
        assert!(table(&mut out, &sim::open(0), &kernels, Arch::Sm80, 0..2).expect("a vector takes all"));
        assert!(String::from_utf8(out).expect("UTF-8").contains("skipped: needs sm_90a only"));
    }
}
