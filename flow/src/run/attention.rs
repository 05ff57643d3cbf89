//! Attention over the selected blocks of a row, and how much of the dense attention they hold.

use crate::memory::{BlockSelection, FlowPool, FlowRequest};
use crate::real::Real;

/// The attention result of a query head.
#[derive(Clone, Debug, PartialEq)]
pub struct AttendedHead {
    /// The output, `[head_dim]`.
    pub output: Vec<f64>,
    /// The share of the dense attention's weights that the selected tokens hold.
    pub mass: f64,
}

/// Attention of one query head `[head_dim]` over the selected blocks of its key head, in f64,
/// scaled by 1/√head_dim.
///
/// A request without tokens gives zeros and mass 0.
pub fn attend<T: Real>(
    pool: &FlowPool<T>,
    request: &FlowRequest<T>,
    head: usize,
    query: &[T],
    selected: &BlockSelection,
) -> AttendedHead {
    let model = pool.shape().model;
    let scale = 1.0 / (model.head_dim as f64).sqrt();
    let blocks = request.blocks(pool.shape(), head);
    let tokens_of = |position: usize| model.block_tokens.min(request.tokens() - position * model.block_tokens);
    let logit = |block: usize, token: usize| {
        let key = &pool.keys(block)[token * model.head_dim..][..model.head_dim];
        scale * key.iter().zip(query).map(|(k, q)| k.to_f64() * q.to_f64()).sum::<f64>()
    };
    let logits_of = |position: usize| -> Vec<f64> {
        (0..tokens_of(position)).map(|token| logit(blocks[position] as usize, token)).collect()
    };
    let largest = (0..blocks.len()).flat_map(&logits_of).fold(f64::NEG_INFINITY, f64::max);
    let dense: f64 = (0..blocks.len()).flat_map(&logits_of).map(|x| (x - largest).exp()).sum();
    let mut output = vec![0.0; model.head_dim];
    let mut sum = 0.0;
    for &position in &selected.positions {
        for (token, x) in logits_of(position as usize).into_iter().enumerate() {
            let weight = (x - largest).exp();
            sum += weight;
            let values = &pool.values(blocks[position as usize] as usize)[token * model.head_dim..];
            output.iter_mut().zip(values).for_each(|(o, v)| *o += weight * v.to_f64());
        }
    }
    if sum > 0.0 {
        output.iter_mut().for_each(|o| *o /= sum);
    }
    AttendedHead { output, mass: if dense > 0.0 { sum / dense } else { 0.0 } }
}
