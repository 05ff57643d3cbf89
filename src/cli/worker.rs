//! `tilewright worker`: some layers of a model, for a driver elsewhere.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Failure;
use super::interrupt::Interrupt;
use super::load::{Form, load_as_needed};
use super::paint::{self, Word};
use super::quantize::parse_scheme;
use super::world::{PATIENCE, patience};
use crate::checkpoint::Scheme;
use crate::engine::{Device, Rows, Seat};

/// Compute some layers of a model for a driver in another process
///
/// The driver is `generate` or `logits` with --world and --join. It has rank 0 and the first layers, the workers have the ranks
/// from 1 on; the last of them has the head. All have the same checkpoint, of which each reads its own layers. A worker ends
/// with its driver. Ports are for a network that is trusted: there is neither a password nor encryption.
#[derive(Args)]
pub struct WorkerArgs {
    /// Folder of a Hugging Face checkpoint, the same as the driver's
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// The number of this process, 1 to N - 1
    #[arg(long, value_name = "R")]
    rank: usize,
    /// Processes that share the model, the driver among them
    #[arg(long, value_name = "N")]
    world: usize,
    /// Where the driver waits, HOST:PORT
    #[arg(long, value_name = "ADDR")]
    join: String,
    /// Seconds to wait for the driver and the other workers to come together
    #[arg(long, value_name = "S", default_value_t = PATIENCE, allow_negative_numbers = true)]
    patience: f64,
    /// Where to run: cpu (all cores), cpu:N, cuda:N, cuda:A-B (GPUs that share the stage) or sim:SEED
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: Device,
    /// Quantise the linear layers while loading, as the driver does: w4a16, w8a16 or fp8
    #[arg(long, value_name = "SCHEME", value_parser = parse_scheme)]
    weights: Option<Scheme>,
    /// How rows of prompts and wide batches come from rank to rank, as the driver has it: tcp, or nccl (from GPU to GPU)
    #[arg(long, value_name = "WAY", default_value_t = Rows::Tcp)]
    rows_by: Rows,
}

/// Runs the subcommand.
pub fn run(args: &WorkerArgs) -> Result<ExitCode, Failure> {
    let patience = patience(args.patience)?;
    let form = Form { scheme: args.weights, max_context: None };
    let engine = load_as_needed(&args.model, args.device, form)?.with_rows(args.rows_by)?;
    let seat = Seat::join(&args.join, (args.rank, args.world), &engine.identity(), patience)?;
    let (layers, all) = (seat.layers(), engine.spec().layers);
    paint::line(Word::Note, &format!("rank {} has layers {} to {} of {all}", args.rank, layers.lo, layers.hi - 1));
    let interrupt = Interrupt::aborts(engine.abort_handle())?;
    match seat.serve(&engine) {
        Err(error) if interrupt.came() && error.is_abort() => {}
        result => result?,
    }
    Ok(interrupt.exit_code())
}
