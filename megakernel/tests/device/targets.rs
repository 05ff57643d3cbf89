//! The kernel for every GPU that code is generated for: by the copy engine or by a warp's
//! `cp.async`, the bits are the same.

use std::ops::ControlFlow;
use std::path::Path;

use half::bf16;
use tilewright_codegen::assemble::{Ptxas, Table};
use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::ir::{Arch, Limit};
use tilewright_codegen::sample::Sample;
use tilewright_codegen::target::Target;
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::verify;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::program::BufferKind;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, Plan, record};

use super::lab::{Cells, PAGES, least, options, weights};

/// A GPU of each architecture; the other tests are placed for the first.
const TARGETS: [&str; 5] = ["h100", "a100", "l4", "b200", "rtx5090"];

fn placed(target: Target, spec: &Llama, rows: usize) -> Placed {
    let pages = Some(PAGES * 16);
    let lowering = LowerOptions { rows, kv: DType::BF16, page_tokens: 16, pages, ..LowerOptions::for_context(64) };
    schedule(lower(spec, &|_| DType::BF16, target, &lowering).unwrap(), 64).unwrap()
}

/// A machine on the simulator of a target's architecture.
fn machine(target: &str, spec: &Llama, rows: usize, seed: u64, options: DeviceOptions) -> DeviceMachine {
    let target = Target { sms: 3, ..Target::named(target).unwrap() };
    let arch = Arch::from_name(&target.arch).unwrap();
    let device = Simulator::new(Options { arch, seed, sms: 3, ..Options::default() }).device();
    assert_eq!(device.properties().arch(), Some(arch));
    DeviceMachine::load(placed(target, spec, rows), &weights(spec), &device, options, &mut |_, _| ()).unwrap()
}

/// The logits' bits of steps at these positions, after a history of random numbers; then the tokens
/// of one launch of some steps, and those of one that ends with the first of them.
fn seen(target: &str, spec: &Llama, rows: usize, seed: u64) -> (Vec<u32>, [Vec<u32>; 2]) {
    // By some seeds tables come by sections.
    let table_bytes = if seed.is_multiple_of(3) { 0 } else { options().table_bytes };
    let options = DeviceOptions { timeline: seed % 2 == 1, table_bytes, ..options() };
    let mut machine = machine(target, spec, rows, seed, options);
    let pools: Vec<_> = machine.program().buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool).collect();
    let pools: Vec<_> = pools.iter().map(|pool| (pool.name.clone(), pool.elements().unwrap())).collect();
    let mut draw = Draw::new(9);
    for (name, elements) in pools {
        machine.set_pool(&name, &draw.floats(elements, bf16::from_f64)).unwrap();
    }
    let mut bits = Vec::new();
    // Two full pages and more are streamed; then there are only fresh tokens.
    for position in [41, 0] {
        machine.step(&Cells::at(rows, position).view()).unwrap();
        let logits = (0..rows).flat_map(|row| machine.f32_row(LOGITS, row).unwrap());
        bits.extend(logits.map(f32::to_bits));
    }
    let mut launch = |ends: &[&[u32]]| {
        let mut tokens = Vec::new();
        let each = &mut |step: &[u32]| {
            tokens.extend_from_slice(step);
            ControlFlow::Continue(())
        };
        machine.run_until(&Cells::at(rows, 30).view(), 2, ends, each).unwrap();
        tokens
    };
    let whole = launch(&[]);
    let last: Vec<[u32; 1]> = (0..rows).map(|row| [whole[row]]).collect();
    let ended = launch(&last.iter().map(|id| &id[..]).collect::<Vec<_>>());
    (bits, [whole, ended])
}

/// If a warp copies, it decides with all its lanes, and all lanes see that the consumer warps
/// stopped.
#[test]
fn every_target_computes_the_same_bits() {
    let expected = [1, 2].map(|rows| seen(TARGETS[0], &least(), rows, 0));
    for (target, rows, seed) in
        [("a100", 1, 11), ("a100", 1, 6), ("a100", 2, 200), ("l4", 1, 21), ("b200", 2, 30), ("rtx5090", 2, 41)]
    {
        assert_eq!(seen(target, &least(), rows, seed), expected[rows - 1], "{target}, {rows} rows, seed {seed}");
    }
}

/// The plan of a known model for a GPU.
fn plan(target: &str, model: &str, rows: usize) -> Plan {
    let spec = ModelSpec::named(model).unwrap();
    let target = Target::named(target).unwrap();
    let lowering = LowerOptions { rows, kv: DType::BF16, ..LowerOptions::for_context(4096) };
    let lowering = LowerOptions { activation: DType::BF16, ..lowering }.splits_for_gpu(spec.kv_heads, target.sms);
    let placed = schedule(lower(&spec, &|_| DType::BF16, target, &lowering).unwrap(), 4096).unwrap();
    Plan::new(&placed, DeviceOptions::default()).unwrap()
}

#[test]
fn the_ring_is_as_long_as_the_targets_shared_memory() {
    for target in TARGETS {
        let plan = plan(target, "llama-3.2-1b", 1);
        let most = DeviceOptions::default().thresholds.stages;
        let bytes = record(&plan).shared_bytes();
        let limit = *Limit::SharedPerBlock.range(plan.arch).end();
        assert!(bytes <= limit, "{target}: {bytes} of {limit}");
        let stages = plan.options.thresholds.stages;
        let stage_bytes = plan.options.stage_bytes;
        assert!(stages == most || bytes + stage_bytes + 4096 > limit, "{target}: room for more than {stages} stages");
    }
}

#[test]
fn kernels_of_every_target_assemble_to_what_the_page_says() {
    let Some(ptxas) = Ptxas::find().expect("it runs where it is") else { return };
    let mut table = Table::new("The megakernel on other GPUs", &ptxas).sampled(Sample::one_of(4));
    for target in &TARGETS[1..] {
        for (model, rows) in [("llama-3.1-8b", 1), ("llama-3.2-1b", 1), ("llama-3.2-1b", 8), ("llama-3.2-1b", 16)] {
            if !table.takes_next() {
                continue;
            }
            let name = format!("{target}, {model}, rows {rows}");
            let plan = plan(target, model, rows);
            table.add_as(name, &verify(record(&plan)).unwrap()).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ptxas/targets.md");
    table.check(&page).unwrap_or_else(|error| panic!("{error}"));
}
