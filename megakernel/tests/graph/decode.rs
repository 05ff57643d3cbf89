//! Rows that decode: beside a chunk of a prompt, with tokens that the device chooses and feeds
//! back.

use std::ops::ControlFlow;
use std::sync::Arc;

use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::ir::Arch;
use tilewright_graph::models::Llama;
use tilewright_kernels::naive::{self, Sampling};
use tilewright_kernels::sample::Request;
use tilewright_megakernel::model::Architecture;
use tilewright_megakernel::vm::NO_TOKEN;
use tilewright_megakernel::vm::graph::{GraphMachine, GraphTuning, GraphWeights, MOST_QUEUED, Scratch};

use super::lab::{
    PAGES, Reference, Rows, gemma2, machine, packed, planned, prompt, random, sampled, step, tiny, weights, worst,
};

const BOUND: f64 = 2e-2;
const PAGES_OF: [[i32; PAGES]; 3] =
    [[5, 17, 2, 9, 23, 0, 11, 14], [1, 3, 20, 4, 22, 6, 8, 7], [10, 12, 13, 15, 16, 18, 19, 21]];

/// A prompt of the first sequence, then of the second; then both decode beside chunks of the third.
fn steps() -> [Rows; 4] {
    let mut steps = [(); 4].map(|()| Rows::default());
    let all = [prompt(30, 1), prompt(12, 2), prompt(40, 3)];
    steps[0].add(&all[0][..28], 0, &PAGES_OF[0]);
    steps[1].add(&all[1][..10], 0, &PAGES_OF[1]);
    for (step, chunk) in [(2, 0..17), (3, 17..40)] {
        for (sequence, first) in [(0, 26 + step), (1, 8 + step)] {
            steps[step].add(&all[sequence][first..=first], first, &PAGES_OF[sequence]);
        }
        steps[step].add(&all[2][chunk.clone()], chunk.start, &PAGES_OF[2]);
    }
    steps
}

fn agrees(spec: &impl Architecture, arch: Arch, sms: u32) {
    agrees_as(spec, arch, sms, None);
}

fn agrees_as(spec: &impl Architecture, arch: Arch, sms: u32, tuning: Option<GraphTuning>) {
    let device = Simulator::new(Options { arch, seed: 3, sms, ..Options::default() }).device();
    let mut weights = GraphWeights::new(device, Arc::new(random(spec)));
    weights.tune(tuning);
    let mut machine = machine(&mut weights, spec, 32);
    let mut reference = Reference::new(spec, 32);
    for (at, rows) in steps().iter().enumerate() {
        let error = worst(&step(&mut machine, rows), &reference.step(rows));
        println!("{arch}, {sms} SMs, step {at}: {error:.1e}");
        assert!(error < BOUND, "{arch}, {sms} SMs, step {at}: {error}");
    }
}

#[test]
fn decoding_rows_beside_a_chunk_agree_with_the_reference() {
    let spec = tiny(64).layers(1);
    agrees(&spec, Arch::Sm90a, 4);
    // Blocks that do not stay.
    agrees_as(&spec, Arch::Sm90a, 4, Some(GraphTuning::SHARES));
    // More blocks than shares.
    agrees(&spec, Arch::Sm90a, 132);
    agrees(&spec, Arch::Sm80, 48);
    agrees(&tiny(128).heads(2, 1), Arch::Sm90a, 4);
    // Decode attention with a soft cap and a window.
    agrees(&gemma2(64), Arch::Sm90a, 4);
    // No decode attention has such heads.
    agrees(&tiny(32).layers(1), Arch::Sm90a, 4);
}

