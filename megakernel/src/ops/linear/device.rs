//! Linear tiles on a device: where activations and results lie, and how they get there.

use tilewright_kernels::decode::{self, Best, Float, Operand, Output, Packing, Path, Sums, Unit};

use super::{Linear, LinearInput, LinearOutput};
use crate::program::{BufferId, Span};
use crate::vm::device::{
    Call, DeviceFunction, DeviceOp, Generation, Packets, Partial, Planned, Planner, Rows, SharedBytes, Storage,
    Stretch, TaskRecord, Unsupported, Weights, multiple, rows_of,
};

/// Units of a group of sums where activations are held in registers, at least: fewer groups, fewer barriers.
const HELD_UNITS: u32 = 4;

impl DeviceOp for Linear {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plain_weights(&self) -> Vec<BufferId> {
        let up_bias = match self.output {
            LinearOutput::SiluMul { up_bias, .. } => up_bias,
            LinearOutput::Store { .. } | LinearOutput::Add { .. } | LinearOutput::Logits { .. } => None,
        };
        self.bias.into_iter().chain(up_bias).chain(self.input.norm_weight()).collect()
    }

    fn packets(&self) -> Packets {
        let even = self.cols.lo.is_multiple_of(2) && self.cols.hi.is_multiple_of(2);
        let (residual, output) = match self.output {
            LinearOutput::Store { out } | LinearOutput::SiluMul { out, .. } => (None, Some(out)),
            LinearOutput::Add { residual, out } => (Some(residual), Some(out)),
            LinearOutput::Logits { .. } => (None, None),
        };
        Packets { input: self.input.rows_of(), residual, output: output.filter(|_| even) }
    }

    fn partial(&self) -> Option<Partial> {
        self.input.partial(self.rows)
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let (k, features) = (plan.extent(self.weight, 0)?, plan.extent(self.weight, 1)?);
        let unit = plan.unit(k)?;
        multiple("the first feature of a tile", self.cols.lo as u32, Unit::ROWS, "a multiple of 8")?;
        let (input, [x, second]) = InputCode::plan(&self.input, plan)?;
        let bias = self.bias.map(|bias| plan.float("bias", bias)).transpose()?;
        let (rows_of_stream, output, extra, index) = OutputCode::plan(self, plan)?;
        let turns = if matches!(rows_of_stream, Rows::Turns(..)) { 2 } else { 1 };
        let stream = plan.stream(rows_of_stream, unit, features as usize);
        let (first, units) = (self.cols.lo / 8 * turns, self.cols.len().div_ceil(8) * turns);
        let out = self.output.out();
        let width = plan.extent(out, 0)?;
        let rows = rows_of(self.rows)?;
        let path = plan_path(plan, rows, unit, input);
        let tile = TileCode { unit, rows, input, path };
        let mut operands = plan.operands(&[x, second, self.bias, extra[0], extra[1], Some(out)])?;
        if let LinearInput::Combine { acc, .. } = self.input {
            operands[0] = plan.merged(acc)?[0];
        }
        let (first_row, lo, end) = (self.rows.lo as u32, self.cols.lo as u32, self.cols.hi as u32);
        let record = TaskRecord { first_row, first: lo, end, index, operands, ..TaskRecord::default() };
        let weights = Stretch { stream, first, units, group: tile.group() };
        Ok(Planned::new(LinearTile { tile, bias, output, width }, record).streaming(weights))
    }
}

impl LinearInput {
    /// The weight of the norm.
    pub(in crate::ops) fn norm_weight(&self) -> Option<BufferId> {
        match *self {
            LinearInput::RmsNorm { weight, .. } => Some(weight),
            LinearInput::Plain { .. } | LinearInput::Combine { .. } => None,
        }
    }

    /// The rows of activations, where they are not merged.
    pub(in crate::ops) fn rows_of(&self) -> Option<BufferId> {
        match *self {
            LinearInput::Plain { x } | LinearInput::RmsNorm { x, .. } => Some(x),
            LinearInput::Combine { .. } => None,
        }
    }

