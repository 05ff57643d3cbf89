//! The operators of a flow, by family: what they are, where they run, which shape comes out.
//!
//! | family | what it touches | runs |
//! |---|---|---|
//! | [`SourceOp`] | what a flow is given: query, keys, fields, states, parameters | read where it is used |
//! | [`Elementwise`], [`Reduction`], [`ProductOp`], [`Rearrange`] | one row `[d0, d1]` of each operand | in a fused group |
//! | [`RowOp`] | all blocks of a row of the batch | in a group of its own |
//! | [`Effect`] | selection, stored fields, saved states | at the end of a group; a selection in a group of its own |
//!
//! Every family has its names here, its shapes in `infer`, its arithmetic in `run::tile`.

mod elementwise;
mod infer;
mod number;
mod rowwise;

pub(crate) use elementwise::REFUSED;
pub use elementwise::{Binary, Comparison, Elementwise, Unary};
pub use infer::{Need, infer};
pub use number::{Num, Scale};
pub use rowwise::{Norm, RowOp, Taps};

use crate::dim::InnerShape;

/// An inner axis of a value `[d0, d1]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InnerAxis {
    /// The first inner axis: heads of a query, tokens of a block.
    D0,
    /// The second inner axis: elements of a head.
    D1,
}

impl InnerAxis {
    /// 0 or 1.
    pub const fn index(self) -> usize {
        match self {
            InnerAxis::D0 => 0,
            InnerAxis::D1 => 1,
        }
    }
}

/// What a reduction computes. A maximum or minimum passes over NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// The sum.
    Sum,
    /// The sum over the number of elements.
    Mean,
    /// The largest; −∞ of nothing.
    Max,
    /// The smallest; +∞ of nothing.
    Min,
    /// The root of the sum of squares.
    L2Norm,
}

impl Reduce {
    /// Every reduction.
    pub const ALL: [Reduce; 5] = [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min, Reduce::L2Norm];

    /// The name in text forms.
    pub const fn name(self) -> &'static str {
        match self {
            Reduce::Sum => "sum",
            Reduce::Mean => "mean",
            Reduce::Max => "max",
            Reduce::Min => "min",
            Reduce::L2Norm => "l2_norm",
        }
    }
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// Its place in the list of declarations.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

handle!(
    /// A declared field: one row for each block of the pool.
    FieldId
);
handle!(
    /// A declared state: one row for each block of a request.
    StateId
);
handle!(
    /// A declared parameter: one value for each key head.
    ParameterId
);

/// What a flow is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceOp {
    /// The query heads of a key head, `[G, D]`.
    Query,
    /// The keys of a block, `[B, D]`.
    Keys,
    /// The values of a block, `[B, D]`.
    Values,
    /// The place of a block in its sequence, `[1, 1]`.
    Positions,
    /// A field of a block.
    Field(FieldId),
    /// A parameter of the key head.
    Parameter(ParameterId),
    /// What the step before saved. A reader comes before the save of this step: an edge of the
    /// graph.
    Load(StateId),
    /// One number for every element, in the shape of a field.
    Fill(FieldId, Num),
}

/// A reduction along an inner axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduction {
    /// What it computes.
    pub reduce: Reduce,
    /// Along which axis.
    pub axis: InnerAxis,
    /// Neighbours that become one element; the whole axis where absent.
    pub every: Option<u32>,
}

/// Products of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProductOp {
    /// `x [1, K]`, `y [1, K]` → their inner product `[1, 1]`.
    Gemv,
    /// `x [M, K]`, `y [N, K]` → `y·xᵀ [N, M]`.
    Gemm,
    /// `q [G, D]`, parameters `[G·D, R]` twice → `s·Σ_h W_k[h]·(W_q[h]ᵀ·q_h) [1, D]`.
    LearnedQuery(Scale),
    /// Kronecker product along the axes that are true; the others broadcast.
    Kron([bool; 2]),
}

/// Elements in other places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rearrange {
    /// `[d0, d1]` → `[d1, d0]`.
    Transpose,
    /// The elements in row-major order in another shape.
    Reshape(InnerShape),
}

/// What a graph is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The blocks with the largest scores.
    Select,
    /// The state of the next step.
    Save(StateId),
    /// A field of the block that is complete.
    Store(FieldId),
}

/// An operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "a variant is its family")]
pub enum FlowOp {
    Source(SourceOp),
    Elementwise(Elementwise),
    Reduction(Reduction),
    Product(ProductOp),
    Rearrange(Rearrange),
    Row(RowOp),
    Effect(Effect),
}

impl FlowOp {
    /// The name in text forms and errors.
    pub fn name(&self) -> &'static str {
        match self {
            FlowOp::Source(source) => match source {
                SourceOp::Query => "query",
                SourceOp::Keys => "keys",
                SourceOp::Values => "values",
                SourceOp::Positions => "positions",
                SourceOp::Field(_) => "field",
                SourceOp::Parameter(_) => "parameter",
                SourceOp::Load(_) => "load",
                SourceOp::Fill(..) => "fill",
            },
            FlowOp::Elementwise(op) => op.name(),
            FlowOp::Reduction(Reduction { reduce, .. }) => reduce.name(),
            FlowOp::Product(product) => match product {
                ProductOp::Gemv => "gemv",
                ProductOp::Gemm => "gemm",
                ProductOp::LearnedQuery(_) => "learned_query",
                ProductOp::Kron(_) => "kron",
            },
            FlowOp::Rearrange(Rearrange::Transpose) => "transpose",
            FlowOp::Rearrange(Rearrange::Reshape(_)) => "reshape",
            FlowOp::Row(op) => op.name(),
            FlowOp::Effect(effect) => match effect {
                Effect::Select => "select",
                Effect::Save(_) => "save",
                Effect::Store(_) => "store",
            },
        }
    }

    /// Whether it is given, not computed.
    pub const fn is_source(&self) -> bool {
        matches!(self, FlowOp::Source(_))
    }

    /// Whether the graph exists for it.
    pub const fn is_effect(&self) -> bool {
        matches!(self, FlowOp::Effect(_))
    }

    /// Whether exchanging its two operands changes nothing.
    pub fn is_commutative(&self) -> bool {
        match self {
            FlowOp::Elementwise(Elementwise::Binary(binary)) => binary.is_commutative(),
            _ => false,
        }
    }
}
