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

/// What a device adds to an all-reduce, on the host: of simulated devices, which have no NCCL.
///
/// ```
/// use tilewright_megakernel::vm::graph::Summand;
/// let mut sum = Summand::new(vec![1.0, 2.0]);
/// sum.add(&[0.5, -2.0]);
/// assert_eq!(sum.values(), [1.5, 0.0]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Summand {
    float: Float,
    values: Vec<f32>,
}

impl Summand {
    /// A summand of f32.
    pub fn new(values: Vec<f32>) -> Summand {
        Summand { float: Float::F32, values }
    }

    /// Its elements, widened to f32.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Adds another device's elements. Each sum is rounded to the type that devices add in.
    pub fn add(&mut self, other: &[f32]) {
        let round = |x: f32| match self.float {
            Float::Bf16 => bf16::from_f32(x).to_f32(),
            Float::F16 | Float::F32 => x,
        };
        self.values.iter_mut().zip(other).for_each(|(sum, x)| *sum = round(*sum + x));
    }

    /// Replaces the elements by the sum of all devices'.
    pub fn set(&mut self, total: &[f32]) {
        self.values.iter_mut().zip(total).for_each(|(x, total)| *x = *total);
    }
}

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
        let mut total: Option<Summand> = None;
        for (device, machine) in self.machines.iter().enumerate() {
            let part = self.named(device, machine.summand(sum).map_err(LaunchError::from))?;
            match &mut total {
                None => total = Some(part),
                Some(total) => total.add(part.values()),
            }
        }
        for ((device, machine), total) in self.machines.iter().enumerate().zip(total.iter().cycle()) {
            self.named(device, machine.store_sum(sum, total).map_err(LaunchError::from))?;
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

impl GraphMachine {
    /// What a simulated device adds to a sum.
    pub(super) fn summand(&self, sum: &AllReduce) -> Result<Summand, DeviceError> {
        let float = sum.float;
        let values = match float {
            Float::Bf16 => {
                let part = self.stream.read(&array::<bf16>(self, sum.from, sum.elements)?)?;
                part.into_iter().map(bf16::to_f32).collect()
            }
            Float::F16 | Float::F32 => self.stream.read(&array::<f32>(self, sum.from, sum.elements)?)?,
        };
        Ok(Summand { float, values })
    }

    /// Stores a sum on a simulated device.
    pub(super) fn store_sum(&self, sum: &AllReduce, total: &Summand) -> Result<(), DeviceError> {
        let values = total.values();
        match sum.float {
            Float::Bf16 => {
                let rounded: Vec<bf16> = values.iter().map(|&x| bf16::from_f32(x)).collect();
                self.stream.upload(&rounded, &array::<bf16>(self, sum.to, sum.elements)?)
            }
            Float::F16 | Float::F32 => self.stream.upload(values, &array::<f32>(self, sum.to, sum.elements)?),
        }
    }
}

/// A device's launches, and its side of the sums among them.
pub(super) fn with_sums(nccl: &Collective, machine: &GraphMachine, counts: Counts) -> Result<Vec<Work>, DeviceError> {
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
