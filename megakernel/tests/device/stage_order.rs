//! Stages interleaved over the SMs: another order of packed weights, the same bits.

use std::sync::Arc;

use tilewright_codegen::target::Target;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower};
use tilewright_megakernel::model::Architecture;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::{DeviceOptions, Plan, TaskRecord};
use tilewright_megakernel::vm::resident::{DeviceWeights, StageOrder};

use super::lab::{PAGES, bits, device, least, machine, normed, options, placed, records, tiny, weights};

const ORDERS: [StageOrder; 3] = [StageOrder::InOrder, StageOrder::Strips, StageOrder::Stages];

#[test]
fn no_bit_of_a_step_depends_on_where_stages_lie() {
    let streamed =
        DeviceOptions { activation_registers: 0, ..options() }.with_thresholds(|limits| limits.activation_rows = 1);
    let small = DeviceOptions { stage_bytes: 2048, warps: 2, ..options() };
    let untied = tiny().tied(false);
    for (spec, rows, sms, options) in [
        (tiny(), 1, 3, options()),
        (tiny(), 2, 5, streamed),
        (normed(untied), 1, 4, small),
        (least(), 1, 2, DeviceOptions { stage_bytes: 1024, warps: 2, ..options() }),
    ] {
        let with =
            |stage_order| bits(&mut machine(&spec, rows, sms, 11, DeviceOptions { stage_order, ..options }), rows);
        let [in_order, strips, stages] = ORDERS.map(with);
        assert!(in_order == strips && in_order == stages, "{rows} rows on {sms} SMs");
        assert!(in_order.iter().any(|bits| *bits != in_order[0]));
    }
}

/// A prompt of four rows and one row share the packed weights, interleaved for either.
#[test]
fn programs_of_any_rows_find_the_same_dealt_image() {
    let spec = tiny();
    let with = |stage_order| DeviceOptions { stage_order, ..options() };
    let run = |options| {
        let mut shared = DeviceWeights::new(device(3, 3), Arc::new(weights(&spec)));
        let mut wide = shared.machine(placed(&spec, 4, 3), None, options, &mut |_, _| ()).unwrap();
        let kv = wide.kv().clone();
        let bytes = shared.bytes();
        let mut narrow = shared.machine(placed(&spec, 1, 3), Some(&kv), options, &mut |_, _| ()).unwrap();
        assert_eq!(shared.bytes(), bytes);
        let page_table: Vec<i32> = (0..4).flat_map(|_| 4..4 + PAGES as i32).collect();
        let tokens = [11, 3, 77, 150];
        let positions = [0, 1, 2, 3];
        wide.step(&StepCells { tokens: &tokens, positions: &positions, page_table: &page_table }).unwrap();
        narrow.step(&StepCells { tokens: &[42], positions: &[4], page_table: &page_table[..PAGES] }).unwrap();
        narrow.f32_row(LOGITS, 0).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    assert_eq!(run(with(StageOrder::Stages)), run(with(StageOrder::InOrder)));
}

/// In every round the tasks of a stream read consecutive places, so far as they have that round.
#[test]
fn what_the_tasks_of_known_models_read_together_is_contiguous() {
    for (name, rows) in [("llama-3.2-1b", 1), ("llama-3.2-1b", 8), ("llama-3.1-8b", 1)] {
        let spec = Llama::named(name).unwrap().layers(1).model().unwrap().into_owned();
        let target = Target::named("h100").unwrap();
        let lowering = LowerOptions { rows, kv: DType::BF16, ..LowerOptions::for_context(1024) };
        let lowering = lowering.splits_for_gpu(spec.kv_heads, target.sms);
        let placed = schedule(lower(&spec, &|_| DType::BF16, target, &lowering).unwrap(), 1024).unwrap();
        let plan = |stage_order| Plan::new(&placed, DeviceOptions { stage_order, ..DeviceOptions::default() }).unwrap();
        let (plan, in_order) = (plan(StageOrder::Stages), plan(StageOrder::InOrder));
        assert_eq!(plan.packed_bytes, in_order.packed_bytes);
        assert_eq!(plan.options.thresholds, in_order.options.thresholds);
        let records = records(&plan);
        for stream in &plan.streams {
            let of_stream = |record: &&TaskRecord| u64::from(record.weights) == stream.start && record.stages > 0;
            let tasks: Vec<&TaskRecord> = records.iter().filter(of_stream).collect();
            if tasks.is_empty() {
                assert!(!spec.tied_embeddings && stream.features == spec.vocab, "a table of which rows alone are read");
                continue;
            }
            assert_eq!(tasks.iter().map(|task| task.stages as usize).sum::<usize>(), stream.stages(), "{name}");
            let mut next = 0;
            for round in 0..tasks.iter().map(|task| task.stages).max().unwrap() {
                let here = tasks.iter().filter(|task| round < task.stages);
                let mut places: Vec<u32> = here.map(|task| stream.placement.place(task.first + round)).collect();
                places.sort_unstable();
                assert_eq!(places, (next..next + places.len() as u32).collect::<Vec<_>>(), "{name}, round {round}");
                next += places.len() as u32;
            }
        }
    }
}