/// The result of a row does not depend on the other rows, bit for bit.
#[test]
fn a_decoding_row_has_the_same_bits_in_any_company() {
    let spec = tiny(64).layers(1);
    let mut machine = machine(&mut weights(&spec, Arch::Sm90a, 4), &spec, 32);
    let [first, second, both, _] = steps();
    step(&mut machine, &first);
    step(&mut machine, &second);
    let beside = step(&mut machine, &both);
    for (row, sequence, position) in [(0, 0, 28), (1, 1, 10)] {
        let mut alone = Rows::default();
        alone.add(&both.tokens[row..=row], position, &PAGES_OF[sequence]);
        assert_eq!(step(&mut machine, &alone)[0].len(), 136);
        let alone = machine_logits(&mut machine, &alone, 0);
        assert_eq!(alone, beside[row], "row {row}");
    }
}

/// If all rows attend together, a generated token has the bits of a prompt token.
#[test]
fn rows_that_attend_together_have_the_bits_of_a_prompt() {
    let spec = tiny(64).layers(1);
    let mut machine = machine(&mut weights(&spec, Arch::Sm90a, 4), &spec, 32);
    machine.attend_together();
    let tokens = prompt(23, 1);
    let whole = {
        let mut rows = Rows::default();
        rows.add(&tokens, 0, &PAGES_OF[0]);
        step(&mut machine, &rows)
    };
    let mut first = 0;
    let mut found = Vec::new();
    for count in [17, 1, 1, 4] {
        let mut rows = Rows::default();
        rows.add(&tokens[first..first + count], first, &PAGES_OF[1]);
        // Another row beside, so that the product of the logits is that of all rows.
        rows.add(&[5], 0, &PAGES_OF[2]);
        let mut logits = step(&mut machine, &rows);
        logits.pop();
        found.extend(logits);
        first += count;
    }
    assert_eq!(found, whole);
}

/// The logits of a row by the product of all rows.
fn machine_logits(machine: &mut GraphMachine, rows: &Rows, row: usize) -> Vec<f32> {
    let rows = rows.clone().idle(32);
    let mut found = Vec::new();
    let mut each = |at, logits: &[f32]| {
        if at == row {
            found = logits.to_vec();
        }
    };
    machine.step(&rows.view(), &[row, 31], &mut each).unwrap();
    found
}

/// Three sequences after their prompts, and a machine that holds them.
pub fn decoding(spec: &Llama, sampling: bool) -> (GraphMachine, Rows) {
    let mut weights = weights(spec, Arch::Sm90a, 5);
    if !sampling {
        // Then the product keeps the likeliest, and no logits.
        weights.share(&packed(spec, weights.device().clone()));
    }
    let step = if sampling { sampled(spec, 32) } else { planned(spec, 32) };
    let mut machine = weights.machine(step, None, &mut |_, _| ()).unwrap();
    let mut rows = Rows::default();
    for (sequence, length) in [(0, 20), (1, 3), (2, 31)] {
        let tokens = prompt(length, sequence as i32);
        let mut fed = Rows::default();
        fed.add(&tokens[..length - 1], 0, &PAGES_OF[sequence]);
        machine.submit(&fed.idle(32).view()).unwrap();
        rows.add(&tokens[length - 1..], length - 1, &PAGES_OF[sequence]);
    }
    (machine, rows.idle(32))
}

pub fn draws() -> Vec<Request> {
    let sampling = |seed| Sampling::new(0.9, Some(20), 0.95, seed).unwrap();
    vec![Request::new(&sampling(3), 7, 0), Request::default(), Request::new(&sampling(4), 0, 2)]
}

#[test]
fn the_device_chooses_what_the_host_would() {
    for sampling in [false, true] {
        let (mut machine, rows) = decoding(&tiny(64).layers(1), sampling);
        let keeps = |kept: Scratch| machine.plan().scratch.iter().any(|(scratch, _)| *scratch == kept);
        assert_eq!([Scratch::WantedLogits, Scratch::WantedBests].map(keeps), [sampling, !sampling]);
        let draws = if sampling { draws() } else { Vec::new() };
        let chosen = machine.choose(&rows.view(), &[0, 1, 2], &draws).unwrap();
        let mut expected = Vec::new();
        let mut by_host = |row: usize, logits: &[f32]| {
            let draw = draws.get(row).copied().unwrap_or_default();
            let token = naive::sample(logits, &draw.sampling().unwrap(), draw.step, draw.row);
            expected.push(token.unwrap() as u32);
        };
        machine.logits(&[0, 1, 2], &mut by_host).unwrap();
        assert_eq!(chosen, expected, "sampling: {sampling}");
        // Named in another order, and only some.
        let draws: Vec<Request> = draws.into_iter().rev().take(2).collect();
        assert_eq!(machine.choose(&rows.view(), &[2, 1], &draws).unwrap(), [expected[2], expected[1]]);
    }
}

