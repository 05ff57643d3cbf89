//! The KV pools of a model on a device.

use tilewright_codegen::device::{Buffer, Device, DeviceError, Stream as Queue};
use tilewright_kernels::kv::PagedPool;
use tilewright_layout::DType;

use crate::program::{self, BufferId, BufferKind, Program};
use crate::vm::{KvError, LaunchError, LoadError, Unsupported};

/// The KV pools of a model on a device. Clones are the same pools.
#[derive(Clone, Debug)]
pub struct DeviceKv {
    pools: Vec<PoolPlace>,
    /// The memory of each device.
    pub(in crate::vm) memory: Vec<Buffer<u8>>,
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
    /// Pools in memory that is large enough for them, each at the offset of its buffer.
    pub(in crate::vm) fn new(program: &Program, offset: impl Fn(BufferId) -> u64, memory: Vec<Buffer<u8>>) -> DeviceKv {
        DeviceKv { pools: pools(program, offset), memory }
    }

    /// Pools for a program, of zeros, where no machine has made any: those of its devices from
    /// number `first` on, which these are.
    ///
    /// # Errors
    /// When a device fails.
    pub(in crate::vm) fn allocate(
        program: &Program,
        first: usize,
        on: &[(&Device, &Queue)],
    ) -> Result<DeviceKv, DeviceError> {
        let mut ends = vec![0; on.len()];
        let place = |b: &program::Buffer| {
            let device = b.device.map_or(0, |device| device.index()).checked_sub(first)?;
            let end = ends.get_mut(device)?;
            let offset = std::mem::replace(end, (*end + bytes(b)).next_multiple_of(ALIGN));
            Some(PoolPlace { name: b.name.clone(), device, offset, dtype: b.dtype, shape: b.shape.clone() })
        };
        let pools = program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool);
        let pools = pools.filter_map(place).collect();
        let zeros = |(&(device, queue), &end): (&(&Device, &Queue), &u64)| {
            let memory = device.buffer::<u8>(end.max(16) as usize)?;
            queue.fill(&memory, 0)?;
            Ok(memory)
        };
        let memory = on.iter().zip(&ends).map(zeros).collect::<Result<Vec<_>, DeviceError>>()?;
        Ok(DeviceKv { pools, memory })
    }

    /// Bytes of a program's pools, one after the other as the places of its buffers are.
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
    pub(in crate::vm) fn pool<T: bytemuck::Pod>(
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
    pub(in crate::vm) fn check(&self, program: &Program, offset: impl Fn(BufferId) -> u64) -> Result<(), KvError> {
        let wanted = pools(program, offset);
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

fn pools(program: &Program, offset: impl Fn(BufferId) -> u64) -> Vec<PoolPlace> {
    let pools = program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool);
    let place = |b: &program::Buffer| PoolPlace {
        name: b.name.clone(),
        device: b.device.map_or(0, |device| device.index()),
        offset: offset(b.id),
        dtype: b.dtype,
        shape: b.shape.clone(),
    };
    pools.map(place).collect()
}

/// Checks that the places of a pool's elements have 32 bits, as kernels compute them.
///
/// # Errors
/// If there are more elements.
pub fn pool_fits(extents: [u32; 4]) -> Result<(), Unsupported> {
    let found = extents.iter().fold(1usize, |product, &extent| product.saturating_mul(extent as usize));
    let error = Unsupported::Number { what: "elements of a KV pool", found, expected: "fewer than 2^32" };
    PagedPool::elements(extents).map(drop).ok_or(error)
}

/// Alignment of buffers: a line of L2.
pub(in crate::vm) const ALIGN: u64 = 128;

/// Bytes of a buffer.
pub(in crate::vm) fn bytes(buffer: &program::Buffer) -> u64 {
    (buffer.elements().unwrap_or(0) * buffer.dtype.bytes()) as u64
}
