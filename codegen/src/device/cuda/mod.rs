//! NVIDIA GPUs through the CUDA driver, which is looked for when the program runs.
//!
//! | file | what it holds |
//! |---|---|
//! | `probe` | whether there is a driver and a device |
//! | `context` | the device's context, and how results of calls become errors |
//! | `memory` | device, pinned and mapped memory |
//! | `module` | PTX to code: the driver's compiler, its log, the modules that are loaded |
//! | `launch` | launches: clusters, cooperation, residency |
//! | `stream` | streams, events, graphs, copies in flight |
//! | `nccl` | sums over devices by NCCL, where its library is |
//! | `link` | ways to devices of other processes, by NCCL |
//! | `leave` | the end of a process whose peers are lost |
//! | `foreign` | memory and streams of other code in the process |
//! | `tensor_map` | tensor maps |
//! | `gpu` | the [`Backend`](super::backend::Backend) of it all |
//!
//! # Why this has unsafe code
//! Every call of the driver is unsafe to Rust. Here each is wrapped in a function that is safe to
//! call: handles are made and destroyed in one place, live as long as what uses them, and carry the
//! sizes that calls are checked by. Nothing here trusts a kernel's signature: the compiled code is
//! asked for its parameters. What a kernel does with the addresses it is given is outside of Rust's
//! rules, as for every GPU program; the host's own memory is reachable for it only as pinned
//! memory, which the host does not touch during a copy, and as mapped words, which the host
//! accesses atomically.

mod context;
mod foreign;
mod gpu;
mod launch;
mod leave;
mod link;
mod memory;
mod module;
mod nccl;
mod probe;
mod stream;
mod tensor_map;

use super::{Device, DeviceError};
use gpu::CudaDevice;
use std::sync::Arc;

pub use foreign::{foreign_buffer, foreign_stream};
pub use leave::leave;

/// The device of that number. Opened twice, it is the same device.
///
/// # Errors
/// [`DeviceError::NoDriver`] where no driver is installed, [`DeviceError::OldDriver`],
/// [`DeviceError::NoDevice`].
///
/// ```
/// use tilewright_codegen::device::{DeviceError, cuda};
/// match cuda::open(0) {
///     Ok(device) => println!("{}", device.properties().name),
///     Err(DeviceError::NoDriver { .. } | DeviceError::NoDevice { .. }) => println!("no GPU here"),
///     Err(error) => println!("{error}"),
/// }
/// ```
pub fn open(ordinal: u32) -> Result<Device, DeviceError> {
    Ok(Device::new(Arc::new(CudaDevice::new(context::CudaContext::open(ordinal)?))))
}

/// The devices of these numbers, each of which reaches the memory of all the others by plain loads
/// and stores. NVLink's multicast is not used.
///
/// # Errors
/// As [`open`]; [`DeviceError::NoPeer`].
pub fn peers(ordinals: impl IntoIterator<Item = u32>) -> Result<Vec<Device>, DeviceError> {
    let contexts = ordinals.into_iter().map(context::CudaContext::open).collect::<Result<Vec<_>, _>>()?;
    for one in &contexts {
        for other in contexts.iter().filter(|other| !Arc::ptr_eq(one, other)) {
            one.reach(other)?;
        }
    }
    Ok(contexts.into_iter().map(|context| Device::new(Arc::new(CudaDevice::new(context)))).collect())
}

/// The number of devices that the driver reports.
///
/// # Errors
/// [`DeviceError::NoDriver`] where no driver is installed, [`DeviceError::OldDriver`].
pub fn count() -> Result<u32, DeviceError> {
    probe::count()
}

/// Version of the CUDA driver: 1000 × major + 10 × minor.
///
/// # Errors
/// [`DeviceError::NoDriver`] where no driver is installed, [`DeviceError::OldDriver`].
pub fn driver() -> Result<u32, DeviceError> {
    probe::driver()
}

/// Version of the NCCL library: 10000 × major + 100 × minor + patch. The library is loaded and
/// stays.
///
/// # Errors
/// [`DeviceError::NoNccl`] where there is none that can be used, [`DeviceError::Multicast`].
pub fn nccl_version() -> Result<u32, DeviceError> {
    nccl::version()
}
