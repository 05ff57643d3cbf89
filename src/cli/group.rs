//! Commands in a process group: rank 0 drives, and every other rank computes its part of the model.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use thiserror::Error;
use tilewright_codegen::device::cuda;

use super::device::DeviceArgs;
use super::interrupt::Interrupt;
use super::load::{LoadOptions, load_as, load_as_needed};
use super::paint::{self, Word};
use super::{Failure, number};
use crate::engine::pipeline::MOST_RANKS;
use crate::engine::{Device, Engine, EngineError, GroupError, Member, PipelineError, ProcessGroup};

/// How the processes of a group share the model.
#[derive(Args)]
pub struct GroupArgs {
    /// Share every layer among the N processes of a group, one GPU each, instead of a pipeline of
    /// layers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::count(1..=MOST_RANKS as u64))]
    tensor_parallel: usize,
}

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
    /// It computes its part of the model for rank 0.
    Stage(ProcessGroup),
}

impl Role {
    /// The role that the environment gives to this process.
    pub fn of_environment(args: &GroupArgs) -> Result<Role, Failure> {
        let found = args.tensor_parallel;
        let group = ProcessGroup::of_environment().and_then(|group| match group {
            None if found > 1 => Err(GroupError::Alone { found }),
            group => Ok(group.map(|group| group.with_tensor_parallel(found))),
        });
        Ok(match group.map_err(PipelineError::from).map_err(EngineError::from)? {
            Some(group) if group.rank() > 0 => Role::Stage(group),
            group => Role::Driver(group),
        })
    }
}

/// Loads a model, for rank 0 of a group only the weights of its part.
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

/// Computes this rank's part until rank 0 ends the work. A launcher passes Ctrl-C to all ranks: rank 0 ends
/// in good order, and a second one ends this rank. `joined` is called once all ranks have joined.
pub fn run_stage(
    model: &Path,
    device: &DeviceArgs,
    form: LoadOptions,
    group: &ProcessGroup,
    joined: impl FnOnce() -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    let engine = load_as_needed(model, device_of(device, group)?, form)?;
    let interrupt = Interrupt::noticed()?;
    let all = engine.spec().layers;
    match join(engine, group)? {
        Member::Stage(stage) => {
            let (rank, part) = (stage.rank(), stage.part());
            paint::line(Word::Note, &format!("rank {rank} has {part}, of {all} layers"));
            joined()?;
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
