//! Where a model runs.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use thiserror::Error;

/// A place where programs run.
///
/// ```
/// use tilewright::engine::Device;
/// assert!(matches!("cpu".parse(), Ok(Device::Cpu { .. })));
/// assert_eq!("cpu:3".parse(), Ok(Device::Cpu { workers: 3 }));
/// assert_eq!("cuda:0".parse(), Ok(Device::Cuda { ordinal: 0 }));
/// assert_eq!("sim:7".parse(), Ok(Device::Sim { seed: 7 }));
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
    /// The megakernel on a simulated GPU of a few multiprocessors, all checks on: for small models and patient people.
    Sim {
        /// The seed of the first launch.
        seed: u64,
    },
}

/// A device that this build does not know.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{found}` is not a device of this build; it runs on `cpu` (all cores), `cpu:N` (N from 1 to {MAX_WORKERS}), `cuda:N` \
     (GPU number N) or `sim:SEED` (a simulated GPU)"
)]
pub struct DeviceError {
    found: String,
}

/// Most worker threads that can be asked for.
const MAX_WORKERS: usize = 1024;

impl Device {
    /// The reference machine on all cores.
    pub fn cpu() -> Device {
        Device::Cpu { workers: std::thread::available_parallelism().map_or(1, NonZeroUsize::get) }
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
        }
    }
}
