//! What a graph consists of, before the check: weights, nodes, and their order.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::axis::Type;
use crate::ids::ValueId;
use crate::op::{Op, RopePairs};
use crate::rows::Memory;

/// A weight: a tensor of the checkpoint, a part of one, or one tensor for each expert.
///
/// ```
/// use tilewright_graph::graph::{Part, Weight};
/// let q = Weight { rows: Some(Part::first(0..64)), ..Weight::new("qkv_proj.weight", [128, 64]) };
/// assert_eq!(q.dims(), [64, 64]);
/// let up = Weight { experts: Some(8), ..Weight::new("experts.{expert}.up.weight", [96, 64]) };
/// assert_eq!(up.dims(), [8, 96, 64]);
/// assert_eq!(up.names()[7], "experts.7.up.weight");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    /// The tensor's name; `{expert}` in it stands for the number of the expert.
    pub tensor: String,
    /// The tensor's shape in the checkpoint, outermost first.
    pub shape: Vec<u64>,
    /// The part of the tensor that is the weight, if not all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Part>,
    /// How many tensors there are, one for each expert; they form a new first axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<u64>,
    /// A number that is added to each element.
    #[serde(default)]
    pub offset: f32,
    /// A factor of each element and what is added to it.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub factor: f32,
    /// The order in which the rows of each head are taken, if not that of the tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<HeadOrder>,
}

const fn one() -> f32 {
    1.0
}

fn is_one(factor: &f32) -> bool {
    *factor == 1.0
}

/// An order of the rows of each head: that in which a rotation of some pairs of dimensions becomes
/// one of each dimension of the first half with one of the second.
///
/// ```
/// use tilewright_graph::graph::HeadOrder;
/// use tilewright_graph::op::RopePairs;
/// // Of six dimensions the pairs (0, 1) and (2, 3) rotate; 4 and 5 do not.
/// let order = HeadOrder { head_dim: 6, rotated: 4, pairs: RopePairs::Interleaved };
/// assert_eq!((0..6).map(|row| order.source(row)).collect::<Vec<_>>(), [0, 2, 4, 1, 3, 5]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadOrder {
    /// Dimensions of a head; even.
    pub head_dim: u64,
    /// How many of them rotate, from the first on; even.
    pub rotated: u64,
    /// The pairs of those that rotate.
    pub pairs: RopePairs,
}

impl HeadOrder {
    /// Whether it is an order of the rows of whole heads: even numbers, of which no more rotate than
    /// there are.
    pub const fn is_valid_for(&self, rows: u64) -> bool {
        let HeadOrder { head_dim, rotated, .. } = *self;
        let is_even = head_dim > 0 && head_dim.is_multiple_of(2) && rotated.is_multiple_of(2);
        is_even && rotated <= head_dim && rows.is_multiple_of(head_dim)
    }

    /// Whether every row stays where it is.
    pub fn is_identity(&self) -> bool {
        self.pairs == RopePairs::Halves && self.rotated == self.head_dim
    }

    /// The row of the tensor that is taken as row `row`, in an order that is
    /// [valid](HeadOrder::is_valid_for).
    pub const fn source(&self, row: u64) -> u64 {
        let HeadOrder { head_dim, rotated, pairs } = *self;
        let half = head_dim / 2;
        let turns = rotated / 2;
        let head = row / head_dim * head_dim;
        let dim = row % head_dim;
        let pair = dim % half;
        let second = dim / half;
        head + if pair >= turns {
            rotated + (pair - turns) + second * (half - turns)
        } else {
            match pairs {
                RopePairs::Halves => pair + second * turns,
                RopePairs::Interleaved => 2 * pair + second,
            }
        }
    }
}

impl fmt::Display for HeadOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = match self.pairs {
            RopePairs::Halves => "halves",
            RopePairs::Interleaved => "neighbours",
        };
        write!(f, "{pairs} of {} in heads of {}", self.rotated, self.head_dim)
    }
}

/// Indexes of one axis of a tensor.
///
/// ```
/// use tilewright_graph::graph::{Part, Weight};
/// // The odd rows of each of 8 stacked experts.
/// let odd = Part { axis: 1, start: 1, end: 96, step: 2 };
/// let up = Weight { rows: Some(odd), ..Weight::new("experts.gate_up_proj", [8, 96, 64]) };
/// assert_eq!(up.dims(), [8, 48, 64]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The axis of the tensor.
    pub axis: usize,
    /// The first index.
    pub start: u64,
    /// The index after the last.
    pub end: u64,
    /// The distance from an index to the next.
    pub step: u64,
}

impl Part {
    /// Consecutive indexes of the first axis.
    pub const fn first(rows: Range<u64>) -> Part {
        Part { axis: 0, start: rows.start, end: rows.end, step: 1 }
    }

    /// The number of indexes.
    pub const fn len(&self) -> u64 {
        let distance = self.end.saturating_sub(self.start);
        // A checked weight has a step of at least 1.
        distance.div_ceil(if self.step == 0 { 1 } else { self.step })
    }

    /// Whether there are no indexes.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Part { axis, start, end, step } = self;
        write!(f, "{start}..{end}")?;
        if *step != 1 {
            write!(f, " by {step}")?;
        }
        if *axis == 0 { Ok(()) } else { write!(f, " of axis {axis}") }
    }
}

/// What stands for the expert's number in a tensor's name.
pub const EXPERT: &str = "{expert}";

