//! `tilewright ir`: a shipped kernel in its text form.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use thiserror::Error;
use tilewright_codegen::ir::Arch;

use super::Failure;
use crate::shipped;

/// Print a kernel as it was recorded
#[derive(Args)]
pub struct IrArgs {
    /// Name of the kernel; an unknown one lists those there are
    #[arg(long, value_name = "NAME")]
    kernel: String,
    /// What to record for: sm_80, sm_89, sm_90a, sm_100a or sm_120
    #[arg(long, value_name = "ARCH", default_value = "sm_90a", value_parser = parse_arch)]
    target: Arch,
}

/// A text that names no target.
#[derive(Debug, Error)]
#[error("`{found}` is not a target; known are {known}")]
pub struct ArchError {
    found: String,
    known: String,
}

/// A target by its name.
pub fn parse_arch(name: &str) -> Result<Arch, ArchError> {
    Arch::from_name(name)
        .ok_or_else(|| ArchError { found: name.into(), known: Arch::ALL.map(|arch| arch.to_string()).join(", ") })
}

/// Runs the subcommand.
pub fn run(args: &IrArgs) -> Result<ExitCode, Failure> {
    let kernel = shipped::named_for(&args.kernel, args.target)?;
    writeln!(io::stdout(), "{}", kernel.record(args.target).to_string().trim_end())?;
    Ok(ExitCode::SUCCESS)
}
