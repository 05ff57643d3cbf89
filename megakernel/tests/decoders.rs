//! Random decoders: the graph's interpreter in f64, the reference machine, several devices, the
//! persistent kernel and the graph of launches on the simulator compute the same.
//!
//! A case draws sizes, and each layer's block, norms, biases, window, soft cap and activation. Every
//! drawn decoder is a valid graph that the lowering knows. `TILEWRIGHT_LONG=1` runs 10,000 cases on the
//! host, 1,000 of the persistent kernel and 500 of launches.

use std::sync::Arc;

use half::bf16;
use proptest::prelude::*;
use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::target::Target;
use tilewright_graph::Graph;
use tilewright_graph::axis::{Axis, Dim};
use tilewright_graph::build::{Block, Builder, Gated, Sizes, Value};
use tilewright_graph::graph::{RopeId, RopeTable};
use tilewright_graph::interpret::{CheckpointTensor, Interpreter, Sequence};
use tilewright_graph::op::ActivationKind;
use tilewright_graph::passes::{fuse, normalise};
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower, plan};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions};
use tilewright_megakernel::vm::graph::GraphWeights;
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::weights::{RandomWeights, Weights};

/// Tokens of a page, and pages of a sequence.
const PAGE: usize = 16;
const PAGES: usize = 2;
const VOCAB: usize = 40;

/// A norm: whether its weights are stored as `w - 1`.
type UnitOffset = bool;

/// A norm of the residual stream.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Norm {
    Rms(UnitOffset),
    Layer { bias: bool },
}

/// What attention and MLP of a layer read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reads {
    /// Each a norm of the residual stream.
    Norms,
    /// One norm.
    OneNorm,
    /// The residual stream as it is; the results have norms.
    Stream,
}

/// The norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
enum HeadNorms {
    None,
    Single,
    Together,
}

#[derive(Clone, Debug)]
struct Layer {
    window: Option<u32>,
    soft_cap: Option<f32>,
    scale: f32,
    activation: ActivationKind,
    /// Whether the MLP has a gate.
    gate: bool,
    reads: Reads,
    /// Before attention and before the MLP.
    norms: [Norm; 2],
    /// After attention and after the MLP.
    post_norms: [Option<UnitOffset>; 2],
}

#[derive(Clone, Debug)]
struct Decoder {
    /// In units of 16, 1 and 16.
    hidden: u64,
    kv_heads: u64,
    group: u64,
    inner: u64,
    head_dim: u64,
    layers: Vec<Layer>,
    /// Of q, k and v; of o; of gate and up; of down.
    biases: [bool; 4],
    head_norms: HeadNorms,
    last_norm: Norm,
    embedding_scale: f32,
    logit_cap: Option<f32>,
    tied: bool,
    rope_scale: f32,
}

fn cap() -> impl Strategy<Value = Option<f32>> {
    prop::option::of((1u8..=40).prop_map(f32::from))
}

fn norm() -> impl Strategy<Value = Norm> {
    prop_oneof![
        2 => any::<bool>().prop_map(Norm::Rms),
        1 => any::<bool>().prop_map(|bias| Norm::Layer { bias }),
    ]
}

fn layer() -> impl Strategy<Value = Layer> {
    let activation = prop_oneof![Just(ActivationKind::Silu), Just(ActivationKind::GeluTanh)];
    let scale = prop_oneof![Just(0.25f32), Just(0.177), Just(0.5)];
    let post_norms = prop_oneof![
        2 => Just([None, None]),
        1 => any::<[bool; 2]>().prop_map(|offsets| offsets.map(Some)),
        1 => any::<[Option<bool>; 2]>(),
    ];
    let reads = prop_oneof![4 => Just(Reads::Norms), 1 => Just(Reads::OneNorm), 1 => Just(Reads::Stream)];
    let gate = prop_oneof![3 => Just(true), 1 => Just(false)];
    let scores = (prop::option::of(1u32..=8), cap(), scale);
    (scores, activation, gate, reads, [norm(), norm()], post_norms).prop_map(
        |((window, soft_cap, scale), activation, gate, reads, norms, post_norms)| {
            let post_norms = match (reads, post_norms) {
                (Reads::Stream, norms) => norms.map(|norm| norm.or(Some(false))),
                // Else the second sum would be an epilogue of the first.
                (Reads::OneNorm, [None, _]) => [None; 2],
                (Reads::Norms | Reads::OneNorm, norms) => norms,
            };
            Layer { window, soft_cap, scale, activation, gate, reads, norms, post_norms }
        },
    )
}

