//! A block's share of a product, and the tile that it computes.

use tilewright_codegen::build::{Builder, Val};

use super::tiles::HopperPlan;

/// A block's part of the product: one tile of a group of tiles that share activations, and one
/// share of k.
#[derive(Clone, Copy)]
pub(super) struct BlockShare<'a, 'k> {
    pub(super) k: &'k Builder,
    pub plan: &'a HopperPlan,
    /// The index of the tile in its group.
    pub member: Val<'k, u32>,
    /// The index of the share of k.
    pub split: Val<'k, u32>,
}

/// A tile that a block computes.
#[derive(Clone, Copy)]
pub(super) struct BlockTile<'k> {
    /// The index of the tile along the rows.
    pub rows: Val<'k, u32>,
    /// Its first vector, where vectors have several tiles.
    pub vector: Option<Val<'k, u32>>,
}
