//! `tilewright dashboard`: a folder of results as one page that needs no network.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the subcommand |
//! | `board` | results prepared: rows by suite, the quoted runs, measured ceilings |
//! | `page` | the page around the views; the rows as data for the script |
//! | `chart` | axes and marks; every mark links to its row |
//! | `fuzz` | mutated files of results, drawn or refused |
//! | `views/` | one file a view: overview, history, roofline, decode step, accuracy, ledgers, energy |
//! | `script.js` | filters, the comparison of two commits or devices, the detail of a row |
//! | `style.css` | light and dark, wide and narrow |
//!
//! May use: [`crate::results`], `report` for titles and rounding, the cost model of `plan`.

mod board;
mod chart;
#[cfg(test)]
mod fuzz;
mod page;
mod views;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Failure;
use super::output::CommandOutput;
use crate::results::Results;

/// Write results as one page that works offline
///
/// Reads the rows that `bench --out` writes. The first view compares decode, prefill and kernels
/// with the fastest peer. Further views: two builds or devices compared; history; roofline; the
/// decode step by level; accuracy; ledgers of tests; energy. Every number leads to its row, its
/// samples and the command that reproduces it.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright dashboard --results benches/results/rows --out results.html")]
pub struct DashboardArgs {
    /// A folder of .jsonl files, or one such file
    #[arg(long, value_name = "DIR")]
    results: PathBuf,
    /// File for the page, HTML
    #[arg(long, value_name = "FILE.html")]
    out: PathBuf,
}

/// Runs the subcommand.
pub fn run(args: &DashboardArgs) -> Result<ExitCode, Failure> {
    let output = CommandOutput::create(&args.out)?;
    let results = Results::open(&args.results)?;
    let page = page::page(&board::Board::new(&results))?;
    output.write(|file| file.write_all(page.as_bytes()))?;
    let rows = results.rows.len();
    let calls = results.calls.len();
    writeln!(io::stderr(), "{rows} rows of {calls} calls, {} KB", page.len() / 1000)?;
    Ok(ExitCode::SUCCESS)
}
