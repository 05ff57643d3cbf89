//! `tilewright bench`: kernels against the clock, checked in the same run.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the subcommand; how everything is timed; rows and their JSON |
//! | `gemv` | the suite of matrix times few vectors |
//!
//! A suite makes its launches over buffers that rotate, so that the level-two cache does not serve them; they become
//! one graph, whose replays are timed by events. A row is the median of replays, divided by the launches.
//!
//! To add a suite: a file with a function `fn(&Bench) -> Result<Vec<Row>, Failure>`, and its name in [`SUITES`].

mod gemv;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tilewright_codegen::device::backend::Work;
use tilewright_codegen::device::{Device, DeviceError, Name, Stream};

use super::Failure;
use super::output::Output;

/// A suite by name.
type Suite = (&'static str, fn(&Bench) -> Result<Vec<Row>, Failure>);

/// Every suite.
const SUITES: [Suite; 1] = [("gemv", gemv::run)];

/// Time kernels on a device, and check what they compute
///
/// A peer's figures, as the scripts in benches/peers write them, are put beside ours where suite and shape agree.
#[derive(Args)]
pub struct BenchArgs {
    /// What to time: gemv
    #[arg(long, value_name = "NAME", value_parser = parse_suite)]
    suite: Suite,
    /// Where: cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cuda:0")]
    device: Name,
    /// Where the rows go, one JSON object a line
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A peer's rows, one JSON object a line
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// Replays that are timed
    #[arg(long, value_name = "N", default_value_t = 20)]
    replays: usize,
    /// Try the suite's variants instead of what it ships
    #[arg(long)]
    tune: bool,
    /// Only shapes with these extents, such as n=4096,batch=1
    #[arg(long, value_name = "NAME=EXTENT,..", value_delimiter = ',', value_parser = parse_extent)]
    only: Vec<(String, u64)>,
}

/// What cannot be benched.
#[derive(Debug, Error)]
enum BenchError {
    #[error("`{found}` is not a suite; known are {known}")]
    Suite { found: String, known: String },
    #[error("`{found}` is not NAME=EXTENT, such as n=4096")]
    Extent { found: String },
    #[error("{row}: relative error {error:.1e}, and {limit:.1e} is allowed; the kernel is wrong on this device")]
    Wrong { row: String, error: f64, limit: f64 },
}

fn parse_suite(name: &str) -> Result<Suite, BenchError> {
    SUITES.into_iter().find(|(known, _)| *known == name).ok_or_else(|| {
        let known = SUITES.map(|(known, _)| known).join(", ");
        BenchError::Suite { found: name.to_owned(), known }
    })
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

/// Times of one launch.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The median.
    pub median: Duration,
    /// The least.
    pub best: Duration,
}

/// A device that is timed.
pub struct Bench {
    /// The device.
    pub device: Device,
    /// The stream that everything runs on.
    pub stream: Stream,
    /// Whether variants are asked for.
    pub tune: bool,
    replays: usize,
    only: Vec<(String, u64)>,
}

impl Bench {
    /// Whether a shape is asked for. Extents that are not named here are no reason against it.
    pub fn wants(&self, shape: &[(&str, u32)]) -> bool {
        let differs = |name: &str, extent: u64| shape.iter().any(|&(n, e)| n == name && u64::from(e) != extent);
        !self.only.iter().any(|(name, extent)| differs(name, *extent))
    }

    /// The time of one of these launches, as one graph, replayed.
    pub fn time(&self, work: &[Work]) -> Result<Times, DeviceError> {
        const WARM_UP: usize = 3;
        let graph = self.device.graph(work)?;
        for _ in 0..WARM_UP {
            graph.launch(&self.stream)?;
        }
        let mut events = vec![self.stream.record()?];
        for _ in 0..self.replays.max(1) {
            graph.launch(&self.stream)?;
            events.push(self.stream.record()?);
        }
        let mut times = events.windows(2).map(|pair| pair[1].since(&pair[0])).collect::<Result<Vec<_>, _>>()?;
        times.sort_unstable();
        let launches = work.len().max(1) as u32;
        Ok(Times { median: times[times.len() / 2] / launches, best: times[0] / launches })
    }

    /// How many buffers of so many bytes to rotate over: 2.5 GB in all, but at least 3 and at most 64.
    pub fn rotations(bytes: u64) -> usize {
        (2_500_000_000 / bytes.max(1)).clamp(3, 64) as usize
    }
}

/// Runs the subcommand.
pub fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let peers = match &args.peers {
        Some(path) => rows(&fs::read_to_string(path)?)?,
        None => Vec::new(),
    };
    let output = args.json.as_deref().map(Output::create).transpose()?;
    let device = args.device.open()?;
    let stream = device.stream()?;
    let bench = Bench { device, stream, tune: args.tune, replays: args.replays, only: args.only.clone() };
    let found = args.suite.1(&bench)?;
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
