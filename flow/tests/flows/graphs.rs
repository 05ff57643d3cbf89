//! Graphs and plans of random flows: nothing dead stays, nothing live goes, groups run in an order
//! that every edge allows.

use std::collections::HashSet;

use tilewright_flow::graph::{Edge, PassGraph, RemovalReason, clean};
use tilewright_flow::plan::{Domain, FlowPass, Fusion, PassPlan};
use tilewright_flow::trace::Recording;
use tilewright_flow::{ModelShape, record, trace};

use crate::random_flow::RandomFlow;
use crate::world::Rng;

/// The ops that an effect needs, by walking from user to operand.
fn needed(operands: &[Vec<usize>], effects: &[usize]) -> HashSet<usize> {
    let mut open: Vec<usize> = effects.to_vec();
    let mut seen = HashSet::new();
    while let Some(at) = open.pop() {
        if seen.insert(at) {
            open.extend(&operands[at]);
        }
    }
    seen
}

/// The rule of clean graphs on one pass; how many dead and repeated ops there were.
fn check_pass(recording: &Recording) -> (usize, usize) {
    let nodes = &recording.nodes;
    let (graph, removed, _) = clean(nodes);
    let operands = nodes.iter().map(|n| n.operands.iter().map(|o| o.index()).collect()).collect::<Vec<Vec<usize>>>();
    let effects: Vec<usize> = (0..nodes.len()).filter(|i| nodes[*i].op.is_effect()).collect();
    let live = needed(&operands, &effects);
    let dead: Vec<usize> = removed.iter().filter(|r| r.reason == RemovalReason::Dead).map(|r| r.index).collect();
    assert!(dead.iter().all(|index| !live.contains(index)), "a live op was removed");
    // What is left is needed by what is left, and what is left has no repetition.
    let kept = graph.nodes();
    let operands = kept.iter().map(|n| n.operands.iter().map(|o| o.index()).collect()).collect::<Vec<Vec<usize>>>();
    let effects_kept: Vec<usize> = graph.effects().iter().map(|id| id.index()).collect();
    assert_eq!(effects_kept.len(), effects.len(), "an effect was removed");
    assert_eq!(needed(&operands, &effects_kept).len(), kept.len(), "a dead op was kept");
    let distinct: HashSet<_> = kept.iter().map(|n| (&n.op, &n.operands)).collect();
    assert_eq!(distinct.len(), kept.len(), "two ops that are the same were kept");
    let ops = |nodes: &[tilewright_flow::graph::OpNode]| nodes.iter().filter(|n| !n.op.is_source()).count();
    assert_eq!(ops(nodes), ops(kept) + removed.len(), "an op vanished without a word");
    (dead.len(), removed.len() - dead.len())
}

fn random(seed: u64) -> RandomFlow {
    let mut rng = Rng::new(seed);
    let choices = 1 + rng.below(80);
    RandomFlow { choices: (0..choices).map(|_| rng.next() as u16).collect() }
}

fn check_graphs(seeds: std::ops::Range<u64>) {
    let mut dead = 0;
    let mut same = 0;
    for seed in seeds.clone() {
        let recorded = record(&random(seed)).expect("a flow without errors");
        for pass in [&recorded.cache, &recorded.indexer] {
            let (d, s) = check_pass(pass);
            dead += d;
            same += s;
        }
    }
    let flows = (seeds.end - seeds.start) as usize;
    assert!(dead > flows && same > flows / 20, "{flows} flows had only {dead} dead and {same} repeated ops");
}

#[test]
fn what_reaches_no_effect_is_gone_and_nothing_else() {
    check_graphs(0..2_000);
}

#[test]
#[ignore = "40,000 flows: run it alone"]
fn what_reaches_no_effect_is_gone_and_nothing_else_at_length() {
    check_graphs(0..40_000);
}

/// The group of each op, and that the groups are an order of the edges.
fn check_plan(graph: &PassGraph, plan: &PassPlan, fusion: &Fusion) {
    let group_of = |edge_end| plan.groups().iter().position(|group| group.ops.contains(&edge_end));
    for id in graph.ids() {
        let groups = plan.groups().iter().filter(|group| group.ops.contains(&id)).count();
        assert_eq!(groups, usize::from(!graph.node(id).op.is_source()), "{id} is in {groups} groups");
    }
    for Edge { before, after, kind } in graph.edges() {
        if let (Some(before), Some(after)) = (group_of(before), group_of(after)) {
            assert!(before <= after, "{kind:?} goes back from group {before} to {after}");
        }
    }
    for group in plan.groups() {
        assert!(group.ops.len() == 1 || group.domain != Domain::AcrossBlocks);
        assert!(group.ops.len() == 1 || (group.registers <= fusion.registers && group.shared <= fusion.shared));
    }
}

#[test]
fn groups_hold_every_op_once_in_an_order_that_edges_allow() {
    let model = ModelShape { kv_heads: 2, group: 3, head_dim: 8, block_tokens: 4 };
    let tight = Fusion { registers: 200, shared: 400, ..Fusion::default() };
    let mut fused = 0;
    let mut apart = 0;
    for seed in 0..150 {
        let traced = trace(&random(seed)).expect("a flow without errors");
        let extents = traced.extents(&model).expect("a model that fits");
        for fusion in [Fusion::OFF, Fusion::default(), tight] {
            for (pass, graph) in [(FlowPass::Cache, &traced.cache), (FlowPass::Indexer, &traced.indexer)] {
                let plan = PassPlan::new(&traced, &extents, pass, &fusion);
                check_plan(graph, &plan, &fusion);
                *(if fusion.is_on { &mut fused } else { &mut apart }) += plan.groups().len();
            }
        }
    }
    assert!(fused < apart, "two plans of fused groups have {fused} groups, one of single ops {apart}");
}
