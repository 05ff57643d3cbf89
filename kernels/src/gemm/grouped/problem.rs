//! A grouped product as data.

use crate::epilogue::{CustomEpilogue, CustomGate, Epilogue, ResultFunctions};

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
/// | scale of A | of operands of 8 bits, f32: `[rows of A, ⌈k/128⌉]`, a number for 128 elements of a row |
/// | scale of B | of operands of 8 bits, f32: `[groups, ⌈n/128⌉, ⌈k/128⌉]`, a number for 128×128 weights; where gated `[groups, 2, ⌈n/128⌉, ⌈k/128⌉]` |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupedProblem {
    /// Groups: experts.
    pub groups: u32,
    /// Rows of all groups together, at most. Offsets say how many there are.
    pub rows: u32,
    /// Columns of the result.
    pub n: u32,
    /// The contraction, a multiple of 16 bytes.
    pub k: u32,
    /// Where rows of A are gathered, row `i` is row `order[i] / gather` of A; otherwise row `i`.
    pub gather: Option<u32>,
    /// Whether row `i` of the result is written to row `order[i]` of C; otherwise to row `i`.
    pub scatter: bool,
    /// The epilogue; places count rows in the order of the groups.
    pub epilogue: Epilogue,
}

/// A grouped product with steps of the caller's own in its epilogue.
#[derive(Clone, Copy, Debug)]
pub struct CustomGrouped<'f> {
    /// The product.
    pub problem: GroupedProblem,
    /// The steps.
    pub steps: CustomSteps<'f>,
}

/// Steps of an epilogue that are the caller's own. The parameters that they declare follow all
/// others of the kernel: those of the gate, then those of the last step.
#[derive(Clone, Copy, Debug, Default)]
pub struct CustomSteps<'f> {
    /// The gate, of a product whose epilogue is gated and has no activation.
    pub gate: Option<CustomGate<'f>>,
    /// The last step.
    pub last: Option<CustomEpilogue<'f>>,
}

impl CustomSteps<'_> {
    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        self.gate.is_some() || self.last.is_some()
    }
}

impl From<GroupedProblem> for CustomGrouped<'_> {
    fn from(problem: GroupedProblem) -> Self {
        CustomGrouped { problem, steps: CustomSteps::default() }
    }
}

impl From<&GroupedProblem> for CustomGrouped<'_> {
    fn from(problem: &GroupedProblem) -> Self {
        (*problem).into()
    }
}

impl<'f> CustomGrouped<'f> {
    /// Adds a last step to the epilogue: see [`CustomEpilogue`].
    #[must_use]
    pub fn custom(self, custom: CustomEpilogue<'f>) -> CustomGrouped<'f> {
        CustomGrouped { steps: CustomSteps { last: Some(custom), ..self.steps }, ..self }
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
        CustomGrouped::from(self).custom(custom)
    }

    /// Gates the product by a function of the caller's own: see [`CustomGate`].
    pub fn gate(self, gate: CustomGate<'_>) -> CustomGrouped<'_> {
        let functions = ResultFunctions { activation: None, ..self.epilogue.functions };
        let problem = self.epilogue(Epilogue { gated: true, functions, ..self.epilogue });
        CustomGrouped { problem, steps: CustomSteps { gate: Some(gate), last: None } }
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
