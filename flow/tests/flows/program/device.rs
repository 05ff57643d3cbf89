//! Flows on a simulated device: scores and fields beside those of the reference machine, selections
//! that are exact for the scores that were found, logits.

use std::error::Error;

use half::bf16;
use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::sim::Checks;
use tilewright_codegen::target::Target;
use tilewright_flow::memory::{Budget, top_k};
use tilewright_flow::prelude::*;
use tilewright_flow::program::{FlowSettings, Lowered, Phase, observed_names, scores_name};
use tilewright_flow::{ModelShape, Parameters, Traced, algorithms, trace};
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower_indexed};
use tilewright_megakernel::program::BufferKind;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions};
use tilewright_megakernel::vm::reference::{KvState, Machine, StepOutput};
use tilewright_megakernel::weights::RandomWeights;

/// Two layers of two key heads.
pub(super) fn spec(Cut { group, head_dim, .. }: Cut) -> Llama {
    Llama::small().head_dim(head_dim).inner(64).vocab(40).max_positions(1 << 17).heads(2 * group, 2)
}

/// The sizes and options of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub rows: usize,
    /// Query heads of a key head.
    pub group: usize,
    pub head_dim: usize,
    pub block_tokens: usize,
    pub page_tokens: usize,
    pub context: usize,
    pub budget: (u32, f64, u32, u32),
    /// SMs, which scores are split for.
    pub sms: usize,
    pub seed: u64,
}

pub(super) const CUT: Cut = Cut {
    rows: 2,
    group: 3,
    head_dim: 16,
    block_tokens: 16,
    page_tokens: 32,
    context: 320,
    budget: (4, 0.0, 1, 2),
    sms: 3,
    seed: 1,
};

/// A program on the reference machine and on a simulated device.
pub(super) struct Both {
    cut: Cut,
    budget: Budget,
    reference: Machine,
    kv: KvState,
    pub device: DeviceMachine,
    /// Page tables of all rows.
    pub table: Vec<i32>,
}

/// Numbers from -1 to 1, the same for the same seed.
pub(super) fn drawn(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| bf16::from_f32(next()).to_f32()).collect()
}

fn settings(traced: Traced, cut: Cut) -> FlowSettings {
    let Cut { group, head_dim, block_tokens, budget: (top_k, ratio, first, last), .. } = cut;
    let model = ModelShape { kv_heads: 2, group, head_dim, block_tokens };
    let parameters = traced.extents(&model).expect("a model that fits").parameters;
    let declared = traced.declared.parameters.iter().zip(parameters);
    let values = |count: usize| drawn(9, count).into_iter().map(f64::from).collect();
    let layer: Parameters = declared.map(|(p, [d0, d1])| (p.name.clone(), values(2 * d0 * d1))).collect();
    let budget = Budget::new(top_k, ratio, first, last).expect("a budget");
    FlowSettings::new(traced, block_tokens, budget).expect("a flow").with_parameters(vec![layer; 2]).observed()
}

fn program(flow: &FlowSettings, phase: Phase, cut: Cut) -> Placed {
    let target = Target { sms: cut.sms, ..Target::named("h100").expect("a target") };
    let Cut { rows, page_tokens, context, .. } = cut;
    let options =
        LowerOptions { rows, kv: DType::BF16, page_tokens, splits: Some(2), ..LowerOptions::for_context(context) };
    let mut indexer = Lowered::new(flow, phase, rows);
    let spec = spec(cut);
    let program = lower_indexed(&spec, &|_| DType::BF16, target, &options, Some(&mut indexer));
    schedule(program.expect("a model that lowers"), 64).expect("a valid program")
}

pub(super) fn chain(error: &dyn Error) -> String {
    let cause = error.source().map_or(String::new(), |source| format!(": {}", chain(source)));
    format!("{error}{cause}")
}

