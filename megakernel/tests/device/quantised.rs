//! Quantised weights on a device: the reference machine's logits, from the same codes.

use half::bf16;
use tilewright_codegen::trial::Draw;
use tilewright_graph::models::Llama;
use tilewright_kernels::quant::{Code, QuantMatrix, Zeros};
use tilewright_layout::DType;
use tilewright_megakernel::lower::LOGITS;
use tilewright_megakernel::program::Quantised;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, Plan};
use tilewright_megakernel::vm::resident::StageOrder;
use tilewright_megakernel::vm::{LaunchError, LoadError, Unsupported};
use tilewright_megakernel::weights::{RandomCodes, RandomWeights, SharedBytes, WeightTensor, Weights};

use std::sync::Arc;

use super::both::{Both, CONTEXT, lowered};
use super::lab::{device, least, normed, options, tiny};

/// The error bound of logits: operands in two parts of bf16, pools of bf16.
const MOST: f64 = 2e-2;

/// Random codes, some of them changed.
pub struct Changed<F> {
    pub weights: RandomCodes,
    pub change: F,
}

impl<F: Fn(&str, QuantMatrix) -> QuantMatrix> Weights for Changed<F> {
    fn tensor(&self, name: &str) -> Option<WeightTensor> {
        self.weights.tensor(name)
    }

    fn quantized(&self, name: &str) -> Option<Arc<QuantMatrix>> {
        self.weights.quantized(name).map(|matrix| Arc::new((self.change)(name, (*matrix).clone())))
    }
}

pub fn codes(spec: &Llama, code: Code, group: Option<usize>) -> RandomCodes {
    RandomCodes::new(spec, DType::BF16, 7, code, group).unwrap()
}

/// Codes of blocks with an `e4m3` each, as NVFP4 has them.
pub fn blocks(spec: &Llama) -> RandomCodes {
    let scale = DType::F8E4M3;
    let form = Quantised { code: Code::E2m1, group: Some(16), zeros: false, scale, ordered: false };
    RandomCodes::of_forms(spec, DType::BF16, 7, |name| name.ends_with("_proj.weight").then_some(form)).unwrap()
}

fn placed(spec: &Llama, rows: usize, weights: &dyn Weights) -> Placed {
    schedule(lowered(spec, rows, 1, 3).stored_as(weights), CONTEXT).unwrap()
}

/// Steps at growing positions agree with the reference machine.
fn agrees(spec: &Llama, rows: usize, weights: &dyn Weights, options: DeviceOptions) {
    let mut draw = Draw::new(rows as u64);
    let mut both = Both::of(placed(spec, rows, weights), weights, &mut draw, options);
    for position in [0, 17] {
        both.step(&vec![position; rows], MOST);
    }
}

/// A model whose rows take several stages, some of them padded.
fn wider() -> Llama {
    least().hidden(160).inner(416).vocab(120)
}

/// Adds a zero point for each group.
fn zeros(matrix: QuantMatrix) -> QuantMatrix {
    let mut parts = matrix.parts().clone();
    let low = parts.code.range().0 as usize;
    let high = parts.code.range().1 as usize;
    // Near the middle, so that activations keep their size.
    let middle = parts.code.middle() as usize;
    let zero = |at: usize| (middle + at % 5).clamp(low + 2, high) as i16 - 2;
    parts.zeros = Zeros::Each((0..parts.scales.len()).map(zero).collect());
    QuantMatrix::new(parts).unwrap()
}

#[test]
fn every_form_of_codes_gives_the_references_logits() {
    for (at, (code, group)) in [
        (Code::U4, Some(32)),
        (Code::U4, Some(128)),
        (Code::I4, None),
        (Code::U8, Some(64)),
        (Code::I8, None),
        (Code::E4m3, None),
        (Code::E4m3, Some(128)),
        (Code::E2m1, Some(32)),
        (Code::E2m1, None),
        (Code::E2m1, Some(16)),
        (Code::U4, Some(16)),
        (Code::U8, Some(48)),
    ]
    .into_iter()
    .enumerate()
    {
        let spec = if at % 2 == 0 { wider() } else { tiny() };
        agrees(&spec, 1 + at % 2, &codes(&spec, code, group), options());
        if matches!(code, Code::U4 | Code::U8) {
            let weights = Changed { weights: codes(&spec, code, group), change: |_: &str, matrix| zeros(matrix) };
            agrees(&spec, 1, &weights, options());
        }
    }
}

