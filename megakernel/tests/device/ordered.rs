//! Weights with an act-order on a device: codes lie in an order of their own, and activations are
//! brought in the same.

use std::sync::Arc;

use proptest::prelude::*;
use tilewright_codegen::trial::Draw;
use tilewright_graph::models::Llama;
use tilewright_kernels::quant::{Code, QuantMatrix};
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, Opcode, Plan};
use tilewright_megakernel::vm::device::{InputCode, LinearTile, QkvTile};
use tilewright_megakernel::vm::{LoadError, Unsupported};
use tilewright_megakernel::weights::{RandomCodes, WeightTensor, Weights};

use tilewright_codegen::target::Target;

use super::both::{Both, CONTEXT};
use super::lab::{device, least, options, tiny};

/// The error bound of logits: operands in two parts of bf16, pools of bf16.
const MOST: f64 = 2e-2;

/// Random codes whose places are shuffled: of some matrices, by a seed.
struct Shuffled<'a> {
    codes: RandomCodes,
    seed: &'a dyn Fn(&str) -> Option<u64>,
}

impl Weights for Shuffled<'_> {
    fn tensor(&self, name: &str) -> Option<WeightTensor> {
        self.codes.tensor(name)
    }

    fn quantized(&self, name: &str) -> Option<Arc<QuantMatrix>> {
        let matrix = self.codes.quantized(name)?;
        let Some(seed) = (self.seed)(name) else { return Some(matrix) };
        let mut parts = matrix.parts().clone();
        let mut order: Vec<u32> = (0..parts.k as u32).collect();
        let mut draw = Draw::new(seed);
        (1..order.len()).for_each(|at| order.swap(at, draw.between(0..=at as u32) as usize));
        parts.order = Some(order);
        Some(Arc::new(QuantMatrix::new(parts).unwrap()))
    }
}

/// Matrices that are streamed together share their order.
fn together(name: &str) -> Option<u64> {
    let layer = name.bytes().filter(u8::is_ascii_digit).fold(0, |all, digit| 10 * all + u64::from(digit - b'0'));
    let which = ["q_proj|k_proj|v_proj", "o_proj", "gate_proj|up_proj", "down_proj"];
    let stream = which.iter().position(|names| names.split('|').any(|part| name.contains(part)))?;
    Some(4 * layer + stream as u64)
}

fn shuffled<'a>(spec: &Llama, code: Code, group: Option<usize>, seed: &'a dyn Fn(&str) -> Option<u64>) -> Shuffled<'a> {
    Shuffled { codes: RandomCodes::new(spec, DType::BF16, 7, code, group).unwrap(), seed }
}

fn placed(spec: &Llama, rows: usize, activation: DType, weights: &dyn Weights) -> Placed {
    let target = Target { sms: 3, ..Target::named("h100").unwrap() };
    let base = LowerOptions::for_context(CONTEXT);
    let lowering = LowerOptions { rows, kv: DType::BF16, page_tokens: 16, splits: Some(1), activation, ..base };
    let program = lower(spec, &|_| DType::BF16, target, &lowering).unwrap().stored_as(weights);
    schedule(program, CONTEXT).unwrap()
}

/// Steps at growing positions agree with the reference machine.
fn agrees(spec: &Llama, rows: usize, activation: DType, weights: &dyn Weights, options: DeviceOptions) {
    let mut draw = Draw::new(rows as u64);
    let mut both = Both::of(placed(spec, rows, activation, weights), weights, &mut draw, options);
    for position in [0, 17] {
        both.step(&vec![position; rows], MOST);
    }
}

/// A model whose rows take several stages, some of them padded.
fn wider() -> Llama {
    least().hidden(160).inner(416).vocab(120)
}

/// Copied as packets and without, in registers, stage by stage; activations of both types.
#[test]
fn activations_come_in_the_order_of_codes() {
    let plain = DeviceOptions { packets: false, ..options() };
    let streamed = DeviceOptions { activation_registers: 0, ..options() };
    for (rows, activation, code, options) in [
        (1, DType::F32, Code::U4, options()),
        (2, DType::BF16, Code::U4, options()),
        (1, DType::BF16, Code::E4m3, plain),
        (3, DType::F32, Code::U4, options()),
        (4, DType::BF16, Code::U8, streamed),
        (8, DType::BF16, Code::U4, options()),
        (16, DType::F32, Code::U4, options()),
        (16, DType::BF16, Code::E4m3, streamed),
    ] {
        let spec = wider();
        agrees(&spec, rows, activation, &shuffled(&spec, code, Some(32), &together), options);
        // Groups of half a step have an order of their own, in which the other is.
        if rows % 2 == 0 {
            agrees(&spec, rows, activation, &shuffled(&spec, Code::E2m1, Some(16), &together), options);
        }
    }
}