/// Kernel options with which the simulator runs in bearable time.
pub(super) fn device_options() -> DeviceOptions {
    DeviceOptions { stage_bytes: 2048, split_tokens: 16, ..DeviceOptions::for_simulator() }
        .with_thresholds(|limits| limits.single_tokens = 0)
}

impl Both {
    pub(super) fn new(traced: Traced, phase: Phase, cut: Cut) -> Both {
        let flow = settings(traced, cut);
        let placed = program(&flow, phase, cut);
        let weights = RandomWeights::new(&spec(cut), DType::BF16, 7).expect("weights");
        let reference = Machine::new(placed.clone(), &weights, 1).expect("a machine");
        let kv = KvState::new(reference.program()).expect("memory");
        let sim = Options { seed: cut.seed, sms: cut.sms as u32, checks: Checks::On, ..Options::default() };
        let options = device_options();
        // Or the GPU that is named, whose blocks run in their own order.
        let device = match std::env::var("TILEWRIGHT_DEVICE") {
            Ok(name) => tilewright_codegen::device::open(&name).expect("the device that is asked for"),
            Err(_) => Simulator::new(sim).device(),
        };
        let device = DeviceMachine::load(placed, &weights, &device, options, &mut |_, _| ());
        let device = device.unwrap_or_else(|error| panic!("{}", chain(&error)));
        let pages = cut.rows * cut.context.div_ceil(cut.page_tokens);
        // Every page once, in a shuffled order.
        let step = (1..pages).rev().find(|step| gcd(*step, pages) == 1 && *step > pages / 3).unwrap_or(1);
        let table = (0..pages).map(|at| (at * step % pages) as i32).collect();
        let mut both = Both { cut, budget: *flow.budget(), reference, kv, device, table };
        both.draw_pools();
        both
    }

    /// The pools of bf16 by name, with their elements.
    pub(super) fn pools(&self) -> Vec<(String, usize)> {
        let buffers = self.reference.program().buffers.iter();
        let pools = buffers.filter(|buffer| buffer.kind == BufferKind::KvPool && buffer.dtype == DType::BF16);
        pools.map(|pool| (pool.name.clone(), pool.elements().expect("elements"))).collect()
    }

    fn draw_pools(&mut self) {
        for (at, (name, elements)) in self.pools().into_iter().enumerate() {
            self.set(&name, &drawn(self.cut.seed + at as u64 + 40, elements));
        }
    }

    /// Fields with that number of different values.
    pub(super) fn draw_scores(&mut self, round: u64, kinds: usize) {
        let odd = [f32::NAN, -f32::NAN, 0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, 1e-40, -1e-40, -1e30, 2.0];
        let pick = |x: f32| odd[((x + 1.0) * 500.0) as usize % kinds];
        for (name, elements) in self.pools().into_iter().filter(|(name, _)| name.contains(".flow.")) {
            let scores: Vec<f32> = drawn(self.cut.seed + round, elements).into_iter().map(pick).collect();
            self.set(&name, &scores);
        }
    }

    fn set(&mut self, name: &str, values: &[f32]) {
        self.kv.write(name, 0, values).expect("a pool");
        let values: Vec<bf16> = values.iter().map(|&x| bf16::from_f32(x)).collect();
        self.device.set_pool(name, &values).expect("a pool");
    }

    /// A step of both at these positions, of which the logits are compared.
    fn step_logits(&mut self, positions: &[i32]) {
        self.run(positions, &|_, _| ());
    }

    /// A step of both at these positions; the logits of rows that are not idle are close.
    fn step(&mut self, positions: &[i32]) -> Found {
        self.run(positions, &|device, output| {
            let read = |layer: usize| {
                let [blocks, last] = observed_names(layer);
                let scores = scores_name(layer);
                (
                    [device.i32(&blocks), device.i32(&last)].map(|values| values.expect("an output")),
                    [output.i32(&blocks), output.i32(&last)].map(|values| values.expect("an output")),
                    [device.f32(&scores).expect("an output"), output.f32(&scores).expect("an output")],
                )
            };
            Found { layers: (0..2).map(read).collect() }
        })
    }

