//! What levels leave to the next: norms to be computed, products, and their operands.

use tilewright_kernels::activation::SoftCap;
use tilewright_kernels::embed::TableOrder;
use tilewright_kernels::epilogue::{Epilogue, ResultFunctions};
use tilewright_kernels::gemv::{GemvEpilogue, hopper, hopper::WeightRows};

use super::launch::{LaunchMemory, Scratch};
use crate::ops::LayerNorm;
use crate::program::BufferId;
use crate::vm::resident::PackedStrips;

/// The norm of a residual stream.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct NormOf {
    pub x: BufferId,
    pub weight: BufferId,
    pub eps: f32,
    /// What makes it a layer norm.
    pub layer: Option<LayerNorm>,
}

/// The activations of a layer.
#[derive(Clone, Copy)]
pub(crate) enum NormActivations {
    /// They lie there, bf16.
    Scratch(Scratch),
    /// A norm, which is still to be computed.
    Norm(NormOf),
    /// The residual stream that a buffer names, which is still to be rounded to bf16.
    Stream(BufferId),
}

/// What the residual stream is still to become.
pub(super) enum Pending {
    /// `residual` and the result of the last product, which the norm that comes next adds.
    Added { residual: BufferId, out: BufferId },
    /// `residual` and the parts of all devices, which the norm that comes next adds.
    Parts { residual: BufferId, out: BufferId, part: Scratch },
    /// What a launch stores that may begin the norm that comes next.
    Begun { out: BufferId, launch: Begun },
}

/// A launch that stores the residual stream.
pub(crate) enum Begun {
    /// Rows of the table.
    Embedding(Embedding),
    /// A product of packed weights, which is added to the stream.
    Product(Box<PackedProduct>),
}

/// Rows of a table of embeddings.
pub(crate) struct Embedding {
    pub order: TableOrder,
    pub args: [LaunchMemory; 4],
    /// Factor on the rows.
    pub scale: f32,
    /// The first id of a table that has a part of the vocabulary, and how many it has.
    pub shard: Option<[u32; 2]>,
    pub rows: u32,
    pub width: u32,
}

impl Pending {
    /// Whether that buffer is what the stream becomes.
    pub fn makes(&self, x: BufferId) -> bool {
        match self {
            Pending::Added { out, .. } | Pending::Parts { out, .. } | Pending::Begun { out, .. } => *out == x,
        }
    }

    /// Whether these are parts that make that buffer.
    pub fn is_parts_of(&self, x: BufferId) -> bool {
        matches!(self, Pending::Parts { out, .. } if *out == x)
    }
}

/// What a product multiplies.
pub(crate) struct ProductInput<'a> {
    pub a: NormActivations,
    /// Weights below each other, with their biases.
    pub layers: &'a [(BufferId, Option<BufferId>)],
    /// What their rows are.
    pub results: WeightRows,
    /// What results go through.
    pub functions: ResultFunctions,
    pub to: Scratch,
}

/// The output projection.
#[derive(Clone, Copy)]
pub(super) struct OutputProjection {
    pub layer: (BufferId, Option<BufferId>),
    pub soft_cap: Option<SoftCap>,
}

/// A product with its operands as launch arguments name them.
pub(super) struct Multiply<'a> {
    /// Rows of the activations.
    pub rows: u32,
    pub a: LaunchMemory,
    pub layers: &'a [(BufferId, Option<BufferId>)],
    pub results: WeightRows,
    /// What results go through.
    pub functions: ResultFunctions,
    pub to: LaunchMemory,
    /// Whether results are f32, else bf16.
    pub wide: bool,
    /// Whether they are added to what is there, of their type: of packed weights alone.
    pub added: bool,
}

impl Multiply<'_> {
    /// Its epilogue with a bias, but for what results are added to.
    pub fn epilogue(&self, bias: Option<LaunchMemory>) -> Epilogue {
        let gated = matches!(self.results, WeightRows::Gated(_));
        Epilogue { scale: None, bias: bias.is_some(), gated, functions: self.functions, residual: false }
    }
}

/// A product of packed weights.
#[derive(Clone)]
pub(crate) struct PackedProduct {
    pub(super) strips: PackedStrips,
    pub(super) plan: hopper::HopperPlan,
    pub(super) finish: GemvEpilogue,
    pub(super) a: LaunchMemory,
    pub(super) to: LaunchMemory,
    pub(super) bias: Option<LaunchMemory>,
    /// The eps of the norm that ends in it.
    pub(super) eps: Option<f32>,
}

impl<'a> ProductInput<'a> {
    /// A product of that number of rows, with the place of its results.
    pub(super) fn multiply(&self, rows: u32, to: LaunchMemory) -> Multiply<'a> {
        let scratch = match self.a {
            NormActivations::Scratch(scratch) => scratch,
            NormActivations::Norm(_) | NormActivations::Stream(_) => Scratch::Normed,
        };
        let a = LaunchMemory::Scratch(scratch);
        let layers = self.layers;
        let results = self.results;
        Multiply { rows, a, layers, results, functions: self.functions, to, wide: false, added: false }
    }
}
