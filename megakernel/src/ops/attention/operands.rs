//! The operands of attention.

use super::selection::Selection;
use crate::ops::RowCells;
use crate::program::{BufferId, Span};
use serde::{Deserialize, Serialize};
use tilewright_kernels::attention::ScoreModifier;

/// Partial attention of the query heads of kv head `kv_head` over one split of the tokens
/// `0..=position[r]`.
///
/// With `n = position[r] + 1` tokens in `P = ceil(n / page_tokens)` pages, split `s` of `S` covers
/// the pages `s·w .. min((s+1)·w, P)`, `w = ceil(P / S)`. Over its tokens `t`, with `x_t = scale ·
/// q·k_t`: `m = max x_t`, `l = Σ exp(x_t − m)`, `acc = Σ exp(x_t − m) v_t`. A split without tokens
/// stores `m = −∞`, `l = 0`, `acc = 0`.
///
/// Under a soft cap `x_t = cap · tanh(scale · q·k_t / cap)`. Through a window a row sees the tokens
/// `n − window .. n`, and splits cover the pages from the one on that holds the first of them.
///
/// With sinks the softmax has a further score, which has no value: split 0 counts the sink `z` of a
/// head as a token whose value is 0, so that `m = max(z, max x_t)` and `l` has `exp(z − m)` more.
///
/// With a [`Selection`] a row's tokens are those of its selected blocks instead, and a split covers
/// blocks as it would pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Rotated queries, `[rows, heads, head_dim]`.
    pub q: BufferId,
    /// Key pool, `[kv_heads, pages, page_tokens, head_dim]`.
    pub k_pool: BufferId,
    /// Value pool, the same extents. Where it is the key pool, the first dimensions of a key are its
    /// value, as many as `acc` has.
    pub v_pool: BufferId,
    /// Which tokens a row sees.
    pub at: RowCells,
    /// The kv head.
    pub kv_head: usize,
    /// Rows that this task computes.
    pub rows: Span,
    /// Which split; the number of splits is `acc`'s third extent.
    pub split: usize,
    /// Factor on the scores, `1/sqrt(head_dim)` for these families.
    pub scale: f32,
    /// The soft cap of the scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_cap: Option<f32>,
    /// Tokens that a row sees, its own included; all where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// A score of each query head that has no value, f32 `[heads]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sinks: Option<BufferId>,
    /// Unnormalised sums, f32 `[rows, heads, splits, head_dim]`, of values.
    pub acc: BufferId,
    /// `m` and `l`, f32 `[rows, heads, splits, 2]`.
    pub stats: BufferId,
    /// Which blocks of tokens a row attends to; all tokens where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
}

impl Attention {
    /// Whether values are the first dimensions of keys.
    pub(crate) fn shares_pool(&self) -> bool {
        self.k_pool == self.v_pool
    }

    /// What happens to scores after the scale.
    pub fn modifier(&self) -> ScoreModifier {
        ScoreModifier { soft_cap: self.soft_cap, window: self.window }
    }
}
