//! `tilewright quantize`: converts a dense checkpoint to 8 or 4 bits.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Failure;
use super::interrupt::Interrupt;
use super::number;
use super::progress::LoadBar;
use crate::checkpoint::{Progress, QuantizeError, Scheme, model_folder, quantize};

/// Quantise a checkpoint: compressed-tensors, rounded to nearest
///
/// Rounds weights of the decoder's linear layers to the nearest code, with the scale of least
/// squared error for each group. Embeddings, head, norms and biases stay as they are. The output
/// folder is complete or absent, also after Ctrl-C.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright quantize --model models/tiny-llama --out tiny-w4a16 --scheme w4a16 --group 64")]
pub struct QuantizeArgs {
    /// Folder of a Hugging Face checkpoint, or ORG/MODEL in the local cache with dense weights
    #[arg(long, value_name = "MODEL")]
    model: PathBuf,
    /// Folder to create
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Quantisation scheme: w4a16 or w8a16 (integers, a scale per group), or fp8 (e4m3, a scale per
    /// row)
    #[arg(long, value_name = "SCHEME")]
    scheme: Scheme,
    /// Columns that share a scale, 16 to 65536; if K is not a multiple, their largest common
    /// divisor [default: 128]
    #[arg(long, value_name = "N", value_parser = number::count(1..=65536))]
    group: Option<usize>,
}

/// Runs the subcommand.
pub fn run(args: &QuantizeArgs) -> Result<ExitCode, Failure> {
    let bar = LoadBar::named("quantising");
    let interrupt = Interrupt::noticed()?;
    let mut progress = |progress: Progress| {
        bar.show(progress.done, progress.total);
        if interrupt.came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let written = quantize(&model_folder(&args.model)?, &args.out, args.scheme, args.group, &mut progress);
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
