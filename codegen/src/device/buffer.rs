//! Typed device memory.

use super::backend::{Allocation, Handle, Span};
use super::{Device, DeviceError};
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::Range;

/// Elements in device memory: shared ownership, freed with the last clone or slice.
///
/// A new buffer is uninitialised. The host reaches it through a [`Stream`](super::Stream), kernels
/// through a pointer argument.
pub struct Buffer<T> {
    device: Device,
    memory: Handle,
    address: u64,
    offset: u64,
    len: usize,
    element: PhantomData<fn(T) -> T>,
}

impl<T: Pod> Buffer<T> {
    pub(super) fn new(device: &Device, len: usize) -> Result<Buffer<T>, DeviceError> {
        const { assert!(size_of::<T>() > 0, "a buffer's elements have a size") };
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64).max(1);
        Ok(Buffer::of(device, device.backend().alloc(bytes)?, len))
    }

    /// The first elements of an allocation, which has as many.
    pub(super) fn of(device: &Device, allocation: Allocation, len: usize) -> Buffer<T> {
        let Allocation { memory, address } = allocation;
        Buffer { device: device.clone(), memory, address, offset: 0, len, element: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.len as u64 * size_of::<T>() as u64
    }

    /// Address of the first element on the device, for tables of pointers that kernels read. The
    /// caller that stores it keeps the buffer.
    pub fn address(&self) -> u64 {
        self.address + self.offset
    }

    /// The elements of a range as a buffer of their own, on the same memory.
    ///
    /// # Errors
    /// [`DeviceError::Range`] outside the buffer.
    pub fn slice(&self, range: Range<usize>) -> Result<Buffer<T>, DeviceError> {
        if range.start > range.end || range.end > self.len {
            return Err(DeviceError::Range { start: range.start, end: range.end, len: self.len });
        }
        let offset = self.offset + range.start as u64 * size_of::<T>() as u64;
        Ok(Buffer { offset, len: range.len(), ..self.clone() })
    }

    /// Reinterprets the memory as elements of another type.
    ///
    /// # Errors
    /// [`DeviceError::Length`] where the bytes are not a whole number of elements,
    /// [`DeviceError::Range`] where the first byte is not aligned to one.
    pub fn cast<U: Pod>(&self) -> Result<Buffer<U>, DeviceError> {
        let size = size_of::<U>().max(1) as u64;
        let len = (self.bytes() / size) as usize;
        if !self.bytes().is_multiple_of(size) {
            return Err(DeviceError::Length { from: self.len, to: len });
        }
        if !self.address().is_multiple_of(align_of::<U>() as u64) {
            return Err(DeviceError::Range { start: self.offset as usize, end: self.offset as usize, len: self.len });
        }
        let Buffer { device, memory, address, offset, .. } = self.clone();
        Ok(Buffer { device, memory, address, offset, len, element: PhantomData })
    }

    pub(super) fn span(&self) -> Span {
        Span { memory: self.memory.clone(), offset: self.offset, bytes: self.bytes() }
    }
}

impl<T> Buffer<T> {
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn memory(&self) -> &Handle {
        &self.memory
    }
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Buffer<T> {
        Buffer {
            device: self.device.clone(),
            memory: self.memory.clone(),
            address: self.address,
            offset: self.offset,
            len: self.len,
            element: PhantomData,
        }
    }
}

impl<T> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = self.address + self.offset;
        write!(f, "Buffer<{}>({} at {address:#x})", std::any::type_name::<T>(), self.len)
    }
}

impl Device {
    /// Device memory for `len` elements, uninitialised, aligned to 256 bytes.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`]; when the device fails.
    pub fn buffer<T: Pod>(&self, len: usize) -> Result<Buffer<T>, DeviceError> {
        Buffer::new(self, len)
    }
}
