//! The exchange between devices at barriers between launches: partial sums, and logits for the
//! device that samples.

use tilewright_kernels::epilogue::ResultFunctions;
use tilewright_kernels::exchange::{
    BARRIER_WORDS, PartsShape, ResidualAdd, SumNormShape, device_barrier, sum_parts, sum_rms_norm,
};
use tilewright_kernels::tile::Float;

use super::activations::{NormActivations, NormOf, ProductInput};
use super::launch::{AllReduce, Launch, LaunchArg, LaunchGrid, LaunchMemory, Scratch};
use super::planner::{GraphPlanner, RowHeads};
use super::tuning::Exchange;
use crate::program::BufferId;
use crate::vm::Unsupported;

/// Bytes more that a device may send to save a barrier, which takes 7 µs: NVLink 4 sends as many
/// meanwhile.
const MOST_MORE: u64 = 2 << 20;

/// Rows that a device adds up of the parts of all: the first, and after the last.
fn share(rows: u32, device: u32, devices: u32) -> [u32; 2] {
    [device, device + 1].map(|device| (u64::from(rows) * u64::from(device) / u64::from(devices)) as u32)
}

impl GraphPlanner<'_> {
    fn devices(&self) -> u32 {
        self.program.devices as u32
    }

    /// The memory in which this device stores its part of a sum of that shape; `out` names it.
    pub(crate) fn part(&mut self, out: BufferId, shape: [u32; 2], float: Float) -> LaunchMemory {
        self.part_in(Scratch::Part, out, shape, float)
    }

    /// The scratch memory of the next part of that shape.
    pub(super) fn next_part(&self, shape: [u32; 2]) -> Scratch {
        match (self.in_one_shot(shape), self.last_part) {
            // A peer may still read the part before: no barrier is after that.
            (true, Some(Scratch::Part)) => Scratch::OtherPart,
            (true, _) | (false, _) => Scratch::Part,
        }
    }

    pub(super) fn part_in(
        &mut self,
        scratch: Scratch,
        out: BufferId,
        [rows, width]: [u32; 2],
        float: Float,
    ) -> LaunchMemory {
        self.heads.insert(out, RowHeads { scratch, first: 0, of_row: 1 });
        self.scratch(scratch, u64::from(rows) * u64::from(width) * u64::from(float.bytes()))
    }

    /// A product of all rows that is a part of a sum.
    pub(crate) fn part_product(
        &mut self,
        a: NormActivations,
        layer: (BufferId, Option<BufferId>),
        out: BufferId,
    ) -> Result<(), Unsupported> {
        let rows = self.plan.rows;
        let [features, _] = self.extents(layer.0)?;
        let to = self.next_part([rows, features]);
        let functions = ResultFunctions::default();
        self.product(&ProductInput { a, layers: &[layer], results: features.into(), functions, to })?;
        self.part_in(to, out, [rows, features], Float::Bf16);
        Ok(())
    }

    /// Whether each device adds up all rows, reading the parts of all: one barrier instead of two.
    /// Each then reads (N − 1) · S bytes of its peers instead of reading and storing (N − 1) / N ·
    /// S each: of two devices as many.
    fn in_one_shot(&self, [rows, width]: [u32; 2]) -> bool {
        let devices = u64::from(self.devices());
        let bytes = u64::from(rows) * u64::from(width) * 2;
        match self.exchange {
            Exchange::Own => bytes * (devices - 1) * devices.saturating_sub(2) / devices <= MOST_MORE,
            Exchange::OneShot => true,
            Exchange::TwoShot | Exchange::Nccl => false,
        }
    }

    /// After this launch the devices have done all before.
    pub(super) fn barrier_launch(&mut self) -> Launch {
        let arch = self.arch;
        let devices = self.devices();
        self.scratch(Scratch::Meetings, u64::from(BARRIER_WORDS) * 4);
        let kernel = self.kernel("meet".into(), || device_barrier(arch, devices));
        self.plan.meet = Some(kernel);
        let words = |device| LaunchMemory::Of { device, scratch: Scratch::Meetings, first: 0 };
        let words = (0..devices).map(words).map(LaunchArg::Pointer);
        let args = [LaunchArg::Number(self.device)].into_iter().chain(words).collect();
        Launch { kernel, grid: LaunchGrid::Blocks(1), args }
    }

    fn barrier(&mut self) {
        self.settle();
        let barrier = self.barrier_launch();
        self.plan.launches.push(barrier);
    }

    /// The parts of all devices are added up, to the residual stream where there is one: by
    /// [NCCL](Exchange::Nccl), or each device adds up a share of the rows, reading the parts of its
    /// peers, and stores what it makes of them on all.
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
        let part = self.part_of(own)?;
        let shape = self.extents(out)?;
        let by_nccl = self.exchange == Exchange::Nccl;
        self.heads.remove(&own);
        let Some(residual) = residual else {
            match by_nccl {
                true => self.all_reduce(shape, Float::F32, Scratch::Residual),
                false => self.sum_embedding(shape),
            }
            self.residual(out, shape);
            return Ok(());
        };
        if by_nccl {
            self.all_reduce(shape, Float::Bf16, Scratch::Added);
            return self.add(residual, out);
        }
        self.add_parts(residual, out, part)
    }

    /// Adds the parts of all devices, normalises the sum and adds it to the residual stream, which
    /// gives the norm's `x` on all devices. Each device does so with all rows, or with a share of
    /// them, which it stores on all devices.
    pub(crate) fn add_normed_parts(
        &mut self,
        parts: &[BufferId],
        residual: Option<BufferId>,
        norm: NormOf,
    ) -> Result<(), Unsupported> {
        let devices = self.devices();
        let own = parts.get(self.device as usize).copied().filter(|_| parts.len() as u32 == devices);
        let (Some(own), Some(residual)) = (own, residual) else {
            return Err(Unsupported::Launch { what: "the norm of anything but a part of each device" });
        };
        if self.shared_rows {
            return Err(Unsupported::Launch { what: "a norm added to rows that are on other devices" });
        }
        self.settle();
        self.whole(residual, Scratch::Residual)?;
        let mut part = self.part_of(own)?;
        let [rows, width] = self.extents(norm.x)?;
        let (weight, float) = self.plain(norm.weight)?;
        if self.exchange == Exchange::Nccl && devices > 1 {
            self.all_reduce([rows, width], Float::Bf16, Scratch::Added);
            part = Scratch::Added;
        }
        let is_summed = devices == 1 || part == Scratch::Added;
        let one_shot = is_summed || self.in_one_shot([rows, width]);
        let shape = SumNormShape {
            parts: if is_summed { 1 } else { devices },
            copies: if one_shot { 1 } else { devices },
            residual: ResidualAdd::AfterNorm,
            width,
            part: Float::Bf16,
            weight: float,
            out: Float::F32,
            eps: norm.eps,
        };
        let [first, end] = if one_shot { [0, rows] } else { share(rows, self.device, devices) };
        // From the first of these rows on; where all is on this device, of this device alone.
        let of = |scratch, float| match is_summed {
            true => vec![LaunchMemory::Scratch(scratch)],
            false => self.on_each(scratch, first, width, float),
        };
        let streams = of(Scratch::Residual, Float::F32);
        let stream = if is_summed { streams[0] } else { streams[self.device as usize] };
        let outs = if one_shot { vec![stream] } else { streams };
        let memory: Vec<_> = [stream].into_iter().chain(of(part, Float::Bf16)).chain([weight]).chain(outs).collect();
        if !is_summed {
            self.barrier();
        }
        if end > first {
            let arch = self.arch;
            let kernel = self.kernel(format!("{shape:?}"), || sum_rms_norm(arch, shape));
            let args = memory.into_iter().map(LaunchArg::Pointer).collect();
            self.plan.launches.push(Launch { kernel, grid: LaunchGrid::Blocks(end - first), args });
        }
        match (is_summed, one_shot) {
            (true, _) => {}
            (false, true) => self.last_part = Some(part),
            (false, false) => self.barrier(),
        }
        self.heads.remove(&own);
        self.heads.remove(&residual);
        // The sum takes the place of what it is added to.
        self.residual(norm.x, [rows, width]);
        Ok(())
    }

    /// The scratch memory of a part.
    fn part_of(&self, own: BufferId) -> Result<Scratch, Unsupported> {
        match self.heads.get(&own).map(|heads| heads.scratch) {
            Some(part @ (Scratch::Part | Scratch::OtherPart)) => Ok(part),
            _ => self.whole(own, Scratch::Part).map(|()| Scratch::Part),
        }
    }

    /// The embedding, of which one device has each row, becomes the residual stream on all: f32.
    fn sum_embedding(&mut self, [rows, width]: [u32; 2]) {
        let devices = self.devices();
        let float = Float::F32;
        self.scratch(Scratch::Residual, u64::from(rows) * u64::from(width) * u64::from(float.bytes()));
        let vector = vector(width, float);
        let types = [float; 2];
        let strides = [width; 2];
        let shape = PartsShape { parts: devices, copies: devices, width, strides, types, vector };
        let [first, end] = share(rows, self.device, devices);
        self.barrier();
        if end > first {
            let [parts, sums] = [Scratch::Part, Scratch::Residual].map(|of| self.on_each(of, first, width, float));
            let sum = self.sum_of(shape, end - first, parts.into_iter().chain(sums));
            self.plan.launches.push(sum);
        }
        self.barrier();
    }

    /// The parts of all devices are added to the residual stream, and the sum is normalised: each
    /// device does so with all rows, or with a share of them, which is its alone from now on, and
    /// stores the norms on all.
    pub(super) fn norm_of_parts(
        &mut self,
        norm: NormOf,
        [rows, width]: [u32; 2],
        part: Scratch,
    ) -> Result<(), Unsupported> {
        let one_shot = self.in_one_shot([rows, width]);
        let (weight, float) = self.plain(norm.weight)?;
        let devices = self.devices();
        let types = [Float::Bf16; 2];
        let copies = if one_shot { 1 } else { devices };
        let [part_type, out] = types;
        let residual = ResidualAdd::BeforeNorm;
        let shape = SumNormShape {
            parts: devices,
            copies,
            residual,
            width,
            part: part_type,
            weight: float,
            out,
            eps: norm.eps,
        };
        let [first, end] = if one_shot { [0, rows] } else { share(rows, self.device, devices) };
        self.barrier();
        if end > first {
            let arch = self.arch;
            let kernel = self.kernel(format!("{shape:?}"), || sum_rms_norm(arch, shape));
            let own = self.device as usize;
            let x = self.on_each(Scratch::Residual, first, width, Float::F32)[own];
            let parts = self.on_each(part, first, width, types[0]);
            let norms = self.on_each(Scratch::Normed, first, width, types[1]);
            let norms = norms.into_iter().enumerate().filter(|&(device, _)| !one_shot || device == own);
            let memory = [x].into_iter().chain(parts).chain([weight]).chain(norms.map(|(_, norm)| norm));
            let args = memory.map(LaunchArg::Pointer).collect();
            self.plan.launches.push(Launch { kernel, grid: LaunchGrid::Blocks(end - first), args });
        }
        if one_shot {
            self.last_part = Some(part);
        } else {
            self.shared_rows = true;
            self.barrier();
        }
        Ok(())
    }

    /// After a step no device reads the place that the next step begins with: the embedding's
    /// parts.
    pub(super) fn close(&mut self) {
        if self.last_part == Some(Scratch::Part) {
            self.barrier();
        }
    }

    /// Activations of every device, from a row on.
    fn on_each(&self, scratch: Scratch, row: u32, width: u32, float: Float) -> Vec<LaunchMemory> {
        let first = u64::from(row) * u64::from(width) * u64::from(float.bytes());
        (0..self.devices()).map(|device| LaunchMemory::Of { device, scratch, first }).collect()
    }

    /// The parts of all devices are added up by NCCL, and the sum is on all.
    fn all_reduce(&mut self, [rows, width]: [u32; 2], float: Float, to: Scratch) {
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

    /// Rows of f32 copied as bf16.
    pub(super) fn copy_rows(&mut self, [rows, width]: [u32; 2], arrays: [LaunchMemory; 2]) -> Launch {
        let types = [Float::F32, Float::Bf16];
        let strides = [width; 2];
        let shape = PartsShape { parts: 1, copies: 1, width, strides, types, vector: vector(width, Float::F32) };
        self.sum_of(shape, rows, arrays.into_iter())
    }

    /// The logits of all devices below each other's rows, `[rows, vocab]`, on the device that
    /// chooses: what each of them has is `part` wide.
    pub(super) fn all_logits(&mut self, rows: u32, part: u32) -> (LaunchMemory, Vec<Launch>) {
        let devices = self.devices();
        let vocab = part * devices;
        let types = [Float::F32; 2];
        let strides = [part, vocab];
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
