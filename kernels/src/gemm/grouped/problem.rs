//! A grouped product as data.

use crate::epilogue::{CustomEpilogue, Epilogue};

/// A product for each group of rows: `C[i, :] = epilogue(A[i, :] · B[g, :, :]ᵀ)` for each row `i`
/// of `offsets[g]..offsets[g + 1]`.
///
/// All matrices are row-major and compact. Weights are `[groups, n, k]`, or `[groups, 2n, k]` where
/// the epilogue is gated: gates first, then what they multiply.
///
/// | buffer | contents |
/// |---|---|
/// | A | rows of k |
/// | B | weights |
/// | offsets | `groups + 1` numbers of 32 bits that never fall, the last at most `rows` |
/// | order | a number for each row, where rows are gathered or scattered |
/// | C | rows of n |
/// | bias | `[groups, n]`, or `[groups, 2n]` where gated |
/// | residual | `[rows, n]`, in the order of the groups |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupedProblem {
    /// Groups: experts.
    pub groups: u32,
    /// Rows of all groups together, at most. Offsets say how many there are.
    pub rows: u32,
    /// Columns of the result.
    pub n: u32,
    /// The contraction, a multiple of 8.
    pub k: u32,
    /// Where rows of A are gathered, row `i` is row `order[i] / gather` of A; otherwise row `i`.
    pub gather: Option<u32>,
    /// Whether row `i` of the result is written to row `order[i]` of C; otherwise to row `i`.
    pub scatter: bool,
    /// The epilogue; places count rows in the order of the groups.
    pub epilogue: Epilogue,
}

/// A grouped product with an epilogue of the caller's own after the problem's.
#[derive(Clone, Copy, Debug)]
pub struct CustomGrouped<'f> {
    /// The product.
    pub problem: GroupedProblem,
    /// The last step of the epilogue.
    pub custom: Option<CustomEpilogue<'f>>,
}

impl From<GroupedProblem> for CustomGrouped<'_> {
    fn from(problem: GroupedProblem) -> Self {
        CustomGrouped { problem, custom: None }
    }
}

impl From<&GroupedProblem> for CustomGrouped<'_> {
    fn from(problem: &GroupedProblem) -> Self {
        (*problem).into()
    }
}

impl GroupedProblem {
    /// Contiguous rows, no epilogue.
    pub fn new(groups: u32, rows: u32, n: u32, k: u32) -> GroupedProblem {
        GroupedProblem { groups, rows, n, k, gather: None, scatter: false, epilogue: Epilogue::default() }
    }

    /// Gathers rows of A: row `i` is row `order[i] / divisor`.
    ///
    /// A token that `chosen` experts were chosen for has the places `chosen · token + j` in the
    /// order, so that `chosen` is the divisor.
    #[must_use]
    pub fn gather(self, divisor: u32) -> GroupedProblem {
        GroupedProblem { gather: Some(divisor), ..self }
    }

    /// Scatters rows of the result by the order.
    #[must_use]
    pub fn scatter(self) -> GroupedProblem {
        GroupedProblem { scatter: true, ..self }
    }

    /// Sets the epilogue.
    #[must_use]
    pub fn epilogue(self, epilogue: Epilogue) -> GroupedProblem {
        GroupedProblem { epilogue, ..self }
    }

    /// Adds a last step to the epilogue: see [`CustomEpilogue`].
    pub fn custom(self, custom: CustomEpilogue<'_>) -> CustomGrouped<'_> {
        CustomGrouped { problem: self, custom: Some(custom) }
    }

    /// Rows of a group's weights.
    pub fn b_rows(&self) -> u32 {
        if self.epilogue.gated { 2 * self.n } else { self.n }
    }

    /// Whether a launch takes an order.
    pub fn ordered(&self) -> bool {
        self.gather.is_some() || self.scatter
    }
}
