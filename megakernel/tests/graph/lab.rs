//! Small models, machines on a simulated device, and the reference machine beside them.

use std::sync::Arc;

use half::bf16;
use tilewright_codegen::device::Device;
use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::target::Target;
use tilewright_graph::models;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, StepPlan, lower, plan};
use tilewright_megakernel::model::{Architecture, ModelSpec};
use tilewright_megakernel::program::Program;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::DeviceOptions;
use tilewright_megakernel::vm::graph::{GraphMachine, GraphTarget, GraphWeights};
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::vm::resident::{DeviceWeights, StageOrder};
use tilewright_megakernel::weights::{RandomWeights, Weights};

/// Tokens of a page.
pub const PAGE: usize = 16;
/// Pages of a sequence.
pub const PAGES: usize = 8;
/// Pages of a pool.
const POOL: usize = 24;

/// Two layers, GQA groups of three.
pub fn tiny(head_dim: usize) -> Llama {
    Llama::small().head_dim(head_dim).vocab(136)
}

/// A model with norms of q and k, biases, and an output projection of its own.
pub fn normed(spec: Llama) -> Llama {
    Llama { qkv_bias: true, o_bias: true, mlp_bias: true, qk_norm: true, ..spec.tied(false).layers(1) }
}

/// Two layers of Gemma 2: caps that bite, and a window of 20 tokens on the first.
pub fn gemma2(head_dim: usize) -> ModelSpec {
    gemma2_with(head_dim, &serde_json::json!({}))
}

/// Of its configuration some keys are changed.
pub fn gemma2_with(head_dim: usize, change: &serde_json::Value) -> ModelSpec {
    let mut config = serde_json::json!({
        "model_type": "gemma2", "vocab_size": 136, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": head_dim, "max_position_embeddings": 256,
        "query_pre_attn_scalar": 1024, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0, "sliding_window": 20,
    });
    for (key, value) in change.as_object().unwrap() {
        config[key] = value.clone();
    }
    ModelSpec::new(models::graph(&config).unwrap(), 256).unwrap()
}

/// A program of `rows` rows for a device of that many SMs.
pub fn program(spec: &impl Architecture, rows: usize, sms: usize) -> Program {
    program_with(spec, sms, &options(rows))
}

pub fn program_with(spec: &impl Architecture, sms: usize, options: &LowerOptions) -> Program {
    lower(spec, &|_| DType::BF16, Target { sms, ..h100() }, options).unwrap()
}

/// A step of `rows` rows.
pub fn planned(spec: &impl Architecture, rows: usize) -> StepPlan {
    planned_with(spec, &options(rows))
}

/// A step that samples its tokens.
pub fn sampled(spec: &impl Architecture, rows: usize) -> StepPlan {
    planned_with(spec, &LowerOptions { sampling: true, ..options(rows) })
}

pub fn planned_with(spec: &impl Architecture, options: &LowerOptions) -> StepPlan {
    plan(spec, &|_| DType::BF16, h100(), options).unwrap()
}

pub fn options(rows: usize) -> LowerOptions {
    LowerOptions {
        rows,
        page_tokens: PAGE,
        pages: Some(POOL),
        splits: Some(1),
        kv: DType::BF16,
        ..LowerOptions::for_context(PAGE * PAGES)
    }
}

fn h100() -> Target {
    Target::named("h100").unwrap()
}

/// The device that is planned for: an H100 of four SMs.
pub const TARGET: GraphTarget = GraphTarget { arch: Arch::Sm90a, multiprocessors: 4 };

/// A simulated GPU.
pub fn device(arch: Arch, seed: u64) -> Device {
    if let Ok(name) = std::env::var("TILEWRIGHT_DEVICE") {
        return tilewright_codegen::device::open(&name).expect("the device that is asked for");
    }
    Simulator::new(Options { arch, seed, sms: 4, ..Options::default() }).device()
}

pub fn random(spec: &impl Architecture) -> RandomWeights {
    RandomWeights::new(spec, DType::BF16, 7).unwrap()
}

pub fn weights(spec: &impl Architecture, arch: Arch, seed: u64) -> GraphWeights {
    GraphWeights::new(device(arch, seed), Arc::new(random(spec)))
}

pub fn machine(weights: &mut GraphWeights, spec: &impl Architecture, rows: usize) -> GraphMachine {
    weights.machine(planned(spec, rows), None, &mut |_, _| ()).unwrap()
}

