//! Programs of many rows on several devices: the logits of the reference machine, the tokens of one
//! device, decoding after a prompt.

use std::ops::ControlFlow;
use std::sync::Arc;

use tilewright_codegen::device::Device;
use tilewright_codegen::device::sim::{self, Options};
use tilewright_graph::models::Llama;
use tilewright_kernels::sample::Request;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, StepPlan};
use tilewright_megakernel::model::Architecture;
use tilewright_megakernel::program::Program;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::testing::{Rng, small_mixtures};
use tilewright_megakernel::vm::device::DeviceOptions;
use tilewright_megakernel::vm::graph::{
    AnyGraph, Exchange, GraphOptions, GraphPeers, GraphPlan, GraphWeights, PeerWeights,
};
use tilewright_megakernel::vm::resident::DeviceWeights;
use tilewright_megakernel::vm::{LoadError, Unsupported};
use tilewright_megakernel::weights::Weights;

use super::lab::{
    PAGES, Reference, Rows, TARGET, gemma2, normed, options, planned_with, program_with, prompt, random, relative,
    tiny, worst,
};

pub const BOUND: f64 = 2e-2;
pub const PAGES_OF: [[i32; PAGES]; 2] = [[5, 17, 2, 9, 23, 0, 11, 14], [1, 3, 20, 4, 22, 6, 8, 7]];

/// The launches of one of a program's devices, which add up parts by that exchange.
pub fn exchanging(step: &StepPlan, device: usize, exchange: Exchange) -> Result<GraphPlan, Unsupported> {
    GraphPlan::of_device(step, device, TARGET, None, GraphOptions { exchange, ..GraphOptions::default() })
}

pub fn program(spec: &impl Architecture, [rows, devices, sms]: [usize; 3], sampling: bool) -> Program {
    program_with(spec, sms, &LowerOptions { sampling, devices, ..options(rows) })
}

pub fn planned(spec: &impl Architecture, [rows, devices]: [usize; 2], sampling: bool) -> StepPlan {
    planned_with(spec, &LowerOptions { sampling, devices, ..options(rows) })
}

pub fn devices(seed: u64, count: usize) -> Vec<Device> {
    sim::peers(&Options { seed, sms: 4, ..Options::default() }, count as u32)
}

pub fn peers(on: &[Device], spec: &impl Architecture, rows: usize, sampling: bool) -> GraphPeers {
    peers_by(Exchange::Own, on, spec, rows, sampling)
}

/// Graphs of several devices with this exchange of partial sums.
pub fn peers_by(
    exchange: Exchange,
    on: &[Device],
    spec: &impl Architecture,
    rows: usize,
    sampling: bool,
) -> GraphPeers {
    let of = |device: &Device| {
        let mut weights = GraphWeights::new(device.clone(), Arc::new(random(spec)));
        weights.set_exchange(exchange);
        weights
    };
    let mut weights: Vec<GraphWeights> = on.iter().map(of).collect();
    GraphWeights::peers(&mut weights, planned(spec, [rows, on.len()], sampling), None, &mut |_, _| ()).unwrap()
}

/// A model that two devices can share.
pub fn small(head_dim: usize) -> Llama {
    tiny(head_dim).vocab(160)
}

/// A model that four devices can share: a kv head is on two of them.
pub fn wide(head_dim: usize) -> Llama {
    small(head_dim).heads(8, 2)
}

pub fn step(machine: &mut GraphPeers, rows: &Rows) -> Vec<Vec<f32>> {
    let rows = rows.clone().idle(machine.plan().rows as usize);
    let mut all = Vec::new();
    machine.step(&rows.view(), &rows.active(), &mut |_, logits| all.push(logits.to_vec())).unwrap();
    all
}

fn agrees(spec: &impl Architecture, count: usize, tokens: usize, chunk: usize, seed: u64) {
    agrees_by(Exchange::Own, spec, count, tokens, chunk, seed);
}

fn agrees_by(exchange: Exchange, spec: &impl Architecture, count: usize, tokens: usize, chunk: usize, seed: u64) {
    let mut machine = peers_by(exchange, &devices(seed, count), spec, 32, false);
    let prompt = prompt(tokens, seed as i32);
    let mut found = Vec::new();
    for first in (0..tokens).step_by(chunk) {
        let mut rows = Rows::default();
        rows.add(&prompt[first..tokens.min(first + chunk)], first, &PAGES_OF[0]);
        found.extend(step(&mut machine, &rows));
    }
    let mut rows = Rows::default();
    rows.add(&prompt, 0, &PAGES_OF[0]);
    let error = worst(&found, &Reference::new(spec, tokens).step(&rows));
    println!("{count} devices, {exchange:?}, {tokens} tokens by {chunk}: {error:.1e}");
    assert!(error < BOUND, "{count} devices, seed {seed}: {error}");
}