fn decoder() -> impl Strategy<Value = Decoder> {
    let extents = (1u64..=4, 1u64..=2, 1u64..=3, 1u64..=4, prop_oneof![2 => Just(16u64), 1 => Just(32)]);
    let layers = prop::collection::vec(layer(), 1..=2);
    let embedding_scale = prop_oneof![Just(1.0f32), Just(4.0), Just(0.125)];
    let rope_scale = prop_oneof![3 => Just(1.0f32), 1 => Just(1.25)];
    let head_norms =
        prop_oneof![2 => Just(HeadNorms::None), 1 => Just(HeadNorms::Single), 1 => Just(HeadNorms::Together)];
    let norms = (head_norms, norm());
    let rest = (any::<[bool; 4]>(), norms, any::<bool>(), embedding_scale, cap(), rope_scale);
    (extents, layers, rest).prop_map(|((hidden, kv_heads, group, inner, head_dim), layers, rest)| {
        let (biases, (head_norms, last_norm), tied, embedding_scale, logit_cap, rope_scale) = rest;
        Decoder {
            hidden,
            kv_heads,
            group,
            inner,
            head_dim,
            layers,
            biases,
            head_norms,
            last_norm,
            embedding_scale,
            logit_cap,
            tied,
            rope_scale,
        }
    })
}

impl Decoder {
    fn graph(&self) -> Graph {
        let sizes = Sizes {
            hidden: 16 * self.hidden,
            heads: self.kv_heads * self.group,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            inner: 16 * self.inner,
            vocab: VOCAB as u64,
        };
        let builder = Builder::new("random", sizes, 1e-5);
        let pairs = 0..self.head_dim / 2;
        let frequencies = pairs.map(|pair| 100f32.powf(-(pair as f32) / (self.head_dim / 2) as f32)).collect();
        let rope = builder.rope_table(&RopeTable { frequencies, scale: self.rope_scale });
        let mut x = builder.root().embed(builder.tokens(), "model.embed_tokens").scale(self.embedding_scale);
        for (at, layer) in self.layers.iter().enumerate() {
            x = self.block(&builder, at, layer, x, rope);
        }
        let b = builder.root();
        let head = if self.tied { "model.embed_tokens" } else { "lm_head" };
        let logits = b.logits(normed(&b, x, "model.norm", self.last_norm), head);
        let logits = b.soft_cap(logits, self.logit_cap);
        builder.finish(&[logits, b.choose(logits)]).expect("the generator makes valid graphs")
    }

    fn block<'b>(&self, builder: &'b Builder, at: usize, layer: &Layer, x: Value<'b>, rope: RopeId) -> Value<'b> {
        let b = builder.within(format!("model.layers.{at}."));
        let [qkv, o, mlp, down] = self.biases;
        let h = match layer.reads {
            Reads::Norms | Reads::OneNorm => normed(&b, x, "input_layernorm", layer.norms[0]),
            Reads::Stream => x,
        };
        let modules = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
        let [q, k, v] = b.linear_split(h, modules).map(|x| x.bias(qkv));
        let [q, k] = match self.head_norms {
            HeadNorms::Single => [b.rms_norm(q, "self_attn.q_norm").into(), b.rms_norm(k, "self_attn.k_norm").into()],
            HeadNorms::Together => {
                [b.rms_norm_of_rows(q, "self_attn.q_norm").into(), b.rms_norm_of_rows(k, "self_attn.k_norm").into()]
            }
            HeadNorms::None => [q, k],
        };
        let [q, k] = b.rope(q, k, rope);
        let attended = b.attention(q, k, v).scale(layer.scale).soft_cap(layer.soft_cap).window(layer.window);
        let o = b.linear(attended, "self_attn.o_proj").bias(o);
        let x = b.add(x, post(&b, o, "post_attention_layernorm", layer.post_norms[0]));
        let h = match layer.reads {
            Reads::Norms => normed(&b, x, "pre_feedforward_layernorm", layer.norms[1]),
            Reads::OneNorm => h,
            Reads::Stream => x,
        };
        let gated = Gated { gate: "mlp.gate_proj", up: "mlp.up_proj", bias: mlp, kind: layer.activation };
        let m = match layer.gate {
            true => b.gated(h, gated),
            false => {
                let inner = Dim::known(Axis::Inner, 16 * self.inner);
                b.activation(layer.activation, b.project(h, "mlp.up_proj", [inner]).bias(mlp), None)
            }
        };
        let y = b.linear(m, "mlp.down_proj").bias(down);
        b.add(x, post(&b, y, "post_feedforward_layernorm", layer.post_norms[1]))
    }
}

