//! `tilewright worker`: computes some layers of a model for a driver in another process.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Failure;
use super::device::DeviceArgs;
use super::interrupt::Interrupt;
use super::load::{LoadOptions, load_as_needed};
use super::number;
use super::paint::{self, Word};
use super::quantize::parse_scheme;
use super::world::{MOST_RANKS, PATIENCE, patience};
use crate::checkpoint::Scheme;
use crate::engine::{Rows, Seat};

/// Compute some layers of a model for a driver in another process
///
/// The driver is `generate` or `logits` with --world and --join. It is rank 0 and computes the
/// first layers; workers are ranks 1 to N - 1, and the last one computes the head. Every process
/// needs the same checkpoint and reads its own layers of it. A worker ends when its driver ends.
/// Use it on a trusted network only: there is neither a password nor encryption.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright worker --model DIR --rank 1 --world 2 --join 10.0.0.1:7171")]
pub struct WorkerArgs {
    /// Folder of the driver's Hugging Face checkpoint
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Rank of this process, 1 to N - 1
    #[arg(long, value_name = "R", value_parser = number::count(0..=MOST_RANKS))]
    rank: usize,
    /// Processes that share the model, including the driver
    #[arg(long, value_name = "N", value_parser = number::count(0..=MOST_RANKS))]
    world: usize,
    /// Address where the driver waits, HOST:PORT
    #[arg(long, value_name = "ADDR")]
    join: String,
    /// Seconds to wait for the driver and the other workers
    #[arg(long, value_name = "SECONDS", default_value_t = PATIENCE, value_parser = number::seconds, allow_negative_numbers = true)]
    patience: f64,
    #[command(flatten)]
    device: DeviceArgs,
    /// Quantise the linear layers while loading, as the driver does: w4a16, w8a16 or fp8
    #[arg(long, value_name = "SCHEME", value_parser = parse_scheme)]
    weights: Option<Scheme>,
    /// Transport of activations between ranks, as for the driver: tcp, or nccl (from GPU to GPU)
    #[arg(long, value_name = "TRANSPORT", default_value_t = Rows::Tcp)]
    rows_by: Rows,
}

/// Runs the subcommand.
pub fn run(args: &WorkerArgs) -> Result<ExitCode, Failure> {
    let patience = patience(args.patience)?;
    let form = LoadOptions { scheme: args.weights, max_context: None };
    let engine = load_as_needed(&args.model, args.device.get(), form)?.with_rows(args.rows_by)?;
    let seat = Seat::join(&args.join, args.rank, args.world, &engine.identity(), patience)?;
    let layers = seat.layers();
    let all = engine.spec().layers;
    paint::line(Word::Note, &format!("rank {} has layers {} to {} of {all}", args.rank, layers.lo, layers.hi - 1));
    let interrupt = Interrupt::aborts(engine.abort_handle())?;
    match seat.serve(&engine) {
        Err(error) if interrupt.came() && error.is_abort() => {}
        result => result?,
    }
    Ok(interrupt.exit_code())
}