    /// The partial results that it merges.
    pub(in crate::ops) fn partial(&self, rows: Span) -> Option<Partial> {
        match *self {
            LinearInput::Combine { acc, stats } => Some(Partial { acc, stats, rows, written: None }),
            LinearInput::Plain { .. } | LinearInput::RmsNorm { .. } => None,
        }
    }
}

/// Where activations come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InputCode {
    /// As they are, or as attention merged them.
    Plain {
        /// Storage.
        x: Storage,
    },
    /// Normalised.
    RmsNorm {
        /// Storage.
        x: Storage,
        /// Storage of the weight.
        weight: Float,
        /// Added to the mean square.
        eps: f32,
    },
}

impl InputCode {
    /// The code of an input, and its two operands.
    pub(in crate::ops) fn plan(
        input: &LinearInput,
        plan: &mut Planner,
    ) -> Result<(InputCode, [Option<BufferId>; 2]), Unsupported> {
        Ok(match *input {
            LinearInput::Plain { x } => (InputCode::Plain { x: plan.storage("x", x)? }, [Some(x), None]),
            LinearInput::RmsNorm { x, weight, eps } => {
                let (storage, weight_float) = (plan.storage("x", x)?, plan.float("norm weight", weight)?);
                (InputCode::RmsNorm { x: storage, weight: weight_float, eps }, [Some(x), Some(weight)])
            }
            LinearInput::Combine { acc, .. } => (InputCode::Plain { x: plan.merge(acc)? }, [None; 2]),
        })
    }

    /// How so many rows lie in the MMA's operand.
    fn packing(self, rows: u32) -> Packing {
        Packing::of(rows, if let InputCode::Plain { x } = self { x.float } else { Float::F32 })
    }

    /// The activations of a task, whose operands they are the first two of.
    pub(in crate::ops) fn of<'k>(self, call: Call<'k, '_>) -> decode::Input<'k> {
        match self {
            InputCode::Plain { x } => decode::Input::Plain(call.stored(0, x, Generation::Input)),
            InputCode::RmsNorm { x, weight, eps } => {
                decode::Input::RmsNorm { x: call.stored(0, x, Generation::Input), weight: call.plain(1, weight), eps }
            }
        }
    }
}

/// The way that activations take: of few rows they are copied, of more they are held in registers; what has no room is
/// streamed.
pub(in crate::ops) fn plan_path(plan: &Planner, rows: u32, unit: Unit, input: InputCode) -> Path {
    let (packing, options) = (input.packing(rows), plan.options());
    // A ring of less than half of the memory does not last while the team waits.
    let room = Operand::bytes(unit, packing) <= plan.target().shared_bytes_per_block as u32 / 2;
    match (rows >= options.held_rows, room) {
        (true, _) if Path::registers(unit, packing) <= options.held_registers => Path::Held,
        (false, true) => Path::Copied,
        (true, _) | (false, false) => Path::Streamed { group: (options.streamed_units & !1).clamp(2, 64) },
    }
}

/// What tiles of products have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileCode {
    /// Shape of a unit.
    pub unit: Unit,
    /// Rows of the task.
    pub rows: u32,
    /// Activations.
    pub input: InputCode,
    /// The way that they take.
    pub path: Path,
}

impl TileCode {
    /// Units of a group, where weights come group by group.
    pub(in crate::ops) fn group(&self) -> Option<u32> {
        match self.path {
            Path::Streamed { group } => Some(group),
            Path::Copied | Path::Held => None,
        }
    }

    /// Shared memory, where a unit of features has `streams` units of weights.
    pub(in crate::ops) fn shared(&self, warps: u32, streams: u32) -> SharedBytes {
        let (units, operand) = match self.path {
            Path::Copied => (streams, Operand::bytes(self.unit, self.input.packing(self.rows))),
            Path::Held => (HELD_UNITS, 0),
            Path::Streamed { group } => (group, 0),
        };
        SharedBytes { sums: units * Sums::bytes(self.rows, warps), operand }
    }
}

