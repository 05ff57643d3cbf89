//! Activations in 16 bits, carried by packets or released; activations held in registers.

use tilewright_codegen::sample::Sample;
use tilewright_codegen::target::Target;
use tilewright_graph::models::Llama;
use tilewright_kernels::gemv::activations::AOperand;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, Plan};
use tilewright_megakernel::vm::device::{LinearTile, QkvTile};
use tilewright_megakernel::vm::reference::{KvState, Machine};

use super::lab::{Cells, PAGES, device, machine, options, relative, tiny, weights};

/// A program whose MLP activations are bf16.
fn narrow(spec: &Llama, rows: usize, sms: usize) -> Placed {
    let target = Target { sms, ..Target::named("h100").unwrap() };
    let kv = DType::BF16;
    let activation = DType::BF16;
    let pages = Some(PAGES * 16);
    let options = LowerOptions { rows, kv, activation, pages, page_tokens: 16, ..LowerOptions::for_context(64) };
    schedule(lower(spec, &|_| DType::BF16, target, &options).unwrap(), 64).unwrap()
}

/// Three steps against the reference machine.
fn agree(spec: &Llama, rows: usize, options: DeviceOptions, most: f64) {
    let program = narrow(spec, rows, 3);
    let weights = weights(spec);
    let mut reference = Machine::new(program.clone(), &weights, 1).unwrap();
    let mut kv = KvState::new(reference.program()).unwrap();
    let mut machine = DeviceMachine::load(program, &weights, &device(11, 3), options, &mut |_, _| ()).unwrap();
    for step in 0..3 {
        let cells = Cells::at(rows, step);
        machine.step(&cells.view()).unwrap();
        let output = reference.step(&mut kv, &cells.view()).unwrap();
        for row in 0..rows {
            let error = relative(&machine.f32_row(LOGITS, row).unwrap(), &output.f32_row(LOGITS, row).unwrap());
            assert!(error < most, "step {step}, row {row}: {error}");
        }
    }
}

// An activation next to the middle of two bf16 numbers may fall to either side. Of more than four
// rows attention hands on its result in bf16.

#[test]
fn bf16_activations_agree_with_the_reference() {
    agree(&tiny(), 1, options(), 4e-3);
}

#[test]
fn bf16_activations_without_packets_agree_with_the_reference() {
    agree(&tiny(), 2, DeviceOptions { packets: false, ..options() }, 4e-3);
}

#[test]
fn activations_held_in_registers_agree_with_the_reference() {
    agree(&tiny(), 3, options().with_thresholds(|limits| limits.activation_rows = 1), 4e-3);
    agree(&tiny(), 6, options(), 1e-2);
    agree(&tiny(), 9, options(), 1e-2);
}

#[test]
fn activations_in_whole_chunks_agree_with_the_reference() {
    // Rows of eight stages, held as they lie.
    let wide = tiny().inner(8 * 4 * 32);
    agree(&wide, 8, options(), 1e-2);
}

#[test]
fn streamed_activations_agree_with_the_reference() {
    let streamed =
        DeviceOptions { activation_registers: 0, ..options() }.with_thresholds(|limits| limits.activation_rows = 1);
    for rows in [1, 3, 7, 16] {
        agree(&tiny(), rows, streamed, if rows <= 4 { 4e-3 } else { 1e-2 });
    }
    // Rows of nine stages, two of which end inside; more than registers hold of 9 rows, and of 5 in
    // two parts.
    let wide = tiny().inner(17 * 4 * 32 - 4);
    agree(&wide, 9, options(), 1e-2);
    agree(&wide, 2, DeviceOptions { packets: false, ..streamed }, 4e-3);
}

