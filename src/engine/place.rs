//! A device made ready for one model: what the sessions of an engine share.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tilewright_codegen::device::sim::{self, Options};
use tilewright_codegen::device::{self, Properties, cuda};
use tilewright_codegen::target::Target;
use tilewright_megakernel::vm::device::DeviceOptions;
use tilewright_megakernel::vm::graph::PeerWeights;
use tilewright_megakernel::vm::resident::{Compilation, DeviceKernels, DeviceWeights, StageOrder};
use tilewright_megakernel::vm::{AbortHandle, MAX_STEPS};

use super::device::Device;
use super::error::EngineError;
use super::model::{Model, SharedWeights};
use super::pipeline::{GroupDriver, PipelineError};
use super::settings;
use crate::checkpoint::Progress;
use crate::engine::limits::MOST_ROWS;
use crate::results::Results;
use crate::tuning::{Tuned, user_file};

/// The callback that reports the progress of sending weights to a device.
pub type OnProgress = Box<dyn Fn(Progress) + Send + Sync>;

/// The device or host that runs an engine's programs.
pub(super) enum Place {
    /// The reference machine.
    Host {
        /// Worker threads.
        workers: usize,
        /// The process group, as in [`Gpu`].
        group: OnceLock<Arc<GroupDriver>>,
    },
    /// The device machine.
    Gpu(Box<Gpu>),
}

/// A GPU, or its simulation.
pub(super) struct Gpu {
    /// The target that programs are placed for.
    pub target: Target,
    /// Devices that share the model.
    pub devices: usize,
    /// The options of kernels that were not tuned.
    options: DeviceOptions,
    /// Most steps of a launch.
    pub launch_steps: usize,
    tuned: Tuned,
    weights: Mutex<DeviceWeights>,
    /// The kernels of its machines and graphs.
    pub kernels: DeviceKernels,
    simulated: bool,
    abort: Abort,
    /// The ranks that have the other layers, where this is the driver of some.
    group: OnceLock<Arc<GroupDriver>>,
    /// The weights row by row, for programs of many rows; sent when the first of them is requested.
    graphs: Mutex<PeerWeights>,
    on_progress: OnProgress,
}

/// Multiprocessors of the simulated GPU: enough for blocks to get in each other's way.
const SIMULATED_SMS: u32 = 4;
/// Steps of a launch on it, which runs to its end before the host sees tokens or is heard: a token
/// is fed back within the launch, and no more.
const SIMULATED_STEPS: usize = 2;

impl Place {
    /// Opens a device.
    pub fn open(device: Device) -> Result<Unloaded, EngineError> {
        match device {
            Device::Cpu { workers } => Ok(Unloaded::Host { workers }),
            Device::Cuda { .. } | Device::Sim { .. } | Device::Peers { .. } | Device::SimPeers { .. } => {
                Ok(Unloaded::Gpu(Box::new(open(device)?), known_settings()?))
            }
        }
    }

    /// The handle that aborts the work of an engine on this place.
    pub fn abort_handle(&self) -> Abort {
        match self {
            Place::Host { .. } => Abort::default(),
            Place::Gpu(gpu) => gpu.abort.clone(),
        }
    }

    /// The ranks that have the other layers, where this is the driver of some.
    pub fn group(&self) -> Option<&Arc<GroupDriver>> {
        self.group_lock().get()
    }

    /// Shares the model with those ranks from now on; once.
    pub fn share(&self, group: GroupDriver) {
        // A second group has no layers to take: it ends at once.
        let _ = self.group_lock().set(Arc::new(group));
    }

    fn group_lock(&self) -> &OnceLock<Arc<GroupDriver>> {
        match self {
            Place::Host { group, .. } => group,
            Place::Gpu(gpu) => &gpu.group,
        }
    }

