//! `tilewright worker`: some layers of a model, for a driver elsewhere.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::Failure;
use super::interrupt::Interrupt;
use super::load::open_as;
use super::paint::{self, Word};
use super::quantize::parse_scheme;
use super::world::{PATIENCE, patience};
use crate::checkpoint::Scheme;
use crate::engine::{Abort, Device, Identity, PipelineError, Seat};

/// Compute some layers of a model for `generate` or `logits` with --world in another process
///
/// The driver has rank 0 and the first layers, the workers have the ranks from 1 on; the last of them has the head. All have the same
/// checkpoint, of which each reads its own layers. A worker ends with its driver. Ports are for a network that is trusted:
/// there is neither a password nor encryption.
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
    /// Where to run: cpu (all cores) or cpu:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: Device,
    /// Quantise the linear layers while loading, as the driver does: w4a16, w8a16 or fp8
    #[arg(long, value_name = "SCHEME", value_parser = parse_scheme)]
    weights: Option<Scheme>,
}

/// Runs the subcommand.
pub fn run(args: &WorkerArgs) -> Result<ExitCode, Failure> {
    let Device::Cpu { workers } = args.device else {
        return Err(PipelineError::Device { device: args.device.to_string() }.into());
    };
    let patience = patience(args.patience)?;
    let checkpoint = Arc::new(open_as(&args.model, args.weights)?);
    let model = Identity::of(&checkpoint);
    let seat = Seat::join(&args.join, (args.rank, args.world), &model, patience)?;
    let layers = seat.layers();
    let all = checkpoint.spec().layers;
    paint::line(Word::Note, &format!("rank {} has layers {} to {} of {all}", args.rank, layers.lo, layers.hi - 1));
    let abort = Abort::default();
    let interrupt = Interrupt::aborts(abort.clone())?;
    match seat.serve(&checkpoint, workers, &abort) {
        Err(error) if interrupt.came() && error.is_abort() => {}
        result => result?,
    }
    Ok(interrupt.exit_code())
}
