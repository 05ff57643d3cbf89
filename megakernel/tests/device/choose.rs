//! Choices at random in the kernel: the oracle's on the same logits, the reference machine's on the
//! same model.

use tilewright_codegen::sample::Sample;
use tilewright_graph::models::Llama;
use tilewright_kernels::naive::{self, Sampling};
use tilewright_kernels::sample::Request;
use tilewright_megakernel::lower::{LOGITS, NEXT_TOKEN};
use tilewright_megakernel::vm::CellError;
use tilewright_megakernel::vm::LaunchError;
use tilewright_megakernel::vm::device::DeviceMachine;
use tilewright_megakernel::vm::reference::{KvState, Machine};

use super::lab::{Cells, chain, least, load, machine, options, sampling, tiny, weights};

/// Ways of choosing, for rows in turn; the second is greedy.
fn ways() -> [Sampling; 4] {
    let new = |temperature, top_k, top_p, seed| Sampling::new(temperature, top_k, top_p, seed).unwrap();
    [new(1.0, None, 1.0, 1), Sampling::GREEDY, new(0.7, Some(9), 0.9, u64::MAX), new(1.5, None, 0.6, 3)]
}

/// The sampling requests of a step; the random numbers' rows are not those of the batch.
fn requests(rows: usize, step: u64) -> Vec<Request> {
    (0..rows).map(|row| Request::new(&ways()[row % 4], step + row as u64, 10 + row as u32)).collect()
}

/// Tokens by single steps, each checked against the oracle on the logits of its step.
fn by_steps(machine: &mut DeviceMachine, cells: &mut Cells, steps: usize) -> Vec<u32> {
    let rows = cells.tokens.len();
    let mut tokens = Vec::new();
    for step in 0..steps {
        let asked = requests(rows, step as u64);
        machine.set_requests(&asked).unwrap();
        machine.step(&cells.view()).unwrap_or_else(|error| panic!("step {step}: {}", chain(&error)));
        let chosen = machine.i32(NEXT_TOKEN).unwrap();
        for (row, (&token, request)) in chosen.iter().zip(&asked).enumerate() {
            if cells.positions[row] < 0 {
                assert_eq!(token, -1, "row {row} is idle");
                continue;
            }
            let logits = machine.f32_row(LOGITS, row).unwrap();
            let expected = naive::sample(&logits, &request.sampling().unwrap(), request.step, request.row);
            assert_eq!(Some(token as usize), expected, "step {step}, row {row}");
            (cells.tokens[row], cells.positions[row]) = (token, cells.positions[row] + 1);
        }
        tokens.extend(chosen.iter().map(|&token| token as u32));
    }
    tokens
}

/// Tokens by the reference machine.
fn by_reference(spec: &Llama, rows: usize, sms: usize, steps: usize) -> Vec<u32> {
    let mut machine = Machine::new(sampling(spec, rows, sms), &weights(spec), 1).unwrap();
    let mut kv = KvState::new(machine.program()).unwrap();
    let mut cells = Cells::at(rows, 0);
    let mut tokens = Vec::new();
    for step in 0..steps {
        machine.set_requests(&requests(rows, step as u64)).unwrap();
        cells.tokens = machine.step(&mut kv, &cells.view()).unwrap().i32(NEXT_TOKEN).unwrap();
        cells.positions.iter_mut().for_each(|position| *position += 1);
        tokens.extend(cells.tokens.iter().map(|&token| token as u32));
    }
    tokens
}

#[test]
fn choices_are_the_oracles_on_the_same_logits() {
    for (spec, rows, sms, seed) in [(tiny(), 1, 3, 0), (least(), 3, 2, 100), (least(), 6, 4, 200)] {
        let mut machine = load(sampling(&spec, rows, sms), &spec, seed, options());
        let mut cells = Cells::at(rows, 0);
        if rows > 3 {
            cells.positions[2] = -1;
        }
        by_steps(&mut machine, &mut cells, 3);
    }
}

#[test]
fn many_steps_in_one_launch_choose_as_the_reference_machine() {
    const STEPS: usize = 6;
    for (spec, rows, sms, seeds) in [(tiny(), 1, 3, [0, 1000]), (least(), 4, 3, [2000, 3000]), (least(), 2, 5, [4, 5])]
    {
        let expected = by_reference(&spec, rows, sms, STEPS);
        for seed in Sample::one_of(2).of(&seeds) {
            let mut machine = load(sampling(&spec, rows, sms), &spec, seed, options());
            machine.set_requests(&requests(rows, 0)).unwrap();
            for _ in 0..2 {
                // The second launch asks for the same again: requests count on in the launch alone.
                assert_eq!(machine.run(&Cells::at(rows, 0).view(), STEPS).unwrap(), expected, "seed {seed}");
            }
            // The steps of one launch are those of many.
            assert_eq!(by_steps(&mut machine, &mut Cells::at(rows, 0), STEPS), expected, "seed {seed}");
        }
    }
}

#[test]
fn a_program_that_samples_is_greedy_until_it_is_asked() {
    let expected = machine(&least(), 2, 3, 0, options()).run(&Cells::at(2, 0).view(), 4).unwrap();
    let mut machine = load(sampling(&least(), 2, 3), &least(), 9, options());
    assert_eq!(machine.run(&Cells::at(2, 0).view(), 4).unwrap(), expected);
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let mut machine = load(sampling(&least(), 2, 2), &least(), 0, options());
    let refused = |result| matches!(result, Err(LaunchError::Cells(CellError::Length { expected: 2, found: 1, .. })));
    assert!(refused(machine.set_requests(&requests(1, 0))));
    let nan = Request { temperature: f32::NAN, ..Request::default() };
    let error = machine.set_requests(&[Request::default(), nan]).unwrap_err();
    assert_eq!(
        chain(&error),
        "the cells are refused: row 1 asks for a choice that makes no sense: the temperature is NaN; it must be 0 (greedy) or a finite number above 0"
    );
    let mut greedy = super::lab::machine(&least(), 1, 2, 0, options());
    assert!(greedy.set_requests(&requests(1, 0)).is_err(), "a greedy program takes no requests");
    greedy.set_requests(&[]).unwrap();
}
