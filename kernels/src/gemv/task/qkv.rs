//! The projections of one kv head's group: q and k rotated, k and v appended to their pages.
//!
//! With `half = dim / 2` and `u = ceil(half / 4)`, the group has `u` strips for each of its query
//! heads, `u` for k and `u` for v. Strip j of a query or key head has the features `4j ..+4` and,
//! for what they are rotated with, `half + 4j ..+4`; strip j of v has `8j ..+8`.

use tilewright_codegen::build::{Ptr, Shared, Val, Var};

use super::operands::VarOperands;
use crate::epilogue::{GateSums, ResultOperands};
use crate::gemv::activations::{AOperand, Prologue};
use crate::gemv::announce::Announce;
use crate::gemv::linear::{OutputCell, PassWork, StripPass, TilePhase, in_last_phase};
use crate::gemv::scratch::LinearScratch;
use crate::kv::{CurrentToken, PagedPool};
use crate::rope::{Rotation, rotated};
use crate::tile::Array;
use crate::warps::ConsumerWarps;
use crate::weights::{Strip, WeightStages};

/// A tile of the group's strips.
#[derive(Clone, Copy)]
pub struct Qkv<'k> {
    /// Shape of a strip.
    pub strip: Strip,
    /// Rows of the batch, 1 to 16.
    pub rows: u32,
    /// First row.
    pub first_row: Val<'k, u32>,
    /// First strip of the group.
    pub first: Val<'k, u32>,
    /// The number of strips.
    pub strips: Val<'k, u32>,
    /// The kv head.
    pub kv_head: Val<'k, u32>,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Dimensions of a head, even.
    pub dim: u32,
    /// Activations.
    pub input: Prologue<'k>,
    /// The storage of the A operand.
    pub a_operand: AOperand,
    /// Biases of q, k and v.
    pub bias: [Option<Array<'k>>; 3],
    /// Queries, `[rows, heads, dim]`.
    pub q: Array<'k>,
    /// The epilogue of queries and keys.
    pub keys: QueryKeyEpilogue<'k>,
    /// The pool that v is appended to.
    pub v: PagedPool<'k>,
    /// The additional destination of rotated keys and values as flagged words; `q` then consists of
    /// flagged words too.
    pub newest: Option<CurrentToken<'k>>,
}

/// The epilogue of queries and keys.
#[derive(Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "a few are made while a kernel is recorded, and they are copied")]
pub enum QueryKeyEpilogue<'k> {
    /// Both are rotated, k is appended.
    Rotated {
        /// The rotation.
        rotation: Rotation<'k>,
        /// The pool that k is appended to.
        pages: PagedPool<'k>,
    },
    /// Both are stored as they are, k to `[rows, kv_heads, dim]`.
    Raw(Array<'k>),
}

/// Computes a tile. `announce` comes when all that the tile reads of other tiles is there, before
/// its last results are stored.
pub fn qkv<'k>(
    consumers: ConsumerWarps<'k>,
    scratch: LinearScratch<'k>,
    weights: &dyn WeightStages<'k>,
    tile: Qkv<'k>,
    announce: Option<Announce<'_>>,
) {
    let pass = StripPass {
        consumers,
        scratch,
        strip: tile.strip,
        pitch: tile.strip.k(),
        rows: tile.rows,
        streams: 1,
        a_operand: tile.a_operand,
        spreads: false,
        accumulates_squares: None,
        reserved: 0,
        slots: None,
    };
    pass.each_phase(tile.input, None, |pass, input, phase| {
        let prepare = |base: Val<'k, u32>, cell: &OutputCell<'k>| tile.prepare(consumers, cell, base, phase);
        in_last_phase(announce, phase, &|announce| {
            let work = PassWork { weights, input, first_row: tile.first_row, strips: tile.strips, announce };
            pass.run(work, prepare, |sums, cell, prepared| {
                let sum = || {
                    let sum = sums.total(cell.place);
                    prepared.before.map_or(sum, |before| sum + before.get())
                };
                let done = || tile.finish(consumers, scratch, &sum, cell, prepared);
                match prepared.waiting {
                    Some((last, waiting)) => {
                        consumers.k.if_else(last, done, || consumers.k.when(cell.inside, || waiting.store(sum())));
                    }
                    None => done(),
                }
            });
        });
    });
}

/// The operands of an output besides the sums, and its destination.
struct Prepared<'k> {
    /// Whether this is the last K chunk, and the address at which its sum is kept until the next
    /// one.
    waiting: Option<(Val<'k, bool>, Ptr<'k, Shared, f32>)>,
    /// The sum of the previous K chunks.
    before: Option<Var<'k, f32>>,
    is_q: Val<'k, bool>,
    is_v: Val<'k, bool>,
    bias: Option<Var<'k, f32>>,
    /// Its place among the queries or in a pool, in elements; [`NOWHERE`] where there is no such
    /// output, and in the pools of an idle row.
    to: Var<'k, u32>,
    /// The cosine, and the sine with the sign that this element's partner takes.
    turn: Option<[Var<'k, f32>; 2]>,
    /// Its place among the current token's keys or values, and whether there is such an output,
    /// also for an idle row: readers that poll for flagged words then find them.
    newest: Option<(Val<'k, u32>, Val<'k, bool>)>,
}

