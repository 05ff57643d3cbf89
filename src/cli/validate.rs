//! `tilewright validate`: checks a program file and prints why it is invalid.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use thiserror::Error;
use tilewright_megakernel::program::{JsonError, Program};
use tilewright_megakernel::validate::validate;

use super::Failure;
use super::input::{self, InputError};

/// Most bytes of a program: some hundred times a model of 70 billion parameters.
const LIMIT: u64 = 1 << 30;

/// Check that a program is free of deadlocks, races and out-of-bounds accesses
///
/// Exits with 0 if the program is valid, 1 if it is rejected (every reason is printed), 2 if the
/// file is not a program.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright validate program.json")]
pub struct ValidateArgs {
    /// File of the program, from `tilewright compile`
    #[arg(value_name = "FILE")]
    program: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Why a program file cannot be read.
#[derive(Debug, Error)]
enum ReadError {
    #[error("cannot read `{path}`")]
    Open { path: String, source: InputError },
    #[error("`{path}` is not a program")]
    Parse { path: String, source: JsonError },
}

/// Runs the subcommand.
pub fn run(args: &ValidateArgs) -> Result<ExitCode, Failure> {
    let path = || args.program.display().to_string();
    let text = input::read(&args.program, LIMIT).map_err(|source| ReadError::Open { path: path(), source })?;
    let program = Program::from_json(&text).map_err(|source| ReadError::Parse { path: path(), source })?;
    let report = validate(&program);
    if args.json {
        let errors: Vec<_> = report.errors.iter().map(ToString::to_string).collect();
        let warnings: Vec<_> = report.warnings.iter().map(ToString::to_string).collect();
        let stats = json!({
            "tasks": program.tasks.len(),
            "buffers": program.buffers.len(),
            "counters": program.counters.len(),
            "placed": program.queues.is_some(),
        });
        let object = json!({"valid": report.is_valid(), "errors": errors, "warnings": warnings, "stats": stats});
        writeln!(io::stdout(), "{object}")?;
    } else {
        writeln!(io::stdout(), "{report}")?;
    }
    Ok(ExitCode::from(u8::from(!report.is_valid())))
}