/// Tokens of all rows, step by step, until `most` steps were seen, and those of the steps under way
/// by then.
fn run(machine: &mut GraphMachine, rows: &Rows, steps: usize, ends: &[u32], seen: usize) -> Vec<Vec<u32>> {
    let draws = if machine.plan().choice.as_ref().unwrap().sampled { draws() } else { Vec::new() };
    let mut all = Vec::new();
    let done = machine.run_until(&rows.view(), steps, &draws, &[ends; 32], &mut |tokens| {
        all.push(tokens[..3].to_vec());
        assert!(tokens[3..].iter().all(|&token| token == NO_TOKEN));
        if all.len() >= seen { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(done.unwrap(), all.len());
    all
}

#[test]
fn steps_that_feed_themselves_are_those_that_the_host_feeds() {
    // More steps than there is room for tokens of; the host feeds where no decode attention has
    // such heads.
    for (head_dim, sampling, steps) in [(64, true, 2 * MOST_QUEUED + 1), (32, true, 4), (64, false, 4)] {
        let spec = tiny(head_dim).layers(1).inner(32).heads(2, 1);
        let (mut machine, start) = decoding(&spec, sampling);
        let mut rows = start.clone();
        let mut draws = if sampling { draws() } else { Vec::new() };
        let mut expected = Vec::new();
        for _ in 0..steps {
            let chosen = machine.choose(&rows.view(), &[0, 1, 2], &draws).unwrap();
            for (row, &token) in chosen.iter().enumerate() {
                rows.tokens[row] = token as i32;
                rows.positions[row] += 1;
            }
            draws.iter_mut().for_each(|draw| draw.step += 1);
            expected.push(chosen);
        }
        assert_eq!(run(&mut machine, &start, steps, &[], 99), expected, "head dim {head_dim}, sampling: {sampling}");
        // Of four steps one is queued when the first is told of; where the host feeds none is.
        let told = if head_dim == 64 { MOST_QUEUED } else { 1 };
        assert_eq!(run(&mut machine, &start, 4, &[], 1), expected[..told]);
        // The third token of the first row ends every row that chooses it.
        let end = expected[2][0];
        let mut ended = [false; 3];
        let mut until = expected.clone();
        for tokens in &mut until {
            for (token, ended) in tokens.iter_mut().zip(&mut ended) {
                let is_end = *token == end;
                *token = if *ended { NO_TOKEN } else { *token };
                *ended |= is_end;
            }
        }
        until.retain(|tokens| tokens.iter().any(|&token| token != NO_TOKEN));
        assert_eq!(run(&mut machine, &start, steps, &[end], 99), until);
    }
}

#[test]
fn what_the_device_cannot_choose_is_refused() {
    let (mut machine, rows) = decoding(&tiny(64).layers(1), false);
    let error = machine.choose(&rows.view(), &[32], &[]).unwrap_err().to_string();
    assert!(error.contains("32"), "{error}");
    let error = machine.choose(&rows.view(), &[0], &draws()[..1]).unwrap_err().to_string();
    assert!(error.contains("request"), "{error}");
    let error = machine.run_until(&rows.view(), 0, &[], &[], &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("1 to"), "{error}");
    // The third row has no page for its 129th token.
    let error = machine.run_until(&rows.view(), 99, &[], &[], &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("position"), "{error}");
}
