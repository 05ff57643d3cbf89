//! Host memory that the device reaches: pinned for copies, mapped for words that both sides use
//! while a kernel runs.

use super::backend::{AtomicWords, Handle, InFlight, MappedWords, PinnedBytes, WordWidth};
use super::{Device, DeviceError};
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Page-locked host memory, zeroed when new: copies between it and the device run while the host
/// goes on.
///
/// No kernel argument can be made of it, so no kernel accesses it while the host has a reference. A
/// queued copy takes the memory and gives it back when it is done ([`Pending::wait`]), so the host
/// cannot touch it in between.
pub struct Pinned<T> {
    device: Device,
    bytes: Box<dyn PinnedBytes>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> Pinned<T> {
    pub(super) fn new(device: &Device, len: usize) -> Result<Pinned<T>, DeviceError> {
        const { assert!(size_of::<T>() > 0, "a buffer's elements have a size") };
        let bytes = len.saturating_mul(size_of::<T>()).max(1);
        Ok(Pinned { device: device.clone(), bytes: device.backend().alloc_pinned(bytes)?, len, element: PhantomData })
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn into_bytes(self) -> (Box<dyn PinnedBytes>, usize) {
        (self.bytes, self.len)
    }
}

impl<T: Pod> Deref for Pinned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.bytes.bytes()[..self.len * size_of::<T>()])
    }
}

impl<T: Pod> DerefMut for Pinned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes = self.len * size_of::<T>();
        bytemuck::cast_slice_mut(&mut self.bytes.bytes_mut()[..bytes])
    }
}

impl<T> std::fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pinned<{}>({})", std::any::type_name::<T>(), self.len)
    }
}

/// A queued copy and the pinned memory that it uses. Dropping it waits for the copy.
#[must_use = "the memory comes back from `wait`"]
pub struct Pending<T> {
    device: Device,
    copy: Box<dyn InFlight>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> Pending<T> {
    pub(super) fn new(device: &Device, copy: Box<dyn InFlight>, len: usize) -> Pending<T> {
        Pending { device: device.clone(), copy, len, element: PhantomData }
    }

    /// Whether the copy is done.
    ///
    /// # Errors
    /// When the device failed in it or in earlier work.
    pub fn done(&self) -> Result<bool, DeviceError> {
        self.copy.done()
    }

    /// Waits for the copy and returns the memory.
    ///
    /// # Errors
    /// When the device failed in it or in earlier work.
    pub fn wait(self) -> Result<Pinned<T>, DeviceError> {
        let bytes = self.copy.wait()?;
        Ok(Pinned { device: self.device, bytes, len: self.len, element: PhantomData })
    }
}

impl<T> std::fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pending<{}>({})", std::any::type_name::<T>(), self.len)
    }
}

/// A word of mapped memory: `u32` or `u64`.
pub trait Word: Pod + sealed::Sealed {
    /// Its width.
    const WIDTH: WordWidth;
    /// Its atomic form.
    type Atomic: Send + Sync + 'static;

    /// The words, if they have this width.
    fn of(words: AtomicWords<'_>) -> &[Self::Atomic];
    /// Reads, so that what the writer wrote before is seen.
    fn load(word: &Self::Atomic) -> Self;
    /// Writes, so that a reader of it sees what was written before.
    fn store(word: &Self::Atomic, value: Self);
}

macro_rules! word {
    ($Int:ty, $Atomic:ty, $Width:ident) => {
        impl sealed::Sealed for $Int {}
        impl Word for $Int {
            const WIDTH: WordWidth = WordWidth::$Width;
            type Atomic = $Atomic;

            fn of(words: AtomicWords<'_>) -> &[$Atomic] {
                match words {
                    AtomicWords::$Width(words) => words,
                    _ => &[],
                }
            }

            fn load(word: &$Atomic) -> $Int {
                word.load(Ordering::Acquire)
            }

            fn store(word: &$Atomic, value: $Int) {
                word.store(value, Ordering::Release);
            }
        }
    };
}

word!(u32, AtomicU32, Bits32);
word!(u64, AtomicU64, Bits64);

mod sealed {
    pub trait Sealed {}
}

/// Words of host memory that kernels read and write in place: abort flags, progress, tokens as they
/// come.
///
/// Zeroed when new. The kernel's side uses `ld.acquire.sys` and `st.release.sys`. Arguments of
/// queued launches keep the words alive; freeing them, with the last clone, waits for the work of
/// every open device.
pub struct Mapped<W> {
    device: Device,
    memory: Arc<dyn MappedWords>,
    len: usize,
    word: PhantomData<W>,
}

impl<W: Word> Mapped<W> {
    pub(super) fn new(device: &Device, len: usize) -> Result<Mapped<W>, DeviceError> {
        let memory = device.backend().alloc_mapped(len.max(1), W::WIDTH)?;
        Ok(Mapped { device: device.clone(), memory, len, word: PhantomData })
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first word on the device.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// The word of that number now, by an acquiring load.
    ///
    /// # Errors
    /// [`DeviceError::Range`] outside the memory.
    pub fn load(&self, index: usize) -> Result<W, DeviceError> {
        self.word(index).map(W::load)
    }

    /// Sets the word of that number, by a releasing store.
    ///
    /// # Errors
    /// [`DeviceError::Range`] outside the memory.
    pub fn store(&self, index: usize, value: W) -> Result<(), DeviceError> {
        self.word(index).map(|word| W::store(word, value))
    }

    fn word(&self, index: usize) -> Result<&W::Atomic, DeviceError> {
        let words = &W::of(self.memory.words());
        words.get(index).filter(|_| index < self.len).ok_or(DeviceError::Range {
            start: index,
            end: index.saturating_add(1),
            len: self.len,
        })
    }
}

impl<W> Mapped<W> {
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn handle(&self) -> Handle {
        Handle::shared(Arc::clone(&self.memory) as Arc<dyn std::any::Any + Send + Sync>)
    }
}

impl<W> Clone for Mapped<W> {
    fn clone(&self) -> Mapped<W> {
        Mapped { device: self.device.clone(), memory: Arc::clone(&self.memory), len: self.len, word: PhantomData }
    }
}

impl<W> std::fmt::Debug for Mapped<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapped<{}>({})", std::any::type_name::<W>(), self.len)
    }
}

impl Device {
    /// Page-locked host memory for `len` elements, zeroed.
    ///
    /// # Errors
    /// [`DeviceError::HostMemory`]; when the device fails.
    pub fn pinned<T: Pod>(&self, len: usize) -> Result<Pinned<T>, DeviceError> {
        Pinned::new(self, len)
    }

    /// Host memory of `len` words that kernels use in place, zeroed.
    ///
    /// # Errors
    /// [`DeviceError::HostMemory`]; when the device fails.
    pub fn mapped<W: Word>(&self, words: usize) -> Result<Mapped<W>, DeviceError> {
        Mapped::new(self, words)
    }
}
