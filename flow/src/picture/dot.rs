//! A flow as a graph for Graphviz: a cluster for each task, a colour for each format.

use std::fmt;

use tilewright_graph::Graph;
use tilewright_graph::graph::ValueId;

use super::{FlowView, TaskView, colour, edges, pass_name};

/// A flow in the DOT language.
#[derive(Clone, Copy, Debug)]
pub struct FlowDot<'v>(pub &'v FlowView<'v>);

impl FlowDot<'_> {
    fn node(&self, f: &mut fmt::Formatter<'_>, pass: &str, graph: &Graph, id: ValueId) -> fmt::Result {
        let text = if graph.op(id).is_source() { self.0.traced.label(graph, id) } else { self.0.call(graph, id) };
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        let kind = self.0.kind(graph, id);
        writeln!(f, "    {pass}_{id} [label=\"{text}\\n{kind}\", fillcolor=\"{}\"];", colour(graph.row(id).format))
    }

    fn pass(&self, f: &mut fmt::Formatter<'_>, pass: &str, graph: &Graph, tasks: &[TaskView]) -> fmt::Result {
        for id in graph.ids().filter(|id| graph.op(*id).is_source()) {
            self.node(f, pass, graph, id)?;
        }
        for task in tasks {
            writeln!(f, "  subgraph cluster_{} {{", task.name)?;
            writeln!(f, "    label=\"{}\";", task.name)?;
            task.ops.iter().try_for_each(|id| self.node(f, pass, graph, *id))?;
            writeln!(f, "  }}")?;
        }
        for ([before, after], is_data) in edges(graph) {
            let style = if is_data { "" } else { " [style=dashed, label=\"before\"]" };
            writeln!(f, "  {pass}_{before} -> {pass}_{after}{style};")?;
        }
        Ok(())
    }
}

impl fmt::Display for FlowDot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.traced.name.replace('\\', "\\\\").replace('"', "\\\"");
        writeln!(f, "digraph \"{name}\" {{")?;
        writeln!(f, "  rankdir=TB;\n  node [shape=box, style=filled, fontname=\"monospace\"];")?;
        for (pass, graph, tasks) in self.0.passes() {
            self.pass(f, pass_name(pass), graph, &tasks)?;
        }
        writeln!(f, "}}")
    }
}
