//! The simulator as a device: the same memory, kernels, streams and graphs, and every fault of a
//! kernel an error.
//!
//! | file | what it holds |
//! |---|---|
//! | `memory` | device memory, pinned memory, mapped words |
//! | `launch` | a launch: parameters back to arguments, residency, the run, its outcome |
//! | `machine` | the [`Backend`](super::backend::Backend) of it all |
//!
//! Work is done when it is submitted, in the order of submission, whatever the stream. So a kernel
//! that waits for the host deadlocks, and is reported; mapped words keep their values from the
//! start of the launch, and the host sees the kernel's final values. A missing order between
//! streams is not found.
//!
//! Launch number `n` of a device (from 0) has seed `seed + n`: a program that launches in one order
//! runs the same every time, and no two launches run in the same interleaving. Written bytes are
//! tracked from launch to launch: a read of bytes that no copy, fill or kernel wrote is an error,
//! also on the host.
//!
//! A fault is [`DeviceError::Fault`](super::DeviceError::Fault) from the call that submitted the
//! launch. The device is not lost: memory is as the fault left it, and later work runs. A device
//! that [is lost](Options::loss) on purpose answers every later call with
//! [`DeviceError::Lost`](super::DeviceError::Lost), as a driver does; where the others wait for it,
//! their streams never finish.

mod launch;
mod machine;
mod memory;
mod options;

pub use options::Options;

use super::Device;
use crate::sim::Counters;
use std::sync::Arc;

/// A simulated device that gives access to the counters of launches.
///
/// ```
/// use tilewright_codegen::device::sim::{Options, Simulator};
/// use tilewright_codegen::{gallery, ir::Arch, verify::verify};
/// let simulator = Simulator::new(Options { sms: 4, ..Options::default() });
/// let device = simulator.device();
/// let kernel = device.load(&verify(gallery::named("saxpy").unwrap().record(Arch::Sm90a))?)?;
/// let stream = device.stream()?;
/// let x = stream.buffer(&[1f32; 300])?;
/// let y = stream.buffer(&[2f32; 300])?;
/// kernel.launch(&stream, 2, &[300u32.into(), 3f32.into(), (&x).into(), (&y).into()])?;
/// assert_eq!(stream.read(&y)?, [5f32; 300]);
/// assert!(simulator.last_launch().unwrap().sectors() > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Simulator {
    machine: Arc<machine::SimDevice>,
}

impl Simulator {
    /// A new machine.
    pub fn new(options: Options) -> Simulator {
        Simulator { machine: Arc::new(machine::SimDevice::new(options)) }
    }

    /// The machine as a device.
    pub fn device(&self) -> Device {
        Device::new(Arc::clone(&self.machine) as Arc<dyn super::backend::Backend>)
    }

    /// The counters of the last launch that finished.
    pub fn last_launch(&self) -> Option<Counters> {
        self.machine.last_launch()
    }

    /// The lines that the last launch printed by [`Builder::print`](crate::build::Builder::print),
    /// also where it ended with a fault.
    pub fn printed(&self) -> Vec<String> {
        self.machine.printed()
    }
}

/// `count` simulated devices of one address space, each of which reaches the memory of all.
/// [`launch_side_by_side`](super::launch_side_by_side) runs kernels on them under one scheduler;
/// seeds are the first device's.
pub fn peers(options: &Options, count: u32) -> Vec<Device> {
    let store = memory::SharedStore::default();
    let machine = |number| machine::SimDevice::on(options.clone(), Arc::clone(&store), number);
    (0..count).map(machine).map(|machine| Device::new(Arc::new(machine))).collect()
}

/// A simulated H100 whose first launch has this seed.
pub fn open(seed: u64) -> Device {
    Simulator::new(Options { seed, ..Options::default() }).device()
}
