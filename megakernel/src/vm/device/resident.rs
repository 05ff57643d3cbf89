//! The memory that machines of one model share on a device: streamed weights and KV pools.
//!
//! A prompt is fed by a program of many rows, tokens are decoded by one of few: two machines, one
//! copy of the weights and one of the pools.

use super::load;
use super::machine::MachineResources;
use super::part::room;
use super::{DeviceMachine, DeviceOptions, Plan};
use crate::validate::Placed;
use crate::vm::LoadError;
use crate::vm::resident::stored::BoundWeights;
use crate::vm::resident::{DeviceKv, DeviceWeights, Packed};

impl DeviceWeights {
    /// Sends the weights that machines of a program stream, unless they are on the device. Other
    /// readers of these weights then need not wait for a kernel. `progress` is as for
    /// [`DeviceWeights::machine`].
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
        let key = Packed::new(placed, &plan.streams);
        if self.prepacked.iter().any(|(known, _)| *known == key) {
            return Ok(());
        }
        let bound = BoundWeights::new(placed, &*self.weights)?;
        let total: u64 = (0..self.devices.len()).map(|number| plan.packed_of(number)).sum();
        let mut prepacked = Vec::new();
        let mut before = 0;
        for (number, device) in self.devices.iter().enumerate() {
            room(&plan, device, number, true, false)?;
            let told = &mut |sent| progress(before + sent, total);
            prepacked.push(load::packed(device, &device.stream()?, &plan, number, &bound, told)?);
            before += plan.packed_of(number);
        }
        self.prepacked.push((key, prepacked));
        Ok(())
    }

    /// Makes a machine. It uses the pools `kv`, or new ones.
    ///
    /// `progress` is told how many bytes of weights are on their way, and of how many; it is not
    /// called where they are on the device already.
    ///
    /// # Errors
    /// As [`DeviceMachine::load`]; [`LoadError::Kv`] where the pools are not those that the program
    /// wants.
    pub fn machine(
        &mut self,
        placed: Placed,
        kv: Option<&DeviceKv>,
        options: DeviceOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<DeviceMachine, LoadError> {
        let plan = Plan::new(&placed, options)?;
        let key = Packed::new(&placed, &plan.streams);
        let prepacked = self.prepacked.iter().find(|(known, _)| *known == key).map(|(_, prepacked)| &prepacked[..]);
        let new = prepacked.is_none();
        let bound = BoundWeights::new(&placed, &*self.weights)?;
        let resources =
            MachineResources { devices: &self.devices, kernels: &self.kernels, bound: &bound, prepacked, kv };
        let machine = DeviceMachine::assemble(placed, plan, resources, progress)?;
        if new {
            self.prepacked.push((key, machine.prepacked()));
        }
        Ok(machine)
    }
}
