//! Graphs of random flows: nothing dead stays, nothing live goes.

use std::collections::HashSet;

use tilewright_flow::trace::Recording;
use tilewright_flow::{algorithms, record, trace};
use tilewright_graph::Graph;
use tilewright_graph::passes::{Cleaned, RemovalReason, clean};

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

/// The operands of each op, and the ops that the graph exists for.
fn edges(graph: &Graph) -> (Vec<Vec<usize>>, Vec<usize>) {
    let operands = graph.ids().map(|id| graph.operands(id).iter().map(|operand| operand.index()).collect()).collect();
    (operands, graph.effects().iter().map(|id| id.index()).collect())
}

/// The rule of clean graphs on one pass; how many dead and repeated ops there were.
fn check_pass(recording: &Recording) -> (usize, usize) {
    let Cleaned { graph, removed, values } = clean(&recording.graph).expect("a valid graph");
    let (operands, effects) = edges(&recording.graph);
    let live = needed(&operands, &effects);
    let dead: Vec<usize> = removed.iter().filter(|(_, reason)| *reason == RemovalReason::Dead).map(|r| r.0).collect();
    assert!(dead.iter().all(|index| !live.contains(index)), "a live op was removed");
    // What is left is needed by what is left, and what is left has no repetition.
    let (operands, effects_kept) = edges(&graph);
    let kept = graph.ids().count();
    assert_eq!(effects_kept.len(), effects.len(), "an effect was removed");
    assert_eq!(needed(&operands, &effects_kept).len(), kept, "a dead op was kept");
    let distinct: HashSet<String> = graph.ids().map(|id| format!("{:?}", graph.op(id))).collect();
    assert_eq!(distinct.len(), kept, "two ops that are the same were kept");
    assert_eq!(recording.graph.ids().count(), kept + removed.len(), "an op vanished without a word");
    assert!(dead.iter().all(|index| values[*index].is_none()) && values.iter().flatten().all(|id| id.index() < kept));
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

/// Graphs of flows are graphs: their text gives them back.
#[test]
fn json_gives_the_same_graph() {
    let algorithms = algorithms::ALL.iter().map(|algorithm| algorithm.trace().expect("a flow without errors"));
    let traced = algorithms.chain((0..100).map(|seed| trace(&random(seed)).expect("a flow without errors")));
    for graph in traced.flat_map(|traced| [traced.cache, traced.indexer]) {
        let text = serde_json::to_string(&graph).expect("JSON");
        assert_eq!(serde_json::from_str::<Graph>(&text).expect("a valid graph"), graph);
    }
}
