//! Linear tiles on a device: where activations and results lie, and how they get there.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_kernels::activation::{Activation, SoftCap};
use tilewright_kernels::epilogue::ResultFunctions;
use tilewright_kernels::gemv::task::{self, ArgmaxCandidates, Early, LinearEpilogue, ProductPlan, Waits};
use tilewright_kernels::sample::tiles::TileBests;
use tilewright_kernels::tile::{Copies, Float, MAX_DEVICES};
use tilewright_kernels::weights::{PrefetchForm, Strip};

use super::input::{InputCode, InputFields};
use super::product::TileCode;
use crate::ops::{Linear, LinearInput, LinearOutput};
use crate::program::Span;
use crate::vm::device::{
    Call, DeviceFunction, DeviceOp, Generation, Planned, Planner, ScaledCode, SharedBytes, Storage, Stretch,
    WeightStages,
};
use crate::vm::resident::Rows;
use crate::vm::{Unsupported, multiple, rows_of};

impl DeviceOp for Linear {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let k = plan.extent(self.weight, 0)?;
        let features = plan.extent(self.weight, 1)?;
        let weights = match self.output {
            LinearOutput::Gated { up: Some(up), .. } => vec![self.weight, up],
            LinearOutput::Gated { up: None, .. } => vec![self.weight],
            LinearOutput::Store { .. } | LinearOutput::Heads { .. } => vec![self.weight],
            LinearOutput::Add { .. } | LinearOutput::Logits { .. } => vec![self.weight],
        };
        let strip = plan.strip(k, &weights)?;
        multiple("the first feature of a tile", self.cols.lo as u32, Strip::ROWS, "a multiple of 8")?;
        let input = InputCode::plan(&self.input, plan, &weights, strip)?;
        let bias = self.bias.map(|bias| plan.float("bias", bias)).transpose()?;
        let (rows_of_stream, output) = OutputCode::plan(self, plan)?;
        let turns = if matches!(rows_of_stream, Rows::Interleaved(..)) { 2 } else { 1 };
        let stream = plan.stream(rows_of_stream, strip, features as usize);
        let first = self.cols.lo / 8 * turns;
        let strips = self.cols.len().div_ceil(8) * turns;
        let out = self.output.out();
        let heads = self.heads(plan, features, &output)?;
        let of_heads = matches!(output, OutputCode::Heads { .. });
        let width = plan.extent(out, 0)? * if of_heads { plan.extent(out, 1)? } else { 1 };
        let rows = rows_of(self.rows)?;
        let waits = match self.output {
            LinearOutput::Logits { .. } => Waits::InLogits,
            LinearOutput::Store { .. }
            | LinearOutput::Heads { .. }
            | LinearOutput::Add { .. }
            | LinearOutput::Gated { .. } => Waits::InShared(strips as u32),
        };
        let tile = TileCode::new(plan, strip, rows, input, waits);
        let common = TileFields {
            first_row: self.rows.lo as u32,
            first: self.cols.lo as u32,
            end: self.cols.hi as u32,
            input: InputFields::plan(&self.input, plan, &weights, strip, tile.product.a_operand)?,
            bias: plan.operand_of(self.bias)?,
            out: plan.operand(out)?,
        };
        let weights = Stretch { stream, first, strips, taken: tile.taken() };
        let early = plan.options().early_signal().filter(|_| output.is_packets());
        let pitch = heads.map(|heads| heads.pitch);
        let function = LinearTile { tile, bias, output, width, early, pitch };
        Ok(self.fields(plan, function, common, heads)?.streaming(weights))
    }
}

/// What the code reads of every tile: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct TileFields {
    first_row: u32,
    /// The first feature.
    first: u32,
    /// One past the last feature.
    end: u32,
    input: InputFields,
    bias: u32,
    out: u32,
}

/// The fields of a tile that is added to a residual.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AddFields {
    tile: TileFields,
    residual: u32,
    /// Operands of split activations, sums of squares and the norm weight, if split activations are
    /// stored.
    scaled: [u32; 3],
}

/// The fields of a tile that is sent to other devices.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SendFields {
    tile: TileFields,
    /// The destination operand of each device.
    outs: [u32; MAX_DEVICES],
}

/// The fields of a tile of two layers.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct GatedFields {
    tile: TileFields,
    up_bias: u32,
    /// Operands of split activations, if they are stored.
    scaled: [u32; 3],
}

