//! Which ops become one group, and the order of the groups.

use super::cost::{self, Cost, Fusion};
use super::{Domain, OpGroup, PlanInput};
use crate::graph::{Edge, ValueId};

/// The groups of a graph, in an order in which they can run.
pub(super) fn groups(subject: &PlanInput<'_>, fusion: &Fusion) -> Vec<OpGroup> {
    let edges = subject.graph.edges();
    let mut sets: Vec<Vec<ValueId>> =
        subject.graph.ids().filter(|id| !subject.graph.node(*id).op.is_source()).map(|id| vec![id]).collect();
    while let Some((a, b)) = best_merge(subject, fusion, &edges, &sets) {
        let more = sets.remove(b);
        sets[a].extend(more);
        sets[a].sort_unstable();
    }
    let mut groups = Vec::with_capacity(sets.len());
    for index in in_order(&Links::new(&edges, &sets), &sets) {
        let Cost { inputs, outputs, registers, shared, bytes } = cost::cost(subject, &sets[index]);
        let domain = subject.domain(sets[index][0]);
        groups.push(OpGroup { domain, ops: sets[index].clone(), inputs, outputs, registers, shared, bytes });
    }
    groups
}

/// The pair whose merge saves most traffic; of equal ones the first.
fn best_merge(
    subject: &PlanInput<'_>,
    fusion: &Fusion,
    edges: &[Edge],
    sets: &[Vec<ValueId>],
) -> Option<(usize, usize)> {
    if !fusion.is_on {
        return None;
    }
    let links = Links::new(edges, sets);
    let costs: Vec<Cost> = sets.iter().map(|set| cost::cost(subject, set)).collect();
    let mut best: Option<(usize, (usize, usize))> = None;
    for a in 0..sets.len() {
        let domain = subject.domain(sets[a][0]);
        for b in a + 1..sets.len() {
            if domain == Domain::AcrossBlocks || subject.domain(sets[b][0]) != domain {
                continue;
            }
            let mut both = [&sets[a][..], &sets[b][..]].concat();
            both.sort_unstable();
            let cost = cost::cost(subject, &both);
            let apart = traffic(&costs[a]) + traffic(&costs[b]);
            let saved = apart.saturating_sub(traffic(&cost));
            let is_better = best.is_none_or(|(most, _)| saved > most);
            if is_better && fusion.allows(&cost) && !links.detour(a, b) && !links.detour(b, a) {
                best = Some((saved, (a, b)));
            }
        }
    }
    best.map(|(_, pair)| pair)
}

/// Bytes of a row with one candidate: what a merge can save.
fn traffic(cost: &Cost) -> usize {
    cost.bytes.total(1) as usize
}

/// Which set must come before which.
struct Links {
    after: Vec<Vec<usize>>,
}

impl Links {
    fn new(edges: &[Edge], sets: &[Vec<ValueId>]) -> Links {
        let of = |id: ValueId| sets.iter().position(|set| set.binary_search(&id).is_ok());
        let mut after = vec![Vec::new(); sets.len()];
        for edge in edges {
            if let (Some(a), Some(b)) = (of(edge.before), of(edge.after))
                && a != b
                && !after[a].contains(&b)
            {
                after[a].push(b);
            }
        }
        Links { after }
    }

    /// Whether a way leads from `a` to `b` through another set: then the two cannot be one.
    fn detour(&self, a: usize, b: usize) -> bool {
        let mut seen = vec![false; self.after.len()];
        let mut open: Vec<usize> = self.after[a].iter().copied().filter(|next| *next != b).collect();
        while let Some(at) = open.pop() {
            if at == b {
                return true;
            }
            if !std::mem::replace(&mut seen[at], true) {
                open.extend(&self.after[at]);
            }
        }
        false
    }
}

/// The sets in an order that the links allow; of those that could be next, the one whose first op
/// was recorded first.
fn in_order(links: &Links, sets: &[Vec<ValueId>]) -> Vec<usize> {
    let mut waits = vec![0usize; sets.len()];
    links.after.iter().flatten().for_each(|after| waits[*after] += 1);
    let mut ready: Vec<usize> = (0..sets.len()).filter(|set| waits[*set] == 0).collect();
    let mut order = Vec::with_capacity(sets.len());
    while let Some(place) = (0..ready.len()).min_by_key(|place| sets[ready[*place]][0]) {
        let set = ready.swap_remove(place);
        order.push(set);
        for &after in &links.after[set] {
            waits[after] -= 1;
            if waits[after] == 0 {
                ready.push(after);
            }
        }
    }
    order
}
