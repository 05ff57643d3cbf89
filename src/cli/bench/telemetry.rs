//! Driver, clocks, power and energy from NVML; all absent if the library is missing.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::Clock;

/// The counters of one device.
pub struct Telemetry {
    nvml: Option<Nvml>,
    index: u32,
}

/// Joules per millijoule.
const MILLI: f64 = 1e-3;

impl Telemetry {
    /// The counters of a device by name and number. Loads the library; without it, or if its device
    /// of that number has another name (CUDA may number devices otherwise), every figure is absent.
    pub fn of(name: &str, ordinal: Option<u32>) -> Telemetry {
        let index = ordinal.unwrap_or(0);
        let is_same = |nvml: &Nvml| {
            let found = nvml.device_by_index(index).and_then(|device| device.name());
            found.is_ok_and(|found| found == name)
        };
        let nvml = ordinal.and_then(|_| Nvml::init().ok()).filter(is_same);
        Telemetry { nvml, index }
    }

    fn ask<T>(
        &self,
        what: impl FnOnce(&nvml_wrapper::Device<'_>) -> Result<T, nvml_wrapper::error::NvmlError>,
    ) -> Option<T> {
        let device = self.nvml.as_ref()?.device_by_index(self.index).ok()?;
        what(&device).ok()
    }

    /// The driver's version.
    pub fn driver(&self) -> Option<String> {
        self.nvml.as_ref()?.sys_driver_version().ok()
    }

    /// Clocks of the multiprocessors and of the memory, MHz.
    pub fn clocks(&self) -> Option<(f64, f64)> {
        let clock = |which| self.ask(|device| device.clock_info(which)).map(f64::from);
        clock(Clock::SM).zip(clock(Clock::Memory))
    }

    /// The enforced power limit, watts.
    pub fn power_limit(&self) -> Option<f64> {
        self.ask(|device| device.enforced_power_limit()).map(|limit| f64::from(limit) * MILLI)
    }

    /// Joules since the driver was loaded.
    pub fn joules(&self) -> Option<f64> {
        self.ask(|device| device.total_energy_consumption()).map(|energy| energy as f64 * MILLI)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_device_nothing_is_told_and_nothing_fails() {
        let none = Telemetry::of("no device has this name", Some(0));
        assert_eq!((none.driver(), none.clocks(), none.power_limit(), none.joules()), (None, None, None, None));
    }
}