fn normed<'b>(b: &Block<'b>, x: Value<'b>, module: &str, norm: Norm) -> Value<'b> {
    match norm {
        Norm::Rms(true) => b.rms_norm(x, module).unit_offset(),
        Norm::Rms(false) => b.rms_norm(x, module).into(),
        Norm::Layer { bias } => b.layer_norm(x, module, bias).into(),
    }
}

fn post<'b>(b: &Block<'b>, x: Value<'b>, module: &str, norm: Option<UnitOffset>) -> Value<'b> {
    norm.map_or(x, |offset| normed(b, x, module, Norm::Rms(offset)))
}

/// Sequences that are fed token by token, each a row.
#[derive(Clone, Debug)]
struct Prompts {
    /// Of every row, as many as of the first.
    tokens: Vec<Vec<u32>>,
    seed: u64,
}

fn prompts(rows: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Prompts> {
    (rows, 1usize..=6, any::<u64>()).prop_flat_map(|(rows, steps, seed)| {
        let sequence = prop::collection::vec(0..VOCAB as u32, steps);
        prop::collection::vec(sequence, rows).prop_map(move |tokens| Prompts { tokens, seed })
    })
}

/// The cells of a step.
struct Cells {
    tokens: Vec<i32>,
    positions: Vec<i32>,
    page_table: Vec<i32>,
}

impl Cells {
    fn view(&self) -> StepCells<'_> {
        StepCells { tokens: &self.tokens, positions: &self.positions, page_table: &self.page_table }
    }
}

impl Prompts {
    fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// The cells of every step of a program with at least as many rows; others are idle.
    fn steps(&self, rows: usize) -> impl Iterator<Item = Cells> {
        (0..self.tokens[0].len()).map(move |step| {
            let of = |row: usize| self.tokens.get(row).map(|tokens| (tokens[step] as i32, step as i32));
            let (tokens, positions) = (0..rows).map(|row| of(row).unwrap_or((0, -1))).unzip();
            Cells { tokens, positions, page_table: (0..(rows * PAGES) as i32).collect() }
        })
    }
}

/// Logits by step and row.
type Logits = Vec<Vec<f32>>;

/// By the interpreter in f64.
fn interpreted(graph: &Graph, weights: &RandomWeights, prompts: &Prompts) -> Logits {
    let weights = |name: &str| {
        let tensor = weights.tensor(name)?;
        let data = tensor.to_f32_vec()?.into_iter().map(f64::from).collect();
        Some(CheckpointTensor { data, shape: tensor.shape().to_vec() })
    };
    let interpreter = Interpreter::new(graph, &weights).expect("weights that fit");
    let mut sequences = vec![Sequence::default(); prompts.rows()];
    let mut all = Vec::new();
    for step in 0..prompts.tokens[0].len() {
        for (sequence, tokens) in sequences.iter_mut().zip(&prompts.tokens) {
            let outputs = interpreter.run(sequence, &tokens[step..=step]).expect("tokens of the vocabulary");
            all.push(outputs[0].row(0).iter().map(|&x| x as f32).collect());
        }
    }
    all
}

fn options(prompts: &Prompts, kv: DType) -> LowerOptions {
    let rows = prompts.rows();
    let pages = Some(rows * PAGES);
    LowerOptions { rows, kv, page_tokens: PAGE, pages, ..LowerOptions::for_context(PAGE * PAGES) }
}

/// By the reference machine.
fn referenced(spec: &ModelSpec, weights: &RandomWeights, prompts: &Prompts, options: &LowerOptions) -> Logits {
    stepped(reference(spec, weights, prompts, options), prompts)
}

/// By the reference machine with the operands of products rounded to bf16, as launches have them.
fn rounded(spec: &ModelSpec, weights: &RandomWeights, prompts: &Prompts, options: &LowerOptions) -> Logits {
    let mut machine = reference(spec, weights, prompts, options);
    machine.set_operands(Some(|x| bf16::from_f32(x).to_f32()));
    stepped(machine, prompts)
}

