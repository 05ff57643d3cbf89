//! Runs of a kernel in the simulator: checks of the launch, outcomes, errors.

use super::count::{Counters, NamedInst};
use super::fault::Fault;
use super::launch::Arg;
use super::machine::Simulation;
use super::memory::{Bits, Memory, Region};
use super::program::{DecodeError, Program, decode};
use super::step::TensorMapError;
use crate::ir::{Kernel, ParamKind, Ty};
use crate::sim::Launch;
use crate::verify::Verified;

/// The outcome of a launch.
#[derive(Debug)]
pub enum Outcome {
    /// Every thread ended; what they did.
    Finished(Counters),
    /// The kernel is wrong.
    Fault(Box<Fault>),
}

impl Outcome {
    /// The counters, if the kernel had no fault.
    pub fn finished(self) -> Option<Counters> {
        match self {
            Outcome::Finished(counters) => Some(counters),
            Outcome::Fault(_) => None,
        }
    }

    /// The fault, if there was one.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Outcome::Finished(_) => None,
            Outcome::Fault(fault) => Some(fault),
        }
    }
}

/// A launch that cannot be made, or was interrupted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// The kernel cannot be decoded.
    #[error("kernel {kernel}: {source}")]
    Decode {
        /// The kernel.
        kernel: String,
        /// Why.
        source: DecodeError,
    },
    /// Another number of arguments than of parameters.
    #[error("kernel {kernel} takes {expected} arguments, the launch has {found}")]
    ArgCount {
        /// The kernel.
        kernel: String,
        /// Parameters.
        expected: usize,
        /// Arguments.
        found: usize,
    },
    /// An argument of another kind than its parameter.
    #[error("argument {index} ({name}) of kernel {kernel} is {expected}, the launch gives {found}")]
    Arg {
        /// The kernel.
        kernel: String,
        /// Its position.
        index: usize,
        /// The parameter's name.
        name: String,
        /// The type of the parameter.
        expected: String,
        /// The argument that was given.
        found: String,
    },
    /// A tensor map that the hardware does not accept.
    #[error("argument {index} of kernel {kernel}: {source}")]
    TensorMap {
        /// The kernel.
        kernel: String,
        /// Its position.
        index: usize,
        /// Why.
        source: TensorMapError,
    },
    /// A grid without blocks, or not a multiple of the cluster, or a block without threads.
    #[error(
        "kernel {kernel}: a grid of {grid:?} blocks of {threads} threads in clusters of {cluster:?} cannot be launched"
    )]
    Grid {
        /// The kernel.
        kernel: String,
        /// The grid.
        grid: [u32; 3],
        /// The cluster.
        cluster: [u32; 3],
        /// Threads of a block.
        threads: u32,
    },
    /// The launch was ended by its [`Interrupt`](crate::sim::Interrupt); memory is as it was then.
    #[error("kernel {kernel} was interrupted")]
    Interrupted {
        /// The kernel.
        kernel: String,
    },
}

/// Runs a kernel on the machine, with the interleaving of a seed.
///
/// # Errors
/// [`SimError`] if the launch cannot be made. A fault of the kernel is not an error but an
/// [`Outcome`].
pub fn run(kernel: &Verified, launch: &Launch, memory: &mut Memory, seed: u64) -> Result<Outcome, SimError> {
    run_unverified(kernel.kernel(), launch, memory, seed)
}

/// [`run`] without the promise that `verify` gives.
pub(super) fn run_unverified(
    kernel: &Kernel,
    launch: &Launch,
    memory: &mut Memory,
    seed: u64,
) -> Result<Outcome, SimError> {
    let program = decode(kernel).map_err(|source| SimError::Decode { kernel: kernel.name.clone(), source })?;
    check_grid(&program, launch)?;
    let all = std::iter::once(&launch.args).chain(&launch.peers);
    let params = all.map(|args| params(&program, args)).collect::<Result<_, _>>()?;
    let named = program.sites.iter().map(|site| NamedInst {
        stmt: site.stmt,
        text: site.text.clone(),
        src: site.src,
        class: site.class,
    });
    let ran = Simulation::new(&program, memory, launch, params, seed).run();
    if launch.interrupt.take() {
        return Err(SimError::Interrupted { kernel: kernel.name.clone() });
    }
    match ran {
        Ok(counters) => Ok(Outcome::Finished(Counters { named: named.collect(), ..counters })),
        Err(fault) => Ok(Outcome::Fault(fault)),
    }
}

pub(super) fn check_grid(program: &Program, launch: &Launch) -> Result<(), SimError> {
    let grid = launch.grid;
    let cluster = program.launch.cluster;
    let threads = program.launch.threads_per_block();
    let whole = grid.iter().zip(cluster).all(|(&blocks, size)| blocks > 0 && size > 0 && blocks.is_multiple_of(size));
    let blocks = grid.iter().try_fold(launch.devices(), |product, &n| product.checked_mul(n));
    if whole && (1..=1024).contains(&threads) && blocks.is_some_and(|blocks| blocks < 1 << 20) {
        return Ok(());
    }
    Err(SimError::Grid { kernel: program.name.clone(), grid, cluster, threads })
}

/// The parameters in memory.
pub(super) fn params(program: &Program, args: &[Arg]) -> Result<Region, SimError> {
    if args.len() != program.params.len() {
        let expected = program.params.len();
        let found = args.len();
        return Err(SimError::ArgCount { kernel: program.name.clone(), expected, found });
    }
    let mut region = Region::fresh(program.param_bytes as usize, 4);
    region.written = Bits::new(program.param_bytes as usize, true);
    for (index, (param, arg)) in program.params.iter().zip(args).enumerate() {
        let bytes = match (param.kind, arg) {
            (ParamKind::Value(Ty::Ptr(_)), Arg::Ptr(address)) => address.to_le_bytes().to_vec(),
            (ParamKind::Value(ty), Arg::Scalar(value)) if ty == value.ty => value.bits.to_le_bytes().to_vec(),
            (ParamKind::Bytes { bytes, .. }, Arg::Bytes(data)) if data.len() == bytes as usize => data.clone(),
            (ParamKind::TensorMap, Arg::TensorMap(map)) => match map.encode() {
                Ok(bytes) => bytes.to_vec(),
                Err(source) => return Err(SimError::TensorMap { kernel: program.name.clone(), index, source }),
            },
            (kind, arg) => {
                return Err(SimError::Arg {
                    kernel: program.name.clone(),
                    index,
                    name: param.name.clone(),
                    expected: kind_text(kind),
                    found: arg_text(arg),
                });
            }
        };
        let start = program.param_offsets[index] as usize;
        let len = (param.kind.layout().0 as usize).min(bytes.len());
        region.data[start..start + len].copy_from_slice(&bytes[..len]);
    }
    Ok(region)
}

pub(super) fn kind_text(kind: ParamKind) -> String {
    match kind {
        ParamKind::Value(ty) => format!("a {ty}"),
        ParamKind::Bytes { bytes, .. } => format!("{bytes} bytes"),
        ParamKind::TensorMap => "a tensor map".into(),
    }
}

pub(super) fn arg_text(arg: &Arg) -> String {
    match arg {
        Arg::Scalar(value) => format!("a {}", value.ty),
        Arg::Ptr(_) => "an address".into(),
        Arg::Bytes(data) => format!("{} bytes", data.len()),
        Arg::TensorMap(_) => "a tensor map".into(),
    }
}
