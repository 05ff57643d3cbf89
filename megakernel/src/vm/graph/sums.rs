//! Sums of the parts of all devices among the launches of a step: by NCCL, or by the host for
//! simulated devices.

use std::time::Instant;

use half::bf16;
use tilewright_codegen::device::{Buffer, Collective, DeviceError, Graph, Summed, Work};
use tilewright_kernels::tile::Float;

use super::launch::{AllReduce, Scratch};
use super::machine::{Counts, GraphMachine};
use super::nccl::NcclSums;
use super::peers::GraphPeers;
use crate::vm::LaunchError;

impl GraphPeers {
    /// The launches of every device with the sums among them, as graphs that are launched together;
    /// none on simulated devices.
    pub(super) fn graphs_with_sums(&self, counts: Counts) -> Result<Vec<Graph>, LaunchError> {
        let Some(nccl) = self.sums.as_ref().and_then(NcclSums::nccl) else { return Ok(Vec::new()) };
        let work = |(device, machine)| self.named(device, with_sums(nccl, machine, counts).map_err(LaunchError::from));
        let work = self.machines.iter().enumerate().map(work).collect::<Result<Vec<_>, _>>()?;
        Ok(nccl.graphs(&work)?)
    }

    /// The host adds up what simulated devices have.
    pub(super) fn add_up(&self, sum: &AllReduce) -> Result<(), LaunchError> {
        match sum.float {
            Float::Bf16 => self.add_up_as(sum, bf16::to_f32, bf16::from_f32),
            Float::F16 | Float::F32 => self.add_up_as(sum, |x: f32| x, |x| x),
        }
    }

    fn add_up_as<T: Summed>(
        &self,
        sum: &AllReduce,
        widen: fn(T) -> f32,
        round: fn(f32) -> T,
    ) -> Result<(), LaunchError> {
        let mut total: Vec<T> = Vec::new();
        for (device, machine) in self.machines.iter().enumerate() {
            let part = array::<T>(machine, sum.from, sum.elements).and_then(|part| machine.stream.read(&part));
            let part = self.named(device, part.map_err(LaunchError::from))?;
            match device {
                0 => total = part,
                _ => total.iter_mut().zip(part).for_each(|(sum, part)| *sum = round(widen(*sum) + widen(part))),
            }
        }
        for (device, machine) in self.machines.iter().enumerate() {
            let to = array::<T>(machine, sum.to, sum.elements);
            let stored = to.and_then(|to| machine.stream.upload(&total, &to));
            self.named(device, stored.map_err(LaunchError::from))?;
        }
        Ok(())
    }

    /// Waits until all that was queued has ended, where devices wait for each other in sums without
    /// looking at the time: the host does.
    pub(super) fn come(&self) -> Result<(), LaunchError> {
        let Some(sums) = &self.sums else { return Ok(()) };
        let begun = Instant::now();
        loop {
            let done = |(device, machine): (usize, &GraphMachine)| {
                self.named(device, machine.stream.done().map_err(LaunchError::from))
            };
            let done = self.machines.iter().enumerate().map(done).collect::<Result<Vec<bool>, _>>();
            let done = done.inspect_err(|_| sums.give_up())?;
            let Some(waiting) = done.iter().position(|done| !done) else { return Ok(()) };
            if begun.elapsed() > self.timeout {
                sums.give_up();
                return Err(self.absent(&done, waiting));
            }
            std::hint::spin_loop();
        }
    }

    /// A device waited for one that did not come: for one that has nothing to do, where there is
    /// one.
    fn absent(&self, done: &[bool], waiting: usize) -> LaunchError {
        let devices = self.machines.len();
        let device = done.iter().position(|&done| done).unwrap_or((waiting + 1) % devices);
        LaunchError::Absent { device, devices, waiting, timeout: self.timeout }
    }

    /// What simulated devices find where one does not come.
    pub(super) fn absent_one(&self, device: usize) -> LaunchError {
        let done: Vec<bool> = (0..self.machines.len()).map(|at| at == device).collect();
        self.absent(&done, done.iter().position(|done| !done).unwrap_or(0))
    }
}

/// A device's launches, and its side of the sums among them.
fn with_sums(nccl: &Collective, machine: &GraphMachine, counts: Counts) -> Result<Vec<Work>, DeviceError> {
    let plan = machine.plan();
    let mut work = Vec::new();
    let mut first = 0;
    for sum in &plan.all_reduces {
        work.extend(machine.work(plan.launches.get(first..sum.before).unwrap_or_default(), counts, None)?);
        work.push(match sum.float {
            Float::Bf16 => side::<bf16>(nccl, machine, sum)?,
            Float::F16 | Float::F32 => side::<f32>(nccl, machine, sum)?,
        });
        first = sum.before;
    }
    work.extend(machine.work(&plan.launches[first..], counts, None)?);
    Ok(work)
}

fn side<T: Summed>(nccl: &Collective, machine: &GraphMachine, sum: &AllReduce) -> Result<Work, DeviceError> {
    let [from, to] = [sum.from, sum.to].map(|scratch| array::<T>(machine, scratch, sum.elements));
    nccl.sum(&from?, &to?)
}

/// Activations as that number of elements.
fn array<T: Summed>(machine: &GraphMachine, scratch: Scratch, elements: u64) -> Result<Buffer<T>, DeviceError> {
    let bytes = elements as usize * size_of::<T>();
    let absent = DeviceError::Range { start: 0, end: bytes, len: 0 };
    machine.memory.scratch.get(&scratch).ok_or(absent)?.slice(0..bytes)?.cast()
}
