//! A model on several devices: the logits of one, the same bits on whatever queues, nothing of a
//! weight twice.

use proptest::prelude::*;
use tilewright_codegen::target::Target;
use tilewright_graph::models::Llama;
use tilewright_kernels::quant::Code;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerError, LowerOptions, NEXT_TOKEN, lower};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::program::{BufferKind, DeviceId, Program};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::validate;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::Unsupported;
use tilewright_megakernel::vm::device::{DeviceOptions, Plan};
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::weights::{RandomCodes, RandomWeights, Weights};

const ROWS: usize = 2;
const STEPS: usize = 20;
const TOKENS: [[i32; ROWS]; 5] = [[3, 0], [90, 7], [11, 95], [64, 2], [5, 41]];

/// A small model of a family whose parts `devices` can share.
fn spec(family: &str, devices: usize, heads: [usize; 2], layers: usize) -> Llama {
    let [kv_heads, group] = heads;
    let kv_heads =
        if kv_heads.is_multiple_of(devices) || devices.is_multiple_of(kv_heads) { kv_heads } else { devices };
    let heads = (kv_heads * group).next_multiple_of(num_lcm(devices, kv_heads));
    let head_dim = if family == "qwen3" { 20 } else { 16 };
    Llama {
        qkv_bias: family == "qwen2",
        o_bias: family == "mistral",
        mlp_bias: family == "mistral",
        qk_norm: family == "qwen3",
        ..Llama::small()
            .hidden(48)
            .layers(layers)
            .head_dim(head_dim)
            .inner(24 * devices)
            .vocab(96_usize.next_multiple_of(devices))
            .max_positions(128)
            .tied(family == "llama")
            .heads(heads, kv_heads)
    }
}

fn num_lcm(a: usize, b: usize) -> usize {
    (a..).step_by(a).find(|n| n.is_multiple_of(b)).expect("a multiple of both")
}

fn program(spec: &Llama, devices: usize, sms: usize) -> Program {
    let options =
        LowerOptions { rows: ROWS, page_tokens: 16, splits: Some(2), devices, ..LowerOptions::for_context(32) };
    lower(spec, &|_| DType::BF16, Target::host(sms), &options).unwrap()
}

/// The logits of all steps, and the tokens chosen.
fn run(spec: &Llama, devices: usize, sms: usize, workers: usize) -> (Vec<f32>, Vec<i32>) {
    run_with(&RandomWeights::new(spec, DType::BF16, 11).unwrap(), spec, [devices, sms, workers])
}

/// Runs the program with these weights.
fn run_with(weights: &dyn Weights, spec: &Llama, [devices, sms, workers]: [usize; 3]) -> (Vec<f32>, Vec<i32>) {
    let placed = schedule(program(spec, devices, sms).stored_as(weights), 32).unwrap();
    let mut kv = KvState::new(&placed).unwrap();
    kv.poison();
    let mut machine = Machine::new(placed, weights, workers).unwrap();
    let mut logits = Vec::new();
    let mut chosen = Vec::new();
    for at in 0..STEPS {
        machine.poison();
        let tokens = TOKENS[at % TOKENS.len()];
        let positions = [at as i32; ROWS];
        let cells = StepCells { tokens: &tokens, positions: &positions, page_table: &[0, 1, 2, 3] };
        let output = machine.step(&mut kv, &cells).unwrap_or_else(|error| panic!("{error}"));
        logits.extend(output.f32(LOGITS).unwrap());
        chosen.extend(output.i32(NEXT_TOKEN).unwrap());
    }
    (logits, chosen)
}

fn relative(found: &[f32], expected: &[f32]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
    let error = square(&mut found.iter().zip(expected).map(|(a, b)| f64::from(a - b)));
    (error / square(&mut expected.iter().map(|&x| f64::from(x)))).sqrt()
}