/// The fields of a tile of logits.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct LogitsFields {
    tile: TileFields,
    best_value: u32,
    best_index: u32,
    /// The index of the tile.
    index: u32,
    /// The first feature's index, where the layer has a part of the vocabulary.
    shard: u32,
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearTile {
    /// The product.
    pub tile: TileCode,
    /// Storage of the bias.
    bias: Option<Float>,
    /// The epilogue.
    output: OutputCode,
    /// Features of a row of the output.
    width: u32,
    /// The point before the stores at which the task signals, if it signals early.
    early: Option<Early>,
    /// Elements of a row of activations, where the tile is of a head, whose record has its columns.
    pitch: Option<u32>,
}

/// Where a tile of a head has its activations and its results.
#[derive(Clone, Copy)]
struct HeadPlace {
    /// Elements of a row of activations.
    pitch: u32,
    /// The head's first column.
    along: u32,
    /// What is added to features, where heads of the output are wider than they have features.
    shift: u32,
}

/// The fields of a tile of a head.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct HeadFields {
    tile: TileFields,
    along: u32,
    shift: u32,
}

/// The epilogue of a linear layer, specialised for a device function.
#[derive(Clone, Debug, PartialEq)]
enum OutputCode {
    /// Stored.
    Store { out: Storage },
    /// Stored into heads.
    Heads { out: Float },
    /// Stored on several devices.
    Send { to: Vec<u32>, out: Storage },
    /// Added to a residual.
    Add { residual: Storage, out: Storage, scaled: Option<ScaledCode> },
    /// `activation(y) · u`, where it is `gated`; else `activation(y)`.
    Gated { activation: Activation, gated: bool, up_bias: Option<Float>, out: Storage, scaled: Option<ScaledCode> },
    /// Logits and the largest of the tile, perhaps a shard's, perhaps on another device.
    Logits { soft_cap: Option<SoftCap>, tiles: u32, shard: bool, on: Option<u32> },
}

impl OutputCode {
    /// Whether all that is stored are packets.
    fn is_packets(&self) -> bool {
        match self {
            OutputCode::Store { out }
            | OutputCode::Send { out, .. }
            | OutputCode::Add { out, scaled: None, .. }
            | OutputCode::Gated { out, scaled: None, .. } => out.period > 0,
            OutputCode::Heads { .. }
            | OutputCode::Add { scaled: Some(_), .. }
            | OutputCode::Gated { scaled: Some(_), .. }
            | OutputCode::Logits { .. } => false,
        }
    }

    /// The code of an output, and the stream of the layer's rows.
    fn plan(op: &Linear, plan: &mut Planner) -> Result<(Rows, OutputCode), Unsupported> {
        let matrix = Rows::Matrix(op.weight);
        Ok(match op.output {
            LinearOutput::Store { out, ref sent } if !sent.is_empty() => {
                let (to, out) = plan.destinations("out", sent.iter().copied().chain([out]))?;
                (matrix, OutputCode::Send { to: to.devices, out })
            }
            LinearOutput::Heads { out } => (matrix, OutputCode::Heads { out: plan.plain_float("out", out)? }),
            LinearOutput::Store { out, .. } => (matrix, OutputCode::Store { out: plan.storage("out", out)? }),
            LinearOutput::Add { residual, out } => {
                let scaled = plan.scaled_output()?.map(|(code, _)| code);
                let residual = plan.residual(residual)?;
                let out = plan.storage("out", out)?;
                (matrix, OutputCode::Add { residual, out, scaled })
            }
            LinearOutput::Gated { activation, up, up_bias, out } => {
                let up_bias = up_bias.map(|bias| plan.float("up bias", bias)).transpose()?;
                let scaled = plan.scaled_output()?.map(|(code, _)| code);
                let out = plan.storage("out", out)?;
                let rows = up.map_or(matrix, |up| Rows::Interleaved(op.weight, up));
                (rows, OutputCode::Gated { activation, gated: up.is_some(), up_bias, out, scaled })
            }
            LinearOutput::Logits { soft_cap, out, shard, best_value, best_index, .. } => {
                let on = plan.far(out)?;
                if [best_value, best_index].into_iter().any(|best| plan.far(best) != Ok(on)) {
                    return Err(Unsupported::Sent);
                }
                let soft_cap = soft_cap.map(SoftCap::new).transpose()?;
                let tiles = plan.extent(best_value, 0)?;
                (matrix, OutputCode::Logits { soft_cap, tiles, shard: shard.is_some(), on })
            }
        })
    }
}

