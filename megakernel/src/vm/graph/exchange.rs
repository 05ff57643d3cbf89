//! What several devices exchange between launches, where they meet: parts of sums, and logits for the one that chooses.

use tilewright_kernels::exchange::{MEET_WORDS, PartsShape, SumNormShape, meet, sum_parts, sum_rms_norm};
use tilewright_kernels::tile::Float;

use super::launch::{AllReduce, Launch, LaunchArg, LaunchGrid, LaunchMemory, Scratch};
use super::norms::{Activations, NormOf};
use super::planner::{GraphPlanner, Heads};
use super::products::{Multiply, Product};
use super::tuning::Exchange;
use crate::program::BufferId;
use crate::vm::device::Unsupported;

/// Rows of a device's share from which on parts are pushed, where nothing else is asked for: products of fewer rows lose more than that wins.
const LEAST_PUSHED: u32 = 512;

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
        let (rows, [features, k]) = (self.plan.rows, self.extents(layer.0)?);
        let (layers, results) = (&[layer][..], features.into());
        let whole = Product { a, layers, results, to: Scratch::Part };
        if self.pushes(layer.0, [rows, features, k])
            && self.packed_of(&whole.multiply(rows, LaunchMemory::Logits)).is_none()
        {
            return self.push_product(a, layer, out);
        }
        self.product(&whole)?;
        self.part(out, [rows, features], Float::Bf16);
        Ok(())
    }

    /// Whether a part is multiplied share by share of its rows, each stored on the device that adds it up.
    fn pushes(&self, weight: BufferId, [rows, features, k]: [u32; 3]) -> bool {
        // A share's rows begin where a copy of 16 bytes may. Codes would be made numbers for each share.
        let fits = features.is_multiple_of(8) && k.is_multiple_of(8) && self.buffer(weight).quantised.is_none();
        let asked = match self.exchange {
            Exchange::Own => rows / self.devices() >= LEAST_PUSHED,
            Exchange::Push => true,
            Exchange::Pull | Exchange::Nccl => false,
        };
        fits && asked
    }

    /// A part share by share, the own last: while that is multiplied, what the peers have to add up is on its way to them.
    fn push_product(
        &mut self,
        a: Activations,
        layer: (BufferId, Option<BufferId>),
        out: BufferId,
    ) -> Result<(), Unsupported> {
        let scratch = match a {
            Activations::Norm(norm) => self.norm(norm)?,
            Activations::Scratch(scratch) => {
                self.settle();
                scratch
            }
        };
        let (devices, own, rows) = (self.devices(), self.device, self.plan.rows);
        let [features, k] = self.extents(layer.0)?;
        let most = rows.div_ceil(devices);
        let pitch = u64::from(most) * u64::from(features) * 2;
        self.scratch(Scratch::Part, pitch * u64::from(devices));
        for device in (1..=devices).map(|at| (own + at) % devices) {
            let [first, end] = share(rows, device, devices);
            if first == end {
                continue;
            }
            let a = LaunchMemory::Of { device: own, scratch, first: u64::from(first) * u64::from(k) * 2 };
            let to = LaunchMemory::Of { device, scratch: Scratch::Part, first: u64::from(own) * pitch };
            let (rows, layers, results) = (end - first, &[layer][..], features.into());
            let launches = self.multiply_rows(&Multiply { rows, a, layers, results, to, wide: false, added: false })?;
            self.plan.launches.extend(launches);
        }
        self.heads.insert(out, Heads { scratch: Scratch::Part, first: 0, of_row: 1 });
        self.pushed.insert(out, pitch);
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

    /// The parts of all devices are added up, to the residual stream where there is one: by [NCCL](Exchange::Nccl), or each device adds up a share of
    /// the rows, reading the parts of its peers, and stores what it makes of them on all.
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
        let shape = self.extents(out)?;
        let (pushed, by_nccl) = (self.pushed.remove(&own), self.exchange == Exchange::Nccl);
        self.heads.remove(&own);
        let Some(residual) = residual else {
            match by_nccl {
                true => self.all_reduce(shape, (Float::F32, Scratch::Residual)),
                false => self.sum_embedding(shape),
            }
            self.residual(out, shape);
            return Ok(());
        };
        if by_nccl {
            self.all_reduce(shape, (Float::Bf16, Scratch::Added));
            return self.add(residual, out);
        }
        self.add_parts(residual, (out, pushed))
    }

    /// The embedding, of which one device has each row, becomes the residual stream on all: f32.
    fn sum_embedding(&mut self, [rows, width]: [u32; 2]) {
        let (devices, float) = (self.devices(), Float::F32);
        self.scratch(Scratch::Residual, u64::from(rows) * u64::from(width) * u64::from(float.bytes()));
        let vector = vector(width, float);
        let (types, strides) = ([float; 2], [width; 2]);
        let shape = PartsShape { parts: devices, copies: devices, width, strides, types, vector };
        let [first, end] = share(rows, self.device, devices);
        self.meet();
        if end > first {
            let [parts, sums] = [Scratch::Part, Scratch::Residual].map(|of| self.on_each(of, first, width, float));
            let sum = self.sum_of(shape, end - first, parts.into_iter().chain(sums));
            self.plan.launches.push(sum);
        }
        self.meet();
    }

    /// The parts of all devices are added to a share of the rows of the residual stream, which is this device's alone from now on, and the norm of these
    /// is stored on all.
    pub(super) fn norm_of_parts(
        &mut self,
        norm: NormOf,
        [rows, width]: [u32; 2],
        pushed: Option<u64>,
    ) -> Result<(), Unsupported> {
        let (weight, float) = self.plain(norm.weight)?;
        let (devices, [part, out]) = (self.devices(), [Float::Bf16; 2]);
        let shape = SumNormShape { devices, width, part, weight: float, out, eps: norm.eps };
        let [first, end] = share(rows, self.device, devices);
        self.meet();
        if end > first {
            let arch = self.arch;
            let kernel = self.kernel(format!("{shape:?}"), || sum_rms_norm(arch, shape));
            let x = self.on_each(Scratch::Residual, first, width, Float::F32)[self.device as usize];
            // What was pushed lies here, sender by sender.
            let here = |pitch| {
                let of = move |sender| u64::from(sender) * pitch;
                let first = (0..devices).map(of);
                first.map(|first| LaunchMemory::Of { device: self.device, scratch: Scratch::Part, first }).collect()
            };
            let parts = pushed.map_or_else(|| self.on_each(Scratch::Part, first, width, part), here);
            let norms = self.on_each(Scratch::Normed, first, width, out);
            let memory = [x].into_iter().chain(parts).chain([weight]).chain(norms);
            let args = memory.map(LaunchArg::Pointer).collect();
            self.plan.launches.push(Launch { kernel, grid: LaunchGrid::Blocks(end - first), args });
        }
        self.meet();
        Ok(())
    }

    /// Activations of every device, from a row on.
    fn on_each(&self, scratch: Scratch, row: u32, width: u32, float: Float) -> Vec<LaunchMemory> {
        let first = u64::from(row) * u64::from(width) * u64::from(float.bytes());
        (0..self.devices()).map(|device| LaunchMemory::Of { device, scratch, first }).collect()
    }

    /// The parts of all devices are added up by NCCL, and the sum is on all.
    fn all_reduce(&mut self, [rows, width]: [u32; 2], (float, to): (Float, Scratch)) {
        let elements = u64::from(rows) * u64::from(width);
        self.scratch(to, elements * u64::from(float.bytes()));
        let before = self.plan.launches.len();
        self.plan.all_reduces.push(AllReduce { before, from: Scratch::Part, to, elements, float });
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
