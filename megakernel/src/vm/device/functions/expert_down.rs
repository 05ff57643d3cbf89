//! The second product of the chosen experts on a device.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_kernels::epilogue::ResultPlace;
use tilewright_kernels::gemv::activations::{AOperand, Packing, Prologue};
use tilewright_kernels::gemv::task::{
    self, Bias, Early, LinearEpilogue, LinearScratch, SlotPhase, SlotPhases, SlotPlan,
};
use tilewright_kernels::tile::{Copies, Float, MAX_DEVICES};
use tilewright_kernels::weights::Strip;

use super::route::RouteCode;
use crate::ops::{ExpertDown, ExpertOutput};
use crate::program::Span;
use crate::vm::device::{
    Call, DeviceFunction, DeviceOp, Generation, Planned, Planner, RingFeed, ScaledCode, SharedBytes, Storage,
    WeightStages,
};
use crate::vm::resident::Rows;
use crate::vm::{Unsupported, multiple};

/// Strips of a group of sums.
const GROUP: u32 = 4;

impl DeviceOp for ExpertDown {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let n = plan.extent(self.weight, 0)?;
        let all = plan.extent(self.weight, 1)?;
        let features = all / self.experts.max(1) as u32;
        multiple("the features of an expert", features, Strip::ROWS, "a multiple of 8")?;
        multiple("the first feature of a tile", self.cols.lo as u32, Strip::ROWS, "a multiple of 8")?;
        let strip = plan.strip(n, &[self.weight])?;
        if plan.is_ordered(&[self.weight], strip)? {
            let name = &plan.buffer(self.weight)?.name;
            let problem = format!("the codes of experts' weight `{name}` lie in an order of their own");
            return Err(Unsupported::Refused { problem });
        }
        let routes = RouteCode::plan(plan, self.routes, self.rows, [self.experts, self.chosen])?;
        let x = plan.storage("x", self.x)?;
        let packing = Packing::of(routes.rows(), x.float);
        let strips = self.cols.len().div_ceil(8) as u32;
        let registers = plan.options().activation_registers;
        let slots = SlotPlan::new(strip, packing, registers, routes.slots(), strips).ok_or_else(|| {
            let found = AOperand::registers(strip, packing) as usize;
            let (what, expected) = ("registers of the activations of an expert", "what `activation_registers` holds");
            Unsupported::Number { what, found, expected }
        })?;
        let stream = plan.stream_in_order(Rows::Matrix(self.weight), strip, all as usize);
        let mut common = DownFields {
            first: self.cols.lo as u32,
            end: self.cols.hi as u32,
            routes: plan.operand(self.routes)?,
            x: plan.operand(self.x)?,
            residual: 0,
            scaled: [0; 3],
        };
        let bias = self.bias.map(|bias| plan.float("bias", bias)).transpose()?;
        let bias_operand = plan.operand_of(self.bias)?;
        let planned = |function: DownTile, down: DownFields, outs: [u32; MAX_DEVICES], devices: usize| {
            let outs_bytes = devices.max(1) * size_of::<u32>();
            match (bias, outs) {
                (None, outs) => {
                    let bytes = offset_of!(DestinationFields, outs) + outs_bytes;
                    Planned::new(function, DestinationFields { down, outs }).keeping(bytes)
                }
                (Some(_), [outs @ .., _]) => {
                    let bytes = offset_of!(BiasedFields, outs) + outs_bytes;
                    Planned::new(function, BiasedFields { down, bias: bias_operand, outs }).keeping(bytes)
                }
            }
        };
        let start = plan.start(stream);
        let function = |output, early| DownTile { strip, slots, packing, routes, features, x, bias, output, early };
        let early = plan.options().early_signal();
        match self.output {
            ExpertOutput::Store { out, ref sent } if !sent.is_empty() => {
                let (to, out) = plan.destinations("out", sent.iter().copied().chain([out]))?;
                if bias.is_some() && to.operands.len() >= MAX_DEVICES {
                    let (what, expected) = ("devices that share experts with biases", "at most 7");
                    return Err(Unsupported::Number { what, found: to.operands.len(), expected });
                }
                let output = DownOutput::Send { to: to.devices.clone(), out };
                let early = early.filter(|_| out.period > 0);
                Ok(planned(function(output, early), common, to.fields(), to.operands.len()).reading(start))
            }
            ExpertOutput::Store { out, .. } => {
                let storage = plan.storage("out", out)?;
                let early = early.filter(|_| storage.period > 0);
                let mut outs = [0; MAX_DEVICES];
                outs[0] = plan.operand(out)?;
                Ok(planned(function(DownOutput::Store { out: storage }, early), common, outs, 1).reading(start))
            }
            ExpertOutput::Add { residual, out } => {
                let scaled = plan.scaled_output()?;
                common.scaled = scaled.map_or([0; 3], |(_, operands)| operands);
                common.residual = plan.operand(residual)?;
                let storage = plan.storage("out", out)?;
                let residual = plan.residual(residual)?;
                let early = early.filter(|_| storage.period > 0 && scaled.is_none());
                let output = DownOutput::Add { residual, out: storage, scaled: scaled.map(|(code, _)| code) };
                let mut outs = [0; MAX_DEVICES];
                outs[0] = plan.operand(out)?;
                Ok(planned(function(output, early), common, outs, 1).reading(start))
            }
        }
    }
}

/// What the code reads of a task: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct DownFields {
    /// The first feature.
    first: u32,
    /// One past the last feature.
    end: u32,
    routes: u32,
    x: u32,
    residual: u32,
    /// Operands of split activations, sums of squares and the norm weight, if split activations are
    /// stored.
    scaled: [u32; 3],
}

/// The fields, and the destination on each device.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct DestinationFields {
    down: DownFields,
    outs: [u32; MAX_DEVICES],
}

