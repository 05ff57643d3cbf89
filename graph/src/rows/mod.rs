//! Ops on rows `[d0, d1]` of blocks of keys and values: what the indexers of sparse attention are
//! made of.
//!
//! A graph of these ops is a subgraph that runs for each request and key head. Its values have
//! leading axes, which are their [`Format`], and two inner ones:
//!
//! | format | leading axes | one row for each |
//! |---|---|---|
//! | `Batched` | `rows` | request |
//! | `Ragged` | `rows`, `blocks` | candidate block of a request |
//! | `Paged` | `pool` | block of the pool |
//! | `Parameter` | | model |
//!
//! Inner extents are [symbols](crate::dim) of the model until the graph is [run](crate::interpret)
//! for one. `docs/flows.md` lists the ops and their rules.
//!
//! This module imports `axis`, `dim` and `index`, and nothing else of the crate.

mod across;
mod elementwise;
mod infer;
mod number;

use serde::{Deserialize, Serialize};
use tilewright_layout::tensor::Format;

pub use across::{Norm, RowOp, Taps};
pub use elementwise::{Binary, Comparison, Elementwise, REFUSED, Unary};
pub use infer::RowProblem;
pub(crate) use infer::RowShapes;

use crate::index::index;
pub use number::{Num, Scale};

use crate::axis::{self, Axis, DType, Extent, Shape, Type};
use crate::dim::{Dim, InnerShape};

/// An inner axis of a value `[d0, d1]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

/// The function of a reduction. A maximum or minimum passes over NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

index!(
    /// A declared field: one row for each block of the pool.
    FieldId
);
index!(
    /// A declared state: one row for each block of a request.
    StateId
);
index!(
    /// A declared parameter: one value for each key head.
    ParameterId
);

/// The memory that a graph of rows loads from and stores to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
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
    /// A state that a step stores for the next one. Each load reads the value of the previous step.
    State(StateId),
}

impl Source {
    /// The name of its op.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Query => "query",
            Source::Keys => "keys",
            Source::Values => "values",
            Source::Positions => "positions",
            Source::Field(_) => "field",
            Source::Parameter(_) => "parameter",
            Source::State(_) => "load",
        }
    }
}

/// The shapes of what a graph of rows declares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The shapes of the fields, by [`FieldId`].
    pub fields: Vec<InnerShape>,
    /// The shapes of the states, by [`StateId`].
    pub states: Vec<InnerShape>,
    /// The shapes of the parameters, by [`ParameterId`].
    pub parameters: Vec<InnerShape>,
}

impl Memory {
    /// Whether nothing is declared.
    pub fn is_empty(&self) -> bool {
        *self == Memory::default()
    }

    /// The rows of a source, if it is declared.
    ///
    /// ```
    /// use tilewright_graph::rows::{FieldId, Memory, Source};
    /// let memory = Memory::default();
    /// assert_eq!(memory.row(Source::Query).unwrap().shape.to_string(), "[G, D]");
    /// assert_eq!(memory.row(Source::Field(FieldId(0))), None);
    /// ```
    pub fn row(&self, source: Source) -> Option<Row> {
        let (format, shape) = match source {
            Source::Query => (Format::Batched, InnerShape([Dim::GROUP, Dim::HEAD_DIM])),
            Source::Keys | Source::Values => (Format::Paged, InnerShape([Dim::BLOCK, Dim::HEAD_DIM])),
            Source::Positions => (Format::Ragged, InnerShape::SCORE),
            Source::Field(id) => (Format::Paged, *self.fields.get(id.index())?),
            Source::Parameter(id) => (Format::Parameter, *self.parameters.get(id.index())?),
            Source::State(id) => (Format::Ragged, *self.states.get(id.index())?),
        };
        Some(Row { format, shape })
    }
}

/// A reduction along an inner axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reduction {
    /// The function.
    pub reduce: Reduce,
    /// The axis.
    pub axis: InnerAxis,
    /// Neighbours that become one element; the whole axis where absent.
    pub every: Option<u32>,
}

/// Products of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

impl ProductOp {
    /// The name in text forms and errors.
    pub const fn name(self) -> &'static str {
        match self {
            ProductOp::Gemv => "gemv",
            ProductOp::Gemm => "gemm",
            ProductOp::LearnedQuery(_) => "learned_query",
            ProductOp::Kron(_) => "kron",
        }
    }
}

/// Elements in other places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rearrange {
    /// `[d0, d1]` → `[d1, d0]`.
    Transpose,
    /// The elements in row-major order in another shape.
    Reshape(InnerShape),
}

/// Rows of a value: what there is one of, and the inner extents.
///
/// ```
/// use tilewright_graph::rows::{Memory, Row, Source};
/// let query = Memory::default().row(Source::Query).unwrap();
/// assert_eq!(query.to_type().to_string(), "f32[rows, d0=G, d1=D]");
/// assert_eq!(Row::of(&query.to_type()), Some(query));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The meaning of the rows.
    pub format: Format,
    /// The inner extents.
    pub shape: InnerShape,
}

/// The leading axes of a format.
const fn leading(format: Format) -> &'static [Axis] {
    match format {
        Format::Batched => &[Axis::Rows],
        Format::Ragged => &[Axis::Rows, Axis::Blocks],
        Format::Paged => &[Axis::Pool],
        Format::Parameter => &[],
    }
}

impl Row {
    /// The type of real numbers in such rows.
    pub fn to_type(self) -> Type {
        let leading = leading(self.format).iter().cloned().map(axis::Dim::symbol);
        let inner = [Axis::D0, Axis::D1].into_iter().zip(self.shape.0);
        Type::real(leading.chain(inner.map(|(axis, dim)| axis::Dim { axis, extent: Extent::of(dim) })))
    }

    /// The rows of a type; `None` for values of other graphs.
    pub fn of(kind: &Type) -> Option<Row> {
        let Type { shape: Shape(dims), .. } = kind;
        let (outer, [d0, d1]) = dims.split_last_chunk()?;
        let format = Format::ALL.into_iter().find(|format| outer.iter().map(|dim| &dim.axis).eq(leading(*format)))?;
        let is_inner = d0.axis == Axis::D0 && d1.axis == Axis::D1;
        let shape = InnerShape([d0.extent.dim()?, d1.extent.dim()?]);
        is_inner.then_some(Row { format, shape })
    }

    /// Converts the type of the rows to ids.
    pub(crate) fn to_ids(self) -> Type {
        Type { dtype: DType::U32, ..self.to_type() }
    }
}

/// The format of what an op of operands of these formats gives: a row for each block where one of
/// them has such rows.
pub(crate) fn joined(formats: impl IntoIterator<Item = Format>) -> Format {
    formats.into_iter().fold(Format::Parameter, |joined, format| match (joined, format) {
        (Format::Ragged | Format::Paged, _) | (_, Format::Ragged | Format::Paged) => Format::Ragged,
        (Format::Batched, _) | (_, Format::Batched) => Format::Batched,
        (Format::Parameter, Format::Parameter) => Format::Parameter,
    })
}
