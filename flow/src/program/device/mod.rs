//! The ops of a flow on a device.
//!
//! | file | what it holds |
//! |---|---|
//! | `spread`, `lanes` | how a row of a value lies in lanes; what a lane holds of it |
//! | `linear`, `registers` | scores that are sums of products, and the registers that they take |
//! | `recipe` | a pass as what is recorded, and what of it lanes cannot compute |
//! | `product` | the instructions of sums of products |
//! | `values`, `numbers` | every op of a flow on registers |
//! | `plan` | what the plans of all ops begin with |
//! | `buffers` | the buffers that a task names |
//! | `kept`, `sources` | what a flow stores to memory, and loads from it |
//! | `learned` | learned queries, by all warps |
//! | `amount` | a budget, and the candidates that it leaves |
//! | `stage`, `staged` | fields of candidates on their way through the ring, and warps that share them |
//! | `groups` | candidates dealt to groups of lanes |
//! | `score`, `across` | the indexer; ops across the blocks of a row |
//! | `summarise` | the cache pass |
//! | `select`, `search` | the exact selection |
//!
//! May import: `bind`, `flow`, `memory`, and the ops and `subject` of `program`.
//!
//! The code is recorded from the flow's graph: a device function is a flow for a model. It knows
//! device functions and tensors of `tilewright_kernels` by their public names alone.

mod across;
mod amount;
mod buffers;
mod groups;
mod kept;
mod lanes;
mod learned;
mod linear;
mod numbers;
mod plan;
mod product;
mod recipe;
mod registers;
mod score;
mod search;
mod select;
mod sources;
mod spread;
mod stage;
mod staged;
mod summarise;
mod values;

use tilewright_megakernel::program::BufferId;
use tilewright_megakernel::vm::Unsupported;
use tilewright_megakernel::vm::device::Planner;
use tilewright_megakernel::vm::multiple;

use self::recipe::PassRecipe;
use self::spread::{Spread, VECTOR};
use super::subject::{LayerFlow, Pools};
use crate::FlowPass;

/// The pools that belong to a key pool.
fn pools_of(plan: &Planner, k_pool: BufferId, block_tokens: usize) -> Result<Pools, Unsupported> {
    let extent = |from_last| plan.extent(k_pool, from_last).map(|extent| extent as usize);
    let pools =
        Pools { kv_heads: extent(3)?, pages: extent(2)?, page_tokens: extent(1)?, head_dim: extent(0)?, block_tokens };
    multiple("the dimensions of a head", pools.head_dim as u32, VECTOR, "a multiple of 8")?;
    Ok(pools)
}

/// A flow by name, in a layer with these pools.
fn subject_of(flow: &str, pools: Pools, group: usize) -> Result<LayerFlow, Unsupported> {
    LayerFlow::new(flow, pools, group).map_err(|error| Unsupported::Refused { problem: error.to_string() })
}

/// A pass that lanes can compute.
fn recipe_of(subject: &LayerFlow, pass: FlowPass, spread: Spread) -> Result<PassRecipe, Unsupported> {
    let refused = |problem: String| Unsupported::Refused { problem };
    let recipe = PassRecipe::new(&subject.traced, pass, &subject.extents, spread);
    let recipe = recipe.map_err(|error| refused(error.to_string()))?;
    match recipe.refusal() {
        None => Ok(recipe),
        Some(problem) => Err(refused(problem)),
    }
}
