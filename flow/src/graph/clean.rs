//! From what was recorded to a graph: repetitions become one, dead ops go, both are reported.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;

use super::{OpNode, PassGraph, ValueId};
use crate::op::FlowOp;

/// Why an op is not in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    /// No effect needs its value.
    Dead,
    /// An op before it gives the same value.
    Same,
}

/// An op that was recorded and is not in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The op.
    pub op: &'static str,
    /// Its place among the recorded ops.
    pub index: usize,
    /// Why it went.
    pub reason: RemovalReason,
    /// The flow's line.
    pub at: &'static Location<'static>,
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.reason {
            RemovalReason::Dead => "dead: nothing that is selected, saved or stored needs it",
            RemovalReason::Same => "the same as an op before it",
        };
        write!(f, "{} at {}: {why}", self.op, self.at)
    }
}

/// The graph of recorded ops, what was removed, and the new value of each recorded op that is kept
/// or has an equal.
///
/// Unread sources are removed without a notice.
pub fn clean(recorded: &[OpNode]) -> (PassGraph, Vec<Removed>, Vec<Option<ValueId>>) {
    let first = first_of_equals(recorded);
    let live = reaches_an_effect(recorded, &first);
    let mut new: Vec<Option<ValueId>> = Vec::with_capacity(recorded.len());
    let mut graph = PassGraph::default();
    let mut removed = Vec::new();
    for (index, node) in recorded.iter().enumerate() {
        let remove = |reason| Removed { op: node.op.name(), index, reason, at: node.at };
        if !live[first[index]] {
            removed.extend((!node.op.is_source()).then(|| remove(RemovalReason::Dead)));
            new.push(None);
        } else if first[index] != index {
            removed.extend((!node.op.is_source()).then(|| remove(RemovalReason::Same)));
            new.push(new[first[index]]);
        } else {
            new.push(Some(ValueId::at(graph.nodes.len())));
            // Operands of a live op are live, so each has a new value.
            let operands = node.operands.iter().filter_map(|o| new[o.index()]).collect();
            graph.nodes.push(OpNode { operands, ..node.clone() });
        }
    }
    (graph, removed, new)
}

/// For each op the first one that gives the same value.
fn first_of_equals(recorded: &[OpNode]) -> Vec<usize> {
    let mut seen: HashMap<(FlowOp, Vec<usize>), usize> = HashMap::new();
    let mut first = Vec::with_capacity(recorded.len());
    for (index, node) in recorded.iter().enumerate() {
        let mut operands: Vec<usize> = node.operands.iter().map(|o| first[o.index()]).collect();
        if node.op.is_commutative() {
            operands.sort_unstable();
        }
        // An effect is not a value: it stays as often as it was asked for.
        let same = if node.op.is_effect() { index } else { *seen.entry((node.op.clone(), operands)).or_insert(index) };
        first.push(same);
    }
    first
}

/// Which ops an effect needs, by the first of their equals.
fn reaches_an_effect(recorded: &[OpNode], first: &[usize]) -> Vec<bool> {
    let mut live: Vec<bool> = recorded.iter().map(|node| node.op.is_effect()).collect();
    for index in (0..recorded.len()).rev() {
        if live[index] {
            for operand in &recorded[index].operands {
                live[first[operand.index()]] = true;
            }
        }
    }
    live
}