/// Weights as a decode machine of one row streams them, in their order.
pub fn packed(spec: &impl Architecture, device: Device) -> DeviceWeights {
    packed_of(Arc::new(random(spec)), program(spec, 1, 3), device)
}

/// Packed weights of any source, which this program of one row reads.
pub fn packed_of(weights: Arc<dyn Weights + Send + Sync>, program: Program, device: Device) -> DeviceWeights {
    let options =
        DeviceOptions { stage_bytes: 2048, stage_order: StageOrder::InOrder, ..DeviceOptions::for_simulator() };
    let mut packed = DeviceWeights::new(device, weights);
    let placed = schedule(program, 64).unwrap();
    let mut sent = 0;
    packed.send(&placed, options, &mut |done, _| sent = done).unwrap();
    assert_eq!(sent, packed.bytes());
    // They are not sent again, neither alone nor with a machine.
    packed.send(&placed, options, &mut |_, _| panic!("the weights are there")).unwrap();
    packed.machine(placed, None, options, &mut |_, _| panic!("the weights are there")).unwrap();
    packed
}

/// Rows of a step.
#[derive(Clone, Default)]
pub struct Rows {
    pub tokens: Vec<i32>,
    pub positions: Vec<i32>,
    pub tables: Vec<i32>,
}

impl Rows {
    /// Tokens of a sequence that has these pages, from a position on.
    pub fn add(&mut self, tokens: &[i32], first: usize, pages: &[i32; PAGES]) {
        for (at, &token) in tokens.iter().enumerate() {
            self.tokens.push(token);
            self.positions.push((first + at) as i32);
            self.tables.extend_from_slice(pages);
        }
    }

    /// Pads with idle rows; their step inputs are not read.
    pub fn idle(mut self, rows: usize) -> Rows {
        self.tokens.resize(rows, -7);
        self.positions.resize(rows, -1);
        self.tables.resize(rows * PAGES, -9);
        self
    }

    pub fn active(&self) -> Vec<usize> {
        (0..self.positions.len()).filter(|&row| self.positions[row] >= 0).collect()
    }

    pub fn view(&self) -> StepCells<'_> {
        StepCells { tokens: &self.tokens, positions: &self.positions, page_table: &self.tables }
    }
}

/// Tokens at random.
pub fn prompt(tokens: usize, seed: i32) -> Vec<i32> {
    (0..tokens as i32).map(|at| (at * 37 + seed * 11 + at * at % 7) % 136).collect()
}

/// The reference machine.
pub struct Reference {
    machine: Machine,
    kv: KvState,
    rows: usize,
}

impl Reference {
    pub fn new(spec: &impl Architecture, rows: usize) -> Reference {
        let placed = schedule(program(spec, rows, 1), PAGE * PAGES).unwrap();
        let machine = Machine::new(placed, &random(spec), 1).unwrap();
        let kv = KvState::new(machine.program()).unwrap();
        Reference { machine, kv, rows }
    }

    /// Rounds the operands of products to bf16, as a device does.
    pub fn rounded(mut self) -> Reference {
        self.machine.set_operands(Some(|x| bf16::from_f32(x).to_f32()));
        self
    }

    /// The logits of all rows that are not idle.
    pub fn step(&mut self, rows: &Rows) -> Vec<Vec<f32>> {
        let rows = rows.clone().idle(self.rows);
        let output = self.machine.step(&mut self.kv, &rows.view()).unwrap();
        rows.active().into_iter().map(|row| output.f32_row(LOGITS, row).unwrap()).collect()
    }
}

/// The logits of all rows of a step that are not idle.
pub fn step(machine: &mut GraphMachine, rows: &Rows) -> Vec<Vec<f32>> {
    let rows = rows.clone().idle(machine.plan().rows as usize);
    let mut all = Vec::new();
    machine.step(&rows.view(), &rows.active(), &mut |_, logits| all.push(logits.to_vec())).unwrap();
    all
}

pub fn relative(found: &[f32], expected: &[f32]) -> f64 {
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(expected).map(|(a, b)| f64::from(a - b)));
    difference / norm(&mut expected.iter().map(|&x| f64::from(x)))
}

/// The largest relative difference of rows.
pub fn worst(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f64 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(found, expected)| relative(found, expected)).fold(0.0, f64::max)
}
