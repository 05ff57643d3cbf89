//! Commands in a process group: rank 0 drives, and every other rank computes a stage.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;
use tilewright_codegen::device::cuda;

use super::Failure;
use super::device::DeviceArgs;
use super::interrupt::Interrupt;
use super::load::{LoadOptions, load_as, load_as_needed};
use super::paint::{self, Word};
use crate::engine::{Device, Engine, EngineError, Member, PipelineError, ProcessGroup};

/// The local rank names no GPU.
#[derive(Debug, Error)]
#[error(
    "the rank on this host is {local_rank}, and this process sees {count} GPUs; start one process a GPU, or give --device"
)]
struct LocalRank {
    local_rank: usize,
    count: usize,
}

/// What a process does for a command.
pub enum Role {
    /// It runs the command, and drives the group if it is in one.
    Driver(Option<ProcessGroup>),
    /// It computes a stage for rank 0.
    Stage(ProcessGroup),
}

impl Role {
    /// The role that the environment gives to this process.
    pub fn of_environment() -> Result<Role, Failure> {
        let group = ProcessGroup::of_environment().map_err(PipelineError::from).map_err(EngineError::from)?;
        Ok(match group {
            Some(group) if group.rank() > 0 => Role::Stage(group),
            group => Role::Driver(group),
        })
    }
}

/// Loads a model, for rank 0 of a group only the weights of its layers.
pub fn load(
    model: &Path,
    device: &DeviceArgs,
    form: LoadOptions,
    group: Option<&ProcessGroup>,
) -> Result<Engine, Failure> {
    match group {
        Some(group) => load_as_needed(model, device_of(device, group)?, form),
        None => load_as(model, device.get(), form),
    }
}

/// Whether this process has joined a group.
static JOINED: AtomicBool = AtomicBool::new(false);

/// Ends a process of a group that failed, whose links may not let go of it.
pub fn leave(code: u8) {
    if JOINED.load(Ordering::Relaxed) {
        // Of what was written to a pipe that is closed nothing is left to say.
        let _ = std::io::stdout().flush();
        cuda::leave(code);
    }
}

/// Waits until all ranks have joined, if there is a group.
pub fn drive(engine: Engine, group: Option<&ProcessGroup>) -> Result<Engine, Failure> {
    let Some(group) = group else { return Ok(engine) };
    paint::line(Word::Note, &format!("waiting for {} other rank(s)", group.size() - 1));
    match join(engine, group)? {
        Member::Driver(engine) => Ok(*engine),
        Member::Stage(_) => unreachable!("rank 0 drives"),
    }
}

/// Computes a stage until rank 0 ends the work. A launcher passes Ctrl-C to all ranks: rank 0 ends
/// in good order, and a second one ends this rank.
pub fn run_stage(
    model: &Path,
    device: &DeviceArgs,
    form: LoadOptions,
    group: &ProcessGroup,
) -> Result<ExitCode, Failure> {
    let engine = load_as_needed(model, device_of(device, group)?, form)?;
    let interrupt = Interrupt::noticed()?;
    let all = engine.spec().layers;
    match join(engine, group)? {
        Member::Stage(stage) => {
            let (rank, layers) = (stage.rank(), stage.layers());
            paint::line(Word::Note, &format!("rank {rank} has layers {} to {} of {all}", layers.lo, layers.hi - 1));
            stage.run()?;
        }
        Member::Driver(_) => unreachable!("other ranks are stages"),
    }
    Ok(interrupt.exit_code())
}

fn join(engine: Engine, group: &ProcessGroup) -> Result<Member, Failure> {
    JOINED.store(true, Ordering::Relaxed);
    Ok(engine.join(group)?)
}

/// The device that was given, else the GPU of the rank on this host.
fn device_of(args: &DeviceArgs, group: &ProcessGroup) -> Result<Device, Failure> {
    if let Some(device) = args.given() {
        return Ok(device);
    }
    let count = cuda::count().unwrap_or(0) as usize;
    match (group.local_rank().unwrap_or(0), count) {
        // Joining the group says that it needs GPUs.
        (_, 0) => Ok(Device::cpu()),
        // A launcher may hide all GPUs but the rank's own.
        (_, 1) => Ok(Device::Cuda { ordinal: 0 }),
        (local_rank, count) if local_rank < count => Ok(Device::Cuda { ordinal: local_rank as u32 }),
        (local_rank, count) => Err(LocalRank { local_rank, count }.into()),
    }
}
