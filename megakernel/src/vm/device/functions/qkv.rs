//! Tiles of q, k and v on a device.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_kernels::attention::split::HeadCounts;
use tilewright_kernels::gemv::task::{self, Early, ProductPlan, QueryKeyEpilogue, Waits};
use tilewright_kernels::kv::PoolType;
use tilewright_kernels::tile::Float;
use tilewright_kernels::weights::PrefetchForm;

use super::input::{InputCode, InputFields};
use super::product::TileCode;
use crate::ops::{KeyOutput, Qkv};
use crate::program::Span;
use crate::vm::device::{
    Call, DeviceFunction, DeviceOp, Generation, KvPools, Planned, Planner, RotationRows, SharedBytes, Storage, Stretch,
    WeightStages,
};
use crate::vm::resident::Rows;
use crate::vm::{Unsupported, rows_of};

impl DeviceOp for Qkv {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let weights = [self.wq.weight, self.wk.weight, self.wv.weight];
        let strip = plan.strip(plan.extent(self.wq.weight, 0)?, &weights)?;
        let input = InputCode::plan(&self.input, plan, &weights, strip)?;
        let heads = plan.extent(self.q, 1)?;
        let kv_heads = plan.extent(self.v_pool, 3)?;
        let dim = plan.extent(self.q, 0)?;
        let heads = HeadCounts { heads, kv_heads, dim, splits: 1 };
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
        let kv_head = self.kv_head;
        let kv_heads = kv_heads as usize;
        let rows_of_stream = Rows::Group { weights, kv_head, kv_heads, group, dim: dim as usize };
        let stream = plan.stream(rows_of_stream, strip, 0);
        let rows = rows_of(self.rows)?;
        let tile = TileCode::new(plan, strip, rows, input, Waits::InShared(self.strips.len() as u32));
        let current = plan.current_token();
        let period = current.map_or(0, |(_, period)| period);
        let early = plan.options().early_signal().filter(|_| period > 0);
        let fields = QkvFields {
            first_row: self.rows.lo as u32,
            first: self.strips.lo as u32,
            strips: self.strips.len() as u32,
            kv_head: self.kv_head as u32,
            input: InputFields::plan(&self.input, plan, &weights, strip, tile.product.a_operand)?,
            q: current.map_or(plan.operand(self.q), |([q, ..], _)| Ok(q))?,
            k: plan.operand(k_out)?,
            v: plan.operand(self.v_pool)?,
            current_token: current.map_or([0; 2], |([_, keys, values], _)| [keys, values]),
        };
        let stretch = Stretch { stream, first: self.strips.lo, strips: self.strips.len(), taken: tile.taken() };
        let q = Storage { float: q, period };
        let function = QkvTile { tile, heads, bias, q, keys, pools, early };
        let scales = match &self.k {
            KeyOutput::RopeAppend { pool, .. } => [plan.pool_scale(*pool)?, plan.pool_scale(self.v_pool)?],
            KeyOutput::Raw { .. } => [plan.pool_scale(self.v_pool)?; 2],
        };
        let codes = pools.of == PoolType::E4m3;
        if biases == [None; 3] {
            return Ok(match codes {
                false => {
                    let bytes = if period > 0 { size_of_val(&fields) } else { offset_of!(QkvFields, current_token) };
                    Planned::new(function, fields).keeping(bytes).streaming(stretch)
                }
                true => Planned::new(function, QkvCodeFields { tile: fields, scales }).streaming(stretch),
            });
        }
        let [q_bias, k_bias, v_bias] = biases.map(|bias| plan.operand_of(bias));
        let fields = BiasFields { tile: fields, q_bias: q_bias?, k_bias: k_bias?, v_bias: v_bias? };
        Ok(match codes {
            false => Planned::new(function, fields).streaming(stretch),
            true => Planned::new(function, CodeBiasFields { tile: fields, scales }).streaming(stretch),
        })
    }
}

/// The record fields of a tile: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct QkvFields {
    first_row: u32,
    /// The first strip.
    first: u32,
    strips: u32,
    kv_head: u32,
    input: InputFields,
    q: u32,
    /// The destination of k, or its pool.
    k: u32,
    v: u32,
    /// The destinations of flagged words of keys and values, if they are used; `q` then consists of
    /// flagged words too.
    current_token: [u32; 2],
}