/// One and two rows are copied by the table; with more rows of whole steps, the writers store split
/// activations by it.
#[test]
fn from_three_rows_on_writers_store_terms_in_the_order() {
    let spec = wider();
    let weights = shuffled(&spec, Code::U4, Some(32), &together);
    let inputs = |rows| {
        let plan = Plan::new(&placed(&spec, rows, DType::F32, &weights), options()).unwrap();
        let linear = |opcode: &Opcode| opcode.get::<LinearTile>().map(|linear| linear.tile);
        let of = |opcode: &Opcode| linear(opcode).or_else(|| opcode.get::<QkvTile>().map(|qkv| qkv.tile));
        let tiles = plan.opcodes.iter().filter_map(of).filter(|tile| tile.product.strip.codes().is_some());
        tiles.map(|tile| tile.input).collect::<Vec<_>>()
    };
    for rows in [1, 2, 3, 8, 16] {
        let inputs = inputs(rows);
        assert!(inputs.len() >= 4, "{rows} rows: {inputs:?}");
        let by_writers = |input: &InputCode| matches!(input, InputCode::Scaled { form, .. } if form.is_ordered());
        let by_readers = |input: &InputCode| matches!(input, InputCode::Ordered { .. });
        assert!(inputs.iter().all(if rows < 3 { by_readers } else { by_writers }), "{rows} rows: {inputs:?}");
    }
}

/// A layer's matrix may have an act-order and another layer's none.
#[test]
fn every_stream_has_its_own_order() {
    let spec = wider().layers(2);
    for which in ["0.self_attn.o_proj", "1.mlp.down_proj"] {
        for rows in [1, 5] {
            let seed = |name: &str| together(name).filter(|_| name.contains(which));
            agrees(&spec, rows, DType::F32, &shuffled(&spec, Code::I4, Some(64), &seed), options());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    /// Whatever the shape, the codes and the way of the activations.
    #[test]
    fn random_shapes_agree(
        hidden in 3usize..40, intermediate in 3usize..80, rows in 1usize..=9, group in 1usize..5, seed: u64, which in 0usize..3,
        held in any::<bool>(),
    ) {
        let spec = least().hidden(8 * hidden).inner(8 * intermediate).vocab(120);
        let code = [Code::U4, Code::I8, Code::E4m3][which];
        let seed = |name: &str| together(name).map(|stream| stream ^ seed);
        let weights = shuffled(&spec, code, Some(32 * group), &seed);
        let options = DeviceOptions { activation_registers: if held { 128 } else { 0 }, ..options() };
        agrees(&spec, rows, DType::F32, &weights, options);
    }
}

/// A table that says nothing would be seen: orders change logits.
#[test]
fn an_order_is_not_idle() {
    let spec = least();
    let logits = |seed: &dyn Fn(&str) -> Option<u64>| {
        let weights = shuffled(&spec, Code::U4, Some(32), seed);
        let program = placed(&spec, 1, DType::F32, &weights);
        let device = device(1, program.target.sms);
        let mut machine = DeviceMachine::load(program, &weights, &device, options(), &mut |_, _| ()).unwrap();
        let pages: Vec<i32> = (0..(CONTEXT / 16) as i32).collect();
        let cells = tilewright_megakernel::vm::StepCells { tokens: &[3], positions: &[0], page_table: &pages };
        machine.step(&cells).unwrap();
        machine.f32(tilewright_megakernel::lower::LOGITS).unwrap()
    };
    let plain = logits(&|_| None);
    for which in ["v_proj", "o_proj", "gate_proj|up_proj", "down_proj"] {
        let seed = |name: &str| {
            // What is streamed together is shuffled together.
            let mine = which.split('|').any(|part| name.contains(part));
            together(name).filter(|_| mine || which == "v_proj" && together(name) == Some(0))
        };
        assert!(super::lab::relative(&logits(&seed), &plain) > MOST, "{which}");
    }
}

#[test]
fn what_has_no_one_order_is_named() {
    let spec = tiny();
    let one = |name: &str| together(name).filter(|_| name.contains("1.mlp.up_proj"));
    let weights = shuffled(&spec, Code::U4, Some(32), &one);
    let error = Plan::new(&placed(&spec, 1, DType::F32, &weights), options()).unwrap_err();
    let Unsupported::Task { source, .. } = error else { panic!("{error}") };
    insta::assert_snapshot!(source, @"weights `model.layers.1.mlp.gate_proj.weight` and `model.layers.1.mlp.up_proj.weight` are streamed together and are quantised in different ways; run them on `cpu`");
    let other = |name: &str| together(name).map(|seed| seed + u64::from(name.contains("1.self_attn.v_proj")) * 100);
    let weights = shuffled(&spec, Code::U4, Some(32), &other);
    let error = |rows| {
        let program = placed(&spec, rows, DType::F32, &weights);
        let device = device(1, program.target.sms);
        DeviceMachine::load(program, &weights, &device, options(), &mut |_, _| ()).map(drop).unwrap_err()
    };
    assert!(matches!(error(1), LoadError::Bind(_)));
    insta::assert_snapshot!(error(1), @"the weights do not fit the program: weights `model.layers.1.self_attn.q_proj.weight` and `model.layers.1.self_attn.v_proj.weight` are streamed together and have different act-orders; a device brings their activations once, so run them on `cpu`");
    assert_eq!(error(3).to_string(), error(1).to_string(), "on every path");
}
