//! Masks that the host sends between the steps of a run: the device chooses among the tokens that
//! they allow.

use std::ops::ControlFlow;

use tilewright_kernels::naive::sample;
use tilewright_megakernel::vm::graph::GraphMachine;
use tilewright_megakernel::vm::{AbortHandle, LaunchError, NO_TOKEN};

use super::decode::{decoding, draws};
use super::lab::{Rows, tiny};

const ROWS: [usize; 3] = [0, 1, 2];
const MASKED: [usize; 2] = [0, 2];

/// The tokens that may follow a token: about every third one.
fn follows(before: i32, words: usize) -> Vec<u32> {
    let allowed = |token: usize| (token * 7 + before as usize).is_multiple_of(3);
    (0..words).map(|word| (0..32).filter(|bit| allowed(32 * word + bit)).fold(0, |mask, bit| mask | 1 << bit)).collect()
}

/// The next tokens of a machine's rows, chosen by the host from its logits.
fn by_host(machine: &mut GraphMachine, rows: &Rows, step: u64) -> Vec<u32> {
    let mut draws = draws();
    draws.iter_mut().for_each(|draw| draw.step += step);
    let mut found = Vec::new();
    let mut each = |row: usize, logits: &[f32]| {
        let mask = follows(rows.tokens[row], logits.len().div_ceil(32));
        let hides = |token: usize| MASKED.contains(&row) && mask[token / 32] >> (token % 32) & 1 == 0;
        let logits: Vec<f32> =
            logits.iter().enumerate().map(|(token, &x)| if hides(token) { f32::NEG_INFINITY } else { x }).collect();
        let draw = draws[row];
        found.push(sample(&logits, &draw.sampling().unwrap(), draw.step, draw.row).unwrap() as u32);
    };
    machine.step(&rows.view(), &ROWS, &mut each).unwrap();
    found
}

fn advance(rows: &mut Rows, tokens: &[u32]) {
    for (row, &token) in tokens.iter().enumerate().take(ROWS.len()) {
        rows.tokens[row] = token as i32;
        rows.positions[row] += 1;
    }
}

#[test]
fn rows_choose_among_the_tokens_of_their_masks() {
    const STEPS: usize = 5;
    let (mut machine, start) = decoding(&tiny(64).layers(1), true);
    let mut rows = start.clone();
    let mut expected = Vec::new();
    for step in 0..STEPS {
        let tokens = by_host(&mut machine, &rows, step as u64);
        let sender = machine.restrict(&MASKED).unwrap().unwrap();
        let send = |row: usize| sender.send(row, 0, &follows(rows.tokens[row], sender.words())).unwrap();
        MASKED.into_iter().for_each(send);
        let mut draws = draws();
        draws.iter_mut().for_each(|draw| draw.step += step as u64);
        assert_eq!(machine.choose(&rows.view(), &ROWS, &draws).unwrap(), tokens, "step {step}");
        // Named in another order.
        let sender = machine.restrict(&MASKED[..1]).unwrap().unwrap();
        sender.send(0, 0, &follows(rows.tokens[0], sender.words())).unwrap();
        let swapped = [draws[1], draws[0]];
        let found = machine.choose(&rows.view(), &[1, 0], &swapped).unwrap();
        assert_eq!(found, [tokens[1], tokens[0]], "step {step}");
        advance(&mut rows, &tokens);
        expected.push(tokens);
    }
    // The same in one run, of all its steps and of two.
    for most in [STEPS, 2] {
        let sender = machine.restrict(&MASKED).unwrap().unwrap();
        let send = |step: usize, tokens: &[i32]| {
            MASKED.into_iter().for_each(|row| sender.send(row, step, &follows(tokens[row], sender.words())).unwrap());
        };
        send(0, &start.tokens);
        let mut found = Vec::new();
        let told = machine.run_until(&start.view(), STEPS, &draws(), &[], &mut |tokens| {
            found.push(tokens[..3].to_vec());
            if found.len() == most {
                return ControlFlow::Break(());
            }
            send(found.len(), &tokens.iter().map(|&token| token as i32).collect::<Vec<_>>());
            ControlFlow::Continue(())
        });
        assert_eq!((told.unwrap(), &found[..]), (most, &expected[..most]));
    }
    // The next step restricts none.
    let free = machine.choose(&start.view(), &ROWS, &draws()).unwrap();
    assert_ne!(free, expected[0], "the masks had excluded some choice");
}

