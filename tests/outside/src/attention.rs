//! Attention of one query over the keys and values of a head, which come through a `KvBuffer`: a warp a head.

use half::bf16;
use tilewright::codegen::build::{Bf16x2, block, record};
use tilewright::codegen::ir::{Arch, Kernel, MmaAtom};
use tilewright::kernels::attention::softmax::{Patience, Softmax, a_fragment, column_of};
use tilewright::kernels::kv::{KConfig, KvBuffer, KvFamily, KvThreads, Place, Span, VConfig, stream};
use tilewright::kernels::tile::{Index, RegisterTensor};
use tilewright::layout::fragment::{FragmentA, atoms};

/// Tokens of a tile.
pub const TILE: u32 = 16;

/// The queries' fragment.
type Query = FragmentA<atoms::SM80_16x8x16_F32BF16BF16F32_TN>;

/// The kernel for heads of `D` columns, a block a head. Parameters: `keys` and `values` as `F` takes them, `q`[heads, D], `out`[heads, D],
/// `tokens` of every head, `stride` from head to head in elements, `scale` of the scores times log₂e.
pub fn attention<F: KvFamily, const D: u32>(arch: Arch) -> Kernel {
    record("attention", arch, block(32), |k| {
        let inputs = [F::input(k, "keys"), F::input(k, "values")];
        let [q, out] = ["q", "out"].map(|name| k.global::<bf16>(name).at(k.block_id() * D));
        let [tokens, plane_stride] = ["tokens", "stride"].map(|name| k.param::<u32>(name));
        let scale = k.param::<f32>("scale");
        let place = Place { plane: k.block_id(), plane_stride, first: k.lit(0u32), row_stride: k.lit(D), tokens, pages: None };
        let keys = F::open::<KConfig<TILE, D, TILE>>(k, "keys", inputs[0], place, KvThreads::Warps(1));
        let values = F::open::<VConfig<TILE, TILE, TILE, D>>(k, "values", inputs[1], place, KvThreads::Warps(1));
        F::begin(k);

        // The query is row 0 of the A operand; the other rows are zeros.
        let of_lane = RegisterTensor::<u32, Query>::places(Index::lane(k));
        let query = (0..D / 16).map(|step| RegisterTensor::<u32, Query>::from_registers(|register| {
            let ([row, column], word) = (of_lane[register], k.var(0u32));
            k.when(row.get(k).eq(0), || word.set(q.at((column + 16 * step).get(k)).cast::<u32>().load()));
            word.get()
        })).collect::<Vec<_>>();
        let (scores, acc) = (k.regs(TILE / 2, 0.0f32), k.regs(D / 2, 0.0f32));
        let softmax = Softmax::new(k, 1, scale, Patience::None);
        let span = Span { first: k.lit(0u32), end: (tokens + (TILE - 1)) / TILE, step: 1 };
        let atom = MmaAtom::M16N8K16_F32_BF16_BF16;
        stream(k, (&keys, &values), span, |tile, landed| {
            (0..scores.len()).for_each(|register| scores.set(register, 0.0f32));
            for (step, query) in (0..).zip(&query) {
                keys.load_from_shared(landed, step);
                (0..).zip(&keys.get_mma_tile()).for_each(|(n, key)| scores.run(4 * n, 4).mma(atom, query.registers(), key));
            }
            for register in 0..scores.len() {
                let inside = column_of(k, register).lt(tokens - tile * TILE);
                scores.set(register, inside.select(scores.get(register), f32::NEG_INFINITY));
            }
            softmax.absorb(scores).apply(acc);
        }, |_, landed| {
            values.load_from_shared(landed, 0);
            let weights = a_fragment(k, scores, 0, 1).map(|pair| pair.bits());
            (0..).zip(&values.get_mma_tile()).for_each(|(n, value)| acc.run(4 * n, 4).mma(atom, &weights, value));
        });
        let inverse = softmax.inverse(0);
        k.when(k.lane().lt(4), || (0..D / 8).for_each(|n| {
            let pair = [0, 1].map(|i| acc.get(4 * n + i) * inverse);
            out.at(k.lane() * 2 + 8 * n).cast::<Bf16x2>().store(pair[0].pair(pair[1]));
        }));
    })
}
