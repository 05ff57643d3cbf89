//! The exact selection: which blocks, in which order.

use std::cmp::Ordering;

use crate::memory::Budget;
use crate::real::Real;

/// The blocks that a row attends to: the first ones, the winners by score, the last ones.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BlockSelection {
    /// Places in the sequence.
    pub positions: Vec<u32>,
    /// Blocks of the pool, in the same order. The last one is the last block of the sequence, which
    /// may be partial.
    pub blocks: Vec<u32>,
}

impl BlockSelection {
    /// Selects the blocks of a row by a budget, given the scores of its candidates (empty if it has
    /// none).
    pub(crate) fn of<T: Real>(budget: &Budget, table: &[u32], scores: &[T]) -> BlockSelection {
        let all = table.len();
        let positions: Vec<u32> = match budget.candidates(all) {
            None => (0..all as u32).collect(),
            Some(candidates) => {
                let winners = top_k(scores, budget.chosen(all)).into_iter();
                let winners = winners.map(|winner| winner + candidates.start as u32);
                let first = 0..candidates.start as u32;
                let last = candidates.end as u32..all as u32;
                first.chain(winners).chain(last).collect()
            }
        };
        let blocks = positions.iter().map(|position| table[*position as usize]).collect();
        BlockSelection { positions, blocks }
    }

    /// Tokens of the selected blocks, of which the last holds `last_tokens`.
    pub fn tokens(&self, block_tokens: usize, last_tokens: usize) -> usize {
        self.blocks.len().saturating_sub(1) * block_tokens + last_tokens.min(self.blocks.len() * last_tokens)
    }
}

/// A score as a number whose order is that of the selection: NaN lowest, then −∞ to +∞; −0 is +0.
///
/// ```
/// use tilewright_flow::memory::order_key;
/// let ordered = [f32::NAN, f32::NEG_INFINITY, -1e30, -1.0, 0.0, 1e-40, 2.0, f32::INFINITY];
/// assert!(ordered.map(order_key).is_sorted());
/// assert_eq!(order_key(-f32::NAN), order_key(f32::NAN));
/// assert_eq!(order_key(-0.0), order_key(0.0));
/// ```
pub fn order_key(score: f32) -> u32 {
    if score.is_nan() {
        return 0;
    }
    // −0 + 0 is +0. A negative number's bits grow with its magnitude, so they are turned round.
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The places of the `k` largest scores: the largest first, equal ones by place, NaN after
/// everything else.
///
/// ```
/// use tilewright_flow::memory::top_k;
/// assert_eq!(top_k(&[1.0, f32::NAN, 3.0, 1.0, f32::NEG_INFINITY], 4), [2, 0, 3, 4]);
/// ```
pub fn top_k<T: Real>(scores: &[T], k: usize) -> Vec<u32> {
    let mut places: Vec<u32> = (0..scores.len() as u32).collect();
    places.sort_by(|&a, &b| better(scores[a as usize], scores[b as usize]));
    places.truncate(k);
    places
}

/// `Less` where `a` is chosen before `b`. It is a total order: a number before NaN, one NaN like
/// another.
fn better<T: Real>(a: T, b: T) -> Ordering {
    let is_nan = |x: T| x.partial_cmp(&x).is_none();
    b.partial_cmp(&a).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b)))
}