#[test]
fn a_row_whose_mask_allows_nothing_has_no_token() {
    let (mut machine, rows) = decoding(&tiny(64).layers(1), true);
    let sender = machine.restrict(&[1]).unwrap().unwrap();
    sender.send(1, 0, &vec![0; sender.words()]).unwrap();
    let chosen = machine.choose(&rows.view(), &ROWS, &draws()).unwrap();
    assert!(chosen[1] == NO_TOKEN && chosen[0] != NO_TOKEN && chosen[2] != NO_TOKEN, "{chosen:?}");
}

/// A run whose only row ends asks for no further mask, and a run that is aborted leaves none behind.
#[test]
fn a_run_ends_without_masks_for_steps_that_are_not_told() {
    let (mut machine, start) = decoding(&tiny(64).layers(1), true);
    let mut one = start.clone();
    one.positions[1..].fill(-1);
    let draw = &draws()[..1];
    let first = machine.choose(&one.view(), &ROWS[..1], draw).unwrap();
    let all = |words: usize| vec![u32::MAX; words];
    let sender = machine.restrict(&MASKED[..1]).unwrap().unwrap();
    sender.send(0, 0, &all(sender.words())).unwrap();
    let mut ends: Vec<&[u32]> = vec![&[]; 32];
    ends[0] = &first;
    let told = machine.run_until(&one.view(), 4, draw, &ends, &mut |_| ControlFlow::Continue(()));
    assert_eq!(told.unwrap(), 1);
    // The handle ends the run before its second step.
    let abort = AbortHandle::default();
    machine.listen_to(&abort);
    let sender = machine.restrict(&MASKED[..1]).unwrap().unwrap();
    sender.send(0, 0, &all(sender.words())).unwrap();
    let aborted = machine.run_until(&one.view(), 4, draw, &[], &mut |_| {
        abort.abort();
        ControlFlow::Continue(())
    });
    assert!(matches!(aborted, Err(LaunchError::Aborted { .. })), "{aborted:?}");
    let sender = machine.restrict(&MASKED[..1]).unwrap().unwrap();
    sender.send(0, 0, &all(sender.words())).unwrap();
    assert_eq!(machine.choose(&one.view(), &ROWS[..1], draw).unwrap(), first);
}

#[test]
fn steps_that_are_refused_leave_no_row_restricted() {
    let (mut machine, rows) = decoding(&tiny(64).layers(1), true);
    let free = machine.choose(&rows.view(), &ROWS, &draws()).unwrap();
    machine.restrict(&MASKED).unwrap();
    machine.choose(&rows.view(), &[32], &[]).unwrap_err();
    assert_eq!(machine.choose(&rows.view(), &ROWS, &draws()).unwrap(), free);
    machine.restrict(&MASKED).unwrap();
    machine.run_until(&rows.view(), 0, &draws(), &[], &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(machine.choose(&rows.view(), &ROWS, &draws()).unwrap(), free);
}

#[test]
fn masks_that_do_not_fit_are_refused() {
    let (mut machine, _) = decoding(&tiny(64).layers(1), true);
    let sender = machine.restrict(&[31]).unwrap().unwrap();
    assert!(matches!(sender.send(32, 0, &vec![0; sender.words()]), Err(LaunchError::Mask { row: 32, rows: 32, .. })));
    assert!(matches!(sender.send(0, 0, &[]), Err(LaunchError::Mask { found: 0, .. })));
    assert!(matches!(machine.restrict(&[32]), Err(LaunchError::Mask { row: 32, .. })));
    let (mut greedy, _) = decoding(&tiny(64).layers(1), false);
    assert!(matches!(greedy.restrict(&[0]), Err(LaunchError::NoMasks)));
    assert!(greedy.restrict(&[]).unwrap().is_none() && greedy.masked_steps() == 0);
}
