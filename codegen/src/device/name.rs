//! Devices by name, as a command line takes them.

use super::{Device, DeviceError, cuda, sim};
use std::fmt;
use std::str::FromStr;

/// The name of a device.
///
/// ```
/// use tilewright_codegen::device::Name;
/// assert_eq!("sim".parse(), Ok(Name::Sim { seed: 0 }));
/// assert_eq!("sim:7".parse(), Ok(Name::Sim { seed: 7 }));
/// assert_eq!("cuda:1".parse(), Ok(Name::Cuda { ordinal: 1 }));
/// assert_eq!("tpu".parse::<Name>().unwrap_err().to_string(),
///     "`tpu` is not a device; devices are sim, sim:SEED and cuda:N, such as sim:7 or cuda:0");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// The simulator: `sim`, or `sim:SEED`.
    Sim {
        /// The seed of its first launch.
        seed: u64,
    },
    /// A GPU: `cuda:N`.
    Cuda {
        /// Its number.
        ordinal: u32,
    },
}

impl Name {
    /// Opens the device.
    ///
    /// # Errors
    /// As [`cuda::open`]; the simulator always opens.
    pub fn open(self) -> Result<Device, DeviceError> {
        match self {
            Name::Sim { seed } => Ok(sim::open(seed)),
            Name::Cuda { ordinal } => cuda::open(ordinal),
        }
    }
}

impl FromStr for Name {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Name, DeviceError> {
        let unknown = || DeviceError::Name { found: text.into() };
        match text.split_once(':') {
            None if text == "sim" => Ok(Name::Sim { seed: 0 }),
            Some(("sim", seed)) => Ok(Name::Sim { seed: seed.parse().map_err(|_| unknown())? }),
            Some(("cuda", ordinal)) => Ok(Name::Cuda { ordinal: ordinal.parse().map_err(|_| unknown())? }),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Sim { seed } => write!(f, "sim:{seed}"),
            Name::Cuda { ordinal } => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// The device of that name.
///
/// # Errors
/// [`DeviceError::Name`] for an invalid name; as [`Name::open`].
///
/// ```
/// use tilewright_codegen::device;
/// assert_eq!(device::open("sim:7")?.properties().capability, (9, 0));
/// # Ok::<(), device::DeviceError>(())
/// ```
pub fn open(name: &str) -> Result<Device, DeviceError> {
    name.parse::<Name>()?.open()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_reads_as_it_is_written(seed: u64, ordinal: u32) {
            for name in [Name::Sim { seed }, Name::Cuda { ordinal }] {
                prop_assert_eq!(name.to_string().parse(), Ok(name));
            }
        }

        #[test]
        fn other_texts_are_refused(text in "(sim|cuda|cpu)?:?[a-z-]{0,3}") {
            prop_assume!(text != "sim");
            prop_assert_eq!(text.parse::<Name>(), Err(DeviceError::Name { found: text.clone() }));
        }
    }
}
