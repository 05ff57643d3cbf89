//! Measures the share of dense attention that a selection keeps, on activations of a layer.

use super::{FlowExecutor, attend};
use crate::error::RunError;
use crate::memory::{BlockSelection, Budget, FlowPool, FlowRequest};

/// Activations of a layer over a sequence.
#[derive(Clone, Copy, Debug)]
pub struct LayerActivations<'a> {
    /// Rotated keys, `[tokens, key heads, head_dim]`.
    pub keys: &'a [f64],
    /// Values, the same extents.
    pub values: &'a [f64],
    /// Rotated queries of the last tokens, `[steps, key heads · group, head_dim]`: each a decode
    /// step.
    pub queries: &'a [f64],
}

/// The kept share of attention, over all steps and query heads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeptAttention {
    /// Share of the dense attention's weights that the selected tokens hold, in the mean.
    pub mass: f64,
    /// L2 norm of what the output is off, over that of the dense output.
    pub error: f64,
}

/// Decodes the last tokens of a sequence with a flow and compares each step with dense attention.
///
/// # Errors
/// [`RunError`]: slices of lengths that do not fit.
pub fn kept(
    machine: &impl FlowExecutor<f64>,
    on: LayerActivations<'_>,
    budget: &Budget,
) -> Result<KeptAttention, RunError> {
    let model = machine.bound().extents.model;
    let token = model.kv_heads * model.head_dim;
    let query = model.kv_heads * model.group * model.head_dim;
    let tokens = on.keys.len() / token;
    let steps = on.queries.len() / query;
    let pages: Vec<usize> = (0..tokens.div_ceil(model.block_tokens)).collect();
    let mut pool = FlowPool::new(machine.bound(), model.block_tokens, pages.len())?;
    let mut requests = [FlowRequest::new(&pool, &pages, 0)?];
    let first = tokens.saturating_sub(steps);
    let of = |all: &'_ [f64], from: usize, to: usize| all[from * token..to * token].to_vec();
    machine.append(&mut pool, &mut requests[0], &of(on.keys, 0, first), &of(on.values, 0, first))?;
    let mut mass = 0.0;
    let mut apart = 0.0;
    let mut whole = 0.0;
    for step in 0..steps.min(tokens) {
        let at = first + step;
        machine.append(&mut pool, &mut requests[0], &of(on.keys, at, at + 1), &of(on.values, at, at + 1))?;
        let queries = &on.queries[step * query..][..query];
        let rows = machine.step(&pool, &mut requests, queries, budget)?;
        for (head, q) in queries.chunks_exact(model.head_dim).enumerate() {
            let kv_head = head / model.group;
            let blocks = requests[0].blocks(pool.shape(), kv_head);
            let all = BlockSelection { positions: (0..blocks.len() as u32).collect(), blocks };
            let dense = attend(&pool, &requests[0], kv_head, q, &all).output;
            let found = attend(&pool, &requests[0], kv_head, q, &rows[kv_head].selected);
            mass += found.mass;
            apart += found.output.iter().zip(&dense).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
            whole += dense.iter().map(|x| x * x).sum::<f64>();
        }
    }
    let count = (steps.min(tokens) * model.kv_heads * model.group).max(1) as f64;
    Ok(KeptAttention { mass: mass / count, error: if whole > 0.0 { (apart / whole).sqrt() } else { 0.0 } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Interpreter;
    use crate::{ModelShape, Parameters, algorithms};

    /// All blocks keep everything; the newest tokens keep their share.
    #[test]
    fn all_blocks_keep_all_and_few_keep_less() {
        let traced = algorithms::named("quest").expect("a flow").trace().expect("a flow without errors");
        let model = ModelShape { kv_heads: 1, group: 2, head_dim: 4, block_tokens: 2 };
        let bound = traced.bind(&model, &Parameters::new()).expect("a model that fits");
        let machine = Interpreter::new(&bound);
        let numbers = |n: usize, seed: usize| -> Vec<f64> {
            (0..n).map(|i| ((i * 29 + seed * 13) % 31) as f64 / 15.0 - 1.0).collect()
        };
        let keys = numbers(40 * 4, 1);
        let values = numbers(40 * 4, 2);
        let queries = numbers(3 * 8, 3);
        let on = LayerActivations { keys: &keys, values: &values, queries: &queries };
        let of =
            |top_k| kept(&machine, on, &Budget::new(top_k, 0.0, 1, 1).expect("a budget")).expect("lengths that fit");
        let all = of(40);
        assert!((all.mass - 1.0).abs() < 1e-12 && all.error == 0.0, "{all:?}");
        let few = of(3);
        assert!(few.mass > 0.25 && few.mass < 1.0 && few.error > 0.0, "{few:?}");
        assert!(of(8).mass > few.mass);
    }
}
