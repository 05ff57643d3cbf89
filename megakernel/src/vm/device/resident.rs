//! What machines of one model share on a device: streamed weights, and KV pools.
//!
//! A prompt is fed by a program of many rows, tokens are decoded by one of few: two machines, one
//! copy of the weights and one of the pools.

use std::sync::Arc;

use half::bf16;
use tilewright_codegen::device::{Buffer, Device, DeviceError, Stream as Queue};
use tilewright_layout::DType;

use super::load::{self, BoundWeights};
use super::machine::MachineResources;
use super::part::room;
use super::place::{ALIGN, bytes};
use super::{DeviceKernels, DeviceMachine, DeviceOptions, LaunchError, LoadError, Packed, Places, Plan};
use crate::program::{self, BufferKind, Program};
use crate::validate::Placed;
use crate::vm::reference::KvError;
use crate::weights::Weights;

/// A model's weights and the device that they are brought to, once for all its machines.
///
/// What is kept are the packed weights. Programs that stream the same weights in the same order
/// share one; that depends on the model, the SMs and on [`DeviceOptions::warps`],
/// [`DeviceOptions::stage_bytes`] and [`DeviceOptions::dealing`], not on rows, context or batch.
/// Norms, biases and tables of rotations are small, and each machine has its own.
pub struct DeviceWeights {
    devices: Vec<Device>,
    weights: Arc<dyn Weights + Send + Sync>,
    prepacked: Vec<(Packed, Vec<Buffer<bf16>>)>,
    kernels: Vec<DeviceKernels>,
}

impl DeviceWeights {
    /// Weights that come to the device with the first machine.
    pub fn new(device: Device, weights: Arc<dyn Weights + Send + Sync>) -> DeviceWeights {
        DeviceWeights::on(vec![device], weights)
    }

    /// Makes packed weights for programs of several devices, which reach each other's memory.
    pub fn on(devices: Vec<Device>, weights: Arc<dyn Weights + Send + Sync>) -> DeviceWeights {
        let kernels = devices.iter().map(DeviceKernels::new).collect();
        DeviceWeights { kernels, devices, weights, prepacked: Vec::new() }
    }

    /// The kernels of its machines, of several devices on the first: the same until the weights are
    /// dropped.
    pub fn kernels(&self) -> &DeviceKernels {
        &self.kernels[0]
    }

    /// The device, of several the first.
    pub fn device(&self) -> &Device {
        &self.devices[0]
    }

    /// Bytes of streamed weights that are on the devices.
    pub fn bytes(&self) -> u64 {
        self.prepacked.iter().flat_map(|(_, prepacked)| prepacked).map(Buffer::bytes).sum()
    }

    /// Each device's packed weights that machines stream in the order of its weights, and what lies
    /// where in it. None before there is such a machine.
    pub fn packed(&self) -> Option<(&Packed, &[Buffer<bf16>])> {
        let in_order = self
            .prepacked
            .iter()
            .find(|(packed, prepacked)| packed.is_in_order() && prepacked.len() == self.devices.len());
        in_order.map(|(packed, prepacked)| (packed, &prepacked[..]))
    }

    /// Sends the weights that machines of a program stream, where they are not on the device: who
    /// reads them otherwise need not wait for a kernel. `progress` is as for
    /// [`DeviceWeights::machine`].
    ///
    /// # Errors
    /// As [`DeviceMachine::load`], but for what is wrong with the kernel.
    pub fn send(
        &mut self,
        placed: &Placed,
        options: DeviceOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), LoadError> {
        let plan = Plan::new(placed, options)?;
        let key = Packed::new(placed, &plan);
        if self.prepacked.iter().any(|(known, _)| *known == key) {
            return Ok(());
        }
        let bound = BoundWeights::new(placed, &*self.weights)?;
        let total: u64 = (0..self.devices.len()).map(|number| plan.packed_of(number)).sum();
        let mut prepacked = Vec::new();
        let mut before = 0;
        for (number, device) in self.devices.iter().enumerate() {
            room(&plan, device, number, true, false)?;
            let told = &mut |sent| progress(before + sent, total);
            prepacked.push(load::packed(device, &device.stream()?, &plan, number, &bound, told)?);
            before += plan.packed_of(number);
        }
        self.prepacked.push((key, prepacked));
        Ok(())
    }

    /// Makes a machine. It uses the pools `kv`, or new ones.
    ///
    /// `progress` is told how many bytes of weights are on their way, and of how many; it is not
    /// called where they are on the device already.
    ///
    /// # Errors
    /// As [`DeviceMachine::load`]; [`LoadError::Kv`] where the pools are not those that the program
    /// wants.
    pub fn machine(
        &mut self,
        placed: Placed,
        kv: Option<&DeviceKv>,
        options: DeviceOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<DeviceMachine, LoadError> {
        let plan = Plan::new(&placed, options)?;
        let key = Packed::new(&placed, &plan);
        let prepacked = self.prepacked.iter().find(|(known, _)| *known == key).map(|(_, prepacked)| &prepacked[..]);
        let new = prepacked.is_none();
        let bound = BoundWeights::new(&placed, &*self.weights)?;
        let resources =
            MachineResources { devices: &self.devices, kernels: &self.kernels, bound: &bound, prepacked, kv };
        let machine = DeviceMachine::assemble(placed, plan, resources, progress)?;
        if new {
            self.prepacked.push((key, machine.prepacked()));
        }
        Ok(machine)
    }
}

/// The KV pools of a model on a device. Clones are the same pools.
#[derive(Clone, Debug)]
pub struct DeviceKv {
    pools: Vec<PoolPlace>,
    /// By device.
    pub(super) memory: Vec<Buffer<u8>>,
}

#[derive(Clone, Debug, PartialEq)]
struct PoolPlace {
    name: String,
    device: usize,
    offset: u64,
    dtype: DType,
    shape: Vec<usize>,
}

impl DeviceKv {
    /// Pools in memory that is large enough for them.
    pub(super) fn new(program: &Program, places: &Places, memory: Vec<Buffer<u8>>) -> DeviceKv {
        DeviceKv { pools: pools(program, places), memory }
    }

