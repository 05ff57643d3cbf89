//! Prompts of quantised models: codes are made bf16 by launches of their own, or by products that
//! read them as the decode machine streams them.

use std::sync::Arc;

use tilewright_codegen::ir::Arch;
use tilewright_graph::models::Llama;
use tilewright_kernels::quant::Code;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions};
use tilewright_megakernel::program::{Buffer, BufferKind, Quantised};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::device::DeviceOptions;
use tilewright_megakernel::vm::graph::{GraphWeights, PeerWeights};
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::vm::resident::DeviceWeights;
use tilewright_megakernel::weights::{RandomCodes, Weights};

use super::devices::{self, PAGES_OF, wide};
use super::lab::{
    PAGE, PAGES, Rows, device, normed, options, packed_of, planned, planned_with, program, program_with, prompt,
    random, step, tiny, worst,
};

/// The bound for weights of bf16; rounding weights to bf16 adds less than that.
const BOUND: f64 = 2e-2;

/// A prompt in two chunks, against the exact meaning of the codes.
fn agrees(spec: &Llama, code: Code, group: Option<usize>) {
    agree(spec, form(code, group), 32, false);
}

/// The form of codes with scales of bf16.
fn form(code: Code, group: Option<usize>) -> Quantised {
    Quantised { code, group, zeros: false, scale: DType::BF16, ordered: false }
}

/// Logits of a prompt in chunks of `rows` rows, by products that read packed codes.
fn agrees_packed(spec: &Llama, code: Code, group: Option<usize>, chunk: usize) {
    agree(spec, form(code, group), chunk, true);
}

fn agree(spec: &Llama, form: Quantised, chunk: usize, is_packed: bool) {
    let of = |name: &str| name.ends_with("_proj.weight").then_some(form);
    let weights = RandomCodes::of_forms(spec, DType::BF16, 7, of).unwrap();
    let mut graph = GraphWeights::new(device(Arch::Sm90a, 3), Arc::new(weights.clone()));
    let stored = |rows, sms| program(spec, rows, sms).stored_as(&weights);
    if is_packed {
        graph.share(&packed_of(Arc::new(weights.clone()), stored(1, 3), graph.device().clone()));
    }
    let mut machine = graph.machine(planned(spec, chunk).stored_as(&weights), None, &mut |_, _| ()).unwrap();
    let widens = machine.plan().kernels.iter().filter(|kernel| kernel.name == "widen").count();
    assert_eq!(widens == 0, is_packed, "{widens} kernels widen");
    let bytes = graph.bytes();
    let pages = [5, 17, 2, 9, 23, 0, 11, 14];
    let tokens = prompt(chunk + 13, 2);
    let mut found = Vec::new();
    for (first, end) in [(0, chunk), (chunk, tokens.len())] {
        let mut rows = Rows::default();
        rows.add(&tokens[first..end], first, &pages);
        found.extend(step(&mut machine, &rows));
    }
    let placed = schedule(stored(tokens.len(), 1), PAGE * PAGES).unwrap();
    let mut reference = Machine::new(placed, &weights, 1).unwrap();
    let mut kv = KvState::new(reference.program()).unwrap();
    let mut rows = Rows::default();
    rows.add(&tokens, 0, &pages);
    let output = reference.step(&mut kv, &rows.view()).unwrap();
    let expected: Vec<_> = (0..tokens.len()).map(|row| output.f32_row(LOGITS, row).unwrap()).collect();
    let error = worst(&found, &expected);
    println!("{form:?}: {error:.1e}");
    assert!(error < BOUND, "{form:?}: {error}");
    // Another machine sends nothing.
    graph
        .machine(planned(spec, chunk).stored_as(&weights), Some(machine.kv()), &mut |_, _| panic!("weights are there"))
        .unwrap();
    assert_eq!(graph.bytes(), bytes);
}

#[test]
fn prompts_of_quantised_weights_agree_with_the_reference() {
    agrees(&tiny(64), Code::I4, Some(32));
    agrees(&tiny(64).layers(1), Code::E4m3, None);
    agrees(&normed(tiny(32).layers(1)), Code::U8, Some(16));
}

/// Few rows, whose norms begin and end in products and whose heads are appended by them, and more
/// than a tile of vectors.
#[test]
fn products_read_packed_codes() {
    let spec = |head_dim| tiny(head_dim).layers(1);
    agrees_packed(&tiny(64), Code::I4, Some(32), 32);
    agrees_packed(&spec(64), Code::E4m3, None, 64);
    agrees_packed(&normed(spec(32)), Code::U8, Some(32), 80);
    agrees_packed(&spec(64), Code::E2m1, Some(32), 40);
}

