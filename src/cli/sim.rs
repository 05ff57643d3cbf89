//! `tilewright sim`: runs a shipped kernel on the simulator and prints its counters.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use tilewright_codegen::device::DeviceError;
use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::Counters;

use super::Failure;
use crate::shipped;

/// Run a kernel on the simulator and report what it did
///
/// The seed determines sizes, inputs and interleaving. Exits with 1 if the simulator finds a fault
/// or the results are wrong.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright sim --kernel transpose --seed 2")]
pub struct SimArgs {
    /// Name of the kernel; an unknown name lists all
    #[arg(long, value_name = "NAME")]
    kernel: String,
    /// Seed of the inputs and of the interleaving
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
}

/// Runs the subcommand.
pub fn run(args: &SimArgs) -> Result<ExitCode, Failure> {
    let trial = shipped::named_for(&args.kernel, Arch::Sm90a)?.draw(Arch::Sm90a, args.seed)?;
    let simulator = Simulator::new(Options { seed: args.seed, ..Options::default() });
    let [x, y, z] = trial.grid();
    let mut out = io::stdout();
    writeln!(out, "{}, seed {}: {}; grid {x} x {y} x {z}", args.kernel, args.seed, trial.particulars())?;
    let outcome = match trial.run(&simulator.device()) {
        Ok(outcome) => outcome,
        Err(DeviceError::Fault { report, .. }) => {
            writeln!(out, "fault: {report}")?;
            return Ok(ExitCode::from(1));
        }
        Err(error) => return Err(error.into()),
    };
    for output in &outcome.compared {
        writeln!(out, "  {output}")?;
    }
    if let Some(counters) = simulator.last_launch() {
        write!(out, "{}", report(&counters))?;
    }
    writeln!(out, "{}", if outcome.is_right() { "right, no faults" } else { "WRONG, no faults" })?;
    Ok(ExitCode::from(u8::from(!outcome.is_right())))
}

/// The counters, and each instruction with a bank conflict.
fn report(counters: &Counters) -> String {
    let mut text = String::new();
    let total = counters.lane_instructions();
    let mut line = |name: &str, count: u64| {
        let _ = writeln!(text, "{name:28} {count:>12}");
    };
    line("lane instructions", total);
    for (class, count) in counters.by_class() {
        line(&format!("  {class}"), count);
    }
    line("sectors of global memory", counters.sectors());
    line("bank conflicts", counters.conflicts());
    for (stmt, inst, src, counts) in counters.each().filter(|(.., counts)| counts.conflicts > 0) {
        let conflicts = counts.conflicts;
        let warps = counts.warps;
        let _ = writeln!(text, "  {stmt} `{inst}` ({}:{}): {conflicts} in {warps} of warps", src.file(), src.line());
    }
    text
}