/// The fields of a tile with biases.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct BiasFields {
    tile: QkvFields,
    q_bias: u32,
    k_bias: u32,
    v_bias: u32,
}

/// The record fields of a tile that appends codes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct QkvCodeFields {
    tile: QkvFields,
    /// The factors of key codes and of value codes, as bits of f32.
    scales: [u32; 2],
}

/// The fields of a tile with biases.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct CodeBiasFields {
    tile: BiasFields,
    scales: [u32; 2],
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
pub struct QkvTile {
    /// The product.
    pub tile: TileCode,
    /// Heads; splits are not looked at.
    heads: HeadCounts,
    /// Storage of the biases.
    bias: [Option<Float>; 3],
    /// Storage of q; of packets keys and values have as many generations.
    q: Storage,
    /// The processing of q and k.
    keys: KeysCode,
    /// The pools.
    pools: KvPools,
    /// The point before the stores at which the task signals, if it signals early.
    early: Option<Early>,
}

/// The processing of q and k.
#[derive(Clone, Copy, Debug, PartialEq)]
enum KeysCode {
    /// Rotated, k appended.
    Rotated(RotationRows),
    /// Stored without rotation.
    Raw { out: Float },
}

impl QkvTile {
    /// Whether queries, keys and values are handed on as packets, which carry their arrival.
    pub fn is_packets(&self) -> bool {
        self.q.period > 0
    }
}

impl DeviceFunction for QkvTile {
    fn prefetch_form(&self) -> Option<PrefetchForm> {
        self.tile.product.prefetch_form()
    }

    fn takes_pairs(&self) -> Option<u32> {
        self.tile.product.pair_bytes()
    }

    fn shared(&self, warps: u32) -> SharedBytes {
        self.tile.shared(warps, 1)
    }

    fn pools(&self) -> Option<KvPools> {
        Some(self.pools)
    }

    fn signals_early(&self) -> bool {
        self.early.is_some()
    }

    fn polled_columns(&self) -> Option<u32> {
        self.tile.polled_columns()
    }

    fn run<'k>(&self, call: Call<'k, '_>, weights: &dyn WeightStages<'k>) {
        let QkvTile { tile, heads, bias, q, keys, pools, early } = *self;
        let TileCode { input, product: ProductPlan { strip, packing, a_operand, .. } } = tile;
        let first_row = call.value(offset_of!(QkvFields, first_row));
        let scales = match bias {
            [None, None, None] => offset_of!(QkvCodeFields, scales),
            _ => offset_of!(CodeBiasFields, scales),
        };
        let keys = match keys {
            KeysCode::Rotated(rotation) => {
                let pages = call.pages([offset_of!(QkvFields, k), scales], pools);
                QueryKeyEpilogue::Rotated { rotation: call.rotation(rotation), pages }
            }
            KeysCode::Raw { out } => QueryKeyEpilogue::Raw(call.array(offset_of!(QkvFields, k), out)),
        };
        let [b0, b1, b2] = bias;
        let bias = [
            (offset_of!(BiasFields, q_bias), b0),
            (offset_of!(BiasFields, k_bias), b1),
            (offset_of!(BiasFields, v_bias), b2),
        ];
        let bias = bias.map(|(field, bias)| bias.map(|bias| call.plain(field, bias)));
        let tile = task::Qkv {
            strip,
            rows: packing.rows(),
            first_row,
            first: call.value(offset_of!(QkvFields, first)),
            strips: call.value(offset_of!(QkvFields, strips)),
            kv_head: call.value(offset_of!(QkvFields, kv_head)),
            heads: heads.heads,
            kv_heads: heads.kv_heads,
            dim: heads.dim,
            input: input.of(call, offset_of!(QkvFields, input), strip.k()),
            a_operand,
            bias,
            q: call.stored(offset_of!(QkvFields, q), q, Generation::Output),
            keys,
            v: call.pages([offset_of!(QkvFields, v), scales + size_of::<u32>()], pools),
            newest: call.current_token(offset_of!(QkvFields, current_token), q.period, Generation::Output),
        };
        call.announcing(early, |announce| task::qkv(call.consumers(), call.scratch(), weights, tile, announce));
    }
}
