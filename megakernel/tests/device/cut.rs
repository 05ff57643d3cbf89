//! Sums that are cut along k: parts on SMs of their own, and the level that adds them up.

use std::collections::BTreeSet;

use tilewright_codegen::target::Target;
use tilewright_codegen::trial::Draw;
use tilewright_graph::models::Llama;
use tilewright_kernels::quant::Code;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower};
use tilewright_megakernel::ops::{LinearPart, Reduce};
use tilewright_megakernel::program::Program;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::PartTile;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, Opcode, Plan};
use tilewright_megakernel::weights::{RandomCodes, Weights};

use super::both::{Both, CONTEXT, lowered};
use super::lab::{Cells, device, options, tiny, weights};

/// Few registers hold activations: rows of more than four stages of eight rows are cut.
fn cutting(part_registers: u32) -> DeviceOptions {
    DeviceOptions { activation_registers: 32, ..options() }
        .with_thresholds(|limits| limits.part_registers = part_registers)
}

/// Rows of down that end within a stage of 128.
fn wide() -> Llama {
    tiny().inner(9 * 128 - 40)
}

fn cut(program: Program, options: &DeviceOptions) -> Placed {
    schedule(program.with_cut_sums(options).unwrap(), CONTEXT).unwrap()
}

/// The columns of the parts, the same in every layer.
fn parts(placed: &Placed) -> Vec<[usize; 2]> {
    let parts = placed.tasks.iter().filter_map(|task| task.op.get::<LinearPart>());
    let columns: BTreeSet<_> = parts.map(|part| [part.along.lo, part.along.hi]).collect();
    columns.into_iter().collect()
}

fn agrees(placed: Placed, rows: usize, weights: &dyn Weights, options: DeviceOptions, most: f64) {
    assert!(placed.tasks.iter().any(|task| task.op.is::<Reduce>()), "{rows} rows are cut");
    let mut both = Both::of(placed, weights, &mut Draw::new(rows as u64), options);
    for position in [0, 17] {
        both.step(&vec![position; rows], most);
    }
}

#[test]
fn cut_sums_agree_with_the_reference() {
    for (rows, part_registers) in [(3, 16), (8, 24), (9, 32), (16, 1)] {
        let options = cutting(part_registers);
        let placed = cut(lowered(&wide(), rows, 1, 5), &options);
        agrees(placed, rows, &weights(&wide()), options, if rows <= 4 { 4e-3 } else { 1e-2 });
    }
}

#[test]
fn cut_sums_of_codes_agree_with_the_reference() {
    let spec = tiny().hidden(160).inner(1600).vocab(120);
    for (rows, code, group) in [(4, Code::U4, Some(32)), (8, Code::E4m3, None), (16, Code::U4, Some(64))] {
        let options = DeviceOptions { activation_registers: 48, ..cutting(16) };
        let weights = RandomCodes::new(&spec, DType::BF16, 7, code, group).unwrap();
        let placed = cut(lowered(&spec, rows, 1, 4).stored_as(&weights), &options);
        agrees(placed, rows, &weights, options, 2e-2);
    }
}

/// Parts are whole stages, as equal as they go; of few rows, and of rows that registers hold, no
/// sum is cut.
#[test]
fn sums_are_cut_where_activations_have_no_room() {
    let of = |rows: usize, options: DeviceOptions| parts(&cut(lowered(&wide(), rows, 1, 5), &options));
    assert_eq!(of(8, cutting(24)), [[0, 384], [384, 768], [768, 1112]]);
    assert_eq!(of(8, cutting(16)), [[0, 256], [256, 512], [512, 768], [768, 1024], [1024, 1112]]);
    for none in [of(2, cutting(16)), of(8, options()), of(8, cutting(0))] {
        assert!(none.is_empty(), "{none:?}");
    }
}

/// The bits of the logits of three steps.
fn bits(sms: usize, options: DeviceOptions) -> Vec<u32> {
    let spec = wide();
    let target = Target { sms, ..Target::named("h100").unwrap() };
    let lowering = LowerOptions { rows: 5, kv: DType::BF16, page_tokens: 16, ..LowerOptions::for_context(64) };
    let lowering = LowerOptions { activation: DType::BF16, splits: Some(1), pages: Some(64), ..lowering };
    let placed = cut(lower(&spec, &|_| DType::BF16, target, &lowering).unwrap(), &options);
    let plan = Plan::new(&placed, options).unwrap();
    let parts: Vec<&PartTile> = plan.opcodes.iter().filter_map(Opcode::get).collect();
    assert!(!parts.is_empty() && parts.iter().all(|part| part.is_packets() == options.packets));
    let device = device(sms as u64, sms);
    let mut machine = DeviceMachine::load(placed, &weights(&spec), &device, options, &mut |_, _| ()).unwrap();
    machine.run(&Cells::at(5, 0).view(), 3).unwrap();
    machine.f32(LOGITS).unwrap().into_iter().map(f32::to_bits).collect()
}

/// The order of partial sums does not depend on the SMs, on the other rows of a step, or on the
/// transport of parts.
#[test]
fn bits_of_cut_sums_do_not_depend_on_placement() {
    let expected = bits(2, cutting(16));
    assert!([3, 7].into_iter().all(|sms| bits(sms, cutting(16)) == expected));
    assert!(bits(3, DeviceOptions { packets: false, ..cutting(16) }) == expected);
}