/// Shared memory, registers, reloaded; one MMA for the rows, and two.
#[test]
fn activations_take_every_way_to_codes() {
    let spec = wider();
    let weights = codes(&spec, Code::U4, Some(32));
    for (rows, activation_registers) in [(3, 128), (8, 128), (16, 128), (5, 0), (16, 0)] {
        agrees(&spec, rows, &weights, DeviceOptions { activation_registers, ..options() });
    }
    agrees(&spec, 16, &weights, options().with_thresholds(|limits| limits.paired_rows = 8));
    let e2m1 = codes(&spec, Code::E2m1, Some(32));
    for (rows, activation_registers) in [(4, 128), (9, 128), (16, 0)] {
        agrees(&spec, rows, &e2m1, DeviceOptions { activation_registers, ..options() });
    }
    let normed = normed(tiny());
    agrees(&normed, 2, &codes(&normed, Code::E4m3, None), options());
}

/// Groups that are halves of a step: copied, in registers, stage by stage; with zeros and in a
/// stream with larger groups.
#[test]
fn groups_of_half_a_step_meet_every_way_of_activations() {
    let spec = wider();
    let nvfp4 = codes(&spec, Code::E2m1, Some(16));
    for (rows, activation_registers) in [(2, 128), (3, 128), (8, 128), (16, 128), (4, 0), (16, 0)] {
        agrees(&spec, rows, &nvfp4, DeviceOptions { activation_registers, ..options() });
    }
    let change = |name: &str, matrix: QuantMatrix| {
        let large = codes(&wider(), Code::U4, Some(64));
        match name.contains("k_proj") || name.contains("gate_proj") {
            true => large.quantized(name).map_or(matrix, |matrix| (*matrix).clone()),
            false => zeros(matrix),
        }
    };
    for (rows, activation_registers) in [(1, 128), (4, 128), (9, 128), (5, 0)] {
        let weights = Changed { weights: codes(&spec, Code::U4, Some(16)), change };
        agrees(&spec, rows, &weights, DeviceOptions { activation_registers, ..options() });
    }
}

/// Blocks: copied, in registers, stage by stage, of rows that end within a step and a block; in a
/// stream with groups of others.
#[test]
fn blocks_of_codes_meet_every_way_of_activations() {
    let spec = wider();
    assert_eq!(
        Quantised::of(&blocks(&spec).quantized("model.layers.0.mlp.up_proj.weight").unwrap()).scale,
        DType::F8E4M3
    );
    for (rows, activation_registers) in [(1, 128), (2, 128), (3, 128), (8, 128), (16, 128), (4, 0), (16, 0)] {
        agrees(&spec, rows, &blocks(&spec), DeviceOptions { activation_registers, ..options() });
    }
    let odd = wider().hidden(88);
    agrees(&odd, 1, &blocks(&odd), options());
    let change = |name: &str, matrix: QuantMatrix| {
        let large = codes(&wider(), Code::E2m1, Some(32));
        match name.contains("k_proj") || name.contains("gate_proj") {
            true => large.quantized(name).map_or(matrix, |matrix| (*matrix).clone()),
            false => matrix,
        }
    };
    for rows in [1, 4] {
        agrees(&spec, rows, &Changed { weights: blocks(&spec), change }, options());
    }
}

/// A table of codes that embeds tokens, and is the head too.
struct Tied {
    codes: RandomCodes,
    table: Arc<QuantMatrix>,
}

impl Weights for Tied {
    fn tensor(&self, name: &str) -> Option<WeightTensor> {
        self.codes.tensor(name)
    }

    fn quantized(&self, name: &str) -> Option<Arc<QuantMatrix>> {
        if name == "model.embed_tokens.weight" { Some(self.table.clone()) } else { self.codes.quantized(name) }
    }
}

