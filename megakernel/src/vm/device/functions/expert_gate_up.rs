//! Gate and up of the chosen experts on a device.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_kernels::activation::Activation;
use tilewright_kernels::epilogue::{ResultFunctions, ResultPlace};
use tilewright_kernels::gemv::activations::{AOperand, Packing};
use tilewright_kernels::gemv::task::{self, Bias, LinearEpilogue, ProductPlan, Waits};
use tilewright_kernels::tile::Float;
use tilewright_kernels::weights::Strip;

use super::input::{InputCode, InputFields};
use super::product::TileCode;
use super::route::RouteCode;
use crate::ops::ExpertGateUp;
use crate::program::Span;
use crate::vm::device::{
    Call, DeviceFunction, DeviceOp, Generation, Planned, Planner, RingFeed, SharedBytes, Storage, Taken, WeightStages,
};
use crate::vm::resident::Rows;
use crate::vm::{Unsupported, multiple};

impl DeviceOp for ExpertGateUp {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let weights = [self.gate, self.up];
        let k = plan.extent(self.gate, 0)?;
        let all = plan.extent(self.gate, 1)?;
        let features = all / self.experts.max(1) as u32;
        multiple("the inside of an expert", features, Strip::ROWS, "a multiple of 8")?;
        let strip = plan.strip(k, &weights)?;
        let routes = RouteCode::plan(plan, self.routes, self.rows, [self.experts, self.chosen])?;
        let input = InputCode::plan(&self.input, plan, &weights, strip)?;
        let rows = routes.rows();
        let tile = TileCode::new(plan, strip, rows, input, Waits::Nowhere).of_part(plan);
        if let Taken::Groups(_) = tile.taken() {
            let found = AOperand::registers(strip, Packing::of(rows, input.float())) as usize;
            let (what, expected) =
                ("registers of the activations of experts", "what shared memory or `activation_registers` holds");
            return Err(Unsupported::Number { what, found, expected });
        }
        let stream = plan.stream_in_order(Rows::Interleaved(self.gate, self.up), strip, all as usize);
        let fields = GateUpFields {
            first: self.strips.first as u32,
            routes: plan.operand(self.routes)?,
            input: InputFields::plan(&self.input, plan, &weights, strip, tile.product.a_operand)?,
            out: plan.operand(self.out)?,
            biases: [plan.operand_of(self.gate_bias)?, plan.operand_of(self.up_bias)?],
        };
        let float = |what, bias: Option<_>| bias.map(|bias| plan.float(what, bias)).transpose();
        let biases = [float("gate bias", self.gate_bias)?, float("up bias", self.up_bias)?];
        let has_bias = biases.iter().any(Option::is_some);
        let bytes = if has_bias { size_of_val(&fields) } else { offset_of!(GateUpFields, biases) };
        let out = plan.storage("out", self.out)?;
        let step = self.strips.step as u32;
        let function = GateUpTile { tile, routes, features, step, activation: self.activation, out, biases };
        Ok(Planned::new(function, fields).keeping(bytes).reading(plan.start(stream)))
    }
}

/// What the code reads of a task: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct GateUpFields {
    /// The first strip, counted over all slots.
    first: u32,
    routes: u32,
    input: InputFields,
    out: u32,
    /// Those of gates and of the other factors, if there are any.
    biases: [u32; 2],
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
struct GateUpTile {
    tile: TileCode,
    routes: RouteCode,
    /// Features of an expert.
    features: u32,
    /// From a strip of the task to its next.
    step: u32,
    activation: Activation,
    out: Storage,
    /// Storage of the biases.
    biases: [Option<Float>; 2],
}

impl DeviceFunction for GateUpTile {
    fn shared(&self, warps: u32) -> SharedBytes {
        self.tile.shared(warps, 2)
    }

    fn fills_after(&self) -> Option<u32> {
        Some(self.routes.wait())
    }

    fn fill<'k>(&self, feed: RingFeed<'k, '_>) {
        let k = feed.builder();
        let strip = self.tile.product.strip;
        let table = self.routes.ahead(feed, offset_of!(GateUpFields, routes));
        let each = self.features / Strip::ROWS;
        let bytes = k.lit(strip.stage_bytes());
        let first = feed.value(offset_of!(GateUpFields, first));
        // Asked for together: the expert is there before it is known that the slot is in use.
        let next = k.var(table.expert(first / each));
        let end = table.used(k.lit(0)) * each;
        k.for_step(first, end, self.step, |at| {
            let expert = next.get();
            let following = (at + self.step).min(end - 1);
            next.set(table.expert(following / each));
            let stages = 2 * strip.stages();
            let from = feed.packed().at(((expert * each + at % each) * stages).mul_wide(bytes));
            k.for_(0u32, stages, |stage| {
                let from = from.at(stage.mul_wide(bytes));
                feed.stage(bytes, |to| to.bring(from, bytes));
                k.break_if(feed.stopped());
            });
            k.break_if(feed.stopped());
        });
    }

    fn run<'k>(&self, call: Call<'k, '_>, weights: &dyn WeightStages<'k>) {
        let k = call.builder();
        let table = self.routes.of(call, offset_of!(GateUpFields, routes));
        let TileCode { input, product: ProductPlan { strip, packing, a_operand, .. } } = self.tile;
        let features = self.features;
        let factor = |place: ResultPlace<'k>| table.weight(place.column / features, place.row);
        let out = call.stored(offset_of!(GateUpFields, out), self.out, Generation::Output);
        let bias_of = |number: usize| {
            let field = offset_of!(GateUpFields, biases) + number * size_of::<u32>();
            let bias = self.biases[number].map(|bias| call.plain(field, bias));
            bias.map(|bias| {
                move |place: ResultPlace<'k>| {
                    let expert = table.expert(place.column / features);
                    bias.load(expert * features + place.column % features)
                }
            })
        };
        let [gate_bias, up_bias] = [0, 1].map(bias_of);
        let epilogue = LinearEpilogue {
            gated: true,
            bias: [
                gate_bias.as_ref().map(|bias| Bias::OfPlace(bias)),
                up_bias.as_ref().map(|bias| Bias::OfPlace(bias)),
            ],
            functions: ResultFunctions { activation: Some(self.activation), soft_cap: None },
            factor: Some(&factor),
            ..LinearEpilogue::to(Some(out.into()), self.routes.slots() * features)
        };
        let tile = task::LinearTask {
            strip,
            pitch: strip.k(),
            rows: packing.rows(),
            first_row: k.lit(0),
            first: call.value(offset_of!(GateUpFields, first)) * Strip::ROWS,
            end: self.routes.used(call, offset_of!(GateUpFields, routes)) * features,
            stride: self.step * Strip::ROWS,
            input: input.of(call, offset_of!(GateUpFields, input), strip.k()),
            a_operand,
            slots: None,
            epilogue,
        };
        task::linear(call.consumers(), call.scratch(), weights, tile, None);
    }
}