    fn run<R>(&mut self, positions: &[i32], found: &dyn Fn(&DeviceMachine, &StepOutput<'_>) -> R) -> R {
        let rows = positions.len();
        let tokens: Vec<i32> = (0..rows as i32).map(|row| (row * 7 + positions[0].max(0)) % 40).collect();
        let cells = StepCells { tokens: &tokens, positions, page_table: &self.table };
        self.device.step(&cells).unwrap_or_else(|error| panic!("{:?} at {positions:?}: {}", self.cut, chain(&error)));
        let output = self.reference.step(&mut self.kv, &cells).expect("a step");
        for row in (0..rows).filter(|&row| positions[row] >= 0) {
            let found = self.device.f32_row(LOGITS, row);
            let expected = output.f32_row(LOGITS, row);
            let error = relative(&found.expect("logits"), &expected.expect("logits"));
            // More rows than four are multiplied as bf16.
            let limit = if rows > 4 { 1e-2 } else { 2e-3 };
            assert!(error < limit, "{:?}, row {row} of {positions:?}: logits are off by {error:.1e}", self.cut);
        }
        found(&self.device, &output)
    }

    /// Runs a step and compares scores, and selections with the scores that were found.
    pub(super) fn check(&mut self, positions: &[i32]) {
        let found = self.step(positions);
        let cut = self.cut;
        let budget = self.budget;
        let width = self.table.len() / cut.rows;
        let per_page = cut.page_tokens / cut.block_tokens;
        for (layer, ([blocks, last], [_, expected_last], scores)) in found.layers.into_iter().enumerate() {
            assert_eq!(last, expected_last, "{cut:?} {positions:?}");
            let most = blocks.len() / (2 * cut.rows);
            let room = scores[0].len() / (2 * cut.rows);
            let splits = self.splits(layer);
            for (row, head) in (0..cut.rows).flat_map(|row| [(row, 0), (row, 1)]) {
                let Ok(position) = usize::try_from(positions[row]) else { continue };
                let all = position / cut.block_tokens + 1;
                let place =
                    |block: usize| self.table[row * width + block / per_page] as usize * per_page + block % per_page;
                let at = row * 2 + head;
                let mut expected: Vec<usize> = (0..all).collect();
                if let Some(candidates) = budget.candidates(all) {
                    let n = candidates.len();
                    let share = room / splits;
                    let each = n.div_ceil(splits);
                    let of = |scores: &[f32]| -> Vec<f32> {
                        (0..n).map(|i| scores[at * room + i / each * share + i % each]).collect()
                    };
                    let [device, reference] = [of(&scores[0]), of(&scores[1])];
                    same(&device, &reference, &format!("{cut:?} {positions:?} layer {layer} row {row} head {head}"));
                    let winners = top_k(&device, budget.chosen(all)).into_iter();
                    expected = (0..candidates.start).collect();
                    expected.extend(winners.map(|winner| winner as usize + candidates.start));
                    expected.extend(candidates.end..all);
                }
                let expected: Vec<i32> = expected.into_iter().map(|block| place(block) as i32).collect();
                assert_eq!(
                    blocks[at * most..][..expected.len()],
                    expected,
                    "{cut:?} {positions:?} layer {layer}, {at}"
                );
            }
        }
    }

    /// Splits of the scores of a layer.
    pub(super) fn splits(&self, layer: usize) -> usize {
        self.reference.program().buffer_named(&scores_name(layer)).expect("scores").shape[2]
    }

    /// Compares the fields of both.
    pub(super) fn check_fields(&self, what: &str) {
        for (name, _) in self.pools().into_iter().filter(|(name, _)| name.contains(".flow.")) {
            let found: Vec<f32> = self.device.pool(&name).expect("a pool").iter().map(|x| x.to_f32()).collect();
            same(&found, &self.kv.read(&name).expect("a pool"), &format!("{what}: {name}"));
        }
    }
}

/// By layer what device and reference machine found: blocks and last tokens of each, scores of
/// both.
struct Found {
    layers: Vec<OfLayer>,
}

/// Blocks and last tokens of the device, of the reference machine; scores of both.
type OfLayer = ([Vec<i32>; 2], [Vec<i32>; 2], [Vec<f32>; 2]);

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn relative(found: &[f32], expected: &[f32]) -> f64 {
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let apart = norm(&mut found.iter().zip(expected).map(|(a, b)| f64::from(a - b)));
    apart / norm(&mut expected.iter().map(|&x| f64::from(x))).max(1e-30)
}

/// Numbers that are the same but for rounding; NaN is like NaN, an infinity like itself.
fn same(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let size = expected.iter().filter(|x| x.is_finite()).fold(0f32, |most, x| most.max(x.abs()));
    for (at, (&a, &b)) in found.iter().zip(expected).enumerate() {
        let is_same =
            a.to_bits() == b.to_bits() || a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-2 * size;
        assert!(is_same, "{what}: {a} at {at}, the reference machine has {b}");
    }
}

pub(super) fn traced(name: &str) -> Traced {
    algorithms::named(name).expect("a flow").trace().expect("a flow without errors")
}

/// Positions around the ends of blocks and pages, the budget, the context.
fn edges(cut: Cut) -> Vec<i32> {
    let (top_k, _, first, last) = cut.budget;
    let block = cut.block_tokens as i32;
    let page = cut.page_tokens as i32;
    let fixed = (top_k + first + last) as i32 * block;
    let mut edges = vec![0, block - 1, page - 1, page, fixed - 1, fixed, fixed + block - 1, fixed + block];
    edges.extend([cut.context as i32 / 2 + 5, cut.context as i32 - 1]);
    edges
}

/// Steps around every edge, with rows that are idle or of other lengths beside each other.
#[test]
fn flows_choose_on_a_device_what_their_scores_say() {
    for name in ["quest", "block-sparse"] {
        let mut both = Both::new(traced(name), Phase::Decode, CUT);
        let edges = edges(CUT);
        for (step, &position) in edges.iter().enumerate() {
            let other = edges[(step * 3 + 4) % edges.len()];
            both.check(&[position, if step == 3 { -1 } else { other }]);
            both.check_fields(name);
        }
    }
}

/// Every flow whose blocks attention on a device takes: of a multiple of 16 tokens. Three steps of
/// one sequence, so that states are gone on with.
#[test]
fn every_algorithm_agrees_with_the_reference() {
    for (seed, algorithm) in algorithms::ALL.iter().filter(|algorithm| algorithm.name != "h2o-tokens").enumerate() {
        // Sixteen channels of 32 dimensions, for flows that have some.
        let cut = Cut { rows: 1, head_dim: 32, seed: seed as u64 + 10, ..CUT };
        let mut both = Both::new(traced(algorithm.name), Phase::Decode, cut);
        for position in 221..224 {
            both.check(&[position]);
        }
        both.check_fields(algorithm.name);
    }
}

/// A prompt attends to everything; blocks that its rows complete are summarised.
#[test]
fn prompts_summarise_their_blocks() {
    for name in ["quest", "value-energy", "keydiff"] {
        let cut = Cut { rows: 16, context: 64, seed: 21, ..CUT };
        let mut both = Both::new(traced(name), Phase::Prompt, cut);
        // All rows are tokens of the first sequence.
        let width = both.table.len() / cut.rows;
        both.table = both.table[..width].repeat(cut.rows);
        for first in [0, 16, 27] {
            both.step_logits(&(first..first + 16).collect::<Vec<i32>>());
            both.check_fields(name);
        }
    }
}

/// A flow whose scores are what its field holds.
pub(super) struct Given;

impl Flow for Given {
    type Fields = Field;
    type State = ();

