//! `tilewright quantize`: a dense checkpoint becomes one of 8 or 4 bits.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use thiserror::Error;

use super::Failure;
use super::interrupt::Interrupt;
use super::progress::LoadBar;
use crate::checkpoint::{Progress, QuantizeError, Scheme, quantize};

/// Quantise a checkpoint: compressed-tensors, rounded to nearest
///
/// Linear layers of the decoder get the codes nearest to their weights, with the scale of each group that loses least.
/// Embeddings, head, norms and biases stay as they are. The output folder appears whole or not at all,
/// after Ctrl-C too.
#[derive(Args)]
pub struct QuantizeArgs {
    /// Folder of a Hugging Face checkpoint with dense weights
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// The new folder
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// w4a16 or w8a16 (integers, a scale a group), or fp8 (e4m3, a scale a row)
    #[arg(long, value_name = "SCHEME", value_parser = parse_scheme)]
    scheme: Scheme,
    /// Columns that share a scale [default: 128]; the largest common divisor where K is no multiple of it
    #[arg(long, value_name = "N")]
    group: Option<usize>,
}

#[derive(Debug, Error)]
#[error("`{found}` is not a scheme; known are w4a16, w8a16 and fp8")]
pub struct SchemeError {
    found: String,
}

/// A scheme by its name.
pub fn parse_scheme(name: &str) -> Result<Scheme, SchemeError> {
    let found = Scheme::ALL.into_iter().find(|scheme| scheme.name() == name);
    found.ok_or_else(|| SchemeError { found: name.to_owned() })
}

/// Runs the subcommand.
pub fn run(args: &QuantizeArgs) -> Result<ExitCode, Failure> {
    let bar = LoadBar::named("quantising");
    let interrupt = Interrupt::noticed()?;
    let mut progress = |progress: Progress| {
        bar.show(progress.done, progress.total);
        if interrupt.came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let written = quantize(&args.model, &args.out, args.scheme, args.group, &mut progress);
    drop(bar);
    if let Err(QuantizeError::Stopped) = written {
        return Ok(interrupt.exit_code());
    }
    let written = written?;
    let smaller: Vec<String> =
        written.smaller.iter().map(|(group, modules)| format!("; {modules} in groups of {group}")).collect();
    let ([before, after], modules) = (written.bytes, written.modules);
    writeln!(io::stdout(), "{modules} modules, {before} bytes to {after}{}", smaller.concat())?;
    Ok(ExitCode::SUCCESS)
}