/// A tied embedding of random codes, as large as the table.
fn tied(spec: &Llama, code: Code, group: Option<usize>) -> Tied {
    let shape = spec.clone().inner(spec.decoder.sizes.vocab as usize);
    let table = codes(&shape, code, group).quantized("model.layers.0.mlp.up_proj.weight").unwrap();
    Tied { codes: codes(spec, code, group), table }
}

/// Rows of codes are embedded, from stages in order and interleaved; the same codes are the head.
#[test]
fn tables_of_codes_are_embedded_and_are_heads() {
    let spec = wider();
    for (rows, activation_registers, code, group) in [
        (1, 128, Code::U4, Some(32)),
        (2, 128, Code::E2m1, Some(16)),
        (4, 128, Code::I8, None),
        (16, 128, Code::U4, Some(32)),
        (16, 16, Code::E4m3, None),
    ] {
        let options = DeviceOptions { activation_registers, ..options() };
        agrees(&spec, rows, &tied(&spec, code, group), options);
        agrees(&spec, rows, &tied(&spec, code, group), DeviceOptions { stage_order: StageOrder::InOrder, ..options });
    }
    let shape = spec.clone().inner(spec.decoder.sizes.vocab as usize);
    let table = blocks(&shape).quantized("model.layers.0.mlp.up_proj.weight").unwrap();
    agrees(&spec, 2, &Tied { codes: blocks(&spec), table }, options());
    let mut ordered = tied(&spec, Code::U4, Some(32));
    let mut parts = ordered.table.parts().clone();
    parts.order = Some((0..parts.k as u32).rev().collect());
    ordered.table = Arc::new(QuantMatrix::new(parts).unwrap());
    let error = Plan::new(&placed(&spec, 1, &ordered), options()).unwrap_err();
    let Unsupported::Task { source, .. } = error else { panic!("{error}") };
    insta::assert_snapshot!(source, @"weight `model.embed_tokens.weight` has an act-order, which a device does not run; run it on `cpu`");
}

/// Rows that end within a step cannot have groups of half a step.
#[test]
fn half_steps_are_of_whole_steps() {
    let spec = wider().hidden(80);
    let error = Plan::new(&placed(&spec, 1, &codes(&spec, Code::E2m1, Some(16))), options()).unwrap_err();
    let Unsupported::Task { source, .. } = error else { panic!("{error}") };
    insta::assert_snapshot!(source, @"rows of 80 weights in groups of 16 cannot be streamed: rows that are multiples of 32 are supported");
}

/// Weights whose norms make activations that no f16 holds.
struct Loud(RandomCodes);

impl Weights for Loud {
    fn tensor(&self, name: &str) -> Option<WeightTensor> {
        let tensor = self.0.tensor(name)?;
        if !name.ends_with("1.post_attention_layernorm.weight") {
            return Some(tensor);
        }
        let loud = vec![bf16::from_f32(1e8); tensor.shape()[0]];
        let bytes = SharedBytes::aligned_copy(bytemuck::cast_slice(&loud));
        Some(WeightTensor::new(DType::BF16, tensor.shape().to_vec(), bytes).unwrap())
    }

    fn quantized(&self, name: &str) -> Option<Arc<QuantMatrix>> {
        self.0.quantized(name)
    }
}

