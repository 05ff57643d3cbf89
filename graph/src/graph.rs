//! Values, weights, nodes, and the checked graph of them.

use std::cell::RefCell;
use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_layout::tensor::Format;

use crate::axis::{Axis, Type};
use crate::dim::{InnerShape, Need};
use crate::error::{GraphErrors, Problem};
use crate::index::index;
use crate::infer::{InferContext, infer};
use crate::op::Op;
use crate::rows::{Memory, Row, Source};

index!(
    /// A value: the ops' results, counted from the first op on.
    ///
    /// ```
    /// assert_eq!(tilewright_graph::graph::ValueId(7).to_string(), "v7");
    /// ```
    ValueId,
    "v"
);
index!(
    /// A weight that the graph declares.
    ///
    /// ```
    /// assert_eq!(tilewright_graph::graph::WeightId(7).to_string(), "w7");
    /// ```
    WeightId,
    "w"
);
index!(
    /// A table of rotary frequencies that the graph declares.
    ///
    /// ```
    /// assert_eq!(tilewright_graph::graph::RopeId(0).to_string(), "rope0");
    /// ```
    RopeId,
    "rope"
);
index!(
    /// A cache of keys and values.
    ///
    /// ```
    /// assert_eq!(tilewright_graph::graph::CacheId(2).to_string(), "kv2");
    /// ```
    CacheId,
    "kv"
);

/// A weight: a tensor of the checkpoint, a part of one, or one tensor for each expert.
///
/// ```
/// use tilewright_graph::graph::Weight;
/// let q = Weight { rows: Some([0, 64]), ..Weight::new("qkv_proj.weight", [128, 64]) };
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
    /// The part of the first axis, from the first index to the one after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<[u64; 2]>,
    /// The number of tensors, one for each expert; they form a new first axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<u64>,
    /// A number that is added to each element.
    #[serde(default)]
    pub offset: f32,
}

/// The placeholder for the expert's number in a tensor's name.
pub(crate) const EXPERT: &str = "{expert}";

impl Weight {
    /// A whole tensor.
    pub fn new(tensor: impl Into<String>, shape: impl Into<Vec<u64>>) -> Weight {
        Weight { tensor: tensor.into(), shape: shape.into(), rows: None, experts: None, offset: 0.0 }
    }

    /// The shape that ops see.
    pub fn dims(&self) -> Vec<u64> {
        let mut dims: Vec<u64> = self.experts.into_iter().collect();
        dims.extend(&self.shape);
        if let (Some([start, end]), Some(first)) = (self.rows, dims.get_mut(usize::from(self.experts.is_some()))) {
            *first = end.saturating_sub(start);
        }
        dims
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
    /// Radians per position of each pair.
    pub frequencies: Vec<f32>,
    /// A factor on sine and cosine.
    pub scale: f32,
}

impl RopeTable {
    /// The number of dimensions that rotate.
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

/// The ops of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// A single op.
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

/// The contents of a graph, before the check.
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
    /// The memory that ops on rows load and store.
    #[serde(default, skip_serializing_if = "Memory::is_empty")]
    pub memory: Memory,
    /// The ops in the order in which they run.
    pub nodes: Vec<Node>,
    /// The values that the graph computes.
    pub outputs: Vec<ValueId>,
}

impl Parts {
    /// Adds an op with its results, and returns the needs that it places on the model.
    ///
    /// ```
    /// use tilewright_graph::{graph::Parts, op::Op, rows::{Elementwise, Source, Unary}};
    /// let mut parts = Parts::default();
    /// let (query, _) = parts.push(Op::Load { from: Source::Query })?;
    /// let (abs, _) = parts.push(Op::Elementwise { x: query, y: None, function: Elementwise::Unary(Unary::Abs) })?;
    /// assert_eq!(parts.nodes[abs.index()].results, parts.nodes[query.index()].results);
    /// # Ok::<(), tilewright_graph::Problem>(())
    /// ```
    ///
    /// # Errors
    /// The rule that the op breaks; nothing is added then.
    pub fn push(&mut self, op: Op) -> Result<(ValueId, Vec<Need>), Problem> {
        let types: Vec<Type> = self.nodes.iter().flat_map(|node| node.results.iter().cloned()).collect();
        let needs = RefCell::default();
        let results = infer(&op, InferContext { parts: self, types: &types, needs: &needs })?;
        self.nodes.push(Node { body: Body::Single(op), results });
        Ok((ValueId::at(types.len()), needs.into_inner()))
    }
}

/// A valid graph.
///
/// [`Graph::check`] makes one. JSON is the same text as that of [`Parts`], and reading it runs the
/// check.
///
/// ```
/// use tilewright_graph::Graph;
/// let error = serde_json::from_str::<Graph>(
///     r#"{"name": "g", "weights": [], "ropes": [], "nodes": [], "outputs": [3]}"#,
/// ).unwrap_err();
/// assert!(error.to_string().starts_with("graph `g` is not valid: outputs: operand `output` is v3, which no earlier op"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Graph(Parts);

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

impl Graph {
    /// Checks parts and makes the graph of them.
    ///
    /// Every rule of a graph is checked here: indexes are in range, ops read values that earlier
    /// ops define, types are what [the ops](Op) give, attributes are finite and in range, sizes fit
    /// 48 bits, each cache has one op that appends to it, and values inside of a [`Fused`] group
    /// stay there.
    ///
    /// # Errors
    /// The first [`GraphErrors::LIMIT`] things that are wrong.
    pub fn check(parts: Parts) -> Result<Graph, GraphErrors> {
        let errors = crate::check::check(&parts);
        if errors.is_empty() { Ok(Graph(parts)) } else { Err(GraphErrors { graph: parts.name, errors }) }
    }