/// Devices widen their parts. A prompt of which steps have more rows than the decode machine, the
/// next token by that machine, on the same pools, against the reference machine on one device.
#[test]
fn prompts_of_quantised_weights_are_computed_by_several_devices() {
    let spec = wide(32).layers(1).inner(256);
    for (count, code, group) in
        [(2, Code::U4, Some(32)), (4, Code::U4, Some(96)), (2, Code::E4m3, Some(128)), (4, Code::I8, None)]
    {
        let weights: Arc<dyn Weights + Send + Sync> =
            Arc::new(RandomCodes::new(&spec, DType::BF16, 7, code, group).unwrap());
        let on = devices::devices(count as u64, count);
        let program = |shape| devices::program(&spec, shape, false).stored_as(&*weights);
        let step = devices::planned(&spec, [32, count], false).stored_as(&*weights);
        let mut graph = PeerWeights::new(&on, &weights).machine(step, None, &mut |_, _| ()).unwrap();
        let tokens = prompt(22, 2);
        let mut rows = Rows::default();
        rows.add(&tokens[..21], 0, &PAGES_OF[0]);
        let padded = rows.idle(32);
        let mut found = Vec::new();
        graph.step(&padded.view(), &padded.active(), &mut |_, logits| found.push(logits.to_vec())).unwrap();
        let options = DeviceOptions { stage_bytes: 2048, ..DeviceOptions::for_simulator() };
        let placed = schedule(program([1, count, 4]), 64).unwrap();
        let mut decode = DeviceWeights::on(on, weights.clone());
        let mut decode = decode.machine(placed, Some(graph.kv()), options, &mut |_, _| ()).unwrap();
        let mut next = Rows::default();
        next.add(&tokens[21..], 21, &PAGES_OF[0]);
        decode.step(&next.view()).unwrap();
        found.push(decode.f32(LOGITS).unwrap());
        let placed = schedule(program([22, 1, 1]), PAGE * PAGES).unwrap();
        let mut reference = Machine::new(placed, &*weights, 1).unwrap();
        let mut kv = KvState::new(reference.program()).unwrap();
        let mut rows = Rows::default();
        rows.add(&tokens, 0, &PAGES_OF[0]);
        let output = reference.step(&mut kv, &rows.view()).unwrap();
        let expected: Vec<_> = (0..22).map(|row| output.f32_row(LOGITS, row).unwrap()).collect();
        let error = worst(&found, &expected);
        println!("{count} devices, {code}, group {group:?}: {error:.1e}");
        assert!(error < BOUND, "{count} devices, {code}, group {group:?}: {error}");
    }
}

#[test]
fn forms_that_decoding_lacks_are_taken() {
    let spec = tiny(64).layers(1);
    agrees(&spec, Code::E2m1, Some(16));
    agree(&spec, Quantised { scale: DType::F8E4M3, ..form(Code::E2m1, Some(16)) }, 32, false);
}

/// Pages of e4m3 codes, with scales: appended and read as the reference machine has them.
#[test]
fn prompts_whose_keys_and_values_are_codes_agree_with_the_reference() {
    for (head_dim, seed) in [(64, 1), (128, 2)] {
        let spec = tiny(head_dim).layers(1).heads(2, 1);
        let options = |rows| LowerOptions { kv: DType::F8E4M3, ..options(rows) };
        let scaled = |buffers: &mut [Buffer]| {
            let pools = buffers.iter_mut().filter(|buffer| buffer.kind == BufferKind::KvPool);
            pools.zip([0.02, 0.7]).for_each(|(pool, scale)| pool.scale = Some(scale));
        };
        let mut wide = planned_with(&spec, &options(32));
        scaled(wide.buffers_mut());
        let mut graph = GraphWeights::new(device(Arch::Sm90a, seed), Arc::new(random(&spec)));
        let mut machine = graph.machine(wide, None, &mut |_, _| ()).unwrap();
        let pages = [5, 17, 2, 9, 23, 0, 11, 14];
        let tokens = prompt(61, 3);
        let mut found = Vec::new();
        for (first, end) in [(0, 32), (32, 61)] {
            let mut rows = Rows::default();
            rows.add(&tokens[first..end], first, &pages);
            found.extend(step(&mut machine, &rows));
        }
        let mut program = program_with(&spec, 1, &options(61));
        scaled(&mut program.buffers);
        let placed = schedule(program, PAGE * PAGES).unwrap();
        let mut reference = Machine::new(placed, &random(&spec), 1).unwrap();
        let mut kv = KvState::new(reference.program()).unwrap();
        let mut rows = Rows::default();
        rows.add(&tokens, 0, &pages);
        let output = reference.step(&mut kv, &rows.view()).unwrap();
        let expected: Vec<_> = (0..61).map(|row| output.f32_row(LOGITS, row).unwrap()).collect();
        let error = worst(&found, &expected);
        println!("head dim {head_dim}: {error:.1e}");
        // Numbers near the middle of two codes may be rounded otherwise: an eighth of one number in
        // some dozens.
        assert!(error < 5e-2, "head dim {head_dim}: {error}");
    }
}
