//! The epilogue of a matrix-vector product, as data.

use crate::epilogue::{CustomEpilogue, Epilogue, SumScale};
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

/// The epilogue of a matrix-vector product with a last step of the caller's own.
#[derive(Clone, Copy, Debug)]
pub struct CustomGemvEpilogue<'f> {
    /// The steps before.
    pub epilogue: GemvEpilogue,
    /// The last step; results that begin a norm are its results. Heads that are appended, and
    /// results of which only the largest is kept, have none.
    pub custom: Option<CustomEpilogue<'f>>,
}

impl<E: Into<GemvEpilogue>> From<E> for CustomGemvEpilogue<'_> {
    fn from(epilogue: E) -> Self {
        CustomGemvEpilogue { epilogue: epilogue.into(), custom: None }
    }
}

impl GemvEpilogue {
    /// Adds a last step: see [`CustomEpilogue`].
    ///
    /// ```
    /// use tilewright_codegen::ir::Arch;
    /// use tilewright_kernels::epilogue::CustomEpilogue;
    /// use tilewright_kernels::gemv::{GemvEpilogue, GemvPlan, GemvTuning, gemv};
    ///
    /// // Each vector times its own factor.
    /// let custom = CustomEpilogue(&|k, _| {
    ///     let factors = k.global::<f32>("factors");
    ///     Box::new(move |at, sum| sum * factors.at(at.row).load())
    /// });
    /// let plan = GemvPlan::new(2, 4096, 4, GemvTuning::h100(2))?;
    /// let kernel = gemv(Arch::Sm90a, &plan, GemvEpilogue::default().custom(custom));
    /// assert_eq!(kernel.params.last().map(|param| param.name.as_str()), Some("factors"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn custom(self, custom: CustomEpilogue<'_>) -> CustomGemvEpilogue<'_> {
        CustomGemvEpilogue { epilogue: self, custom: Some(custom) }
    }

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