    fn name(&self) -> &str {
        "given"
    }
    fn fields(&self, declare: &mut Declare) -> Field {
        declare.field("score", [Dim::ONE, Dim::ONE])
    }
    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, field: &Field) {
        block.store(*field, block.keys().max(D0).max(D1));
    }
    fn forward_indexer<'t>(&self, step: Step<'t>, field: &Field, (): ()) -> Done<'t> {
        let score = step.field(*field).load();
        step.select(score)
    }
}

/// A flow whose field is kept in codes of e4m3, which have no number beyond 448.
struct Clamped;

impl Flow for Clamped {
    type Fields = Field;
    type State = ();

    fn name(&self) -> &str {
        "clamped"
    }
    fn fields(&self, declare: &mut Declare) -> Field {
        declare.field_of(DType::F8E4M3, "largest", [Dim::ONE, Dim::HEAD_DIM])
    }
    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, field: &Field) {
        block.store(*field, block.keys().max(D0) * 700.0);
    }
    fn forward_indexer<'t>(&self, step: Step<'t>, field: &Field, (): ()) -> Done<'t> {
        let score = step.field(*field).load().max(D1);
        step.select(score)
    }
}

/// Three blocks become complete, and are scored in later steps.
#[test]
fn codes_of_a_field_are_clamped_and_scored() {
    let cut = Cut { rows: 1, head_dim: 64, context: 256, budget: (2, 0.0, 0, 1), seed: 51, ..CUT };
    let mut both = Both::new(trace(&Clamped).expect("a flow without errors"), Phase::Decode, cut);
    for position in [15, 31, 47, 63, 79] {
        both.step_logits(&[position]);
    }
    let found = both.step(&[81]);
    let ([_, _], [_, _], [device, reference]) = &found.layers[0];
    assert_eq!(device, reference);
    assert!(device[..5].contains(&448.0), "{device:?}");
    both.check(&[82]);
}

