//! A launch: grid, arguments, checks; its outcome.

use super::host::HostOrder;
use super::print::PrintedLines;
use super::step::TensorMapDescriptor;
use crate::ir::Const;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the simulator checks for faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Checks {
    /// All checks are on.
    #[default]
    On,
    /// Runs the kernel with the checks only that it needs to continue: addresses, barriers,
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

/// A handle that ends simulated launches from another thread.
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

    /// Withdraws a request; returns whether there was one.
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

/// The parameters of a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Blocks by axis, a multiple of the kernel's cluster.
    pub grid: [u32; 3],
    /// The arguments in order.
    pub args: Vec<Arg>,
    /// The arguments of further devices that run the kernel on a grid of the same shape, side by
    /// side with this one; all see all memory. A scope of `.gpu` ends at a device.
    pub peers: Vec<Vec<Arg>>,
    /// Whether the simulator checks for faults.
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
    /// The handle that ends the launch early, as
    /// [`SimError::Interrupted`](crate::sim::SimError::Interrupted).
    pub interrupt: Interrupt,
    /// The lines that the kernel prints.
    pub printed: PrintedLines,
}

/// A device that is lost: after `steps` steps of the machine none of its threads runs any more, and
/// its stores in flight may or may not arrive. The other devices continue; if they wait for ever,
/// the outcome is not a [`Fault`](crate::sim::Fault) but [`Left::Standing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The device's number among those that run concurrently.
    pub device: u32,
    /// Steps of all warps before it.
    pub step: u64,
}

/// The fate of the other devices of a launch that lost one.
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
            printed: PrintedLines::default(),
        }
    }

    /// Devices that run it.
    pub(crate) fn devices(&self) -> u32 {
        1 + self.peers.len() as u32
    }
}
