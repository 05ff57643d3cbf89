//! A flow as text: declarations, groups, bytes of a step.

use std::fmt;

use super::FlowView;
use crate::graph::PassGraph;
use crate::plan::{OpGroup, PassPlan};

/// A flow as text, with the bytes of a step of some rows.
#[derive(Clone, Copy, Debug)]
pub struct FlowText<'v> {
    view: &'v FlowView<'v>,
    rows: usize,
    candidates: usize,
}

impl<'v> FlowText<'v> {
    /// The text of a view; bytes for a step of `rows` rows with `blocks` candidate blocks each.
    pub const fn new(view: &'v FlowView<'v>, rows: usize, candidates: usize) -> FlowText<'v> {
        FlowText { view, rows, candidates }
    }

    fn declarations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let declared = &self.view.traced.declared;
        for field in &declared.fields {
            writeln!(f, "  field      {:<16} paged {} {}", field.name, field.shape, field.dtype)?;
        }
        for state in &declared.states {
            let reset = state.reset;
            writeln!(f, "  state      {:<16} ragged {} {}, {reset} at first", state.name, state.shape, state.dtype)?;
        }
        for parameter in &declared.parameters {
            writeln!(f, "  parameter  {:<16} {} for each key head", parameter.name, parameter.shape)?;
        }
        for requirement in &self.view.traced.requirements {
            writeln!(f, "  asks for   {requirement} ({})", requirement.op)?;
        }
        Ok(())
    }

    fn group(&self, f: &mut fmt::Formatter<'_>, graph: &PassGraph, index: usize, group: &OpGroup) -> fmt::Result {
        let OpGroup { domain, registers, shared, .. } = group;
        writeln!(f, "  group {index}: {domain}; registers {registers} B, shared {shared} B{}", moved(group))?;
        for &id in &group.ops {
            let call = self.view.call(graph, id);
            let name = if graph.node(id).op.is_effect() { String::new() } else { format!("{id} =") };
            writeln!(f, "    {name:>6} {call:<44} {}", self.view.kind(graph, id))?;
        }
        Ok(())
    }

    fn pass(&self, f: &mut fmt::Formatter<'_>, name: &str, graph: &PassGraph, plan: &PassPlan) -> fmt::Result {
        if plan.groups().is_empty() {
            return writeln!(f, "{name}: nothing to do");
        }
        writeln!(f, "{name}:")?;
        plan.groups().iter().enumerate().try_for_each(|(index, group)| self.group(f, graph, index, group))
    }
}

/// `; a block reads 256 B and writes 4 B; a row reads 1024 B`.
fn moved(group: &OpGroup) -> String {
    let bytes = group.bytes;
    let part = |what: &str, read: usize, written: usize| match (read, written) {
        (0, 0) => String::new(),
        (read, 0) => format!("; a {what} reads {read} B"),
        (0, written) => format!("; a {what} writes {written} B"),
        (read, written) => format!("; a {what} reads {read} B, writes {written} B"),
    };
    part("block", bytes.read_per_block, bytes.written_per_block)
        + &part("row", bytes.read_per_row, bytes.written_per_row)
}

impl fmt::Display for FlowText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view;
        writeln!(f, "{}: {}", view.traced.name, view.extents.model)?;
        self.declarations(f)?;
        for (name, graph, plan) in view.passes() {
            self.pass(f, name, graph, plan)?;
        }
        let bytes = view.indexer.bytes(self.rows, self.candidates);
        let rows = self.rows;
        let candidates = self.candidates;
        writeln!(f, "a step of {rows} rows × {candidates} candidate blocks: {bytes} B")?;
        view.traced.notices().iter().try_for_each(|notice| writeln!(f, "note: {notice}"))
    }
}