/// A small model of a family that `devices` devices can share.
pub fn drawn(rng: &mut Rng, devices: usize) -> Llama {
    let family = ["llama", "mistral", "qwen2", "qwen3"][rng.below(4)];
    let kv_heads = [1, 2, 3, devices, 2 * devices][rng.below(5)];
    let kv_heads =
        if kv_heads.is_multiple_of(devices) || devices.is_multiple_of(kv_heads) { kv_heads } else { devices };
    // As many heads as both divide.
    let group = rng.within(1, 3) * (devices / kv_heads).max(1);
    Llama {
        qkv_bias: family == "qwen2",
        o_bias: family == "mistral",
        mlp_bias: family == "mistral",
        qk_norm: family == "qwen3",
        ..tiny([32, 64][rng.below(2)])
            .hidden([64, 96, 128][rng.below(3)])
            .layers(rng.within(1, 2))
            .inner(devices * [16, 24, 40][rng.below(3)])
            .vocab(136usize.next_multiple_of(8 * devices))
            .tied(rng.below(2) == 0)
            .heads(kv_heads * group, kv_heads)
    }
}

/// The logits of a prompt in chunks, in steps of `rows` rows.
fn chunked(machine: &mut AnyGraph, prompt: &[i32], chunk: usize) -> Vec<Vec<f32>> {
    let mut all = Vec::new();
    for first in (0..prompt.len()).step_by(chunk) {
        let mut rows = Rows::default();
        rows.add(&prompt[first..prompt.len().min(first + chunk)], first, &PAGES_OF[0]);
        let rows = rows.idle(machine.plan().rows as usize);
        machine.step(&rows.view(), &rows.active(), &mut |_, logits| all.push(logits.to_vec())).unwrap();
    }
    all
}

/// Random models on 1, 2, 3, 4 and 8 devices, in steps of more than 16 rows, by chunks that fill
/// them or do not: as near the reference as one device is allowed to be, and as near that device.
/// `TILEWRIGHT_LONG` in the environment: 100 models instead of five.
#[test]
fn random_models_have_the_logits_of_one_device() {
    let models = if std::env::var_os("TILEWRIGHT_LONG").is_some() { 100 } else { 5 };
    let mut rng = Rng::new(1119);
    let mut most = [0f64; 2];
    let mut beyond = 0;
    for at in 0..models {
        let count = [2, 3, 4, 8, 1][at % 5];
        let spec = drawn(&mut rng, count);
        let rows = [17, 24, 32, 64, 80][rng.below(5)];
        let tokens = rng.within(18, 50);
        let chunk = rng.within(9, rows);
        let seed = rng.below(1000) as u64;
        let prompt = prompt(tokens, seed as i32);
        let exchange = [Exchange::OneShot, Exchange::TwoShot, Exchange::Nccl][at / 5 % 3];
        let on = |count: usize| {
            let weights: Arc<dyn Weights + Send + Sync> = Arc::new(random(&spec));
            let mut peers = PeerWeights::new(&devices(seed, count), &weights);
            peers.set_exchange(exchange);
            peers.machine(planned(&spec, [rows, count], false), None, &mut |_, _| ()).unwrap()
        };
        let found = chunked(&mut on(count), &prompt, chunk);
        let alone = chunked(&mut on(1), &prompt, chunk);
        let mut all = Rows::default();
        all.add(&prompt, 0, &PAGES_OF[0]);
        let reference = Reference::new(&spec, tokens).step(&all);
        let errors = [&reference, &alone].map(|expected| worst(&found, expected));
        // What `accuracy` allows where roundings of operands alone bring the logits that far.
        let rounded = || 1.5 * worst(&Reference::new(&spec, tokens).rounded().step(&all), &reference);
        let limit = if errors.iter().all(|&error| error < BOUND) { BOUND } else { BOUND.max(rounded()) };
        beyond += usize::from(limit > BOUND);
        let what =
            format!("{count} devices, {exchange:?}, {rows} rows, {tokens} tokens by {chunk}, seed {seed}, {spec:?}");
        assert!(errors.iter().all(|&error| error < limit), "{errors:?}, {limit} allowed: {what}");
        println!("{errors:.4?} of {count} devices, {rows} rows, {tokens} tokens by {chunk}");
        most = [0, 1].map(|at| most[at].max(errors[at]));
    }
    println!("{models} models: at most {:.1e} from the reference, {:.1e} from one device", most[0], most[1]);
    println!("{beyond} of them are beyond {BOUND}, where the reference machine with operands of bf16 is as far");
}

