//! `tilewright bench`: against the clock, checked in the same run.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the subcommand; rows and their JSON |
//! | `decode` | whole tokens by the megakernel |

mod decode;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::Failure;
use super::output::Output;
use super::subject::SubjectArgs;
use crate::engine::Device;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Whole tokens by the megakernel
    Decode,
}

/// Time a suite on a device, and check what it computes
#[derive(Args)]
pub struct BenchArgs {
    /// What to time
    #[arg(long, value_name = "NAME")]
    suite: Suite,
    /// Where: cuda:N, or sim:SEED, whose times mean nothing
    #[arg(long, value_name = "DEVICE", default_value = "cuda:0")]
    device: Device,
    /// Where the rows go, one JSON object a line
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    decode: decode::DecodeArgs,
}

/// One figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The suite.
    pub suite: String,
    /// Whose figure it is: `tilewright`, or a peer's name.
    pub who: String,
    /// The shape, by the names of its extents.
    pub shape: BTreeMap<String, u64>,
    /// What is particular about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Median time, microseconds.
    pub us: f64,
    /// Least time, microseconds.
    pub best_us: f64,
    /// Bytes that must move through device memory.
    pub bytes: u64,
    /// Floating-point operations.
    pub flops: u64,
    /// ‖found − exact‖ / ‖exact‖, of the elements that were checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
}

/// Runs the subcommand.
pub fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let output = args.json.as_deref().map(Output::create).transpose()?;
    let rows = match args.suite {
        Suite::Decode => decode::run(&args.subject, args.device, &args.decode)?,
    };
    let mut out = io::stdout();
    for row in &rows {
        let shape: Vec<String> = row.shape.iter().map(|(name, extent)| format!("{name}={extent}")).collect();
        let (rate, error) = (row.bytes as f64 / row.us / 1e6, row.error.unwrap_or(f64::NAN));
        let (us, best, note) = (row.us, row.best_us, &row.note);
        let shape = shape.join(" ");
        writeln!(out, "{} {shape}: {us:.1} us, best {best:.1}, {rate:.3} TB/s, error {error:.1e}; {note}", row.suite)?;
    }
    if let Some(output) = output {
        output.write(|file| {
            for row in &rows {
                serde_json::to_writer(&mut *file, row)?;
                writeln!(file)?;
            }
            Ok::<(), Failure>(())
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
