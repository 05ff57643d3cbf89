//! Lowered programs with a flow: valid for every algorithm, read again as they were written, and
//! wrong without any of their waits.

use tilewright_codegen::target::Target;
use tilewright_flow::memory::Budget;
use tilewright_flow::program::{FlowSettings, Lowered, Phase, observed_names};
use tilewright_flow::{FlowExtents, ModelShape, Parameters, Traced, algorithms};
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower_indexed};
use tilewright_megakernel::program::{BufferKind, Program};
use tilewright_megakernel::validate::validate;

fn spec(qk_norm: bool) -> Llama {
    Llama { qk_norm, ..Llama::small().hidden(32).inner(32).vocab(40).max_positions(4096) }
}

fn settings(traced: Traced, block_tokens: usize) -> FlowSettings {
    let model = ModelShape { kv_heads: 2, group: 3, head_dim: 16, block_tokens };
    let FlowExtents { parameters, .. } = traced.extents(&model).expect("a model that fits");
    let declared = traced.declared.parameters.iter().zip(parameters);
    let layer: Parameters = declared.map(|(p, [d0, d1])| (p.name.clone(), vec![0.5; 2 * d0 * d1])).collect();
    let budget = Budget::new(4, 0.1, 1, 2).expect("a budget");
    FlowSettings::new(traced, block_tokens, budget).expect("a flow").with_parameters(vec![layer; 2])
}

fn lowered(flow: &FlowSettings, phase: Phase, spec: &Llama, context: usize) -> Program {
    let target = Target::host(13);
    let mut indexer = Lowered::new(flow, phase, 3);
    let options = LowerOptions { rows: 2, page_tokens: 16, ..LowerOptions::for_context(context) };
    lower_indexed(spec, &|_| DType::F32, target, &options, Some(&mut indexer)).expect("a model that fits")
}

#[test]
fn every_algorithm_lowers_to_valid_programs_of_both_phases() {
    for algorithm in algorithms::ALL {
        let block_tokens = if algorithm.name == "h2o-tokens" { 1 } else { 16 };
        let flow = settings(algorithm.trace().expect("a flow without errors"), block_tokens);
        for (phase, qk_norm) in [(Phase::Prompt, false), (Phase::Decode, false), (Phase::Decode, true)] {
            for flow in [flow.clone(), flow.clone().observed()] {
                let program = lowered(&flow, phase, &spec(qk_norm), 4096);
                let report = validate(&program);
                assert!(report.is_valid(), "{}, {phase:?}: {report}", algorithm.name);
                let json = program.to_json().expect("registered ops");
                assert_eq!(Program::from_json(&json).expect("what was written"), program, "{}", algorithm.name);
            }
        }
    }
}

/// A flow whose blocks are scored one by one has as many tasks as cover the SMs; one that looks at
/// all of them has one for each row and head, one with a state one for each head.
#[test]
fn scores_are_split_where_blocks_are_scored_one_by_one() {
    let scores = |name: &str| {
        let flow = settings(algorithms::named(name).expect("a flow").trace().expect("a flow without errors"), 16);
        let program = lowered(&flow, Phase::Decode, &spec(false), 4096);
        program.tasks.iter().filter(|task| task.label.starts_with("layers.1.flow.score.h1")).count()
    };
    assert_eq!(["quest", "block-sparse", "centered", "running-average"].map(scores), [6, 6, 2, 1]);
}

#[test]
fn what_is_observed_is_an_output_of_each_layer() {
    let flow = settings(algorithms::named("quest").expect("a flow").trace().expect("a flow without errors"), 16);
    let kind = |program: &Program, name: &str| program.buffer_named(name).map(|buffer| buffer.kind);
    let program = lowered(&flow.clone().observed(), Phase::Decode, &spec(false), 256);
    for name in observed_names(1) {
        assert_eq!(kind(&program, &name), Some(BufferKind::Output));
        let unobserved = lowered(&flow, Phase::Decode, &spec(false), 256);
        assert_eq!(kind(&unobserved, &name), Some(BufferKind::Activation));
    }
}

/// Planted bugs: a task of the flow, or attention after it, that waits for nothing.
#[test]
fn a_wait_that_is_missing_is_a_race() {
    let flow =
        settings(algorithms::named("running-average").expect("a flow").trace().expect("a flow without errors"), 16);
    for (phase, labels) in [
        (Phase::Prompt, &["flow.summarise"][..]),
        (Phase::Decode, &["flow.summarise", "flow.score", "flow.select", "attention"]),
    ] {
        let program = lowered(&flow, phase, &spec(false), 256);
        for label in labels {
            let mut broken = program.clone();
            let prefix = format!("layers.1.{label}");
            let task =
                broken.tasks.iter_mut().find(|task| task.label.starts_with(&prefix)).expect("a task of the level");
            task.waits.clear();
            assert!(!validate(&broken).is_valid(), "{phase:?}: `{prefix}` waits for nothing and the program is valid");
        }
    }
}

#[test]
fn a_program_of_an_unregistered_flow_is_refused() {
    let flow = settings(algorithms::named("quest").expect("a flow").trace().expect("a flow without errors"), 16);
    let program = lowered(&flow, Phase::Decode, &spec(false), 256);
    let json = program.to_json().expect("registered ops").replace("\"quest\"", "\"quests\"");
    let read = Program::from_json(&json).expect("a program, of a flow that is not known");
    let report = validate(&read).to_string();
    assert!(report.contains("there is no flow `quests`; register it before its program is read"), "{report}");
}
