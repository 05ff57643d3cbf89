//! Sums over devices by NCCL: work that all devices of a collective do together, in graphs that are
//! recorded together.

use half::bf16;

use super::backend::{Backend, Handle, SumFloat, Work};
use super::{Buffer, Device, DeviceError, Graph};

/// Devices whose arrays NCCL adds up. The library is looked for when a collective is opened;
/// nothing else needs it. NVLink's multicast is never used.
///
/// ```
/// use tilewright_codegen::device::{Collective, DeviceError, sim};
/// // The simulator has no NCCL; a GPU has where the library is.
/// let devices = sim::peers(&sim::Options::default(), 2);
/// assert!(matches!(Collective::open(&devices), Err(DeviceError::NoCollective { .. })));
/// ```
#[derive(Clone, Debug)]
pub struct Collective {
    devices: Vec<Device>,
    handle: Handle,
}

/// An element type of sums, which are rounded to the type after each addition.
pub trait Summed: bytemuck::Pod {
    /// The type.
    const FLOAT: SumFloat;
}

impl Summed for f32 {
    const FLOAT: SumFloat = SumFloat::F32;
}

impl Summed for bf16 {
    const FLOAT: SumFloat = SumFloat::Bf16;
}

impl Collective {
    /// A collective of these devices, in this order.
    ///
    /// # Errors
    /// [`DeviceError::NoCollective`] where the devices have none, [`DeviceError::NoNccl`] where the
    /// library is not there, [`DeviceError::Multicast`] where it might use NVLink's multicast,
    /// [`DeviceError::Nccl`] where it fails.
    pub fn open(devices: &[Device]) -> Result<Collective, DeviceError> {
        let first = devices.first().ok_or(DeviceError::NoCollective { device: "no device".into() })?;
        let handle = first.backend().collective(&backends(devices))?;
        Ok(Collective { devices: devices.to_vec(), handle })
    }

    /// Joins a collective with a device of this process. Each of `size` processes has one device,
    /// `rank` is this one's, and `id` is a [link's id](super::DeviceLink::id) that all have. Waits
    /// for the others without a timeout: to bound the wait, call it in a thread of its own.
    ///
    /// # Errors
    /// As [`Collective::open`].
    ///
    /// ```
    /// use tilewright_codegen::device::{Collective, DeviceError, sim};
    /// let joined = Collective::join(&sim::open(7), &[0; 128], 0, 2);
    /// assert!(matches!(joined, Err(DeviceError::NoCollective { .. })));
    /// ```
    pub fn join(device: &Device, id: &[u8], rank: usize, size: usize) -> Result<Collective, DeviceError> {
        let handle = device.backend().join_collective(id, rank, size)?;
        Ok(Collective { devices: vec![device.clone()], handle })
    }

    /// Creates a device's part of a sum, for [`Collective::graphs`]. The sum adds the `from`
    /// buffers of all devices and is stored in the `to` buffers of all, which may be the same. All
    /// devices get the same bits.
    ///
    /// # Errors
    /// [`DeviceError::Length`].
    pub fn sum<T: Summed>(&self, from: &Buffer<T>, to: &Buffer<T>) -> Result<Work, DeviceError> {
        if from.len() != to.len() {
            return Err(DeviceError::Length { from: from.len(), to: to.len() });
        }
        Ok(Work::Sum { from: from.span(), to: to.span(), float: T::FLOAT, with: self.handle.clone() })
    }

    /// The work of every device of this process as a graph, with sums among it. All are launched,
    /// or none: a device waits in a sum for the others. Other processes record as many sums of as
    /// many elements; NCCL may wait for them meanwhile.
    ///
    /// # Errors
    /// [`DeviceError::Apart`] where the devices have not as many sums as each other, of as many
    /// elements; as [`Device::graph`].
    pub fn graphs(&self, work: &[Vec<Work>]) -> Result<Vec<Graph>, DeviceError> {
        let sums = |work: &Vec<Work>| -> Vec<(u64, SumFloat)> { work.iter().filter_map(Work::summed).collect() };
        let counts: Vec<_> = work.iter().map(sums).collect();
        if counts.len() != self.devices.len() || counts.windows(2).any(|two| two[0] != two[1]) {
            let found = counts.iter().map(Vec::len).collect();
            return Err(DeviceError::Apart { devices: self.devices.len(), found });
        }
        let first = self.devices.first().ok_or(DeviceError::NoCollective { device: "no device".into() })?;
        let handles = first.backend().graphs(&self.handle, &backends(&self.devices), work)?;
        let graphs = handles.into_iter().zip(&self.devices).zip(work);
        Ok(graphs.map(|((handle, device), work)| Graph::of(device, handle, work)).collect())
    }

    /// Checks for errors that NCCL found since, such as a process that is gone.
    ///
    /// # Errors
    /// The error; [`DeviceError::GivenUp`] after an abort.
    pub fn check_state(&self) -> Result<(), DeviceError> {
        self.devices.first().map_or(Ok(()), |first| first.backend().check_collective(&self.handle))
    }

    /// Aborts sums in flight, whose results are then undefined, so that a device that waits for
    /// another ends. The collective and its graphs cannot be used afterwards; they are dropped
    /// before another is opened.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`].
    pub fn abort(&self) -> Result<(), DeviceError> {
        match self.devices.first() {
            Some(first) => first.backend().abort_collective(&self.handle),
            None => Ok(()),
        }
    }
}

impl Work {
    /// Bytes and type of what a sum adds up, where this is one.
    fn summed(&self) -> Option<(u64, SumFloat)> {
        match self {
            Work::Sum { from, float, .. } => Some((from.bytes, *float)),
            Work::Launch { .. } | Work::Fill { .. } | Work::Poison { .. } | Work::Copy { .. } => None,
        }
    }
}

fn backends(devices: &[Device]) -> Vec<&dyn Backend> {
    devices.iter().map(Device::backend).collect()
}