/// Products whose activations registers hold by halves, and by fourths: sums of logits wait where
/// these will be, others in shared memory.
#[test]
fn activations_by_phases_agree_with_the_reference() {
    for (rows, hidden, activation_registers) in [(3, 256, 4), (9, 512, 16), (16, 512, 32)] {
        let spec = tiny().hidden(hidden);
        let options = DeviceOptions { activation_registers, ..options() };
        let plan = Plan::new(&narrow(&spec, rows, 3), options).unwrap();
        let linear = plan.opcodes.iter().filter_map(|opcode| opcode.get::<LinearTile>().map(|linear| linear.tile));
        let qkv = plan.opcodes.iter().filter_map(|opcode| opcode.get::<QkvTile>().map(|qkv| qkv.tile));
        let waiting = linear.chain(qkv).filter_map(|tile| match tile.product.a_operand {
            AOperand::Phases { waiting, .. } => Some(waiting > 0),
            AOperand::Shared | AOperand::Registers | AOperand::Reloaded { .. } => None,
        });
        let (shared, logits): (Vec<bool>, Vec<bool>) = waiting.partition(|&waits| waits);
        assert_eq!(logits.len(), 1, "{rows} rows of {hidden}");
        assert!(shared.len() >= 2, "{rows} rows of {hidden}: {} tiles", shared.len());
        agree(&spec, rows, options, if rows <= 4 { 4e-3 } else { 1e-2 });
    }
}

#[test]
fn the_way_of_activations_changes_the_order_of_sums_alone() {
    let bits = |options: DeviceOptions| {
        let mut machine = machine(&tiny(), 5, 3, 22, options);
        machine.run(&Cells::at(5, 0).view(), 2).unwrap();
        machine.f32(LOGITS).unwrap()
    };
    let copied = bits(options().with_thresholds(|limits| limits.activation_rows = 17));
    for registers in [0, 128] {
        let other = bits(DeviceOptions { activation_registers: registers, ..options() });
        let error = relative(&other, &copied);
        assert!(error < 2e-3, "{registers} registers: {error}");
    }
}

#[test]
fn releases_and_packets_and_registers_give_the_same_bits() {
    let bits = |packets: bool, take_registers: bool| {
        let options = DeviceOptions { warps: 8, stage_bytes: 4096, packets, take_registers, ..options() };
        let mut machine = machine(&tiny(), 1, 3, 21, options);
        let tokens = machine.run(&Cells::at(1, 0).view(), 3).unwrap();
        (tokens, machine.f32(LOGITS).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>())
    };
    let expected = bits(true, true);
    assert_eq!(bits(false, true), expected);
    assert_eq!(bits(true, false), expected);
}

/// Chunks of weights and blocks of tokens are dealt to the warps in turn, whatever stage they come
/// in: copied, held, and with rows that end inside a stage.
#[test]
fn the_size_of_stages_changes_no_bit() {
    let wide = tiny().inner(17 * 4 * 32 - 4);
    for (spec, rows, steps) in [(&tiny(), 1, 18), (&wide, 2, 2), (&tiny(), 5, 2)] {
        let bits = |stage_bytes: u32| {
            let mut machine = machine(spec, rows, 3, 23, DeviceOptions { stage_bytes, ..options() });
            let tokens = machine.run(&Cells::at(rows, 0).view(), steps).unwrap();
            (tokens, machine.f32(LOGITS).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>())
        };
        let expected = bits(2048);
        for stage_bytes in Sample::one_of(3).of(&[6144, 4096, 8192]) {
            assert!(bits(stage_bytes) == expected, "rows {rows}, stages of {stage_bytes} bytes");
        }
    }
}

/// Nothing that a step computes depends on which block comes first.
#[test]
fn the_order_of_blocks_changes_no_bit() {
    let wide = tiny().inner(17 * 4 * 32 - 4);
    for (spec, rows) in [(&tiny(), 1), (&tiny(), 5), (&wide, 16)] {
        let bits = |seed: u64| {
            let mut machine =
                DeviceMachine::load(narrow(spec, rows, 5), &weights(spec), &device(seed, 5), options(), &mut |_, _| ())
                    .unwrap();
            let tokens = machine.run(&Cells::at(rows, 0).view(), 2).unwrap();
            (tokens, machine.f32(LOGITS).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>())
        };
        let expected = bits(0);
        for seed in Sample::one_of(3).of(&[1, 2, 3]) {
            assert!(bits(seed) == expected, "rows {rows}, seed {seed}");
        }
    }
}
