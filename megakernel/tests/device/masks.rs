//! Masks that the host sends while a launch runs: the kernel chooses among the tokens that they allow.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::sample::Sample;
use tilewright_codegen::sim::HostOrder;
use tilewright_graph::models::Llama;
use tilewright_kernels::naive::{self, Sampling};
use tilewright_kernels::sample::Request;
use tilewright_megakernel::lower::{LOGITS, NEXT_TOKEN};
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions};
use tilewright_megakernel::vm::{LaunchError, NO_TOKEN};

use super::lab::{Cells, least, load, machine, options, sampling, tiny, weights};

const STEPS: usize = 6;

fn masking(spec: &Llama, rows: usize, sms: usize, seed: u64) -> DeviceMachine {
    load(sampling(spec, rows, sms), spec, seed, DeviceOptions { masks: true, ..options() })
}

/// Ways of choosing, for rows in turn.
fn requests(rows: usize, step: usize) -> Vec<Request> {
    let hot = Sampling::new(0.9, Some(20), 0.95, 5).unwrap();
    (0..rows).map(|row| Request::new([&Sampling::GREEDY, &hot][row % 2], step as u64, row as u32)).collect()
}

/// The rows that have masks: all but each third one.
fn masked(rows: usize) -> Vec<usize> {
    (0..rows).filter(|row| row % 3 != 2).collect()
}

/// The tokens that may follow a token: about one in eight, of some tokens one in 64.
fn follows(before: i32, words: usize) -> Vec<u32> {
    let mut seed = (before as u32).wrapping_mul(0x9e37_79b9) | 1;
    let mut word = || {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        seed
    };
    let thin = before % 2 == 0;
    let mut mask: Vec<u32> =
        (0..words).map(|_| word() & word() & word() & if thin { word() & word() & word() } else { u32::MAX }).collect();
    // One token at least.
    mask[0] |= 1 << (before as u32 % 7);
    mask
}

fn hidden(logits: &[f32], mask: &[u32]) -> Vec<f32> {
    let allowed = |token: usize| mask[token / 32] >> (token % 32) & 1 == 1;
    logits.iter().enumerate().map(|(token, &logit)| if allowed(token) { logit } else { f32::NEG_INFINITY }).collect()
}

/// Tokens by single steps of a machine without masks, chosen here.
fn expected(spec: &Llama, rows: usize, sms: usize) -> Vec<u32> {
    let mut machine = load(sampling(spec, rows, sms), spec, 0, options());
    let mut cells = Cells::at(rows, 0);
    let mut tokens = Vec::new();
    for step in 0..STEPS {
        machine.step(&cells.view()).unwrap();
        for (row, request) in requests(rows, step).iter().enumerate() {
            let mut logits = machine.f32_row(LOGITS, row).unwrap();
            if masked(rows).contains(&row) {
                logits = hidden(&logits, &follows(cells.tokens[row], logits.len().div_ceil(32)));
            }
            let token = naive::sample(&logits, &request.sampling().unwrap(), request.step, request.row).unwrap();
            (cells.tokens[row], cells.positions[row]) = (token as i32, cells.positions[row] + 1);
            tokens.push(token as u32);
        }
    }
    tokens
}

