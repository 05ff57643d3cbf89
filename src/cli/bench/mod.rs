//! `tilewright bench`: against the clock, checked in the same run.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the subcommand; rows, their JSON and their table |
//! | `timing` | how kernels are timed: a graph of launches, replayed; the median, divided by the launches |
//! | `gemm` | matrix products |
//! | `gemv` | matrix times few vectors |
//! | `attention` | decode over long contexts, prefill |
//! | `decode` | whole tokens by the megakernel |
//!
//! To add a suite of kernels: a file with a function `fn(&Bench) -> Result<Vec<Row>, Failure>`, a value of [`Suite`], and
//! a peer's script in `benches/peers/` that prints rows with the same suite and shapes.

mod attention;
mod decode;
mod gemm;
mod gemv;
mod timing;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tilewright_codegen::device::Name;
use timing::Bench;

use super::Failure;
use super::output::Output;
use super::subject::SubjectArgs;
use crate::engine::Device;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Whole tokens by the megakernel
    Decode,
    /// Matrix products: bf16, e4m3, s8
    Gemm,
    /// Matrix times few vectors, bf16
    Gemv,
    /// Attention: one token over long contexts, and whole sequences
    Attention,
}

/// Time a suite on a device, and check what it computes
///
/// A peer's figures, as the scripts in benches/peers write them, are put beside ours where suite and shape agree.
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
    /// A peer's rows, one JSON object a line
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// Replays that are timed
    #[arg(long, value_name = "N", default_value_t = 20)]
    replays: usize,
    /// Try a kernel's variants instead of what is shipped
    #[arg(long)]
    tune: bool,
    /// Only shapes with these extents, such as n=4096,batch=1
    #[arg(long, value_name = "NAME=EXTENT,..", value_delimiter = ',', value_parser = parse_extent)]
    only: Vec<(String, u64)>,
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    decode: decode::DecodeArgs,
}

/// What cannot be benched.
#[derive(Debug, Error)]
enum BenchError {
    #[error("kernels are timed on cuda:N or sim:SEED, not on {found}")]
    Device { found: String },
    #[error("`{found}` is not NAME=EXTENT, such as n=4096")]
    Extent { found: String },
    #[error("{row}: relative error {error:.1e}, and {limit:.1e} is allowed; the kernel is wrong on this device")]
    Wrong { row: String, error: f64, limit: f64 },
}

fn parse_extent(text: &str) -> Result<(String, u64), BenchError> {
    let extent = text.split_once('=').and_then(|(name, extent)| Some((name.to_owned(), extent.parse().ok()?)));
    extent.ok_or_else(|| BenchError::Extent { found: text.to_owned() })
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
    /// Median time of one launch, microseconds.
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

impl Row {
    /// Fails where the error is above a limit, or is not a number.
    pub fn check(self, limit: f64) -> Result<Row, Failure> {
        match self.error {
            Some(error) if error <= limit => Ok(self),
            error => {
                let row = format!("{} {:?} {}", self.suite, self.shape, self.note);
                Err(BenchError::Wrong { row, error: error.unwrap_or(f64::NAN), limit }.into())
            }
        }
    }
}

impl BenchArgs {
    /// The device that kernels are timed on.
    fn kernels(&self) -> Result<Bench, Failure> {
        let name = match self.device {
            Device::Cuda { ordinal } => Name::Cuda { ordinal },
            Device::Sim { seed } => Name::Sim { seed },
            device @ Device::Cpu { .. } => return Err(BenchError::Device { found: device.to_string() }.into()),
        };
        let device = name.open()?;
        let stream = device.stream()?;
        Ok(Bench { device, stream, tune: self.tune, replays: self.replays, only: self.only.clone() })
    }
}

/// Runs the subcommand.
pub fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let peers = match &args.peers {
        Some(path) => rows(&fs::read_to_string(path)?)?,
        None => Vec::new(),
    };
    let output = args.json.as_deref().map(Output::create).transpose()?;
    let found = match args.suite {
        Suite::Decode => decode::run(&args.subject, args.device, &args.decode)?,
        Suite::Gemm => gemm::run(&args.kernels()?)?,
        Suite::Gemv => gemv::run(&args.kernels()?)?,
        Suite::Attention => attention::run(&args.kernels()?)?,
    };
    table(&mut io::stdout().lock(), &found, &peers)?;
    if let Some(output) = output {
        output.write(|file| {
            for row in &found {
                serde_json::to_writer(&mut *file, row)?;
                writeln!(file)?;
            }
            Ok::<(), Failure>(())
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn rows(text: &str) -> Result<Vec<Row>, serde_json::Error> {
    text.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str).collect()
}

/// Our rows, each beside the fastest peer of its shape, and the geometric mean of the ratios.
fn table(to: &mut dyn Write, found: &[Row], peers: &[Row]) -> io::Result<()> {
    writeln!(
        to,
        "{:44} {:>9} {:>9} {:>7} {:>8} {:>8} {:>9} {:>6}",
        "shape", "us", "best", "TB/s", "TFLOP/s", "error", "peer us", "ratio"
    )?;
    let mut ratios = Vec::new();
    for row in found {
        let shape: Vec<String> = row.shape.iter().map(|(name, extent)| format!("{name}={extent}")).collect();
        let peer = peers.iter().filter(|peer| peer.suite == row.suite && peer.shape == row.shape);
        let peer = peer.map(|peer| peer.us).min_by(f64::total_cmp);
        let (beside, ratio) = match peer {
            Some(us) => (format!("{us:9.2}"), format!("{:6.3}", us / row.us)),
            None => (String::new(), String::new()),
        };
        ratios.extend(peer.map(|us| (us / row.us).ln()));
        writeln!(
            to,
            "{:44} {:9.2} {:9.2} {:7.3} {:8.1} {:8.1e} {beside:>9} {ratio:>6}",
            format!("{} {}", shape.join(" "), row.note),
            row.us,
            row.best_us,
            row.bytes as f64 / row.us / 1e6,
            row.flops as f64 / row.us / 1e6,
            row.error.unwrap_or(f64::NAN),
        )?;
    }
    if !ratios.is_empty() {
        let mean = (ratios.iter().sum::<f64>() / ratios.len() as f64).exp();
        writeln!(to, "geometric mean of {} ratios: {mean:.3}", ratios.len())?;
    }
    Ok(())
}
