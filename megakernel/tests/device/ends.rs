//! Rows that end in the kernel: at their tokens and not before, seen step by step, and the machine
//! runs on.

use std::ops::ControlFlow;

use tilewright_codegen::sample::Sample;
use tilewright_megakernel::lower::LOGITS;
use tilewright_megakernel::vm::device::DeviceMachine;
use tilewright_megakernel::vm::{LaunchError, MAX_ENDS, NO_TOKEN};

use super::lab::{Cells, least, machine, options};

const STEPS: usize = 7;

/// The tokens of each step.
fn until(machine: &mut DeviceMachine, rows: usize, steps: usize, ends: &[&[u32]]) -> Vec<Vec<u32>> {
    let mut seen = Vec::new();
    let told = machine.run_until(&Cells::at(rows, 0).view(), steps, ends, &mut |tokens| {
        seen.push(tokens.to_vec());
        ControlFlow::Continue(())
    });
    assert_eq!(told.unwrap(), seen.len());
    seen
}

/// The tokens of each step, rows cut at what ends them: what must be seen.
fn cut(whole: &[Vec<u32>], ends: &[&[u32]]) -> Vec<Vec<u32>> {
    let mut over = vec![false; ends.len()];
    let mut seen = Vec::new();
    for tokens in whole {
        let shown = tokens.iter().zip(&over).map(|(&token, &over)| if over { NO_TOKEN } else { token });
        seen.push(shown.collect::<Vec<u32>>());
        for ((over, token), ends) in over.iter_mut().zip(tokens).zip(ends) {
            *over |= ends.contains(token);
        }
        if over.iter().all(|&over| over) {
            break;
        }
    }
    seen
}

#[test]
fn rows_end_at_their_tokens_and_the_launch_with_the_last_of_them() {
    let sample = Sample::one_of(2);
    for (rows, sms, seed) in [(1, 3, 0), (1, 2, 500), (3, 3, 1000), (3, 4, 1500)] {
        let mut machine = machine(&least(), rows, sms, seed, options());
        let whole = until(&mut machine, rows, STEPS, &[]);
        assert_eq!(whole.len(), STEPS);
        // Every other step as the end of a row, others ending later, never, or not at all.
        for at in (0..STEPS).filter(|&at| sample.has(at + rows)) {
            let of = |row: usize, step: usize| whole[step.min(STEPS - 1)][row];
            let ids: Vec<Vec<u32>> = (0..rows).map(|row| vec![39, of(row, at + row)]).collect();
            let ends: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
            assert_eq!(until(&mut machine, rows, STEPS, &ends), cut(&whole, &ends), "{rows} rows, seed {seed}, {at}");
        }
        // A launch without ends goes on as if nothing had been.
        assert_eq!(until(&mut machine, rows, STEPS, &[]), whole, "{rows} rows, seed {seed}");
    }
}

/// A row that has ended changes nothing of the others: their tokens, and the last step's logits,
/// are those of a batch in which it was idle from then on.
#[test]
fn a_row_that_has_ended_is_idle() {
    let mut one = machine(&least(), 2, 3, 0, options());
    let mut two = machine(&least(), 2, 3, 70, options());
    let whole = until(&mut one, 2, 3, &[]);
    let end = [whole[0][1]];
    let seen = until(&mut one, 2, 3, &[&[], &end]);
    let logits = one.f32(LOGITS).unwrap();
    let mut cells = Cells::at(2, 0);
    let mut expected = Vec::new();
    for _ in 0..3 {
        two.run_each(&cells.view(), 1, &mut |tokens| {
            expected.push(tokens.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
        (cells.tokens[0], cells.positions[0]) = (expected[expected.len() - 1][0] as i32, cells.positions[0] + 1);
        cells.positions[1] = -1;
    }
    assert_eq!(seen, expected);
    assert_eq!(seen[1][1], NO_TOKEN);
    let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&logits), bits(&two.f32(LOGITS).unwrap()));
}

#[test]
fn a_launch_of_idle_rows_ends_with_its_first_step() {
    let mut machine = machine(&least(), 1, 2, 0, options());
    let idle = Cells { positions: vec![-1], ..Cells::at(1, 0) };
    assert_eq!(machine.run(&idle.view(), 5).unwrap(), [NO_TOKEN]);
    assert_eq!(machine.run(&Cells::at(1, 0).view(), 2).unwrap().len(), 2);
}

#[test]
fn ends_that_do_not_fit_are_refused() {
    let mut machine = machine(&least(), 2, 2, 0, options());
    let mut refused = |ends: &[&[u32]]| {
        let none = &mut |_: &[u32]| panic!("nothing runs");
        machine.run_until(&Cells::at(2, 0).view(), 2, ends, none).unwrap_err()
    };
    assert!(matches!(refused(&[&[1]]), LaunchError::EndRows { found: 1, rows: 2 }));
    let many: Vec<u32> = (0..=MAX_ENDS as u32).collect();
    assert!(matches!(refused(&[&[], &many]), LaunchError::Ends { row: 1, found: 9, most: 8 }));
}