impl Linear {
    /// The place of the head whose features a tile has; `None` where features are of no head.
    fn heads(&self, plan: &Planner, features: u32, output: &OutputCode) -> Result<Option<HeadPlace>, Unsupported> {
        let refused = |problem: &str| Err(Unsupported::Refused { problem: problem.to_owned() });
        let (heads, pitch, first) = match self.input {
            LinearInput::Heads { x, heads, first } => (heads as u32, plan.extent(x, 0)?, first as u32),
            LinearInput::CombineHeads { acc, .. } => {
                let heads = plan.extent(acc, 2)?;
                (heads, heads * plan.extent(acc, 0)?, 0)
            }
            LinearInput::Plain { .. } | LinearInput::RmsNorm { .. } | LinearInput::Combine { .. } => {
                return match output {
                    OutputCode::Heads { .. } => refused("features of heads of activations that heads share"),
                    OutputCode::Store { .. } | OutputCode::Send { .. } | OutputCode::Add { .. } => Ok(None),
                    OutputCode::Gated { .. } | OutputCode::Logits { .. } => Ok(None),
                };
            }
        };
        if !matches!(self.output, LinearOutput::Heads { .. } | LinearOutput::Store { .. }) {
            return refused("features of heads that are not stored as they are");
        }
        let each = features / heads.max(1);
        let [lo, hi] = [self.cols.lo, self.cols.hi].map(|col| col as u32);
        let head = lo / each.max(1);
        if hi > (head + 1) * each {
            return refused("a tile of features of several heads");
        }
        let along = head * (pitch / heads.max(1)) + first;
        if along > 0 {
            multiple("the first column of a head", along, 32, "a multiple of 32")?;
        }
        let mut shift = 0;
        if let LinearOutput::Heads { out } = self.output {
            shift = head * (plan.extent(out, 0)? - each);
        }
        Ok(Some(HeadPlace { pitch, along, shift }))
    }

    /// A planned tile, with the fields of its output in addition to those of all tiles.
    fn fields(
        &self,
        plan: &mut Planner,
        function: LinearTile,
        tile: TileFields,
        heads: Option<HeadPlace>,
    ) -> Result<Planned, Unsupported> {
        Ok(match self.output {
            LinearOutput::Store { out, ref sent } if !sent.is_empty() => {
                let (to, _) = plan.destinations("out", sent.iter().copied().chain([out]))?;
                let bytes = offset_of!(SendFields, outs) + size_of_val(&to.operands[..]);
                Planned::new(function, SendFields { tile, outs: to.fields() }).keeping(bytes)
            }
            LinearOutput::Store { .. } | LinearOutput::Heads { .. } => match heads {
                None => Planned::new(function, tile),
                Some(HeadPlace { along, shift, .. }) => Planned::new(function, HeadFields { tile, along, shift }),
            },
            LinearOutput::Add { residual, .. } => {
                let scaled = plan.scaled_output()?.map(|(_, operands)| operands);
                let fields = AddFields { tile, residual: plan.operand(residual)?, scaled: scaled.unwrap_or_default() };
                let bytes = if scaled.is_some() { size_of_val(&fields) } else { offset_of!(AddFields, scaled) };
                Planned::new(function, fields).keeping(bytes)
            }
            LinearOutput::Gated { up_bias, .. } => {
                let scaled = plan.scaled_output()?.map(|(_, operands)| operands);
                let up_bias = plan.operand_of(up_bias)?;
                let fields = GatedFields { tile, up_bias, scaled: scaled.unwrap_or_default() };
                let bytes = if scaled.is_some() { size_of_val(&fields) } else { offset_of!(GatedFields, scaled) };
                Planned::new(function, fields).keeping(bytes)
            }
            LinearOutput::Logits { best_value, best_index, tile: index, shard, .. } => {
                let [best_value, best_index] = [plan.operand(best_value)?, plan.operand(best_index)?];
                let index = index as u32;
                let first = shard.map_or(0, |shard| shard.first as u32);
                let fields = LogitsFields { tile, best_value, best_index, index, shard: first };
                let bytes = if shard.is_some() { size_of_val(&fields) } else { offset_of!(LogitsFields, shard) };
                Planned::new(function, fields).keeping(bytes)
            }
        })
    }
}

