//! Sums of the parts of all devices by NCCL. Simulated devices have none: there the host adds up in
//! its place.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use half::bf16;
use tilewright_codegen::device::{Buffer, Collective, Device, DeviceError, Graph, Summed, Work};
use tilewright_kernels::tile::Float;

use super::launch::{AllReduce, Scratch};
use super::machine::{Counts, GraphMachine};
use super::peers::GraphPeers;
use crate::vm::LaunchError;

/// The all-reduce of several devices by NCCL.
pub(super) struct NcclSums {
    /// NCCL; nothing on simulated devices.
    nccl: Option<Collective>,
    /// Whether the communicator was aborted; the next step opens a new one.
    given_up: AtomicBool,
}

impl NcclSums {
    /// The all-reduce of these machines; `None` if their plans have none.
    pub(super) fn of(machines: &[GraphMachine]) -> Result<Option<NcclSums>, DeviceError> {
        match machines.iter().any(|machine| !machine.plan().all_reduces.is_empty()) {
            true => Ok(Some(NcclSums { nccl: open(machines)?, given_up: AtomicBool::new(false) })),
            false => Ok(None),
        }
    }

    /// Whether it was given up.
    pub(super) fn are_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Opens NCCL anew where it was given up and no graph is left of it.
    pub(super) fn begin_anew(&mut self, machines: &[GraphMachine]) -> Result<(), DeviceError> {
        self.nccl = open(machines)?;
        self.given_up.store(false, Ordering::Release);
        Ok(())
    }

    /// Makes devices end that wait for others.
    fn give_up(&self) {
        // A failure here is that of a lost device, which the caller reports.
        let _ = self.nccl.as_ref().map(Collective::abort);
        self.given_up.store(true, Ordering::Release);
    }
}

fn open(machines: &[GraphMachine]) -> Result<Option<Collective>, DeviceError> {
    let devices: Vec<Device> = machines.iter().map(|machine| machine.stream.device().clone()).collect();
    match machines.iter().any(GraphMachine::is_simulated) {
        true => Ok(None),
        false => Collective::open(&devices).map(Some),
    }
}

impl GraphPeers {
    /// The launches of every device with the sums among them, as graphs that are launched together;
    /// none on simulated devices.
    pub(super) fn graphs_with_sums(&self, counts: Counts) -> Result<Vec<Graph>, LaunchError> {
        let Some(nccl) = self.sums.as_ref().and_then(|sums| sums.nccl.as_ref()) else { return Ok(Vec::new()) };
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
            if begun.elapsed() > self.patience {
                sums.give_up();
                return Err(self.absent(&done, waiting));
            }
            std::hint::spin_loop();
        }
    }

    /// The error of a device that waited for a missing one: an idle device, if there is one.
    fn absent(&self, done: &[bool], waiting: usize) -> LaunchError {
        let devices = self.machines.len();
        let device = done.iter().position(|&done| done).unwrap_or((waiting + 1) % devices);
        LaunchError::Absent { device, devices, waiting, patience: self.patience }
    }

    /// The error of simulated devices if one of them does not reach a sum.
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
