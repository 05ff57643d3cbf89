//! Memory: the host's buffers, the blocks' shared memory, and the shadow of both.

mod access;
mod bits;
mod host;
mod raw;
mod shadow;

pub use access::Why;
pub(crate) use access::{AccessCompletion, Judge, OP, OpState, PendingAccess, Site, Stamp};
pub(crate) use bits::Bits;
pub use host::{Memory, MemoryElement, MemoryError};
pub(crate) use shadow::{Conflict, Shadow};

/// Bytes with their shadow.
pub(crate) struct Region {
    pub data: Vec<u8>,
    pub written: Bits,
    pub shadow: Shadow,
    /// Whether it must not be written.
    pub read_only: bool,
}

impl Region {
    /// A region that was never written.
    pub(crate) fn fresh(bytes: usize, cell: u32) -> Region {
        Region {
            data: vec![0; bytes],
            written: Bits::new(bytes, false),
            shadow: Shadow::new(bytes, cell),
            read_only: false,
        }
    }

    /// The value of up to eight bytes.
    pub(crate) fn load(&self, offset: usize, bytes: usize) -> u64 {
        let data = &self.data;
        match bytes {
            1 => u64::from(data[offset]),
            2 => u64::from(u16::from_le_bytes([data[offset], data[offset + 1]])),
            4 => {
                let mut word = [0; 4];
                word.copy_from_slice(&data[offset..offset + 4]);
                u64::from(u32::from_le_bytes(word))
            }
            _ => {
                let mut word = [0; 8];
                word[..bytes].copy_from_slice(&data[offset..offset + bytes]);
                u64::from_le_bytes(word)
            }
        }
    }

    /// Writes the low bytes of a value; says whether memory changed.
    pub(crate) fn store(&mut self, offset: usize, bytes: usize, value: u64) -> bool {
        fn put<const N: usize>(data: &mut [u8], new: [u8; N]) -> bool {
            let old = &mut data.as_chunks_mut::<N>().0[0];
            core::mem::replace(old, new) != new
        }
        let data = &mut self.data[offset..offset + bytes];
        match bytes {
            1 => put(data, [value as u8]),
            2 => put(data, (value as u16).to_le_bytes()),
            4 => put(data, (value as u32).to_le_bytes()),
            _ => put(data, value.to_le_bytes()),
        }
    }
}
