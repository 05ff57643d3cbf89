//! The projections of one kv head's group: q and k rotated, k and v appended to their pages.
//!
//! With `half = dim / 2` and `u = ceil(half / 4)`, the group has `u` units for each of its query heads, `u` for k and
//! `u` for v. Unit j of a query or key head has the features `4j ..+4` and, for what they are rotated with,
//! `half + 4j ..+4`; unit j of v has `8j ..+8`.

use tilewright_codegen::build::{Val, Var};

use super::device::{Cell, Pass};
use super::{AOperand, Input, Scratch, Sums, Weights};
use crate::gemv::Unit;
use crate::kv::PagedPool;
use crate::rope::Rotation;
use crate::tile::Array;
use crate::warps::ConsumerWarps;

/// A tile of the group's units.
#[derive(Clone, Copy)]
pub struct Qkv<'k> {
    /// Shape of a unit.
    pub unit: Unit,
    /// Rows of the batch, 1 to 16.
    pub rows: u32,
    /// First row.
    pub first_row: Val<'k, u32>,
    /// First unit of the group.
    pub first: Val<'k, u32>,
    /// How many units.
    pub units: Val<'k, u32>,
    /// The kv head.
    pub kv_head: Val<'k, u32>,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Dimensions of a head, even.
    pub dim: u32,
    /// Activations.
    pub input: Input<'k>,
    /// Where the A operand lives.
    pub a_operand: AOperand,
    /// Biases of q, k and v.
    pub bias: [Option<Array<'k>>; 3],
    /// Queries, `[rows, heads, dim]`.
    pub q: Array<'k>,
    /// What becomes of q and k.
    pub keys: Keys<'k>,
    /// Where v is appended.
    pub v: PagedPool<'k>,
}

/// What becomes of q and k.
#[derive(Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "a few are made while a kernel is recorded, and they are copied")]
pub enum Keys<'k> {
    /// Both are rotated, k is appended.
    Rotated {
        /// The rotation.
        rotation: Rotation<'k>,
        /// Where k is appended.
        pages: PagedPool<'k>,
    },
    /// Both are stored as they are, k to `[rows, kv_heads, dim]`.
    Raw(Array<'k>),
}

/// Computes a tile.
pub fn qkv<'k>(team: ConsumerWarps<'k>, scratch: Scratch<'k>, weights: &dyn Weights<'k>, tile: Qkv<'k>) {
    let pass = Pass {
        team,
        scratch,
        unit: tile.unit,
        pitch: tile.unit.k(),
        rows: tile.rows,
        streams: 1,
        a_operand: tile.a_operand,
        behind: None,
    };
    let prepare = |base: Val<'k, u32>, cell: &Cell<'k>| tile.prepare(team, cell, tile.first + base + cell.unit);
    pass.run(weights, tile.input, tile.first_row, tile.units, prepare, |sums, cell, prepared| {
        tile.finish(team, scratch, sums, cell, prepared);
    });
}

/// What an output is, and what it needs beside the sums.
struct Prepared<'k> {
    is_q: Val<'k, bool>,
    is_v: Val<'k, bool>,
    /// Whether there is such an output.
    exists: Val<'k, bool>,
    head: Val<'k, u32>,
    dim: Val<'k, u32>,
    bias: Option<Var<'k, f32>>,
    /// Whether the row is not idle.
    active: Var<'k, bool>,
    /// Where this dimension of the row's token lies in the pools, in elements.
    token: Var<'k, u32>,
    /// The cosine, and the sine with the sign that this element's partner takes.
    turn: Option<[Var<'k, f32>; 2]>,
}

impl<'k> Qkv<'k> {
    fn prepare(self, team: ConsumerWarps<'k>, cell: &Cell<'k>, unit: Val<'k, u32>) -> Prepared<'k> {
        let k = team.k;
        let (group, half) = (self.heads / self.kv_heads, self.dim / 2);
        let per_head = half.div_ceil(4);
        let (slot, within) = (unit / per_head, unit % per_head);
        let (is_q, is_v) = (slot.lt(group), slot.gt(group));
        let pair = within * 4 + cell.feature % 4;
        let second = cell.feature.ge(4);
        let dim = is_v.select(within * Unit::ROWS + cell.feature, second.select(pair + half, pair));
        let exists = cell.inside & is_v.select(dim, pair).lt(is_v.select(self.dim, half));
        let head = is_q.select(self.kv_head * group + slot, self.kv_head);
        let bias = self.bias.iter().any(Option::is_some).then(|| k.var(0.0f32));
        let (active, token) = (k.var(false), k.var(0u32));
        let turn = match self.keys {
            Keys::Rotated { .. } => Some([k.var(0.0f32), k.var(0.0f32)]),
            Keys::Raw(_) => None,
        };
        k.when(exists, || {
            let row = self.first_row + cell.row;
            let position = self.v.position.load(row);
            active.set(position.ge(0));
            let place = position.max(0).cast::<u32>();
            token.set(self.v.row_of(self.kv_head, row, place).at(dim));
            if let (Keys::Rotated { rotation, .. }, Some(turn)) = (self.keys, turn) {
                k.when(!is_v, || {
                    let [cos, sin] = rotation.factors(place, pair, second);
                    turn[0].set(cos);
                    turn[1].set(sin);
                });
            }
            for (array, mine) in self.bias.iter().zip([is_q, slot.eq(group), is_v]) {
                if let (Some(array), Some(bias)) = (array, bias) {
                    k.when(mine, || bias.set(array.load(head * self.dim + dim)));
                }
            }
        });
        Prepared { is_q, is_v, exists, head, dim, bias, active, token, turn }
    }

    /// Stores an output; all lanes of a warp come here.
    fn finish(
        self,
        team: ConsumerWarps<'k>,
        scratch: Scratch<'k>,
        sums: Sums<'k>,
        cell: &Cell<'k>,
        prepared: &Prepared<'k>,
    ) {
        let k = team.k;
        let y = k.var(0.0f32);
        k.when(prepared.exists, || {
            let sum = sums.total(cell.place);
            let sum = self.input.scale(team, self.unit, cell.row, scratch.squares).map_or(sum, |scale| sum * scale);
            y.set(prepared.bias.map_or(sum, |bias| sum + bias.get()));
        });
        let (y, partner) = (y.get(), y.get().shfl_bfly(4));
        let row = self.first_row + cell.row;
        k.when(prepared.exists, || {
            let Prepared { is_q, is_v, head, dim, .. } = *prepared;
            let q_at = (row * self.heads + head) * self.dim + dim;
            let append = |pages: PagedPool<'k>, value| {
                k.when(prepared.active.get(), || pages.pool.store(prepared.token.get(), value));
            };
            k.if_else(
                is_v,
                || append(self.v, y),
                || match self.keys {
                    Keys::Rotated { pages, .. } => {
                        let turned = prepared.turn.map_or(y, |[cos, sin]| y * cos.get() + partner * sin.get());
                        k.if_else(is_q, || self.q.store(q_at, turned), || append(pages, turned));
                    }
                    Keys::Raw(out) => {
                        let k_at = (row * self.kv_heads + self.kv_head) * self.dim + dim;
                        k.if_else(is_q, || self.q.store(q_at, y), || out.store(k_at, y));
                    }
                },
            );
        });
    }
}
