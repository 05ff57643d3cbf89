//! `tilewright bench`: times suites, and checks what they compute in the same run.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the subcommand, and the table of its rows |
//! | `journal` | the rows of a call, written as they are measured; shapes that are skipped |
//! | `telemetry` | driver, clocks, power and energy, from NVML |
//! | `peaks` | the device's read bandwidth and matrix throughput, measured in the call |
//! | `timing` | how kernels are timed: a graph of launches is replayed, its time divided by the launches |
//! | `finding` | a row of a kernel, and the check of its error |
//! | `gemm`, `grouped` | matrix products; of groups of rows |
//! | `gemv` | a matrix times few vectors |
//! | `codes` | matrix products with quantised weights |
//! | `attention` | decode over long contexts, prefill |
//! | `decode` | tokens of the megakernel |
//! | `launches` | times of the launches of a graph |
//! | `many` | tokens of more than 16 rows, by graphs of launches |
//! | `prefill` | prompts, by graphs of launches |
//! | `requests`, `arrivals` | requests with continuous batching |
//! | `speculate` | texts that repeat themselves, several tokens a step |
//! | `tune` | `tilewright tune`: the fastest settings of a suite's kernels |
//!
//! Rows are those of [`crate::results`]. To add a suite of kernels: a file with a function
//! `fn(&Bench) -> Result<(), Failure>` that keeps a row for each shape that begins, the number of
//! its rows for the progress bar, a variant of [`BenchCommand`], and a peer's script in
//! `benches/peers/` that prints rows with the same suite and shapes.

mod arrivals;
mod attention;
mod call;
mod codes;
mod decode;
mod decode_args;
mod error;
mod extent;
mod finding;
mod gemm;
mod gemv;
mod grouped;
mod journal;
mod launches;
mod many;
mod peaks;
mod prefill;
mod requests;
mod served;
mod speculate;
mod telemetry;
mod timing;
mod tunable;
mod tune;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::device::GpuArgs;
use super::flow_choice::FlowChoice;
use super::output::CommandOutput;
use super::paint::{self, OutputLevel, Word};
use super::subject::{ModelSource, SubjectArgs};
use super::{Failure, number};
use crate::cli::bench::call::{journal_of, name_of};
use crate::cli::bench::extent::parse_extent;
use crate::cli::bench::timing::replays;
use crate::engine::{Device, KvType};
use crate::results::{ResultRow, Results, write_call, write_row};
use crate::tuning::Tuned;
use journal::Journal;
use timing::{Bench, Only};

pub use decode::draw_history;
pub use journal::this_call;
pub use tune::{ABOUT as TUNE_ABOUT, EXAMPLES as TUNE_EXAMPLES, TuneCommand, run as run_tune};

/// The long description of `bench`.
pub const ABOUT: &str = "Time a suite on a GPU and check what it computes

Prints a row for each shape: median time, rates, error, and the fastest peer's time if --peers has one of the same shape. \
Rows carry every sample, the device, its clocks and the commit; `tilewright dashboard` shows them.";

/// Examples of `bench`.
pub const EXAMPLES: &str = "Examples:
  tilewright bench gemm --only m=4096 --out rows.jsonl
  tilewright bench decode --config models/shapes/llama-3.2-1b.json --random-weights --context 4096
  tilewright bench all --out rows.jsonl --resume --budget 10m";

/// A suite.
#[derive(Subcommand)]
pub enum BenchCommand {
    /// Time tokens: the decode megakernel up to 16 rows, a graph of launches beyond
    #[command(after_help = "Examples:
  tilewright bench decode --config models/shapes/llama-3.2-1b.json --random-weights --batch 8
  tilewright bench decode --model DIR --context 4096 --device cuda:0-1")]
    Decode(Box<DecodeBench>),
    /// Time prompts: from their tokens on the host to the logits of the last one
    #[command(after_help = "Examples:
  tilewright bench prefill --config models/shapes/llama-3.1-8b.json --random-weights --prompts 2048,8192")]
    Prefill(Box<PrefillBench>),
    /// Time random requests with continuous batching
    #[command(after_help = "Examples:
  tilewright bench requests --config models/shapes/llama-3.2-1b.json --random-weights --requests 200 --rate 100")]
    Requests(Box<RequestsBench>),
    /// Time texts whose tokens are proposed and verified several at a time
    #[command(after_help = "Examples:
  tilewright bench speculate --config models/shapes/llama-3.2-1b.json --random-weights")]
    Speculate(Box<SpeculateBench>),
    /// Time matrix products of bf16, e4m3 and s8
    #[command(after_help = "Examples:
  tilewright bench gemm --only m=4096,n=4096")]
    Gemm(KernelBench),
    /// Time products of a bf16 matrix and 1 to 64 vectors
    #[command(after_help = "Examples:
  tilewright bench gemv --only batch=64")]
    Gemv(KernelBench),
    /// Time matrix products with weights of 4 and 8 bits
    #[command(after_help = "Examples:
  tilewright bench codes --only m=512")]
    Codes(KernelBench),
    /// Time attention: one token over long contexts, and whole prompts
    #[command(after_help = "Examples:
  tilewright bench attention --only depth=128")]
    Attention(KernelBench),
    /// Time gemm, gemv, attention, and decode on known models with random weights
    #[command(after_help = "Examples:
  tilewright bench all --out rows.jsonl --resume --budget 10m")]
    All(KernelBench),
}