    /// The contents of the graph.
    pub fn parts(&self) -> &Parts {
        &self.0
    }

    /// The ops in the order in which they run, those in groups too.
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        steps(&self.0)
    }

    /// The values in the order of the ops.
    pub fn ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.0.nodes.iter().map(|node| node.results.len()).sum()).map(ValueId::at)
    }

    /// The op that defines a value of this graph.
    pub fn op(&self, id: ValueId) -> &Op {
        self.step(id).op
    }

    fn step(&self, id: ValueId) -> Step<'_> {
        let steps: Vec<Step<'_>> = self.steps().collect();
        steps[steps.partition_point(|step| step.first <= id).saturating_sub(1)]
    }

    /// The operands of the op that defines a value.
    pub fn operands(&self, id: ValueId) -> Vec<ValueId> {
        self.op(id).operands().into_iter().map(|(_, id)| id).collect()
    }

    /// The rows of a value. A value without rows counts as one number, a parameter `[1, 1]`.
    pub fn row(&self, id: ValueId) -> Row {
        let number = Row { format: Format::Parameter, shape: InnerShape::SCORE };
        self.step(id).results.first().and_then(Row::of).unwrap_or(number)
    }

    /// The values of the ops that the graph exists for.
    pub fn effects(&self) -> Vec<ValueId> {
        self.steps().filter(|step| step.op.is_effect()).map(|step| step.first).collect()
    }

    /// Whether some op loads this.
    pub fn loads(&self, source: Source) -> bool {
        self.steps().any(|step| *step.op == Op::Load { from: source })
    }

    /// Pairs of ops whose order does not follow from operands: an op that reads a state comes
    /// before the op that stores it.
    pub fn orders(&self) -> Vec<[ValueId; 2]> {
        let mut orders = Vec::new();
        for store in self.steps() {
            let Op::Store { to: to @ Source::State(_), .. } = *store.op else { continue };
            let loads = |(_, id): &(_, ValueId)| *self.op(*id) == Op::Load { from: to };
            let readers = self.steps().filter(|step| step.op.operands().iter().any(loads));
            orders.extend(readers.map(|reader| [reader.first, store.first]));
        }
        orders
    }

    /// The types of all values.
    pub fn types(&self) -> Vec<&Type> {
        self.0.nodes.iter().flat_map(|node| &node.results).collect()
    }

    /// The extent of an axis where it first appears in a value.
    ///
    /// ```
    /// use tilewright_graph::{axis::Axis, models};
    /// let config = serde_json::json!({
    ///     "model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    /// });
    /// assert_eq!(models::graph(&config)?.extent(&Axis::HeadDim), Some(4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn extent(&self, axis: &Axis) -> Option<u64> {
        let types = self.0.nodes.iter().flat_map(|node| &node.results);
        types.flat_map(|kind| &kind.shape.0).find(|dim| dim.axis == *axis)?.size()
    }
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

impl TryFrom<Parts> for Graph {
    type Error = GraphErrors;

    fn try_from(parts: Parts) -> Result<Graph, GraphErrors> {
        Graph::check(parts)
    }
}

impl From<Graph> for Parts {
    fn from(graph: Graph) -> Parts {
        graph.0
    }
}
