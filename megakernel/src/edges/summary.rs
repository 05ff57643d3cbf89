//! The edges of a program for a reader: layers repeat them, so alike ones are one row.

use std::fmt;

use super::chosen::{ChosenEdge, ChosenEdges, Transport};
use crate::program::Program;

/// Generations of a buffer that are handed over alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeSummary {
    /// The buffer's name.
    pub buffer: String,
    /// The first generation.
    pub first: u32,
    /// Their number.
    pub count: u32,
    /// Tasks that write one of them, at most.
    pub producers: usize,
    /// Tasks that read one of them, at most.
    pub consumers: usize,
    /// Their transport.
    pub transport: Transport,
    /// Their memory layout.
    pub layout: String,
}

impl fmt::Display for EdgeSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EdgeSummary { buffer, first, count, producers, consumers, transport, layout } = self;
        let generations = if *count == 1 { first.to_string() } else { format!("{count} from {first}") };
        let tasks = format!("{producers} -> {consumers}");
        let transport = transport.to_string();
        write!(f, "{buffer:<14} {generations:>11} {tasks:>13}  {transport:<33} {layout}")
    }
}

impl ChosenEdges {
    /// The edges that a step of the program writes, by buffer, alike generations in one row.
    pub fn summary(&self, program: &Program) -> Vec<EdgeSummary> {
        let mut rows: Vec<EdgeSummary> = Vec::new();
        for buffer in &program.buffers {
            let first = rows.len();
            for chosen in self.of_buffer(buffer.id).iter().filter(|chosen| !chosen.edge.producers.is_empty()) {
                let row = row(&buffer.name, chosen);
                match rows[first..].iter_mut().find(|known| known.is_like(&row)) {
                    Some(known) => known.add(&row),
                    None => rows.push(row),
                }
            }
        }
        rows
    }
}

fn row(buffer: &str, chosen: &ChosenEdge) -> EdgeSummary {
    let edge = &chosen.edge;
    EdgeSummary {
        buffer: buffer.to_owned(),
        first: edge.generation,
        count: 1,
        producers: edge.producers.len(),
        consumers: edge.consumers.len(),
        transport: chosen.transport,
        layout: chosen.layout.to_string(),
    }
}

impl EdgeSummary {
    fn is_like(&self, other: &EdgeSummary) -> bool {
        (self.transport, &self.layout) == (other.transport, &other.layout)
    }

    fn add(&mut self, other: &EdgeSummary) {
        self.count += other.count;
        self.producers = self.producers.max(other.producers);
        self.consumers = self.consumers.max(other.consumers);
    }
}
