//! Groups a product with what prepares its operand and what follows on its results.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::{Rewritten, unfuse};
use crate::axis::Axis;
use crate::error::GraphErrors;
use crate::graph::{Body, Fused, Graph, Step, ValueId};
use crate::op::Op;

/// Groups ops that one kernel can run.
///
/// | part | what it takes |
/// |---|---|
/// | core | products of one operand: q/k/v, gate and up, experts of one choice |
/// | prologue | the norm of that operand, if the core alone reads it |
/// | epilogue | activations, arithmetic, soft caps, rotations, norms of heads, appends to a cache, choices of experts, weighted sums, choices of tokens, if no other op reads what they take from the group |
///
/// An op joins an epilogue only if its other operands do not depend on the group. A group of one op
/// stays a single op.
///
/// ```
/// use tilewright_graph::{graph::Body, models, passes::fuse};
/// let config = serde_json::json!({
///     "model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
///     "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
/// });
/// let graph = fuse(&models::graph(&config)?)?;
/// // Tokens, positions, embedding; q/k/v to the cache, attention, o; gate and up, down; logits to the token.
/// assert_eq!(graph.parts().nodes.len(), 9);
/// let Body::Fused(qkv) = &graph.parts().nodes[3].body else { panic!("a group") };
/// assert_eq!([qkv.prologue.len(), qkv.core.len(), qkv.epilogue.len(), qkv.outputs.len()], [1, 3, 3, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// None for a valid graph; the result is checked again.
pub fn fuse(graph: &Graph) -> Result<Graph, GraphErrors> {
    let graph = unfuse(graph)?;
    let mut grouping = Grouping::new(&graph);
    grouping.cores();
    grouping.prologues();
    grouping.epilogues();
    grouping.emit(&graph)
}

/// The part of a group that an op is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GroupPart {
    Prologue,
    Core,
    Epilogue,
}

/// Ops with the groups they are in, by their places in the graph.
struct Grouping<'g> {
    steps: Vec<Step<'g>>,
    /// The op that defines each value.
    home: Vec<usize>,
    /// The ops that read each value.
    readers: Vec<Vec<usize>>,
    outputs: HashSet<ValueId>,
    /// The group and part of each op.
    group: Vec<Option<(usize, GroupPart)>>,
    /// The ops of each group.
    members: Vec<Vec<usize>>,
}

