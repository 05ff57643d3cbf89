//! What machines of one model share on a device: streamed weights, and KV pools.
//!
//! A prompt is fed by a program of many rows, tokens are decoded by one of few: two machines, one copy of the weights and
//! one of the pools.

use std::sync::Arc;

use half::bf16;
use tilewright_codegen::device::{Buffer, Device, DeviceError, Stream as Queue};
use tilewright_layout::DType;

use super::load::{self, Bound};
use super::machine::room;
use super::place::{ALIGN, bytes};
use super::{DeviceKernels, DeviceMachine, DeviceOptions, LaunchError, LoadError, Packed, Places, Plan};
use crate::program::{self, BufferKind, Program};
use crate::validate::Placed;
use crate::vm::reference::KvError;
use crate::weights::Weights;

/// A model's weights and the device that they are brought to, once for all its machines.
///
/// What is kept is the image of the streamed weights. Programs that stream the same weights in the same order share one;
/// that depends on the model, the SMs and on [`DeviceOptions::warps`], [`DeviceOptions::stage_bytes`] and
/// [`DeviceOptions::dealing`], not on rows, context or batch. Norms, biases and tables of rotations are small, and each machine has its own.
pub struct DeviceWeights {
    device: Device,
    weights: Arc<dyn Weights + Send + Sync>,
    images: Vec<(Packed, Buffer<bf16>)>,
    kernels: DeviceKernels,
}

impl DeviceWeights {
    /// Weights that come to the device with the first machine.
    pub fn new(device: Device, weights: Arc<dyn Weights + Send + Sync>) -> DeviceWeights {
        DeviceWeights { kernels: DeviceKernels::new(&device), device, weights, images: Vec::new() }
    }

    /// The kernels of its machines: the same until the weights are dropped.
    pub fn kernels(&self) -> &DeviceKernels {
        &self.kernels
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Bytes of streamed weights that are on the device.
    pub fn bytes(&self) -> u64 {
        self.images.iter().map(|(_, image)| image.bytes()).sum()
    }

    /// An image that machines stream in the order of its weights, and what lies where in it. None before there is such a machine.
    pub fn packed(&self) -> Option<(&Packed, &Buffer<bf16>)> {
        self.images.iter().find(|(packed, _)| packed.is_in_order()).map(|(packed, image)| (packed, image))
    }

    /// Sends the weights that machines of a program stream, where they are not on the device: who reads them otherwise need not wait for a
    /// kernel. `progress` is as for [`DeviceWeights::machine`].
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
        if self.images.iter().any(|(known, _)| *known == key) {
            return Ok(());
        }
        let bound = Bound::new(placed, &*self.weights)?;
        room(&plan, &self.device, true, false)?;
        let stream = self.device.stream()?;
        let told = &mut |sent| progress(sent, plan.image_bytes);
        self.images.push((key, load::image(&self.device, &stream, &plan, &bound, told)?));
        Ok(())
    }

    /// Makes a machine. It uses the pools `kv`, or new ones.
    ///
    /// `progress` is told how many bytes of weights are on their way, and of how many; it is not called where they are
    /// on the device already.
    ///
    /// # Errors
    /// As [`DeviceMachine::load`]; [`LoadError::Kv`] where the pools are not those that the program wants.
    pub fn machine(
        &mut self,
        placed: Placed,
        kv: Option<&DeviceKv>,
        options: DeviceOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<DeviceMachine, LoadError> {
        let plan = Plan::new(&placed, options)?;
        let key = Packed::new(&placed, &plan);
        let image = self.images.iter().find(|(known, _)| *known == key).map(|(_, image)| image.clone());
        let new = image.is_none();
        let bound = Bound::new(&placed, &*self.weights)?;
        let machine =
            DeviceMachine::assemble(placed, plan, &bound, &self.kernels, (image, kv), &self.device, progress)?;
        if new {
            self.images.push((key, machine.image().clone()));
        }
        Ok(machine)
    }
}

/// The KV pools of a model on a device. Clones are the same pools.
#[derive(Clone, Debug)]
pub struct DeviceKv {
    pools: Vec<PoolPlace>,
    pub(super) memory: Buffer<u8>,
}

#[derive(Clone, Debug, PartialEq)]
struct PoolPlace {
    name: String,
    offset: u64,
    dtype: DType,
    shape: Vec<usize>,
}

impl DeviceKv {
    /// Pools in memory that is large enough for them.
    pub(super) fn new(program: &Program, places: &Places, memory: Buffer<u8>) -> DeviceKv {
        DeviceKv { pools: pools(program, places), memory }
    }

    /// Pools for a program, of zeros, where no machine has made any.
    ///
    /// # Errors
    /// When the device fails.
    pub(in crate::vm) fn allocate(program: &Program, device: &Device, queue: &Queue) -> Result<DeviceKv, DeviceError> {
        let memory = device.buffer::<u8>(DeviceKv::bytes_of(program).max(16) as usize)?;
        queue.fill(&memory, 0)?;
        let mut end = 0;
        let place = |b: &program::Buffer| {
            let offset = end;
            end = (end + bytes(b)).next_multiple_of(ALIGN);
            PoolPlace { name: b.name.clone(), offset, dtype: b.dtype, shape: b.shape.clone() }
        };
        let pools = program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool).map(place).collect();
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
            let (expected, found) = (buffer.shape.clone(), found.shape.clone());
            return Err(KvError::Shape { name: name(), expected, found }.into());
        }
        let start = found.offset as usize;
        Ok(self.memory.slice(start..start + bytes(buffer) as usize)?)
    }

    /// Bytes of all pools.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// The elements of a pool of that name, `[kv_heads, pages, page_tokens, head_dim]`, with its last two extents.
    pub(super) fn pool<T: bytemuck::Pod>(
        &self,
        name: &str,
        dtype: DType,
    ) -> Result<(Buffer<T>, [usize; 2]), LaunchError> {
        let missing = || KvError::Missing { name: name.to_owned() };
        let pool = self.pools.iter().find(|pool| pool.name == name).ok_or_else(missing)?;
        if pool.dtype != dtype {
            return Err(KvError::DType { name: name.to_owned(), expected: dtype, found: pool.dtype }.into());
        }
        let (start, elements) = (pool.offset as usize, pool.shape.iter().product::<usize>());
        let rows = match *pool.shape {
            [.., page_tokens, dim] => [page_tokens, dim],
            _ => [1, elements],
        };
        Ok((self.memory.slice(start..start + elements * size_of::<T>())?.cast()?, rows))
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
            // Pools of one shape lie at one offset unless another pool differs, which is reported where it is found.
            if found.shape != pool.shape || found.offset != pool.offset {
                let (expected, found) = (pool.shape.clone(), found.shape.clone());
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
        offset: places.offset(b.id),
        dtype: b.dtype,
        shape: b.shape.clone(),
    };
    pools.map(place).collect()
}
