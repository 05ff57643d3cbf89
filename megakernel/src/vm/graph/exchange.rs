//! What several devices exchange between launches, where they meet: parts of sums, and logits for the one that chooses.

use tilewright_kernels::exchange::{MEET_WORDS, PartsShape, meet, sum_parts};
use tilewright_kernels::tile::Float;

use super::launch::{Launch, LaunchArg, LaunchGrid, LaunchMemory, Scratch};
use super::norms::Activations;
use super::planner::{GraphPlanner, Heads};
use super::products::Product;
use crate::program::BufferId;
use crate::vm::device::Unsupported;

/// Rows that a device adds up of the parts of all: the first, and behind the last.
fn share(rows: u32, device: u32, devices: u32) -> [u32; 2] {
    [device, device + 1].map(|device| (u64::from(rows) * u64::from(device) / u64::from(devices)) as u32)
}

impl GraphPlanner<'_> {
    fn devices(&self) -> u32 {
        self.program.devices as u32
    }

    /// What this device has of a sum of so many rows and columns goes there, and `out` stands for it.
    pub(crate) fn part(&mut self, out: BufferId, [rows, width]: [u32; 2], float: Float) -> LaunchMemory {
        self.heads.insert(out, Heads { scratch: Scratch::Part, first: 0, of_row: 1 });
        self.scratch(Scratch::Part, u64::from(rows) * u64::from(width) * u64::from(float.bytes()))
    }

    /// A product of all rows that is a part of a sum.
    pub(crate) fn part_product(
        &mut self,
        a: Activations,
        layer: (BufferId, Option<BufferId>),
        out: BufferId,
    ) -> Result<(), Unsupported> {
        let (rows, [features, _]) = (self.plan.rows, self.extents(layer.0)?);
        self.product(&Product { a, layers: &[layer], results: features.into(), to: Scratch::Part })?;
        self.part(out, [rows, features], Float::Bf16);
        Ok(())
    }

    /// Behind this launch the devices have done all before.
    pub(super) fn meeting(&mut self) -> Launch {
        let (arch, devices) = (self.arch, self.devices());
        self.scratch(Scratch::Meetings, u64::from(MEET_WORDS) * 4);
        let kernel = self.kernel("meet".into(), || meet(arch, devices));
        self.plan.meet = Some(kernel);
        let words = |device| LaunchMemory::Of { device, scratch: Scratch::Meetings, first: 0 };
        let words = (0..devices).map(words).map(LaunchArg::Pointer);
        let args = [LaunchArg::Number(self.device)].into_iter().chain(words).collect();
        Launch { kernel, grid: LaunchGrid::Blocks(1), args }
    }

    fn meet(&mut self) {
        self.settle();
        let meeting = self.meeting();
        self.plan.launches.push(meeting);
    }

    /// The parts of all devices are added up, to the residual stream where there is one: each device adds up a share of the rows, reading those of
    /// its peers, and stores the sum on all.
    pub(crate) fn exchange(
        &mut self,
        parts: &[BufferId],
        residual: Option<BufferId>,
        out: BufferId,
    ) -> Result<(), Unsupported> {
        let devices = self.devices();
        let Some(&own) = parts.get(self.device as usize).filter(|_| devices > 1 && parts.len() as u32 == devices)
        else {
            return Err(Unsupported::Launch { what: "a sum of anything but a part of each device" });
        };
        self.settle();
        self.whole(own, Scratch::Part)?;
        let [rows, width] = self.extents(out)?;
        // The embedding is the residual stream, f32; what is added to it later is bf16, as on one device.
        let (float, to) = match residual {
            None => (Float::F32, Scratch::Residual),
            Some(_) => (Float::Bf16, Scratch::Added),
        };
        self.scratch(to, u64::from(rows) * u64::from(width) * u64::from(float.bytes()));
        let shape = PartsShape {
            parts: devices,
            copies: devices,
            width,
            strides: [width; 2],
            types: [float; 2],
            vector: vector(width, float),
        };
        let [first, end] = share(rows, self.device, devices);
        let first_byte = u64::from(first) * u64::from(width) * u64::from(float.bytes());
        let on_each = |scratch| (0..devices).map(move |device| LaunchMemory::Of { device, scratch, first: first_byte });
        self.meet();
        if end > first {
            let sum = self.sum_of(shape, end - first, on_each(Scratch::Part).chain(on_each(to)));
            self.plan.launches.push(sum);
        }
        self.meet();
        self.heads.remove(&own);
        match residual {
            Some(residual) => self.add(residual, out),
            None => {
                self.residual(out, [rows, width]);
                Ok(())
            }
        }
    }

    /// Sums of some rows of arrays, from where to where.
    fn sum_of(&mut self, shape: PartsShape, rows: u32, arrays: impl Iterator<Item = LaunchMemory>) -> Launch {
        let arch = self.arch;
        let kernel = self.kernel(format!("{shape:?}"), || sum_parts(arch, shape));
        Launch { kernel, grid: LaunchGrid::Blocks(rows), args: arrays.map(LaunchArg::Pointer).collect() }
    }

    /// The logits of all devices below each other's rows, `[rows, vocab]`, on the device that chooses: what each of them has is `part` wide.
    pub(super) fn all_logits(&mut self, rows: u32, part: u32) -> (LaunchMemory, Vec<Launch>) {
        let devices = self.devices();
        let vocab = part * devices;
        let (types, strides) = ([Float::F32; 2], [part, vocab]);
        let shape = PartsShape { parts: 1, copies: 1, width: part, strides, types, vector: vector(part, Float::F32) };
        let all = self.scratch(Scratch::AllLogits, u64::from(rows) * u64::from(vocab) * 4);
        let of = |device: u32| {
            let first = u64::from(device) * u64::from(part) * 4;
            let from = LaunchMemory::Of { device, scratch: Scratch::WantedLogits, first: 0 };
            [from, LaunchMemory::Of { device: self.device, scratch: Scratch::AllLogits, first }]
        };
        let each: Vec<_> = (0..devices).map(of).collect();
        (all, each.into_iter().map(|arrays| self.sum_of(shape, rows, arrays.into_iter())).collect())
    }
}

/// Elements of a load: 16 bytes, where rows are whole ones.
fn vector(width: u32, float: Float) -> u32 {
    let most = 16 / float.bytes();
    if width.is_multiple_of(most) { most } else { 1 }
}
