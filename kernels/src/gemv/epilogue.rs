//! The epilogue of a matrix-vector product, as data.

use crate::epilogue::{Epilogue, SumScale};
use crate::kv::PoolType;
use crate::tile::Float;

/// The epilogue of a matrix-vector product: that of every linear product, and where results go.
///
/// ```
/// use tilewright_kernels::gemv::{Epilogue, GemvEpilogue};
/// let plain = GemvEpilogue::from(Epilogue { bias: true, ..Epilogue::default() });
/// assert!(plain.epilogue.bias && !plain.wide && plain.normed.is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GemvEpilogue {
    /// The steps from sums to results. A scale is that of a norm.
    pub epilogue: Epilogue,
    /// The results are f32, else `bf16`; so is what is added to them.
    pub wide: bool,
    /// The results are the residual stream, f32, and begin a norm whose weight has this type.
    pub normed: Option<Float>,
    /// Heads of [`WeightRows::Groups`](super::hopper::WeightRows): queries and keys are rotated,
    /// keys and values appended to their pages.
    pub heads: Option<HeadPages>,
    /// The results are not stored. Of every vector and tile the largest is, with its number
    /// ([`best_rows`](crate::sample::best_rows)): y is u64 `[batch, tiles]`.
    pub best: bool,
}

/// The pages that heads are appended to.
///
/// The table of cosines and sines, f32 `[positions, dim / 2, 2]`, has fewer than 2³² elements, as
/// each pool has: the kernel computes their places in 32 bits, and planners refuse larger ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeadPages {
    /// Tokens of a page.
    pub page_tokens: u32,
    /// The element type of both pools.
    pub pool: PoolType,
}

impl From<Epilogue> for GemvEpilogue {
    fn from(epilogue: Epilogue) -> GemvEpilogue {
        GemvEpilogue { epilogue, ..GemvEpilogue::default() }
    }
}

impl GemvEpilogue {
    /// An epilogue that ends a norm: the vectors are `x ⊙ g` of it, and sums are scaled by its
    /// factor first.
    ///
    /// ```
    /// use tilewright_kernels::gemv::GemvEpilogue;
    /// assert!(GemvEpilogue::default().ending_norm().ends_norm());
    /// ```
    #[must_use]
    pub fn ending_norm(self) -> GemvEpilogue {
        GemvEpilogue { epilogue: Epilogue { scale: Some(SumScale::Norm), ..self.epilogue }, ..self }
    }

    /// Whether it ends a norm.
    pub fn ends_norm(self) -> bool {
        self.epilogue.scale == Some(SumScale::Norm)
    }
}
