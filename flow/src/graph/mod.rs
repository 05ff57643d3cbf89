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

pub use clean::{Reason, Removed, clean};

use crate::dim::Shape;
use crate::op::{Axis, Effect, Op, Product, Rearrange, Reduction, RowOp, Source, StateId};

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
pub struct Node {
    /// The op.
    pub op: Op,
    /// Its operands; they come before it.
    pub operands: Vec<ValueId>,
    /// The inner extents of its value.
    pub shape: Shape,
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
pub struct Graph {
    nodes: Vec<Node>,
}

impl Graph {
    /// The ops, operands first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The op of a value.
    pub fn node(&self, id: ValueId) -> &Node {
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
            if let Op::Effect(Effect::Save(state)) = node.op {
                let kind = EdgeKind::WriteAfterRead(state);
                edges.extend(self.readers(state).into_iter().map(|before| Edge { before, after, kind }));
            }
        }
        edges
    }

    /// The ops with a loaded state among their operands.
    fn readers(&self, state: StateId) -> Vec<ValueId> {
        let loads = |id: &ValueId| self.node(*id).op == Op::Source(Source::Load(state));
        self.ids().filter(|id| self.node(*id).operands.iter().any(loads)).collect()
    }

    /// The selection, the saves and the stores.
    pub fn effects(&self) -> Vec<ValueId> {
        self.ids().filter(|id| self.node(*id).op.is_effect()).collect()
    }

    /// Whether some op reads this.
    pub fn reads(&self, source: Source) -> bool {
        self.nodes.iter().any(|node| node.op == Op::Source(source))
    }
}

/// An op with its constants, as in text forms. Names of fields and states are the caller's.
pub(crate) struct Described<'a>(pub &'a Op);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axis = |axis: Axis| match axis {
            Axis::D0 => "D0",
            Axis::D1 => "D1",
        };
        match self.0 {
            Op::Elementwise(op) => op.fmt(f),
            Op::Reduction(Reduction { reduce, axis: along, every }) => {
                write!(f, "{} {}", reduce.name(), axis(*along))?;
                every.map_or(Ok(()), |every| write!(f, " by {every}"))
            }
            Op::Product(Product::LearnedQuery(scale)) => write!(f, "learned_query × {scale}"),
            Op::Product(Product::Kron(axes)) => {
                let along = [Axis::D0, Axis::D1].into_iter().filter(|a| axes[a.index()]).map(axis);
                write!(f, "kron {}", along.collect::<Vec<_>>().join(" "))
            }
            Op::Rearrange(Rearrange::Reshape(shape)) => write!(f, "reshape {shape}"),
            Op::Row(RowOp::Softmax(scale)) => write!(f, "softmax × {scale}"),
            Op::Row(RowOp::Conv1d(taps)) => write!(f, "conv1d {taps}"),
            Op::Source(_) | Op::Product(_) | Op::Rearrange(_) | Op::Row(_) | Op::Effect(_) => {
                f.write_str(self.0.name())
            }
        }
    }
}
