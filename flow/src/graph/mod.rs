//! The graph of a pass: ops in an order in which they can run, and what must come before what.
//!
//! * Every op reaches an effect: the selection, a saved state, a stored field. What does not is
//!   removed and reported.
//! * Two equal ops on equal operands are one.
//! * A load sees what the step before saved: each op that reads a loaded state comes before the
//!   save of that state, by an edge of its own ([`EdgeKind::WriteAfterRead`]). Saves read no state
//!   themselves, so these edges close no cycle.

mod clean;

use std::fmt;
use std::panic::Location;

use tilewright_layout::tensor::Format;

pub use clean::{RemovalReason, Removed, clean};

use crate::dim::InnerShape;
use crate::op::{Effect, FlowOp, InnerAxis, ProductOp, Rearrange, Reduction, RowOp, SourceOp, StateId};

/// A value of a graph: the op that gives it. Printed `v7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(u32);

impl ValueId {
    /// The value of the op at a place.
    pub(crate) const fn at(index: usize) -> ValueId {
        ValueId(index as u32)
    }

    /// The place of its op.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// An op with its operands.
#[derive(Clone, Debug)]
pub struct OpNode {
    /// The op.
    pub op: FlowOp,
    /// Its operands; they come before it.
    pub operands: Vec<ValueId>,
    /// The inner extents of its value.
    pub shape: InnerShape,
    /// The format of its value.
    pub format: Format,
    /// The flow's line.
    pub at: &'static Location<'static>,
}

/// Why an op comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// It gives an operand.
    Data,
    /// It reads the state that the other one saves.
    WriteAfterRead(StateId),
}

/// `before` runs before `after`, or in the same group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The op that comes first.
    pub before: ValueId,
    /// The op that waits.
    pub after: ValueId,
    /// Why.
    pub kind: EdgeKind,
}

/// The ops of a pass, without dead ones and repetitions. Only [`clean`] makes one.
#[derive(Clone, Debug, Default)]
pub struct PassGraph {
    nodes: Vec<OpNode>,
}

impl PassGraph {
    /// The ops, operands first.
    pub fn nodes(&self) -> &[OpNode] {
        &self.nodes
    }

    /// The op of a value.
    pub fn node(&self, id: ValueId) -> &OpNode {
        &self.nodes[id.index()]
    }

    /// Every value.
    pub fn ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.nodes.len()).map(ValueId::at)
    }

    /// What must come before what, in the order of the ops that wait.
    pub fn edges(&self) -> Vec<Edge> {
        let mut edges = Vec::new();
        for after in self.ids() {
            let node = self.node(after);
            edges.extend(node.operands.iter().map(|&before| Edge { before, after, kind: EdgeKind::Data }));
            if let FlowOp::Effect(Effect::Save(state)) = node.op {
                let kind = EdgeKind::WriteAfterRead(state);
                edges.extend(self.readers(state).into_iter().map(|before| Edge { before, after, kind }));
            }
        }
        edges
    }

    /// The ops with a loaded state among their operands.
    fn readers(&self, state: StateId) -> Vec<ValueId> {
        let loads = |id: &ValueId| self.node(*id).op == FlowOp::Source(SourceOp::Load(state));
        self.ids().filter(|id| self.node(*id).operands.iter().any(loads)).collect()
    }

    /// The selection, the saves and the stores.
    pub fn effects(&self) -> Vec<ValueId> {
        self.ids().filter(|id| self.node(*id).op.is_effect()).collect()
    }

    /// Whether some op reads this.
    pub fn reads(&self, source: SourceOp) -> bool {
        self.nodes.iter().any(|node| node.op == FlowOp::Source(source))
    }
}

/// An op with its constants, as in text forms. Names of fields and states are the caller's.
pub(crate) struct Described<'a>(pub &'a FlowOp);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axis = |axis: InnerAxis| match axis {
            InnerAxis::D0 => "D0",
            InnerAxis::D1 => "D1",
        };
        match self.0 {
            FlowOp::Elementwise(op) => op.fmt(f),
            FlowOp::Reduction(Reduction { reduce, axis: along, every }) => {
                write!(f, "{} {}", reduce.name(), axis(*along))?;
                every.map_or(Ok(()), |every| write!(f, " by {every}"))
            }
            FlowOp::Product(ProductOp::LearnedQuery(scale)) => write!(f, "learned_query × {scale}"),
            FlowOp::Product(ProductOp::Kron(axes)) => {
                let along = [InnerAxis::D0, InnerAxis::D1].into_iter().filter(|a| axes[a.index()]).map(axis);
                write!(f, "kron {}", along.collect::<Vec<_>>().join(" "))
            }
            FlowOp::Rearrange(Rearrange::Reshape(shape)) => write!(f, "reshape {shape}"),
            FlowOp::Row(RowOp::Softmax(scale)) => write!(f, "softmax × {scale}"),
            FlowOp::Row(RowOp::Conv1d(taps)) => write!(f, "conv1d {taps}"),
            FlowOp::Source(_) | FlowOp::Product(_) | FlowOp::Rearrange(_) | FlowOp::Row(_) | FlowOp::Effect(_) => {
                f.write_str(self.0.name())
            }
        }
    }
}
