//! `tilewright timeline`: when every task of a decode step waited, loaded, computed and published.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tilewright_megakernel::vm::device::timeline::{LevelTable, Timeline};

use super::Failure;
use super::output::Output;
use super::subject::SubjectArgs;
use crate::engine::Device;

/// Show where the time of a decode step goes
///
/// Runs a few steps and prints a table by level; writes a trace for Chrome or Perfetto, and a picture of SMs by time. The
/// last position of the context is timed.
#[derive(Args)]
pub struct TimelineArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Where to run: cuda:N or sim:SEED
    #[arg(long, value_name = "DEVICE", default_value = "cuda:0")]
    device: Device,
    /// Steps of the launch; the last one is timed
    #[arg(long, value_name = "N", default_value_t = 4)]
    steps: usize,
    /// Where the trace goes: JSON of trace events
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Where the picture goes
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: &TimelineArgs) -> Result<ExitCode, Failure> {
    let out = args.out.as_deref().map(Output::create).transpose()?;
    let svg = args.svg.as_deref().map(Output::create).transpose()?;
    let mut subject = args.subject.open(args.device, true)?;
    let steps = args.steps.clamp(1, subject.context);
    let cells = subject.cells(subject.context - steps);
    subject.machine.run(&cells.view(), steps)?;
    let timeline = Timeline::new(subject.program(), &subject.machine.times()?);
    if let Some(out) = out {
        out.write(|writer| timeline.write_trace(writer))?;
    }
    if let Some(svg) = svg {
        svg.write(|writer| writer.write_all(timeline.svg().as_bytes()))?;
    }
    write!(io::stdout(), "{}", LevelTable::of(&timeline))?;
    Ok(ExitCode::SUCCESS)
}