    /// Refuses more rows of a step on a device than the decode machine has, where no graph of
    /// launches takes them.
    pub fn check_rows(&self, has_flow: bool, found: usize) -> Result<(), EngineError> {
        let most = MOST_ROWS;
        match self.group() {
            _ if has_flow => Err(EngineError::FlowRows { found, most }),
            Some(_) if !self.has_graphs_of_stages() => Err(PipelineError::Width { found, most }.into()),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether graphs of launches compute stages of a pipeline on this place.
    pub fn has_graphs_of_stages(&self) -> bool {
        match self {
            Place::Host { .. } => false,
            Place::Gpu(gpu) => gpu.devices == 1,
        }
    }

    /// The device whose links connect this rank to others: the first GPU of its stage.
    pub fn link_device(&self) -> Option<device::Device> {
        match self {
            Place::Gpu(gpu) if !gpu.simulated => Some(gpu.weights().device().clone()),
            Place::Gpu(_) | Place::Host { .. } => None,
        }
    }

    /// The kind of device, which all ranks of a process group must share.
    pub fn kind(&self) -> &'static str {
        match self {
            Place::Host { .. } => "cpu",
            Place::Gpu(_) => "gpu",
        }
    }

    /// Kernels that were compiled so far; none on the host.
    pub fn compiled(&self) -> Vec<Compilation> {
        match self {
            Place::Gpu(gpu) => gpu.kernels.compilations(),
            Place::Host { .. } => Vec::new(),
        }
    }
}

/// A place without a model.
pub(super) enum Unloaded {
    Host { workers: usize },
    Gpu(Box<Opened>, Tuned),
}

impl Unloaded {
    /// Opens the place for a checkpoint. Weights are sent when they are first needed.
    pub fn with(self, weights: &SharedWeights, on_progress: OnProgress) -> Place {
        match self {
            Unloaded::Host { workers } => Place::Host { workers, group: OnceLock::new() },
            Unloaded::Gpu(opened, tuned) => {
                let Opened { devices, target, options, launch_steps, abort, .. } = *opened;
                let count = devices.len();
                let simulated = launch_steps == SIMULATED_STEPS;
                let graphs = PeerWeights::new(&devices, weights);
                let weights = DeviceWeights::on(devices, Arc::clone(weights));
                let kernels = weights.kernels().clone();
                let graphs = Mutex::new(graphs.with_kernels(&kernels));
                let weights = Mutex::new(weights);
                let gpu = Gpu {
                    target,
                    devices: count,
                    options,
                    launch_steps,
                    tuned,
                    weights,
                    kernels,
                    simulated,
                    abort,
                    group: OnceLock::new(),
                    graphs,
                    on_progress,
                };
                Place::Gpu(Box::new(gpu))
            }
        }
    }
}

/// A GPU or its simulation, what programs are placed for on it, how kernels are cut and how many
/// steps a launch has.
pub(crate) struct Opened {
    /// The first, on which kernels are timed.
    #[cfg(feature = "cli")]
    pub device: device::Device,
    /// All that share the model, the first among them.
    pub devices: Vec<device::Device>,
    pub target: Target,
    pub options: DeviceOptions,
    pub launch_steps: usize,
    /// Ends launches; those of a simulated device at any point.
    pub abort: Abort,
}

/// Opens a GPU or its simulation; the host is neither.
pub(crate) fn open(device: Device) -> Result<Opened, EngineError> {
    let abort = Abort::default();
    let (devices, launch_steps) = match device {
        Device::Cpu { .. } => return Err(EngineError::NoGpu),
        Device::Cuda { ordinal } => (vec![cuda::open(ordinal)?], MAX_STEPS),
        Device::Sim { seed } => (simulated(seed, 1, &abort), SIMULATED_STEPS),
        Device::Peers { first, count } => (cuda::peers(first..first.saturating_add(count))?, MAX_STEPS),
        Device::SimPeers { seed, count } => (simulated(seed, count, &abort), SIMULATED_STEPS),
    };
    let opened = devices.first().cloned().ok_or(EngineError::NoGpu)?;
    let target = target(opened.properties())?;
    Ok(Opened {
        #[cfg(feature = "cli")]
        device: opened,
        devices,
        target,
        options: device_options(device),
        launch_steps,
        abort,
    })
}

/// The default options of kernels for a device. Weights keep their order, since products of graphs
/// read them too.
pub(crate) fn device_options(device: Device) -> DeviceOptions {
    let options = match device {
        Device::Sim { .. } | Device::SimPeers { .. } => DeviceOptions::for_simulator(),
        Device::Cpu { .. } | Device::Cuda { .. } | Device::Peers { .. } => DeviceOptions::default(),
    };
    DeviceOptions { stage_order: StageOrder::InOrder, ..options }
}

/// The settings of the user's file, followed by the table in the binary.
fn known_settings() -> Result<Tuned, EngineError> {
    match user_file().filter(|path| path.exists()) {
        Some(path) => {
            // A search that was ended early leaves no row.
            let mut results = Results::default();
            results.add_file(&path)?;
            Ok(Tuned::of(&results).or(Tuned::shipped()))
        }
        None => Ok(Tuned::shipped()),
    }
}

/// The target of a device's kernels, by its compute capability.
fn target(properties: &Properties) -> Result<Target, EngineError> {
    let none = || EngineError::NoKernels { device: properties.name.clone(), capability: properties.capability };
    properties.target().ok_or_else(none)
}

impl Gpu {
    /// The kernel options for a machine with a number of rows and a context length.
    ///
    /// The user's tuning file comes first, for this device and model at the nearest context; then
    /// the table in the binary; then the defaults.
    pub fn options(&self, model: &Model, rows: usize, context: usize) -> Result<DeviceOptions, EngineError> {
        let device = self.weights().device().properties().name.clone();
        let spec = &model.spec;
        let bits = model.bits.map(|bits| ("weight_bits", bits));
        let exact = [("batch", rows), ("hidden", spec.hidden), ("layers", spec.layers)].into_iter().chain(bits);
        let exact: Vec<_> = exact.map(|(name, extent)| (name, extent as u64)).collect();
        match self.tuned.nearest(&device, "decode", &exact, ("context", context as u64)) {
            Some(found) => Ok(settings::options(self.options, found)?),
            None => Ok(self.options),
        }
    }

    /// Whether it is a simulation, whose kernels take no time to compile.
    pub fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// The weights; what a thread that panicked left of them is whole.
    pub fn weights(&self) -> MutexGuard<'_, DeviceWeights> {
        self.weights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The weights row by row.
    pub fn graphs(&self) -> MutexGuard<'_, PeerWeights> {
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the progress of sending the weights.
    pub fn progress(&self, done: u64, total: u64) {
        (self.on_progress)(Progress { done, total });
    }
}

/// Simulated GPUs that reach each other's memory.
fn simulated(seed: u64, count: u32, abort: &Abort) -> Vec<device::Device> {
    let options = Options { seed, sms: SIMULATED_SMS, interrupt: abort.interrupt(), ..Options::default() };
    sim::peers(&options, count)
}

/// A handle that aborts the work of an engine from another thread.
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
