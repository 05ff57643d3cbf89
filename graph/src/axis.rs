//! Named axes with extents, shapes, and element types of values.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dim;

/// The quantity that an axis of a value counts.
///
/// ```
/// use tilewright_graph::axis::Axis;
/// assert_eq!(Axis::KvHeads.name(), "kv_heads");
/// assert_eq!(Axis::from("kv_heads".to_owned()), Axis::KvHeads);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Axis {
    /// Tokens of one step.
    Rows,
    /// Positions of a sequence that its cache holds.
    Positions,
    /// The residual stream.
    Hidden,
    /// Query heads.
    Heads,
    /// Heads of keys and values.
    KvHeads,
    /// Dimensions of a head.
    HeadDim,
    /// The inside of an MLP.
    Inner,
    /// Tokens of the vocabulary.
    Vocab,
    /// Experts of a mixture.
    Experts,
    /// Experts that a router chooses for a row.
    Chosen,
    /// Candidate blocks of a sequence's keys and values.
    Blocks,
    /// Blocks of a pool of keys and values.
    Pool,
    /// The first inner axis of a row: heads of a query, tokens of a block.
    D0,
    /// The second inner axis of a row: dimensions of a head.
    D1,
    /// Another axis, by its name.
    Named(String),
}

/// Axes that have a name of their own.
const AXES: [Axis; 14] = [
    Axis::Rows,
    Axis::Positions,
    Axis::Hidden,
    Axis::Heads,
    Axis::KvHeads,
    Axis::HeadDim,
    Axis::Inner,
    Axis::Vocab,
    Axis::Experts,
    Axis::Chosen,
    Axis::Blocks,
    Axis::Pool,
    Axis::D0,
    Axis::D1,
];

impl Axis {
    /// The name in lower case, as text and JSON have it.
    pub fn name(&self) -> &str {
        match self {
            Axis::Rows => "rows",
            Axis::Positions => "positions",
            Axis::Hidden => "hidden",
            Axis::Heads => "heads",
            Axis::KvHeads => "kv_heads",
            Axis::HeadDim => "head_dim",
            Axis::Inner => "inner",
            Axis::Vocab => "vocab",
            Axis::Experts => "experts",
            Axis::Chosen => "chosen",
            Axis::Blocks => "blocks",
            Axis::Pool => "pool",
            Axis::D0 => "d0",
            Axis::D1 => "d1",
            Axis::Named(name) => name,
        }
    }

    /// Whether a linear product keeps the axis: it applies to each index of it alone.
    ///
    /// ```
    /// use tilewright_graph::axis::Axis;
    /// assert!(Axis::Rows.is_kept() && Axis::Chosen.is_kept() && !Axis::Hidden.is_kept());
    /// ```
    pub fn is_kept(&self) -> bool {
        matches!(self, Axis::Rows | Axis::Chosen)
    }
}

impl From<String> for Axis {
    fn from(name: String) -> Axis {
        AXES.into_iter().find(|axis| axis.name() == name).unwrap_or(Axis::Named(name))
    }
}

impl From<Axis> for String {
    fn from(axis: Axis) -> String {
        axis.name().to_owned()
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The length of an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Extent {
    /// A number that the model fixes.
    Known(u64),
    /// A number that each step fixes, by name.
    Symbol(String),
    /// A number that follows from the model that the graph is run for.
    Model(dim::Dim),
}

impl Extent {
    /// The extent of a row's axis.
    ///
    /// ```
    /// use tilewright_graph::{axis::Extent, dim::Dim};
    /// assert_eq!(Extent::of(Dim::of(4)), Extent::Known(4));
    /// assert_eq!(Extent::of(Dim::HEAD_DIM).dim(), Some(Dim::HEAD_DIM));
    /// ```
    pub fn of(dim: dim::Dim) -> Extent {
        dim.number().map_or(Extent::Model(dim), |number| Extent::Known(number.into()))
    }

    /// The extent as one of a row's axis, if it is the same at each step.
    pub fn dim(&self) -> Option<dim::Dim> {
        match self {
            Extent::Known(number) => u32::try_from(*number).ok().map(dim::Dim::of),
            Extent::Model(dim) => Some(*dim),
            Extent::Symbol(_) => None,
        }
    }
}

/// An axis with its extent.
///
/// ```
/// use tilewright_graph::axis::{Axis, Dim};
/// assert_eq!(Dim::known(Axis::Heads, 4).to_string(), "heads 4");
/// assert_eq!(Dim::symbol(Axis::Rows).to_string(), "rows");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dim {
    /// The axis.
    pub axis: Axis,
    /// The extent.
    pub extent: Extent,
}

impl Dim {
    /// An axis whose extent the model fixes.
    pub fn known(axis: Axis, extent: u64) -> Dim {
        Dim { axis, extent: Extent::Known(extent) }
    }

    /// An axis whose extent is a symbol with the name of the axis.
    pub fn symbol(axis: Axis) -> Dim {
        let extent = Extent::Symbol(axis.name().to_owned());
        Dim { axis, extent }
    }

    /// The extent, if the model fixes it.
    pub fn size(&self) -> Option<u64> {
        match self.extent {
            Extent::Known(size) => Some(size),
            Extent::Symbol(_) | Extent::Model(_) => None,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.extent {
            Extent::Known(size) => write!(f, "{} {size}", self.axis),
            Extent::Symbol(symbol) if symbol == self.axis.name() => write!(f, "{}", self.axis),
            Extent::Symbol(symbol) => write!(f, "{}={symbol}", self.axis),
            Extent::Model(dim) => write!(f, "{}={dim}", self.axis),
        }
    }
}

/// The axes of a value, outermost first.
///
/// ```
/// use tilewright_graph::axis::{Axis, Dim, Shape};
/// let shape = Shape(vec![Dim::symbol(Axis::Rows), Dim::known(Axis::Heads, 4), Dim::known(Axis::HeadDim, 16)]);
/// assert_eq!(shape.to_string(), "[rows, heads 4, head_dim 16]");
/// assert_eq!(Shape::elements(&shape.0[1..]), Some(64));
/// assert_eq!(Shape::elements(&shape.0), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(pub Vec<Dim>);

impl Shape {
    /// The product of extents: `None` if one is a symbol or the product exceeds 64 bits.
    pub fn elements(dims: &[Dim]) -> Option<u64> {
        dims.iter().try_fold(1u64, |product, dim| product.checked_mul(dim.size()?))
    }

    /// The number of leading axes that a linear product keeps.
    pub fn kept(&self) -> usize {
        self.0.iter().take_while(|dim| dim.axis.is_kept()).count()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.iter().map(Dim::to_string).collect();
        write!(f, "[{}]", dims.join(", "))
    }
}

/// The type of a value's elements. Formats of weights and activations are chosen later, by a
/// target: here a real number is a real number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DType {
    /// Real numbers.
    F32,
    /// Token ids, positions, expert ids.
    U32,
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::U32 => "u32",
        })
    }
}

/// Shape and element type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Type {
    /// The axes.
    pub shape: Shape,
    /// The elements.
    pub dtype: DType,
}

impl Type {
    /// Real numbers along axes.
    pub fn real(dims: impl IntoIterator<Item = Dim>) -> Type {
        Type { shape: Shape(dims.into_iter().collect()), dtype: DType::F32 }
    }

    /// Ids along axes.
    pub fn ids(dims: impl IntoIterator<Item = Dim>) -> Type {
        Type { shape: Shape(dims.into_iter().collect()), dtype: DType::U32 }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}
