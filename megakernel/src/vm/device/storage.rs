//! The storage of operands, as far as it is constant in the code.

use tilewright_kernels::gemv::activations::ScaledForm;
use tilewright_kernels::kv::{PoolType, SplitPages};
use tilewright_kernels::tile::Float;

/// The storage of activations: element type, and packet generations per step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Storage {
    /// Their type.
    pub float: Float,
    /// Generations of a step, where they are packets; 0 where not.
    pub period: u32,
}

/// The storage of activations as terms of the MMA operand that their readers multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScaledCode {
    /// The form of its terms.
    pub form: ScaledForm,
    /// The type of the norm's weight, if there is one; with a table of places it is f32.
    pub weight: Option<Float>,
}

/// A table of cosines and sines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RotationRows {
    /// Its start in the plain weights, in units of 16 bytes.
    pub table: u32,
    /// Half the dimensions of a head.
    pub half: u32,
}

/// The pools of a layer, and the step inputs that locate the tokens of rows. The code does not
/// depend on the number of pages, nor on the most pages of a sequence: a launch has both as
/// parameters ([`Lengths`](crate::vm::Lengths)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvPools {
    /// Their element type.
    pub of: PoolType,
    /// Tokens of a page.
    pub page_tokens: u32,
    /// Dimensions of a head.
    pub dim: u32,
    /// The offset of the positions in the state, in units of 16 bytes.
    pub position: u32,
    /// The offset of the page tables in the state, in units of 16 bytes.
    pub table: u32,
    /// The number of pages in a split.
    pub split_pages: SplitPages,
}