impl Weight {
    /// A whole tensor.
    pub fn new(tensor: impl Into<String>, shape: impl Into<Vec<u64>>) -> Weight {
        Weight {
            tensor: tensor.into(),
            shape: shape.into(),
            rows: None,
            experts: None,
            offset: 0.0,
            factor: 1.0,
            order: None,
        }
    }

    /// Whether its elements are those of the tensor.
    pub fn is_plain(&self) -> bool {
        self.offset == 0.0 && self.factor == 1.0
    }

    /// The shape that ops see.
    pub fn dims(&self) -> Vec<u64> {
        let mut dims: Vec<u64> = self.experts.into_iter().collect();
        dims.extend(&self.shape);
        if let Some(part) = self.rows
            && let Some(extent) = dims.get_mut(part.axis.saturating_add(usize::from(self.experts.is_some())))
        {
            *extent = part.len();
        }
        dims
    }

    /// The tensor's name with the rows that the weight is of it, and their order.
    ///
    /// ```
    /// use tilewright_graph::graph::{Part, Weight};
    /// let q = Weight { rows: Some(Part::first(0..64)), ..Weight::new("qkv_proj.weight", [128, 64]) };
    /// assert_eq!(q.label(), "qkv_proj.weight[0..64]");
    /// ```
    pub fn label(&self) -> String {
        let mut label = self.tensor.clone();
        if let Some(part) = self.rows {
            label += &format!("[{part}]");
        }
        if let Some(order) = self.order {
            label += &format!(" by {order}");
        }
        label
    }

    /// The names of the tensors.
    pub fn names(&self) -> Vec<String> {
        match self.experts {
            None => vec![self.tensor.clone()],
            Some(count) => (0..count).map(|expert| self.tensor.replace(EXPERT, &expert.to_string())).collect(),
        }
    }
}

/// Rotary frequencies.
///
/// ```
/// use tilewright_graph::graph::RopeTable;
/// let table = RopeTable { frequencies: vec![1.0, 0.01], scale: 1.0 };
/// assert_eq!(table.rotated(), 4);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RopeTable {
    /// Radians per position of each pair. A pair of frequency 0 is left as it is.
    pub frequencies: Vec<f32>,
    /// A factor on sine and cosine of pairs that rotate.
    pub scale: f32,
}

impl RopeTable {
    /// How many dimensions rotate.
    pub const fn rotated(&self) -> usize {
        self.frequencies.len().saturating_mul(2)
    }
}

/// An op or a group of ops, with the types of the values it defines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The ops.
    pub body: Body,
    /// The types of their results, in order.
    pub results: Vec<Type>,
}

/// What a node runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// One op.
    Single(Op),
    /// Ops that one kernel runs.
    Fused(Fused),
}

impl Body {
    /// The ops in order.
    ///
    /// ```
    /// use tilewright_graph::graph::{Body, ValueId};
    /// use tilewright_graph::op::Op;
    /// let body = Body::Single(Op::SoftCap { x: ValueId(0), cap: 30.0 });
    /// assert_eq!(body.ops().count(), 1);
    /// ```
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        let lists: [&[Op]; 3] = match self {
            Body::Single(op) => [std::slice::from_ref(op), &[], &[]],
            Body::Fused(fused) => [&fused.prologue, &fused.core, &fused.epilogue],
        };
        lists.into_iter().flatten()
    }
}

/// Ops that one kernel runs: what prepares its operands, its products, what follows on their
/// results.
///
/// Values of a group that are not among its outputs exist inside of the kernel only: no op outside
/// reads them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fused {
    /// Ops on the operands.
    pub prologue: Vec<Op>,
    /// The products.
    pub core: Vec<Op>,
    /// Ops on the products' results.
    pub epilogue: Vec<Op>,
    /// The results that ops outside of the group may read.
    pub outputs: Vec<ValueId>,
}

/// What a graph consists of, before the check.
///
/// ```
/// use tilewright_graph::graph::{Graph, Parts};
/// let empty = Parts::default();
/// assert_eq!(Graph::check(empty)?.parts().nodes.len(), 0);
/// # Ok::<(), tilewright_graph::GraphErrors>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parts {
    /// A name for people.
    pub name: String,
    /// The weights.
    pub weights: Vec<Weight>,
    /// The tables of rotary frequencies.
    pub ropes: Vec<RopeTable>,
    /// What ops on rows load and store.
    #[serde(default, skip_serializing_if = "Memory::is_empty")]
    pub memory: Memory,
    /// The ops in the order in which they run.
    pub nodes: Vec<Node>,
    /// What the graph computes.
    pub outputs: Vec<ValueId>,
}

/// An op of a graph with its place.
#[derive(Clone, Copy, Debug)]
pub struct Step<'g> {
    /// The op.
    pub op: &'g Op,
    /// Its first result; others follow.
    pub first: ValueId,
    /// The types of its results.
    pub results: &'g [Type],
    /// The node that runs it.
    pub node: usize,
}

/// The ops of parts whose nodes have as many results as their ops define.
pub(crate) fn steps(parts: &Parts) -> impl Iterator<Item = Step<'_>> {
    let mut first = 0;
    parts.nodes.iter().enumerate().flat_map(move |(place, node)| {
        let mut within = 0;
        let base = first;
        first += node.results.len();
        node.body.ops().map(move |op| {
            let start = within.min(node.results.len());
            within += op.results();
            let results = &node.results[start..within.min(node.results.len())];
            Step { op, first: ValueId::at(base + start), results, node: place }
        })
    })
}
