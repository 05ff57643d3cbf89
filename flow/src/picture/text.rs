//! A flow as text: declarations, tasks, bytes of a step.

use std::fmt;

use tilewright_graph::Graph;

use super::{FlowView, TaskView, pass_name};

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

    fn task(&self, f: &mut fmt::Formatter<'_>, graph: &Graph, task: &TaskView) -> fmt::Result {
        let sweeps = if task.sweeps == 1 { String::new() } else { format!("; {} sweeps over the blocks", task.sweeps) };
        writeln!(f, "  {}{sweeps}{}", task.name, moved(task))?;
        for &id in &task.ops {
            let call = self.view.call(graph, id);
            let name = if graph.op(id).is_effect() { String::new() } else { format!("{id} =") };
            writeln!(f, "    {name:>6} {call:<44} {}", self.view.kind(graph, id))?;
        }
        Ok(())
    }
}

/// `; a block reads 256 B, writes 4 B; a row reads 1024 B`.
fn moved(task: &TaskView) -> String {
    let traffic = task.traffic;
    let part = |what: &str, read: usize, written: usize| match (read, written) {
        (0, 0) => String::new(),
        (read, 0) => format!("; a {what} reads {read} B"),
        (0, written) => format!("; a {what} writes {written} B"),
        (read, written) => format!("; a {what} reads {read} B, writes {written} B"),
    };
    part("block", traffic.read_per_block, traffic.written_per_block) + &part("row", traffic.read_per_row, 0)
}

impl fmt::Display for FlowText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view;
        writeln!(f, "{}: {}", view.traced.name, view.extents.model)?;
        self.declarations(f)?;
        let mut bytes = 0;
        for (pass, graph, tasks) in view.passes() {
            let name = pass_name(pass);
            writeln!(f, "{name}:{}", if tasks.is_empty() { " nothing to do" } else { "" })?;
            tasks.iter().try_for_each(|task| self.task(f, graph, task))?;
            let of_row = tasks.iter().map(|task| task.traffic.total(self.candidates)).sum::<u64>();
            // The last pass is that of a step.
            bytes = of_row * self.rows as u64;
        }
        let rows = self.rows;
        let candidates = self.candidates;
        writeln!(f, "a step of {rows} rows × {candidates} candidate blocks: {bytes} B")?;
        view.traced.notices().iter().try_for_each(|notice| writeln!(f, "note: {notice}"))
    }
}
