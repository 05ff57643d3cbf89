//! The options of a simulated device: sizes, seeds, faults and figures.

use crate::device::Properties;
use crate::ir::{Arch, Limit};
use crate::sim::{Checks, HostOrder, Interrupt, Loss, PATIENCE};
use crate::target::Target;

/// The name of the simulated product.
pub(super) const DEVICE: &str = "simulated H100";

/// The options of a simulated device.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The seed of the first launch.
    pub seed: u64,
    /// Multiprocessors.
    pub sms: u32,
    /// The architecture: the device has the figures of the first preset of [`Target`] that is of
    /// it.
    pub arch: Arch,
    /// Device memory, bytes. Pages exist once they are touched.
    pub memory_bytes: u64,
    /// Whether the simulator checks for faults.
    pub checks: Checks,
    /// Mapped words that the host uses while kernels run.
    pub host: Option<HostOrder>,
    /// A device that is lost in mid-flight, and in which launch (from 0).
    pub loss: Option<(u64, Loss)>,
    /// Steps without any change after which a launch is a standstill, as
    /// [`Launch::patience`](crate::sim::Launch::patience).
    pub patience: u64,
    /// The handle that ends a launch early: the call that submitted it fails with
    /// [`SimError::Interrupted`](crate::sim::SimError::Interrupted).
    pub interrupt: Interrupt,
}

impl Default for Options {
    /// 132 multiprocessors of an H100, 4 GiB, seed 0, all checks; a host that waits for the end of
    /// launches.
    fn default() -> Options {
        Options {
            seed: 0,
            sms: 132,
            arch: Arch::Sm90a,
            memory_bytes: 4 << 30,
            checks: Checks::On,
            host: None,
            loss: None,
            patience: PATIENCE,
            interrupt: Interrupt::default(),
        }
    }
}

/// The figures of the simulated device: those of the architecture's first preset, an H100's at
/// first, but for what the options say.
pub(super) fn properties(options: &Options) -> Properties {
    let arch = options.arch;
    let preset = Target::names().filter_map(Target::named).find(|target| target.arch == arch.name());
    let preset = preset.unwrap_or_else(|| Target::host(1));
    let shared = *Limit::SharedPerBlock.range(arch).end();
    Properties {
        name: format!("simulated {}", preset.name.to_uppercase()),
        capability: (arch.capability() / 10, arch.capability() % 10),
        driver: 0,
        sms: options.sms,
        shared_bytes_per_block: shared,
        shared_bytes_per_sm: shared + (1 << 10),
        registers_per_sm: 65_536,
        threads_per_sm: preset.threads_per_sm as u32,
        threads_per_block: 1024,
        l2_bytes: preset.l2_bytes,
        memory_bytes: options.memory_bytes,
        clock_khz: 1_980_000,
        cooperative: true,
    }
}
