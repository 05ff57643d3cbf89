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
/// assert!("tpu".parse::<Device>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The reference machine, on this many threads.
    Cpu {
        /// Worker threads, at least 1.
        workers: usize,
    },
}

/// A device that this build does not know.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{found}` is not a device of this build; it runs on `cpu` (all cores) or `cpu:N` (N from 1 to {MAX_WORKERS})")]
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
            Some(("cpu", count)) => {
                let workers = count.parse().map_err(|_| error())?;
                if (1..=MAX_WORKERS).contains(&workers) { Ok(Device::Cpu { workers }) } else { Err(error()) }
            }
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu { workers } => write!(f, "cpu:{workers}"),
        }
    }
}
