//! A split of a kv head's tokens: its problem, and where its parts are merged.

use tilewright_codegen::build::{Global, Ptr, Shared, Val};

use super::TokenSelection;
use crate::attention::AttentionError;
use crate::attention::ScorePlace;
use crate::attention::merge::WarpParts;
use crate::attention::scores::ScoreModifier;
use crate::gemv::activations::ActivationOutput;
use crate::kv::{CurrentToken, PagedPool, Streamed};
use crate::tile::Array;
use crate::warps::ConsumerWarps;

/// A split of a kv head's tokens.
#[derive(Clone, Copy)]
pub struct SplitAttention<'f, 'k> {
    /// Shape.
    pub heads: HeadCounts,
    /// Rows of the batch.
    pub rows: u32,
    /// First row.
    pub first_row: Val<'k, u32>,
    /// The kv head.
    pub kv_head: Val<'k, u32>,
    /// The split.
    pub split: Val<'k, u32>,
    /// Factor on the scores.
    pub scale: f32,
    /// The modifier of scaled scores. With a window, splits cover the tokens from the page on that
    /// holds the first token that a row sees ([`Shares`](super::Shares)); the ring's producer must
    /// stream the same tokens.
    pub modifier: ScoreModifier,
    /// A function of scores of one's own, after the modifier: see
    /// [`CustomScore`](crate::attention::CustomScore). Not of selected tokens.
    pub custom: Option<&'f dyn Fn(ScorePlace<'k>, Val<'k, f32>) -> Val<'k, f32>>,
    /// A logit of each query head that takes part in its softmax, f32 `[heads]`, if there are any.
    pub sinks: Option<Ptr<'k, Global, f32>>,
    /// Queries, `[rows, heads, dim]`.
    pub q: Array<'k>,
    /// Keys, bf16 or codes.
    pub keys: PagedPool<'k>,
    /// Values, of the same type.
    pub values: PagedPool<'k>,
    /// Unnormalised sums of splits of several, f32 `[rows, heads, splits, dim]`.
    pub acc: Ptr<'k, Global, f32>,
    /// Their `m` and `l`, f32 `[rows, heads, splits, 2]`.
    pub stats: Ptr<'k, Global, f32>,
    /// The tokens that are streamed through the ring, if any; for groups of eight heads at most.
    pub streamed: Option<Streamed<'k>>,
    /// The selection of tokens, if rows do not see all of their tokens. Selected tokens are not
    /// streamed, and a window is not supported.
    pub selected: Option<TokenSelection<'k>>,
    /// The newest token's keys and values as packets, which `q` is too then: of a program of one
    /// row of pools of bf16, whose tokens are not chosen.
    pub newest: Option<CurrentToken<'k>>,
    /// The destination of the merge.
    pub merged: Merged<'k>,
}

/// Numbers of heads, dimensions, splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeadCounts {
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Dimensions of a head: a multiple of 8.
    pub dim: u32,
    /// Splits of the tokens.
    pub splits: u32,
}

/// Query heads that one pass over the tokens serves: the n8 of the second MMA.
pub(super) const TOGETHER: u32 = 8;

impl HeadCounts {
    /// Bytes of shared memory for the warps' results, where activations lie elsewhere.
    pub fn scratch_bytes(self, warps: u32) -> u32 {
        warps * self.group().min(TOGETHER) * self.pitch() * 4
    }

    /// Floats of a warp's part of a head.
    pub(super) fn pitch(self) -> u32 {
        self.dim + 2
    }

    /// The partial results of the warps for `heads` query heads.
    pub(super) fn parts<'k>(
        self,
        consumers: ConsumerWarps<'k>,
        heads: u32,
        memory: Ptr<'k, Shared, f32>,
    ) -> WarpParts<'k> {
        let HeadCounts { dim, .. } = self;
        WarpParts { k: consumers.k, memory, warps: consumers.warps, heads, lines: heads, dim, pitch: self.pitch() }
    }

    /// Whether one pass over the tokens serves all heads of a group: what passes through the ring
    /// is there once.
    pub fn is_one_pass(self) -> bool {
        self.group() <= TOGETHER
    }

    /// Query heads of a kv head.
    pub(super) fn group(self) -> u32 {
        self.heads / self.kv_heads
    }
}

impl SplitAttention<'_, '_> {
    /// Checks the modifier, and that windows and functions are those of all tokens of a row.
    pub(super) fn check(self) -> Result<(), AttentionError> {
        match (self.selected, self.modifier.window) {
            (Some(_), Some(window)) => Err(AttentionError::WindowOfSelected { window }),
            (Some(_), None) if self.custom.is_some() => Err(AttentionError::CustomOfSelected),
            _ => self.modifier.check(),
        }
    }
}

/// The result of the merge, and how splits signal each other.
#[derive(Clone, Copy)]
pub struct Merged<'k> {
    /// The result, `[rows, heads, dim]`.
    pub out: ActivationOutput<'k>,
    /// The signal by which splits report completion.
    pub parts: SplitSignal<'k>,
}

/// The signal by which the splits of a row and kv head report completion.
#[derive(Clone, Copy)]
pub enum SplitSignal<'k> {
    /// Arrivals, u32 `[rows, kv_heads, ARRIVAL]`, of which the first of each is used; zeros before
    /// the first launch.
    Counted(Ptr<'k, Global, u32>),
    /// Packets of f32, `[rows, heads, splits, dim + 2]`: `m`, `l` and the unnormalised sums of
    /// each. The first split's block waits for the others, so none of these may follow it, nor
    /// another that waits, on a block.
    Packets(Array<'k>),
}
