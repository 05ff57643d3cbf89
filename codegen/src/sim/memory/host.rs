//! Device memory as the host sees it: buffers at addresses, with unowned gaps between them.

use super::{Region, Shadow};

/// The first address; small integers are not addresses.
const BASE: u64 = 0x10_0000_0000;
/// Buffers begin at multiples of this, as those of the driver do.
const ALIGN: u64 = 512;

/// A mistake of the host with device memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// An address that no buffer holds, or bytes beyond its end.
    #[error(
        "{bytes} bytes at {address:#x} are not inside one buffer; the nearest buffer below ends {beyond} bytes before the last of them"
    )]
    Outside {
        /// The address.
        address: u64,
        /// The number of bytes.
        bytes: usize,
        /// Bytes past the end of the nearest buffer.
        beyond: u64,
    },
    /// Bytes that were never written.
    #[error("byte {offset} of buffer {name:?} was never written; upload it, or let a kernel write it first")]
    Unwritten {
        /// The buffer's name.
        name: String,
        /// The first such byte.
        offset: usize,
    },
}

pub(crate) struct SimBuffer {
    pub name: String,
    pub address: u64,
    pub region: Region,
}

/// Global memory of the simulated device.
///
/// ```
/// use tilewright_codegen::sim::Memory;
/// let mut memory = Memory::new();
/// let x = memory.upload("x", &[1.0f32, 2.0]);
/// assert_eq!(memory.download::<f32>(x, 2)?, [1.0, 2.0]);
/// let y = memory.alloc("y", 8);
/// assert!(memory.download::<f32>(y, 2).is_err(), "it was never written");
/// # Ok::<(), tilewright_codegen::sim::MemoryError>(())
/// ```
#[derive(Default)]
pub struct Memory {
    pub(crate) buffers: Vec<SimBuffer>,
}

impl core::fmt::Debug for Memory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let buffers = self.buffers.iter().map(|b| (&b.name, b.address, b.region.data.len()));
        f.debug_list().entries(buffers).finish()
    }
}

/// A number that device memory holds: little-endian, of a fixed size.
pub trait MemoryElement: Copy {
    /// Its bytes.
    const BYTES: usize;
    /// Writes its bytes.
    fn put(self, out: &mut [u8]);
    /// The number of these bytes; short input reads as if followed by zeros.
    fn take(bytes: &[u8]) -> Self;
}

macro_rules! elements {
    ($($ty:ty),+) => { $(
        impl MemoryElement for $ty {
            const BYTES: usize = size_of::<$ty>();
            fn put(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
            fn take(bytes: &[u8]) -> Self {
                let mut word = [0; size_of::<$ty>()];
                for (to, from) in word.iter_mut().zip(bytes) {
                    *to = *from;
                }
                <$ty>::from_le_bytes(word)
            }
        }
    )+ };
}
elements!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, half::f16, half::bf16);

fn bytes_of<T: MemoryElement>(values: &[T]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * T::BYTES];
    bytes.chunks_exact_mut(T::BYTES).zip(values).for_each(|(to, value)| value.put(to));
    bytes
}

impl Memory {
    /// A memory without buffers.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Allocates a buffer of `bytes` unwritten bytes; gives its address.
    pub fn alloc(&mut self, name: &str, bytes: usize) -> u64 {
        let end = self.buffers.last().map_or(BASE, |last| last.address + last.region.data.len() as u64);
        let address = (end + ALIGN).next_multiple_of(ALIGN);
        self.buffers.push(SimBuffer { name: name.into(), address, region: Region::fresh(bytes, 4) });
        address
    }

    /// A buffer that holds these numbers; its address.
    pub fn upload<T: MemoryElement>(&mut self, name: &str, values: &[T]) -> u64 {
        let bytes = bytes_of(values);
        let address = self.alloc(name, bytes.len());
        if let Some(buffer) = self.buffers.last_mut() {
            buffer.region.written.set(0, bytes.len());
            buffer.region.data = bytes;
        }
        address
    }

    /// Uploads as [`Memory::upload`] does; a kernel that writes there is at fault. The race
    /// detector ignores this memory, which makes large inputs cheap.
    pub fn upload_read_only<T: MemoryElement>(&mut self, name: &str, values: &[T]) -> u64 {
        let address = self.upload(name, values);
        if let Some(buffer) = self.buffers.last_mut() {
            buffer.region.read_only = true;
        }
        address
    }

    /// A buffer of zeros; its address.
    pub fn zeros(&mut self, name: &str, bytes: usize) -> u64 {
        self.upload(name, &vec![0u8; bytes])
    }

    /// Overwrites numbers from an address on.
    ///
    /// # Errors
    /// [`MemoryError::Outside`] if they do not lie in one buffer.
    pub fn write<T: MemoryElement>(&mut self, address: u64, values: &[T]) -> Result<(), MemoryError> {
        let bytes = bytes_of(values);
        let (index, start) = self.find(address, bytes.len())?;
        let region = &mut self.buffers[index].region;
        region.data[start..start + bytes.len()].copy_from_slice(&bytes);
        region.written.set(start, bytes.len());
        Ok(())
    }

    /// `count` numbers from an address on.
    ///
    /// # Errors
    /// [`MemoryError`] if they do not lie in one buffer, or if one of them was never written.
    pub fn download<T: MemoryElement>(&self, address: u64, count: usize) -> Result<Vec<T>, MemoryError> {
        let bytes = count * T::BYTES;
        let (index, start) = self.find(address, bytes)?;
        let buffer = &self.buffers[index];
        if let Some(offset) = buffer.region.written.first_missing(start, bytes) {
            return Err(MemoryError::Unwritten { name: buffer.name.clone(), offset });
        }
        Ok(buffer.region.data[start..start + bytes].chunks(T::BYTES).map(T::take).collect())
    }

    /// The buffer that holds an address, and the offset in it.
    pub(crate) fn find(&self, address: u64, bytes: usize) -> Result<(usize, usize), MemoryError> {
        let after = self.buffers.partition_point(|buffer| buffer.address <= address);
        let found = after.checked_sub(1).map(|index| (index, &self.buffers[index]));
        let Some((index, buffer)) = found else {
            return Err(MemoryError::Outside { address, bytes, beyond: bytes as u64 });
        };
        let start = address - buffer.address;
        let end = start.saturating_add(bytes as u64);
        let len = buffer.region.data.len() as u64;
        if end > len {
            return Err(MemoryError::Outside { address, bytes, beyond: end - len });
        }
        Ok((index, start as usize))
    }

    /// Forgets all accesses: a launch begins.
    pub(crate) fn begin_launch(&mut self, cell: u32) {
        for buffer in &mut self.buffers {
            buffer.region.shadow = Shadow::new(buffer.region.data.len(), cell);
        }
    }
}
