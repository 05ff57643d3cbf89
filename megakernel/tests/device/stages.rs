//! Stages of a pipeline on simulated devices: one after the other the logits of the reference
//! machine, whatever the order of the blocks.

use tilewright_codegen::target::Target;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{HIDDEN_IN, HIDDEN_OUT, LOGITS, LowerOptions, NEXT_TOKEN, lower};
use tilewright_megakernel::program::Span;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::LaunchError;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions};
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::vm::{AccessError, StepCells};

use super::devices::{peers, wide_enough};
use super::lab::{Cells, PAGES, normed, options, relative, tiny, weights};

const STEPS: i32 = 3;

fn stage(spec: &Llama, rows: usize, devices: usize, layers: Option<Span>) -> Placed {
    let target = Target { sms: 2, ..Target::named("h100").unwrap() };
    let base = LowerOptions::for_context(64);
    let pages = Some(PAGES * 16);
    let options = LowerOptions { rows, kv: DType::BF16, page_tokens: 16, pages, devices, layers, ..base };
    schedule(lower(spec, &|_| DType::BF16, target, &options).unwrap(), 64).unwrap()
}

/// Logits and next tokens of steps on the reference machine, by the whole program.
fn expected(spec: &Llama, rows: usize) -> Vec<(Vec<f32>, Vec<i32>)> {
    let placed = stage(spec, rows, 1, None);
    let mut kv = KvState::new(&placed).unwrap();
    let mut machine = Machine::new(placed, &weights(spec), 1).unwrap();
    let step = |position| {
        let output = machine.step(&mut kv, &Cells::at(rows, position).view()).unwrap();
        (output.f32(LOGITS).unwrap(), output.i32(NEXT_TOKEN).unwrap())
    };
    (0..STEPS).map(step).collect()
}

fn agrees(spec: &Llama, rows: usize, devices: usize, seed: u64, options: DeviceOptions) {
    let cut = spec.decoder.layers / 2;
    let mut machines = [Span::new(0, cut), Span::new(cut, spec.decoder.layers)].map(|layers| {
        let placed = stage(spec, rows, devices, Some(layers));
        let devices = peers(seed, devices, placed.target.sms);
        DeviceMachine::load_on(placed, &weights(spec), &devices, options, &mut |_, _| ()).unwrap()
    });
    for (position, (logits, tokens)) in (0..STEPS).zip(expected(spec, rows)) {
        let cells = Cells::at(rows, position);
        let [first, last] = &mut machines;
        first.step(&cells.view()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        last.set_input(HIDDEN_IN, &first.f32(HIDDEN_OUT).unwrap()).unwrap();
        last.step(&StepCells { tokens: &[], ..cells.view() }).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let error = relative(&last.f32(LOGITS).unwrap(), &logits);
        assert!(error < 2e-2, "seed {seed}: {error:.2e} of the logits");
        assert_eq!(last.i32(NEXT_TOKEN).unwrap(), tokens, "seed {seed}");
    }
}

#[test]
fn stages_on_devices_give_the_logits_of_the_reference() {
    for rows in [1, 2, 3, 8] {
        agrees(&tiny(), rows, 1, rows as u64, options());
    }
    agrees(&normed(tiny()), 2, 1, 5, options());
    agrees(&wide_enough(), 1, 2, 6, options());
}

#[test]
fn an_input_that_does_not_fit_is_refused() {
    let spec = tiny();
    let placed = stage(&spec, 2, 1, Some(Span::new(1, spec.decoder.layers)));
    let devices = peers(0, 1, placed.target.sms);
    let mut machine = DeviceMachine::load_on(placed, &weights(&spec), &devices, options(), &mut |_, _| ()).unwrap();
    let short = machine.set_input(HIDDEN_IN, &[0.0; 3]);
    assert!(matches!(short, Err(LaunchError::Access(AccessError::Length { found: 3, .. }))), "{short:?}");
    assert!(machine.set_input(LOGITS, &[]).is_err() && machine.set_input("nothing", &[]).is_err());
}
