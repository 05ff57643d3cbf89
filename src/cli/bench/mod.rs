//! `tilewright bench`: against the clock, checked in the same run.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the subcommand, and the table of its rows |
//! | `journal` | the rows of a call, written as they come; what is measured already, and what there is time for |
//! | `telemetry` | driver, clocks, power and energy, by NVML where it is there |
//! | `peaks` | what the device reads and multiplies at most, measured in the call |
//! | `timing` | how kernels are timed: a graph of launches, replayed; each time divided by the launches |
//! | `finding` | a row of a kernel, and the check of its error |
//! | `gemm` | matrix products |
//! | `gemv` | matrix times few vectors |
//! | `codes` | matrix products whose weights are codes |
//! | `attention` | decode over long contexts, prefill |
//! | `decode` | whole tokens by the megakernel |
//! | `launches` | what the launches of a graph take |
//! | `many` | those of more than 16 rows, by graphs of launches |
//! | `prefill` | whole prompts by graphs of launches |
//! | `requests` | many requests, batched continuously |
//! | `speculate` | texts that repeat themselves, by steps of several tokens |
//! | `tune` | `tilewright tune`: the fastest settings of a suite's kernels |
//!
//! Rows are those of [`crate::results`]. To add a suite of kernels: a file with a function `fn(&Bench) -> Result<(), Failure>`
//! that keeps a row for each shape that begins, a value of [`Suite`], and a peer's script in `benches/peers/` that prints
//! rows with the same suite and shapes.

mod arrivals;
mod attention;
mod codes;
mod decode;
mod finding;
mod gemm;
mod gemv;
mod journal;
mod launches;
mod many;
mod peaks;
mod prefill;
mod requests;
mod speculate;
mod telemetry;
mod timing;
mod tune;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use journal::Journal;
use thiserror::Error;
use tilewright_codegen::device::{Device as OpenDevice, Name};
use timing::Bench;

pub use decode::draw_history;
pub use journal::this_call;
pub use tune::{TuneArgs, run as run_tune};

use super::Failure;
use super::output::Output;
use super::paint::{self, Word};
use super::subject::SubjectArgs;
use crate::engine::Device;
use crate::results::{Results, Row, write_call, write_row};
use crate::tuning::Tuned;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Whole tokens by the megakernel
    Decode,
    /// Whole prompts by graphs of launches
    Prefill,
    /// Random requests, batched continuously; a prompt beside sequences that decode
    Requests,
    /// Texts whose tokens are proposed
    Speculate,
    /// Matrix products: bf16, e4m3, s8
    Gemm,
    /// Matrix times few vectors, bf16
    Gemv,
    /// Matrix products whose weights are codes of 4 and 8 bits
    Codes,
    /// Attention: one token over long contexts, and whole sequences
    Attention,
    /// All of these but weights of codes, prompts, requests and proposals; decode on known models with random weights
    All,
}

/// Time a suite on a device, and check what it computes
///
/// A peer's figures, as the scripts in benches/peers write them, are put beside ours where suite and shape agree. The rows
/// carry every sample, the device, its clocks and the commit; `tilewright dashboard` shows them.
#[derive(Args)]
pub struct BenchArgs {
    /// What to time
    #[arg(long, value_name = "NAME")]
    suite: Suite,
    /// Where: cuda:N, cuda:A-B (GPUs that share a model that decodes), or sim:SEED, whose times mean nothing
    #[arg(long, value_name = "DEVICE", default_value = "cuda:0")]
    device: Device,
    /// Where the rows go, one JSON object a line
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Go on with the file of --json: its rows of this device and commit are not measured again, each new one is written at once
    #[arg(long, requires = "json")]
    resume: bool,
    /// Begin no measurement after that time, such as 10m
    #[arg(long, value_name = "TIME", value_parser = parse_budget)]
    budget: Option<Duration>,
    /// The commit that was built [default: that of the working tree, as git says]
    #[arg(long, value_name = "NAME")]
    commit: Option<String>,
    /// A peer's rows, one JSON object a line
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// Replays that are timed, at most 65536
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = replays())]
    replays: usize,
    /// Settings that `tilewright tune` kept, for the shapes that it has
    #[arg(long, value_name = "FILE")]
    tuned: Option<PathBuf>,
    /// Only shapes with these extents, such as n=4096,batch=1
    #[arg(long, value_name = "NAME=EXTENT,..", value_delimiter = ',', value_parser = parse_extent)]
    only: Vec<(String, u64)>,
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    decode: decode::DecodeArgs,
    #[command(flatten)]
    prefill: prefill::PrefillArgs,
    #[command(flatten)]
    batching: requests::RequestsArgs,
}