impl<'g> Grouping<'g> {
    fn new(graph: &'g Graph) -> Grouping<'g> {
        let steps: Vec<Step<'g>> = graph.steps().collect();
        let home: Vec<usize> = steps.iter().enumerate().flat_map(|(i, step)| vec![i; step.results.len()]).collect();
        let mut readers = vec![Vec::new(); home.len()];
        for (place, step) in steps.iter().enumerate() {
            step.op.operands().iter().for_each(|(_, id)| readers[id.index()].push(place));
        }
        let outputs = graph.parts().outputs.iter().copied().collect();
        let group = vec![None; steps.len()];
        Grouping { steps, home, readers, outputs, group, members: Vec::new() }
    }

    fn join(&mut self, op: usize, group: usize, part: GroupPart) {
        self.group[op] = Some((group, part));
        self.members[group].push(op);
    }

    /// The group that an op is in.
    fn group_of(&self, op: usize) -> Option<usize> {
        self.group[op].map(|(group, _)| group)
    }

    /// Whether a value is read by ops that fulfil a condition only.
    fn is_read_by(&self, id: ValueId, condition: impl Fn(usize) -> bool) -> bool {
        !self.outputs.contains(&id) && self.readers[id.index()].iter().all(|reader| condition(*reader))
    }

    /// Products with equal operands: none of them depends on another.
    fn cores(&mut self) {
        let mut groups: HashMap<(&'static str, Vec<ValueId>), usize> = HashMap::new();
        for place in 0..self.steps.len() {
            let op = self.steps[place].op;
            if !op.is_product() {
                continue;
            }
            let key = (op.name(), op.operands().into_iter().map(|(_, id)| id).collect());
            let group = *groups.entry(key).or_insert(self.members.len());
            if group == self.members.len() {
                self.members.push(Vec::new());
            }
            self.join(place, group, GroupPart::Core);
        }
    }

    /// The norm of a core's operand.
    fn prologues(&mut self) {
        for group in 0..self.members.len() {
            let first = self.members[group].first().map(|member| self.steps[*member].op);
            let Some((_, x)) = first.and_then(|op| op.operands().first().copied()) else { continue };
            let norm = self.home[x.index()];
            let is_norm = matches!(self.steps[norm].op, Op::Norm { .. }) && self.group[norm].is_none();
            if is_norm && self.is_read_by(x, |reader| self.group_of(reader) == Some(group)) {
                self.join(norm, group, GroupPart::Prologue);
            }
        }
    }

    /// Adds epilogues: ops that follow on a group's results, in the order of the graph.
    fn epilogues(&mut self) {
        for place in 0..self.steps.len() {
            if self.group[place].is_none() && can_follow(self.steps[place].op) {
                let operands = self.steps[place].op.operands();
                let homes = operands.iter().map(|(_, id)| self.home[id.index()]);
                // The group that is the last to compute an operand comes first.
                let mut homes: Vec<usize> = homes.filter(|home| self.group[*home].is_some()).collect();
                homes.sort_unstable_by_key(|home| Reverse(*home));
                let mut groups = homes.into_iter().filter_map(|home| match self.group[home] {
                    Some((group, GroupPart::Core | GroupPart::Epilogue)) => Some(group),
                    Some((_, GroupPart::Prologue)) | None => None,
                });
                let joined = groups.find(|group| self.may_join(place, *group));
                if let Some(group) = joined {
                    self.join(place, group, GroupPart::Epilogue);
                }
            }
        }
    }

    fn may_join(&self, op: usize, group: usize) -> bool {
        let first = self.first_to_depend(group);
        self.steps[op].op.operands().iter().all(|(_, id)| {
            let home = self.home[id.index()];
            match self.group_of(home) == Some(group) {
                true => self.readers[id.index()].iter().all(|reader| *reader == op),
                false => home < first || !self.depends(home, group, first),
            }
        })
    }

    /// The first op that may depend on a group: no op before it is in one group with a later op, so
    /// that those before it depend on each other alone.
    fn first_to_depend(&self, group: usize) -> usize {
        let mut first = self.members[group].iter().copied().min().unwrap_or(0);
        let begins_before = |members: &Vec<usize>, first: usize| {
            let begin = members.iter().copied().min().filter(|begin| *begin < first)?;
            members.iter().any(|member| *member >= first).then_some(begin)
        };
        while let Some(begin) = self.members.iter().filter_map(|members| begins_before(members, first)).min() {
            first = begin;
        }
        first
    }

    /// Whether an op, with the whole group that it is in, needs a result of `group`. Ops before
    /// `first` do not.
    fn depends(&self, op: usize, group: usize, first: usize) -> bool {
        let mut open = vec![op];
        let mut seen = HashSet::from([op]);
        while let Some(op) = open.pop() {
            let of_op = self.group_of(op);
            if of_op == Some(group) {
                return true;
            }
            let all = of_op.map_or(std::slice::from_ref(&op), |group| self.members[group].as_slice());
            for id in all.iter().flat_map(|member| self.steps[*member].op.operands()).map(|(_, id)| id) {
                let home = self.home[id.index()];
                if home >= first && seen.insert(home) {
                    open.push(home);
                }
            }
        }
        false
    }

    /// The nodes of the new graph in an order in which each follows those it reads. Among nodes
    /// that can run, the one that ended first in the old order comes first.
    fn order(&self) -> Vec<Vec<usize>> {
        let mut units: Vec<Vec<usize>> = self.members.clone();
        units.extend((0..self.steps.len()).filter(|op| self.group[*op].is_none()).map(|op| vec![op]));
        let mut unit_of = vec![0; self.steps.len()];
        for (unit, members) in units.iter_mut().enumerate() {
            members.sort_unstable();
            members.iter().for_each(|op| unit_of[*op] = unit);
        }
        let needs = |unit: usize| -> HashSet<usize> {
            let operands = units[unit].iter().flat_map(|op| self.steps[*op].op.operands());
            operands.map(|(_, id)| unit_of[self.home[id.index()]]).filter(|other| *other != unit).collect()
        };
        let mut waiting: Vec<usize> = vec![0; units.len()];
        let mut followers: Vec<Vec<usize>> = vec![Vec::new(); units.len()];
        let last = |unit: usize| units[unit].last().copied().unwrap_or(0);
        let mut ready = BinaryHeap::new();
        for (unit, count) in waiting.iter_mut().enumerate() {
            let needed = needs(unit);
            *count = needed.len();
            needed.into_iter().for_each(|other| followers[other].push(unit));
            if *count == 0 {
                ready.push(Reverse((last(unit), unit)));
            }
        }
        let mut order = Vec::with_capacity(units.len());
        while let Some(Reverse((_, unit))) = ready.pop() {
            for follower in &followers[unit] {
                waiting[*follower] -= 1;
                if waiting[*follower] == 0 {
                    ready.push(Reverse((last(*follower), *follower)));
                }
            }
            order.push(unit);
        }
        order.into_iter().map(|unit| units[unit].clone()).collect()
    }

    fn emit(&self, graph: &Graph) -> Result<Graph, GraphErrors> {
        let mut rewritten = Rewritten::new(graph.parts());
        for mut members in self.order() {
            if let [op] = members.as_slice() {
                let step = self.steps[*op];
                let op = rewritten.take(step.op, step.first, step.results.len());
                rewritten.push(Body::Single(op), step.results.to_vec());
                continue;
            }
            let part = |op: &usize| self.group[*op].map_or(GroupPart::Core, |(_, part)| part);
            members.sort_by_key(part);
            let mut parts: [Vec<Op>; 3] = Default::default();
            let mut results = Vec::new();
            let mut outputs = Vec::new();
            for op in &members {
                let step = self.steps[*op];
                parts[part(op) as usize].push(rewritten.take(step.op, step.first, step.results.len()));
                results.extend_from_slice(step.results);
                let ids = (0..step.results.len()).map(|result| ValueId::at(step.first.index() + result));
                let leaves = |id: &ValueId| !self.is_read_by(*id, |reader| members.contains(&reader));
                outputs.extend(ids.filter(leaves).map(|id| rewritten.of(id)));
            }
            let [prologue, core, epilogue] = parts;
            rewritten.push(Body::Fused(Fused { prologue, core, epilogue, outputs }), results);
        }
        rewritten.finish()
    }
}

/// Whether an op can follow a product in its kernel: it needs one row at a time, or its heads.
fn can_follow(op: &Op) -> bool {
    match op {
        Op::Norm { over, .. } => over.last() == Some(&Axis::HeadDim),
        Op::Rope { .. } | Op::CacheAppend { .. } | Op::Activation { .. } | Op::Binary { .. } => true,
        Op::Scale { .. } | Op::SoftCap { .. } | Op::Route { .. } | Op::WeightedSum { .. } | Op::Choose { .. } => true,
        Op::Input { .. } | Op::Embed { .. } | Op::Linear { .. } | Op::Attention { .. } => false,
        Op::HeadLinear { .. } | Op::Regroup { .. } | Op::Convolve { .. } | Op::DeltaRule { .. } => false,
        Op::ExpertLinear { .. } | Op::Logits { .. } | Op::Slice { .. } | Op::Concat { .. } => false,
        Op::Load { .. } | Op::Fill { .. } | Op::Elementwise { .. } | Op::Reduce { .. } | Op::Product { .. } => false,
        Op::Rearrange { .. } | Op::OverBlocks { .. } | Op::Store { .. } | Op::Select { .. } => false,
    }
}
