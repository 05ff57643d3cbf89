//! A loaded kernel: what is checked before it is loaded and before each launch.

use super::args::pack;
use super::backend::{Facts, Loaded, Work};
use super::source::param_limit;
use super::{Arg, Device, DeviceError, KernelSource, Properties, Signature, Stream};
use std::sync::Arc;

/// A kernel, ready to launch on its device. Clones share it.
#[derive(Clone, Debug)]
pub struct Kernel {
    device: Device,
    signature: Arc<Signature>,
    loaded: Loaded,
}

impl Kernel {
    pub(super) fn load(device: &Device, source: &dyn KernelSource) -> Result<Kernel, DeviceError> {
        let signature = source.signature();
        check_signature(device.properties(), &signature)?;
        let loaded = device.backend().load(source, &signature)?;
        Ok(Kernel { device: device.clone(), signature: Arc::new(signature), loaded })
    }

    /// The signature of the kernel.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The results of compilation.
    pub fn facts(&self) -> &Facts {
        &self.loaded.facts
    }

    /// Blocks that are resident on the device at once: the largest grid of a cooperative launch.
    pub fn resident_blocks(&self) -> u64 {
        self.loaded.facts.resident_blocks
    }

    /// Queues a launch. Whether it is cooperative, its block and its cluster are the kernel's own.
    ///
    /// # Errors
    /// [`DeviceError::Grid`], [`DeviceError::Occupancy`], [`DeviceError::ArgCount`],
    /// [`DeviceError::ArgKind`], [`DeviceError::Foreign`]; when the device fails, also in earlier
    /// work.
    pub fn launch(&self, stream: &Stream, grid: impl Into<Grid>, args: &[Arg<'_>]) -> Result<(), DeviceError> {
        stream.submit(&self.work(grid, args)?)
    }

    /// A launch as work, for [`Stream::submit`] again and again, or for [`Device::graph`].
    ///
    /// # Errors
    /// As [`Kernel::launch`], but for those of the device.
    pub fn work(&self, grid: impl Into<Grid>, args: &[Arg<'_>]) -> Result<Work, DeviceError> {
        let Grid(grid) = grid.into();
        check_grid(&self.signature, grid)?;
        if self.signature.launch.cooperative {
            let needed = blocks(grid);
            let resident = self.resident_blocks();
            if needed > resident {
                return Err(DeviceError::Occupancy {
                    kernel: self.signature.name.clone(),
                    needed,
                    resident,
                    per_sm: self.loaded.facts.blocks_per_sm,
                    sms: self.device.properties().sms,
                });
            }
        }
        let packed = pack(&self.device, &self.signature, args)?;
        Ok(Work::Launch { kernel: self.loaded.kernel.clone(), grid, params: packed.params, keep: packed.keep })
    }
}

/// Blocks of a launch by axis: a number, a pair or a triple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid(pub [u32; 3]);

impl From<u32> for Grid {
    fn from(x: u32) -> Grid {
        Grid([x, 1, 1])
    }
}

impl From<[u32; 2]> for Grid {
    fn from([x, y]: [u32; 2]) -> Grid {
        Grid([x, y, 1])
    }
}

impl From<[u32; 3]> for Grid {
    fn from(grid: [u32; 3]) -> Grid {
        Grid(grid)
    }
}

fn blocks(grid: [u32; 3]) -> u64 {
    // Two axes are below 2^16 where this is reached: no overflow.
    grid.into_iter().map(u64::from).product()
}

/// Checks a launch as far as possible before the code is compiled.
fn check_signature(device: &Properties, signature: &Signature) -> Result<(), DeviceError> {
    let kernel = || signature.name.clone();
    if !device.runs(signature.arch) {
        let (major, minor) = device.capability;
        let arch = signature.arch;
        return Err(DeviceError::Arch {
            kernel: kernel(),
            arch,
            device: device.name.clone(),
            major,
            minor,
            runs: device.arch(),
        });
    }
    if signature.launch.cooperative && !device.cooperative {
        return Err(DeviceError::NotCooperative { kernel: kernel(), device: device.name.clone() });
    }
    let needs: [(&'static str, u64, u64); 3] = [
        (
            "threads per block",
            signature.launch.threads.into_iter().map(u64::from).fold(1, u64::saturating_mul),
            device.threads_per_block.into(),
        ),
        ("bytes of shared memory per block", signature.dynamic_shared.into(), device.shared_bytes_per_block.into()),
        ("bytes of parameters", signature.param_spans().1 as u64, param_limit(signature.arch).into()),
    ];
    match needs.into_iter().find(|(_, needed, limit)| needed > limit) {
        Some((what, needed, limit)) => {
            Err(DeviceError::LaunchTooLarge { kernel: kernel(), what, needed, limit, device: device.name.clone() })
        }
        None => Ok(()),
    }
}

/// The largest grid by axis (CUDA C++ Programming Guide, "Compute Capabilities").
const GRID_LIMIT: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

fn check_grid(signature: &Signature, grid: [u32; 3]) -> Result<(), DeviceError> {
    let fail = |rule| Err(DeviceError::Grid { kernel: signature.name.clone(), grid, rule });
    for (axis, ((blocks, limit), cluster)) in grid.into_iter().zip(GRID_LIMIT).zip(signature.launch.cluster).enumerate()
    {
        let axis = ["x", "y", "z"][axis];
        if blocks == 0 {
            return fail(format!("axis {axis} is empty"));
        }
        if blocks > limit {
            return fail(format!("axis {axis} has {limit} blocks at most"));
        }
        if !blocks.is_multiple_of(cluster.max(1)) {
            return fail(format!("axis {axis} is not a multiple of the cluster's {cluster}"));
        }
    }
    Ok(())
}

impl Device {
    /// Makes a kernel ready to launch.
    ///
    /// # Errors
    /// [`DeviceError::Arch`], [`DeviceError::Jit`], [`DeviceError::Layout`],
    /// [`DeviceError::LaunchTooLarge`], [`DeviceError::NotCooperative`]; when the device fails.
    pub fn load(&self, source: &dyn KernelSource) -> Result<Kernel, DeviceError> {
        Kernel::load(self, source)
    }
}
