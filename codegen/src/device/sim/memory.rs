//! Memory of the simulated device, and the host's memory that it reaches.

use super::options::DEVICE;
use crate::device::DeviceError;
use crate::device::backend::{AtomicWords, InFlight, MappedWords, PinnedBytes, WordWidth};
use crate::sim::{Left, Memory, MemoryError};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// All device memory.
#[derive(Debug, Default)]
pub(super) struct SimStore {
    pub memory: Memory,
    /// Bytes in use.
    pub used: u64,
    /// Buffers made so far, for their names.
    made: u64,
    /// Mapped words, which the kernel's memory takes over before a launch and gives back after it.
    mapped: Vec<Weak<SimMapped>>,
    /// The device that was lost, and what became of the others.
    pub lost: Option<(u32, Left)>,
}

/// A store, shared by devices.
pub(super) type SharedStore = Arc<Mutex<SimStore>>;

/// The store; a thread that panicked while it held it left whole buffers.
pub(super) fn lock(store: &Mutex<SimStore>) -> MutexGuard<'_, SimStore> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimStore {
    /// A buffer that was never written.
    pub fn alloc(&mut self, bytes: u64, limit: u64) -> Result<u64, DeviceError> {
        let full = || DeviceError::OutOfMemory { asked: bytes, free: limit.saturating_sub(self.used) };
        let len = usize::try_from(bytes).ok().filter(|_| bytes <= limit.saturating_sub(self.used)).ok_or_else(full)?;
        // Memory that the host cannot provide is an error, not an abort.
        Vec::<u8>::new().try_reserve_exact(len).map_err(|_| full())?;
        self.used += bytes;
        self.made += 1;
        let name = format!("buffer {}", self.made);
        Ok(self.memory.alloc(&name, len))
    }

    pub fn free(&mut self, address: u64, bytes: u64) {
        self.memory.free(address);
        self.used = self.used.saturating_sub(bytes);
    }

    /// Copies mapped words from the host to the kernel's memory. The result is for
    /// [`SimStore::after_launch`], and dropped when the store is not locked.
    pub fn before_launch(&mut self) -> Vec<Snapshot> {
        self.mapped.retain(|words| words.strong_count() > 0);
        let snapshots = self.mapped.iter().filter_map(Weak::upgrade);
        let snapshots: Vec<Snapshot> = snapshots.map(|words| Snapshot { bytes: words.bytes(), words }).collect();
        for Snapshot { words, bytes } in &snapshots {
            // The buffer is as long as the words, and lives as long.
            let _ = self.memory.put(words.address, bytes);
        }
        snapshots
    }

    /// Copies mapped words that the kernel changed to the host; other words keep the host's current
    /// values.
    pub fn after_launch(&self, snapshots: &[Snapshot]) {
        for Snapshot { words, bytes } in snapshots {
            if let Ok(after) = self.memory.get(words.address, bytes.len()) {
                words.take_over(bytes, after);
            }
        }
    }
}

/// Mapped words as they were when a launch began.
pub(super) struct Snapshot {
    words: Arc<SimMapped>,
    bytes: Vec<u8>,
}

/// The error of a device for one of memory.
pub(super) fn device_error(error: MemoryError) -> DeviceError {
    match error {
        MemoryError::Unwritten { name, offset } => DeviceError::Unwritten { buffer: name, offset: offset as u64 },
        // A span lives in memory that its handle keeps: only another machine's is not found.
        MemoryError::Outside { .. } => DeviceError::Foreign { what: "buffer", device: DEVICE.into() },
    }
}

/// A buffer; freed when dropped.
pub(super) struct Memorised {
    pub store: SharedStore,
    pub address: u64,
    pub bytes: u64,
}

impl Drop for Memorised {
    fn drop(&mut self) {
        lock(&self.store).free(self.address, self.bytes);
    }
}

/// Pinned memory is memory: no copy here is asynchronous.
pub(super) struct SimPinned(Vec<u64>);

impl SimPinned {
    pub fn new(bytes: usize) -> Result<SimPinned, DeviceError> {
        let words = bytes.div_ceil(8);
        let mut memory = Vec::new();
        memory.try_reserve_exact(words).map_err(|_| DeviceError::HostMemory { asked: bytes as u64 })?;
        memory.resize(words, 0);
        Ok(SimPinned(memory))
    }
}

impl PinnedBytes for SimPinned {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// A copy that was done when it was queued.
pub(super) struct CompletedCopy(pub Box<dyn PinnedBytes>);

impl InFlight for CompletedCopy {
    fn done(&self) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait(self: Box<Self>) -> Result<Box<dyn PinnedBytes>, DeviceError> {
        Ok(self.0)
    }
}

/// Words that the host keeps, with a buffer that stands for them while a kernel runs.
#[derive(Debug)]
pub(super) struct SimMapped {
    store: SharedStore,
    address: u64,
    words: Atomics,
}

#[derive(Debug)]
enum Atomics {
    Narrow(Vec<AtomicU32>),
    Wide(Vec<AtomicU64>),
}

impl SimMapped {
    pub fn new(store: &SharedStore, words: usize, width: WordWidth) -> Result<Arc<SimMapped>, DeviceError> {
        let size = if width == WordWidth::Bits32 { 4 } else { 8 };
        let bytes = words.saturating_mul(size);
        let address = {
            let mut store = lock(store);
            let address =
                store.alloc(bytes as u64, u64::MAX).map_err(|_| DeviceError::HostMemory { asked: bytes as u64 })?;
            // Mapped memory is the host's, not the device's.
            store.used -= bytes as u64;
            store.memory.fill(address, bytes, 0).map_err(device_error)?;
            address
        };
        let words = match width {
            WordWidth::Bits32 => Atomics::Narrow((0..words).map(|_| AtomicU32::new(0)).collect()),
            WordWidth::Bits64 => Atomics::Wide((0..words).map(|_| AtomicU64::new(0)).collect()),
        };
        let mapped = Arc::new(SimMapped { store: Arc::clone(store), address, words });
        lock(store).mapped.push(Arc::downgrade(&mapped));
        Ok(mapped)
    }

    fn bytes(&self) -> Vec<u8> {
        match &self.words {
            Atomics::Narrow(words) => words.iter().flat_map(|w| w.load(Ordering::Acquire).to_le_bytes()).collect(),
            Atomics::Wide(words) => words.iter().flat_map(|w| w.load(Ordering::Acquire).to_le_bytes()).collect(),
        }
    }

    fn take_over(&self, before: &[u8], after: &[u8]) {
        let size = if matches!(self.words, Atomics::Narrow(_)) { 4 } else { 8 };
        for (index, (old, new)) in before.chunks(size).zip(after.chunks(size)).enumerate() {
            if old != new {
                let value = new.iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
                match &self.words {
                    Atomics::Narrow(words) => words[index].store(value as u32, Ordering::Release),
                    Atomics::Wide(words) => words[index].store(value, Ordering::Release),
                }
            }
        }
    }
}

impl Drop for SimMapped {
    fn drop(&mut self) {
        lock(&self.store).memory.free(self.address);
    }
}

impl MappedWords for SimMapped {
    fn address(&self) -> u64 {
        self.address
    }

    fn words(&self) -> AtomicWords<'_> {
        match &self.words {
            Atomics::Narrow(words) => AtomicWords::Bits32(words),
            Atomics::Wide(words) => AtomicWords::Bits64(words),
        }
    }
}
