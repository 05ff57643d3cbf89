//! Rows whose largest logit is infinite, or whose logits are all NaN: they have no token and end, the
//! others go on, and nothing is read outside of the tables.

use std::ops::ControlFlow;

use tilewright_graph::models::Llama;
use tilewright_kernels::naive::Sampling;
use tilewright_kernels::sample::Request;
use tilewright_megakernel::lower::{LOGITS, NEXT_TOKEN};
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::{Accepted, DeviceMachine, DeviceOptions, Text};
use tilewright_megakernel::vm::{MAX_ENDS, NO_TOKEN};

use super::damaged::{Damage, Damaged, until_damage};
use super::devices::{peers, shared};
use super::lab::{Cells, device, least, options, placed, sampling, weights};

const STEPS: usize = 5;

/// The least model with an output projection of its own.
fn spec() -> Llama {
    least().tied(false)
}

fn damaged(program: &Placed, damage: Damage, seed: u64, options: DeviceOptions) -> DeviceMachine {
    let device = device(seed, program.target.sms);
    DeviceMachine::load(program.clone(), &Damaged::new(&spec(), damage), &device, options, &mut |_, _| ()).unwrap()
}

/// Requests that draw.
fn warm(rows: usize) -> Vec<Request> {
    let warm = Sampling::new(0.8, Some(9), 0.95, 4).unwrap();
    (0..rows as u32).map(|row| Request::new(&warm, 1, row)).collect()
}

/// The tokens of each step.
fn run(machine: &mut DeviceMachine, rows: usize, steps: usize, ends: &[&[u32]]) -> Vec<Vec<u32>> {
    let mut seen = Vec::new();
    let told = machine.run_until(&Cells::at(rows, 0).view(), steps, ends, &mut |tokens| {
        seen.push(tokens.to_vec());
        ControlFlow::Continue(())
    });
    assert_eq!(told.unwrap(), seen.len());
    seen
}

#[test]
fn a_model_whose_logits_are_all_infinite_or_nan_has_no_token() {
    let programs = [(placed(&spec(), 2, 3), vec![]), (sampling(&spec(), 2, 3), warm(2))];
    for (number, (program, requests)) in programs.into_iter().enumerate() {
        for logit in [f32::NEG_INFINITY, f32::INFINITY, f32::NAN] {
            let mut machine = damaged(&program, Damage::Logits(logit), number as u64, options());
            machine.set_requests(&requests).unwrap();
            machine.step(&Cells::at(2, 0).view()).unwrap();
            assert_eq!(machine.i32(NEXT_TOKEN).unwrap(), [-1, -1], "{logit}");
            let logits = machine.f32(LOGITS).unwrap();
            assert!(logits.iter().all(|x| *x == logit || (x.is_nan() && logit.is_nan())), "{logit}: {logits:?}");
            // The launch ends with the step that had no token.
            assert_eq!(machine.run(&Cells::at(2, 0).view(), STEPS).unwrap(), [NO_TOKEN; 2], "{logit}");
        }
    }
}

/// Tokens of a healthy model, and the one that its first row is fed at the third step at first.
fn healthy(machine: &mut DeviceMachine, rows: usize) -> (Vec<Vec<u32>>, u32) {
    let tokens = run(machine, rows, STEPS, &[]);
    let token = tokens[1][0];
    assert!(tokens[0][0] != token && Cells::at(rows, 0).tokens[0] as u32 != token, "{tokens:?}");
    (tokens, token)
}

/// Ends that no row chooses, as many as there is room for: then none of the places of ends is free.
fn other_ends(tokens: &[Vec<u32>]) -> Vec<u32> {
    let chosen = |end: &u32| tokens.iter().flatten().any(|token| token == end);
    (0..40).filter(|end| !chosen(end)).take(MAX_ENDS).collect()
}