const FAMILIES: [&str; 4] = ["llama", "mistral", "qwen2", "qwen3"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The parts are summed in another order, in f32: nothing else differs. On the same devices no
    /// bit depends on SMs or workers.
    #[test]
    fn several_devices_give_the_logits_of_one(
        family in prop::sample::select(FAMILIES.to_vec()),
        devices in prop::sample::select(vec![1usize, 2, 3, 4, 8]),
        kv_heads in 1usize..4,
        group in 1usize..4,
        sms in 1usize..5,
        workers in 1usize..4,
    ) {
        let spec = spec(family, devices, [kv_heads, group], 2);
        let (expected, alone) = run(&spec, 1, 2, 2);
        let (found, chosen) = run(&spec, devices, sms, workers);
        let error = relative(&found, &expected);
        prop_assert!(error < 2e-6, "{error:.2e} of the logits");
        prop_assert_eq!(chosen, alone);
        prop_assert!(run(&spec, devices, 3, 1).0 == found, "another placement");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Codes of any scheme, in groups that cuts may fall into: a part is the same numbers, so the
    /// sums' order alone differs.
    #[test]
    fn several_devices_give_the_logits_of_one_with_codes(
        family in prop::sample::select(FAMILIES.to_vec()),
        devices in prop::sample::select(vec![1usize, 2, 3, 4, 8]),
        heads in [1usize..4, 1usize..4],
        code in prop::sample::select(Code::ALL.to_vec()),
        group in prop::option::of(1usize..60),
    ) {
        let spec = spec(family, devices, heads, 2);
        let weights = RandomCodes::new(&spec, DType::BF16, 11, code, group).unwrap();
        let (expected, alone) = run_with(&weights, &spec, [1, 2, 2]);
        let (found, chosen) = run_with(&weights, &spec, [devices, 3, 2]);
        let error = relative(&found, &expected);
        prop_assert!(error < 2e-6, "{error:.2e} of the logits");
        prop_assert_eq!(chosen, alone);
    }
}

#[test]
fn every_element_of_a_weight_lies_on_as_many_devices_as_need_it() {
    let spec = ModelSpec::named("llama-3.1-8b").unwrap();
    let bytes = |devices| {
        let program = lower(
            &spec,
            &|_| DType::BF16,
            Target::named("h200").unwrap(),
            &LowerOptions { devices, ..LowerOptions::for_context(4096) },
        )
        .unwrap();
        let weights = program.buffers.iter().filter(|b| b.kind == BufferKind::Weight && b.shape.len() == 2);
        weights.map(|buffer| buffer.bytes().unwrap()).sum::<usize>()
    };
    let one = bytes(1);
    assert_eq!([bytes(2), bytes(4), bytes(8)], [one; 3], "each matrix once");
}

#[test]
fn known_models_are_shared_by_2_4_and_8_devices_and_are_valid() {
    for (name, devices) in [("llama-3.2-1b", 2), ("llama-3.1-8b", 4), ("llama-3.1-70b", 8)] {
        let spec = Llama::named(name).unwrap().layers(2);
        let options = LowerOptions { devices, kv: DType::BF16, ..LowerOptions::for_context(4096) };
        let program = lower(&spec, &|_| DType::BF16, Target::named("h200").unwrap(), &options).unwrap();
        assert!(validate(&program).is_valid(), "{}", validate(&program));
        let again = Program::from_json(&program.to_json().unwrap()).unwrap();
        assert_eq!(again, program);
        let placed = schedule(program, 1024).unwrap();
        assert_eq!(placed.queues().len(), devices * placed.target.sms);
        let plan = Plan::new(&placed, DeviceOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((plan.devices as usize, plan.blocks as usize), (devices, placed.target.sms));
        let (prepacked, one): (Vec<u64>, _) =
            ((0..devices).map(|device| plan.packed_of(device)).collect(), plan.packed_bytes);
        assert!(prepacked.iter().all(|&prepacked| prepacked == one), "{name}: each device has as much: {prepacked:?}");
        let proposing = Plan::new(&placed, DeviceOptions { propose: true, ..DeviceOptions::default() });
        assert_eq!(proposing.unwrap_err(), Unsupported::Devices { devices });
    }
}

/// A program of two devices, and what is wrong with it after a change.
fn wrong(change: impl FnOnce(&mut Program)) -> Vec<String> {
    let mut program = schedule(program(&spec("llama", 2, [2, 1], 1), 2, 2), 32).unwrap().into_program();
    change(&mut program);
    validate(&program).errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_task_reaches_the_memory_of_its_own_device() {
    assert!(wrong(|_| ()).is_empty());
    let named = |p: &Program, name: &str| p.buffer_named(name).expect(name).id.index();
    let moved = wrong(|p| {
        let q = named(p, "q.dev1");
        p.buffers[q].device = Some(DeviceId(0));
    });
    let first = |what: &str| moved.iter().find(|text| text.contains(what)).cloned().unwrap_or_default();
    insta::assert_snapshot!([first("the read"), first("the write")].join("\n"), @r#"
task t18 `layers.0.attention.dev1[0]`: the read of b39 on dev0 by a task on dev1; read what its own device has, and let a task there send it
task t16 `layers.0.qkv.h0.dev1[0]`: the write of b39 on dev0 by a task on dev1; store with an op that sends
"#);
}

/// A device that does not wait for all parts, or sends into slots that are read, is found.
#[test]
fn a_sum_waits_for_the_parts_of_all_devices() {
    let sums: Vec<usize> = {
        let program = program(&spec("llama", 2, [2, 1], 1), 2, 2);
        let sum = |label: &str| label.contains(".sum");
        (0..program.tasks.len()).filter(|&task| sum(&program.tasks[task].label)).collect()
    };
    assert!(!sums.is_empty());
    for &task in &sums {
        // Queues may order what a wait does, where one SM computes a part and sums it.
        let found = wrong(|p| {
            p.queues = None;
            p.tasks[task].waits.clear();
        });
        assert!(!found.is_empty(), "task {task} waits for nothing");
        let found = wrong(|p| {
            p.queues = None;
            p.tasks[task].waits[0].threshold -= 1;
        });
        assert!(!found.is_empty(), "task {task} waits for all but one part");
    }
}

#[test]
fn what_devices_cannot_share_is_named() {
    let spec = spec("llama", 2, [2, 1], 1);
    let refused = |devices| {
        let options = LowerOptions { devices, ..LowerOptions::for_context(32) };
        lower(&spec, &|_| DType::BF16, Target::host(1), &options).unwrap_err()
    };
    assert!(matches!(refused(3), LowerError::Share { name: "heads", found: 2, devices: 3 }));
    insta::assert_snapshot!(refused(9), @"option `devices` is 9, it must be from 1 to 8");
}
