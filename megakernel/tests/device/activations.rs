//! Activations in 16 bits: carried by tags, or refused.

use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, LoadError, Plan, Unsupported};
use tilewright_megakernel::vm::reference::{KvState, Machine};

use super::lab::{Cells, PAGES, device, machine, options, relative, tiny, weights};

/// A program whose MLP activations are bf16.
fn narrow(sms: usize) -> Placed {
    let target = Target { sms, ..Target::named("h100").unwrap() };
    let (kv, activation, pages) = (DType::BF16, DType::BF16, Some(PAGES * 16));
    let options = LowerOptions { kv, activation, pages, page_tokens: 16, ..LowerOptions::for_context(64) };
    schedule(lower(&tiny(), &|_| DType::BF16, target, &options).unwrap(), 64).unwrap()
}

#[test]
fn bf16_activations_agree_with_the_reference() {
    let (program, weights) = (narrow(3), weights(&tiny()));
    let mut reference = Machine::new(program.clone(), &weights, 1).unwrap();
    let mut kv = KvState::new(reference.program()).unwrap();
    let mut machine = DeviceMachine::load(program, &weights, &device(11, 3), options(), &mut |_, _| ()).unwrap();
    for step in 0..3 {
        let cells = Cells::at(1, step);
        machine.step(&cells.view()).unwrap();
        let output = reference.step(&mut kv, &cells.view()).unwrap();
        // An activation next to the middle of two bf16 numbers may fall to either side.
        let error = relative(&machine.f32_row(LOGITS, 0).unwrap(), &output.f32_row(LOGITS, 0).unwrap());
        assert!(error < 4e-3, "step {step}: {error}");
    }
}

#[test]
fn bf16_activations_without_tags_are_refused_before_anything_is_generated() {
    let without = DeviceOptions { tags: false, ..options() };
    let Err(Unsupported::Task { source, .. }) = Plan::new(&narrow(3), without) else { panic!("it is planned") };
    assert!(matches!(*source, Unsupported::DType { found: DType::BF16, .. }), "{source}");
    let loaded = DeviceMachine::load(narrow(3), &weights(&tiny()), &device(0, 3), without, &mut |_, _| ());
    assert!(matches!(loaded, Err(LoadError::Unsupported(_))));
}

#[test]
fn releases_and_tags_give_the_same_bits() {
    let bits = |tags: bool| {
        let mut machine = machine(&tiny(), 1, 3, 21, DeviceOptions { tags, ..options() });
        let tokens = machine.run(&Cells::at(1, 0).view(), 3).unwrap();
        (tokens, machine.f32(LOGITS).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>())
    };
    assert_eq!(bits(true), bits(false));
}
