//! Whole heads rotated on a device.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_graph::op::RopePairs;
use tilewright_kernels::kv::PoolType;
use tilewright_kernels::rope::{self, HeadPart};
use tilewright_kernels::tile::Float;

use crate::ops::{HeadColumns, HeadOutput, Rope};
use crate::program::Span;
use crate::vm::device::{Call, DeviceFunction, DeviceOp, KvPools, Planned, Planner, RotationRows, WeightStages};
use crate::vm::rows_of;
use crate::vm::{Unsupported, multiple};

impl DeviceOp for Rope {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let heads = match self.columns {
            Some(columns) => columns.heads as u32,
            None => plan.extent(self.x, 1)?,
        };
        let count = self.heads.len() as u32;
        // Without an append there is no pool to learn the pages from: any pool of the program has
        // the same.
        let pool = match self.output {
            HeadOutput::Append { pool } => pool,
            HeadOutput::Store { .. } => plan.any_pool()?,
        };
        let rotation = self.rope.as_ref().map(|rope| plan.rotation(rope, &self.at, pool)).transpose()?;
        let interleaved = self.pairs == RopePairs::Interleaved && self.rope.is_some();
        let part = match self.columns {
            None if interleaved => {
                let problem = "neighbours rotate in whole heads".to_owned();
                return Err(Unsupported::Refused { problem });
            }
            None => None,
            Some(HeadColumns { heads, from, dim, to }) => {
                let width = plan.extent(self.x, 0)? / (heads as u32).max(1);
                let [from, dim, to] = [from, dim, to].map(|extent| extent as u32);
                multiple("the dimensions of a part of a head", dim, 2, "a multiple of 2")?;
                Some(HeadPart { width, from, dim, to, interleaved })
            }
        };
        let (out, target) = match self.output {
            HeadOutput::Store { out } => (Some(plan.plain_float("out", out)?), out),
            HeadOutput::Append { pool } => (None, pool),
        };
        let dim = match part {
            Some(part) => part.dim,
            None => plan.extent(self.x, 0)?,
        };
        let norm = match &self.norm {
            Some(norm) => Some(NormCode {
                weight: plan.float("norm weight", norm.weight)?,
                eps: norm.eps,
                is_of_row: plan.extent(norm.weight, 0)? != dim,
            }),
            None => None,
        };
        let x = plan.plain_float("x", self.x)?;
        let pools = plan.pools(pool, &self.at)?;
        if part.is_some() && plan.extent(target, 0)? != pools.dim {
            let problem = "parts of heads that are not as wide as keys".to_owned();
            return Err(Unsupported::Refused { problem });
        }
        let function = RotatedHeads { rows: rows_of(self.rows)?, heads, count, x, part, norm, rotation, out, pools };
        let fields = RopeFields {
            first_row: self.rows.lo as u32,
            first_head: self.heads.lo as u32,
            x: plan.operand(self.x)?,
            norm: plan.operand_of(self.norm.as_ref().map(|norm| norm.weight))?,
            out: plan.operand(target)?,
        };
        match (pools.of, &self.output) {
            (PoolType::E4m3, HeadOutput::Append { .. }) => {
                Ok(Planned::new(function, RopeCodeFields { fields, scale: plan.pool_scale(pool)? }))
            }
            (PoolType::E4m3, HeadOutput::Store { .. }) | (PoolType::Float(_), _) => Ok(Planned::new(function, fields)),
        }
    }
}

/// The record fields of a task that appends codes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RopeCodeFields {
    fields: RopeFields,
    /// The factor of the pool's codes, as bits of f32.
    scale: u32,
}

/// The record fields of a task: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RopeFields {
    first_row: u32,
    first_head: u32,
    x: u32,
    /// The weight of the norm, if there is one.
    norm: u32,
    /// The destination, or the pool.
    out: u32,
}

/// The norm before the rotation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NormCode {
    /// Storage of the weight.
    weight: Float,
    /// Added to the mean square.
    eps: f32,
    /// Whether all heads of a row have one mean square.
    is_of_row: bool,
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
struct RotatedHeads {
    /// Rows of the task.
    rows: u32,
    /// Heads of the input.
    heads: u32,
    /// Heads of the task.
    count: u32,
    /// Storage of the input.
    x: Float,
    /// The part of heads that is taken.
    part: Option<HeadPart>,
    /// The norm.
    norm: Option<NormCode>,
    /// The rotation.
    rotation: Option<RotationRows>,
    /// Storage of the output; `None`: the pool.
    out: Option<Float>,
    /// The pools.
    pools: KvPools,
}

impl DeviceFunction for RotatedHeads {
    fn pools(&self) -> Option<KvPools> {
        Some(self.pools)
    }

    fn run<'k>(&self, call: Call<'k, '_>, _: &dyn WeightStages<'k>) {
        let RotatedHeads { rows, heads, count, x, part, norm, rotation, out, pools } = *self;
        let first_row = call.value(offset_of!(RopeFields, first_row));
        let pages = match out {
            Some(_) => call.pages_of(call.array(offset_of!(RopeFields, x), x), pools),
            None => call.pages([offset_of!(RopeFields, out), offset_of!(RopeCodeFields, scale)], pools),
        };
        let norm = norm.map(|NormCode { weight, eps, is_of_row }| rope::HeadNorm {
            weight: call.plain(offset_of!(RopeFields, norm), weight),
            eps,
            together: is_of_row.then_some(heads),
        });
        let x = call.array(offset_of!(RopeFields, x), x);
        let out = out.map(|out| call.array(offset_of!(RopeFields, out), out));
        let rotation = rotation.map(|rotation| call.rotation(rotation));
        let first_head = call.value(offset_of!(RopeFields, first_head));
        let out_heads = heads;
        let work = rope::HeadRotation {
            x,
            part,
            norm,
            rotation,
            heads,
            out_heads,
            first_head,
            count,
            rows,
            first_row,
            pages,
            out,
        };
        rope::rope(call.consumers(), work);
    }
}
