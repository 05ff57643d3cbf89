//! Tiles of q, k and v on a device.

use tilewright_kernels::decode::{self, Float, Heads, Keys};

use super::{KeyOutput, Qkv};
use crate::ops::LinearInput;
use crate::ops::linear::{InputCode, TileCode, plan_path};
use crate::program::{BufferId, Span};
use crate::vm::device::{
    Call, DeviceFunction, DeviceOp, KvPools, Packets, Partial, Planned, Planner, RotationRows, Rows, SharedBytes,
    Stretch, TaskRecord, Unsupported, Weights, rows_of,
};

impl DeviceOp for Qkv {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plain_weights(&self) -> Vec<BufferId> {
        let biases = [&self.wq, &self.wk, &self.wv].into_iter().filter_map(|projection| projection.bias);
        biases.chain(self.input.norm_weight()).collect()
    }

    fn packets(&self) -> Packets {
        Packets { input: self.input.rows_of(), ..Packets::default() }
    }

    fn partial(&self) -> Option<Partial> {
        self.input.partial(self.rows)
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let unit = plan.unit(plan.extent(self.wq.weight, 0)?)?;
        let (input, [x, second]) = InputCode::plan(&self.input, plan)?;
        let (heads, kv_heads, dim) = (plan.extent(self.q, 1)?, plan.extent(self.v_pool, 3)?, plan.extent(self.q, 0)?);
        let heads = Heads { heads, kv_heads, dim, splits: 1 };
        let biases = [&self.wq, &self.wk, &self.wv].map(|projection| projection.bias);
        let mut bias = [None; 3];
        for (float, buffer) in bias.iter_mut().zip(biases) {
            *float = buffer.map(|buffer| plan.float("bias", buffer)).transpose()?;
        }
        let (keys, k_out) = match &self.k {
            KeyOutput::RopeAppend { rope, pool } => (KeysCode::Rotated(plan.rotation(rope, &self.at, *pool)?), *pool),
            KeyOutput::Raw { out } => (KeysCode::Raw { out: plan.plain_float("k out", *out)? }, *out),
        };
        let pools = plan.pools(self.v_pool, &self.at)?;
        let q = plan.plain_float("q", self.q)?;
        let group = (heads.heads / kv_heads.max(1)) as usize;
        let weights = [self.wq.weight, self.wk.weight, self.wv.weight];
        let rows_of_stream = Rows::Group { weights, kv_head: self.kv_head, group, dim: dim as usize };
        let stream = plan.stream(rows_of_stream, unit, 0);
        let rows = rows_of(self.rows)?;
        let tile = TileCode { unit, rows, input, path: plan_path(plan, rows, unit, input) };
        let [bq, bk, bv] = biases;
        let mut operands = plan.operands(&[x, second, Some(self.q), Some(k_out), Some(self.v_pool), bq, bk, bv])?;
        if let LinearInput::Combine { acc, .. } = self.input {
            operands[0] = plan.merged(acc)?[0];
        }
        let (first, end, index) = (self.units.lo as u32, self.units.len() as u32, self.kv_head as u32);
        let first_row = self.rows.lo as u32;
        let record = TaskRecord { first_row, first, end, index, operands, ..TaskRecord::default() };
        let weights = Stretch { stream, first: self.units.lo, units: self.units.len(), group: tile.group() };
        Ok(Planned::new(QkvTile { tile, heads, bias, q, keys, pools }, record).streaming(weights))
    }
}

/// The device function. Operands: the input's two, q, k, v, biases of q, k, v.
#[derive(Clone, Debug, PartialEq)]
pub struct QkvTile {
    /// The product.
    pub tile: TileCode,
    /// Heads; splits are not looked at.
    heads: Heads,
    /// Storage of the biases.
    bias: [Option<Float>; 3],
    /// Storage of q.
    q: Float,
    /// What becomes of q and k.
    keys: KeysCode,
    /// The pools.
    pools: KvPools,
}

/// What becomes of q and k.
#[derive(Clone, Copy, Debug, PartialEq)]
enum KeysCode {
    /// Rotated, k appended.
    Rotated(RotationRows),
    /// As they are.
    Raw { out: Float },
}

impl DeviceFunction for QkvTile {
    fn shared(&self, warps: u32) -> SharedBytes {
        self.tile.shared(warps, 1)
    }

    fn pools(&self) -> Option<KvPools> {
        Some(self.pools)
    }

    fn run<'k>(&self, call: Call<'k, '_>, weights: &dyn Weights<'k>) {
        let QkvTile { tile: TileCode { unit, rows, input, path }, heads, bias, q, keys, pools } = *self;
        let first_row = call.task.first_row();
        let keys = match keys {
            KeysCode::Rotated(rotation) => {
                Keys::Rotated { rotation: call.rotation(rotation), pages: call.pages(3, pools) }
            }
            KeysCode::Raw { out } => Keys::Raw(call.array(3, out)),
        };
        let [b0, b1, b2] = bias;
        let bias = [(5, b0), (6, b1), (7, b2)].map(|(slot, bias)| bias.map(|bias| call.plain(slot, bias)));
        let tile = decode::Qkv {
            unit,
            rows,
            first_row,
            first: call.task.first(),
            units: call.task.end(),
            kv_head: call.task.index(),
            heads: heads.heads,
            kv_heads: heads.kv_heads,
            dim: heads.dim,
            input: input.of(call),
            path,
            bias,
            q: call.array(2, q),
            keys,
            v: call.pages(4, pools),
        };
        decode::qkv(call.team(), call.scratch(), weights, tile);
    }
}
