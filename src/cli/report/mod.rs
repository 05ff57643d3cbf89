//! `tilewright report`: the benchmark page and the chart of the README, generated from result rows.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the subcommand, and how figures are rounded |
//! | `page` | the page: one table per suite and device |
//! | `chart` | the chart: decode and prefill against peers, as SVG |
//!
//! May use: [`crate::results`], whose `compare` decides which figures are quoted.

pub mod chart;
pub mod page;
pub mod words;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Failure;
use super::output::CommandOutput;
use crate::results::Results;

/// Write the benchmark page and the speed chart from result rows
///
/// Quotes the newest run of each workload next to the fastest peer of that run: time, ratio, share
/// of the measured floor, date and commit. The example writes the page of this repository.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright report --results benches/results/rows --out docs/benchmarks.md --chart docs/pictures/speed.svg")]
pub struct ReportArgs {
    /// A folder of .jsonl files that `bench --out` wrote, or one such file
    #[arg(long, value_name = "DIR")]
    results: PathBuf,
    /// File for the page, Markdown
    #[arg(long, value_name = "FILE.md", required_unless_present = "chart")]
    out: Option<PathBuf>,
    /// File for the chart of decode and prefill against peers, SVG
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: &ReportArgs) -> Result<ExitCode, Failure> {
    let outputs = [&args.out, &args.chart].map(|path| path.as_deref().map(CommandOutput::create).transpose());
    let [out, chart] = outputs;
    let out = out?;
    let chart = chart?;
    let results = Results::open(&args.results)?;
    if let Some(out) = out {
        let page = page::page(&results);
        out.write(|file| file.write_all(page.as_bytes()))?;
    }
    if let Some(chart) = chart {
        let picture = chart::chart(&results)?;
        chart.write(|file| file.write_all(picture.as_bytes()))?;
    }
    Ok(ExitCode::SUCCESS)
}
