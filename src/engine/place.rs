//! A device made ready for one model: what the sessions of an engine share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::device::{self, Properties, cuda};
use tilewright_codegen::target::Target;
use tilewright_megakernel::vm::device::{AbortHandle, DeviceOptions, DeviceWeights};

use super::device::Device;
use super::error::EngineError;
use crate::checkpoint::{Checkpoint, Progress};

/// Who is told how far the weights are on their way to a device.
pub type OnProgress = Box<dyn Fn(Progress) + Send + Sync>;

/// Where the programs of an engine run.
pub(super) enum Place {
    /// The reference machine.
    Host {
        /// Worker threads.
        workers: usize,
    },
    /// The device machine.
    Gpu(Box<Gpu>),
}

/// A GPU, or its simulation.
pub(super) struct Gpu {
    /// What programs are placed for.
    pub target: Target,
    /// How kernels are cut.
    pub options: DeviceOptions,
    weights: Mutex<DeviceWeights>,
    on_progress: OnProgress,
}

/// Multiprocessors of the simulated GPU: enough for blocks to get in each other's way.
const SIMULATED_SMS: u32 = 4;

impl Place {
    /// Opens a device.
    pub fn open(device: Device) -> Result<Unloaded, EngineError> {
        match device {
            Device::Cpu { workers } => Ok(Unloaded::Host { workers }),
            Device::Cuda { .. } | Device::Sim { .. } => open(device).map(|opened| Unloaded::Gpu(Box::new(opened))),
        }
    }
}

/// A place without a model.
pub(super) enum Unloaded {
    Host { workers: usize },
    Gpu(Box<Opened>),
}

impl Unloaded {
    /// The same for a checkpoint. Weights are sent when they are first needed.
    pub fn with(self, checkpoint: &Arc<Checkpoint>, on_progress: OnProgress) -> Place {
        match self {
            Unloaded::Host { workers } => Place::Host { workers },
            Unloaded::Gpu(opened) => {
                let Opened { device, target, options } = *opened;
                let weights = Mutex::new(DeviceWeights::new(device, Arc::clone(checkpoint) as _));
                Place::Gpu(Box::new(Gpu { target, options, weights, on_progress }))
            }
        }
    }
}

/// A GPU or its simulation, what programs are placed for on it, and how kernels are cut.
pub(crate) struct Opened {
    pub device: device::Device,
    pub target: Target,
    pub options: DeviceOptions,
}

/// Opens a GPU or its simulation; the host is neither.
pub(crate) fn open(device: Device) -> Result<Opened, EngineError> {
    let (device, options) = match device {
        Device::Cpu { .. } => return Err(EngineError::NoGpu),
        Device::Cuda { ordinal } => (cuda::open(ordinal)?, DeviceOptions::default()),
        Device::Sim { seed } => (simulated(seed), small()),
    };
    let target = target(device.properties())?;
    Ok(Opened { device, target, options })
}

/// What kernels are generated for on a device, by its compute capability.
fn target(properties: &Properties) -> Result<Target, EngineError> {
    let none = || EngineError::NoKernels { device: properties.name.clone(), capability: properties.capability };
    properties.target().ok_or_else(none)
}

impl Gpu {
    /// The weights; what a thread that panicked left of them is whole.
    pub fn weights(&self) -> MutexGuard<'_, DeviceWeights> {
        self.weights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells how far the weights are.
    pub fn progress(&self, done: u64, total: u64) {
        (self.on_progress)(Progress { done, total });
    }
}

/// A simulated GPU.
fn simulated(seed: u64) -> device::Device {
    Simulator::new(Options { seed, sms: SIMULATED_SMS, ..Options::default() }).device()
}

/// Kernels that the simulator runs in bearable time: few warps, small stages.
fn small() -> DeviceOptions {
    DeviceOptions { warps: 4, stage_bytes: 4096, stages: 4, sums_bytes: 4096, ..DeviceOptions::default() }
}

/// What ends the work of an engine from elsewhere.
pub type Abort = AbortHandle;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_generated_for_the_devices_own_compute_capability_from_8_0_on() {
        let of = |capability| target(&Properties { capability, name: "a GPU".into(), ..Properties::default() });
        let known =
            [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0), (12, 1)].map(|own| of(own).map(|target| target.arch));
        let arches = known.map(|arch| arch.unwrap_or_else(|error| error.to_string()));
        assert_eq!(arches, ["sm_80", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120", "sm_120"]);
        let old = of((7, 5)).map_or_else(|error| error.to_string(), |target| target.arch);
        let expected = "no kernels are generated for a GPU (compute capability 7.5); the megakernel runs on 8.0 and later, \
                        `cpu` runs everywhere";
        assert_eq!(old, expected);
    }
}