/// The device of a suite and the destination of its rows.
#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    device: GpuArgs,
    /// Write the rows to this file, one JSON object a line
    #[arg(long, value_name = "FILE", alias = "json")]
    out: Option<PathBuf>,
    /// Continue the file of --out: skip shapes that it has for this device and commit, append each
    /// new row at once
    #[arg(long, requires = "out")]
    resume: bool,
    /// Begin no measurement after this time, such as 10m
    #[arg(long, value_name = "TIME", value_parser = number::duration)]
    budget: Option<Duration>,
    /// The commit that was built [default: that of the working tree]
    #[arg(long, value_name = "NAME")]
    commit: Option<String>,
    /// Rows of a peer, as the scripts in benches/peers print them
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
}

/// A suite of kernels.
#[derive(Args)]
pub struct KernelBench {
    #[command(flatten)]
    run: RunArgs,
    /// Timed replays of each kernel, at most 65536
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = replays())]
    replays: usize,
    /// Use the settings that `tilewright tune` kept in this file
    #[arg(long, value_name = "FILE")]
    tuned: Option<PathBuf>,
    /// Time only shapes with these extents, such as n=4096,batch=1
    #[arg(long, value_name = "NAME=EXTENT,..", value_delimiter = ',', value_parser = parse_extent)]
    only: Vec<(String, u64)>,
}

/// The suite of tokens.
#[derive(Args)]
pub struct DecodeBench {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    decode: decode_args::DecodeArgs,
}

/// The suite of prompts.
#[derive(Args)]
pub struct PrefillBench {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    source: ModelSource,
    /// Store keys and values as bf16, or as fp8 (e4m3) in half the memory
    #[arg(long, value_name = "TYPE", default_value = "bf16")]
    kv: KvType,
    #[command(flatten)]
    prefill: prefill::PrefillArgs,
}

/// The suite of requests.
#[derive(Args)]
pub struct RequestsBench {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    source: ModelSource,
    #[command(flatten)]
    flow: FlowChoice,
    #[command(flatten)]
    requests: served::RequestsArgs,
}

/// The suite of proposals.
#[derive(Args)]
pub struct SpeculateBench {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    source: ModelSource,
}

impl BenchCommand {
    fn run_args(&self) -> &RunArgs {
        match self {
            BenchCommand::Decode(args) => &args.run,
            BenchCommand::Prefill(args) => &args.run,
            BenchCommand::Requests(args) => &args.run,
            BenchCommand::Speculate(args) => &args.run,
            BenchCommand::Gemm(args)
            | BenchCommand::Gemv(args)
            | BenchCommand::Codes(args)
            | BenchCommand::Attention(args)
            | BenchCommand::All(args) => &args.run,
        }
    }

    /// Whether --only restricts the shapes.
    fn is_restricted(&self) -> bool {
        match self {
            BenchCommand::Gemm(args)
            | BenchCommand::Gemv(args)
            | BenchCommand::Codes(args)
            | BenchCommand::Attention(args)
            | BenchCommand::All(args) => !args.only.is_empty(),
            _ => false,
        }
    }
}

impl KernelBench {
    /// The shapes that are timed.
    fn only(&self) -> Only {
        Only(self.only.clone())
    }

    /// Opens the device for timing kernels.
    fn open(&self, device: Device, journal: &Rc<Journal>) -> Result<Bench, Failure> {
        let device = name_of(device)?.open()?;
        let stream = device.stream()?;
        let tuned = self.tuned.as_deref().map(Results::open).transpose()?.as_ref().map(Tuned::of).unwrap_or_default();
        Ok(Bench {
            device,
            stream,
            tuned: tuned.or(Tuned::shipped()),
            replays: self.replays,
            only: self.only(),
            journal: Rc::clone(journal),
        })
    }
}

