//! Sums of parts on a device.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_kernels::gemv::activations::{Centre, PartSums, PostNorm};
use tilewright_kernels::tile::Float;

use crate::ops::{Reduce, SumNorm};
use crate::program::Span;
use crate::vm::device::{
    Call, DeviceFunction, DeviceOp, Generation, Planned, Planner, ScaledCode, SharedBytes, Storage, WeightStages,
};
use crate::vm::{Unsupported, multiple, rows_of};

impl DeviceOp for Reduce {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let width = plan.extent(self.out, 0)?;
        let columns = [width, self.cols.lo as u32, self.cols.hi as u32];
        columns.iter().try_for_each(|&at| multiple("the columns of a sum of parts", at, 4, "a multiple of 4"))?;
        let stored = |buffer| {
            plan.plain_float("a sum of parts", buffer)?;
            plan.storage("a sum of parts", buffer)
        };
        let residual = self.residual.map(stored).transpose()?;
        let out = stored(self.out)?;
        let storages = self.parts.iter().map(|&part| stored(part)).collect::<Result<Vec<_>, _>>()?;
        let part = storages.first().copied().filter(|first| storages.iter().all(|other| other == first));
        let part = part.ok_or(Unsupported::Sent)?;
        let parts = self.parts.iter().map(|&part| plan.operand(part)).collect::<Result<Vec<_>, _>>()?;
        // One after the other, as the lowering adds them: a record has the first alone.
        let first = parts[0];
        let step = parts.get(1).map_or(0, |second| second.wrapping_sub(parts[0]));
        let count = parts.len() as u32;
        if (0u32..).zip(&parts).any(|(number, &part)| part != first.wrapping_add(number.wrapping_mul(step))) {
            let what = "parts of a sum whose buffers lie apart";
            let expected = "of equal distance from one to the next";
            return Err(Unsupported::Number { what, found: parts.len(), expected });
        }
        let scaled = plan.scaled_output()?;
        let fields = ReduceFields {
            first_row: self.rows.lo as u32,
            columns: [self.cols.lo as u32, self.cols.hi as u32],
            parts: first,
            residual: plan.operand_of(self.residual)?,
            out: plan.operand(self.out)?,
            scaled: scaled.map(|(_, operands)| operands).unwrap_or_default(),
            norm: plan.operand_of(self.norm.map(|norm| norm.weight))?,
            bias: plan.operand_of(self.norm.and_then(|norm| norm.layer?.bias))?,
        };
        let norm = match self.norm {
            None => None,
            Some(SumNorm { weight, eps, layer }) => {
                let bias = layer.and_then(|layer| layer.bias);
                let bias = bias.map(|bias| plan.float("norm bias", bias)).transpose()?;
                Some(NormCode { weight: plan.float("norm weight", weight)?, eps, centred: layer.is_some(), bias })
            }
        };
        let bytes = match (norm, scaled) {
            (Some(NormCode { bias: Some(_), .. }), _) => size_of_val(&fields),
            (Some(_), _) => offset_of!(ReduceFields, bias),
            (None, Some(_)) => offset_of!(ReduceFields, norm),
            (None, None) => offset_of!(ReduceFields, scaled),
        };
        let scaled = scaled.map(|(code, _)| code);
        let across = plan.far(self.out)?.is_some();
        let rows = rows_of(self.rows)?;
        let function = SumTile { rows, width, count, step, part, norm, residual, out, scaled, across };
        Ok(Planned::new(function, fields).keeping(bytes))
    }
}

/// What the code reads of a task: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ReduceFields {
    first_row: u32,
    columns: [u32; 2],
    /// The first part.
    parts: u32,
    residual: u32,
    out: u32,
    /// Where terms of the sum, sums of squares and the weight of the norm lie, if terms are stored.
    scaled: [u32; 3],
    /// The weight of the sum's norm, if there is one.
    norm: u32,
    /// Its bias, if there is one.
    bias: u32,
}

/// The norm of a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NormCode {
    /// Storage of the weight.
    weight: Float,
    /// Added to the mean square.
    eps: f32,
    /// Whether the mean is subtracted.
    centred: bool,
    /// Storage of the bias.
    bias: Option<Float>,
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
struct SumTile {
    rows: u32,
    /// Columns of the whole sum.
    width: u32,
    /// Parts.
    count: u32,
    /// From a part to the next, in units of 16 bytes.
    step: u32,
    /// How each is stored.
    part: Storage,
    /// The norm of the sum.
    norm: Option<NormCode>,
    /// Storage of what the sum is added to.
    residual: Option<Storage>,
    /// Storage of the sum.
    out: Storage,
    /// How terms of the sum are stored, if they are.
    scaled: Option<ScaledCode>,
    /// Whether other devices store parts.
    across: bool,
}

impl DeviceFunction for SumTile {
    fn shared(&self, warps: u32) -> SharedBytes {
        let is_centred = self.norm.is_some_and(|norm| norm.centred);
        SharedBytes { sums: 0, operand: if is_centred { (4 * self.rows.max(warps)).next_multiple_of(8) } else { 0 } }
    }

    fn run<'k>(&self, call: Call<'k, '_>, _: &dyn WeightStages<'k>) {
        let SumTile { part, norm, residual, out, scaled, across, .. } = *self;
        let first = call.stored(offset_of!(ReduceFields, parts), part, Generation::Input);
        let first = if across { first.across_devices().unless(call.left()) } else { first };
        // Elements of 16 bytes: packets are twice as long.
        let per_strip = if part.period > 0 { 2 } else { 4 };
        let part = |number: u32| first.from(call.builder().lit(number * self.step * per_strip));
        let column = |at: usize| call.value(offset_of!(ReduceFields, columns) + 4 * at);
        let sums = PartSums {
            parts: (0..self.count).map(part).collect(),
            norm: norm.map(|NormCode { weight, eps, centred, bias }| PostNorm {
                weight: call.plain(offset_of!(ReduceFields, norm), weight),
                eps,
                squares: call.scratch().squares,
                centre: centred.then(|| Centre {
                    sums: call.scratch().operand.cast(),
                    bias: bias.map(|bias| call.plain(offset_of!(ReduceFields, bias), bias)),
                }),
            }),
            residual: residual.map(|of| call.stored(offset_of!(ReduceFields, residual), of, Generation::Residual)),
            out: call.stored(offset_of!(ReduceFields, out), out, Generation::Output),
            scaled: scaled.map(|code| call.scaled_output(offset_of!(ReduceFields, scaled), code)),
            rows: self.rows,
            width: self.width,
            first_row: call.value(offset_of!(ReduceFields, first_row)),
            columns: [column(0), column(1)],
        };
        sums.add_up(call.consumers());
    }

    fn polls_peers(&self) -> bool {
        self.across && self.part.period > 0
    }
}