/// Replays that are kept in memory.
fn replays() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(0..=65536)
}

/// What cannot be benched.
#[derive(Debug, Error)]
enum BenchError {
    #[error("kernels are timed on cuda:N or sim:SEED, not on {found}")]
    Device { found: String },
    #[error("`{found}` is not NAME=EXTENT, such as n=4096")]
    Extent { found: String },
    #[error("{found} is not a shape of this suite, which has {wanted}, each from 1 to 2147483647; give each once")]
    Shape { found: String, wanted: String },
    #[error("{shape} has an operand of {elements} elements; at most {MOST_ELEMENTS} are timed: take a smaller shape")]
    Elements { shape: String, elements: u128 },
    #[error("operands of {bytes} bytes do not fit the host's memory; take a smaller shape")]
    Memory { bytes: usize },
    #[error("decode is tuned for --model or --config, --batch and --context; leave out --shape")]
    DecodeShape,
    #[error("neither $TILEWRIGHT_TUNED nor $HOME says where settings are kept; give --out FILE")]
    NoFile,
    #[error("a kernel that was measured has no time; measure it again")]
    NoTime,
    #[error("{row}: relative error {error:.1e}, and {limit:.1e} is allowed; the kernel is wrong on this device")]
    Wrong { row: String, error: f64, limit: f64 },
}

/// Most elements of an operand, a little more than the largest shape of a suite has.
const MOST_ELEMENTS: u128 = 1 << 30;

/// No call lasts longer, so that its end is a time.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

fn parse_budget(text: &str) -> Result<Duration, humantime::DurationError> {
    humantime::parse_duration(text).map(|budget| budget.min(CENTURY))
}

/// Room for so many elements on the host.
fn room<T>(len: usize) -> Result<Vec<T>, BenchError> {
    let mut all = Vec::new();
    all.try_reserve_exact(len).map_err(|_| BenchError::Memory { bytes: len.saturating_mul(size_of::<T>()) })?;
    Ok(all)
}

fn parse_extent(text: &str) -> Result<(String, u64), BenchError> {
    let extent = text.split_once('=').and_then(|(name, extent)| Some((name.to_owned(), extent.parse().ok()?)));
    extent.ok_or_else(|| BenchError::Extent { found: text.to_owned() })
}

impl BenchArgs {
    /// The device that kernels are timed on.
    fn kernels(&self, journal: &Rc<Journal>) -> Result<Bench, Failure> {
        let device = name_of(self.device)?.open()?;
        let stream = device.stream()?;
        let (replays, only) = (self.replays, self.only.clone());
        let tuned = self.tuned.as_deref().map(Results::open).transpose()?.as_ref().map(Tuned::of).unwrap_or_default();
        Ok(Bench { device, stream, tuned: tuned.or(Tuned::shipped()), replays, only, journal: Rc::clone(journal) })
    }

    /// The journal of the call.
    fn journal(&self) -> Result<Journal, Failure> {
        let name = name_of(self.device)?;
        let journal = journal_of(name, &name.open()?, self.commit.clone());
        // A simulated device takes minutes for a shape.
        let told = matches!(self.device, Device::Sim { .. }) || io::stderr().is_terminal();
        let journal = journal.within(self.budget).told(told);
        match &self.json {
            Some(path) if self.resume => journal.resume(path),
            _ => Ok(journal),
        }
    }
}

/// A device that kernels can be timed on.
fn name_of(device: Device) -> Result<Name, BenchError> {
    match device {
        Device::Cuda { ordinal } => Ok(Name::Cuda { ordinal }),
        Device::Sim { seed } => Ok(Name::Sim { seed }),
        // Kernels alone are timed on the first; machines are on all.
        Device::Peers { first, .. } => Ok(Name::Cuda { ordinal: first }),
        Device::SimPeers { seed, .. } => Ok(Name::Sim { seed }),
        Device::Cpu { .. } => Err(BenchError::Device { found: device.to_string() }),
    }
}

