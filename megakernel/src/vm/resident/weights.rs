//! A model's weights on a device, once for all machines that run it.

use std::sync::Arc;

use half::bf16;
use tilewright_codegen::device::{Buffer, Device};

use super::{DeviceKernels, Packed};
use crate::weights::Weights;

/// A model's weights and the device that they are brought to, once for all its machines.
///
/// It keeps the packed weights. Programs that stream the same weights in the same order share one;
/// that depends on the model, the SMs and on
/// [`DeviceOptions::warps`](crate::vm::device::DeviceOptions::warps),
/// [`DeviceOptions::stage_bytes`](crate::vm::device::DeviceOptions::stage_bytes) and
/// [`DeviceOptions::stage_order`](crate::vm::device::DeviceOptions::stage_order), not on rows,
/// context or batch. Norms, biases and tables of rotations are small, and each machine has its own.
pub struct DeviceWeights {
    pub(in crate::vm) devices: Vec<Device>,
    pub(in crate::vm) weights: Arc<dyn Weights + Send + Sync>,
    pub(in crate::vm) prepacked: Vec<(Packed, Vec<Buffer<bf16>>)>,
    pub(in crate::vm) kernels: Vec<DeviceKernels>,
}

impl DeviceWeights {
    /// Creates weights that are copied to the device with the first machine.
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

    /// Each device's packed weights, which machines stream in the order of its weights, and their
    /// layout. `None` before there is such a machine.
    pub fn packed(&self) -> Option<(&Packed, &[Buffer<bf16>])> {
        let in_order = self
            .prepacked
            .iter()
            .find(|(packed, prepacked)| packed.is_in_order() && prepacked.len() == self.devices.len());
        in_order.map(|(packed, prepacked)| (packed, &prepacked[..]))
    }
}
