//! What several devices exchange between launches: parts of sums, and logits for the one that chooses.

use tilewright_kernels::elementwise::{PartsShape, sum_parts};
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

    /// From here on the devices have done all before.
    fn meet(&mut self) {
        self.settle();
        self.plan.meetings.push(self.plan.launches.len());
    }

    /// The parts of all devices are added up, to the residual stream where there is one: each device adds a share of the rows, and reads the
    /// shares of its peers.
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
        let vector = if width.is_multiple_of(4) { 4 } else { 1 };
        let shape = |parts| PartsShape { parts, width, strides: [width; 2], types: [float; 2], vector };
        let at = |row: u32| u64::from(row) * u64::from(width) * u64::from(float.bytes());
        let own = share(rows, self.device, devices);
        let here = |row: u32| LaunchMemory::Of { device: self.device, scratch: to, first: at(row) };
        let (summed, others) = {
            let from = |device| LaunchMemory::Of { device, scratch: Scratch::Part, first: at(own[0]) };
            let summed = (own, (0..devices).map(from).collect::<Vec<_>>(), here(own[0]));
            let others = (0..devices).filter(|&device| device != self.device).map(|device| {
                let theirs = share(rows, device, devices);
                (theirs, vec![LaunchMemory::Of { device, scratch: to, first: at(theirs[0]) }], here(theirs[0]))
            });
            (summed, others.collect::<Vec<_>>())
        };
        self.meet();
        self.add_up(shape(devices), summed);
        self.meet();
        others.into_iter().for_each(|theirs| self.add_up(shape(1), theirs));
        self.heads.remove(&parts[self.device as usize]);
        match residual {
            Some(residual) => self.add(residual, out),
            None => {
                self.residual(out, [rows, width]);
                Ok(())
            }
        }
    }

    /// Sums of some rows of arrays; of no rows nothing.
    fn add_up(&mut self, shape: PartsShape, ([first, end], from, to): ([u32; 2], Vec<LaunchMemory>, LaunchMemory)) {
        if end > first {
            let launch = self.sum_of(shape, end - first, from, to);
            self.plan.launches.push(launch);
        }
    }

    fn sum_of(&mut self, shape: PartsShape, rows: u32, from: Vec<LaunchMemory>, to: LaunchMemory) -> Launch {
        let arch = self.arch;
        let kernel = self.kernel(format!("{shape:?}"), || sum_parts(arch, shape));
        let args = from.into_iter().chain([to]).map(LaunchArg::Pointer).collect();
        Launch { kernel, grid: LaunchGrid::Blocks(rows), args }
    }

    /// The logits of all devices below each other's rows, `[rows, vocab]`, on the device that chooses: what each of them has is `part` wide.
    pub(super) fn all_logits(&mut self, rows: u32, part: u32) -> (LaunchMemory, Vec<Launch>) {
        let devices = self.devices();
        let vocab = part * devices;
        let vector = if part.is_multiple_of(4) { 4 } else { 1 };
        let (types, strides) = ([Float::F32; 2], [part, vocab]);
        let shape = PartsShape { parts: 1, width: part, strides, types, vector };
        let all = self.scratch(Scratch::AllLogits, u64::from(rows) * u64::from(vocab) * 4);
        let of = |device: u32| {
            let from = LaunchMemory::Of { device, scratch: Scratch::WantedLogits, first: 0 };
            let first = u64::from(device) * u64::from(part) * 4;
            (from, LaunchMemory::Of { device: self.device, scratch: Scratch::AllLogits, first })
        };
        let each: Vec<_> = (0..devices).map(of).collect();
        (all, each.into_iter().map(|(from, to)| self.sum_of(shape, rows, vec![from], to)).collect())
    }
}
