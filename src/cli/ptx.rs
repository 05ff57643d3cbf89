//! `tilewright ptx`: prints a shipped kernel as the driver gets it.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::{ptx, verify::verify};

use super::Failure;
use super::ir::parse_arch;
use crate::shipped;

/// Print a kernel as PTX
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright ptx --kernel saxpy --target h100")]
pub struct PtxArgs {
    /// Name of the kernel; an unknown name lists all
    #[arg(long, value_name = "NAME")]
    kernel: String,
    /// GPU to generate for, by name (h100) or architecture (sm_80, sm_89, sm_90a, sm_100a or
    /// sm_120)
    #[arg(long, value_name = "NAME", default_value = "sm_90a", value_parser = parse_arch)]
    target: Arch,
}

/// Runs the subcommand.
pub fn run(args: &PtxArgs) -> Result<ExitCode, Failure> {
    let kernel = shipped::named_for(&args.kernel, args.target)?;
    let verified = verify(kernel.record(args.target))?;
    write!(io::stdout(), "{}", ptx::emit(&verified))?;
    Ok(ExitCode::SUCCESS)
}