/// The device function. Operands: the input's two, bias, the output's two, what it is stored to.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearTile {
    /// The product.
    pub tile: TileCode,
    /// Storage of the bias.
    bias: Option<Float>,
    /// What becomes of the result.
    output: OutputCode,
    /// Features of a row of the output.
    width: u32,
}

/// What becomes of a linear layer's features.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OutputCode {
    /// Stored.
    Store { out: Storage },
    /// Added to a residual.
    Add { residual: Storage, out: Storage },
    /// `silu(y) · u`.
    SiluMul { up_bias: Option<Float>, out: Storage },
    /// Logits and the largest of the tile.
    Logits { tiles: u32 },
}

/// An output's code, with the stream of the layer's rows, two operands, and the tile of the logits.
type Outcome = (Rows, OutputCode, [Option<BufferId>; 2], u32);

impl OutputCode {
    fn plan(op: &Linear, plan: &mut Planner) -> Result<Outcome, Unsupported> {
        let matrix = Rows::Matrix(op.weight);
        Ok(match op.output {
            LinearOutput::Store { out } => (matrix, OutputCode::Store { out: plan.storage("out", out)? }, [None; 2], 0),
            LinearOutput::Add { residual, out } => {
                let code = OutputCode::Add { residual: plan.residual(residual)?, out: plan.storage("out", out)? };
                (matrix, code, [Some(residual), None], 0)
            }
            LinearOutput::SiluMul { up, up_bias, out } => {
                let up_float = up_bias.map(|bias| plan.float("up bias", bias)).transpose()?;
                let code = OutputCode::SiluMul { up_bias: up_float, out: plan.storage("out", out)? };
                (Rows::Turns(op.weight, up), code, [up_bias, None], 0)
            }
            LinearOutput::Logits { best_value, best_index, tile, .. } => {
                let code = OutputCode::Logits { tiles: plan.extent(best_value, 0)? };
                (matrix, code, [Some(best_value), Some(best_index)], tile as u32)
            }
        })
    }
}

impl LinearTile {
    fn output<'k>(&self, call: Call<'k, '_>) -> Output<'k> {
        let width = self.width;
        match self.output {
            OutputCode::Store { out } => Output::Store { out: call.stored(5, out, Generation::Output), width },
            OutputCode::Add { residual, out } => {
                let residual = call.stored(3, residual, Generation::Residual);
                Output::Add { residual, out: call.stored(5, out, Generation::Output), width }
            }
            OutputCode::SiluMul { up_bias, out } => {
                let up_bias = up_bias.map(|bias| call.plain(3, bias));
                Output::SiluMul { up_bias, out: call.stored(5, out, Generation::Output), width }
            }
            OutputCode::Logits { tiles } => {
                let (value, index) = (call.state(3).cast(), call.state(4).cast());
                let best = Best { value, index, tiles, tile: call.task.index() };
                Output::Logits { out: call.array(5, Float::F32), width, best }
            }
        }
    }
}

impl DeviceFunction for LinearTile {
    fn shared(&self, warps: u32) -> SharedBytes {
        self.tile.shared(warps, if matches!(self.output, OutputCode::SiluMul { .. }) { 2 } else { 1 })
    }

    fn run<'k>(&self, call: Call<'k, '_>, weights: &dyn Weights<'k>) {
        let first_row = call.task.first_row();
        let output = self.output(call);
        let (first, end) = (call.task.first(), call.task.end());
        let bias = self.bias.map(|bias| call.plain(2, bias));
        let TileCode { unit, rows, input, path } = self.tile;
        let input = input.of(call);
        let tile = decode::Linear { unit, rows, first_row, first, end, input, path, bias, output };
        decode::linear(call.team(), call.scratch(), weights, tile);
    }
}