impl RunArgs {
    /// The journal of the call.
    fn journal(&self, device: Device) -> Result<Journal, Failure> {
        let name = name_of(device)?;
        let journal = journal_of(name, &name.open()?, self.commit.clone());
        // A simulated device takes minutes for a shape.
        let is_slow = matches!(device, Device::Sim { .. }) && paint::level() > OutputLevel::Quiet;
        let journal = journal.within(self.budget).told(is_slow || paint::is_watched());
        match &self.out {
            Some(path) if self.resume => journal.resume(path),
            _ => Ok(journal),
        }
    }
}

/// A suite of kernels.
struct KernelSuite {
    /// The number of rows that it keeps or skips.
    rows: fn(&Only) -> usize,
    run: fn(&Bench) -> Result<(), Failure>,
}

const GEMM: KernelSuite = KernelSuite {
    rows: |only| gemm::rows_of(only) + grouped::rows_of(only),
    run: |bench| {
        gemm::run(bench)?;
        grouped::run(bench)
    },
};
const GEMV: KernelSuite = KernelSuite { rows: gemv::rows_of, run: gemv::run };
const CODES: KernelSuite = KernelSuite { rows: codes::rows_of, run: codes::run };
const ATTENTION: KernelSuite = KernelSuite { rows: attention::rows_of, run: attention::run };

/// Runs one suite of kernels.
fn run_kernels(args: &KernelBench, device: Device, journal: &Rc<Journal>, suite: &KernelSuite) -> Result<(), Failure> {
    journal.expect((suite.rows)(&args.only()));
    (suite.run)(&args.open(device, journal)?)
}

/// Runs the subcommand.
pub fn run(command: &BenchCommand) -> Result<ExitCode, Failure> {
    let args = command.run_args();
    let mut peers = Results::default();
    if let Some(path) = &args.peers {
        peers.add_file(path)?;
    }
    let peers: Vec<ResultRow> = peers.rows.into_iter().map(|(_, row)| row).collect();
    let device = args.device.get()?;
    let output = args.out.as_deref().filter(|_| !args.resume).map(CommandOutput::create).transpose()?;
    let journal = Rc::new(args.journal(device)?);
    let mut failed = None;
    match command {
        BenchCommand::Decode(args) => {
            journal.expect(decode::rows_of(&args.subject, &args.decode));
            decode::run(&args.subject, device, &args.decode, &journal)?;
        }
        BenchCommand::Prefill(args) => {
            let subject = prefill::PrefillSubject { source: &args.source, kv: args.kv, device };
            prefill::run(&subject, &args.prefill, &journal)?;
        }
        BenchCommand::Requests(args) => {
            let flow = args.flow.settings(&args.source.spec()?)?;
            requests::run(&args.source, flow, device, &args.requests, &journal)?;
        }
        BenchCommand::Speculate(args) => speculate::run(&args.source, device, &journal)?,
        BenchCommand::Gemm(args) => run_kernels(args, device, &journal, &GEMM)?,
        BenchCommand::Gemv(args) => run_kernels(args, device, &journal, &GEMV)?,
        BenchCommand::Codes(args) => run_kernels(args, device, &journal, &CODES)?,
        BenchCommand::Attention(args) => run_kernels(args, device, &journal, &ATTENTION)?,
        BenchCommand::All(args) => {
            let suites = [&GEMM, &GEMV, &ATTENTION];
            let kernels = suites.iter().map(|suite| (suite.rows)(&args.only())).sum::<usize>();
            journal.expect(kernels + decode::rows_of_all());
            let kernels =
                suites.into_iter().map(|suite| args.open(device, &journal).and_then(|bench| (suite.run)(&bench)));
            // A suite that fails does not keep the others from running.
            for found in kernels.chain(std::iter::once_with(|| decode::run_all(device, &journal))) {
                if let Err(failure) = found {
                    failed = Some(journal.suspend(|| failure.report()));
                }
            }
        }
    }
    journal.finish();
    let found = journal.rows();
    table(&mut io::stdout().lock(), &found, &peers)?;
    if found.is_empty() && journal.left_out() == 0 && command.is_restricted() && failed.is_none() {
        paint::line(Word::Note, "nothing was measured: --only leaves no shape that is not measured already");
    }
    if journal.left_out() > 0 {
        let text = format!("--budget was too short for {} shapes", journal.left_out());
        paint::line(Word::Note, &text);
    }
    match output {
        Some(output) => output.write(|file| {
            write_call(file, &journal.call)?;
            found.iter().chain(&peers).try_for_each(|row| write_row(file, row))
        })?,
        None if args.resume => peers.iter().try_for_each(|row| journal.keep(row.clone()))?,
        None => {}
    }
    Ok(failed.map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// Prints our rows, each with the fastest peer of its shape, and the geometric mean of the ratios.
fn table(to: &mut dyn Write, found: &[ResultRow], peers: &[ResultRow]) -> io::Result<()> {
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
