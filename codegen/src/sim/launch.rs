//! A launch: grid, arguments, checks; its outcome.

use super::count::{Counters, NamedInst};
use super::fault::Fault;
use super::host::HostOrder;
use super::machine::Simulation;
use super::memory::{Bits, Memory, Region};
use super::program::{DecodeError, Program, decode};
use super::step::{TensorMapDescriptor, TensorMapError};
use crate::ir::{Const, Kernel, ParamKind, Ty};
use crate::verify::Verified;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the machine looks for faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Checks {
    /// It does.
    #[default]
    On,
    /// It runs the kernel and looks at nothing but what it must to go on: addresses, barriers,
    /// mbarriers. For measurements of speed.
    Off,
}

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// A scalar.
    Scalar(Const),
    /// An address in global memory.
    Ptr(u64),
    /// A structure by value.
    Bytes(Vec<u8>),
    /// A tensor map.
    TensorMap(TensorMapDescriptor),
}

/// Ends simulated launches from another thread.
///
/// A request is for the launch that runs, or else for the next one; the launch that it ends takes
/// it back.
///
/// ```
/// use tilewright_codegen::sim::Interrupt;
/// let interrupt = Interrupt::default();
/// interrupt.clone().request();
/// assert!(interrupt.take() && !interrupt.take());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Requests the end of the launch.
    pub fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether an end is requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Takes a request back; whether there was one.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

impl From<Arc<AtomicBool>> for Interrupt {
    fn from(flag: Arc<AtomicBool>) -> Interrupt {
        Interrupt(flag)
    }
}

/// Two are equal if a request to one is a request to the other.
impl PartialEq for Interrupt {
    fn eq(&self, other: &Interrupt) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// How a kernel is launched.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Blocks by axis, a multiple of the kernel's cluster.
    pub grid: [u32; 3],
    /// The arguments in order.
    pub args: Vec<Arg>,
    /// The arguments of further devices that run the kernel on a grid of the same shape, side by
    /// side with this one; all see all memory. A scope of `.gpu` ends at a device.
    pub peers: Vec<Vec<Arg>>,
    /// Whether faults are looked for.
    pub checks: Checks,
    /// Blocks that run on a device at the same time, unless the launch is cooperative: then all do.
    pub resident: u32,
    /// Multiprocessors, over which blocks are dealt in turn.
    pub multiprocessors: u32,
    /// Steps without any change that another thread could see after which the machine calls it a
    /// standstill. Loops that change nothing at all are found long before; this ends those that
    /// count their rounds for ever.
    pub patience: u64,
    /// Words that the host uses while the kernel runs.
    pub host: Option<HostOrder>,
    /// A device that is lost while the kernel runs.
    pub loss: Option<Loss>,
    /// Ends the launch early, as [`SimError::Interrupted`].
    pub interrupt: Interrupt,
}

/// A device that is lost: after `steps` steps of the machine none of its threads runs any more, and
/// what it has on its way may or may not arrive. What the others do then is theirs; that they wait
/// for ever is no [`Fault`] but [`Left::Standing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Its number among those that run side by side.
    pub device: u32,
    /// Steps of all warps before it.
    pub step: u64,
}

/// What became of the other devices of a launch that lost one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// All their threads ended.
    Ended,
    /// They wait for ever: the report of the standstill.
    Standing(String),
}

/// Steps without any change after which a launch is a standstill, where nothing else is said.
pub(crate) const PATIENCE: u64 = 200_000_000;

impl Launch {
    /// A launch of `grid` blocks with these arguments; all checks on.
    pub fn new(grid: [u32; 3], args: Vec<Arg>) -> Launch {
        Launch {
            grid,
            args,
            peers: Vec::new(),
            checks: Checks::On,
            resident: 128,
            multiprocessors: 132,
            patience: PATIENCE,
            host: None,
            loss: None,
            interrupt: Interrupt::default(),
        }
    }

    /// Devices that run it.
    pub(crate) fn devices(&self) -> u32 {
        1 + self.peers.len() as u32
    }
}

/// How a launch ended.
#[derive(Debug)]
pub enum Outcome {
    /// Every thread ended; what they did.
    Finished(Counters),
    /// The kernel is wrong.
    Fault(Box<Fault>),
}

impl Outcome {
    /// What was done, if the kernel was not at fault.
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
        /// What the parameter is.
        expected: String,
        /// What was given.
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
    /// The launch was ended by its [`Interrupt`]; memory is as it was then.
    #[error("kernel {kernel} was interrupted")]
    Interrupted {
        /// The kernel.
        kernel: String,
    },
}

/// Runs a kernel on the machine, with the interleaving of a seed.
///
/// # Errors
/// [`SimError`] if the launch cannot be made. A fault of the kernel is no error but an [`Outcome`].
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

fn check_grid(program: &Program, launch: &Launch) -> Result<(), SimError> {
    let (grid, cluster, threads) = (launch.grid, program.launch.cluster, program.launch.threads_per_block());
    let whole = grid.iter().zip(cluster).all(|(&blocks, size)| blocks > 0 && size > 0 && blocks.is_multiple_of(size));
    let blocks = grid.iter().try_fold(launch.devices(), |product, &n| product.checked_mul(n));
    if whole && (1..=1024).contains(&threads) && blocks.is_some_and(|blocks| blocks < 1 << 20) {
        return Ok(());
    }
    Err(SimError::Grid { kernel: program.name.clone(), grid, cluster, threads })
}

/// The parameters in memory.
fn params(program: &Program, args: &[Arg]) -> Result<Region, SimError> {
    if args.len() != program.params.len() {
        let (expected, found) = (program.params.len(), args.len());
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

fn kind_text(kind: ParamKind) -> String {
    match kind {
        ParamKind::Value(ty) => format!("a {ty}"),
        ParamKind::Bytes { bytes, .. } => format!("{bytes} bytes"),
        ParamKind::TensorMap => "a tensor map".into(),
    }
}

fn arg_text(arg: &Arg) -> String {
    match arg {
        Arg::Scalar(value) => format!("a {}", value.ty),
        Arg::Ptr(_) => "an address".into(),
        Arg::Bytes(data) => format!("{} bytes", data.len()),
        Arg::TensorMap(_) => "a tensor map".into(),
    }
}