/// The reference machine of a program that is cut for a number of SMs, which the seed says.
fn reference(spec: &ModelSpec, weights: &RandomWeights, prompts: &Prompts, options: &LowerOptions) -> Machine {
    let target = Target::host(1 + prompts.seed as usize % 5);
    let program = lower(spec, &|_| DType::BF16, target, options).expect("a decoder that is lowered");
    let placed = schedule(program, PAGE * PAGES).expect("a valid program");
    Machine::new(placed, weights, 1).expect("weights that fit")
}

fn stepped(mut machine: Machine, prompts: &Prompts) -> Logits {
    let mut kv = KvState::new(machine.program()).expect("pools");
    let mut all = Vec::new();
    for cells in prompts.steps(prompts.rows()) {
        let output = machine.step(&mut kv, &cells.view()).expect("a step that runs");
        all.extend((0..prompts.rows()).map(|row| output.f32_row(LOGITS, row).expect("logits")));
    }
    all
}

/// By the persistent kernel on the simulator.
fn persistent(spec: &ModelSpec, weights: &RandomWeights, prompts: &Prompts) -> Logits {
    let sms = 2 + prompts.seed as usize % 2;
    let target = Target { sms, ..h100() };
    let program = lower(spec, &|_| DType::BF16, target, &options(prompts, DType::BF16)).expect("lowered");
    let cut = DeviceOptions { stage_bytes: 2048, split_tokens: 16, ..DeviceOptions::for_simulator() }
        .with_thresholds(|limits| limits.single_tokens = 0);
    let placed = schedule(program, PAGE * PAGES).expect("a valid program");
    let device = simulator(prompts.seed, sms).device();
    let mut machine = DeviceMachine::load(placed, weights, &device, cut, &mut |_, _| ()).expect("loaded");
    let mut all = Vec::new();
    for cells in prompts.steps(prompts.rows()) {
        machine.step(&cells.view()).expect("a step that runs");
        all.extend((0..prompts.rows()).map(|row| machine.f32_row(LOGITS, row).expect("logits")));
    }
    all
}

/// By launches on the simulator, which take 17 rows and more.
fn launched(spec: &ModelSpec, weights: &RandomWeights, prompts: &Prompts) -> Logits {
    let rows = prompts.rows().max(17);
    let options = LowerOptions { rows, pages: Some(rows * PAGES), ..options(prompts, DType::BF16) };
    let step = plan(spec, &|_| DType::BF16, h100(), &options).expect("planned");
    let mut weights = GraphWeights::new(simulator(prompts.seed, 4).device(), Arc::new(weights.clone()));
    let mut machine = weights.machine(step, None, &mut |_, _| ()).expect("loaded");
    let mut all = Vec::new();
    let wanted: Vec<usize> = (0..prompts.rows()).collect();
    for cells in prompts.steps(rows) {
        machine.step(&cells.view(), &wanted, &mut |_, logits| all.push(logits.to_vec())).expect("a step that runs");
    }
    all
}

fn h100() -> Target {
    Target::named("h100").expect("a known target")
}

fn simulator(seed: u64, sms: usize) -> Simulator {
    Simulator::new(Options { seed, sms: sms as u32, ..Options::default() })
}

/// The relative L2 distance of the worst row. A row that is 0 has the distance 0 from itself.
fn worst(found: &Logits, expected: &Logits) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |row: &mut dyn Iterator<Item = f64>| row.map(|x| x * x).sum::<f64>().sqrt();
    let rows = found.iter().zip(expected).map(|(found, expected)| {
        let distance = norm(&mut found.iter().zip(expected).map(|(a, b)| f64::from(a - b)));
        distance / norm(&mut expected.iter().map(|&x| f64::from(x))).max(f64::MIN_POSITIVE)
    });
    // A NaN is the worst.
    rows.fold(0.0, |worst, error| if error <= worst { worst } else { error })
}

impl Decoder {
    /// The model and random weights.
    fn model(&self, seed: u64) -> (ModelSpec, RandomWeights) {
        let spec = ModelSpec::new(self.graph(), PAGE * PAGES).expect("a decoder");
        let weights = RandomWeights::new(&spec, DType::BF16, seed).expect("random weights");
        (spec, weights)
    }

    /// The error of the persistent kernel against the reference, and by how much operands rounded to
    /// bf16 change that: a key or a value may be rounded the other way in its pool.
    fn persistent_error(&self, prompts: &Prompts) -> [f64; 2] {
        let (spec, weights) = self.model(prompts.seed);
        let options = options(prompts, DType::BF16);
        let expected = referenced(&spec, &weights, prompts, &options);
        let rounding = worst(&rounded(&spec, &weights, prompts, &options), &expected);
        [worst(&persistent(&spec, &weights, prompts), &expected), rounding]
    }