#[test]
fn a_prompt_on_several_devices_agrees_with_the_reference() {
    agrees(&small(64), 2, 40, 32, 0);
    agrees(&wide(32).layers(1), 4, 33, 20, 1);
    // A bias of a sum is the first device's, and kv heads are normalised.
    agrees(&normed(small(32)), 2, 20, 20, 2);
}

/// Each device normalises all rows of the sum, or a share of them that it stores on both.
#[test]
fn gemma_2_on_several_devices_agrees_with_the_reference() {
    for (exchange, seed) in [(Exchange::OneShot, 3), (Exchange::TwoShot, 4)] {
        agrees_by(exchange, &gemma2(64), 2, 40, 32, seed);
    }
}

/// Each device has a share of every expert's columns; all choose the same experts. Seeds as those of
/// the test of one device.
#[test]
fn mixtures_of_experts_on_several_devices_agree_with_the_reference() {
    for (exchange, (seed, spec)) in
        [Exchange::OneShot, Exchange::TwoShot].into_iter().zip((57..).zip(small_mixtures(64)))
    {
        agrees_by(exchange, &spec, 2, 20, 13, seed);
    }
}

/// Rows that are sequences of their own choose tokens as one device does, greedily and at random,
/// and feed them back.
#[test]
fn tokens_are_chosen_as_on_one_device() {
    let spec = small(64).layers(1);
    let mut rows = Rows::default();
    rows.add(&[3], 0, &PAGES_OF[0]);
    rows.add(&[90], 0, &PAGES_OF[1]);
    let rows = rows.idle(17);
    let draw =
        |row: u32| Request { temperature: 0.9, top_p: 0.95, top_k: u32::MAX, seed: 5, row, ..Request::default() };
    for (draws, seed) in [(vec![], 0), (vec![draw(0), draw(1)], 1)] {
        let run = |machine: &mut AnyGraph| {
            let mut seen = Vec::new();
            let mut each = |tokens: &[u32]| {
                seen.extend_from_slice(&tokens[..2]);
                ControlFlow::Continue(())
            };
            assert_eq!(machine.run_until(&rows.view(), 3, &draws, &[], &mut each).unwrap(), 3);
            seen
        };
        let machine = |count: usize| {
            let step = planned(&spec, [17, count], true);
            let weights: Arc<dyn Weights + Send + Sync> = Arc::new(random(&spec));
            PeerWeights::new(&devices(seed, count), &weights).machine(step, None, &mut |_, _| ()).unwrap()
        };
        let right = run(&mut machine(1));
        let found = run(&mut machine(2));
        assert_eq!((right.len(), &found), (6, &right));
    }
}

/// A prompt by graphs, the next token by the decode machine of the same devices, on the same pools.
#[test]
fn decoding_goes_on_after_a_prompt_on_two_devices() {
    let spec = small(64).layers(1);
    let on = devices(3, 2);
    let mut graphs = peers(&on, &spec, 32, false);
    let placed = schedule(program(&spec, [1, 2, 4], false), 64).unwrap();
    let options = DeviceOptions { stage_bytes: 2048, ..DeviceOptions::for_simulator() };
    let mut weights = DeviceWeights::on(on, Arc::new(random(&spec)));
    let mut decode = weights.machine(placed, Some(graphs.kv()), options, &mut |_, _| ()).unwrap();
    let prompt = prompt(21, 3);
    let mut rows = Rows::default();
    rows.add(&prompt[..20], 0, &PAGES_OF[0]);
    step(&mut graphs, &rows);
    let mut next = Rows::default();
    next.add(&prompt[20..], 20, &PAGES_OF[0]);
    decode.step(&next.view()).unwrap();
    let mut all = Rows::default();
    all.add(&prompt, 0, &PAGES_OF[0]);
    let expected = Reference::new(&spec, 21).step(&all);
    let error = relative(&decode.f32(LOGITS).unwrap(), &expected[20]);
    assert!(error < BOUND, "{error}");
}

#[test]
fn as_many_weights_as_devices_are_wanted() {
    let spec = small(32);
    let mut one = [GraphWeights::new(devices(0, 1).remove(0), Arc::new(random(&spec)))];
    let refused =
        GraphWeights::peers(&mut one, planned(&spec, [32, 2], false), None, &mut |_, _| ()).map(drop).unwrap_err();
    assert!(matches!(refused, LoadError::Devices { wanted: 2, found: 1 }), "{refused}");
}
