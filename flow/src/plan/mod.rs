//! The fusion plan of a pass: which ops run together, in which order, what they read and write.
//!
//! | domain of a group | runs | holds |
//! |---|---|---|
//! | [`Domain::Rows`] | once for each row | ops of `Batched` values: what is the same for all blocks is computed once |
//! | [`Domain::Blocks`] | once for each candidate block, in chunks | ops on rows of a block, with the saves of their values |
//! | [`Domain::AcrossBlocks`] | once for each row, over all its candidates | one op: softmax, a reduction over blocks, the selection |
//!
//! A group reads all its inputs before it writes; its groups come in an order that every edge of
//! the graph follows. Groups merge while the values that live at once fit in registers and the
//! inputs in shared memory, dearest traffic first.

mod cost;
mod fuse;

use std::fmt;

pub use cost::{Fusion, GroupTraffic};

use tilewright_layout::tensor::Format;

use crate::bind::FlowExtents;
use crate::flow::Traced;
use crate::graph::{PassGraph, ValueId};
use crate::op::{Effect, FlowOp};

/// What a group runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// The rows of the batch.
    Rows,
    /// The candidate blocks.
    Blocks,
    /// All candidate blocks of a row together.
    AcrossBlocks,
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Domain::Rows => "rows",
            Domain::Blocks => "blocks",
            Domain::AcrossBlocks => "across blocks",
        })
    }
}

/// The pass that a plan is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowPass {
    /// A block becomes complete.
    Cache,
    /// A decode step.
    Indexer,
}

/// Ops that run together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpGroup {
    /// What it runs over.
    pub domain: Domain,
    /// Its ops, operands first. Effects are among them.
    pub ops: Vec<ValueId>,
    /// Sources and values of other groups that it reads.
    pub inputs: Vec<ValueId>,
    /// Values that other groups read.
    pub outputs: Vec<ValueId>,
    /// Bytes of the values that live at once, of one row.
    pub registers: usize,
    /// Bytes of the inputs that are staged.
    pub shared: usize,
    /// What it moves.
    pub bytes: GroupTraffic,
}

/// The groups of a pass, in an order in which they can run. Only [`PassPlan::new`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassPlan {
    groups: Vec<OpGroup>,
}

/// The graph of a pass with what the plan needs to know of it.
#[derive(Clone, Copy)]
pub(crate) struct PlanInput<'a> {
    pub traced: &'a Traced,
    pub graph: &'a PassGraph,
    pub extents: &'a [[usize; 2]],
    pub pass: FlowPass,
}

impl PassPlan {
    /// The plan of a pass.
    ///
    /// ```
    /// use tilewright_flow::{ModelShape, algorithms, plan::{FlowPass, Fusion, PassPlan}};
    /// let traced = algorithms::named("centered")?.trace()?;
    /// let model = ModelShape { kv_heads: 8, group: 4, head_dim: 128, block_tokens: 16 };
    /// let extents = traced.extents(&model)?;
    /// let fused = PassPlan::new(&traced, &extents, FlowPass::Indexer, &Fusion::default());
    /// let domains: Vec<String> = fused.groups().iter().map(|group| group.domain.to_string()).collect();
    /// assert_eq!(domains, ["blocks", "across blocks", "blocks", "across blocks"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(traced: &Traced, extents: &FlowExtents, pass: FlowPass, fusion: &Fusion) -> PassPlan {
        let (graph, extents) = match pass {
            FlowPass::Cache => (&traced.cache, &extents.cache),
            FlowPass::Indexer => (&traced.indexer, &extents.indexer),
        };
        let subject = PlanInput { traced, graph, extents, pass };
        PassPlan { groups: fuse::groups(&subject, fusion) }
    }

    /// The groups, in an order in which they can run.
    pub fn groups(&self) -> &[OpGroup] {
        &self.groups
    }

    /// The bytes that all groups move for `rows` rows of `candidates` candidate blocks each.
    pub fn bytes(&self, rows: usize, candidates: usize) -> u64 {
        let bytes = self.groups.iter().map(|group| group.bytes.total(candidates));
        bytes.sum::<u64>() * rows as u64
    }
}

impl PlanInput<'_> {
    /// What an op runs over.
    pub fn domain(&self, id: ValueId) -> Domain {
        let node = self.graph.node(id);
        match (&node.op, self.pass) {
            (_, FlowPass::Cache) => Domain::Blocks,
            (FlowOp::Effect(Effect::Select) | FlowOp::Row(_), FlowPass::Indexer) => Domain::AcrossBlocks,
            (_, FlowPass::Indexer) if node.format == Format::Batched => Domain::Rows,
            (_, FlowPass::Indexer) => Domain::Blocks,
        }
    }
}

#[cfg(test)]
impl PassPlan {
    /// Reorders the groups without regard to edges: a planted bug.
    pub(crate) fn reordered(mut self, key: impl Fn(&OpGroup) -> bool) -> PassPlan {
        self.groups.sort_by_key(|group| key(group));
        self
    }
}
