//! `tilewright timeline`: when each task of a decode step waited, loaded, computed and published.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tilewright_megakernel::vm::MAX_STEPS;
use tilewright_megakernel::vm::device::DeviceOptions;
use tilewright_megakernel::vm::device::timeline::{LevelTable, Timeline};

use super::bench::{draw_history, this_call};
use super::device::GpuArgs;
use super::output::CommandOutput;
use super::subject::{DecodeSubject, SubjectArgs};
use super::{Failure, number};
use crate::engine::Device;
use crate::results::{OURS, ResultRow, write_call, write_row};

/// Show where the time of a decode step goes
///
/// Runs a few steps and prints a table by level. Also writes a trace for Chrome or Perfetto and a
/// picture of SMs over time. The last position of the context is timed.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright timeline --config models/shapes/llama-3.2-1b.json --context 4096 --out trace.json --svg timeline.svg")]
pub struct TimelineArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    device: GpuArgs,
    /// Steps of the launch; the last one is timed
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = number::count(1..=MAX_STEPS as u64))]
    steps: usize,
    /// Write the trace to this file: JSON of trace events
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the table to this file as rows of results, one JSON object a line
    #[arg(long, value_name = "FILE", alias = "json")]
    table: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: &TimelineArgs) -> Result<ExitCode, Failure> {
    let device = args.device.get()?;
    let out = args.out.as_deref().map(CommandOutput::create).transpose()?;
    let svg = args.svg.as_deref().map(CommandOutput::create).transpose()?;
    let json = args.table.as_deref().map(CommandOutput::create).transpose()?;
    let mut subject = args.subject.open(device, |options| Ok(DeviceOptions { timeline: true, ..options }))?;
    if subject.flow.is_some() {
        // In pools of zeros all blocks would look alike to a flow.
        draw_history(&mut subject)?;
    }
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
    let table = LevelTable::of(&timeline);
    if let Some(json) = json {
        let ordinal = if let Device::Cuda { ordinal } = device { Some(ordinal) } else { None };
        let call = this_call(subject.machine.device().properties().name.clone(), ordinal);
        json.write(|file| {
            write_call(file, &call)?;
            rows(&table, &subject).iter().try_for_each(|row| write_row(file, row))
        })?;
    }
    write!(io::stdout(), "{table}")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a row for each kind of level and one for the step.
fn rows(table: &LevelTable, subject: &DecodeSubject) -> Vec<ResultRow> {
    let DecodeSubject { spec, rows, context, .. } = subject;
    let shape = [("batch", *rows), ("context", *context), ("hidden", spec.hidden), ("layers", spec.layers)];
    let row = |variant: &str| ResultRow {
        suite: "timeline".into(),
        who: OURS.into(),
        shape: shape.map(|(name, extent)| (name.to_owned(), extent as u64)).into(),
        variant: variant.into(),
        ..ResultRow::default()
    };
    let levels = table.levels.iter().map(|level| {
        let figures = [
            ("times", level.times as f64),
            ("tasks", level.tasks as f64),
            ("wait_us", level.wait),
            ("load_us", level.load),
            ("compute_us", level.compute),
            ("publish_us", level.publish),
            ("full_us", level.full),
            ("length_us", level.length),
            ("together_us", level.length * level.times as f64),
        ];
        ResultRow { values: figures.map(|(name, figure)| (name.to_owned(), figure)).into(), ..row(&level.name) }
    });
    let step = ResultRow { median_us: Some(table.step), ..row("step") };
    levels.chain([step]).collect()
}
