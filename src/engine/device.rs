//! The device that runs a model.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use thiserror::Error;
use tilewright_codegen::device::{DeviceError as DriverError, cuda};

/// A place where programs run.
///
/// ```
/// use tilewright::engine::Device;
/// assert!(matches!("cpu".parse(), Ok(Device::Cpu { .. })));
/// assert_eq!("cpu:3".parse(), Ok(Device::Cpu { workers: 3 }));
/// assert_eq!("cuda:0".parse(), Ok(Device::Cuda { ordinal: 0 }));
/// assert_eq!("sim:7".parse(), Ok(Device::Sim { seed: 7 }));
/// assert_eq!("cuda:0-3".parse(), Ok(Device::Peers { first: 0, count: 4 }));
/// assert_eq!("sim:7x2".parse(), Ok(Device::SimPeers { seed: 7, count: 2 }));
/// assert!("tpu".parse::<Device>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The reference machine, on this many threads.
    Cpu {
        /// Worker threads, at least 1.
        workers: usize,
    },
    /// The megakernel on a GPU.
    Cuda {
        /// Its number.
        ordinal: u32,
    },
    /// The megakernel on a simulated GPU of a few multiprocessors, all checks on: for small models
    /// and patient people.
    Sim {
        /// The seed of the first launch.
        seed: u64,
    },
    /// The megakernel on several GPUs of one host, which share the model and reach each other's
    /// memory.
    Peers {
        /// The number of the first.
        first: u32,
        /// The number of devices, at least 2.
        count: u32,
    },
    /// Several simulated GPUs that share the model.
    SimPeers {
        /// The seed of the first launch.
        seed: u64,
        /// The number of devices, at least 2.
        count: u32,
    },
}

/// A device that this build does not know.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{found}` is not a device of this build; it runs on `cpu` (all cores), `cpu:N` (N from 1 to {MAX_WORKERS}), `cuda:N` \
     (GPU number N), `cuda:A-B` (GPUs A to B, which share the model) or `sim:SEED` (a simulated GPU)"
)]
pub struct DeviceError {
    found: String,
}

/// Most devices that share a model.
const MAX_DEVICES: u32 = 8;
/// Most worker threads that can be asked for.
const MAX_WORKERS: usize = 1024;

impl Device {
    /// The reference machine on all cores.
    pub fn cpu() -> Device {
        Device::Cpu { workers: std::thread::available_parallelism().map_or(1, NonZeroUsize::get) }
    }
}

impl Device {
    /// The number of devices that share the model.
    ///
    /// ```
    /// use tilewright::engine::Device;
    /// let count = |name: &str| name.parse().map(|device: Device| device.count());
    /// assert_eq!((count("cuda:0-3"), count("sim:7")), (Ok(4), Ok(1)));
    /// ```
    pub const fn count(self) -> usize {
        match self {
            Device::Peers { count, .. } | Device::SimPeers { count, .. } => count as usize,
            Device::Cpu { .. } | Device::Cuda { .. } | Device::Sim { .. } => 1,
        }
    }
}

/// Why no model runs on `cuda:0`.
#[derive(Debug, Error)]
pub enum NoFirstGpu {
    /// There is no driver.
    #[error("no CUDA driver was found ({library} cannot be loaded)")]
    NoDriver {
        /// Its library.
        library: &'static str,
    },
    /// The driver has no device.
    #[error("the CUDA driver sees no GPU")]
    None,
    /// The device is too old.
    #[error("{name} has compute capability {}.{}, and kernels need 8.0", capability.0, capability.1)]
    Old {
        /// Its name.
        name: String,
        /// Its compute capability.
        capability: (u32, u32),
    },
    /// The driver fails.
    #[error(transparent)]
    Driver(DriverError),
}

impl From<DriverError> for NoFirstGpu {
    fn from(error: DriverError) -> NoFirstGpu {
        match error {
            DriverError::NoDriver { library } => NoFirstGpu::NoDriver { library },
            other => NoFirstGpu::Driver(other),
        }
    }
}

/// The name of `cuda:0`.
///
/// ```
/// use tilewright::engine::{Device, first_gpu};
/// let device = first_gpu().map_or_else(|_| Device::cpu(), |_| Device::Cuda { ordinal: 0 });
/// assert_eq!(device.count(), 1);
/// ```
///
/// # Errors
/// Why no model runs there.
pub fn first_gpu() -> Result<String, NoFirstGpu> {
    if cuda::count()? == 0 {
        return Err(NoFirstGpu::None);
    }
    let device = cuda::open(0)?;
    let properties = device.properties();
    let name = properties.name.clone();
    match properties.arch() {
        Some(_) => Ok(name),
        None => Err(NoFirstGpu::Old { name, capability: properties.capability }),
    }
}

impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Device, DeviceError> {
        let error = || DeviceError { found: text.to_owned() };
        match text.split_once(':') {
            None if text == "cpu" => Ok(Device::cpu()),
            None if text == "sim" => Ok(Device::Sim { seed: 0 }),
            Some(("cpu", count)) => {
                let workers = count.parse().map_err(|_| error())?;
                if (1..=MAX_WORKERS).contains(&workers) { Ok(Device::Cpu { workers }) } else { Err(error()) }
            }
            Some(("cuda", range)) if range.contains('-') => {
                let ends =
                    range.split_once('-').and_then(|(a, b)| Some((a.parse::<u32>().ok()?, b.parse::<u32>().ok()?)));
                let several = ends.filter(|(first, last)| last > first && last - first < MAX_DEVICES);
                several.map(|(first, last)| Device::Peers { first, count: last - first + 1 }).ok_or_else(error)
            }
            Some(("sim", text)) if text.contains('x') => {
                let parts = text.split_once('x').and_then(|(a, b)| Some((a.parse().ok()?, b.parse::<u32>().ok()?)));
                let several = parts.filter(|(_, count)| (2..=MAX_DEVICES).contains(count));
                several.map(|(seed, count)| Device::SimPeers { seed, count }).ok_or_else(error)
            }
            Some(("cuda", ordinal)) => Ok(Device::Cuda { ordinal: ordinal.parse().map_err(|_| error())? }),
            Some(("sim", seed)) => Ok(Device::Sim { seed: seed.parse().map_err(|_| error())? }),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu { workers } => write!(f, "cpu:{workers}"),
            Device::Cuda { ordinal } => write!(f, "cuda:{ordinal}"),
            Device::Sim { seed } => write!(f, "sim:{seed}"),
            Device::Peers { first, count } => write!(f, "cuda:{first}-{}", first + count - 1),
            Device::SimPeers { seed, count } => write!(f, "sim:{seed}x{count}"),
        }
    }
}