impl LinearTile {
    fn epilogue<'k>(&self, call: Call<'k, '_>) -> LinearEpilogue<'k, 'k> {
        let stored = |out| call.stored(offset_of!(TileFields, out), out, Generation::Output);
        let to = |out: Copies<'k>| LinearEpilogue::to(Some(out), self.width);
        match self.output {
            OutputCode::Store { out } => to(stored(out).into()),
            OutputCode::Heads { out } => {
                let out = call.array(offset_of!(TileFields, out), out);
                to(out.from(call.value(offset_of!(HeadFields, shift))).into())
            }
            OutputCode::Send { to: ref devices, out } => to(call.copies(offset_of!(SendFields, outs), devices, out)),
            OutputCode::Add { residual, out, scaled } => {
                let residual = Some(call.stored(offset_of!(AddFields, residual), residual, Generation::Residual));
                let scaled = scaled.map(|code| call.scaled_output(offset_of!(AddFields, scaled), code));
                LinearEpilogue { residual, scaled, ..to(stored(out).into()) }
            }
            OutputCode::Gated { activation, gated, up_bias, out, scaled } => {
                let up_bias = up_bias.map(|bias| call.plain(offset_of!(GatedFields, up_bias), bias).into());
                let scaled = scaled.map(|code| call.scaled_output(offset_of!(GatedFields, scaled), code));
                let functions = ResultFunctions { activation: Some(activation), soft_cap: None };
                let out = scaled.is_none().then(|| stored(out).into());
                let to = LinearEpilogue::to(out, self.width);
                LinearEpilogue { bias: [None, up_bias], gated, functions, scaled, ..to }
            }
            OutputCode::Logits { soft_cap, tiles, shard, on } => {
                let [value, index] = [offset_of!(LogitsFields, best_value), offset_of!(LogitsFields, best_index)]
                    .map(|at| call.state_on(on, at));
                let tile = call.value(offset_of!(LogitsFields, index));
                let bests = TileBests { value: value.cast(), index: index.cast(), tiles };
                let shard = shard.then(|| call.value(offset_of!(LogitsFields, shard)));
                let functions = ResultFunctions { activation: None, soft_cap };
                let candidates = Some(ArgmaxCandidates { bests, tile });
                let out = call.array_on(on, offset_of!(TileFields, out), Float::F32);
                LinearEpilogue { functions, candidates, shard, ..to(out.into()) }
            }
        }
    }
}

impl DeviceFunction for LinearTile {
    fn prefetch_form(&self) -> Option<PrefetchForm> {
        self.tile.product.prefetch_form()
    }

    fn takes_pairs(&self) -> Option<u32> {
        self.tile.product.pair_bytes()
    }

    fn shared(&self, warps: u32) -> SharedBytes {
        self.tile.shared(warps, if matches!(self.output, OutputCode::Gated { gated: true, .. }) { 2 } else { 1 })
    }

    fn signals_early(&self) -> bool {
        self.early.is_some()
    }

    fn polled_columns(&self) -> Option<u32> {
        self.tile.polled_columns()
    }

    fn run<'k>(&self, call: Call<'k, '_>, weights: &dyn WeightStages<'k>) {
        let first_row = call.value(offset_of!(TileFields, first_row));
        let epilogue = self.epilogue(call);
        let first = call.value(offset_of!(TileFields, first));
        let end = call.value(offset_of!(TileFields, end));
        let bias = self.bias.map(|bias| call.plain(offset_of!(TileFields, bias), bias).into());
        let epilogue = LinearEpilogue { bias: [bias, epilogue.bias[1]], ..epilogue };
        let TileCode { input, product: ProductPlan { strip, packing, a_operand, .. } } = self.tile;
        let rows = packing.rows();
        let input = input.of(call, offset_of!(TileFields, input), strip.k());
        let pitch = self.pitch.unwrap_or(strip.k());
        let input = match self.pitch {
            Some(_) => input.from(call.value(offset_of!(HeadFields, along))),
            None => input,
        };
        let tile = task::LinearTask {
            strip,
            pitch,
            rows,
            first_row,
            first,
            end,
            stride: Strip::ROWS,
            input,
            a_operand,
            slots: None,
            epilogue,
        };
        call.announcing(self.early, |announce| task::linear(call.consumers(), call.scratch(), weights, tile, announce));
    }
}
