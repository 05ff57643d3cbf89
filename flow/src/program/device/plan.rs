//! What the plans of a flow's ops have in common: pools, the flow, and its pass for lanes.

use tilewright_megakernel::program::BufferId;
use tilewright_megakernel::vm::device::Planner;
use tilewright_megakernel::vm::{Unsupported, multiple};

use super::recipe::PassRecipe;
use super::spread::{Spread, VECTOR};
use crate::FlowPass;
use crate::program::subject::{LayerFlow, Pools};

/// The pools that belong to a key pool.
pub(super) fn pools_of(plan: &Planner, k_pool: BufferId, block_tokens: usize) -> Result<Pools, Unsupported> {
    let extent = |from_last| plan.extent(k_pool, from_last).map(|extent| extent as usize);
    let pools =
        Pools { kv_heads: extent(3)?, pages: extent(2)?, page_tokens: extent(1)?, head_dim: extent(0)?, block_tokens };
    multiple("the dimensions of a head", pools.head_dim as u32, VECTOR, "a multiple of 8")?;
    Ok(pools)
}

/// A flow by name, in a layer with these pools.
pub(super) fn subject_of(flow: &str, pools: Pools, group: usize) -> Result<LayerFlow, Unsupported> {
    LayerFlow::new(flow, pools, group).map_err(|error| Unsupported::Refused { problem: error.to_string() })
}

/// A pass that lanes can compute.
pub(super) fn recipe_of(subject: &LayerFlow, pass: FlowPass, spread: Spread) -> Result<PassRecipe, Unsupported> {
    let refused = |problem: String| Unsupported::Refused { problem };
    let recipe = PassRecipe::new(&subject.traced, pass, &subject.extents, spread);
    let recipe = recipe.map_err(|error| refused(error.to_string()))?;
    match recipe.refusal() {
        None => Ok(recipe),
        Some(problem) => Err(refused(problem)),
    }
}
