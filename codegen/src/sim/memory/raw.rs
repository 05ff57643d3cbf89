//! Bytes by address: memory operations of a device's copies and launches, without the typed calls
//! of the host.

use super::host::{Memory, MemoryError};

impl Memory {
    /// Frees the buffer that begins at an address. Accesses to it are out of bounds from now on.
    pub(crate) fn free(&mut self, address: u64) {
        self.buffers.retain(|buffer| buffer.address != address);
    }

    /// Names the buffer that holds an address, for reports.
    pub(crate) fn rename(&mut self, address: u64, name: &str) {
        if let Ok((index, _)) = self.find(address, 1) {
            self.buffers[index].name = name.into();
        }
    }

    /// Overwrites bytes from an address on.
    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        self.change(address, bytes.len(), |to| to.copy_from_slice(bytes))
    }

    /// Sets bytes from an address on to one value.
    pub(crate) fn fill(&mut self, address: u64, bytes: usize, byte: u8) -> Result<(), MemoryError> {
        self.change(address, bytes, |to| to.fill(byte))
    }

    fn change(&mut self, address: u64, bytes: usize, act: impl FnOnce(&mut [u8])) -> Result<(), MemoryError> {
        let (index, start) = self.find(address, bytes)?;
        let region = &mut self.buffers[index].region;
        act(&mut region.data[start..start + bytes]);
        region.written.set(start, bytes);
        Ok(())
    }

    /// Marks bytes as never written.
    pub(crate) fn forget(&mut self, address: u64, bytes: usize) -> Result<(), MemoryError> {
        let (index, start) = self.find(address, bytes)?;
        self.buffers[index].region.written.clear(start, bytes);
        Ok(())
    }

    /// Bytes from an address on.
    pub(crate) fn get(&self, address: u64, bytes: usize) -> Result<&[u8], MemoryError> {
        let (index, start) = self.find(address, bytes)?;
        let buffer = &self.buffers[index];
        match buffer.region.written.first_missing(start, bytes) {
            Some(offset) => Err(MemoryError::Unwritten { name: buffer.name.clone(), offset }),
            None => Ok(&buffer.region.data[start..start + bytes]),
        }
    }

    /// Copies bytes, and whether each was written, from one address to another.
    pub(crate) fn transfer(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), MemoryError> {
        let (index, start) = self.find(from, bytes)?;
        let region = &self.buffers[index].region;
        let data = region.data[start..start + bytes].to_vec();
        let mut missing = Vec::new();
        let mut at = 0;
        while let Some(first) = region.written.first_missing(start + at, bytes - at) {
            missing.push(first - start);
            at = first - start + 1;
        }
        self.put(to, &data)?;
        missing.into_iter().try_for_each(|byte| self.forget(to + byte as u64, 1))
    }
}