/// Few different scores, so that most are equal; NaN of both signs, both zeros, infinities, the
/// smallest numbers.
#[test]
fn a_selection_is_exact_for_any_scores() {
    for (case, budget) in [(1, 0.0, 0, 1), (6, 0.0, 1, 1), (15, 0.0, 2, 2)].into_iter().enumerate() {
        let cut = Cut { budget, seed: 30 + case as u64, ..CUT };
        let mut both = Both::new(trace(&Given).expect("a flow without errors"), Phase::Decode, cut);
        for (round, kinds) in [10, 2, 1].into_iter().enumerate() {
            both.draw_scores(round as u64, kinds);
            both.check(&[319 - 16 * round as i32, 305]);
        }
    }
}

/// A flow that lanes cannot compute is refused by its name, before anything runs.
#[test]
fn what_a_device_cannot_run_is_refused() {
    let refused = |name: &str, cut: Cut| {
        let flow = settings(traced(name), cut);
        let weights = RandomWeights::new(&spec(cut), DType::BF16, 7).expect("weights");
        let device = Simulator::new(Options { seed: 1, sms: 3, ..Options::default() }).device();
        let placed = program(&flow, Phase::Decode, cut);
        let machine = DeviceMachine::load(placed, &weights, &device, DeviceOptions::default(), &mut |_, _| ());
        chain(&machine.err().expect("refused"))
    };
    let tokens = refused("h2o-tokens", Cut { block_tokens: 1, ..CUT });
    assert!(tokens.contains("the tokens of a selected block: 1, and a device needs a multiple of 16"), "{tokens}");
    let winners = refused("quest", Cut { budget: (2049, 0.0, 1, 1), context: 40_000, ..CUT });
    assert!(
        winners.contains("blocks that a flow chooses for a row: 2049, and a device needs 2048 at most"),
        "{winners}"
    );
}
