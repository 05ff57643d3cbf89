//! `tilewright ir`: prints a shipped kernel in its text form.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use thiserror::Error;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::target::Target;

use super::Failure;
use crate::shipped;

/// Print a kernel's intermediate representation
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright ir --kernel saxpy")]
pub struct IrArgs {
    /// Name of the kernel; an unknown name lists all
    #[arg(long, value_name = "NAME")]
    kernel: String,
    /// GPU to record for, by name (h100) or architecture (sm_80, sm_89, sm_90a, sm_100a or sm_120)
    #[arg(long, value_name = "NAME", default_value = "sm_90a", value_parser = parse_arch)]
    target: Arch,
}

/// A text that does not name a target.
#[derive(Debug, Error)]
#[error("`{found}` is not a target; known are {known}")]
pub struct ArchError {
    found: String,
    known: String,
}

/// The architecture of a target, by its own name or by that of a GPU.
pub fn parse_arch(name: &str) -> Result<Arch, ArchError> {
    let of_gpu = || Target::named(name).and_then(|target| Arch::from_name(&target.arch));
    Arch::from_name(name)
        .or_else(of_gpu)
        .ok_or_else(|| ArchError { found: name.into(), known: Arch::ALL.map(|arch| arch.to_string()).join(", ") })
}

/// Runs the subcommand.
pub fn run(args: &IrArgs) -> Result<ExitCode, Failure> {
    let kernel = shipped::named_for(&args.kernel, args.target)?;
    writeln!(io::stdout(), "{}", kernel.record(args.target).to_string().trim_end())?;
    Ok(ExitCode::SUCCESS)
}
