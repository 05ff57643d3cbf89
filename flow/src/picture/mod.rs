//! A flow as a person looks at it: text, DOT, SVG. All three show values with formats and shapes,
//! by the tasks that run them in a program, and the text has the bytes that tasks move.

mod dot;
mod svg;
mod text;

pub use dot::FlowDot;
pub use svg::FlowSvg;
pub use text::FlowText;

use tilewright_graph::Graph;
use tilewright_graph::graph::ValueId;
use tilewright_graph::op::Op;
use tilewright_graph::rows::{RowOp, Source};
use tilewright_layout::tensor::Format;

use crate::bind::FlowExtents;
use crate::flow::{FlowPass, Traced};

/// A flow for a model, by the tasks of a program.
#[derive(Clone, Debug)]
pub struct FlowView<'f> {
    traced: &'f Traced,
    extents: FlowExtents,
}

/// Ops that a task of a program runs.
#[derive(Clone, Debug)]
struct TaskView {
    /// The name of the task's op.
    name: &'static str,
    ops: Vec<ValueId>,
    /// The number of passes over the candidates.
    sweeps: usize,
    traffic: Traffic,
}

/// Bytes that a task moves to and from memory.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    read_per_block: usize,
    written_per_block: usize,
    read_per_row: usize,
}

impl Traffic {
    /// The bytes of a row of `candidates` candidate blocks.
    fn total(self, candidates: usize) -> u64 {
        (self.read_per_block + self.written_per_block) as u64 * candidates as u64 + self.read_per_row as u64
    }
}

impl<'f> FlowView<'f> {
    /// A view of a flow.
    ///
    /// ```
    /// use tilewright_flow::{ModelShape, algorithms, picture::{FlowText, FlowView}};
    /// let traced = algorithms::named("moba")?.trace()?;
    /// let model = ModelShape { kv_heads: 8, group: 4, head_dim: 128, block_tokens: 16 };
    /// let view = FlowView::new(&traced, traced.extents(&model)?);
    /// assert!(FlowText::new(&view, 1, 2048).to_string().contains("gemm(q, centroid)"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn new(traced: &'f Traced, extents: FlowExtents) -> FlowView<'f> {
        FlowView { traced, extents }
    }

    fn passes(&self) -> [(FlowPass, &Graph, Vec<TaskView>); 2] {
        [FlowPass::Cache, FlowPass::Indexer].map(|pass| (pass, self.traced.graph(pass), self.tasks(pass)))
    }

    /// The tasks of a pass that have something to do.
    fn tasks(&self, pass: FlowPass) -> Vec<TaskView> {
        let graph = self.traced.graph(pass);
        let ops = graph.ids().filter(|id| !graph.op(*id).is_source());
        let (select, ops): (Vec<_>, Vec<_>) = ops.partition(|id| matches!(graph.op(*id), Op::Select { .. }));
        if pass == FlowPass::Cache {
            let task = TaskView { name: "flow_summarise", ops, sweeps: 1, traffic: self.traffic(pass).1 };
            return if task.ops.is_empty() { Vec::new() } else { vec![task] };
        }
        let (sweeps, traffic) = self.traffic(pass);
        let scores = Traffic { read_per_block: SCORE_BYTES, ..Traffic::default() };
        let score = TaskView { name: "flow_score", ops, sweeps, traffic };
        let select = TaskView { name: "flow_select", ops: select, sweeps: 1, traffic: scores };
        vec![score, select]
    }

    /// The number of times that a pass reads its blocks, and the bytes that it moves: once for its
    /// effects, and once for each read of an operand by an op across blocks.
    fn traffic(&self, pass: FlowPass) -> (usize, Traffic) {
        let graph = self.traced.graph(pass);
        let mut reads = vec![graph.effects()];
        for id in graph.ids() {
            let Op::OverBlocks { over: op, .. } = graph.op(id) else { continue };
            let times = match op {
                RowOp::Reduce(_) | RowOp::Normalize(_) => 1,
                RowOp::Softmax(_) => 2,
                RowOp::Conv1d(_) => 0,
            };
            reads.extend(std::iter::repeat_n(graph.operands(id), times));
        }
        let mut traffic = Traffic::default();
        for sources in reads.iter().map(|roots| sources(graph, roots)) {
            traffic.read_per_block +=
                sources.iter().filter(|id| is_per_block(graph, **id)).map(|id| self.bytes(pass, *id)).sum::<usize>();
        }
        let all = graph.ids().filter(|id| graph.op(*id).is_source() && !is_per_block(graph, *id));
        traffic.read_per_row = all.map(|id| self.bytes(pass, id)).sum();
        traffic.written_per_block = graph.effects().into_iter().map(|id| self.bytes(pass, id)).sum();
        (reads.len(), traffic)
    }

    /// Bytes of one row of a source or an effect in memory.
    fn bytes(&self, pass: FlowPass, id: ValueId) -> usize {
        match self.traced.graph(pass).op(id) {
            Op::Load { from: Source::Positions } | Op::Fill { .. } => 0,
            Op::Select { .. } => SCORE_BYTES,
            op => self.extents.of(pass)[id.index()].iter().product::<usize>() * self.traced.dtype(op).bits() / 8,
        }
    }

    /// `gemm(v0, centroid)`, `save(v3 → score)`.
    fn call(&self, graph: &Graph, id: ValueId) -> String {
        let operands: Vec<String> = graph.operands(id).iter().map(|o| self.traced.label(graph, *o)).collect();
        let operands = operands.join(", ");
        let declared = &self.traced.declared;
        match graph.op(id) {
            Op::Store { to: Source::State(state), .. } => {
                format!("save({operands} → {})", declared.states[state.index()].name)
            }
            Op::Store { to: Source::Field(field), .. } => {
                format!("store({operands} → {})", declared.fields[field.index()].name)
            }
            op => format!("{}({operands})", op.described()),
        }
    }

    /// `ragged [1, G]`.
    fn kind(&self, graph: &Graph, id: ValueId) -> String {
        let row = graph.row(id);
        format!("{} {}", row.format, row.shape)
    }
}

