//! Graphs of random flows: nothing dead stays, nothing live goes.

use std::collections::HashSet;

use tilewright_flow::graph::{RemovalReason, clean};
use tilewright_flow::record;
use tilewright_flow::trace::Recording;

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