/// No place.
const NOWHERE: u32 = u32::MAX;

impl<'k> Qkv<'k> {
    fn prepare(
        self,
        consumers: ConsumerWarps<'k>,
        cell: &OutputCell<'k>,
        base: Val<'k, u32>,
        phase: Option<TilePhase<'k>>,
    ) -> Prepared<'k> {
        let k = consumers.k;
        let strip = self.first + base + cell.strip;
        let group = self.heads / self.kv_heads;
        let half = self.dim / 2;
        let per_head = half.div_ceil(4);
        let slot = strip / per_head;
        let within = strip % per_head;
        let is_q = slot.lt(group);
        let is_v = slot.gt(group);
        let pair = within * 4 + cell.feature % 4;
        let second = cell.feature.ge(4);
        let dim = is_v.select(within * Strip::ROWS + cell.feature, second.select(pair + half, pair));
        let exists = cell.inside & is_v.select(dim, pair).lt(is_v.select(self.dim, half));
        let head = is_q.select(self.kv_head * group + slot, self.kv_head);
        let bias = self.bias.iter().any(Option::is_some).then(|| k.var(0.0f32));
        let to = k.var(NOWHERE);
        let turn = match self.keys {
            QueryKeyEpilogue::Rotated { .. } => Some([k.var(0.0f32), k.var(0.0f32)]),
            QueryKeyEpilogue::Raw(_) => None,
        };
        k.when(exists, || {
            let row = self.first_row + cell.row;
            let position = self.v.position.load(row);
            let place = position.max(0).cast::<u32>();
            let token = self.v.row_of(self.kv_head, row, place).at(dim);
            let appended = position.ge(0).select(token, NOWHERE);
            let stored = |heads: u32, head: Val<'k, u32>| (row * heads + head) * self.dim + dim;
            let of_key = match self.keys {
                QueryKeyEpilogue::Rotated { .. } => appended,
                QueryKeyEpilogue::Raw(_) => is_v.select(appended, stored(self.kv_heads, self.kv_head)),
            };
            to.set(is_q.select(stored(self.heads, head), of_key));
            if let (QueryKeyEpilogue::Rotated { rotation, .. }, Some(turn)) = (self.keys, turn) {
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
        let newest = self.newest.map(|_| {
            let row = self.first_row + cell.row;
            ((row * self.kv_heads + self.kv_head) * self.dim + dim, exists)
        });
        let waiting = phase.and_then(|phase| Some((phase, phase.waiting?.of(base + cell.strip, cell))));
        let before = waiting.map(|(phase, at)| phase.before(cell.inside, || at.load()));
        let waiting = waiting.map(|(phase, at)| (phase.last, at));
        Prepared { waiting, before, is_q, is_v, bias, to, turn, newest }
    }

    /// Stores an output; all lanes of a warp come here.
    fn finish(
        self,
        consumers: ConsumerWarps<'k>,
        scratch: LinearScratch<'k>,
        sum: &dyn Fn() -> Val<'k, f32>,
        cell: &OutputCell<'k>,
        prepared: &Prepared<'k>,
    ) {
        let k = consumers.k;
        let to = prepared.to.get();
        let exists = to.ne(NOWHERE);
        let y = k.var(0.0f32);
        k.when(exists, || {
            let sum = sum();
            let scale = self.input.scale(consumers, self.strip, cell.row, scratch.squares);
            let operands = VarOperands { scale, bias: [prepared.bias, None], residual: None };
            y.set(operands.affine(GateSums::Gate, [sum])[0]);
        });
        let (y, partner) = (y.get(), y.get().shfl_bfly(4));
        if let (Some(newest), Some((place, is)), Some([cos, sin])) = (self.newest, prepared.newest, &prepared.turn) {
            let rotated = rotated(y, partner, *cos, *sin);
            let mine = prepared.is_v.select(y, rotated);
            let next = mine.shfl_down(1);
            let first = is & !prepared.is_q & (cell.feature % 2).eq(0);
            k.when(first, || newest.store(prepared.is_v, place, [mine, next]));
        }
        k.when(exists, || {
            k.if_else(
                prepared.is_v,
                || self.v.pool.store(to, y),
                || {
                    let rotated = prepared.turn.map_or(y, |[cos, sin]| rotated(y, partner, cos, sin));
                    let store_key = || match self.keys {
                        QueryKeyEpilogue::Rotated { pages, .. } => pages.pool.store(to, rotated),
                        QueryKeyEpilogue::Raw(out) => out.store(to, rotated),
                    };
                    k.if_else(prepared.is_q, || self.q.store_run(to, [rotated]), store_key);
                },
            );
        });
    }
}