    /// Pools for a program, of zeros, where no machine has made any, on as many devices as it is
    /// for.
    ///
    /// # Errors
    /// When a device fails.
    pub(in crate::vm) fn allocate(program: &Program, on: &[(&Device, &Queue)]) -> Result<DeviceKv, DeviceError> {
        let mut ends = vec![0; on.len()];
        let place = |b: &program::Buffer| {
            let device = b.device.map_or(0, |device| device.index());
            let offset = ends[device];
            ends[device] = (offset + bytes(b)).next_multiple_of(ALIGN);
            PoolPlace { name: b.name.clone(), device, offset, dtype: b.dtype, shape: b.shape.clone() }
        };
        let pools = program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool).map(place).collect();
        let zeros = |(&(device, queue), &end): (&(&Device, &Queue), &u64)| {
            let memory = device.buffer::<u8>(end.max(16) as usize)?;
            queue.fill(&memory, 0)?;
            Ok(memory)
        };
        let memory = on.iter().zip(&ends).map(zeros).collect::<Result<Vec<_>, DeviceError>>()?;
        Ok(DeviceKv { pools, memory })
    }

    /// Bytes of a program's pools, one after the other as [`Places`] has them.
    pub(in crate::vm) fn bytes_of(program: &Program) -> u64 {
        let pools = program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool);
        pools.map(|buffer| bytes(buffer).next_multiple_of(ALIGN)).sum()
    }

    /// The pool that a program's buffer is.
    pub(in crate::vm) fn pool_of(&self, buffer: &program::Buffer) -> Result<Buffer<u8>, LoadError> {
        let name = || buffer.name.clone();
        let found = self.pools.iter().find(|pool| pool.name == buffer.name);
        let found = found.ok_or_else(|| KvError::Missing { name: name() })?;
        if found.dtype != buffer.dtype {
            return Err(KvError::DType { name: name(), expected: buffer.dtype, found: found.dtype }.into());
        }
        if found.shape != buffer.shape {
            let expected = buffer.shape.clone();
            let found = found.shape.clone();
            return Err(KvError::Shape { name: name(), expected, found }.into());
        }
        let start = found.offset as usize;
        Ok(self.memory[found.device].slice(start..start + bytes(buffer) as usize)?)
    }

    /// Bytes of all pools.
    pub fn bytes(&self) -> u64 {
        self.memory.iter().map(Buffer::bytes).sum()
    }

    /// The device of a pool of that name, its elements `[kv_heads, pages, page_tokens, head_dim]`,
    /// and its last two extents.
    pub(super) fn pool<T: bytemuck::Pod>(
        &self,
        name: &str,
        dtype: DType,
    ) -> Result<(usize, Buffer<T>, [usize; 2]), LaunchError> {
        let missing = || KvError::Missing { name: name.to_owned() };
        let pool = self.pools.iter().find(|pool| pool.name == name).ok_or_else(missing)?;
        if pool.dtype != dtype {
            return Err(KvError::DType { name: name.to_owned(), expected: dtype, found: pool.dtype }.into());
        }
        let start = pool.offset as usize;
        let elements = pool.shape.iter().product::<usize>();
        let rows = match *pool.shape {
            [.., page_tokens, dim] => [page_tokens, dim],
            _ => [1, elements],
        };
        let memory = self.memory[pool.device].slice(start..start + elements * size_of::<T>())?;
        Ok((pool.device, memory.cast()?, rows))
    }

    /// Fails where a program wants other pools.
    pub(super) fn check(&self, program: &Program, places: &Places) -> Result<(), KvError> {
        let wanted = pools(program, places);
        for pool in &wanted {
            let name = || pool.name.clone();
            let found = self.pools.iter().find(|own| own.name == pool.name);
            let found = found.ok_or_else(|| KvError::Missing { name: name() })?;
            if found.dtype != pool.dtype {
                return Err(KvError::DType { name: name(), expected: pool.dtype, found: found.dtype });
            }
            // Pools of one shape lie at one offset unless another pool differs, which is reported
            // where it is found.
            if found.shape != pool.shape || found.offset != pool.offset {
                let expected = pool.shape.clone();
                let found = found.shape.clone();
                return Err(KvError::Shape { name: name(), expected, found });
            }
        }
        Ok(())
    }
}

fn pools(program: &Program, places: &Places) -> Vec<PoolPlace> {
    let pools = program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool);
    let place = |b: &program::Buffer| PoolPlace {
        name: b.name.clone(),
        device: b.device.map_or(0, |device| device.index()),
        offset: places.offset(b.id),
        dtype: b.dtype,
        shape: b.shape.clone(),
    };
    pools.map(place).collect()
}
