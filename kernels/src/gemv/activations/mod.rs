//! Representations of activations that tasks hand to each other and products multiply, and where a
//! product keeps them.
//!
//! | file | what it holds |
//! |---|---|
//! | `packing` | how rows lie in the MMA's A operand: [`Packing`] |
//! | `a_operand` | the memory that holds the A operand: [`AOperand`] |
//! | `ordered` | activations in the act-order of codes: [`Ordered`], [`Reordering`] |
//! | `scaled` | split activations, stored as the operand's terms: [`Scaled`], [`ScaledOutput`] |
//! | `overflow` | reports of activations that overflow f16: [`F16Overflow`] |
//! | `prologue` | the activations of a product, and what is done to them: [`Prologue`] |
//! | `parts` | sums of the parts that a contraction was cut into: [`PartSums`] |
//!
//! May import: `norm`, `quant`, `tile`, `warps`, `weights`, and of `gemv` `product`.

mod a_operand;
mod ordered;
mod overflow;
mod packing;
mod parts;
mod prologue;
mod scaled;

pub use a_operand::AOperand;
pub use ordered::{Ordered, Reordering, columns};
pub use overflow::F16Overflow;
pub(super) use overflow::{Infinite, size};
pub use packing::Packing;
pub(super) use packing::{Half, Quads};
pub use parts::{Centre, PartSums, PostNorm};
pub use prologue::Prologue;
pub use scaled::{ActivationOutput, Scaled, ScaledForm, ScaledOutput};
pub(super) use scaled::{Loaded, Squares};
