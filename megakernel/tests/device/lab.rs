//! Small models, their programs, and machines on a simulated device.

use std::error::Error;

use tilewright_codegen::device::Device;
use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::sim::Checks;
use tilewright_codegen::target::Target;
use tilewright_graph::models;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower};
use tilewright_megakernel::model::{Architecture, ModelSpec};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::{BlockRecord, DeviceMachine, DeviceOptions, Plan, TaskRecord};
use tilewright_megakernel::weights::RandomWeights;

/// Pages of a sequence.
pub const PAGES: usize = 4;

/// Two layers, GQA groups of three.
pub fn tiny() -> Llama {
    Llama::small()
}

/// The least that has every level: one layer, two heads.
pub fn least() -> Llama {
    tiny().hidden(32).layers(1).inner(32).vocab(40).heads(2, 1)
}

/// A model with norms of q and k and biases, whose rotation is a level of its own.
pub fn normed(spec: Llama) -> Llama {
    Llama { qk_norm: true, qkv_bias: true, ..spec }
}

/// Two layers of Gemma 2: caps that bite, and a window of 5 tokens on the first.
pub fn gemma2() -> ModelSpec {
    let config = serde_json::json!({
        "model_type": "gemma2", "vocab_size": 200, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
        "query_pre_attn_scalar": 4, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0, "sliding_window": 5,
    });
    ModelSpec::new(models::graph(&config).unwrap(), 256).unwrap()
}

pub fn placed(spec: &impl Architecture, rows: usize, sms: usize) -> Placed {
    placed_as(spec, rows, sms, LowerOptions::for_context(64))
}

/// A placed program with `splits` splits of attention.
pub fn splitting(spec: &impl Architecture, rows: usize, sms: usize, splits: usize) -> Placed {
    placed_as(spec, rows, sms, LowerOptions { splits: Some(splits), ..LowerOptions::for_context(64) })
}

/// A placed program that samples next tokens as requests say.
pub fn sampling(spec: &impl Architecture, rows: usize, sms: usize) -> Placed {
    placed_as(spec, rows, sms, LowerOptions { sampling: true, ..LowerOptions::for_context(64) })
}

fn placed_as(spec: &impl Architecture, rows: usize, sms: usize, options: LowerOptions) -> Placed {
    let target = Target { sms, ..Target::named("h100").unwrap() };
    let pages = Some(PAGES * 16);
    let options = LowerOptions { rows, kv: DType::BF16, page_tokens: 16, pages, ..options };
    schedule(lower(spec, &|_| DType::BF16, target, &options).unwrap(), 64).unwrap()
}

pub fn options() -> DeviceOptions {
    DeviceOptions { stage_bytes: 2048, split_tokens: 16, ..DeviceOptions::for_simulator() }
        .with_thresholds(|limits| limits.single_tokens = 0)
}

/// A simulator with this seed, or the GPU that `TILEWRIGHT_DEVICE` names: then the blocks' order is
/// the GPU's own.
pub fn device(seed: u64, sms: usize) -> Device {
    if let Ok(name) = std::env::var("TILEWRIGHT_DEVICE") {
        return tilewright_codegen::device::open(&name).expect("the device that is asked for");
    }
    Simulator::new(Options { seed, sms: sms as u32, checks: Checks::On, ..Options::default() }).device()
}

pub fn weights(spec: &impl Architecture) -> RandomWeights {
    RandomWeights::new(spec, DType::BF16, 7).unwrap()
}

pub fn machine(spec: &impl Architecture, rows: usize, sms: usize, seed: u64, options: DeviceOptions) -> DeviceMachine {
    load(placed(spec, rows, sms), spec, seed, options)
}

pub fn load(program: Placed, spec: &impl Architecture, seed: u64, options: DeviceOptions) -> DeviceMachine {
    let device = device(seed, program.target.sms);
    DeviceMachine::load(program, &weights(spec), &device, options, &mut |_, _| ()).unwrap()
}

/// Cells of a step.
pub struct Cells {
    pub tokens: Vec<i32>,
    pub positions: Vec<i32>,
    pub page_table: Vec<i32>,
}

impl Cells {
    /// Every row a sequence of its own, at this position.
    pub fn at(rows: usize, position: i32) -> Cells {
        Cells {
            tokens: (0..rows as i32).map(|row| (row * 31 + position % 7) % 40).collect(),
            positions: vec![position; rows],
            page_table: (0..(rows * PAGES) as i32).collect(),
        }
    }

    pub fn view(&self) -> StepCells<'_> {
        StepCells { tokens: &self.tokens, positions: &self.positions, page_table: &self.page_table }
    }
}

/// All records of a plan's tables.
pub fn records(plan: &Plan) -> Vec<TaskRecord> {
    let each = plan.record_bytes as usize;
    let of_block = |block: &BlockRecord| {
        let record = |index: usize| {
            let mut record = TaskRecord::default();
            let bytes = &plan.tables[plan.record_place(block, index)..][..each];
            bytemuck::bytes_of_mut(&mut record)[..each].copy_from_slice(bytes);
            record
        };
        (0..block.tasks as usize).map(record).collect::<Vec<_>>()
    };
    plan.directory.iter().flat_map(of_block).collect()
}

pub fn relative(found: &[f32], expected: &[f32]) -> f64 {
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(expected).map(|(a, b)| f64::from(a - b)));
    difference / norm(&mut expected.iter().map(|&x| f64::from(x)))
}

/// The bits of all logits of three steps.
pub fn bits(machine: &mut DeviceMachine, rows: usize) -> Vec<u32> {
    let step = |position| {
        machine.step(&Cells::at(rows, position).view()).unwrap();
        let row = |row| machine.f32_row(LOGITS, row).unwrap();
        (0..rows).flat_map(row).map(f32::to_bits).collect::<Vec<_>>()
    };
    (0..3).flat_map(step).collect()
}

/// An error with its causes, one line. A cause that its parent's text ends with is not repeated.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.ends_with(&cause) {
            text.push_str(&format!(": {cause}"));
        }
        source = error.source();
    }
    text
}
