//! The properties of a device: its figures, the architecture to record kernels for, and the check
//! against a target.

use super::DeviceError;
use crate::ir::Arch;
use crate::target::Target;

/// The figures of a device, as it reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Name of the product.
    pub name: String,
    /// Compute capability: major and minor number.
    pub capability: (u32, u32),
    /// CUDA version of the driver, 1000 × major + 10 × minor; 0 where there is no driver.
    pub driver: u32,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Shared memory that one block may opt in to, bytes.
    pub shared_bytes_per_block: u32,
    /// Shared memory of a multiprocessor, bytes.
    pub shared_bytes_per_sm: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers_per_sm: u32,
    /// Threads resident on a multiprocessor at most.
    pub threads_per_sm: u32,
    /// Threads of a block at most.
    pub threads_per_block: u32,
    /// L2 cache, bytes.
    pub l2_bytes: u64,
    /// Device memory, bytes.
    pub memory_bytes: u64,
    /// Clock of the multiprocessors at most, kHz.
    pub clock_khz: u32,
    /// Whether all blocks of a grid can be made resident at once.
    pub cooperative: bool,
}

impl Properties {
    /// The architecture to record kernels for: the newest whose code the device runs. `None` for a
    /// device before 8.0.
    ///
    /// Code for an architecture whose name ends in `a` runs on that compute capability alone; other
    /// code runs on later ones too (PTX ISA, `.target`).
    ///
    /// ```
    /// use tilewright_codegen::device::Properties;
    /// use tilewright_codegen::ir::Arch;
    /// let arch = |capability| Properties { capability, ..Properties::default() }.arch();
    /// assert_eq!(arch((9, 0)), Some(Arch::Sm90a));
    /// assert_eq!(arch((8, 6)), Some(Arch::Sm80));
    /// assert_eq!(arch((10, 3)), Some(Arch::Sm89));
    /// assert_eq!(arch((7, 5)), None);
    /// ```
    pub fn arch(&self) -> Option<Arch> {
        Arch::ALL.into_iter().rev().find(|&arch| self.runs(arch))
    }

    /// Whether the device runs code for an architecture.
    pub fn runs(&self, arch: Arch) -> bool {
        let own = self.capability.0 * 10 + self.capability.1;
        if arch.name().ends_with('a') { arch.capability() == own } else { arch.capability() <= own }
    }

    /// The device as a target to place programs for; `None` if kernels are not generated for it.
    /// Figures that a device does not report are those of the preset that its name contains, or 0.
    ///
    /// ```
    /// use tilewright_codegen::device::Properties;
    /// let device = Properties { name: "NVIDIA H100 PCIe".into(), capability: (9, 0), sms: 114, ..Properties::default() };
    /// let target = device.target().unwrap();
    /// assert_eq!((target.name.as_str(), target.arch.as_str(), target.sms), ("h100", "sm_90a", 114));
    /// assert_eq!(device.check(&target), Ok(()));
    /// assert_eq!(Properties::default().target(), None);
    /// ```
    pub fn target(&self) -> Option<Target> {
        let arch = self.arch()?.name().to_owned();
        let product = self.name.to_ascii_lowercase();
        let preset = Target::names().find(|name| product.contains(name)).and_then(Target::named);
        let name = preset.as_ref().map_or_else(|| product.clone(), |preset| preset.name.clone());
        Some(Target {
            name,
            arch,
            sms: self.sms as usize,
            shared_bytes_per_block: self.shared_bytes_per_block as usize,
            registers_per_sm: self.registers_per_sm as usize,
            threads_per_sm: self.threads_per_sm as usize,
            l2_bytes: self.l2_bytes,
            memory_bytes: self.memory_bytes,
            peak_bandwidth: preset.as_ref().map_or(0.0, |preset| preset.peak_bandwidth),
            read_bandwidth: preset.and_then(|preset| preset.read_bandwidth),
        })
    }

    /// Checks that a program placed for a target runs on this device: the same architecture, and no
    /// less of each resource.
    ///
    /// # Errors
    /// [`DeviceError::Target`] with the first property that differs.
    pub fn check(&self, target: &Target) -> Result<(), DeviceError> {
        let fail = |what, found: String, needed: String| {
            Err(DeviceError::Target { device: self.name.clone(), target: target.name.clone(), what, found, needed })
        };
        if !Arch::from_name(&target.arch).is_some_and(|arch| self.runs(arch)) {
            let own = self.arch().map_or("none that kernels are generated for".into(), |arch| arch.to_string());
            return fail("architecture", own, target.arch.clone());
        }
        let figures = [
            ("multiprocessors", u64::from(self.sms), target.sms as u64),
            (
                "shared memory per block in bytes",
                self.shared_bytes_per_block.into(),
                target.shared_bytes_per_block as u64,
            ),
            ("registers per multiprocessor", self.registers_per_sm.into(), target.registers_per_sm as u64),
            ("threads per multiprocessor", self.threads_per_sm.into(), target.threads_per_sm as u64),
        ];
        match figures.into_iter().find(|(_, found, needed)| found < needed) {
            Some((what, found, needed)) => fail(what, found.to_string(), format!("at least {needed}")),
            None => Ok(()),
        }
    }
}

impl Default for Properties {
    /// A device that has nothing: where tests start from.
    fn default() -> Properties {
        Properties {
            name: "nothing".into(),
            capability: (0, 0),
            driver: 0,
            sms: 0,
            shared_bytes_per_block: 0,
            shared_bytes_per_sm: 0,
            registers_per_sm: 0,
            threads_per_sm: 0,
            threads_per_block: 0,
            l2_bytes: 0,
            memory_bytes: 0,
            clock_khz: 0,
            cooperative: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h100() -> Properties {
        Properties {
            name: "NVIDIA H100 80GB HBM3".into(),
            capability: (9, 0),
            sms: 132,
            shared_bytes_per_block: 232_448,
            registers_per_sm: 65_536,
            threads_per_sm: 2048,
            ..Properties::default()
        }
    }

    #[test]
    fn a_device_is_its_own_target_and_no_other() {
        let verdict = |name: &str| match h100().check(&Target::named(name).expect("a preset")) {
            Ok(()) => format!("{name}: runs"),
            Err(error) => format!("{name}: {error}"),
        };
        insta::assert_snapshot!(["h100", "h200", "a100", "l40s", "rtx5090", "host"].map(verdict).join("\n"), @"
        h100: runs
        h200: runs
        a100: runs
        l40s: NVIDIA H100 80GB HBM3 is not the target l40s: multiprocessors: 132, where at least 142 is needed
        rtx5090: NVIDIA H100 80GB HBM3 is not the target rtx5090: architecture: sm_90a, where sm_120 is needed
        host: NVIDIA H100 80GB HBM3 is not the target host: architecture: sm_90a, where host is needed
        ");
    }

    #[test]
    fn the_chosen_architecture_runs_and_nothing_newer_does() {
        for capability in [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)] {
            let device = Properties { capability, ..h100() };
            let arch = device.arch().expect("8.0 and later");
            assert!(device.runs(arch));
            assert!(Arch::ALL.into_iter().all(|newer| newer <= arch || !device.runs(newer)), "{capability:?}");
        }
    }
}
