//! A pass over the tokens of a split, and what a warp carries through it.

use tilewright_codegen::build::Val;

use crate::attention::merge::WarpParts;
use crate::attention::split::SplitAttention;
use crate::kv::Streamed;
use crate::mma::Accumulator;
use crate::warps::ConsumerWarps;

/// A pass over the tokens for up to eight query heads of a row.
#[derive(Clone, Copy)]
pub(super) struct AttentionPass<'f, 'k> {
    pub consumers: ConsumerWarps<'k>,
    pub work: SplitAttention<'f, 'k>,
    pub row: Val<'k, u32>,
    pub begin: Val<'k, u32>,
    pub end: Val<'k, u32>,
    /// Tokens of the row.
    pub tokens: Val<'k, u32>,
    /// Whether the row's newest token is the last of them.
    pub is_last: Val<'k, bool>,
    /// The first token that the row sees, where a window hides others.
    pub first_seen: Option<Val<'k, u32>>,
    /// Whether the row has no other tokens.
    pub(super) single: Val<'k, bool>,
    /// First query head.
    pub first: Val<'k, u32>,
    /// Query heads.
    pub count: u32,
    /// The tokens that are streamed: where they begin and end.
    pub streamed: Option<(Streamed<'k>, [Val<'k, u32>; 2])>,
}

/// The state that a warp carries from block to block.
///
/// For head `lane / 4`: the maximum (of scores times log2 e) and this lane's part of the sum. For
/// the heads `2·(lane mod 4)` and the next: the output.
pub(super) struct Running<'k> {
    pub(super) most: tilewright_codegen::build::Var<'k, f32>,
    pub(super) sum: tilewright_codegen::build::Var<'k, f32>,
    pub(super) out: Vec<Accumulator<'k, f32>>,
}

impl<'k> Running<'k> {
    /// Stores this warp's part of a pass.
    pub(super) fn store(&self, pass: AttentionPass<'_, 'k>, parts: &WarpParts<'k>) {
        let k = parts.k;
        let run = pass.lanes().run;
        let height = pass.lanes().height();
        let group = k.lane() / 4;
        let column = k.lane() % 4;
        let sum = [1u32, 2].into_iter().fold(self.sum.get(), |sum, bits| sum + sum.shfl_bfly(bits));
        k.when(column.eq(0) & group.lt(parts.heads), || {
            parts.store_stats(parts.line(k.warp(), group), [self.most.get(), sum]);
        });
        for (rows, out) in self.out.chunks(run as usize / 2).enumerate() {
            pass.lanes().guarded(height * rows as u32, height, group * run, |at| {
                for next in 0..2u32 {
                    let head = column * 2 + next;
                    k.when(head.lt(parts.heads), || {
                        let line = parts.line(k.warp(), head).at(at);
                        for (j, out) in out.iter().enumerate() {
                            line.at(2 * j).store_vec([out.get(next), out.get(2 + next)]);
                        }
                    });
                }
            });
        }
    }
}
