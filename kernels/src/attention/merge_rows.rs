//! The merge of two results of attention of the same queries over different tokens, as a kernel.

use core::f32::consts::LOG2_E;

use half::bf16;
use tilewright_codegen::build::{Bf16x2, Builder, Global, Ptr, Val, block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use super::AttentionError;
use super::merge::PartialAttention;

/// Threads of a block.
const THREADS: u32 = 256;
/// Columns of a thread.
const COLUMNS: u32 = 8;

/// The kernel `merge_attention`: everything that it is specialised for.
///
/// The attention of a query over two sets of tokens follows from the results of both and their
/// log-sum-exps: `(exp(lse_a)·a + exp(lse_b)·b) / (exp(lse_a) + exp(lse_b))`, zeros where both are
/// −∞. At most one of the results may have a sink.
///
/// | parameter | |
/// |---|---|
/// | `a`, `lse_a` | `[rows, D]` bf16 and `[rows]` f32 |
/// | `b`, `lse_b` | as `a` and `lse_a` |
/// | `rows` | how many |
/// | `out` | as `a`; it may be `a` or `b` |
/// | `lse` | as `lse_a`, the log-sum-exp over both sets; only where [`MergeRows::lse`] |
///
/// Grid: [`MergeRows::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MergeRows {
    /// Columns of a row, a multiple of 8; others are refused, [`AttentionError::MergeDepth`].
    pub depth: u32,
    /// Whether the kernel stores the log-sum-exp of each row.
    pub lse: bool,
}

impl MergeRows {
    /// Blocks for `rows` rows; `None` where they have more vectors of 8 columns than a `u32` counts.
    pub fn blocks(self, rows: u32) -> Option<u32> {
        rows.checked_mul(self.depth / COLUMNS).map(|vectors| vectors.div_ceil(THREADS))
    }

    /// Records the kernel.
    pub fn record(self, arch: Arch) -> Kernel {
        record("merge_attention", arch, block(THREADS), |k| match self.depth {
            depth if depth == 0 || !depth.is_multiple_of(COLUMNS) => k.refuse(&AttentionError::MergeDepth { depth }),
            _ => self.body(k),
        })
    }

    fn body<'k>(self, k: &'k Builder) {
        let a = Rows::declare(k, ["a", "lse_a"]);
        let b = Rows::declare(k, ["b", "lse_b"]);
        let rows = k.param::<u32>("rows");
        let out = k.global::<bf16>("out");
        let lse = self.lse.then(|| k.global::<f32>("lse"));
        let vectors = self.depth / COLUMNS;
        let index = k.block_id() * THREADS + k.tid();
        let row = index / vectors;
        k.when(row.lt(rows), || {
            let column = index % vectors * COLUMNS;
            let at = |base: Ptr<'k, Global, bf16>| base.at(row.mul_wide(self.depth)).at(column).cast::<u32>();
            let parts = [a, b].map(|rows| {
                let words: [Val<'k, u32>; COLUMNS as usize / 2] = at(rows.values).load_vec();
                let pairs = words.map(|word| word.bits::<Bf16x2>().split());
                let acc = core::array::from_fn::<_, { COLUMNS as usize }, _>(|i| {
                    let (low, high) = pairs[i / 2];
                    if i % 2 == 0 { low.cast::<f32>() } else { high.cast() }
                });
                PartialAttention { max: rows.lse.at(row).load() * LOG2_E, sum: k.lit(1.0f32), acc }
            });
            let whole = PartialAttention::merge(&parts);
            let y = whole.normalised();
            let words: [Val<'k, u32>; COLUMNS as usize / 2] =
                core::array::from_fn(|i| y[2 * i].pair::<Bf16x2>(y[2 * i + 1]).bits());
            at(out).store_vec(words);
            if let Some(lse) = lse {
                k.when(column.eq(0), || lse.at(row).store(whole.log_sum_exp()));
            }
        });
    }
}

/// Results and their log-sum-exps.
#[derive(Clone, Copy)]
struct Rows<'k> {
    values: Ptr<'k, Global, bf16>,
    lse: Ptr<'k, Global, f32>,
}

impl<'k> Rows<'k> {
    fn declare(k: &'k Builder, [values, lse]: [&str; 2]) -> Rows<'k> {
        Rows { values: k.global(values), lse: k.global(lse) }
    }
}
