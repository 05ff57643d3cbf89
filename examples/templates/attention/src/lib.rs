//! Attention of one query over the keys and values of a head, which come through a `KvBuffer`: a
//! warp a head.

use half::bf16;
use tilewright::codegen::build::{Bf16x2, block, record};
use tilewright::codegen::ir::{Arch, Kernel};
use tilewright::kernels::attention::softmax::{Rescaling, Softmax, a_fragment};
use tilewright::kernels::attention::warp::{WarpA, b_fragments, sums};
use tilewright::kernels::kv::{KConfig, KvBuffer, KvFamily, KvRings, KvThreads, KvView, TileSpan, VConfig, stream};
use tilewright::kernels::tile::Index;

/// Tokens of a tile.
pub const TILE: u32 = 16;

/// The kernel for heads of `D` columns, a block a head. Parameters: `keys` and `values` as `F`
/// takes them, `q`[heads, D], `out`[heads, D], `tokens` of every head, `stride` from head to head
/// in elements, `scale` of the scores times log₂e.
pub fn attention<F: KvFamily, const D: u32>(arch: Arch) -> Kernel {
    record("attention", arch, block(32), |k| {
        let inputs = [F::input(k, "keys"), F::input(k, "values")];
        let [q, out] = ["q", "out"].map(|name| k.global::<bf16>(name).at(k.block_id() * D));
        let [tokens, plane_stride] = ["tokens", "stride"].map(|name| k.param::<u32>(name));
        let [plane, first, row_stride] = [k.block_id(), k.lit(0), k.lit(D)];
        let place = KvView { plane, plane_stride, first, row_stride, tokens, pages: None };
        let keys = F::open::<KConfig<TILE, D, TILE>>(k, "keys", inputs[0], place, KvThreads::Warps(1));
        let values = F::open::<VConfig<TILE, TILE, TILE, D>>(k, "values", inputs[1], place, KvThreads::Warps(1));
        F::begin(k);
        // The query is row 0 of the A operand; the other rows are zeros.
        let places = WarpA::places(Index::lane(k));
        let word = |i: usize, first: u32| {
            let ([row, column], word) = (places[i], k.var(0u32));
            k.when(row.get(k).eq(0), || word.set(q.at((column + first).get(k)).cast::<u32>().load()));
            word.get()
        };
        let query: Vec<_> = (0..D / 16).map(|step| WarpA::from_registers(|i| word(i, 16 * step))).collect();
        let [scores, acc] = [TILE, D].map(|columns| sums(k, columns));
        let softmax = Softmax::new(k, scores.fragment(), 1, k.param::<f32>("scale"), Rescaling::EveryTile);
        let attend = |tile, arrived: &_| {
            scores.clear(k);
            for (step, query) in (0..).zip(query.chunks(1)) {
                keys.load_from_shared(arrived, step);
                scores.mma::<bf16>(query, &b_fragments(&keys.get_mma_tile()));
            }
            for (register, column) in (0..).zip(scores.columns(Index::lane(k))) {
                let seen = column.get(k).lt(tokens - tile * TILE);
                scores.registers().set(register, seen.select(scores.get(register), f32::NEG_INFINITY));
            }
            softmax.update(scores).apply(acc);
        };
        let span = TileSpan { first, end: (tokens + (TILE - 1)) / TILE, step: 1 };
        stream(k, KvRings { keys: &keys, values: &values }, span, attend, |_, arrived| {
            values.load_from_shared(arrived, 0);
            let weights = a_fragment(k, scores, 0, 1).map(|pair| pair.bits());
            acc.mma::<bf16>(&[weights], &b_fragments(&values.get_mma_tile()));
        });
        let inverse = softmax.inverse(0);
        for pair in acc.pairs(Index::lane(k)).into_iter().filter(|pair| pair.row.constant() == 0) {
            let [a, b] = [0, 1].map(|i| acc.get(pair.first + i) * inverse);
            let to = out.at(pair.column.get(k)).cast::<Bf16x2>();
            k.when(pair.row.get(k).eq(0), || to.store(a.pair(b)));
        }
    })
}

#[cfg(test)]
mod laws;
