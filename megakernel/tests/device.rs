//! The device machine on the simulator: the same logits as the reference machine, under every seed.

use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::sim::Checks;
use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, NEXT_TOKEN, lower};
use tilewright_megakernel::model::{Family, ModelSpec, Rope};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions};
use tilewright_megakernel::vm::reference::{KvState, Machine, StepCells};
use tilewright_megakernel::weights::RandomWeights;

fn tiny() -> ModelSpec {
    ModelSpec {
        family: Family::Llama,
        hidden: 64,
        layers: 2,
        heads: 6,
        kv_heads: 2,
        head_dim: 16,
        intermediate: 96,
        vocab: 200,
        max_positions: 256,
        norm_eps: 1e-5,
        rope: Rope { inv_freq: (0..8).map(|i| 10000f32.powf(-(i as f32) / 8.0)).collect(), scale: 1.0 },
        tied_embeddings: true,
        qkv_bias: false,
        o_bias: false,
        mlp_bias: false,
        qk_norm: false,
    }
}

fn placed(spec: &ModelSpec, rows: usize, sms: usize) -> Placed {
    let target = Target { sms, ..Target::named("h100").unwrap() };
    let options = LowerOptions { rows, kv: DType::BF16, page_tokens: 16, ..LowerOptions::for_context(64) };
    schedule(lower(spec, &|_| DType::BF16, target, &options).unwrap(), 64).unwrap()
}

fn options() -> DeviceOptions {
    DeviceOptions { warps: 4, stage_bytes: 2048, stages: 4, sums_bytes: 4096, ..DeviceOptions::default() }
}

fn relative(found: &[f32], expected: &[f32]) -> f64 {
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(expected).map(|(a, b)| f64::from(a - b)));
    difference / norm(&mut expected.iter().map(|&x| f64::from(x)))
}

fn agree(spec: &ModelSpec, rows: usize, sms: usize, seed: u64, steps: usize) {
    let weights = RandomWeights::new(spec, DType::BF16, 7).unwrap();
    let program = placed(spec, rows, sms);
    let mut reference = Machine::new(program.clone(), &weights, 1).unwrap();
    let mut kv = KvState::new(reference.program()).unwrap();
    let simulator = Simulator::new(Options { seed, sms: sms as u32, checks: Checks::On, ..Options::default() });
    let mut machine = DeviceMachine::load(program, &weights, &simulator.device(), options(), &mut |_, _| ()).unwrap();
    let page_table: Vec<i32> = (0..rows as i32 * 4).collect();
    for step in 0..steps {
        let tokens: Vec<i32> = (0..rows).map(|row| ((row * 31 + step * 17) % spec.vocab) as i32).collect();
        let positions: Vec<i32> = (0..rows).map(|row| (step + row) as i32 - row as i32).collect();
        let cells = StepCells { tokens: &tokens, positions: &positions, page_table: &page_table };
        let start = std::time::Instant::now();
        machine.step(&cells).unwrap_or_else(|error| panic!("{}", chain(&error)));
        println!("step {step}: {:?}", start.elapsed());
        let output = reference.step(&mut kv, &cells).unwrap();
        let (found, expected) = (machine.f32(LOGITS).unwrap(), output.f32(LOGITS).unwrap());
        let error = relative(&found, &expected);
        assert!(error < 1e-3, "step {step}: {error}");
        println!("error {error}");
        assert_eq!(machine.i32(NEXT_TOKEN).unwrap(), output.i32(NEXT_TOKEN).unwrap(), "step {step}");
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

#[test]
fn one_row_agrees_with_the_reference() {
    agree(&tiny(), 1, 3, 0, 3);
}
