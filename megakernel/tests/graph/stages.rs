//! Stages of a pipeline as graphs of launches: one after the other the logits of the reference
//! machine.

use std::sync::Arc;

use tilewright_codegen::ir::Arch;
use tilewright_graph::models::Llama;
use tilewright_megakernel::lower::{HIDDEN_IN, HIDDEN_OUT, LowerOptions, StepPlan};
use tilewright_megakernel::program::Span;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::DeviceOptions;
use tilewright_megakernel::vm::graph::{GraphMachine, GraphOptions, GraphPlan, GraphWeights};
use tilewright_megakernel::vm::resident::{DeviceWeights, StageOrder};

use super::lab::{
    PAGES, Reference, Rows, TARGET, normed, options, planned_with, program_with, prompt, random, tiny, weights, worst,
};

/// The bound of graphs of whole models.
const BOUND: f64 = 2e-2;
const ROWS: usize = 32;
const TABLE: [i32; PAGES] = [5, 17, 2, 9, 23, 0, 11, 14];

fn stage(spec: &Llama, devices: usize, layers: Span) -> StepPlan {
    planned_with(spec, &LowerOptions { devices, layers: Some(layers), ..options(ROWS) })
}

/// A step of both stages; the logits of all rows that are not idle.
fn step([first, last]: &mut [GraphMachine; 2], rows: &Rows) -> Vec<Vec<f32>> {
    let rows = rows.clone().idle(ROWS);
    first.step(&rows.view(), &[], &mut |_, _| ()).unwrap();
    last.set_input(HIDDEN_IN, &first.f32(HIDDEN_OUT).unwrap()).unwrap();
    let cells = StepCells { tokens: &[], ..rows.view() };
    let mut all = Vec::new();
    last.step(&cells, &rows.active(), &mut |_, logits| all.push(logits.to_vec())).unwrap();
    all
}

/// The weights of a stage as a decode machine of one row streams them.
fn packed(spec: &Llama, weights: &GraphWeights, layers: Span) -> DeviceWeights {
    let program = program_with(spec, 3, &LowerOptions { layers: Some(layers), ..options(1) });
    let placed = schedule(program, 64).unwrap();
    let cut = DeviceOptions { stage_bytes: 2048, ..DeviceOptions::for_simulator() };
    let mut packed = DeviceWeights::new(weights.device().clone(), Arc::new(random(spec)));
    packed.send(&placed, DeviceOptions { stage_order: StageOrder::InOrder, ..cut }, &mut |_, _| ()).unwrap();
    packed
}

fn agrees(spec: &Llama, arch: Arch, is_packed: bool, chunks: &[usize], seed: u64) {
    let tokens = prompt(40, seed as i32);
    let cut = spec.decoder.layers / 2;
    let mut machines = [Span::new(0, cut), Span::new(cut, spec.decoder.layers)].map(|layers| {
        let mut weights = weights(spec, arch, seed);
        if is_packed {
            weights.share(&packed(spec, &weights, layers));
        }
        let machine = weights.machine(stage(spec, 1, layers), None, &mut |_, _| ()).unwrap();
        assert_eq!(weights.bytes() == 0, is_packed, "the weights lie where they were packed");
        machine
    });
    let mut first = 0;
    let mut found = Vec::new();
    for &chunk in chunks {
        let end = tokens.len().min(first + chunk);
        let mut rows = Rows::default();
        rows.add(&tokens[first..end], first, &TABLE);
        found.extend(step(&mut machines, &rows));
        first = end;
    }
    let mut rows = Rows::default();
    rows.add(&tokens, 0, &TABLE);
    let error = worst(&found, &Reference::new(spec, tokens.len()).step(&rows));
    assert!(error < BOUND, "in chunks of {chunks:?}, {arch}, seed {seed}: {error}");
}

#[test]
fn a_prompt_by_stages_agrees_with_the_reference() {
    agrees(&tiny(32), Arch::Sm90a, false, &[32, 7, 1], 0);
    agrees(&tiny(64), Arch::Sm90a, true, &[32, 7, 1], 2);
    agrees(&normed(tiny(32)).layers(2), Arch::Sm80, false, &[20, 20], 1);
}

#[test]
fn what_does_not_fit_a_stage_is_refused() {
    let spec = tiny(32);
    for layers in [Span::new(0, 1), Span::new(1, 2)] {
        let plan = GraphPlan::of_device(&stage(&spec, 2, layers), 0, TARGET, None, GraphOptions::default());
        let error = plan.expect_err("two devices").to_string();
        assert!(error.contains("a stage of a pipeline that several devices share"), "{error}");
    }
    let last = stage(&spec, 1, Span::new(1, 2));
    let mut machine = weights(&spec, Arch::Sm90a, 0).machine(last, None, &mut |_, _| ()).unwrap();
    assert!(machine.set_input(HIDDEN_IN, &[0.0; 5]).is_err());
    assert!(machine.set_input("logits", &[]).is_err() && machine.f32(HIDDEN_IN).is_err());
}