#[test]
fn a_step_chooses_among_the_tokens_of_its_masks() {
    for (spec, rows, sms) in [(tiny(), 1, 3), (least(), 4, 3), (least(), 5, 2)] {
        let mut plain = load(sampling(&spec, rows, sms), &spec, 1, options());
        let mut machine = masking(&spec, rows, sms, 1);
        let cells = Cells::at(rows, 0);
        plain.step(&cells.view()).unwrap();
        for time in 0..2 {
            machine.set_requests(&requests(rows, time)).unwrap();
            let sender = machine.restrict(&masked(rows)).unwrap().unwrap();
            let mask = |row: usize| follows(row as i32 + 3 * time as i32, sender.words());
            masked(rows).into_iter().for_each(|row| sender.send(row, 0, &mask(row)).unwrap());
            machine.step(&cells.view()).unwrap();
            let chosen = machine.i32(NEXT_TOKEN).unwrap();
            for (row, request) in requests(rows, time).iter().enumerate() {
                let mut logits = plain.f32_row(LOGITS, row).unwrap();
                if masked(rows).contains(&row) {
                    logits = hidden(&logits, &mask(row));
                }
                assert_eq!(machine.f32_row(LOGITS, row).unwrap(), logits, "row {row}");
                let token = naive::sample(&logits, &request.sampling().unwrap(), request.step, request.row);
                assert_eq!(token, Some(chosen[row] as usize), "row {row}");
            }
        }
        // A restriction is that of one launch.
        machine.step(&cells.view()).unwrap();
        (0..rows).for_each(|row| {
            assert_eq!(machine.f32_row(LOGITS, row).unwrap(), plain.f32_row(LOGITS, row).unwrap(), "row {row}");
        });
    }
}

/// The words that a simulated launch shares with the host, which sends the masks that follow these
/// tokens as soon as a step ends.
fn host(rows: usize, words: usize, tokens: Vec<u32>) -> HostOrder {
    const TOKENS: usize = 16;
    let first = (TOKENS + 4096 * rows).next_multiple_of(32);
    let ticket = move |row: usize| first + row * (32 + words.next_multiple_of(32));
    let opens = Arc::new(move |steps| 4 * TOKENS as u64..4 * (TOKENS as u64 + steps * rows as u64));
    let answers = move |steps: u64| {
        let line = |row: usize| tokens[(steps as usize - 1) * rows + row] as i32;
        let stores = masked(rows).into_iter().flat_map(|row| {
            let mask = follows(line(row), words).into_iter().enumerate();
            let mask = mask.map(move |(at, word)| (4 * (ticket(row) + 32 + at) as u64, word));
            mask.chain([(4 * ticket(row) as u64, steps as u32 + 1)])
        });
        stores.collect()
    };
    let order = HostOrder::new("status", 4 * 7, opens).atomic(0).answering(Arc::new(answers));
    masked(rows).into_iter().fold(order, |order, row| order.atomic(4 * ticket(row) as u64))
}

