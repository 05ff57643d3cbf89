//! Values, weights, nodes, and the checked graph of them.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_layout::tensor::Format;

use crate::axis::{Axis, Type};
use crate::check::check;
use crate::dim::InnerShape;
use crate::error::GraphErrors;
use crate::op::Op;
use crate::parts::steps;
use crate::rows::{Row, Source};
use crate::text::OpText;

pub use crate::ids::{CacheId, RopeId, ValueId, WeightId};
pub use crate::parts::{Body, EXPERT, Fused, HeadOrder, Node, Part, Parts, RopeTable, Step, Weight};

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
        let errors = check(&parts);
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

/// One line for each op, with the axes of its results.
impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts();
        writeln!(f, "graph {}", parts.name.escape_debug())?;
        let mut node = None;
        for step in self.steps() {
            let group = match &parts.nodes[step.node].body {
                Body::Fused(fused) => Some(fused),
                Body::Single(_) => None,
            };
            if let (Some(fused), true) = (group, node != Some(step.node)) {
                let outputs: Vec<String> = fused.outputs.iter().map(ToString::to_string).collect();
                writeln!(f, "fused, outputs {}:", outputs.join(" "))?;
            }
            node = Some(step.node);
            writeln!(f, "{}{}", if group.is_some() { "  " } else { "" }, OpText::new(parts, &step))?;
        }
        let outputs: Vec<String> = parts.outputs.iter().map(ToString::to_string).collect();
        writeln!(f, "outputs {}", outputs.join(" "))
    }
}