/// The fields, the biases, and the destinations. The device that adds biases sends to one device
/// fewer.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct BiasedFields {
    down: DownFields,
    bias: u32,
    outs: [u32; MAX_DEVICES - 1],
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
struct DownTile {
    /// A strip of an expert.
    strip: Strip,
    slots: SlotPlan,
    packing: Packing,
    routes: RouteCode,
    /// Features of an expert.
    features: u32,
    x: Storage,
    /// Storage of the biases.
    bias: Option<Float>,
    output: DownOutput,
    /// The point before the stores at which the task signals, if it signals early.
    early: Option<Early>,
}

/// The destination of sums.
#[derive(Clone, Debug, PartialEq)]
enum DownOutput {
    Store { out: Storage },
    Send { to: Vec<u32>, out: Storage },
    Add { residual: Storage, out: Storage, scaled: Option<ScaledCode> },
}

impl DownTile {
    fn epilogue<'k>(&self, call: Call<'k, '_>) -> LinearEpilogue<'k, 'k> {
        let outs = match self.bias {
            None => offset_of!(DestinationFields, outs),
            Some(_) => offset_of!(BiasedFields, outs),
        };
        let to = |out: Copies<'k>| LinearEpilogue::to(Some(out), self.features);
        match self.output {
            DownOutput::Store { out } => to(call.stored(outs, out, Generation::Output).into()),
            DownOutput::Send { to: ref devices, out } => to(call.copies(outs, devices, out)),
            DownOutput::Add { residual, out, scaled } => {
                let residual = Some(call.stored(offset_of!(DownFields, residual), residual, Generation::Residual));
                let scaled = scaled.map(|code| call.scaled_output(offset_of!(DownFields, scaled), code));
                LinearEpilogue { residual, scaled, ..to(call.stored(outs, out, Generation::Output).into()) }
            }
        }
    }
}

impl DeviceFunction for DownTile {
    fn shared(&self, warps: u32) -> SharedBytes {
        let sums = GROUP * LinearScratch::strip_bytes(self.packing.rows(), warps);
        SharedBytes { sums, operand: self.slots.operand_bytes(self.strip, self.packing) }
    }

    fn signals_early(&self) -> bool {
        self.early.is_some()
    }

    fn fills_after(&self) -> Option<u32> {
        Some(self.routes.wait())
    }

    fn fill<'k>(&self, feed: RingFeed<'k, '_>) {
        let k = feed.builder();
        let table = self.routes.ahead(feed, offset_of!(DownFields, routes));
        let bytes = k.lit(self.strip.stage_bytes());
        let [first, end] = [offset_of!(DownFields, first), offset_of!(DownFields, end)].map(|field| feed.value(field));
        let strips = (end - first + (Strip::ROWS - 1)) / Strip::ROWS;
        let stages = self.slots.stages(self.strip);
        let used = table.used(k.lit(0));
        k.for_(0u32, self.slots.phases(used), |number| {
            let SlotPhase { first: slot, here, part } = self.slots.phase(number, used);
            let experts: Vec<_> = (0..self.slots.slots).map(|at| table.expert((slot + at).min(used - 1))).collect();
            k.for_(0u32, strips * here, |at| {
                let mine = at % here;
                let expert = (0u32..).zip(&experts).fold(experts[0], |expert, (number, &other)| {
                    if number == 0 { expert } else { mine.eq(number).select(other, expert) }
                });
                let strip = expert * (self.features / Strip::ROWS) + first / Strip::ROWS + at / here;
                let from = (strip * self.strip.stages() + part * stages).mul_wide(bytes);
                k.for_(0u32, stages, |stage| {
                    let from = feed.packed().at(from).at(stage.mul_wide(bytes));
                    feed.stage(bytes, |to| to.bring(from, bytes));
                    k.break_if(feed.stopped());
                });
                k.break_if(feed.stopped());
            });
            k.break_if(feed.stopped());
        });
    }

    fn run<'k>(&self, call: Call<'k, '_>, weights: &dyn WeightStages<'k>) {
        let k = call.builder();
        let used = self.routes.used(call, offset_of!(DownFields, routes));
        // A single row has chosen all slots.
        let table = (self.packing.rows() > 1).then(|| self.routes.of(call, offset_of!(DownFields, routes)));
        let bias = self.bias.map(|bias| {
            let routes = self.routes.of(call, offset_of!(DownFields, routes));
            let bias = call.plain(offset_of!(BiasedFields, bias), bias);
            move |place: ResultPlace<'k>| {
                let sum = k.var(0.0f32);
                k.for_(0u32, used, |slot| {
                    let weight = routes.weight(slot, place.row);
                    let of_expert = || bias.load(routes.expert(slot) * self.features + place.column);
                    k.when(weight.ne(0.0), || sum.set(of_expert().fma(weight, sum.get())));
                });
                sum.get()
            }
        });
        let bias = bias.as_ref().map(|bias| Bias::OfPlace(bias));
        let tile = task::LinearTask {
            strip: self.strip,
            pitch: self.routes.slots() * self.strip.k(),
            rows: self.packing.rows(),
            first_row: k.lit(0),
            first: call.value(offset_of!(DownFields, first)),
            end: call.value(offset_of!(DownFields, end)),
            stride: Strip::ROWS,
            input: Prologue::Plain(call.stored(offset_of!(DownFields, x), self.x, Generation::Input)),
            a_operand: self.slots.a_operand(self.strip),
            slots: Some(SlotPhases { used, plan: self.slots, table }),
            epilogue: LinearEpilogue { bias: [bias, None], ..self.epilogue(call) },
        };
        call.announcing(self.early, |announce| task::linear(call.consumers(), call.scratch(), weights, tile, announce));
    }
}
