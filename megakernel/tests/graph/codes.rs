//! Prompts of quantised models: codes are made bf16 by launches of their own.

use std::sync::Arc;

use tilewright_codegen::ir::Arch;
use tilewright_kernels::quant::Code;
use tilewright_layout::DType;
use tilewright_megakernel::lower::LOGITS;
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Checked;
use tilewright_megakernel::vm::graph::GraphWeights;
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::weights::RandomCodes;

use super::lab::{PAGE, PAGES, Rows, device, normed, program, prompt, step, tiny, worst};

/// As for weights of bf16; what rounding weights to bf16 adds is less than that.
const BOUND: f64 = 2e-2;

/// A prompt in two chunks, against the exact meaning of the codes.
fn agrees(spec: &ModelSpec, code: Code, group: Option<usize>) {
    let weights = RandomCodes::new(spec, DType::BF16, 7, code, group).unwrap();
    let mut graph = GraphWeights::new(device(Arch::Sm90a, 3), Arc::new(weights.clone()));
    let checked = || Checked::new(program(spec, 32, 1).stored_as(&weights)).unwrap();
    let mut machine = graph.machine(checked(), None, &mut |_, _| ()).unwrap();
    let bytes = graph.bytes();
    let pages = [5, 17, 2, 9, 23, 0, 11, 14];
    let tokens = prompt(45, 2);
    let mut found = Vec::new();
    for (first, end) in [(0, 32), (32, 45)] {
        let mut rows = Rows::default();
        rows.add(&tokens[first..end], first, &pages);
        found.extend(step(&mut machine, &rows));
    }
    let placed = schedule(program(spec, 45, 1).stored_as(&weights), PAGE * PAGES).unwrap();
    let mut reference = Machine::new(placed, &weights, 1).unwrap();
    let mut kv = KvState::new(reference.program()).unwrap();
    let mut rows = Rows::default();
    rows.add(&tokens, 0, &pages);
    let output = reference.step(&mut kv, &rows.view()).unwrap();
    let expected: Vec<_> = (0..45).map(|row| output.f32_row(LOGITS, row).unwrap()).collect();
    let error = worst(&found, &expected);
    println!("{code}, group {group:?}: {error:.1e}");
    assert!(error < BOUND, "{code}, group {group:?}: {error}");
    // Another machine sends nothing.
    graph.machine(checked(), Some(machine.kv()), &mut |_, _| panic!("weights are there")).unwrap();
    assert_eq!(graph.bytes(), bytes);
}

#[test]
fn prompts_of_quantised_weights_agree_with_the_reference() {
    agrees(&tiny(64), Code::I4, Some(32));
    agrees(&ModelSpec { layers: 1, ..tiny(64) }, Code::E4m3, None);
    agrees(&normed(ModelSpec { layers: 1, ..tiny(32) }), Code::U8, Some(16));
}

#[test]
fn forms_that_decoding_lacks_are_taken() {
    agrees(&ModelSpec { layers: 1, ..tiny(64) }, Code::E2m1, Some(16));
}