/// The journal of a call on a device of that name.
fn journal_of(name: Name, device: &OpenDevice, commit: Option<String>) -> Journal {
    let ordinal = if let Name::Cuda { ordinal } = name { Some(ordinal) } else { None };
    let mut journal = Journal::new(device.properties().name.clone(), ordinal, commit);
    // Rows without a ceiling of their own call are rows still.
    if ordinal.is_some() {
        match peaks::measure(device, peaks::Sizes::FULL) {
            Ok(peaks) => (journal.call.read_peak, journal.call.matrix_peak) = (Some(peaks.read), peaks.matrix),
            Err(failure) => _ = failure.report(),
        }
    }
    journal
}

/// Runs the subcommand.
pub fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let mut peers = Results::default();
    if let Some(path) = &args.peers {
        peers.add_file(path)?;
    }
    let peers: Vec<Row> = peers.rows.into_iter().map(|(_, row)| row).collect();
    let output = args.json.as_deref().filter(|_| !args.resume).map(Output::create).transpose()?;
    let journal = Rc::new(args.journal()?);
    let suites: &[Suite] = match args.suite {
        Suite::All => &[Suite::Gemm, Suite::Gemv, Suite::Attention, Suite::Decode],
        _ => std::slice::from_ref(&args.suite),
    };
    let mut failed = None;
    for suite in suites {
        let found = match suite {
            Suite::Decode if args.suite == Suite::All => decode::run_all(args.device, &args.decode, &journal),
            Suite::Decode => decode::run(&args.subject, args.device, &args.decode, &journal),
            Suite::Prefill => prefill::run(&args.subject, args.device, (&args.prefill, &args.decode), &journal),
            Suite::Requests => requests::run(&args.subject, args.device, &args.batching, &journal),
            Suite::Speculate => speculate::run(&args.subject, args.device, &journal),
            Suite::Gemm => args.kernels(&journal).and_then(|bench| gemm::run(&bench)),
            Suite::Gemv => args.kernels(&journal).and_then(|bench| gemv::run(&bench)),
            Suite::Codes => args.kernels(&journal).and_then(|bench| codes::run(&bench)),
            Suite::Attention => args.kernels(&journal).and_then(|bench| attention::run(&bench)),
            Suite::All => Ok(()),
        };
        match found {
            Err(failure) if args.suite != Suite::All => return Err(failure),
            // The other suites are still worth their time.
            Err(failure) => failed = Some(failure.report()),
            Ok(()) => {}
        }
    }
    let found = journal.rows();
    table(&mut io::stdout().lock(), &found, &peers)?;
    if found.is_empty() && journal.left_out() == 0 && !args.only.is_empty() && failed.is_none() {
        paint::line(Word::Note, "nothing was measured: --only leaves no shape that is not measured already");
    }
    if journal.left_out() > 0 {
        writeln!(io::stderr(), "{} shapes were left out: the time was over", journal.left_out())?;
    }
    match output {
        Some(output) => output.write(|file| {
            write_call(file, &journal.call)?;
            found.iter().chain(&peers).try_for_each(|row| write_row(file, row))
        })?,
        None if args.resume => peers.iter().try_for_each(|row| journal.keep(row.clone()))?,
        None => {}
    }
    Ok(failed.unwrap_or(ExitCode::SUCCESS))
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
        let us = row.median_us.unwrap_or(f64::NAN);
        let peer = peers.iter().filter(|peer| peer.suite == row.suite && peer.shape == row.shape);
        let peer = peer.filter_map(|peer| peer.median_us).min_by(f64::total_cmp);
        let (beside, ratio) = match peer {
            Some(peer) => (format!("{peer:9.2}"), format!("{:6.3}", peer / us)),
            None => (String::new(), String::new()),
        };
        ratios.extend(peer.map(|peer| (peer / us).ln()));
        writeln!(
            to,
            "{:44} {us:9.2} {:9.2} {:7.3} {:8.1} {:8.1e} {beside:>9} {ratio:>6}",
            format!("{} {}", row.shape_line(), row.variant),
            row.best_us.unwrap_or(f64::NAN),
            row.bandwidth().unwrap_or(0.0) / 1e12,
            row.throughput().unwrap_or(0.0) / 1e12,
            row.error.unwrap_or(f64::NAN),
        )?;
    }
    if !ratios.is_empty() {
        let mean = (ratios.iter().sum::<f64>() / ratios.len() as f64).exp();
        writeln!(to, "geometric mean of {} ratios: {mean:.3}", ratios.len())?;
    }
    Ok(())
}