/// Pairs of ops: the second reads a result of the first, or, if this is false, follows it for
/// another reason.
fn edges(graph: &Graph) -> Vec<([ValueId; 2], bool)> {
    let orders = graph.orders();
    let to = |id: ValueId| {
        let data = graph.operands(id).into_iter().map(move |operand| ([operand, id], true));
        data.chain(orders.iter().filter(move |[_, after]| *after == id).map(|order| (*order, false)))
    };
    graph.ids().flat_map(to).collect()
}

/// Bytes of a score between the tasks.
const SCORE_BYTES: usize = 4;

/// The name of a pass.
const fn pass_name(pass: FlowPass) -> &'static str {
    match pass {
        FlowPass::Cache => "cache",
        FlowPass::Indexer => "indexer",
    }
}

fn is_per_block(graph: &Graph, id: ValueId) -> bool {
    matches!(graph.row(id).format, Format::Ragged | Format::Paged)
}

/// The sources that values are computed from, each once. The result of an op across blocks for the
/// whole row is known by then.
fn sources(graph: &Graph, roots: &[ValueId]) -> Vec<ValueId> {
    let mut is_needed = vec![false; graph.ids().count()];
    roots.iter().for_each(|id| is_needed[id.index()] = true);
    for id in graph.ids().collect::<Vec<_>>().into_iter().rev() {
        if is_needed[id.index()] && !matches!(graph.op(id), Op::OverBlocks { over: RowOp::Reduce(_), .. }) {
            graph.operands(id).iter().for_each(|operand| is_needed[operand.index()] = true);
        }
    }
    graph.ids().filter(|id| is_needed[id.index()] && graph.op(*id).is_source()).collect()
}

/// The colour of a format.
const fn colour(format: Format) -> &'static str {
    match format {
        Format::Batched => "#cfe3f7",
        Format::Ragged => "#d9f0d3",
        Format::Paged => "#fde6c8",
        Format::Parameter => "#e8dcf2",
    }
}
