//! A flow as a graph for Graphviz: a cluster for each group, a colour for each format.

use std::fmt;

use super::{FlowView, colour};
use crate::graph::{EdgeKind, PassGraph, ValueId};
use crate::plan::PassPlan;

/// A flow in the DOT language.
#[derive(Clone, Copy, Debug)]
pub struct FlowDot<'v>(pub &'v FlowView<'v>);

impl FlowDot<'_> {
    fn node(&self, f: &mut fmt::Formatter<'_>, pass: &str, graph: &PassGraph, id: ValueId) -> fmt::Result {
        let node = graph.node(id);
        let text = if node.op.is_source() { self.0.traced.label(graph, id) } else { self.0.call(graph, id) };
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        let kind = self.0.kind(graph, id);
        writeln!(f, "    {pass}_{id} [label=\"{text}\\n{kind}\", fillcolor=\"{}\"];", colour(node.format))
    }

    fn pass(&self, f: &mut fmt::Formatter<'_>, pass: &str, graph: &PassGraph, plan: &PassPlan) -> fmt::Result {
        for id in graph.ids().filter(|id| graph.node(*id).op.is_source()) {
            self.node(f, pass, graph, id)?;
        }
        for (index, group) in plan.groups().iter().enumerate() {
            writeln!(f, "  subgraph cluster_{pass}_{index} {{")?;
            writeln!(f, "    label=\"{pass} {index}: {}\";", group.domain)?;
            group.ops.iter().try_for_each(|id| self.node(f, pass, graph, *id))?;
            writeln!(f, "  }}")?;
        }
        for edge in graph.edges() {
            let style = match edge.kind {
                EdgeKind::Data => "",
                EdgeKind::WriteAfterRead(_) => " [style=dashed, label=\"before\"]",
            };
            writeln!(f, "  {pass}_{} -> {pass}_{}{style};", edge.before, edge.after)?;
        }
        Ok(())
    }
}

impl fmt::Display for FlowDot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.traced.name.replace('\\', "\\\\").replace('"', "\\\"");
        writeln!(f, "digraph \"{name}\" {{")?;
        writeln!(f, "  rankdir=TB;\n  node [shape=box, style=filled, fontname=\"monospace\"];")?;
        for (pass, graph, plan) in self.0.passes() {
            self.pass(f, pass, graph, plan)?;
        }
        writeln!(f, "}}")
    }
}