#[test]
fn masks_that_follow_tokens_of_the_same_launch_are_waited_for() {
    for (spec, rows, sms, seeds) in [(tiny(), 1, 3, [0, 1000]), (least(), 4, 3, [2000, 3000]), (least(), 3, 5, [4, 5])]
    {
        let expected = expected(&spec, rows, sms);
        for seed in Sample::one_of(2).of(&seeds) {
            let program = sampling(&spec, rows, sms);
            let options = DeviceOptions { masks: true, ..options() };
            let words = if rows == 1 { 200usize } else { 40 }.div_ceil(32);
            let mut machine = match std::env::var("TILEWRIGHT_DEVICE") {
                Ok(_) => load(program, &spec, seed, options),
                // The simulated host answers while the launch runs, the real one when it has ended.
                Err(_) => {
                    let host = Some(host(rows, words, expected.clone()));
                    let device = Simulator::new(Options { seed, sms: sms as u32, host, ..Options::default() }).device();
                    DeviceMachine::load(program, &weights(&spec), &device, options, &mut |_, _| ()).unwrap()
                }
            };
            machine.set_requests(&requests(rows, 0)).unwrap();
            let sender = machine.restrict(&masked(rows)).unwrap().unwrap();
            let send = |step: usize, tokens: &[u32]| {
                masked(rows).into_iter().for_each(|row| {
                    sender.send(row, step, &follows(tokens[row] as i32, sender.words())).unwrap();
                });
            };
            let cells = Cells::at(rows, 0);
            let first: Vec<u32> = cells.tokens.iter().map(|&token| token as u32).collect();
            send(0, &first);
            let mut found = Vec::new();
            machine
                .run_each(&cells.view(), STEPS, &mut |tokens| {
                    found.extend_from_slice(tokens);
                    // The host may be late.
                    std::thread::sleep(Duration::from_millis(seed % 2));
                    send(found.len() / rows, tokens);
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert_eq!(found, expected, "seed {seed}");
        }
    }
}

#[test]
fn a_row_whose_mask_allows_nothing_ends() {
    let mut machine = masking(&least(), 2, 3, 3);
    let sender = machine.restrict(&[1]).unwrap().unwrap();
    sender.send(1, 0, &vec![0; sender.words()]).unwrap();
    // The row is idle from the second step on, and asks for no mask.
    let tokens = machine.run(&Cells::at(2, 0).view(), 4).unwrap();
    let of_row = |row: usize| tokens.iter().skip(row).step_by(2).copied().collect::<Vec<u32>>();
    assert_eq!(of_row(1), [NO_TOKEN; 4]);
    assert!(!of_row(0).contains(&NO_TOKEN), "{tokens:?}");
}

#[test]
fn a_host_that_is_late_is_reported_and_masks_of_other_steps_do_not_count() {
    let options = || DeviceOptions { masks: true, polls: 1 << 10, ..options() };
    let mut machine = load(sampling(&least(), 2, 3), &least(), 4, options());
    for sent in [0, 3] {
        let sender = machine.restrict(&[0]).unwrap().unwrap();
        (0..sent).for_each(|step| sender.send(0, step, &follows(0, sender.words())).unwrap());
        // What was sent before is forgotten.
        machine.restrict(&[0]).unwrap();
        let error = machine.step(&Cells::at(2, 0).view()).unwrap_err();
        let LaunchError::LateMask { label, .. } = &error else { panic!("{error}") };
        assert!(label.contains("sample"), "{label}");
    }
    // The machine goes on.
    let tokens = machine.run(&Cells::at(2, 0).view(), 3).unwrap();
    let plain = DeviceOptions { masks: false, ..options() };
    let mut plain = load(sampling(&least(), 2, 3), &least(), 4, plain);
    assert_eq!(tokens, plain.run(&Cells::at(2, 0).view(), 3).unwrap());
}

#[test]
fn a_launch_that_is_refused_leaves_no_row_restricted() {
    let mut machine = masking(&least(), 2, 2, 6);
    let wrong = Cells { positions: vec![1 << 20; 2], ..Cells::at(2, 0) };
    machine.restrict(&[0]).unwrap();
    assert!(matches!(machine.step(&wrong.view()), Err(LaunchError::Cells(_))));
    machine.step(&Cells::at(2, 0).view()).unwrap();
    machine.restrict(&[1]).unwrap();
    assert!(matches!(machine.run(&wrong.view(), 3), Err(LaunchError::Cells(_))));
    machine.run(&Cells::at(2, 0).view(), 3).unwrap();
}

#[test]
fn masks_that_do_not_fit_are_refused() {
    let mut machine = masking(&least(), 2, 2, 0);
    let sender = machine.restrict(&[0, 1]).unwrap().unwrap();
    let words = sender.words();
    for (row, count) in [(2, words), (0, words - 1), (1, words + 1)] {
        let error = sender.send(row, 0, &vec![0; count]).unwrap_err();
        assert!(matches!(error, LaunchError::Mask { rows: 2, .. }), "{error}");
    }
    assert!(matches!(machine.restrict(&[2]), Err(LaunchError::Mask { row: 2, rows: 2, .. })));
    // Neither a program that does not sample nor a machine without the option takes masks.
    let greedy = DeviceOptions { masks: true, ..options() };
    let mut greedy = super::lab::machine(&least(), 1, 2, 0, greedy);
    assert!(matches!(greedy.restrict(&[0]), Err(LaunchError::NoMasks)));
    let mut plain = machine_without(2);
    assert!(matches!(plain.restrict(&[0]), Err(LaunchError::NoMasks)));
    assert!(plain.restrict(&[]).unwrap().is_none());
}

fn machine_without(rows: usize) -> DeviceMachine {
    machine(&least(), rows, 2, 0, options())
}