#[test]
fn a_row_that_has_no_token_in_a_launch_ends_and_the_others_go_on() {
    for (rows, seed, at_random) in [(1, 0, false), (3, 100, false), (3, 200, true)] {
        let program = if at_random { sampling(&spec(), rows, 3) } else { placed(&spec(), rows, 3) };
        let requests = if at_random { warm(rows) } else { vec![] };
        let well = device(seed, 3);
        let mut well =
            DeviceMachine::load(program.clone(), &weights(&spec()), &well, options(), &mut |_, _| ()).unwrap();
        well.set_requests(&requests).unwrap();
        let (tokens, token) = healthy(&mut well, rows);
        let expected = until_damage(&tokens, &Cells::at(rows, 0).tokens, token, NO_TOKEN);
        assert_eq!((expected[1][0], expected[2][0]), (token, NO_TOKEN));
        assert!(rows == 1 || expected.len() > 3, "others go on: {expected:?}");
        let mut machine = damaged(&program, Damage::Token(token), seed + 1, options());
        machine.set_requests(&requests).unwrap();
        let ends = other_ends(&tokens);
        assert_eq!(ends.len(), MAX_ENDS);
        for ends in [&[][..], &[39], &ends] {
            let found = run(&mut machine, rows, STEPS, &vec![ends; rows]);
            assert_eq!(found, expected, "{rows} rows, at random: {at_random}, ends {ends:?}");
        }
    }
}

#[test]
fn a_row_of_several_devices_that_has_no_token_ends() {
    let program = shared(&spec(), 2, 2, 2, false);
    let on = |damage: Option<Damage>, seed: u64| {
        let devices = peers(seed, 2, 2);
        let load = &mut |_, _| ();
        match damage {
            None => DeviceMachine::load_on(program.clone(), &weights(&spec()), &devices, options(), load),
            Some(damage) => {
                DeviceMachine::load_on(program.clone(), &Damaged::new(&spec(), damage), &devices, options(), load)
            }
        }
        .unwrap()
    };
    let (tokens, token) = healthy(&mut on(None, 0), 2);
    let expected = until_damage(&tokens, &Cells::at(2, 0).tokens, token, NO_TOKEN);
    let ends = other_ends(&tokens);
    let mut machine = on(Some(Damage::Token(token)), 1);
    assert_eq!(run(&mut machine, 2, STEPS, &[&ends, &ends]), expected);
    let mut machine = on(Some(Damage::Logits(f32::NEG_INFINITY)), 2);
    assert_eq!(run(&mut machine, 2, STEPS, &[]), [[NO_TOKEN; 2]]);
}

/// The step after the damaged token gives nothing and is the last, whether or not all places of ends
/// are taken.
#[test]
fn a_text_with_proposals_ends_where_it_has_no_token() {
    let program = placed(&spec(), 4, 2);
    let options = DeviceOptions { propose: true, ..options() };
    let text =
        Text { tokens: &[3], pages: &[0, 1, 2, 3], request: None, ends: &[], left: 30, proposed: 3, script: None };
    let gave = |machine: &mut DeviceMachine, text: &Text| {
        let mut gave = Vec::new();
        let each = &mut |step: &Accepted| {
            gave.push(step.clone());
            ControlFlow::Continue(())
        };
        machine.propose(text, 30, each).unwrap();
        gave
    };
    let tokens_of = |gave: &[Accepted]| gave.iter().flat_map(|step| step.tokens.clone()).collect::<Vec<u32>>();
    let well = device(0, 2);
    let mut well = DeviceMachine::load(program.clone(), &weights(&spec()), &well, options, &mut |_, _| ()).unwrap();
    let whole = tokens_of(&gave(&mut well, &text));
    let ends = other_ends(std::slice::from_ref(&whole));
    // Every token where it comes first.
    let firsts = (0..whole.len()).filter(|&at| whole[at] != 3 && !whole[..at].contains(&whole[at]));
    let firsts: Vec<usize> = firsts.filter(|&at| at + 1 < whole.len()).collect();
    assert!(firsts.len() > 1, "{whole:?}");
    for at in firsts {
        let mut machine = damaged(&program, Damage::Token(whole[at]), at as u64, options);
        for ends in [&[][..], &ends] {
            let gave = gave(&mut machine, &Text { ends, ..text });
            assert_eq!(tokens_of(&gave), whole[..=at], "{ends:?}");
            assert!(gave.last().is_some_and(|step| step.tokens.is_empty()), "{gave:?}");
            assert_eq!(gave.iter().filter(|step| step.tokens.is_empty()).count(), 1);
        }
    }
}