/// The check is made by the code that converts to f16: writers, or readers in registers, stage by
/// stage.
#[test]
fn activations_that_no_f16_holds_are_an_error() {
    for (hidden, rows, activation_registers, code) in [
        (160, 5, 128, Code::U4),
        (160, 16, 0, Code::U4),
        (80, 5, 128, Code::U4),
        (80, 16, 0, Code::U4),
        (160, 4, 128, Code::U4),
        (160, 1, 128, Code::E4m3),
        (160, 4, 128, Code::E4m3),
    ] {
        let spec = wider().hidden(hidden).layers(2);
        let program = placed(&spec, rows, &codes(&spec, code, Some(32)));
        let device = device(3, program.target.sms);
        let options = DeviceOptions { activation_registers, ..options() };
        let loud = Loud(codes(&spec, code, Some(32)));
        let mut machine = DeviceMachine::load(program, &loud, &device, options, &mut |_, _| ()).unwrap();
        let pages: Vec<i32> = (0..(rows * CONTEXT / 16) as i32).collect();
        let tokens = vec![3; rows];
        let positions = vec![0; rows];
        let mut step = || machine.step(&StepCells { tokens: &tokens, positions: &positions, page_table: &pages });
        for _ in 0..2 {
            match step() {
                Ok(()) => assert_eq!((rows, code), (4, Code::U4), "of {hidden}"),
                Err(LaunchError::F16Overflow { label, .. }) => {
                    assert!((rows > 4 || code == Code::E4m3) && label.contains("1."), "{label}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// The bits of the logits of the first two positions, of a device of that seed.
fn two_steps(program: Placed, rows: usize, weights: &dyn Weights, options: DeviceOptions, seed: u64) -> Vec<u32> {
    let device = device(seed, program.target.sms);
    let mut machine = DeviceMachine::load(program, weights, &device, options, &mut |_, _| ()).unwrap();
    let pages: Vec<i32> = (0..(rows * CONTEXT / 16) as i32).collect();
    let tokens = &[3, 5, 7, 9][..rows];
    let mut bits = |position: i32| {
        let positions = vec![position; rows];
        machine.step(&StepCells { tokens, positions: &positions, page_table: &pages }).unwrap();
        machine.f32(LOGITS).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    [bits(0), bits(1)].concat()
}

/// Codes and factors that are prefetched give the same bits, and so do prefetched words.
#[test]
fn no_bit_depends_on_prefetched_codes() {
    let spec = wider().inner(832);
    for (code, group, change) in [
        (Code::U4, Some(128), false),
        (Code::U4, Some(128), true),
        (Code::U8, Some(128), true),
        (Code::E4m3, None, false),
        (Code::E2m1, None, false),
    ] {
        let weights = Changed {
            weights: codes(&spec, code, group),
            change: |_: &str, matrix| if change { zeros(matrix) } else { matrix },
        };
        let with = |prefetch: u32| {
            // Strips that come two a stage are not prefetched.
            let options = DeviceOptions { warps: 2, stage_bytes: 4096, ..options() }.with_thresholds(|limits| {
                limits.prefetch_code_stages = prefetch;
                limits.paired_rows = 0;
            });
            let program = placed(&spec, 2, &weights);
            let plan = Plan::new(&program, options).unwrap();
            let prefetching = plan.opcodes.iter().filter(|opcode| opcode.prefetch_form().is_some()).count();
            assert!(prefetching >= 5, "{prefetching} functions prefetch stages");
            two_steps(program, 2, &weights, options, u64::from(prefetch))
        };
        let plain = with(0);
        assert!(with(1) == plain && with(2) == plain, "{code} in {group:?}");
    }
}

/// Strips that come two a stage give the same bits as one a stage, in every order of a simulated
/// device: of an odd number of strips, too.
#[test]
fn no_bit_depends_on_pairs_of_strips() {
    let spec = wider().vocab(136);
    for (rows, code, group) in [
        (1, Code::U4, Some(128)),
        (2, Code::U4, Some(32)),
        (1, Code::U8, Some(64)),
        (2, Code::E4m3, None),
        (4, Code::U4, Some(128)),
        (3, Code::U8, None),
    ] {
        let weights = codes(&spec, code, group);
        let with = |stage_bytes: u32, seed: u64| {
            let options = DeviceOptions { warps: 2, stage_bytes, ..options() };
            let program = placed(&spec, rows, &weights);
            let plan = Plan::new(&program, options).unwrap();
            let paired = plan.opcodes.iter().filter(|opcode| opcode.takes_pairs().is_some()).count();
            (paired, two_steps(program, rows, &weights, options, seed))
        };
        // Strips of hidden size have 1 KB of 4 bits and 2 KB of 8. With stages of half of that,
        // more of them would be multiplied alone.
        let single = if code == Code::U4 { 1024 } else { 2048 };
        let (few, alone) = with(single, 1);
        for seed in 0..4 {
            let (paired, bits) = with(2 * single, seed);
            assert!(paired > few, "{paired} functions take pairs of {code}, {few} of smaller stages");
            assert!(bits == alone, "{code}, {rows} rows, seed {seed}");
        }
    }
}

/// Matrices that share a stream may differ in groups, zeros and scales.
#[test]
fn forms_of_a_stream_are_joined() {
    let spec = wider();
    let change = |name: &str, matrix: QuantMatrix| match name {
        name if name.contains("v_proj") || name.contains("up_proj") => zeros(matrix),
        name if name.contains("k_proj") => {
            let mut parts = matrix.parts().clone();
            parts.scales.iter_mut().for_each(|scale| *scale *= 1.0 + f32::EPSILON);
            QuantMatrix::new(parts).unwrap()
        }
        _ => matrix,
    };
    agrees(&spec, 1, &Changed { weights: codes(&spec, Code::U4, Some(64)), change }, options());
}

#[test]
fn a_weight_is_a_fourth_of_its_bytes() {
    let spec = Llama::named("llama-3.1-8b").unwrap().layers(1).vocab(32);
    // They have no codes, and the plan asks for nothing else.
    let none = RandomWeights::new(&tiny(), DType::BF16, 7).unwrap();
    let bytes = |weights: &dyn Weights| {
        let placed = schedule(lowered(&spec, 1, 1, 132).stored_as(weights), CONTEXT).unwrap();
        let plan = Plan::new(&placed, DeviceOptions::default()).unwrap();
        (plan.packed_bytes, plan.slot_bytes, plan.options.thresholds.stages)
    };
    let (dense, ring, most) = bytes(&none);
    assert_eq!(ring, 16384);
    let (packed, ring, stages) = bytes(&codes(&spec, Code::U4, Some(128)));
    // 4 bits, two bytes for 128 weights, and a fifteenth stage round of down.
    let ratio = packed as f64 / dense as f64;
    assert!((0.2578..0.264).contains(&ratio), "{ratio}");
    assert_eq!((ring, stages + 1 >= most), (16384 + 512, true), "{stages} stages, {most} of bf16");
}

#[test]
fn what_a_device_does_not_run_is_named() {
    let spec = tiny();
    let refused = |weights: &dyn Weights| {
        let error = Plan::new(&placed(&spec, 1, weights), options()).unwrap_err();
        let Unsupported::Task { source, .. } = error else { panic!("{error}") };
        source.to_string()
    };
    let one = |which: &'static str, change: fn(QuantMatrix) -> QuantMatrix| Changed {
        weights: codes(&spec, Code::U8, Some(32)),
        change: move |name: &str, matrix| if name.contains(which) { change(matrix) } else { matrix },
    };
    let other = one("1.mlp.up_proj", |matrix| {
        let mut parts = matrix.parts().clone();
        (parts.code, parts.zeros) = (Code::E4m3, Zeros::Same(0));
        parts.codes.iter_mut().for_each(|code| *code &= 0x77);
        QuantMatrix::new(parts).unwrap()
    });
    insta::assert_snapshot!(refused(&other), @"weights `model.layers.1.mlp.gate_proj.weight` and `model.layers.1.mlp.up_proj.weight` are streamed together and are quantised in different ways; run them on `cpu`");
    let groups = codes(&spec, Code::U8, Some(24));
    insta::assert_snapshot!(refused(&groups), @"weight `model.layers.0.self_attn.q_proj.weight` has groups of 24, no multiple of 16, which a device does not run; run it on `cpu`");
}

/// Code is generated for the form that the program says; weights in another are refused, not
/// misread.
#[test]
fn weights_have_the_form_that_the_program_says() {
    let spec = least();
    let program = placed(&spec, 1, &codes(&spec, Code::U4, Some(32)));
    let sms = program.target.sms;
    let weights = codes(&spec, Code::U8, Some(32));
    let error =
        DeviceMachine::load(program, &weights, &device(1, sms), options(), &mut |_, _| ()).map(drop).unwrap_err();
    assert!(matches!(error, LoadError::Bind(_)));
    insta::assert_snapshot!(error, @"the weights do not fit the program: weight buffer `model.layers.0.self_attn.q_proj.weight` wants quantised weights in a form that the weights do not have it in");
}
