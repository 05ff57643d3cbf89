//! Tables that come to shared memory by sections: the same bits, reports of any section, models of
//! any depth.

use proptest::prelude::*;
use tilewright_codegen::target::Target;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::model::Architecture;
use tilewright_megakernel::program::TaskId;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::LaunchError;
use tilewright_megakernel::vm::device::{DeviceFault, DeviceMachine, DeviceOptions, Plan};

use super::devices::{self, shared};
use super::lab::{Cells, bits, least, load, options, splitting, tiny};

/// Tasks of a section, as many as the machine has.
const TASKS: u32 = 16;

/// The least model with `layers` layers.
fn deep(layers: usize) -> Llama {
    least().layers(layers)
}

fn apart() -> DeviceOptions {
    DeviceOptions { table_bytes: 0, ..options() }
}

#[test]
fn long_tables_alone_come_by_sections() {
    let plan =
        |table_bytes| Plan::new(&splitting(&deep(14), 1, 2, 1), DeviceOptions { table_bytes, ..options() }).unwrap();
    let whole = plan(u32::MAX);
    assert_eq!(whole.section_bytes, None);
    assert!(whole.longest_queue() > 4 * TASKS, "more sections than have room at a time");
    assert_eq!(plan(whole.table_bytes).tables, whole.tables);
    let apart = plan(whole.table_bytes - 1);
    assert!(apart.section_bytes.is_some_and(|bytes| 4 * bytes == apart.table_bytes));
    assert!(apart.table_bytes < whole.table_bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn no_bit_depends_on_sections(
        layers in 1usize..4, rows in 1usize..5, sms in 1usize..5, seed in 0u64..1 << 16, splits in 1usize..3, timeline: bool,
    ) {
        let spec = deep(layers);
        let with = |table_bytes, seed| {
            let options = DeviceOptions { table_bytes, timeline, ..options() };
            bits(&mut load(splitting(&spec, rows, sms, splits), &spec, seed, options), rows)
        };
        prop_assert_eq!(with(0, seed), with(u32::MAX, seed + 1));
    }
}

/// Launches of many steps, one after the other, find the sections that they need.
#[test]
fn launches_of_many_steps_go_round_the_sections() {
    let run = |table_bytes, seed| {
        let options = DeviceOptions { table_bytes, ..options() };
        let mut machine = load(splitting(&deep(3), 2, 2, 1), &deep(3), seed, options);
        let first = machine.run(&Cells::at(2, 0).view(), 4).unwrap();
        [first, machine.run(&Cells::at(2, 4).view(), 2).unwrap()]
    };
    assert_eq!(run(0, 5), run(u32::MAX, 6));
}

#[test]
fn several_devices_bring_sections_of_their_own() {
    let run = |table_bytes| {
        let options = DeviceOptions { table_bytes, ..options() };
        let mut machine = devices::machine(&shared(&tiny(), 2, 2, 2, false), &tiny(), 3, options);
        machine.run(&Cells::at(2, 0).view(), 4).unwrap()
    };
    assert_eq!(run(0), run(u32::MAX));
}

fn fails(machine: &mut DeviceMachine) -> LaunchError {
    machine.run(&Cells::at(1, 0).view(), 2).unwrap_err()
}

/// Of every section: a word that something wrote over, a task of no opcode.
#[test]
fn whatever_is_wrong_in_a_section_is_named() {
    let program = splitting(&deep(7), 1, 2, 1);
    let queue: Vec<TaskId> = program.queues()[1].clone();
    let options = DeviceOptions { polls: 1 << 14, ..apart() };
    let mut machine = load(program, &deep(7), 9, options);
    let well = machine.run(&Cells::at(1, 0).view(), 2).unwrap();
    let section = machine.plan().section_bytes.unwrap() as usize / 4;
    for (number, first) in queue.iter().step_by(TASKS as usize).enumerate() {
        machine.inject(DeviceFault::Corrupt { block: 1, word: number * section + 2 }).unwrap();
        assert!(matches!(fails(&mut machine), LaunchError::Tables { block: 1, .. }), "section {number}");
        machine.inject(DeviceFault::Opcode { task: *first, opcode: 77 }).unwrap();
        let error = fails(&mut machine);
        assert!(
            matches!(error, LaunchError::Opcode { task, opcode: 77, .. } if task == *first),
            "section {number}: {error}"
        );
        machine.mend().unwrap();
    }
    assert_eq!(machine.run(&Cells::at(1, 0).view(), 2).unwrap(), well);
}

/// The ring of a model of 80 layers is as deep as that of one of 32, and of 160.
#[test]
fn depth_takes_no_room_from_the_ring() {
    let ring = |layers| {
        let spec = Llama::named("llama-3.1-8b").unwrap().layers(layers).model().unwrap().into_owned();
        let target = Target::named("h100").unwrap();
        let lowering = LowerOptions { kv: DType::BF16, activation: DType::BF16, ..LowerOptions::for_context(1024) };
        let lowering = lowering.splits_for_gpu(spec.kv_heads, target.sms);
        let placed = schedule(lower(&spec, &|_| DType::BF16, target, &lowering).unwrap(), 1024).unwrap();
        Plan::new(&placed, DeviceOptions::default()).unwrap().options.thresholds.stages
    };
    let [usual, deep, deepest] = [32, 80, 160].map(ring);
    assert!(deep >= usual && deepest == deep, "{usual}, {deep} and {deepest} stages");
}
