//! Tensor maps: a tensor in device memory as the copy engine sees it, tile by tile.

use super::backend::Handle;
use super::{Buffer, Device, DeviceError, TensorShape};
use bytemuck::Pod;

/// A tensor map for a kernel's argument. It keeps the buffer that it describes.
#[derive(Clone, Debug)]
pub struct TensorMap {
    device: Device,
    memory: Handle,
    shape: TensorShape,
    encoded: [u8; 128],
}

impl TensorMap {
    pub(super) fn new<T: Pod>(
        device: &Device,
        buffer: &Buffer<T>,
        shape: TensorShape,
    ) -> Result<TensorMap, DeviceError> {
        device.same("buffer", buffer.device())?;
        shape.check()?;
        if !buffer.address().is_multiple_of(16) {
            return Err(DeviceError::TensorMap { rule: "starts at a multiple of 16 bytes".into() });
        }
        if shape.extent_bytes() > buffer.bytes() {
            let extent = shape.extent_bytes();
            let bytes = buffer.bytes();
            return Err(DeviceError::TensorMap { rule: format!("of {extent} bytes on a buffer of {bytes} bytes") });
        }
        let encoded = device.backend().encode_tensor_map(&shape, buffer.address())?;
        Ok(TensorMap { device: device.clone(), memory: buffer.memory().clone(), shape, encoded })
    }

    /// The shape of the tensor and its box.
    pub fn shape(&self) -> &TensorShape {
        &self.shape
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn memory(&self) -> &Handle {
        &self.memory
    }

    pub(super) fn encoded(&self) -> &[u8; 128] {
        &self.encoded
    }
}

impl Device {
    /// A tensor map of a buffer.
    ///
    /// # Errors
    /// [`DeviceError::TensorMap`] where the hardware has no such map, or the buffer is too small
    /// for it; [`DeviceError::Foreign`].
    pub fn tensor_map<T: Pod>(&self, buffer: &Buffer<T>, shape: TensorShape) -> Result<TensorMap, DeviceError> {
        TensorMap::new(self, buffer, shape)
    }
}