    /// Whether two devices can share it.
    fn is_even(&self) -> bool {
        (self.kv_heads * self.group).is_multiple_of(2) && self.head_norms != HeadNorms::Together
    }
}

fn cases(few: u32, long: u32) -> ProptestConfig {
    let is_long = std::env::var_os("TILEWRIGHT_LONG").is_some();
    ProptestConfig {
        cases: if is_long { long } else { few },
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(60, 10_000))]

    /// The interpreter before and after the passes, and the reference machine, whole and shared by
    /// two devices.
    #[test]
    fn interpreter_passes_reference_and_shards_agree(decoder in decoder(), prompts in prompts(1..=3)) {
        let (spec, weights) = decoder.model(prompts.seed);
        let expected = interpreted(spec.graph(), &weights, &prompts);
        let fused = fuse(&normalise(spec.graph()).expect("valid")).expect("valid");
        prop_assert_eq!(&interpreted(&fused, &weights, &prompts), &expected, "fused");
        let on_host = options(&prompts, DType::F32);
        let whole = referenced(&spec, &weights, &prompts, &on_host);
        let error = worst(&whole, &expected);
        prop_assert!(error < 1e-4, "reference against interpreter: {error}");
        if decoder.is_even() {
            let shared = referenced(&spec, &weights, &prompts, &LowerOptions { devices: 2, ..on_host });
            let error = worst(&shared, &whole);
            prop_assert!(error < 1e-4, "two devices against one: {error}");
        }
    }
}

proptest! {
    #![proptest_config(cases(6, 1_000))]

    /// The persistent kernel, with every race checked.
    #[test]
    fn persistent_kernels_agree_with_the_reference(decoder in decoder(), prompts in prompts(1..=3)) {
        let [error, rounding] = decoder.persistent_error(&prompts);
        prop_assert!(error < 2e-3 + rounding, "{error}, and rounding changes {rounding}");
    }
}

/// 48 elements wide, scores with a soft cap: a value that the pool rounds the other way changes the
/// logits by 2.04e-3.
#[test]
fn a_value_that_the_pool_rounds_the_other_way_is_within_the_bound() {
    let layer = |soft_cap, activation, norms| {
        let scale = 0.5;
        let norms = [Norm::Rms(norms); 2];
        let reads = Reads::Norms;
        Layer { window: None, soft_cap, scale, activation, gate: true, reads, norms, post_norms: [None; 2] }
    };
    let decoder = Decoder {
        hidden: 3,
        kv_heads: 1,
        group: 3,
        inner: 3,
        head_dim: 16,
        layers: vec![layer(Some(26.0), ActivationKind::GeluTanh, false), layer(None, ActivationKind::Silu, true)],
        biases: [false, true, false, true],
        head_norms: HeadNorms::None,
        last_norm: Norm::Rms(false),
        embedding_scale: 0.125,
        logit_cap: None,
        tied: false,
        rope_scale: 1.25,
    };
    let tokens = vec![vec![11, 10, 16, 24, 22], vec![0; 5], vec![0; 5]];
    let [error, rounding] = decoder.persistent_error(&Prompts { tokens, seed: 9_753_512_307_022_524_905 });
    assert!(error < 2e-3 + rounding, "{error}, and rounding changes {rounding}");
    // What the pool rounds the other way is seen by far less than what all operands round.
    assert!(error < 0.5 * rounding, "{error}, and rounding changes {rounding}");
}

proptest! {
    #![proptest_config(cases(3, 500))]

    /// Launches, whose activations are bf16: they are off by a few times what that rounding alone
    /// changes.
    #[test]
    fn launches_agree_with_the_reference(decoder in decoder(), prompts in prompts(1..=3)) {
        let decoder = Decoder { head_dim: 32, ..decoder };
        let (spec, weights) = decoder.model(prompts.seed);
        let options = options(&prompts, DType::BF16);
        let expected = referenced(&spec, &weights, &prompts, &options);
        let rounding = worst(&rounded(&spec, &weights, &prompts, &options), &expected);
        let error = worst(&launched(&spec, &weights, &prompts), &expected);
        prop_assert!(error < 2e-2 + 4.0 * rounding, "{error}, and rounding changes {rounding}");
    }
}
