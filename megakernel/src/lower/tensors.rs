//! The tensors that nodes read: norms, and weights of products.

use tilewright_graph::graph::{ValueId, Weight};

/// The residual stream as a product takes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StreamInput<'g> {
    pub x: ValueId,
    /// The norm of it; `None`: it is taken as it is.
    pub norm: Option<NormTensor<'g>>,
}

impl<'g> StreamInput<'g> {
    /// The layer norm, with the value that it is of.
    pub fn layer_norm(&self) -> Option<(ValueId, &NormTensor<'g>)> {
        Some((self.x, self.norm.as_ref().filter(|norm| norm.layer.is_some())?))
    }
}

/// The weight of a norm, and its epsilon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NormTensor<'g> {
    pub weight: &'g Weight,
    pub eps: f32,
    /// What makes it a layer norm.
    pub layer: Option<LayerTensor<'g>>,
}

/// What a layer norm has besides an RMS norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LayerTensor<'g> {
    pub bias: Option<&'g Weight>,
}

/// A product with a weight of the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WeightProduct<'g> {
    pub role: ProductRole,
    pub weight: &'g Weight,
    pub bias: Option<&'g Weight>,
    /// The ids of the experts whose weights are multiplied, where these are chosen.
    pub experts: Option<ValueId>,
}

/// The product of a block that a weight is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProductRole {
    Query,
    Key,
    Value,
    /// The output projection of attention.
    Output,
    Gate,
    Up,
    /// The second product of the MLP.
    Down,
    /// The logits of experts.
    Router,
}

impl ProductRole {
    /// Its name in those of levels.
    pub const fn name(self) -> &'static str {
        match self {
            ProductRole::Query => "q",
            ProductRole::Key => "k",
            ProductRole::Value => "v",
            ProductRole::Output => "o",
            ProductRole::Gate => "gate",
            ProductRole::Up => "up",
            ProductRole::Down => "down",
            ProductRole::Router => "router",
        }
    }
}
